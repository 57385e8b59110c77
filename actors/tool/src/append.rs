//! Text put together piece by piece.

use std::fmt;

/// Puts `more` at the end of `text`.
pub fn append(text: &mut String, more: fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    fmt::Write::write_fmt(text, more).unwrap_or_default();
}
