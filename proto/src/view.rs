//! What the API shows: the documents behind `status`, `sessions`, `journal` and `agents`.
//!
//! CLI, REST and JSON-RPC answer with the same documents. Fields are only ever added.

use std::{collections::BTreeSet, fmt};

use serde::{Deserialize, Serialize};

pub use crate::journal_view::{EventList, EventView, VerifyRow, VerifyView};
use crate::{
    cursor::Cursor,
    event::Timestamp,
    frame::FrameKey,
    id::{
        AgentName, CallId, Capability, Digest, EntityId, IdempotencyKey, InputId, NodeName,
        ProcessId, TurnId,
    },
    llm::{Message, Usage},
    node::{Load, NodeRole, VersionRange},
    overview::{BusView, DeadView, LookedView},
    policy::{Approval, Verdict},
    session::TurnOutcome,
    tool::Risk,
};

/// Something a person should know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WarningView {
    /// A stable name: `bus.replicas`.
    pub name: String,
    /// What is so, and what it means.
    pub message: String,
    /// What to do.
    pub hint: String,
}

impl WarningView {
    /// Whether nothing goes on until somebody acts.
    pub fn is_fatal(&self) -> bool {
        let name = self.name.as_str();
        ["bus.unreachable", "bus.no_leader", "nodes.no_worker", "panic.all"].contains(&name)
    }
}

/// One process of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NodeView {
    /// What people call it.
    pub node: NodeName,
    /// Its process id.
    pub process: ProcessId,
    /// The program's version.
    pub version: String,
    /// What it does.
    pub roles: Vec<NodeRole>,
    /// When it started, by its own clock.
    pub started: Timestamp,
    /// Whether it hands everything over and ends.
    pub draining: bool,
    /// Whether it was told to take no more entities.
    #[serde(default)]
    pub cordoned: bool,
    /// Entities in its memory.
    pub entities: u64,
    /// The digest of its agents' configuration.
    pub config: Digest,
    /// The versions of the envelope that it reads and writes.
    #[serde(default)]
    pub speaks: VersionRange,
    /// What it can do beside its roles.
    #[serde(default)]
    pub capabilities: BTreeSet<Capability>,
    /// How busy it is.
    #[serde(default)]
    pub load: Load,
    /// By how many ranks it stands back, because it is busy.
    #[serde(default)]
    pub shed: u8,
    /// Partitions that it serves first, by its own view of the cluster.
    #[serde(default)]
    pub first_of: u16,
    /// Where clients reach it, if it is a gateway that says so: any gateway serves any session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

/// Answer of `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StatusView {
    /// The version of the node that answers.
    pub version: String,
    /// The process that answers.
    pub process: ProcessId,
    /// What it stands on: `local PATH`, `nats URL`.
    pub substrate: String,
    /// Partitions of the cluster.
    pub partitions: u16,
    /// Which model answers by default, and why that one.
    pub model: String,
    /// The plugins that workers have loaded, by name, each once.
    #[serde(default)]
    pub plugins: Vec<String>,
    /// Sessions there are, deleted ones and those of requests without a user included.
    pub sessions: u64,
    /// Turns that run now, as the nodes said last.
    #[serde(default)]
    pub running: u32,
    /// Calls of tools that wait for a person: `approvals.list` has them. Absent if the store does not tell
    /// in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvals: Option<u64>,
    /// The processes that this one hears of, itself included.
    pub nodes: Vec<NodeView>,
    /// Processes whose heartbeats stopped recently; the cluster takes them for dead.
    #[serde(default)]
    pub dead: Vec<DeadView>,
    /// How the bus is doing; absent in a cluster of one process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<BusView>,
    /// Sessions out of service, among those that were looked at.
    pub quarantined: Vec<EntityId>,
    /// Which sessions were looked at; absent if none were yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub looked: Option<LookedView>,
    /// What a person should know.
    pub warnings: Vec<WarningView>,
}

/// One row of `sessions.list`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionRow {
    /// Its id.
    pub id: EntityId,
    /// Its readable key; absent if the journal cannot be read.
    pub key: Option<String>,
    /// The first words that a person said in it, in one line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// `idle`, `running`, `waiting` (for a person), `quarantined`, `deleted` or `corrupt`.
    pub state: String,
    /// Turns so far.
    pub turns: u64,
    /// Events in the journal.
    pub events: u64,
    /// When the last event was written.
    pub updated: Timestamp,
    /// What all its turns used.
    pub usage: Usage,
    /// The process that has it, by its journal; absent if nobody has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<ProcessId>,
    /// What people call that process; absent if it is not heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeName>,
    /// It is of a request that names no user: nothing is said in it again, and it goes by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
    /// Why it is not in service, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// Answer of `sessions.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SessionList {
    /// The newest first. A session in which something happens while pages are read moves to the front: the
    /// later pages do not have it.
    pub sessions: Vec<SessionRow>,
    /// Pass as `cursor` for the next page; absent on the last. A page may be empty and still have one: each
    /// looks at 5,000 sessions at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
    /// Sessions that this page left out because they are of requests that name no user.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub hidden: u64,
    /// There are more than 100,000 sessions: some were not looked at.
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
    /// Its id.
    pub turn: TurnId,
    /// What was said, by whom, in order (a steer is a further user message).
    pub messages: Vec<Message>,
    /// How it ended; absent while it runs or waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TurnOutcome>,
    /// What it used.
    pub usage: Usage,
    /// Calls made again, because a process died in the middle of one.
    #[serde(default)]
    pub lost_attempts: u32,
    /// Calls of tools that wait for a person now; `approvals.approve` and `approvals.deny` decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<CallId>,
    /// It has used up its steps, and waits for a person to give it more; `chat.continue` does.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub wants_steps: bool,
    /// Which of `messages`, by their place from 0, the node said to the model itself: no person did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<u32>,
}

/// Answer of `sessions.history`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HistoryView {
    /// The session.
    pub id: EntityId,
    /// Its readable key.
    pub key: String,
    /// `idle`, `running`, `waiting` (for a person), `quarantined` or `deleted`.
    pub state: String,
    /// In order.
    pub turns: Vec<TurnView>,
    /// Pass as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// One row of `quarantine.list`: a session out of service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuarantineRow {
    /// Its id.
    pub id: EntityId,
    /// Its readable key, as far as journal or inbox still tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// `quarantined` (it can be replayed or dropped), `corrupt` or `too_new` (it can only be dropped).
    pub state: String,
    /// Why it is out of service.
    pub reason: String,
    /// When the last readable event was written; absent if none can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Events that can be read.
    pub events: u64,
    /// Inputs that are parked in its journal.
    pub parked: u64,
    /// Inputs that wait in its inbox.
    pub waiting: u64,
}

/// Answer of `quarantine.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuarantineList {
    /// In an order of the store's own. A page looks at `limit` sessions and has those of them that are out of
    /// service, so it may be empty and still have a `next`.
    pub sessions: Vec<QuarantineRow>,
    /// Pass as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// Answer of `quarantine.show`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuarantineView {
    /// The session.
    pub session: QuarantineRow,
    /// What is parked, then what waits, each oldest first; with their bodies.
    pub inputs: Vec<ParkedRow>,
}

/// Answer of `quarantine.replay` and `quarantine.drop`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QuarantineDone {
    /// The session.
    pub id: EntityId,
    /// Its readable key, as far as it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Inputs that were parked or waited, and are served now, or gone.
    pub inputs: u64,
}

/// Where an input that was put aside is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ParkedWhere {
    /// In the journal of a quarantined session.
    Journal,
    /// Still in the inbox of a session that is out of service.
    Inbox,
    /// Among the dead letters: nobody can read it as an input.
    DeadLetter,
}

/// One input that was put aside whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ParkedRow {
    /// For whom.
    pub session: EntityId,
    /// The session's readable key, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where it is.
    pub at: ParkedWhere,
    /// Why it is not served.
    pub reason: String,
    /// When it was sent (a dead letter: put aside), by the clock of whoever did.
    pub ts: Timestamp,
    /// Its bytes.
    pub bytes: u64,
    /// The input's id, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<InputId>,
    /// The sender's name for it, if it can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// The name of a dead letter, for `parked.drop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub letter: Option<String>,
    /// What it says, in `quarantine.show` alone and as far as it can be read.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub body: serde_json::Value,
}

/// Answer of `parked.list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ParkedList {
    /// Dead letters first, then by session. A page may be empty and still have a `next`.
    pub parked: Vec<ParkedRow>,
    /// Pass as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// Answer of `approvals.list`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalList {
    /// The tool calls that wait for a person, the oldest first.
    pub approvals: Vec<Approval>,
    /// Pass as `cursor` for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Cursor>,
}

/// Answer of `policy.check`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PolicyView {
    /// It would run, at once or once a person has approved.
    pub allowed: bool,
    /// A person would be asked.
    pub requires_approval: bool,
    /// How much harm it can do.
    pub risk_level: Risk,
    /// What the policy says.
    pub verdict: Verdict,
    /// Why, if a rule says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whose policy it is.
    pub agent: AgentName,
    /// What would be done.
    pub action: String,
}

/// Answer of `chat.continue`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContinuedView {
    /// The turn that goes on.
    pub turn: TurnId,
    /// Steps that it was given.
    pub steps: u32,
}

/// Answer of what has nothing to say but that it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DoneView {
    /// Always.
    pub ok: bool,
}

/// Answer of `ticket.create`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TicketView {
    /// Opens one WebSocket.
    pub ticket: String,
    /// The subprotocol that carries it, for a browser's `new WebSocket(url, [protocol])`.
    pub protocol: String,
    /// How long it is good.
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
    /// The turn.
    pub turn: TurnId,
    /// The whole reply.
    pub text: String,
    /// Tokens of all its model calls.
    pub usage: Usage,
    /// How it ended.
    pub outcome: TurnOutcome,
}

/// First frame of a `chat.send` or `sessions.resume`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AcceptedView {
    /// The session's readable key.
    pub session: String,
    /// The turn that was begun, or joined.
    pub turn: TurnId,
    /// Where to resume from, should the connection break.
    pub cursor: FrameKey,
}
