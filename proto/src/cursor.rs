//! Where a page of a list ends: `next` of its answer, and `cursor` of the request for the page after it.
//!
//! A cursor names its list and has a checksum, because a cursor of another list, or one that was cut,
//! would begin a page anywhere. It does not keep the list from changing: each list orders its rows so
//! that a row that stays as it is has one place.

use std::{convert::Infallible, fmt, str::FromStr};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use crate::{
    error::{ErrorBody, ErrorCode},
    id::Digest,
    methods::Method,
};

/// What the text of a cursor begins with. A build that changes the meaning of positions changes it.
const VERSION: &str = "1";
/// Bytes of the checksum before the text.
const CHECK_BYTES: usize = 4;

/// Where a page of a list ends. Opaque: take it from an answer's `next`. It stays valid when rows are
/// added or removed, and at every gateway.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Cursor(String);

/// A position with two parts, each of them a text without a `.` except for the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pair<A, B>(pub A, pub B);

/// A text that is not a cursor of this list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("parameter `cursor`: it is not a cursor of `{}`", .0.as_str())]
pub struct CursorError(pub Method);

// === impl Cursor ===

impl Cursor {
    /// The cursor of a page of `list` that ends at `position`.
    pub fn new(list: Method, position: impl fmt::Display) -> Self {
        let text = format!("{VERSION}:{}:{position}", list.as_str());
        let mut bytes = check(&text).to_vec();
        bytes.extend_from_slice(text.as_bytes());
        Self(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The position, if this is a cursor of `list`.
    pub fn read<T: FromStr>(&self, list: Method) -> Result<T, CursorError> {
        self.position(list).and_then(|position| position.parse().ok()).ok_or(CursorError(list))
    }

    /// Its text, for commands that print it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn position(&self, list: Method) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(&self.0).ok()?;
        let (found, text) = bytes.split_first_chunk::<CHECK_BYTES>()?;
        let text = std::str::from_utf8(text).ok().filter(|text| check(text) == *found)?;
        let (version, rest) = text.split_once(':')?;
        let (name, position) = rest.split_once(':')?;
        (version == VERSION && name == list.as_str()).then(|| position.to_owned())
    }
}

/// Every text may be a cursor of a newer build; [`Cursor::read`] says whether this build can use it.
impl FromStr for Cursor {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn check(text: &str) -> [u8; CHECK_BYTES] {
    let [a, b, c, d, ..] = *Digest::of(text.as_bytes()).as_bytes();
    [a, b, c, d]
}

// === impl Pair ===

impl<A: fmt::Display, B: fmt::Display> fmt::Display for Pair<A, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl<A: FromStr, B: FromStr> FromStr for Pair<A, B> {
    type Err = fmt::Error;

    fn from_str(text: &str) -> Result<Self, fmt::Error> {
        let (first, second) = text.split_once('.').ok_or(fmt::Error)?;
        let first = first.parse().map_err(|_not_one| fmt::Error)?;
        Ok(Self(first, second.parse().map_err(|_not_one| fmt::Error)?))
    }
}

// === impl CursorError ===

impl From<CursorError> for ErrorBody {
    fn from(error: CursorError) -> Self {
        Self::new(ErrorCode::InvalidParams, error.to_string())
            .hint("take `next` of the previous answer, or leave `cursor` out to start over")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntityId;

    type Place = Pair<u64, EntityId>;

    #[test]
    fn a_cursor_is_read_back_by_its_own_list_only() {
        let place = Pair(7, EntityId::from_u128(9));
        let cursor = Cursor::new(Method::SessionsList, place);
        assert_eq!(cursor.read::<Place>(Method::SessionsList), Ok(place));
        let foreign = CursorError(Method::ParkedList);
        assert_eq!(cursor.read::<Place>(Method::ParkedList), Err(foreign));
        // A position of another shape, as a build with another order would make it.
        assert!(cursor.read::<u64>(Method::SessionsList).is_err());
        let nested = Pair(1, Pair(2, "a.b".to_owned()));
        let cursor = Cursor::new(Method::JobsLogs, &nested);
        assert_eq!(cursor.read(Method::JobsLogs), Ok(nested));
    }

    #[test]
    fn no_other_text_is_a_cursor() {
        let cursor = Cursor::new(Method::SessionsList, Pair(7, EntityId::from_u128(9)));
        let text = cursor.as_str();
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        assert!(text.bytes().all(is_safe), "{text} in a query is not what it is");
        let all: Vec<char> = text.chars().collect();
        let cut = (0..all.len()).map(|end| all.iter().take(end).collect());
        let changed = (0..all.len()).map(|at| {
            let mut changed = all.clone();
            changed[at] = if all[at] == 'A' { 'B' } else { 'A' };
            changed.into_iter().collect()
        });
        let older = "7.ent_00000000000000000000000009".to_owned();
        for wrong in cut.chain(changed).chain([older, "ent_x".to_owned(), "é".to_owned()]) {
            let Ok(cursor) = wrong.parse::<Cursor>();
            assert!(cursor.read::<Place>(Method::SessionsList).is_err(), "{wrong}");
        }
        let body = ErrorBody::from(CursorError(Method::SessionsList));
        assert_eq!(body.code, ErrorCode::InvalidParams);
        assert!(body.message.contains("`sessions.list`") && body.hint.is_some(), "{body:?}");
    }
}
