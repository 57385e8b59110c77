//! Headers that a tool asks for, from text.

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

/// Characters of a header's name that an error shows.
const SHOWN_CHARS: usize = 40;

/// How many headers a request may have, and their bytes together, names and values.
#[derive(Clone, Copy, Debug)]
pub struct HeaderBounds {
    /// Headers.
    pub most: usize,
    pub bytes: usize,
}

// === impl HeaderBounds ===

impl HeaderBounds {
    /// The headers of these names and values, in order.
    ///
    /// # Errors
    /// In words for who wrote them: which one is wrong and why, or that they are too many.
    pub fn read<'a>(
        self,
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<HeaderMap, String> {
        let Self { most, bytes } = self;
        let mut headers = HeaderMap::new();
        let mut size = 0;
        for (name, value) in given {
            size += name.len() + value.len();
            if headers.len() == most || size > bytes {
                return Err(format!("there are more than {most} headers, or {bytes} bytes"));
            }
            let shown: String = name.chars().take(SHOWN_CHARS).collect();
            let name = HeaderName::try_from(name)
                .map_err(|error| format!("`{shown}` is not the name of a header: {error}"))?;
            let value = HeaderValue::from_str(value).map_err(|error| {
                format!("what the header `{shown}` is set to is wrong: {error}")
            })?;
            headers.append(name, value);
        }
        Ok(headers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_headers_is_said() {
        let bounds = HeaderBounds { most: 2, bytes: 20 };
        let same = bounds.read([("accept", "a"), ("accept", "b")]).unwrap();
        assert_eq!(same.get_all("accept").iter().count(), 2);
        for (given, said) in [
            (vec![("a b", "c")], "`a b` is not the name of a header"),
            (vec![("a", "b\nc")], "the header `a`"),
            (vec![("a", "b"), ("a", "b"), ("a", "b")], "more than 2 headers"),
            (vec![("a", "01234567890123456789")], "or 20 bytes"),
        ] {
            let error = bounds.read(given).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
