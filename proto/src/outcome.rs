//! How turns end.

use serde::{Deserialize, Serialize};

use crate::{
    budget::{BudgetUnit, SpentLimit, WindowLength},
    error::{ErrorBody, ErrorCode},
    hook::HookBlock,
    id::TurnId,
    llm::{FailureClass, ModelFailure, StopReason, Usage},
    money::MicroUsd,
    name::ToolName,
    timeout::TimeLevel,
};

/// How a turn ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TurnOutcome {
    /// With a reply.
    Completed {
        /// Why the model stopped.
        stop: StopReason,
    },
    /// The model call failed.
    Failed {
        /// Its class, and what the provider said.
        failure: ModelFailure,
    },
    /// A client cancelled it.
    Cancelled,
    /// An operator stopped it, or a limit of its agent.
    Stopped {
        /// What was stopped, by whom, and why.
        detail: String,
    },
    /// It made the same tool call over and over.
    Looped {
        /// By the name that the model called.
        tool: String,
        /// How often.
        times: u32,
    },
    /// The model kept on making tool calls that cannot be run.
    BadCalls {
        /// What was wrong with the last one.
        detail: String,
    },
    /// Its reply did not fit its schema, also after the model was asked to correct it.
    SchemaFailed {
        /// What is wrong with the last one.
        detail: String,
    },
    /// It used up its steps.
    StepLimit {
        /// How many there were.
        limit: u32,
    },
    /// Its time, or that of a step, was over.
    TimedOut {
        /// Whether that of a tool's call, its runner, a step or the whole turn was over.
        level: TimeLevel,
        /// Which limit it was, and where it is set.
        detail: String,
    },
    /// A hook refused the model call.
    Blocked {
        /// Which hook, and why.
        block: HookBlock,
    },
    /// A step of its plan did not end well.
    StepFailed {
        /// Which, from 1.
        step: u32,
        /// Its tool.
        tool: ToolName,
        /// Its result.
        detail: String,
    },
    /// Too much was spent for its next model call.
    Bankrupt {
        /// The key of the account whose limit it was, or `turn` or `session`.
        account: String,
        /// What the limit counts; amounts of money are micro-dollars.
        unit: BudgetUnit,
        /// What was spent.
        used: u64,
        /// The most that may be spent, in `unit`.
        limit: u64,
        /// What the call needed at least.
        needed: u64,
        /// The window of the limit. Absent if it is one of a turn or session.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        window: Option<WindowLength>,
    },
}

/// A turn has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnDone {
    /// The turn that is over.
    pub turn: TurnId,
    /// How the turn ended.
    pub outcome: TurnOutcome,
}

/// What a turn used, all calls together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settled {
    /// The turn to bill for.
    pub turn: TurnId,
    /// The tokens of all calls whose end is known.
    pub usage: Usage,
    /// Calls whose end is unknown, because a process died. The provider may bill them.
    pub lost_attempts: u32,
    /// Micro-dollars that the calls cost which a limit held, by the prices in the journal. One whose usage is
    /// unknown costs all that it had reserved. Absent if there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
}

impl TurnOutcome {
    /// Its name for people and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Completed { .. } => "completed",
            Self::Failed { .. } => "failed",
            Self::Cancelled => "cancelled",
            Self::Stopped { .. } => "stopped",
            Self::Looped { .. } => "looped",
            Self::BadCalls { .. } => "bad_calls",
            Self::SchemaFailed { .. } => "schema_failed",
            Self::StepLimit { .. } => "step_limit",
            Self::TimedOut { .. } => "timed_out",
            Self::Blocked { .. } => "blocked",
            Self::StepFailed { .. } => "step_failed",
            Self::Bankrupt { .. } => "bankrupt",
        }
    }

    /// Whether its agent did what it was asked: it replied, and the reply fits. Absent if the end says nothing about
    /// the agent, because a person, a hook or a limit of spending ended it, or no model could be asked. A provider that
    /// cannot serve counts as a failure: the models are the agent's.
    pub const fn is_success(&self) -> Option<bool> {
        match self {
            Self::Completed { .. } => Some(true),
            Self::Looped { .. }
            | Self::BadCalls { .. }
            | Self::SchemaFailed { .. }
            | Self::StepLimit { .. }
            | Self::TimedOut { .. }
            | Self::StepFailed { .. } => Some(false),
            Self::Cancelled
            | Self::Stopped { .. }
            | Self::Blocked { .. }
            | Self::Bankrupt { .. } => None,
            Self::Failed { failure } => match failure.class {
                FailureClass::Cancelled
                | FailureClass::NoAgent
                | FailureClass::BudgetNotAllowed
                | FailureClass::BudgetUnavailable
                | FailureClass::Stopped
                | FailureClass::Preempted => None,
                FailureClass::Unreachable
                | FailureClass::Timeout
                | FailureClass::RateLimited
                | FailureClass::Overloaded
                | FailureClass::Unauthorized
                | FailureClass::Rejected
                | FailureClass::BrokenStream
                | FailureClass::Lost
                | FailureClass::GlobalTime
                | FailureClass::StepTime => Some(false),
            },
        }
    }

    /// The error that a person sees of a turn that ended without a proper reply, and was not
    /// cancelled.
    pub fn error(&self) -> Option<ErrorBody> {
        match self {
            Self::Failed { failure } => {
                let retry_after_ms = failure.retry_after_ms;
                let error = ErrorBody::new(failure.code(), failure.message.clone());
                Some(ErrorBody { retry_after_ms, ..error })
            }
            Self::Stopped { detail } => Some(
                ErrorBody::new(ErrorCode::Stopped, format!("the turn was stopped: {detail}"))
                    .hint(STOPPED_HINT),
            ),
            Self::Looped { tool, times } => Some(
                ErrorBody::new(
                    ErrorCode::Looped,
                    format!("the turn made the same call of tool `{tool}` {times} times"),
                )
                .hint("say what to do instead; the agent's `loop_guard` sets the limits"),
            ),
            Self::BadCalls { detail } => Some(
                ErrorBody::new(
                    ErrorCode::BadCalls,
                    format!("the model keeps on making tool calls that cannot be run: {detail}"),
                )
                .hint("send another message to go on, or choose a model that is better at tools"),
            ),
            Self::SchemaFailed { detail } => Some(
                ErrorBody::new(
                    ErrorCode::SchemaFailed,
                    format!("the reply does not fit `response_schema`: {detail}"),
                )
                .hint(
                    "the history of the session has the reply; make the schema simpler, or choose \
                     another model",
                ),
            ),
            Self::StepLimit { limit } => Some(
                ErrorBody::new(ErrorCode::StepLimit, format!("the turn used all {limit} steps"))
                    .hint("send another message to go on"),
            ),
            Self::TimedOut { detail, .. } => Some(
                ErrorBody::new(ErrorCode::TimedOut, format!("the turn was ended: {detail}"))
                    .hint("send another message to go on, or give such turns more time there"),
            ),
            Self::Blocked { block: HookBlock { hook, reason } } => Some(
                ErrorBody::new(
                    ErrorCode::Blocked,
                    format!("hook `{hook}` refused the model call: {reason}"),
                )
                .hint("rephrase the message; `clawnode hooks list` on the node shows its hooks"),
            ),
            Self::StepFailed { step, tool, detail } => Some(
                ErrorBody::new(
                    ErrorCode::StepFailed,
                    format!("step {step} (`{tool}`) failed: {detail}"),
                )
                .hint("fix the cause, and send the remaining steps as another request"),
            ),
            Self::Bankrupt { .. } => {
                let exceeded = self.exceeded()?;
                let error = ErrorBody::new(ErrorCode::Bankrupt, exceeded.message());
                Some(error.hint(exceeded.hint()))
            }
            Self::Completed { .. } | Self::Cancelled => None,
        }
    }

    /// The limit by which it ended, if it did.
    pub fn exceeded(&self) -> Option<SpentLimit<'_>> {
        let Self::Bankrupt { account, unit, used, limit, needed, window } = self else {
            return None;
        };
        Some(SpentLimit {
            account,
            unit: *unit,
            used: *used,
            limit: *limit,
            needed: *needed,
            window: *window,
        })
    }
}

/// What to do about a turn that an operator or a limit of its agent stopped.
const STOPPED_HINT: &str = "`clawnode status` shows what is stopped and how to clear it; send the \
                            message again afterwards";

impl From<ModelFailure> for TurnOutcome {
    /// How a turn ends whose model call failed so.
    fn from(failure: ModelFailure) -> Self {
        let level = match failure.class {
            FailureClass::Stopped => return Self::Stopped { detail: failure.message },
            FailureClass::GlobalTime => TimeLevel::Global,
            FailureClass::StepTime => TimeLevel::Step,
            FailureClass::Unreachable
            | FailureClass::Timeout
            | FailureClass::RateLimited
            | FailureClass::Overloaded
            | FailureClass::Unauthorized
            | FailureClass::Rejected
            | FailureClass::BrokenStream
            | FailureClass::Cancelled
            | FailureClass::NoAgent
            | FailureClass::BudgetNotAllowed
            | FailureClass::BudgetUnavailable
            | FailureClass::Lost
            | FailureClass::Preempted => return Self::Failed { failure },
        };
        Self::TimedOut { level, detail: failure.message }
    }
}
