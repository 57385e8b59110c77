//! What the gateway's methods take. `methods` has the table of them.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    cursor::Cursor, id::SwitchId, kill_switch::SwitchScope, lane::Lane, llm::ModelRef,
    reasoning::Reasoning, session::KeptChoice,
};
pub use crate::{
    job_params::{JobArtifact, JobLogs, JobParams, JobsClean, JobsList},
    methods::{Call, Method, Nothing, calls},
    name::CONVERSATION,
};

/// How a message joins a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SendMode {
    /// A turn of its own, after those that wait.
    #[default]
    Turn,
    /// Part of the running turn.
    Steer,
}

/// Something to attach to a message: an uploaded file, or content in place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Attachment {
    /// A file of the same session, as `POST /v1/sessions/{session}/files` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The content in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// The name of the content's file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// Parameters of `chat.send`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChatSend {
    /// The channel, for example `web`.
    pub channel: String,
    /// Your own account on the channel.
    pub account: String,
    /// The user or room that writes.
    pub peer: String,
    /// The conversation with the peer, if there are several: the session's key then ends with
    /// `PEER~CONVERSATION`. Bindings use `peer` alone. Neither may contain `~`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<String>,
    /// The text of the message. It may be empty if something is attached.
    pub content: String,
    /// Pictures, PDFs and sound, at most 8 of 5 MB. One frame takes less than that: upload large files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The server or workspace, for bindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guild: Option<String>,
    /// The team, for bindings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// The agent, instead of the one that bindings choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// The model of this turn, as `PROVIDER/MODEL`, instead of the agent's. The agent must allow it (`models`
    /// of `agents.show`). A message that becomes part of a running turn does not change its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// A key of your own. For seven days, a message with the same key is stored only once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
    /// `turn`: a turn of its own. `steer`: part of the running turn.
    #[serde(default)]
    pub mode: SendMode,
    /// How much the model thinks in this turn: `off`, `low`, `medium`, `high`, or a number of tokens. Default:
    /// as the agent is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// A JSON Schema that the reply of this turn has to fit, instead of the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// Which of `model` and `reasoning` later turns of the session keep, until a message changes them. What is
    /// named here and absent is the agent's again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<KeptChoice>,
    /// `background`: work that can wait; its calls give way to others. `interactive`: a person waits for the
    /// reply. Default: as the agent is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
}

/// Body of `POST /v1/sessions/{session}/messages`: `chat.send` for a session that its key names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionMessage {
    /// The text of the message. It may be empty if something is attached.
    pub content: String,
    /// Pictures, PDFs and sound, at most 8 of 5 MB. One body takes less than that: upload large files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Attachment>,
    /// The model of this turn, as `PROVIDER/MODEL`, instead of the agent's. The agent must allow it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// `turn`: a turn of its own. `steer`: part of the running turn.
    #[serde(default)]
    pub mode: SendMode,
    /// How much the model thinks in this turn: `off`, `low`, `medium`, `high`, or a number of tokens. Default:
    /// as the agent is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// A JSON Schema that the reply of this turn has to fit, instead of the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// Which of `model` and `reasoning` later turns of the session keep, until a message changes them. What is
    /// named here and absent is the agent's again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<KeptChoice>,
    /// `background`: work that can wait; its calls give way to others. `interactive`: a person waits for the
    /// reply. Default: as the agent is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
    /// Whether to stream the turn as server-sent events, or to answer when it has ended.
    #[serde(default)]
    pub stream: bool,
    /// A key of your own. For seven days, a message with the same key is stored only once. You can also
    /// send it in the header `Idempotency-Key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<String>,
}

/// Parameters that name a session, by key or id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionParams {
    /// The key `agent:channel:account:peer`, or the id `ent_…`.
    pub session: String,
}

/// Parameters of `chat.cancel`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChatCancel {
    /// The key or id of the session.
    pub session: String,
    /// The turn, as in `accepted`.
    pub turn: String,
}

/// Parameters of `chat.continue`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ChatContinue {
    /// The key or id of the session.
    pub session: String,
    /// The turn, as in `accepted`. Default: the running one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
}

/// Parameters of `approvals.show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApprovalParams {
    /// The tool call, as in `approvals.list`.
    pub call: String,
}

/// Parameters of `approvals.approve` and `approvals.deny`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ApprovalDecide {
    /// The tool call, as in `approvals.list`.
    pub call: String,
    /// The `digest` of `approvals.list`. Nothing else is approved. The parameter may also be called
    /// `digest`.
    #[serde(alias = "digest")]
    pub action: String,
    /// The reason. The model gets it with a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Parameters of `policy.check`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PolicyCheck {
    /// The name of a tool.
    pub action: String,
    /// The argument `target`, unless `context` has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The agent and the arguments.
    #[serde(default)]
    pub context: PolicyContext,
}

/// The agent and the arguments of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PolicyContext {
    /// The agent whose policy decides. Default: `default`.
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
    /// The key or id of the session.
    pub session: String,
    /// The turn. Default: the running or last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<String>,
    /// The last cursor that you saw.
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
    /// The `next` of the page before. Default: the first page.
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
    /// The `next` of the page before. Default: the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// How many to list (default 100, at most 1,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Parameters of `sessions.list`: a page, newest first. What is absent leaves nothing out, but for
/// deleted sessions and those of requests that name no user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SessionsList {
    /// The `next` of the page before. Default: the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// How many to list (default 100, at most 1,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// Only sessions of this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Only sessions of this channel, for example `cli` or `openai`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Only sessions in this state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Only sessions with an event since this time: a duration (`2h`: two hours ago), or a time in UTC
    /// (`2026-11-23`, `2026-11-23T10:00:00Z`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Whether to list sessions of requests that name no user, too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stateless: bool,
}

/// Parameters of `journal.show`: a page of events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct JournalShow {
    /// The key `agent:channel:account:peer`, or the id `ent_…`.
    pub session: String,
    /// The `next` of the page before. Default: the first page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// How many to list (default 100, at most 1,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Parameters of `journal.verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct JournalVerify {
    /// The key or id of the session. Default: all sessions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

/// Parameters of `parked.drop`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ParkedDrop {
    /// The name of the dead letter, as in `parked.list`.
    pub letter: String,
}

/// Parameters that name an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct AgentParams {
    /// The name of the agent.
    pub agent: String,
}

/// Parameters of `panic`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct PanicParams {
    /// What to stop: `all` (the default), `egress`, `tool:NAME` or `agent:NAME`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<SwitchScope>,
    /// The reason, at most [`SWITCH_TEXT`](crate::limits::SWITCH_TEXT) characters.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// How long to wait for the nodes, in milliseconds (default 2,000, at most 10,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// Parameters of `panic.clear`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct PanicClear {
    /// The id of the kill switch, as in `panic.list`.
    #[serde(rename = "latch")]
    pub switch: SwitchId,
    /// How long to wait for the nodes, in milliseconds (default 2,000, at most 10,000).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// Parameters of `mcp.show`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct McpParams {
    /// The name of the server.
    pub server: String,
}

/// Parameters of `mcp.approve`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct McpApprove {
    /// The name of the server.
    pub server: String,
    /// The tool, by the server's or the model's name. Default: all tools of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Approve the tool only if its description has this digest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
}

/// Parameters that name a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NodeParams {
    /// The name of the node, or the id of its process.
    pub node: String,
}

/// Parameters of `nodes.drain`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct NodesDrain {
    /// The name of the node, or the id of its process.
    pub node: String,
    /// Whether to drain the node even if no other worker is left.
    #[serde(default)]
    pub force: bool,
}

/// Parameters of `cluster.tree`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct TreeParams {
    /// The name of a node, or the id of its process. Default: all nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// Parameters of `events.list`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct EventsParams {
    /// The `next` of the last answer: only events after it. Default: the newest events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Cursor>,
    /// How many to list (default 100, at most 1,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// How long to wait for an event if there is none, in milliseconds (at most 10,000).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u32>,
}

/// A JSON-RPC request as a client sends it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct RpcRequest {
    /// Chosen by the client; echoed.
    #[serde(default)]
    pub id: serde_json::Value,
    /// A name of the table in [`mod@crate::methods`], such as `sessions.list`.
    pub method: String,
    /// Its parameters.
    #[serde(default)]
    pub params: serde_json::Value,
}
