//! How much a model shall think before it answers.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// How much a model shall think: `off`, `low`, `medium`, `high`, or a number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reasoning {
    /// Not at all, if the model can do that.
    Off,
    /// A little.
    Low,
    /// More.
    Medium,
    /// Much.
    High,
    /// At most so many tokens, from [`Reasoning::MIN_TOKENS`].
    Tokens(u32),
}

impl Reasoning {
    /// The fewest tokens that a model can be told to think.
    pub const MIN_TOKENS: u32 = 1_024;

    /// The names of those that are no number.
    const NAMED: [(&str, Self); 4] =
        [("off", Self::Off), ("low", Self::Low), ("medium", Self::Medium), ("high", Self::High)];

    /// The one with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::NAMED.iter().find(|(known, _)| *known == name).map(|(_, reasoning)| *reasoning)
    }

    /// So many tokens; `None` if they are too few.
    pub fn tokens(tokens: u64) -> Option<Self> {
        let tokens = u32::try_from(tokens).ok().filter(|tokens| *tokens >= Self::MIN_TOKENS);
        tokens.map(Self::Tokens)
    }

    /// The most tokens of thoughts in one reply.
    pub const fn budget(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::Low => 2_048,
            Self::Medium => 8_192,
            Self::High => 16_384,
            Self::Tokens(tokens) => tokens,
        }
    }

    /// In the words of providers that know no numbers; `None` if it is off.
    pub const fn effort(self) -> Option<&'static str> {
        match self.budget() {
            0 => None,
            1..=4_096 => Some("low"),
            4_097..=12_288 => Some("medium"),
            _ => Some("high"),
        }
    }
}

impl fmt::Display for Reasoning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Tokens(tokens) = self {
            return write!(f, "{tokens}");
        }
        let name = Self::NAMED.iter().find(|(_, reasoning)| reasoning == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl Serialize for Reasoning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let Self::Tokens(tokens) = self {
            return serializer.serialize_u32(*tokens);
        }
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Reasoning {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Reasoning;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let min = Reasoning::MIN_TOKENS;
                write!(f, "`off`, `low`, `medium`, `high`, or a number of tokens from {min}")
            }
            fn visit_str<E: de::Error>(self, name: &str) -> Result<Reasoning, E> {
                // Environment variables have numbers as text.
                let number = || name.parse().ok().and_then(Reasoning::tokens);
                let read = Reasoning::named(name).or_else(number);
                read.ok_or_else(|| E::invalid_value(de::Unexpected::Str(name), &self))
            }
            fn visit_u64<E: de::Error>(self, tokens: u64) -> Result<Reasoning, E> {
                Reasoning::tokens(tokens)
                    .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(tokens), &self))
            }
            fn visit_i64<E: de::Error>(self, tokens: i64) -> Result<Reasoning, E> {
                let read = u64::try_from(tokens).ok().and_then(Reasoning::tokens);
                read.ok_or_else(|| E::invalid_value(de::Unexpected::Signed(tokens), &self))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_word_or_a_number() {
        for (json, reasoning) in [
            (r#""off""#, Reasoning::Off),
            (r#""low""#, Reasoning::Low),
            (r#""medium""#, Reasoning::Medium),
            (r#""high""#, Reasoning::High),
            ("1024", Reasoning::Tokens(1_024)),
        ] {
            assert_eq!(serde_json::from_str::<Reasoning>(json).unwrap(), reasoning);
            assert_eq!(serde_json::to_string(&reasoning).unwrap(), json);
            assert_eq!(format!("{reasoning}"), json.trim_matches('"'));
        }
        let text: Reasoning = serde_json::from_str(r#""2000""#).unwrap();
        assert_eq!(text, Reasoning::Tokens(2_000));
        for bad in ["1023", "-1", "0", r#""much""#, r#""""#, "null", "5000000000", "1.5"] {
            let error = serde_json::from_str::<Reasoning>(bad).unwrap_err().to_string();
            assert!(error.contains("or a number of tokens from 1024"), "{bad}: {error}");
        }
    }

    #[test]
    fn every_amount_has_a_word() {
        for (reasoning, effort) in [
            (Reasoning::Off, None),
            (Reasoning::Low, Some("low")),
            (Reasoning::Medium, Some("medium")),
            (Reasoning::High, Some("high")),
            (Reasoning::Tokens(1_024), Some("low")),
            (Reasoning::Tokens(100_000), Some("high")),
        ] {
            assert_eq!(reasoning.effort(), effort, "{reasoning}");
        }
    }
}
