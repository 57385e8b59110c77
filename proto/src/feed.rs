//! The event feed: what happens in a cluster, for operators.
//!
//! Events are best effort and sent at most once; the journals are the truth. No event has the content of a
//! conversation.

use serde::{Deserialize, Serialize};

use crate::{
    agents::AgentPause,
    budget::{AccountKey, LimitKey},
    id::{AgentName, CallId, EntityId, Epoch, NodeName, ProcessId, TurnId},
    kill_switch::SwitchScope,
    limits::EVENT_TEXT,
    name::ToolName,
    role::NodeRole,
    timestamp::Timestamp,
};

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClusterEvent {
    /// When it happened, by the clock of the sender.
    pub at: Timestamp,
    /// The name of the sender.
    pub node: NodeName,
    /// The process that sends the event.
    pub process: ProcessId,
    /// What happened; its `type` is the name of the event.
    pub what: EventBody,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EventBody {
    /// A node has joined the cluster.
    NodeJoined {
        /// The version of clawnode.
        version: String,
        /// The roles of the node.
        roles: Vec<NodeRole>,
    },
    /// An operator cordoned a node (it takes no more entities), or uncordoned it.
    NodeCordoned {
        /// Whether the node is cordoned.
        on: bool,
    },
    /// A node hands its entities over to other nodes.
    NodeDraining,
    /// A node has left the cluster, with everything handed over.
    NodeLeft,
    /// A node sends no more heartbeats. The cluster takes it for dead.
    NodeDead {
        /// The process that is dead.
        process: ProcessId,
        /// The name of the node.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<NodeName>,
    },
    /// The first call of a turn has begun. It is sent once, also if that call is made again.
    TurnStarted {
        /// Whose message began it.
        session: EntityId,
        /// The turn that is running from now on.
        turn: TurnId,
    },
    /// A tool call waits for a person.
    ApprovalAsked {
        /// The session whose agent asks.
        session: EntityId,
        /// As `approvals.show` takes it.
        call: CallId,
        /// What would run.
        tool: ToolName,
    },
    /// A turn has ended and is in the journal. The event may repeat after a crash.
    TurnEnded {
        /// Whose message began it.
        session: EntityId,
        /// The turn that is over.
        turn: TurnId,
        /// How it ended, for example `completed`.
        outcome: String,
    },
    /// A node has taken over an entity from another.
    Claimed {
        /// The entity, of any kind. The name is older than other kinds.
        session: EntityId,
        /// The process that had it.
        from: ProcessId,
        /// The new epoch.
        epoch: Epoch,
    },
    /// A node has lost an entity to another, and no longer writes its journal.
    Fenced {
        /// The entity, of any kind. The name is older than other kinds.
        session: EntityId,
    },
    /// An entity is out of service until a person decides.
    Quarantined {
        /// The entity, of any kind. The name is older than other kinds.
        session: EntityId,
        /// A short text for people; the journal has it whole.
        reason: String,
    },
    /// An operator deleted an entity that was out of service, with what waited for it.
    Discarded {
        /// The entity, of any kind. The name is older than other kinds.
        session: EntityId,
        /// Who deleted it.
        by: String,
    },
    /// An operator set a kill switch, or cleared it.
    #[serde(rename = "latched")]
    KillSwitch {
        /// What the kill switch stops.
        scope: SwitchScope,
        /// Whether it is set now.
        on: bool,
        /// The credential that did it, and its host.
        by: String,
        /// The operator's reason.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        why: String,
    },
    /// An agent was paused on every node.
    AgentPaused {
        /// By its name in the configuration. It starts no new turns.
        agent: AgentName,
        /// Who paused it, and why.
        pause: AgentPause,
    },
    /// A paused agent was resumed on every node.
    AgentResumed {
        /// By its name in the configuration.
        agent: AgentName,
        /// Who resumed it.
        by: String,
    },
    /// The warning share of a limit of spending is spent. The event may repeat after a crash.
    BudgetWarned {
        /// `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
        account: AccountKey,
        /// Which limit.
        of: LimitKey,
        /// What is spent: micro-dollars, tokens or model calls.
        spent: u64,
        /// The most that may be spent, in the same unit.
        limit: u64,
    },
    /// Nothing more of a limit of spending is granted until a person allows it, or its window ends. The event
    /// may repeat after a crash.
    BudgetAsked {
        /// `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
        account: AccountKey,
        /// Which limit.
        of: LimitKey,
        /// What is spent: micro-dollars, tokens or model calls.
        spent: u64,
        /// The most that may be spent, in the same unit.
        limit: u64,
    },
    /// Calls have cost more than they had reserved: nothing more of this limit is granted until a person
    /// allows it. The event may repeat after a crash.
    BudgetOver {
        /// `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
        account: AccountKey,
        /// Which limit.
        of: LimitKey,
        /// By how much: micro-dollars, tokens or model calls.
        excess: u64,
    },
    /// A condition that a person should know about.
    Warning {
        /// The stable name of the condition.
        name: String,
        /// The condition, for people.
        message: String,
    },
    /// An event of a newer build.
    #[serde(other)]
    Unknown,
}

/// Several events, as one bus message carries them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct EventBatch {
    /// The events, in order; at most [`crate::limits::EVENTS_BATCH`].
    pub events: Vec<ClusterEvent>,
    /// How many events were dropped before these, because there were too many.
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
            Self::Discarded { .. } => "discarded",
            Self::KillSwitch { .. } => "latched",
            Self::AgentPaused { .. } => "agent_paused",
            Self::AgentResumed { .. } => "agent_resumed",
            Self::BudgetWarned { .. } => "budget_warned",
            Self::BudgetAsked { .. } => "budget_asked",
            Self::BudgetOver { .. } => "budget_over",
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
    use crate::budget::{BudgetUnit, WindowLength};

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
            EventBody::Discarded { session: EntityId::from_u128(1), by: String::new() },
            EventBody::AgentResumed { agent: "ada".parse().unwrap(), by: String::new() },
            EventBody::BudgetOver {
                account: AccountKey::Cluster,
                of: LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day },
                excess: 1,
            },
            EventBody::Warning { name: String::new(), message: String::new() },
        ] {
            assert_eq!(serde_json::to_value(&body).unwrap()["type"], body.name());
        }
    }
}
