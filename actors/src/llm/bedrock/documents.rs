//! Names of documents, of which the API takes few characters and none twice.

use std::collections::BTreeSet;

use crate::llm::PlainMedia;

/// Characters of a name; the API takes 200.
const NAME_CHARS: usize = 150;

/// The names of a request so far. The same conversation gets the same names each time.
#[derive(Debug, Default)]
pub(super) struct DocumentNames(BTreeSet<String>);

// === impl DocumentNames ===

impl DocumentNames {
    /// A name that no other document has.
    pub(super) fn of(&mut self, media: &PlainMedia) -> String {
        let named = media.file_name();
        let stem = named.rsplit_once('.').map_or(named.as_str(), |(stem, _)| stem);
        let plain = |c: char| c.is_ascii_alphanumeric() || "-()[]".contains(c);
        let fit: String = stem.chars().map(|c| if plain(c) { c } else { ' ' }).collect();
        // White space may not follow on white space.
        let mut name = fit.split_whitespace().collect::<Vec<_>>().join(" ");
        name.truncate(NAME_CHARS);
        let name = if name.trim().is_empty() { "document" } else { name.trim() };
        let others = (2..).map(|nth: usize| format!("{name} ({nth})"));
        let mut candidates = std::iter::once(name.to_owned()).chain(others);
        let free = candidates.find(|name| !self.0.contains(name)).unwrap_or_default();
        self.0.insert(free.clone());
        free
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::media::MediaType;

    use super::*;
    use crate::llm::media::tests::media;

    #[test]
    fn names_are_made_fit_and_none_comes_twice() {
        let mut names = DocumentNames::default();
        let long = format!("{}.pdf", "a".repeat(300));
        for (given, name) in [
            (Some("Bericht_2026 – final.v2.pdf"), "Bericht 2026 final v2".to_owned()),
            (Some("a (1).pdf"), "a (1)".to_owned()),
            (Some("a (1).pdf"), "a (1) (2)".to_owned()),
            (Some("a (1)"), "a (1) (3)".to_owned()),
            (Some("é.pdf"), "document".to_owned()),
            (None, "attachment".to_owned()),
            (Some(&long), "a".repeat(NAME_CHARS)),
        ] {
            assert_eq!(names.of(&media(MediaType::Pdf, given)), name);
        }
    }
}
