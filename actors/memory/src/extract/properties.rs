//! Whatever a message says, what is found in it is within the limits of points.

use clawnode_proto::{
    limits::LEARNED_POINTS,
    memory::{MemoryTrust, is_standing},
};
use proptest::prelude::*;

use super::{
    facts,
    own_words::HOLE,
    patterns::{ATTRIBUTES, PATTERNS},
    word_lists::{GIVES_WORK, LEADS, NEGATIONS},
};

/// Pieces that are more likely than others to be read as something.
fn piece() -> impl Strategy<Value = String> {
    let begins: Vec<&str> = PATTERNS.iter().map(|pattern| pattern.begins).collect();
    let attribute = prop::sample::select(ATTRIBUTES).prop_map(|(name, _)| format!("my {name} is"));
    prop_oneof![
        4 => prop::sample::select(begins).prop_map(str::to_owned),
        2 => attribute,
        2 => prop::sample::select(LEADS).prop_map(str::to_owned),
        1 => prop::sample::select(GIVES_WORK).prop_map(str::to_owned),
        1 => prop::sample::select(NEGATIONS).prop_map(str::to_owned),
        3 => prop::sample::select(vec![
            "always answer", "never use", "from now on:", "Ada", "Oslo", "tea", "and", "but",
            ",", ". ", "?", ":\n", "\"", "'", "\u{2019}", "\u{201c}", "```", "`", "> ", "<b>",
            "5'10\"", "I", "my wife is",
        ]).prop_map(str::to_owned),
        3 => "\\PC{0,20}",
        1 => any::<String>(),
        1 => "[a-z]{1,400}",
    ]
}

proptest! {
    #[test]
    fn any_text_gives_few_points_within_their_limits(
        pieces in prop::collection::vec(piece(), 0..60),
        gap in prop::sample::select(vec!["", " ", "\n"]),
    ) {
        let text = pieces.join(gap);
        let found = facts(&text);
        prop_assert!(found.len() <= LEARNED_POINTS);
        for content in &found {
            prop_assert_eq!(content.check(), Ok(()));
            prop_assert_eq!(content.trust, MemoryTrust::Person);
            prop_assert!(!content.text.contains(['\n', HOLE]));
            let is_one = is_standing(content.layer, content.trust, &content.text);
            prop_assert_eq!(is_one, content.object.is_none());
        }
        prop_assert_eq!(found, facts(&text), "the same each time");
    }

    /// A quote is never its person's own words, whatever is in it.
    #[test]
    fn what_is_quoted_gives_nothing(inside in "[^\"]{0,200}") {
        let text = format!("\"{inside}\"");
        prop_assert_eq!(facts(&text), Vec::new());
    }
}
