//! The names of kinds of entities.

use std::{borrow::Cow, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::id::ParseIdError;

/// What an entity is, as a short name: `[a-z][a-z0-9_]*`, at most 24 bytes.
///
/// The set of kinds is open: a process reads, stores and forwards inputs of kinds that it does not
/// serve. The name is part of every id, so a name never changes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind {
    /// The name, filled up with zeros.
    bytes: [u8; Self::BYTES],
}

impl Kind {
    /// The longest name.
    const BYTES: usize = 24;
    /// A conversation with an agent.
    pub const SESSION: Self = Self::of("session");
    /// An account, which limits spending.
    pub const BUDGET: Self = Self::of("budget");
    /// A memory: what an agent knows of one peer or in general, or what agents share.
    pub const MEMORY: Self = Self::of("memory");
    /// What is meant where nothing tells the kind: once there were sessions only.
    pub const UNTOLD: Self = Self::SESSION;

    /// The kind of this name, for constants.
    ///
    /// # Panics
    /// When it is compiled, if this is no name of a kind.
    #[expect(clippy::panic, reason = "a constant with a wrong name does not compile")]
    pub const fn of(name: &str) -> Self {
        match Self::parse(name.as_bytes()) {
            Some(kind) => kind,
            None => panic!("not the name of a kind"),
        }
    }

    const fn parse(name: &[u8]) -> Option<Self> {
        let mut bytes = [0; Self::BYTES];
        if name.is_empty() || name.len() > Self::BYTES {
            return None;
        }
        let mut at = 0;
        while at < name.len() {
            let byte = name[at];
            let fits =
                byte.is_ascii_lowercase() || at > 0 && (byte.is_ascii_digit() || byte == b'_');
            if !fits {
                return None;
            }
            bytes[at] = byte;
            at += 1;
        }
        Some(Self { bytes })
    }

    /// Whether commands take the keys of its entities; those of other kinds are named by their ids.
    pub fn is_named_by_key(self) -> bool {
        self == Self::SESSION
    }

    /// Its name on the wire and in ids.
    pub fn as_str(&self) -> &str {
        let end = self.bytes.iter().position(|byte| *byte == 0).unwrap_or(Self::BYTES);
        // It is ASCII, so this cannot fail.
        self.bytes.get(..end).and_then(|name| str::from_utf8(name).ok()).unwrap_or_default()
    }
}

impl FromStr for Kind {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let expected = "a kind of entities (`a` to `z`, `0` to `9` and `_`, at most 24 characters)";
        Self::parse(text.as_bytes()).ok_or_else(|| ParseIdError::new(text, expected))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Kind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text: Cow<'de, str> = Deserialize::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn kinds_are_open_and_their_names_are_narrow() {
        assert_eq!(Kind::SESSION.as_str(), "session");
        for name in ["a", "budget_2", "abcdefghijklmnopqrstuvwx"] {
            let kind: Kind = name.parse().unwrap();
            assert_eq!(kind.to_string(), name);
            let bytes = codec::encode(&kind).unwrap();
            assert_eq!(bytes, codec::encode(&name).unwrap());
            assert_eq!(codec::decode::<Kind>(&bytes).unwrap(), kind);
        }
        for bad in ["", "A", "1a", "_a", "a-b", "a b", "é", "a\0", "abcdefghijklmnopqrstuvwxy"] {
            bad.parse::<Kind>().unwrap_err();
            codec::decode::<Kind>(&codec::encode(&bad).unwrap()).unwrap_err();
        }
    }
}
