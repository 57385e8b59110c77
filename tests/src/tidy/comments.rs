//! Comments on items: each says more than the item's name.

use super::{Check, File, Findings};

/// Words that add nothing to a name.
const FILLERS: [&str; 15] = [
    "a", "an", "how", "its", "of", "own", "the", "this", "what", "when", "where", "which", "who",
    "whose", "why",
];

pub(super) const COMMENTS_SAY_MORE_THAN_NAMES: Check = Check {
    name: "no comment of an item only repeats its name: it says the shape, the unit or the reason",
    run: |tree| {
        let mut findings = Findings::default();
        for file in tree.ending("rs") {
            for Described { line, comment, item } in described(file) {
                findings.scanned += 1;
                if repeats(comment, item) {
                    let what = format!("{}:{line}: `{comment}` on `{item}`", file.path);
                    findings.found.push(what);
                }
            }
        }
        findings
    },
    bad: &[("nodes/src/a.rs", "//! A.\nstruct B {\n    /// Which call.\n    call_id: u8,\n}\n")],
};

/// A comment of one sentence, and the line of its item. The id of a requirement is no sentence, and comments
/// without a full stop are texts of `--help`, which names every option.
struct Described<'a> {
    line: usize,
    comment: &'a str,
    item: &'a str,
}

fn described(file: &File) -> Vec<Described<'_>> {
    let mut found = Vec::new();
    let mut before = "";
    let mut lines = file.numbered().map(|(number, line)| (number, line.trim())).peekable();
    while let Some((line, text)) = lines.next() {
        let is_first = !before.starts_with("///");
        before = text;
        let Some(comment) = text.strip_prefix("/// ") else { continue };
        while lines.next_if(|(_, line)| line.starts_with("#[")).is_some() {}
        if let Some((_, item)) = lines.peek()
            && is_first
            && comment.contains(char::is_lowercase)
            && comment.ends_with('.')
            && !item.starts_with("///")
        {
            found.push(Described { line, comment, item });
        }
    }
    found
}

/// Whether all words of a comment are in the name of an item, or say nothing.
fn repeats(comment: &str, item: &str) -> bool {
    let Some(name) = name(item) else { return false };
    let names = words(name);
    words(comment).iter().all(|word| FILLERS.contains(&word.as_str()) || names.contains(word))
}

/// The name that this line of code defines: of a field, a variant, a function, a type or a constant.
fn name(item: &str) -> Option<&str> {
    const BEFORE: [&str; 12] = [
        "async", "const", "enum", "fn", "mod", "pub", "static", "struct", "trait", "type", "union",
        "unsafe",
    ];
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    // A scope, as in `pub(in crate::session)`.
    let scope = item.strip_prefix("pub(").and_then(|scope| scope.split_once(')'));
    let item = scope.map_or(item, |(_, rest)| rest);
    let mut names = item.split(|c| !is_part(c)).filter(|word| !word.is_empty());
    names.find(|word| !BEFORE.contains(word) && *word != "r")
}

/// The words of a comment or of a name, in lower case and in the singular.
fn words(text: &str) -> Vec<String> {
    let mut apart = String::new();
    let mut was_small = false;
    for character in text.chars() {
        if character.is_uppercase() && was_small {
            apart.push(' ');
        }
        was_small = character.is_lowercase() || character.is_ascii_digit();
        apart.push(if character.is_alphanumeric() { character } else { ' ' });
    }
    let words = apart.split_whitespace().map(str::to_lowercase);
    words.map(|word| word.strip_suffix('s').unwrap_or(&word).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_other_words_is_no_description() {
        for (comment, item) in [
            ("Which.", "call: CallId,"),
            ("Of which turn.", "pub(in crate::session) turn: TurnId,"),
            ("The state of a counter.", "pub struct CounterState {"),
            ("Bytes of a query.", "const QUERY_BYTES: usize = 2;"),
            ("The head.", "pub const fn head(&self) -> Head {"),
            ("Audio.", "Audio(Audio),"),
        ] {
            assert!(repeats(comment, item), "{comment} {item}");
        }
        for (comment, item) in [
            ("Which call, if it has begun.", "call: Option<CallId>,"),
            ("In milliseconds.", "wait: u64,"),
            ("The turn.", "call: CallId,"),
            ("Which.", "}"),
        ] {
            assert!(!repeats(comment, item), "{comment} {item}");
        }
    }

    #[test]
    fn comments_of_one_line_are_read_with_their_items() {
        let text = "/// Which.\n#[serde(default)]\n    call: u8,\n/// The turn,\n/// which is long.\nturn: u8,\n\
                    /// The account\naccount: u8,\n";
        let file = File { path: "nodes/src/a.rs".to_owned(), text: text.to_owned() };
        let found: Vec<_> = described(&file).iter().map(|one| (one.line, one.item)).collect();
        assert_eq!(found, [(1, "call: u8,")]);
    }
}
