//! Plans: steps that are run as a model's tool calls are, without a model.
//!
//! What a planner writes ([`crate::provider::ExecutionSpec`]) becomes a [`Plan`] at the gateway's
//! door, which is journaled whole and never changes. A plan is a turn of a session of its own.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    error::ErrorBody,
    id::{
        AgentName, CallId, Digest, EntityId, ExecutionId, IdempotencyKey, JobId, SessionKey,
        ToolName, TurnId,
    },
    name::KeyPart,
    provider::ExecutionSpec,
    timestamp::Timestamp,
    tool::Risk,
    visible::is_hidden,
};

/// The channel and the account of the sessions of executions.
const CHANNEL: (&str, &str) = ("execute", "api");

/// What is to be done, step by step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Plan {
    /// What it is to who reads the session: what the user said, as it were.
    pub about: String,
    /// In order; each begins once the one before has ended.
    pub steps: Vec<PlanStep>,
}

/// One step of a plan: a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PlanStep {
    /// The tool.
    pub tool: ToolName,
    /// Its arguments: a JSON object, as text.
    pub arguments: String,
    /// Whether the plan goes on if this does not end well.
    #[serde(default, skip_serializing_if = "is_false")]
    pub goes_on: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A step of a turn's plan is next. Its tool call follows as if a model had asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepPlanned {
    /// Of which turn.
    pub turn: TurnId,
    /// What stands where a model call would.
    pub call: CallId,
    /// Which step, from 0.
    pub step: u32,
}

impl ExecutionId {
    /// The execution whose session this is.
    pub const fn of(session: EntityId) -> Self {
        Self::from_u128(session.as_u128())
    }

    /// Its session.
    pub const fn session(self) -> EntityId {
        EntityId::from_u128(self.as_u128())
    }
}

impl SessionKey {
    /// The session of what `request` names among the executions of an agent: it has only this one.
    pub fn of_execution(agent: AgentName, request: &IdempotencyKey) -> Self {
        let request = request.as_str();
        let digest = || Digest::of(request.as_bytes()).to_string();
        // A name that is none of a session's is known by its digest.
        let shown = (!request.chars().any(is_hidden)).then(|| request.parse().ok()).flatten();
        let peer = shown.unwrap_or_else(|| KeyPart::of_text(&digest()));
        let (channel, account) = CHANNEL;
        let (channel, account) = (KeyPart::of_text(channel), KeyPart::of_text(account));
        Self { agent, channel, account, peer }
    }
}

/// Parameters of `execute`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExecuteParams {
    /// What to do.
    pub execution_spec: ExecutionSpec,
    /// Whose tools and policy; the default agent's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The client's name for this request among those to the agent: sent again, it is run once.
    #[serde(default, alias = "idempotency_key", skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// How long to wait for its end, in milliseconds (at most 10,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// Parameters of `execute.show` and `execute.cancel`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExecutionParams {
    /// Which: `exe_…`.
    pub execution_id: String,
    /// How long to wait for its end, in milliseconds (at most 10,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// How far an execution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExecutionStatus {
    /// It is stored, and nobody has taken it up.
    Created,
    /// A worker has it, and no step has begun: its agent has no place for it, or is stopped.
    Planned,
    /// Its step waits for a node that can run it, or for its agent's next place.
    Queued,
    /// A step runs.
    Running,
    /// Its step waits for a person.
    WaitingApproval,
    /// All steps are done; those that may fail perhaps did.
    Succeeded,
    /// It ended before that.
    Failed,
    /// Somebody cancelled it.
    Cancelled,
}

impl ExecutionStatus {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Created => "CREATED",
            Self::Planned => "PLANNED",
            Self::Queued => "QUEUED",
            Self::Running => "RUNNING",
            Self::WaitingApproval => "WAITING_APPROVAL",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// Whether nothing more will happen.
    pub const fn is_over(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StepStatus {
    /// It is still to come.
    Pending,
    /// It waits for a node that can run it.
    Queued,
    /// It runs.
    Running,
    /// It waits for a person.
    WaitingApproval,
    /// It is done.
    Succeeded,
    /// It is not, or not well.
    Failed,
    /// Nobody knows whether it is done; it is not done again.
    Uncertain,
    /// It had begun when the execution ended.
    Cancelled,
    /// The execution ended before it.
    Skipped,
}

impl StepStatus {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Queued => "QUEUED",
            Self::Running => "RUNNING",
            Self::WaitingApproval => "WAITING_APPROVAL",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Uncertain => "UNCERTAIN",
            Self::Cancelled => "CANCELLED",
            Self::Skipped => "SKIPPED",
        }
    }
}

/// Answer of `execute`, `execute.show` and `execute.cancel`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutionView {
    /// Its id.
    pub execution_id: ExecutionId,
    /// What the client called it.
    pub request_id: IdempotencyKey,
    /// How far it is.
    pub status: ExecutionStatus,
    /// Its session, by its readable key.
    pub session: SessionKey,
    /// Its turn there.
    pub turn: TurnId,
    /// Whose tools and policy it has.
    pub agent: AgentName,
    /// When a worker took it up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// When its first step was begun.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// From its first step to its end, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// Its steps.
    pub steps: Vec<ExecutionStep>,
}

/// One step, as far as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutionStep {
    /// Which, from 1.
    pub step: u32,
    /// The tool.
    pub action: ToolName,
    /// Its arguments, as they were given.
    pub params: Map<String, Value>,
    /// Whether the execution goes on if this does not end well.
    #[serde(default, skip_serializing_if = "is_false")]
    pub continue_on_failure: bool,
    /// How far it is.
    pub status: StepStatus,
    /// How much harm its tool can do; absent if the agent does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// The tool call, once it is planned: what approvals are about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// What is kept of it, if a node ran it as a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// What a person is asked, or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<StepApproval>,
    /// What it said, at most
    /// [`EXECUTION_OUTPUT_CHARS`](crate::limits::EXECUTION_OUTPUT_CHARS); the session has all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Bytes that it said in all, if some are left out here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// How it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
    /// From its beginning to its end, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
}

/// What a person is asked about a step, or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepApproval {
    /// The digest of the action: what is approved.
    pub action: Digest,
    /// Until when they are waited for.
    pub expires: Timestamp,
    /// Who decided, once somebody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
}

/// How a step failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepError {
    /// A [`crate::tool::ToolFailure`], `uncertain`, or how its execution ended.
    pub kind: String,
    /// For people.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_a_session_of_its_own() {
        let agent: AgentName = "default".parse().unwrap();
        let of = |request: &str| {
            SessionKey::of_execution(agent.clone(), &request.parse().unwrap()).to_string()
        };
        assert_eq!(of("deploy 42"), "default:execute:api:deploy 42");
        let odd = ["urn:uuid:1", "urn:uuid:2"].map(of);
        assert_ne!(odd[0], odd[1]);
        for key in odd {
            assert_eq!(key.parse::<SessionKey>().unwrap().to_string(), key);
        }
    }
}
