//! Stable error codes, the body that carries one, and the printer of causes.

use std::{error::Error, fmt};

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($( $(#[$doc:meta])* $variant:ident = $wire:literal, $http:literal, $rpc:literal; )*) => {
        /// What went wrong, in a word that scripts may rely on. Each is assigned in one place.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum ErrorCode {
            $( $(#[$doc])* #[serde(rename = $wire)] $variant, )*
        }

        impl ErrorCode {
            /// All of them, for documents and tests.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// The stable word.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $wire, )* }
            }

            /// The HTTP status that goes with it.
            pub const fn http_status(self) -> u16 {
                match self { $( Self::$variant => $http, )* }
            }

            /// The JSON-RPC code that goes with it.
            pub const fn rpc_code(self) -> i32 {
                match self { $( Self::$variant => $rpc, )* }
            }
        }
    };
}

codes! {
    /// Not JSON, or not a request.
    Malformed = "malformed", 400, -32700;
    /// JSON, but not a request this gateway knows the shape of.
    InvalidRequest = "invalid_request", 400, -32600;
    /// No such method.
    UnknownMethod = "unknown_method", 404, -32601;
    /// A parameter is missing, unknown or out of range.
    InvalidParams = "invalid_params", 400, -32602;
    /// Larger than the limit.
    TooLarge = "too_large", 413, -32010;
    /// No token, or a wrong one.
    Unauthorized = "unauthorized", 401, -32011;
    /// A known caller that may not do this, or a foreign `Origin` or `Host`.
    Forbidden = "forbidden", 403, -32012;
    /// No such session, turn, agent or path.
    NotFound = "not_found", 404, -32013;
    /// Not in this state.
    Conflict = "conflict", 409, -32014;
    /// Too many messages wait in this session.
    Overloaded = "overloaded", 429, -32015;
    /// The session is out of service until a person decides.
    Quarantined = "quarantined", 409, -32016;
    /// The session's journal is damaged.
    Corrupt = "corrupt", 500, -32017;
    /// The bus or a store is out of reach.
    Unavailable = "unavailable", 503, -32018;
    /// No room on the disk.
    DiskFull = "disk_full", 507, -32019;
    /// Somebody cancelled it.
    Cancelled = "cancelled", 499, -32020;
    /// The step limit is reached.
    StepLimit = "step_limit", 409, -32021;
    /// The turn made the same tool call over and over.
    Looped = "looped", 409, -32023;
    /// The model keeps on making tool calls that cannot be run.
    BadCalls = "bad_calls", 502, -32024;
    /// The time of the turn, or of one of its steps, was over.
    TimedOut = "timed_out", 504, -32025;
    /// A hook refused the model call.
    Blocked = "blocked", 403, -32026;
    /// A step of a plan did not end well.
    StepFailed = "step_failed", 502, -32027;
    /// An operator has stopped it, and it stays so until somebody clears that.
    Stopped = "stopped", 503, -32029;
    /// Offered by other servers of this protocol, not by this one.
    Unsupported = "unsupported", 400, -32022;
    /// No connection to the provider.
    ProviderUnreachable = "provider_unreachable", 502, -32030;
    /// The provider was too slow.
    ProviderTimeout = "provider_timeout", 504, -32031;
    /// The provider refuses for now: too much.
    ProviderRateLimited = "provider_rate_limited", 429, -32032;
    /// The provider cannot now.
    ProviderOverloaded = "provider_overloaded", 503, -32033;
    /// The provider does not accept the key.
    ProviderUnauthorized = "provider_unauthorized", 502, -32034;
    /// The provider does not accept the request.
    ProviderRejected = "provider_rejected", 502, -32035;
    /// The provider's stream broke off or made no sense.
    ProviderBrokenStream = "provider_broken_stream", 502, -32036;
    /// A defect of this program.
    Internal = "internal", 500, -32603;
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// An error as a client sees it, in REST bodies, JSON-RPC `data` and frames alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ErrorBody {
    /// The stable word.
    pub code: ErrorCode,
    /// What happened, where, for people.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// How long a provider asks to be left alone, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

impl ErrorBody {
    /// An error without a hint.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), hint: None, retry_after_ms: None }
    }

    /// The same, saying what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// Prints an error and its causes, `: ` between them, leaving out a cause that its parent's text
/// already contains (some libraries repeat theirs).
pub struct ErrorChain<'a>(pub &'a (dyn Error + 'static));

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        f.write_str(&said)?;
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !said.contains(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            next = cause.source();
        }
        Ok(())
    }
}

impl fmt::Debug for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{0}")]
    struct Layer(&'static str, #[source] Option<Box<Layer>>);

    #[test]
    fn a_chain_does_not_repeat_itself() {
        let inner = Layer("disk full", None);
        let middle = Layer("cannot write: disk full", Some(Box::new(inner)));
        let outer = Layer("append failed", Some(Box::new(middle)));
        assert_eq!(ErrorChain(&outer).to_string(), "append failed: cannot write: disk full");
    }

    #[test]
    fn no_two_codes_share_a_word_or_number() {
        let words: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
        let numbers: BTreeSet<_> = ErrorCode::ALL.iter().map(|code| code.rpc_code()).collect();
        assert_eq!(words.len(), ErrorCode::ALL.len());
        assert_eq!(numbers.len(), ErrorCode::ALL.len());
    }
}
