//! Jobs: tool calls that any node with the capability may run.
//!
//! A job waits in a queue of its capability, and has a **state key** that changes only by
//! compare-and-set: absent -> `started` -> `done` or `uncertain`; absent -> `revoked`; any of them ->
//! `closed` by the owner, once the turn that asked for it has ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    codec::{CodecError, decode, encode},
    envelope::Traceparent,
    id::{CallId, Capability, Digest, EventId, JobId, ProcessId, SessionKey, TurnId},
    name::ToolName,
    policy::{Action, Policy},
    session::Profile,
    timeout::TimeLimit,
    timestamp::Timestamp,
    tool::{self, EffectClass, ToolOutcome},
};

/// A job as it waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Job {
    /// Which; also the idempotency key of every run of it.
    pub id: JobId,
    /// What a node needs to run it.
    pub capability: Capability,
    /// Whose session's inbox takes the result.
    pub session: SessionKey,
    /// The turn that asked for it, and may wait for it.
    pub turn: TurnId,
    /// Which call of it.
    pub call: CallId,
    /// Echoed by the result: the event that asked for it.
    pub nonce: EventId,
    /// What a runner runs, by the name that the model called.
    pub tool: ToolName,
    /// Its arguments: a JSON object that fits the tool's schema.
    pub arguments: String,
    /// What running it twice does.
    pub class: EffectClass,
    /// The longest that one run may take, in milliseconds, as it was decided on.
    pub timeout_ms: u32,
    /// What a run has of that, and who says so; all of it if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<TimeLimit>,
    /// The digest of the action that was decided on; what runs has the same, or is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<Digest>,
    /// What it may call while it runs; nothing if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callbacks: Option<Callbacks>,
    /// The trace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Traceparent>,
    /// When it is too old to be begun. Queues and state keys forget; this does not, so it is earlier
    /// than the moment at which a state key may be forgotten. Absent in jobs of older builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_after: Option<Timestamp>,
}

/// What a run may call while it runs, on behalf of its agent: never more than the agent does by
/// itself, without a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Callbacks {
    /// The agent's tools, each with the digest of all that is said of it: what differs where the
    /// call runs is not called.
    pub tools: BTreeMap<ToolName, Digest>,
    /// What the agent does by itself.
    pub policy: Policy,
    /// Calls at a time, at most.
    pub at_once: u32,
}

/// A job's state key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum JobState {
    /// A run has begun. It is the reader's own only if the reader remembers the run.
    Started {
        /// By whom.
        process: ProcessId,
        /// Which run of that process.
        run: u64,
        /// Which run of the job, from 1.
        attempt: u32,
        /// When, by the runner's clock; for people only.
        at: Timestamp,
    },
    /// It has ended.
    Done {
        /// As the result in the inbox of the session has it.
        outcome: ToolOutcome,
    },
    /// A run may or may not have happened, and only a person may try again.
    Uncertain {
        /// What is known.
        detail: String,
    },
    /// No runner may begin it any more.
    Revoked,
    /// Its turn has ended, and its session does not wait for it: acknowledge only.
    Closed,
}

impl Job {
    /// Whether it is too old to be begun.
    pub fn is_too_old(&self, now: Timestamp) -> bool {
        self.not_after.is_some_and(|last| now > last)
    }

    /// What it would do where this is behind its tool.
    pub fn action(&self, pin: Option<Digest>) -> Action {
        Action {
            session: self.session.clone(),
            turn: self.turn,
            call: self.call,
            tool: self.tool.clone(),
            pin,
            capability: Some(self.capability.clone()),
            class: self.class,
            timeout_ms: self.timeout_ms,
            arguments: self.arguments.clone(),
        }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CodecError> {
        encode(self)
    }

    /// Reads a job.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        decode(bytes)
    }
}

impl Callbacks {
    /// What a run of this tool may call on behalf of an agent that is configured so.
    pub fn of(profile: &Profile, tool: &ToolName) -> Option<Self> {
        (tool.as_str() == tool::EXECUTE_CODE).then(|| Self {
            tools: profile
                .tools
                .iter()
                .filter_map(|spec| Some((spec.name.clone(), spec.digest().ok()?)))
                .collect(),
            policy: profile.policy.clone(),
            at_once: profile.max_parallel_tools,
        })
    }
}

impl JobState {
    /// Its bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CodecError> {
        encode(self)
    }

    /// Reads a state.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        decode(bytes)
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Started { .. } => "started",
            Self::Done { .. } => "done",
            Self::Uncertain { .. } => "uncertain",
            Self::Revoked => "revoked",
            Self::Closed => "closed",
        }
    }
}
