//! Whether a process calls a provider of models, and what the provider allows.

use serde::{Deserialize, Serialize};

use crate::{llm::FailureClass, timestamp::Timestamp};

/// Whether a process calls a provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CircuitState {
    /// It calls the provider.
    #[default]
    Closed,
    /// It does not call the provider, because too many calls failed.
    Open,
    /// One call tries whether the provider works again.
    HalfOpen,
}

impl CircuitState {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Open => "open",
            Self::HalfOpen => "half_open",
        }
    }
}

/// How a call fails if its provider does not work now. Other failures are about the request or the
/// key, and say nothing about the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum CircuitFailure {
    /// No connection could be made.
    Unreachable,
    /// It was too slow.
    Timeout,
    /// It could not answer (5xx or 529).
    Overloaded,
    /// It had too many requests or tokens (429).
    RateLimited,
    /// Its reply broke off or made no sense.
    BrokenStream,
    /// One of a newer build.
    #[serde(other)]
    Other,
}

impl CircuitFailure {
    /// The kind that counts against a provider; none for other failures.
    pub const fn of(class: FailureClass) -> Option<Self> {
        match class {
            FailureClass::Unreachable => Some(Self::Unreachable),
            FailureClass::Timeout => Some(Self::Timeout),
            FailureClass::Overloaded => Some(Self::Overloaded),
            FailureClass::RateLimited => Some(Self::RateLimited),
            FailureClass::BrokenStream => Some(Self::BrokenStream),
            FailureClass::Unauthorized
            | FailureClass::Rejected
            | FailureClass::Cancelled
            | FailureClass::NoAgent
            | FailureClass::BudgetNotAllowed
            | FailureClass::BudgetUnavailable
            | FailureClass::Lost
            | FailureClass::Stopped
            | FailureClass::GlobalTime
            | FailureClass::StepTime
            | FailureClass::Preempted => None,
        }
    }

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::Overloaded => "overloaded",
            Self::RateLimited => "rate_limited",
            Self::BrokenStream => "broken_stream",
            Self::Other => "other",
        }
    }
}

/// The failures of one kind since the process started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CircuitFailures {
    /// In which way these attempts failed.
    pub kind: CircuitFailure,
    /// How many attempts failed in this way.
    pub count: u64,
    /// When the last of them failed, by the clock of the node.
    pub last: Timestamp,
}

/// A circuit opened, closed or became half-open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CircuitChange {
    /// When it changed, by the clock of the node.
    pub at: Timestamp,
    /// Its new state.
    pub state: CircuitState,
    /// The failure that opened it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<CircuitFailure>,
    /// A probe changed it, and not a call.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_probe: bool,
}

/// The last probe of a provider in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderProbe {
    /// When it ended, by the clock of the node.
    pub at: Timestamp,
    /// Why it did not reach the provider; absent if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<CircuitFailure>,
}

/// A limit of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LimitedResource {
    /// How many calls, whatever their size.
    Requests,
    /// All tokens.
    Tokens,
    /// Tokens that models read.
    InputTokens,
    /// Tokens that models write.
    OutputTokens,
    /// One of a newer build.
    #[serde(other)]
    Other,
}

impl LimitedResource {
    /// Its name for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Tokens => "tokens",
            Self::InputTokens => "input tokens",
            Self::OutputTokens => "output tokens",
            Self::Other => "others",
        }
    }
}

/// A limit that a provider reported with its last answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ProviderLimit {
    /// The model, at most [`crate::limits::LIMIT_MODEL_CHARS`] characters.
    pub model: String,
    /// What is limited.
    pub resource: LimitedResource,
    /// How much the provider allows in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// How much was left.
    pub remaining: u64,
    /// When all of it is there again, by the clock of the node.
    pub resets: Timestamp,
}

/// The circuit of a provider in one process. Other processes decide for themselves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CircuitReport {
    /// Whether the process calls the provider.
    pub state: CircuitState,
    /// Since when, by the clock of the node.
    pub since: Timestamp,
    /// When one call tries again, if it is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_try: Option<Timestamp>,
    /// Calls that ended at once because it was open, since the process started.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub refused: u64,
    /// Failed attempts since the process started, by kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<CircuitFailures>,
    /// Its last changes, the newest last; at most [`crate::limits::CIRCUIT_CHANGES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<CircuitChange>,
    /// The last probe, if the provider is probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ProviderProbe>,
    /// The limits that the provider reported; at most [`crate::limits::PROVIDER_LIMITS`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<ProviderLimit>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{decode, encode};

    #[test]
    fn a_word_of_a_newer_build_is_read_as_another() {
        let newer = encode(&"novelty").unwrap();
        assert_eq!(decode::<CircuitFailure>(&newer).unwrap(), CircuitFailure::Other);
        assert_eq!(decode::<LimitedResource>(&newer).unwrap(), LimitedResource::Other);
        for kind in [CircuitFailure::Unreachable, CircuitFailure::BrokenStream] {
            assert_eq!(decode::<CircuitFailure>(&encode(&kind).unwrap()).unwrap(), kind);
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
