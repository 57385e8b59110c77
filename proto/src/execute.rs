//! Plans: steps that are run as a model's tool calls are, without a model.
//!
//! What a planner writes ([`crate::provider::ExecutionSpec`]) becomes a [`Plan`] at the
//! gateway. A plan is journaled whole and never changes. A plan is a turn of a session of its own.

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
    /// One that the agent has, by its name in the agent's `tools`.
    pub tool: ToolName,
    /// Its arguments: a JSON object, as text. Empty if it has a template.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub arguments: String,
    /// Whether the plan goes on if this does not end well.
    #[serde(default, skip_serializing_if = "is_false")]
    pub goes_on: bool,
    /// In place of the arguments: the same with references to the outputs of earlier steps. A build that does not
    /// know it cannot read a step without arguments, so it hands the plan on and does not run it as it is written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

impl PlanStep {
    /// Its arguments as the plan has them, with references if there are some.
    pub fn given(&self) -> &str {
        self.template.as_deref().unwrap_or(&self.arguments)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

/// A step of a turn's plan is next. Its tool call follows as if a model had asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepPlanned {
    /// The turn that runs the plan.
    pub turn: TurnId,
    /// The id that takes the place of a model call.
    pub call: CallId,
    /// The number of the step, from 0.
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
    /// The session of the execution that `request` names, among those of an agent. It has no other turn.
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
    /// The steps.
    pub execution_spec: ExecutionSpec,
    /// The agent whose tools and rules are used. Default: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Your own name for this request. If you send it again, the plan runs only once.
    #[serde(default, alias = "idempotency_key", skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// How long to wait for the end, in milliseconds (at most 10,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// Parameters of `execute.show` and `execute.cancel`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ExecutionParams {
    /// The id, `exe_…`.
    pub execution_id: String,
    /// How long to wait for the end, in milliseconds (at most 10,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// How far an execution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExecutionStatus {
    /// The plan is stored. No worker has it yet.
    Created,
    /// A worker has the plan, and no step has begun.
    Planned,
    /// A step waits for a node that can run it, or until the agent may run another turn.
    Queued,
    /// A step runs.
    Running,
    /// A step waits for a person.
    WaitingApproval,
    /// All steps are done; some may have failed, if their plan allows it.
    Succeeded,
    /// A step failed.
    Failed,
    /// A client or an operator cancelled it.
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
    /// The step has not begun.
    Pending,
    /// The step waits for a node that can run it.
    Queued,
    /// The step runs.
    Running,
    /// The step waits for a person.
    WaitingApproval,
    /// The step succeeded.
    Succeeded,
    /// The step failed.
    Failed,
    /// It is unknown whether the step had an effect. It does not run again.
    Uncertain,
    /// The execution ended while the step ran.
    Cancelled,
    /// The execution ended before the step.
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
    /// As `execute.show` and `execute.cancel` take it.
    pub execution_id: ExecutionId,
    /// The client's name for the request.
    pub request_id: IdempotencyKey,
    /// The state of the execution.
    pub status: ExecutionStatus,
    /// The key of its session.
    pub session: SessionKey,
    /// Its turn in that session.
    pub turn: TurnId,
    /// The agent whose tools and rules are used.
    pub agent: AgentName,
    /// When a worker accepted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// When the first step began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started: Option<Timestamp>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Timestamp>,
    /// From the first step to the end, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<u64>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// One for each step of the plan, in its order, also those that have not begun.
    pub steps: Vec<ExecutionStep>,
}

/// One step, as far as it is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExecutionStep {
    /// The number of the step, from 1.
    pub step: u32,
    /// The tool.
    pub action: ToolName,
    /// The arguments. A step that has begun has the outputs of earlier steps in them.
    pub params: Map<String, Value>,
    /// Whether the execution continues if this step fails.
    #[serde(default, skip_serializing_if = "is_false")]
    pub continue_on_failure: bool,
    /// The state of the step.
    pub status: StepStatus,
    /// How much harm the tool can do. Absent if the agent does not have the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// The tool call. Approvals are about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The job, if a node ran it as one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobId>,
    /// The decision of a person, or the request for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<StepApproval>,
    /// The output, at most [`EXECUTION_OUTPUT_CHARS`](crate::limits::EXECUTION_OUTPUT_CHARS)
    /// characters. The session has all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The size of the whole output, if some is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_bytes: Option<u64>,
    /// How the step failed.
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
    /// The digest of the action to approve.
    pub action: Digest,
    /// When the request expires.
    pub expires: Timestamp,
    /// The person who approved or denied, as the node knows them. Absent if no person has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
}

/// How a step failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepError {
    /// A [`crate::tool::ToolFailure`], `uncertain`, or how the execution ended.
    pub kind: String,
    /// The reason, for people.
    pub message: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    /// A step as builds read it that know no templates.
    #[derive(Debug, Deserialize)]
    struct OlderStep {
        #[expect(dead_code, reason = "it is only read")]
        arguments: String,
    }

    #[test]
    fn an_older_build_does_not_take_a_template_for_arguments() {
        let fixed = PlanStep {
            tool: "look".parse().unwrap(),
            arguments: "{}".to_owned(),
            goes_on: false,
            template: None,
        };
        let template = Some(r#"{"at":"{{steps.1.output}}"}"#.to_owned());
        let filled = PlanStep { arguments: String::new(), template, ..fixed.clone() };
        for step in [&fixed, &filled] {
            let bytes = codec::encode(step).unwrap();
            assert_eq!(&codec::decode::<PlanStep>(&bytes).unwrap(), step);
            assert_eq!(codec::decode::<OlderStep>(&bytes).is_ok(), step.template.is_none());
        }
        assert_eq!((fixed.given(), filled.given().contains("steps.1")), ("{}", true));
    }

    #[test]
    fn each_request_has_a_session_of_its_own() {
        let agent: AgentName = "default".parse().unwrap();
        let session_of = |request: &str| {
            SessionKey::of_execution(agent.clone(), &request.parse().unwrap()).to_string()
        };
        assert_eq!(session_of("deploy 42"), "default:execute:api:deploy 42");
        let odd = ["urn:uuid:1", "urn:uuid:2"].map(session_of);
        assert_ne!(odd[0], odd[1]);
        for key in odd {
            assert_eq!(key.parse::<SessionKey>().unwrap().to_string(), key);
        }
    }
}
