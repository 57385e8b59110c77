//! Numbers of tokens as providers report them. What is absent is not 0, and what cannot be a number of tokens
//! does not end a reply: the call was made, and its tokens are estimated.

use clawnode_proto::llm::Usage;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// What replaces a count that cannot be one, so that it is not believed (see [`Usage`]'s readers).
pub(crate) const IMPOSSIBLE: u64 = u64::MAX;

/// A number of tokens in a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TokenCount {
    /// Nothing is said of it.
    #[default]
    Absent,
    Known(u64),
    /// It is negative, no whole number, or no number.
    Impossible,
}

// === impl TokenCount ===

impl TokenCount {
    /// The tokens, with 0 where nothing is said.
    pub(super) const fn tokens(self) -> u64 {
        match self {
            Self::Absent => 0,
            Self::Known(tokens) => tokens,
            Self::Impossible => IMPOSSIBLE,
        }
    }

    /// The tokens where a wrong count does no harm: it is part of another one.
    pub(super) const fn part(self) -> u64 {
        match self {
            Self::Known(tokens) => tokens,
            Self::Absent | Self::Impossible => 0,
        }
    }

    /// This, or another one if nothing is said here.
    pub(super) const fn or(self, other: Self) -> Self {
        match self {
            Self::Absent => other,
            known => known,
        }
    }

    pub(super) const fn is_absent(self) -> bool {
        matches!(self, Self::Absent)
    }
}

impl<'de> Deserialize<'de> for TokenCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Value::deserialize(deserializer)? {
            Value::Null => Self::Absent,
            value => value.as_u64().map_or(Self::Impossible, Self::Known),
        })
    }
}

/// What was reported, which is not all if one of the two main counts is absent.
pub(super) const fn reported(input: TokenCount, output: TokenCount) -> Usage {
    Usage {
        input_tokens: input.tokens(),
        output_tokens: output.tokens(),
        cache_read_tokens: 0,
        cache_write_tokens: 0,
        reasoning_tokens: 0,
        estimated: input.is_absent() || output.is_absent(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_count_is_neither_nothing_nor_an_error() {
        let read = |text: &str| serde_json::from_str::<TokenCount>(text).unwrap();
        assert_eq!(read("7"), TokenCount::Known(7));
        assert_eq!(read("0"), TokenCount::Known(0));
        assert_eq!(read("null"), TokenCount::Absent);
        for text in ["-1", "1.5", "\"7\"", "99999999999999999999", "[]", "true"] {
            assert_eq!(read(text).tokens(), IMPOSSIBLE, "{text}");
        }
    }
}
