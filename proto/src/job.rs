//! Jobs: tool calls that any node with the capability may run.
//!
//! A job waits in a queue of its capability, and has a **state key** that changes only by
//! compare-and-set: absent -> `started` -> `done` or `uncertain`; absent -> `revoked`; any of them ->
//! `closed` by the owner, once the turn that asked for it has ended.

use serde::{Deserialize, Serialize};

use crate::{
    codec::{CodecError, decode, encode},
    envelope::Traceparent,
    event::Timestamp,
    id::{CallId, Capability, EventId, JobId, ProcessId, SessionKey, TurnId},
    name::ToolName,
    tool::{EffectClass, ToolOutcome},
};

/// A job as it waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Which; also the idempotency key of every run of it.
    pub id: JobId,
    /// What a node needs to run it.
    pub capability: Capability,
    /// Whose session's inbox takes the result.
    pub session: SessionKey,
    /// Of which turn.
    pub turn: TurnId,
    /// Which call of it.
    pub call: CallId,
    /// Echoed by the result: the event that asked for it.
    pub nonce: EventId,
    /// The tool.
    pub tool: ToolName,
    /// Its arguments: a JSON object that fits the tool's schema.
    pub arguments: String,
    /// What running it twice does.
    pub class: EffectClass,
    /// The longest that one run may take, in milliseconds.
    pub timeout_ms: u32,
    /// The trace that it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<Traceparent>,
}

/// A job's state key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
        /// How.
        outcome: ToolOutcome,
    },
    /// A run may or may not have happened, and nobody may try again by itself.
    Uncertain {
        /// What is known.
        detail: String,
    },
    /// Nobody may begin it any more.
    Revoked,
    /// Its turn has ended, and nobody waits for it: acknowledge only.
    Closed,
}

impl Job {
    /// Its bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, CodecError> {
        encode(self)
    }

    /// Reads a job.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CodecError> {
        decode(bytes)
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
