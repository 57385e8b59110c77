//! Numbers of tokens as providers report them. What is absent is not 0, and what cannot be a number of tokens
//! does not end a reply: the call was made, and its tokens are estimated.

use clawnode_proto::llm::Usage;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tracing::warn;

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

/// Tokens that a provider has written to its cache, by how long it keeps them, which decides what they cost. Wires also
/// report them all in one count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CacheWrites {
    /// For five minutes.
    minutes: u64,
    /// For an hour.
    hour: u64,
    /// For as long as no build like this one knows.
    unknown: u64,
}

// === impl TokenCount ===

impl TokenCount {
    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::Absent,
            value => value.as_u64().map_or(Self::Impossible, Self::Known),
        }
    }

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
        Ok(Self::of(&Value::deserialize(deserializer)?))
    }
}

// === impl CacheWrites ===

impl CacheWrites {
    /// As much of the name of an unknown kind as is repeated.
    const NAME_CHARS: usize = 40;

    /// Of everything that it says, in the words of one of the wires.
    fn of(value: &Value) -> Self {
        let mut writes = Self::default();
        match value {
            // Anthropic's.
            Value::Object(kinds) => {
                for (kind, tokens) in kinds {
                    writes.add(kind, TokenCount::of(tokens));
                }
            }
            // Bedrock's.
            Value::Array(details) => {
                for one in details {
                    let kind = one.get("ttl").and_then(Value::as_str).unwrap_or_default();
                    let tokens = one.get("inputTokens").map_or(TokenCount::Absent, TokenCount::of);
                    writes.add(kind, tokens);
                }
            }
            _ => {}
        }
        writes
    }

    fn add(&mut self, kind: &str, count: TokenCount) {
        let tokens = count.tokens();
        let sum = match kind {
            "ephemeral_5m_input_tokens" | "5m" => &mut self.minutes,
            "ephemeral_1h_input_tokens" | "1h" => &mut self.hour,
            _ => {
                if tokens > 0 {
                    let kind: String = kind.chars().take(Self::NAME_CHARS).collect();
                    warn!(
                        kind,
                        tokens,
                        "the provider has cached tokens in a way that is not known here; they count at the price of \
                         the dearest one"
                    );
                }
                &mut self.unknown
            }
        };
        *sum = sum.saturating_add(tokens);
    }

    /// Those that cost as much as an hour.
    const fn dear(self) -> u64 {
        self.hour.saturating_add(self.unknown)
    }
}

impl<'de> Deserialize<'de> for CacheWrites {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self::of(&Value::deserialize(deserializer)?))
    }
}

/// What was reported on a wire that counts cached tokens apart; `Usage` counts them in.
pub(super) fn with_cached(
    reported: Usage,
    read: TokenCount,
    written: TokenCount,
    writes: Option<CacheWrites>,
) -> Usage {
    let writes = writes.unwrap_or_default();
    let cache_read_tokens = read.tokens();
    let cache_write_tokens = written.tokens().max(writes.minutes.saturating_add(writes.dear()));
    let cached = cache_read_tokens.saturating_add(cache_write_tokens);
    Usage {
        input_tokens: reported.input_tokens.saturating_add(cached),
        cache_read_tokens,
        cache_write_tokens,
        cache_write_hour_tokens: writes.dear(),
        estimated: reported.estimated || writes.unknown > 0,
        ..reported
    }
}

/// What was reported, which is not all if one of the two main counts is absent.
pub(super) const fn reported(input: TokenCount, output: TokenCount) -> Usage {
    Usage {
        input_tokens: input.tokens(),
        output_tokens: output.tokens(),
        cache_read_tokens: 0,
        cache_write_tokens: 0,
        cache_write_hour_tokens: 0,
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
