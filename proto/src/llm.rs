//! What is said to and by a model, whatever its provider.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    block::Blocks,
    error::ErrorCode,
    id::{AgentName, Attempt, CallId, EntityId, TurnId},
    media::Media,
    reasoning::Reasoning,
    tool::{ToolReply, ToolUse},
    tool_choice::ToolChoice,
};

pub use crate::{
    model_ref::ModelRef,
    text::{SystemPrompt, Text, TextBlob},
};

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The person, or the program that speaks for one.
    User,
    /// The model.
    Assistant,
}

/// One message of a conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub content: Text,
    /// What is attached to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Media>,
    /// Tools that the assistant asks for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_uses: Vec<ToolUse>,
    /// The results of those that it asked for before.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_replies: Vec<ToolReply>,
    /// What the assistant said beside text and tool calls, and the order of everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<Blocks>,
}

impl Message {
    /// Words alone.
    pub fn text(role: Role, content: impl Into<Text>) -> Self {
        Self {
            role,
            content: content.into(),
            attachments: Vec::new(),
            tool_uses: Vec::new(),
            tool_replies: Vec::new(),
            blocks: None,
        }
    }
}

/// Tokens of one call, as the provider reports them, or as they are estimated where it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Usage {
    /// Tokens that the model read, with cached ones.
    pub input_tokens: u64,
    /// Tokens that the model wrote.
    pub output_tokens: u64,
    /// Tokens that came from the provider's cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Tokens that were written to the provider's cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Of the tokens that were written to the provider's cache, those that cost as much as an hour there: it keeps them
    /// for an hour, or says a kind that is not known here.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub cache_write_hour_tokens: u64,
    /// Of the tokens that the model wrote, those of thoughts, if the provider counts them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reasoning_tokens: u64,
    /// Whether some of these numbers are estimates: the provider reported none, or none that can be true. Under a
    /// limit, a request that it did not count is of the sort that costs the most, such as tokens written to the cache.
    #[serde(default, skip_serializing_if = "is_false")]
    pub estimated: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl Usage {
    /// What is known where nothing was reported.
    pub const UNREPORTED: Self = Self {
        input_tokens: 0,
        output_tokens: 0,
        cache_read_tokens: 0,
        cache_write_tokens: 0,
        cache_write_hour_tokens: 0,
        reasoning_tokens: 0,
        estimated: true,
    };

    /// Whether there are no tokens, and that is what the provider said or what follows from the call.
    pub const fn is_nothing(&self) -> bool {
        self.input_tokens == 0 && self.output_tokens == 0 && !self.estimated
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_add(other.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            cache_write_hour_tokens: self
                .cache_write_hour_tokens
                .saturating_add(other.cache_write_hour_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_add(other.reasoning_tokens),
            estimated: self.estimated || other.estimated,
        }
    }

    /// Of a hundred tokens that the model read, how many came from the provider's cache. Nothing if none was read
    /// from it or written to it.
    pub fn cached_percent(&self) -> Option<u64> {
        let is_cached = self.cache_read_tokens > 0 || self.cache_write_tokens > 0;
        let share = u128::from(self.cache_read_tokens) * 100;
        let share = share.checked_div(u128::from(self.input_tokens)).filter(|_| is_cached)?;
        u64::try_from(share).ok()
    }
}

/// Why a model stopped of its own accord.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StopReason {
    /// It had said what it had to say.
    EndTurn,
    /// It reached the limit of tokens for one reply.
    MaxTokens,
    /// It reached one of the stop sequences.
    StopSequence,
    /// It waits for tools.
    ToolUse,
    /// The provider withheld the rest.
    Refusal,
    /// Something newer than this build.
    Other {
        /// The provider's word.
        reason: String,
    },
}

/// Sampling settings. The provider decides about those that are absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Sampling {
    /// From 0 (always the most likely word) to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// From which share of the most likely words to choose, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// From how many of the most likely words to choose, 1 or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u32>,
    /// The most tokens of one reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Texts at which the model stops.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
    /// How much the model thinks before it answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// How much less likely a word is that has come before, -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<f64>,
    /// How much less likely a word is for each time that it has come before, -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<f64>,
    /// The same seed gives the same reply, as far as the provider can do that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// How much more or less likely tokens are, by their number at the provider, -100 to 100.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub logit_bias: BTreeMap<String, f64>,
    /// Whether the model must, may or must not call tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether one reply may call several tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
}

impl Sampling {
    /// Whether it has a setting that builds before version 4 of the envelope do not know.
    pub fn is_newer(&self) -> bool {
        self.presence_penalty.is_some()
            || self.frequency_penalty.is_some()
            || self.seed.is_some()
            || !self.logit_bias.is_empty()
            || self.tool_choice.is_some()
            || self.parallel_tool_calls.is_some()
            || self.top_k.is_some()
    }
}

/// How a model call failed, so that callers can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// No connection could be made.
    Unreachable,
    /// Connected, but too slow.
    Timeout,
    /// 429: too many requests or tokens.
    RateLimited,
    /// 5xx or 529: the provider cannot now.
    Overloaded,
    /// 401 or 403: the key is missing or wrong.
    Unauthorized,
    /// Another 4xx: the request itself is wrong.
    Rejected,
    /// The stream broke off or made no sense; never a short success.
    BrokenStream,
    /// Given up on purpose.
    Cancelled,
    /// The agent is not configured, so it was not made.
    NoAgent,
    /// A budget does not allow it, so it was not made: no person has allowed more in time, or the model has no price.
    BudgetNotAllowed,
    /// The account of a budget did not answer in time, so it was not made.
    BudgetUnavailable,
    /// The process that made it is gone, and the outcome is unknown.
    Lost,
    /// An operator stopped it, or stopped it from being made.
    Stopped,
    /// The time of its turn was over.
    GlobalTime,
    /// The time of its step was over.
    StepTime,
    /// It was ended so that a more urgent one could begin, and is made again.
    Preempted,
}

impl FailureClass {
    /// Whether another model may answer instead: the request is not the reason.
    pub const fn gives_way(self) -> bool {
        self.is_down() || matches!(self, Self::Timeout | Self::BrokenStream)
    }

    /// Whether an attempt that failed so, and has no usage, costs nothing: its provider refused it, or was never
    /// asked. Attempts that were sent and ended early have an estimated usage.
    pub const fn is_free(self) -> bool {
        match self {
            Self::Timeout | Self::BrokenStream | Self::Lost => false,
            Self::Unreachable
            | Self::RateLimited
            | Self::Overloaded
            | Self::Unauthorized
            | Self::Rejected
            | Self::Cancelled
            | Self::NoAgent
            | Self::BudgetNotAllowed
            | Self::BudgetUnavailable
            | Self::Stopped
            | Self::GlobalTime
            | Self::StepTime
            | Self::Preempted => true,
        }
    }

    /// Whether the provider cannot serve calls now, and may later.
    pub const fn is_down(self) -> bool {
        matches!(self, Self::Unreachable | Self::RateLimited | Self::Overloaded)
    }
}

/// How long a request may be that its provider found too long, as far as the provider says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PromptTooLong {
    /// How many tokens the model reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<u64>,
    /// How many tokens the request has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<u64>,
}

/// A failed model call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ModelFailure {
    /// What kind.
    pub class: FailureClass,
    /// "provider unreachable", "provider timeout", or the provider's own message.
    pub message: String,
    /// The HTTP status, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How long the provider asks to be left alone, where that was too long to wait, or how long its
    /// circuit stays open; in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The request is too long for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub too_long: Option<PromptTooLong>,
    /// It was refused for another reason than what it says, such as a model that is not there: what was attached is
    /// shown again. Failures that were recorded before there was this field are as if it were `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keeps_attachments: bool,
}

impl ModelFailure {
    /// One without an HTTP status.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        let message = message.into();
        let (status, retry_after_ms, too_long) = (None, None, None);
        Self { class, message, status, retry_after_ms, too_long, keeps_attachments: false }
    }

    /// The stable code for it.
    pub const fn code(&self) -> ErrorCode {
        match self.class {
            FailureClass::Unreachable | FailureClass::Lost => ErrorCode::ProviderUnreachable,
            FailureClass::Timeout => ErrorCode::ProviderTimeout,
            FailureClass::RateLimited => ErrorCode::ProviderRateLimited,
            FailureClass::Overloaded => ErrorCode::ProviderOverloaded,
            FailureClass::Unauthorized => ErrorCode::ProviderUnauthorized,
            FailureClass::Rejected => ErrorCode::ProviderRejected,
            FailureClass::BrokenStream => ErrorCode::ProviderBrokenStream,
            FailureClass::Cancelled | FailureClass::Preempted => ErrorCode::Cancelled,
            FailureClass::NoAgent => ErrorCode::NotFound,
            FailureClass::BudgetNotAllowed => ErrorCode::BudgetNotAllowed,
            FailureClass::BudgetUnavailable => ErrorCode::BudgetUnavailable,
            FailureClass::Stopped => ErrorCode::Stopped,
            FailureClass::GlobalTime | FailureClass::StepTime => ErrorCode::TimedOut,
        }
    }
}

/// What one call used, on the bus: at least once, keyed by call and attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UsageRecord {
    /// The session whose turn made the call.
    pub session: EntityId,
    /// The agent that answers in that session.
    pub agent: AgentName,
    /// The model that was asked, as `PROVIDER/MODEL`.
    pub model: ModelRef,
    /// The turn that needed it.
    pub turn: TurnId,
    /// With `attempt`, the key by which records that come twice are counted once.
    pub call: CallId,
    /// Which try at it.
    pub attempt: Attempt,
    /// What it used.
    pub usage: Usage,
}
