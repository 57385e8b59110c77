//! Which points say the same, and which say something else of the same.

use clawnode_proto::{
    memory::MemoryLayer,
    memory_point::{MemoryPoint, PointContent},
};

/// What two points have in common if they say the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ComparedPoint {
    layer: MemoryLayer,
    words: Vec<String>,
    names: [Option<String>; 3],
}

/// What a point says, by its words and their order: neither case nor punctuation makes a difference.
pub(super) fn said(content: &PointContent) -> ComparedPoint {
    let names = [&content.subject, &content.predicate, &content.object];
    let names = names.map(|name| name.as_deref().map(plain));
    ComparedPoint { layer: content.layer, words: words(&content.text), names }
}

/// Whether both say something of the same subject and predicate.
pub(super) fn is_about_same(one: &MemoryPoint, other: &MemoryPoint) -> bool {
    let about = |point: &MemoryPoint| {
        let PointContent { subject, predicate, .. } = &point.content;
        Some((plain(subject.as_ref()?), plain(predicate.as_ref()?)))
    };
    about(one).is_some_and(|value| about(other) == Some(value))
}

fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    // A text without letters says what its signs say.
    if words.is_empty() { vec![plain(text)] } else { words }
}

fn plain(name: &str) -> String {
    name.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::memory::MemoryTrust;

    use super::{super::tests::point, *};

    fn of(text: &str) -> ComparedPoint {
        said(&point(text, MemoryTrust::Person).content)
    }

    #[test]
    fn words_in_their_order_say_the_same() {
        assert_eq!(of("Ada likes tea."), of("ada  likes TEA!"));
        assert_ne!(of("Ada likes Bob"), of("Bob likes Ada"));
        assert_ne!(of("\u{1f600}"), of("\u{1f622}"), "texts without words are compared whole");
        assert_ne!(of("tea"), of("no tea"));
        let mut fact = point("Ada likes tea", MemoryTrust::Person);
        fact.content.layer = MemoryLayer::Social;
        assert_ne!(of("Ada likes tea"), said(&fact.content));
    }

    #[test]
    fn a_subject_and_a_predicate_are_compared_as_they_are_read() {
        let about = |subject: Option<&str>, predicate: Option<&str>| {
            let mut point = point("a", MemoryTrust::Person);
            point.content.subject = subject.map(str::to_owned);
            point.content.predicate = predicate.map(str::to_owned);
            point
        };
        let ada = about(Some("Ada"), Some("lives in"));
        assert!(is_about_same(&ada, &about(Some(" ada "), Some("Lives  in"))));
        assert!(!is_about_same(&ada, &about(Some("Bob"), Some("lives in"))));
        assert!(!is_about_same(&ada, &about(Some("Ada"), None)));
        let nothing = about(None, None);
        assert!(!is_about_same(&nothing, &nothing.clone()), "without both it is about nothing");
    }
}
