//! What the bytes of a body are.

use encoding_rs::{Encoding, UTF_8};

/// How far into a body a zero byte is looked for.
const SNIFFED: usize = 8 << 10;
/// Types beside `text/*` that are text.
const TEXT_TYPES: [&str; 12] = [
    "application/json",
    "application/ld+json",
    "application/x-ndjson",
    "application/xml",
    "application/javascript",
    "application/ecmascript",
    "application/x-javascript",
    "application/x-www-form-urlencoded",
    "application/x-sh",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
];

/// A body, as a reader is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// Text, and what was done to it, if anything was lost.
    Text {
        text: String,
        /// What a reader should know of it.
        note: Option<String>,
    },
    /// No text.
    Binary,
}

impl Decoded {
    /// Reads `bytes` of this content type; `is_cut` if the body has more.
    pub fn of(bytes: &[u8], content_type: &str, is_cut: bool) -> Self {
        let (media, charset) = split(content_type);
        let marked = Encoding::for_bom(bytes);
        let named = charset.as_deref().map(|label| Encoding::for_label(label.as_bytes()));
        let encoding = marked.map(|(encoding, _)| encoding).or(named.flatten()).unwrap_or(UTF_8);
        let is_unknown = named == Some(None) && marked.is_none();
        let has_zero = bytes.iter().take(SNIFFED).any(|byte| *byte == 0);
        let wide = encoding != UTF_8 && !encoding.is_ascii_compatible();
        if !is_text(&media, bytes) || has_zero && !wide {
            return Self::Binary;
        }
        let bytes = if is_cut && encoding == UTF_8 { whole_characters(bytes) } else { bytes };
        let (text, used, had_errors) = encoding.decode(bytes);
        let note = match (had_errors, is_unknown) {
            (_, true) => {
                let label: String = charset.unwrap_or_default().chars().take(40).collect();
                Some(format!("the charset `{label}` is not known; read as {}", used.name()))
            }
            (true, false) => Some(format!(
                "some bytes are not valid {}; they are shown as \u{fffd}",
                used.name()
            )),
            (false, false) => None,
        };
        Self::Text { text: text.into_owned(), note }
    }
}

/// The media type in lower case, and the charset if there is one.
fn split(content_type: &str) -> (String, Option<String>) {
    let mut parts = content_type.split(';');
    let media = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        let value = value.trim().trim_matches('"').to_ascii_lowercase();
        (name.trim().eq_ignore_ascii_case("charset") && !value.is_empty()).then_some(value)
    });
    (media, charset)
}

fn is_text(media: &str, bytes: &[u8]) -> bool {
    match media {
        // A body without a declared type is text if it can be read as such.
        "" | "application/octet-stream" | "binary/octet-stream" => {
            std::str::from_utf8(whole_characters(bytes)).is_ok()
        }
        _ => {
            media.starts_with("text/")
                || TEXT_TYPES.contains(&media)
                || media.ends_with("+json")
                || media.ends_with("+xml")
                || media.ends_with("+yaml")
        }
    }
}

/// The bytes without the beginning of a character at their end.
pub fn whole_characters(bytes: &[u8]) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if error.error_len().is_none() => {
            bytes.get(..error.valid_up_to()).unwrap_or(bytes)
        }
        _ => bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Decoded {
        Decoded::Text { text: text.to_owned(), note: None }
    }

    #[test]
    fn text_is_read_as_it_was_written() {
        for (bytes, content_type, read) in [
            ("grün".as_bytes(), "text/html; charset=utf-8", "grün"),
            (b"gr\xfcn", "text/plain;charset=\"ISO-8859-1\"", "grün"),
            (b"\xef\xbb\xbfx", "application/json", "x"),
            (b"\xff\xfeh\0i\0", "text/plain", "hi"),
            (b"h\0i\0", "text/plain; charset=utf-16le", "hi"),
            (b"{}", "application/vnd.api+json", "{}"),
            (b"plain", "", "plain"),
            (b"plain", "application/octet-stream", "plain"),
            (b"", "text/plain", ""),
        ] {
            assert_eq!(Decoded::of(bytes, content_type, false), text(read), "{content_type}");
        }
        assert_eq!(Decoded::of(b"gr\xc3", "text/plain", true), text("gr"));
    }

    #[test]
    fn what_is_lost_is_told() {
        let Decoded::Text { text, note } = Decoded::of(b"a\xffb", "text/plain", false) else {
            panic!("no text")
        };
        assert_eq!(text, "a\u{fffd}b");
        assert!(note.unwrap().contains("some bytes are not valid UTF-8"));
        let Decoded::Text { note, .. } = Decoded::of(b"a", "text/plain; charset=klingon", false)
        else {
            panic!("no text")
        };
        assert!(note.unwrap().contains("`klingon` is not known"));
    }

    #[test]
    fn what_is_no_text_is_not_shown() {
        for (bytes, content_type) in [
            (&b"\x89PNG\r\n"[..], "image/png"),
            (b"readable", "image/png"),
            (b"a\0b", "text/plain"),
            (b"\x7fELF\xff", ""),
            (b"%PDF-1.7 \xff", "application/octet-stream"),
        ] {
            assert_eq!(Decoded::of(bytes, content_type, false), Decoded::Binary, "{content_type}");
        }
    }
}
