//! Hidden characters of a text become `\u{…}`, so that a reader sees them and a terminal does not obey them. Pure.

use clawnode_proto::visible::is_hidden;

/// Text of others, without characters that a terminal would obey or a reader would not see: those
/// become `\u{…}`. Line breaks and tabs stay, and so do characters that emoji and some scripts are
/// spelled with, after a character of theirs.
pub(super) fn clean(text: &str) -> String {
    clean_after(None, text)
}

/// The same for a further part of a text. What it goes on from is not known here: taken for a letter
/// that a joiner may follow.
pub(super) fn clean_more(text: &str) -> String {
    clean_after(Some('é'), text)
}

fn clean_after(mut before: Option<char>, text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let stays = match c {
            '\n' | '\t' => true,
            // Joiners, and the signs for "as a picture" and "as text".
            '\u{200c}' | '\u{200d}' => before.is_some_and(|character| !character.is_ascii()),
            '\u{fe0e}' | '\u{fe0f}' => before.is_some_and(|character| {
                !character.is_ascii() || "0123456789#*".contains(character)
            }),
            c => !is_hidden(c),
        };
        // One such sign after the other spells nothing.
        before = (!is_hidden(c)).then_some(c);
        if stays { out.push(c) } else { out.extend(c.escape_default()) }
    }
    out
}

/// Text of others that a person names or decides by: in one line, and every invisible character as
/// `\u{…}`.
pub(super) fn exact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

/// JSON that says the same with its hidden characters as escapes. They occur only in strings, but
/// for the line breaks between its parts.
pub(super) fn seen_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c == '\n' || !is_hidden(c) {
            out.push(c);
        } else {
            out.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_terminal_is_not_given_orders() {
        assert_eq!(clean("a\u{1b}[31mb\r\n\tc\u{9b}"), "a\\u{1b}[31mb\\r\n\tc\\u{9b}");
        assert_eq!(exact("a\u{1b}[31mb\r\n\tc"), "a\\u{1b}[31mb\\r\\n\\tc");
    }

    #[test]
    fn a_reader_sees_what_there_is() {
        for hidden in [
            '\u{200b}',
            '\u{202e}',
            '\u{2066}',
            '\u{feff}',
            '\u{2028}',
            '\u{e0041}',
            '\u{e000}',
            '\u{3164}',
        ] {
            let text = format!("é{hidden}b");
            let shown = format!("é{}b", hidden.escape_unicode());
            assert_eq!((clean(&text), exact(&text)), (shown.clone(), shown));
        }
        // Spelled as they must be, in words; before a decision, every sign is shown.
        for word in ["⚠\u{fe0f} careful", "👩\u{200d}💻", "می\u{200c}خواهم", "1\u{fe0f}\u{20e3}"]
        {
            assert_eq!(clean(word), word);
            assert!(exact(word).contains("\\u{"), "{word}");
        }
        for word in ["a\u{200d}b", "\u{200c}", "a\u{fe0f}", "é\u{200d}\u{200d}", "é\n\u{200d}"] {
            assert!(clean(word).contains("\\u{"), "{word:?}");
        }
        assert_eq!(clean("日本語 עברית عربي हिन्दी\u{a0}ﬁ"), "日本語 עברית عربي हिन्दी\u{a0}ﬁ");
    }

    #[test]
    fn json_says_the_same_in_characters_that_are_seen() {
        let value = json!({ "a\u{202e}": ["\u{1b}\n\u{7f}\u{9b}", "\u{e0041}é🦀\u{200b}"] });
        for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
            let shown = seen_json(&text);
            assert!(shown.chars().all(|c| c == '\n' || !is_hidden(c)), "{shown}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
        }
    }
}
