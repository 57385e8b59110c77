//! What the gateway's methods take. `methods` has the table of them.

use serde::{Deserialize, Serialize};

use crate::{cursor::Cursor, id::LatchId, latch::LatchScope};
pub use crate::{
    job_params::{JobArtifact, JobLogs, JobParams, JobsClean, JobsList},
    methods::{Call, Method, Nothing, calls},
};

/// How a message joins a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SendMode {
    /// A turn of its own, after those that wait.
    #[default]
    Turn,
    /// Joins the running turn.
    Steer,
}

/// Stands between a peer and their conversation in the last part of a session's key.
pub const CONVERSATION: char = '~';

/// Parameters of `chat.send`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChatSend {
    /// Where it comes from.
    pub channel: String,
    /// Our side of the channel.
    pub account: String,
    /// The other side.
    pub peer: String,
    /// Which conversation with them, where there are several: the session's last part is then
    /// `PEER~CONVERSATION`, and bindings go by `peer` alone. Neither has a `~` in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// What is said.
    pub content: String,
    /// The guild (server, workspace) it was said in, for bindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guild: Option<String>,
    /// The team it was said in, for bindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Which agent, past the bindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Sending again with the same key is harmless for seven days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// A turn of its own, or part of the running one.
    #[serde(default)]
    pub mode: SendMode,
}

/// Body of `POST /v1/sessions/{session}/messages`: `chat.send` for a session that its key names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionMessage {
    /// What is said.
    pub content: String,
    /// A turn of its own, or part of the running one.
    #[serde(default)]
    pub mode: SendMode,
    /// Whether the turn is streamed, as server-sent events, or answered once it has ended.
    #[serde(default)]
    pub stream: bool,
    /// Sending again with the same key is harmless for seven days. The header `Idempotency-Key` stands
    /// for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// Parameters that name a session, by key or id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionParams {
    /// `agent:channel:account:peer`, or `ent_…`.
    pub session: String,
}

/// Parameters of `chat.cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChatCancel {
    /// The session.
    pub session: String,
    /// The turn, as `accepted` named it.
    pub turn: String,
}

/// Parameters of `chat.continue`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChatContinue {
    /// The session.
    pub session: String,
    /// The turn, as `accepted` named it; the running one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
}

/// Parameters of `approvals.show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApprovalParams {
    /// The call, as `approvals.list` names it.
    pub call: String,
}

/// Parameters of `approvals.approve` and `approvals.deny`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApprovalDecide {
    /// The call, as `approvals.list` names it.
    pub call: String,
    /// The digest of the action that was shown: nothing else is approved. `approvals.list` calls it
    /// `digest`, and so may whoever decides.
    #[serde(alias = "digest")]
    pub action: String,
    /// Why; the model is told when it is a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Parameters of `policy.check`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PolicyCheck {
    /// What would be done: the name of a tool.
    pub action: String,
    /// What it would be done to: the argument `target`, unless `context` has one of that name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// By whom and how.
    #[serde(default)]
    pub context: PolicyContext,
}

/// By whom something would be done, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PolicyContext {
    /// Whose policy; the default agent's if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The arguments of the tool.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    pub arguments: serde_json::Map<String, serde_json::Value>,
}

/// Parameters of `sessions.resume`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionsResume {
    /// The session.
    pub session: String,
    /// The turn to follow; the running or last one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The last cursor that was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// Parameters of `sessions.history`: a page of turns, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionsHistory {
    /// `agent:channel:account:peer`, or `ent_…`.
    pub session: String,
    /// `next` of the page before; the first page if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// At most this many turns (100 if absent, 1,000 at most).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Parameters of a list: a page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ListParams {
    /// `next` of the page before; the first page if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// At most this many (100 if absent, 1,000 at most).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Parameters of `sessions.list`: a page, newest first. What is absent leaves nothing out, but for
/// deleted sessions and those of requests that name no user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SessionsList {
    /// `next` of the page before; the first page if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// At most this many (100 if absent, 1,000 at most).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only of this channel: `cli`, `openai`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Only in this state, as rows have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Only those in which something happened since then: a duration (`2h`: two hours ago), or a time in
    /// UTC (`2026-11-23`, `2026-11-23T10:00:00Z`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Also those of requests that name no user.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
}

/// Parameters of `journal.show`: a page of events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JournalShow {
    /// `agent:channel:account:peer`, or `ent_…`.
    pub session: String,
    /// `next` of the page before; the first page if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// At most this many (100 if absent, 1,000 at most).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Parameters of `journal.verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct JournalVerify {
    /// Which journal; all of them if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// Parameters of `parked.drop`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ParkedDrop {
    /// The dead letter, as `parked.list` names it in `letter`.
    pub letter: String,
}

/// Parameters that name an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentParams {
    /// Its name.
    pub agent: String,
}

/// Parameters of `panic`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PanicParams {
    /// What to stop: `all` (also if absent), `egress`, `tool:NAME` or `agent:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<LatchScope>,
    /// Why; at most [`LATCH_TEXT`](crate::limits::LATCH_TEXT) characters are kept.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// How long the nodes may take to answer, in milliseconds (2,000 if absent, 10,000 at most).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// Parameters of `panic.clear`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PanicClear {
    /// The latch, as `panic.list` shows it: one that was set since is not cleared by mistake.
    pub latch: LatchId,
    /// How long the nodes may take to answer, in milliseconds (2,000 if absent, 10,000 at most).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// Parameters of `mcp.show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct McpParams {
    /// The server's name.
    pub server: String,
}

/// Parameters of `mcp.approve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct McpApprove {
    /// The server's name.
    pub server: String,
    /// The tool, as the server or as a model calls it; all of them if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Approve the tool only if this is the digest of what the server says of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Parameters that name a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NodeParams {
    /// Its name, or its process id where two have the same name.
    pub node: String,
}

/// Parameters of `nodes.drain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NodesDrain {
    /// Its name, or its process id where two have the same name.
    pub node: String,
    /// Also if no worker is left then.
    #[serde(default)]
    pub force: bool,
}

/// Parameters of `cluster.tree`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TreeParams {
    /// Which node, by name or process id; all of them if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Parameters of `events.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct EventsParams {
    /// `next` of the last answer: only events after that; the newest if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// At most this many (100 if absent, 1,000 at most).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// If there are none yet, wait so long for one, in milliseconds (at most 10,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// A JSON-RPC request as a client sends it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RpcRequest {
    /// Chosen by the client; echoed.
    #[serde(default)]
    pub id: serde_json::Value,
    /// Which method.
    pub method: String,
    /// Its parameters.
    #[serde(default)]
    pub params: serde_json::Value,
}
