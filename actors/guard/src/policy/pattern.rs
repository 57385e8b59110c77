//! Patterns of whole texts: `*` is any characters, `?` is one, everything else itself.

use wildmatch::WildMatch;

/// A pattern of a whole text.
#[derive(Clone, Debug, PartialEq)]
pub struct Pattern(WildMatch);

impl Pattern {
    /// Whether the whole text is such a one.
    pub fn fits(&self, text: &str) -> bool {
        self.0.matches(text)
    }
}

impl From<&str> for Pattern {
    fn from(text: &str) -> Self {
        Self(WildMatch::new(text))
    }
}
