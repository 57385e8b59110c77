//! What happens in a cluster, told in passing to those who watch.
//!
//! Best effort, at most once, and never the truth: that is in the journals. Nothing of a
//! conversation is in it.

use serde::{Deserialize, Serialize};

use crate::{
    id::{CallId, EntityId, Epoch, NodeName, ProcessId, TurnId},
    latch::LatchScope,
    limits::EVENT_TEXT,
    name::ToolName,
    node::NodeRole,
    timestamp::Timestamp,
};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterEvent {
    /// When, by the clock of whoever tells it.
    pub at: Timestamp,
    /// What people call whoever tells it.
    pub node: NodeName,
    /// Who tells it.
    pub process: ProcessId,
    /// What.
    pub what: EventBody,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventBody {
    /// The process takes part from now on.
    NodeJoined {
        /// Its program's version.
        version: String,
        /// What it does.
        roles: Vec<NodeRole>,
    },
    /// The process takes no more entities, or takes them again.
    NodeCordoned {
        /// Whether it stands back.
        on: bool,
    },
    /// The process hands everything over.
    NodeDraining,
    /// The process ends, with everything handed over.
    NodeLeft,
    /// The heartbeats of another process stopped; the cluster takes it for dead.
    NodeDead {
        /// Which.
        process: ProcessId,
        /// What people called it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeName>,
    },
    /// A turn's first call began.
    TurnStarted {
        /// Of which session.
        session: EntityId,
        /// The turn.
        turn: TurnId,
    },
    /// A tool call waits for a person.
    ApprovalAsked {
        /// Of which session.
        session: EntityId,
        /// The call.
        call: CallId,
        /// The tool.
        tool: ToolName,
    },
    /// A turn has ended and is in the journal; may be told again after a crash.
    TurnEnded {
        /// Of which session.
        session: EntityId,
        /// The turn.
        turn: TurnId,
        /// How, in a word.
        outcome: String,
    },
    /// The process claimed an entity that another had.
    Claimed {
        /// Which.
        session: EntityId,
        /// Who had it.
        from: ProcessId,
        /// The epoch that began.
        epoch: Epoch,
    },
    /// The process lost an entity to another.
    Fenced {
        /// Which.
        session: EntityId,
    },
    /// An entity went out of service.
    Quarantined {
        /// Which.
        session: EntityId,
        /// Why.
        reason: String,
    },
    /// An operator set a latch, or cleared it.
    Latched {
        /// What it stops.
        scope: LatchScope,
        /// Whether it is on now.
        on: bool,
        /// Whose credential did it, and where.
        by: String,
        /// Why, in the operator's words.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// Something that a person should know has come up.
    Warning {
        /// Its stable name.
        name: String,
        /// What is so.
        message: String,
    },
    /// Told by a newer program.
    #[serde(other)]
    Unknown,
}

/// Several events, as one bus message carries them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventBatch {
    /// In order; at most [`crate::limits::EVENTS_BATCH`].
    pub events: Vec<ClusterEvent>,
    /// Events that were not told before these, because there were too many.
    #[serde(default)]
    pub dropped: u64,
}

impl EventBody {
    /// Its stable name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::NodeJoined { .. } => "node_joined",
            Self::NodeCordoned { .. } => "node_cordoned",
            Self::NodeDraining => "node_draining",
            Self::NodeLeft => "node_left",
            Self::NodeDead { .. } => "node_dead",
            Self::TurnStarted { .. } => "turn_started",
            Self::ApprovalAsked { .. } => "approval_asked",
            Self::TurnEnded { .. } => "turn_ended",
            Self::Claimed { .. } => "claimed",
            Self::Fenced { .. } => "fenced",
            Self::Quarantined { .. } => "quarantined",
            Self::Latched { .. } => "latched",
            Self::Warning { .. } => "warning",
            Self::Unknown => "unknown",
        }
    }
}

/// A text as an event may carry it.
pub fn brief(text: &str) -> String {
    text.chars().take(EVENT_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_newer_program_is_not_the_end_of_its_batch() {
        let body = serde_json::json!({ "type": "moon_landed", "crew": 3 });
        assert_eq!(serde_json::from_value::<EventBody>(body).unwrap(), EventBody::Unknown);
    }

    #[test]
    fn names_are_those_of_the_wire() {
        for body in [
            EventBody::NodeDraining,
            EventBody::NodeCordoned { on: false },
            EventBody::Fenced { session: EntityId::from_u128(1) },
            EventBody::Warning { name: String::new(), message: String::new() },
        ] {
            assert_eq!(serde_json::to_value(&body).unwrap()["type"], body.name());
        }
    }
}
