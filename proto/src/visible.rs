//! Characters that a reader does not see, or that change how others look.
//!
//! A person who decides by reading (a session's name, the arguments of a call that waits for a
//! person) must not be shown one thing and decide about another.

use icu_properties::{
    CodePointMapData, CodePointSetData,
    props::{DefaultIgnorableCodePoint, GeneralCategory},
};

/// Whether a reader may not see it, or sees others elsewhere because of it: controls (line breaks
/// and tabs among them), format and direction characters, line and paragraph separators, what
/// Unicode lets a display leave out, and what it does not assign.
pub fn is_hidden(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let category = CodePointMapData::<GeneralCategory>::new().get(c);
    matches!(
        category,
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
            | GeneralCategory::PrivateUse
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned
    ) || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_reader_does_not_see_is_known() {
        let hidden = [
            '\0',
            '\t',
            '\n',
            '\u{1b}',
            '\u{7f}',
            '\u{85}',
            '\u{9b}', // controls, C0 and C1
            '\u{ad}',
            '\u{61c}',
            '\u{200b}',
            '\u{200d}',
            '\u{200e}',
            '\u{202e}',
            '\u{2060}',
            '\u{2066}',
            '\u{2069}',
            '\u{feff}',
            '\u{fff9}',
            '\u{e0001}',
            '\u{e0041}', // format
            '\u{2028}',
            '\u{2029}', // separators of lines
            '\u{34f}',
            '\u{115f}',
            '\u{17b4}',
            '\u{180b}',
            '\u{2065}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{ffa0}',
            '\u{e0100}', // neither format nor shown
            '\u{e000}',
            '\u{10fffd}',
            '\u{378}',
            '\u{ffff}', // unassigned
        ];
        for c in hidden {
            assert!(is_hidden(c), "{}", c.escape_unicode());
        }
        let seen = "aZ 0~:éß日本語Ελληνικάعربيעבריתไทยहिन्दी\u{301}🦀€½ﬁ\u{a0}\u{3000}\u{2011}";
        for c in seen.chars() {
            assert!(!is_hidden(c), "{}", c.escape_unicode());
        }
    }
}
