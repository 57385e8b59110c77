//! Stable error codes, the body that carries one, and the printer of causes.

use std::{error::Error, fmt};

use serde::{Deserialize, Serialize};

macro_rules! codes {
    ($(
        $(#[doc = $about:literal])*
        $variant:ident = $wire:literal, $http:literal, $rpc:literal;
    )*) => {
        /// What went wrong, in a word that scripts may rely on.
        ///
        /// Each row says what the code means, then what to do.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        pub enum ErrorCode {
            $( $(#[doc = $about])* #[serde(rename = $wire)] $variant, )*
        }

        impl ErrorCode {
            /// All of them, for documents and tests.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// The stable word.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $wire, )* }
            }

            /// What it means, and what to do about it, in two paragraphs.
            pub const fn about(self) -> &'static str {
                match self { $( Self::$variant => concat!($($about, "\n"),*), )* }
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
    /// The text is not JSON, or not a request.
    ///
    /// Correct the text.
    Malformed = "malformed", 400, -32700;
    /// The JSON is not a request that the gateway knows.
    ///
    /// Compare it with the examples in the guides.
    InvalidRequest = "invalid_request", 400, -32600;
    /// There is no method of this name.
    ///
    /// Use a name from the list in the message.
    UnknownMethod = "unknown_method", 404, -32601;
    /// A parameter is missing, unknown or out of range.
    ///
    /// Correct the parameter that the message names.
    InvalidParams = "invalid_params", 400, -32602;
    /// The request is larger than the limit in the message.
    ///
    /// Send less.
    TooLarge = "too_large", 413, -32010;
    /// The token is missing or wrong.
    ///
    /// Send the node's token.
    Unauthorized = "unauthorized", 401, -32011;
    /// The caller may not do this, or `Origin` or `Host` is not an allowed one.
    ///
    /// Allow the name in `[gateway] origins` or `hosts`, or use another credential.
    Forbidden = "forbidden", 403, -32012;
    /// There is no such session, turn, agent, job or path.
    ///
    /// Check the name.
    NotFound = "not_found", 404, -32013;
    /// The request does not fit the present state.
    ///
    /// Read the state again, then decide.
    Conflict = "conflict", 409, -32014;
    /// Too many messages or requests wait.
    ///
    /// Wait, then send the request again.
    Overloaded = "overloaded", 429, -32015;
    /// The session is out of service until a person decides.
    ///
    /// Look at it with `clawnode quarantine show`.
    Quarantined = "quarantined", 409, -32016;
    /// The session's journal is damaged.
    ///
    /// Look at it with `clawnode journal verify`.
    Corrupt = "corrupt", 500, -32017;
    /// NATS, or the storage of the node, cannot be reached.
    ///
    /// Wait, then send the request again. The message is not lost if it was accepted.
    Unavailable = "unavailable", 503, -32018;
    /// The disk is full.
    ///
    /// Free space on the disk.
    DiskFull = "disk_full", 507, -32019;
    /// A client or an operator cancelled it.
    ///
    /// Nothing, or send the request again.
    Cancelled = "cancelled", 499, -32020;
    /// The turn has used up its steps.
    ///
    /// Give it more with `chat.continue`, or raise `step_limit`.
    StepLimit = "step_limit", 409, -32021;
    /// The turn repeated the same tool call too often.
    ///
    /// Ask in another way, or change `loop_guard`.
    Looped = "looped", 409, -32023;
    /// The model repeatedly made tool calls that cannot be run.
    ///
    /// Use another model, or correct the tool's schema.
    BadCalls = "bad_calls", 502, -32024;
    /// The reply does not fit `response_schema`, also after the model was asked to correct it.
    ///
    /// Read the reply in the history of the session. Make the schema simpler, or use another model.
    SchemaFailed = "schema_failed", 502, -32028;
    /// The time of the turn, or of one of its steps, is over.
    ///
    /// Raise the agent's `timeouts`.
    TimedOut = "timed_out", 504, -32025;
    /// A hook refused the model call.
    ///
    /// Read the hook's reason in the message.
    Blocked = "blocked", 403, -32026;
    /// A step of a plan failed.
    ///
    /// Read the step's output with `execute.show`.
    StepFailed = "step_failed", 502, -32027;
    /// The budget of an account, or of the turn or session, is spent.
    ///
    /// Raise the limit that the message names, or wait until its window ends.
    Bankrupt = "bankrupt", 429, -32038;
    /// The account of a budget did not answer in time.
    ///
    /// Send the request again. If that does not help, look at `clawnode status`.
    BudgetUnavailable = "budget_unavailable", 503, -32039;
    /// A budget does not allow the model call: no person has allowed more in time, or the model has no price.
    ///
    /// Allow more with `clawnode budget allow`, or do what the message says.
    BudgetNotAllowed = "budget_not_allowed", 403, -32040;
    /// The turn waits for a person's approval of a tool call, longer than this request waits.
    ///
    /// Decide with `clawnode approvals`, then read the turn's events or send the request again.
    ApprovalPending = "approval_pending", 409, -32037;
    /// An operator has set a kill switch.
    ///
    /// Clear it with `clawnode panic --clear`, if it may go on.
    Stopped = "stopped", 503, -32029;
    /// clawnode does not support this part of the API, or not without a running node.
    ///
    /// Leave out what the message names.
    Unsupported = "unsupported", 400, -32022;
    /// The model provider cannot be reached.
    ///
    /// Check `base_url` and the network.
    ProviderUnreachable = "provider_unreachable", 502, -32030;
    /// The model provider was too slow.
    ///
    /// Try again, or raise the provider's timeouts.
    ProviderTimeout = "provider_timeout", 504, -32031;
    /// The model provider refuses calls for now because there are too many.
    ///
    /// Wait for `retry_after_ms`, then try again.
    ProviderRateLimited = "provider_rate_limited", 429, -32032;
    /// The model provider is overloaded.
    ///
    /// Try again later, or use another provider.
    ProviderOverloaded = "provider_overloaded", 503, -32033;
    /// The model provider does not accept the key.
    ///
    /// Correct the key in `[providers]`.
    ProviderUnauthorized = "provider_unauthorized", 502, -32034;
    /// The model provider does not accept the request.
    ///
    /// Read the provider's message.
    ProviderRejected = "provider_rejected", 502, -32035;
    /// The model provider's answer broke off or was not valid.
    ///
    /// Try again.
    ProviderBrokenStream = "provider_broken_stream", 502, -32036;
    /// An error in clawnode itself.
    ///
    /// Report it, with the log of the node.
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
    /// Stable, so that programs can compare it. `docs/reference/errors.md` lists all of them.
    pub code: ErrorCode,
    /// What happened, where, for people.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// How long to wait before the next try, in milliseconds, if a provider says so.
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
