//! What the API shows: the documents behind `status`, `sessions`, `journal` and `agents`.
//!
//! CLI, REST and JSON-RPC answer with the same documents. Fields are only ever added.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

use crate::{
    budget::AskingBudget,
    cursor::Cursor,
    frame::FrameKey,
    id::{AgentName, CallId, Capability, Digest, EntityId, NodeName, ProcessId, TurnId},
    lane::Lane,
    llm::{Message, Usage},
    node::{Load, NodeRole, VersionRange},
    overview::{BusView, DeadView, LookedView},
    policy::{Approval, Verdict},
    session::TurnOutcome,
    timestamp::Timestamp,
    tool::Risk,
};
pub use crate::{
    journal_view::{EventList, EventView, VerifyRow, VerifyView},
    quarantine_view::{
        ParkedList, ParkedRow, ParkedWhere, QuarantineDone, QuarantineList, QuarantineRow,
        QuarantineView,
    },
};

/// A condition that a person should know about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WarningView {
    /// The stable name of the condition, for example `bus.replicas`.
    pub name: String,
    /// The condition, and what it means.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl WarningView {
    /// Whether nothing goes on until a person acts.
    pub fn is_fatal(&self) -> bool {
        ["bus.unreachable", "bus.no_leader", "nodes.no_worker", "panic.all"].contains(&&*self.name)
    }
}

/// One process of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeView {
    /// The name of the node.
    pub node: NodeName,
    /// The id of the process.
    pub process: ProcessId,
    /// The version of clawnode.
    pub version: String,
    /// The roles of the node.
    pub roles: Vec<NodeRole>,
    /// When it started, by its own clock.
    pub started: Timestamp,
    /// Whether it hands over its entities and ends.
    pub draining: bool,
    /// Whether it takes no more entities.
    #[serde(default)]
    pub cordoned: bool,
    /// Entities in its memory.
    pub entities: u64,
    /// The digest of its configuration of agents.
    pub config: Digest,
    /// The versions of the envelope that it reads and writes.
    #[serde(default)]
    pub speaks: VersionRange,
    /// Its capabilities.
    #[serde(default)]
    pub capabilities: BTreeSet<Capability>,
    /// Its load.
    #[serde(default)]
    pub load: Load,
    /// By how many ranks the node lowers itself, because it is busy.
    #[serde(default)]
    pub shed: u8,
    /// Partitions that it serves first, as it sees the cluster.
    #[serde(default)]
    pub first_of: u16,
    /// The address for clients, if it is a gateway that advertises one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Answer of `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusView {
    /// The version of this node.
    pub version: String,
    /// The process of this node.
    pub process: ProcessId,
    /// The storage backend: `local PATH` or `nats URL`.
    pub substrate: String,
    /// How many partitions the cluster has.
    pub partitions: u16,
    /// The model that answers by default, and why.
    pub model: String,
    /// The plugins that workers have loaded, by name.
    #[serde(default)]
    pub plugins: Vec<String>,
    /// How many entities there are: sessions, also deleted ones and those of requests without a user, and others.
    pub sessions: u64,
    /// Turns that run now, as nodes last reported.
    #[serde(default)]
    pub running: u32,
    /// Tool calls that wait for a person (`approvals.list`). Absent if the store does not answer in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<u64>,
    /// Turns that wait for a provider. Absent if the store does not answer in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outages: Option<u64>,
    /// How old the oldest event is that the counts of `usage.show` do not have yet, in milliseconds; 0 if they have all.
    /// Absent if the store does not answer in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_behind_ms: Option<u64>,
    /// The living processes that this node knows.
    pub nodes: Vec<NodeView>,
    /// Processes whose heartbeats stopped recently; the cluster takes them for dead.
    #[serde(default)]
    pub dead: Vec<DeadView>,
    /// The state of the bus. Absent without NATS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<BusView>,
    /// Sessions out of service, among those that were checked.
    pub quarantined: Vec<EntityId>,
    /// Which entities were checked. Absent if none were yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked: Option<LookedView>,
    /// Conditions that a person should know about.
    pub warnings: Vec<WarningView>,
}

/// One row of `sessions.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionRow {
    /// The id of the session.
    pub id: EntityId,
    /// The readable key. Absent if the journal cannot be read.
    pub key: Option<String>,
    /// The first words of the first message, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// `idle`, `running`, `waiting` (for a person or a provider), `quarantined`, `deleted` or `corrupt`.
    pub state: String,
    /// How many turns it has.
    pub turns: u64,
    /// How many events its journal has.
    pub events: u64,
    /// When the last event was written.
    pub updated: Timestamp,
    /// Since when it is in this state. Absent if a snapshot has taken the place of the event with which that began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// How its newest turn ended, if it failed: the outcome and the error in one line, cut after
    /// [`crate::limits::LAST_ERROR_CHARS`] characters. Absent if the turn ended well, was cancelled, or still runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// The tokens of all its turns.
    pub usage: Usage,
    /// The process that owns it, by its journal. Absent without an owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ProcessId>,
    /// The name of the node whose process owns the session. Absent if it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// Whether it belongs to a request that names no user. Such a session gets no more messages and is
    /// deleted later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
    /// Why it is out of service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Answer of `sessions.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionList {
    /// The sessions, newest first. A session with a new event moves to the front, so later pages do not have it.
    pub sessions: Vec<SessionRow>,
    /// Pass this as `cursor` for the next page. Absent on the last one. A page looks at 5,000 sessions
    /// at most, so it may be empty and still have a `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
    /// How many sessions this page left out, because they belong to requests that name no user.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hidden: u64,
    /// Whether some sessions were not looked at: there are more than 100,000 of them, or several 100,000 entities of other
    /// kinds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
const fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One turn of `sessions.history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnView {
    /// The id of the turn.
    pub turn: TurnId,
    /// The messages, in order. A later message of the user was sent while the turn ran.
    pub messages: Vec<Message>,
    /// How the turn ended. Absent while it runs or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TurnOutcome>,
    /// The tokens that it used.
    pub usage: Usage,
    /// Calls that were made again, because a process died.
    #[serde(default)]
    pub lost_attempts: u32,
    /// Tool calls that wait for a person. `approvals.approve` and `approvals.deny` decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<CallId>,
    /// Whether the turn has used up its steps and waits for more (`chat.continue`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wants_steps: bool,
    /// Until when the turn waits, because no provider of its models is available. Then it asks again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_until: Option<Timestamp>,
    /// The lane that its message named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
    /// The indexes in `messages`, from 0, of those that clawnode wrote to the model, and not the user.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<u32>,
    /// The reply as JSON. Absent if the turn has no `response_schema`, or the reply does not fit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<serde_json::Value>,
}

/// Answer of `sessions.history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistoryView {
    /// The id of the session.
    pub id: EntityId,
    /// The readable key.
    pub key: String,
    /// `idle`, `running`, `waiting` (for a person or a provider), `quarantined` or `deleted`.
    pub state: String,
    /// The turns, in order.
    pub turns: Vec<TurnView>,
    /// Pass this as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// Answer of `approvals.list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalList {
    /// The tool calls that wait for a person, oldest first.
    pub approvals: Vec<Approval>,
    /// The limits of budgets that wait for a person: `budget.allow` allows more. Only the first page has them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<AskingBudget>,
    /// Pass this as `cursor` for the next page. Absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// Answer of `policy.check`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyView {
    /// Whether the call would run, at once or after an approval.
    pub allowed: bool,
    /// Whether a person would have to approve it.
    pub requires_approval: bool,
    /// How much harm the call can do.
    pub risk_level: Risk,
    /// The decision of the policy.
    pub verdict: Verdict,
    /// The reason, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The agent whose policy decided.
    pub agent: AgentName,
    /// What the call would do.
    pub action: String,
}

/// Answer of `chat.continue`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContinuedView {
    /// The turn that continues.
    pub turn: TurnId,
    /// How many steps it got.
    pub steps: u32,
}

/// Answer of methods that return no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoneView {
    /// Always `true`.
    pub ok: bool,
}

/// Answer of `ticket.create`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TicketView {
    /// The ticket. It opens one WebSocket.
    pub ticket: String,
    /// The subprotocol that carries it, for a browser's `new WebSocket(url, [protocol])`.
    pub protocol: String,
    /// How many seconds it is valid.
    pub expires_seconds: u64,
}

/// A ticket is a secret.
impl fmt::Debug for TicketView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TicketView")
            .field("expires_seconds", &self.expires_seconds)
            .finish_non_exhaustive()
    }
}

/// Answer of `POST /v1/sessions/{session}/messages` that is not streamed: a turn that has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplyView {
    /// The session's readable key.
    pub session: String,
    /// The turn that this message began or joined.
    pub turn: TurnId,
    /// The whole reply.
    pub text: String,
    /// The reply as JSON. Absent if the turn has no `response_schema`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<serde_json::Value>,
    /// The tokens of all its model calls.
    pub usage: Usage,
    /// How the turn ended.
    pub outcome: TurnOutcome,
}

/// First frame of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AcceptedView {
    /// The session's readable key.
    pub session: String,
    /// The turn that this message began or joined.
    pub turn: TurnId,
    /// The position to resume from, if the connection breaks.
    pub cursor: FrameKey,
}
