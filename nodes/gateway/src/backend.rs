//! What the gateway asks of the node behind it: one small door, in the words of `proto`.
//!
//! The gateway holds connections and owns nothing; whatever it shows comes through here.

use std::{fmt, time::Duration};

use async_trait::async_trait;
use clawnode_proto::{
    AgentName, CallId, Digest, EntityId, ErrorBody, ExecutionId, FrameKey, IdempotencyKey,
    McpServerName, Seq, SessionKey, Traceparent, TurnId,
    agents::{AgentDetail, AgentList, AgentView},
    api::{EventsParams, ListParams, PanicClear, PanicParams, PolicyCheck, SendMode, SessionsList},
    execute::ExecutionView,
    latch::{LatchList, PanicView},
    mcp::{McpList, McpServerView},
    overview::{FeedView, NodeList, PartitionList, TreeView},
    policy::{Approval, Decision},
    provider::{DiagnoseParams, DiagnoseView, ProvidersView},
    route::Inbound,
    session::UserMessage,
    turn::TurnEvent,
    usage::{UsageParams, UsageView},
    view::{
        AcceptedView, ApprovalList, ContinuedView, EventView, HistoryView, NodeView, ParkedList,
        PolicyView, QuarantineDone, QuarantineList, QuarantineView, SessionList, StatusView,
        VerifyView,
    },
};
use futures_util::stream::BoxStream;

use super::{execute::ExecuteRequest, jobs::JobArchive};

/// A session as a client named it: by key, or by id alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionRef {
    /// Its id.
    pub id: EntityId,
    /// Its readable key, if that is how it was named.
    pub key: Option<SessionKey>,
}

/// A message on its way to a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SendRequest {
    /// To whom.
    pub session: SessionKey,
    /// What is said.
    pub message: UserMessage,
    /// A turn of its own, or part of the running one.
    pub mode: SendMode,
    /// The client's name for this request; sending again with the same one is harmless.
    pub key: IdempotencyKey,
    /// The trace that the request belongs to.
    pub trace: Option<Traceparent>,
    /// Its client has sent it before, under a key that is not known: if a turn of the session began with
    /// this text lately, that turn is followed.
    pub sent_before: bool,
}

/// What an operator wants of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeOrder {
    /// Hand everything over and end.
    Drain {
        /// Also if no worker is left then.
        force: bool,
    },
    /// Take no more entities.
    Cordon,
    /// Take them again.
    Uncordon,
}

/// A turn that is being followed.
///
/// Dropping it stops the following and nothing else: a lost client never cancels a turn.
pub struct Following {
    /// The session, the turn, and where to resume from before any event was seen.
    pub accepted: AcceptedView,
    /// What happens, in order; ends after [`TurnBody::Done`](clawnode_proto::turn::TurnBody::Done).
    ///
    /// Bounded, and never a brake: an implementation drops what is not taken in time, says
    /// [`TurnBody::Lagged`](clawnode_proto::turn::TurnBody::Lagged), and goes on from where it can. An end without `Done` means that the
    /// node lost sight of the turn, not that the turn ended.
    pub events: BoxStream<'static, TurnEvent>,
}

/// The node, as its gateway sees it. All methods are safe to drop half-way.
#[async_trait]
pub trait Backend: Send + Sync {
    /// The agent that answers a message which names none (the binding router).
    fn route(&self, inbound: &Inbound<'_>) -> AgentName;

    /// Whether new messages can be stored now.
    async fn ready(&self) -> bool;

    /// Answers `status`.
    async fn status(&self) -> Result<StatusView, ErrorBody>;

    /// Answers `nodes.list`.
    async fn nodes(&self) -> NodeList;

    /// Answers `partitions.list`.
    async fn partitions(&self) -> PartitionList;

    /// Answers `cluster.tree`, of all nodes or of one; `not_found` for an unknown one.
    async fn tree(&self, node: Option<&str>) -> Result<TreeView, ErrorBody>;

    /// Answers `usage.show`.
    async fn usage(&self, wanted: UsageParams) -> Result<UsageView, ErrorBody>;

    /// Answers `events.list`; ends its waiting when the node ends.
    async fn events(&self, page: EventsParams) -> FeedView;

    /// Stores a message durably and follows its turn from the start.
    ///
    /// Returns once it is stored; `overloaded` when [`clawnode_proto::limits::PENDING_INPUTS`]
    /// wait. The turn's id derives from the input's, so a repeat finds the original turn.
    async fn send(&self, request: SendRequest) -> Result<Following, ErrorBody>;

    /// Asks to cancel a turn; returns once that is stored. No effect on a finished turn.
    async fn cancel(
        &self,
        session: &SessionRef,
        turn: TurnId,
        trace: Option<Traceparent>,
    ) -> Result<(), ErrorBody>;

    /// Follows a turn (the running or last one if none is named) from after a cursor, or from its
    /// start.
    async fn follow(
        &self,
        session: &SessionRef,
        turn: Option<TurnId>,
        after: Option<FrameKey>,
    ) -> Result<Following, ErrorBody>;

    /// Answers `sessions.list`.
    async fn sessions(&self, page: SessionsList) -> Result<SessionList, ErrorBody>;

    /// Answers `sessions.history`.
    async fn history(&self, session: &SessionRef) -> Result<HistoryView, ErrorBody>;

    /// Answers `sessions.export`.
    async fn export(&self, session: &SessionRef) -> Result<serde_json::Value, ErrorBody>;

    /// Deletes a session; returns once its tombstone is stored.
    async fn delete(&self, session: &SessionRef) -> Result<(), ErrorBody>;

    /// Answers `journal.show`: at most `limit` events after `after`, in order.
    async fn journal(
        &self,
        session: &SessionRef,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<EventView>, ErrorBody>;

    /// Answers `journal.verify`, for one session or for all.
    async fn verify(&self, session: Option<&SessionRef>) -> Result<VerifyView, ErrorBody>;

    /// Answers `quarantine.list`.
    async fn quarantined(&self, page: ListParams) -> Result<QuarantineList, ErrorBody>;

    /// Answers `quarantine.show`; `not_found` for a session that is in service.
    async fn quarantine(&self, session: &SessionRef) -> Result<QuarantineView, ErrorBody>;

    /// Puts a quarantined session back in service; returns once that is stored. `conflict` for
    /// one that is not quarantined.
    async fn replay(&self, session: &SessionRef) -> Result<QuarantineDone, ErrorBody>;

    /// Deletes a session that is out of service; returns once its tombstone is stored. `conflict`
    /// for one that is in service.
    async fn bury(&self, session: &SessionRef) -> Result<QuarantineDone, ErrorBody>;

    /// Answers `parked.list`.
    async fn parked(&self, page: ListParams) -> Result<ParkedList, ErrorBody>;

    /// Forgets a dead letter.
    async fn drop_letter(&self, letter: &str) -> Result<(), ErrorBody>;

    /// Answers `agents.list`.
    async fn agents(&self) -> Result<AgentList, ErrorBody>;

    /// Answers `agents.show`; `not_found` for an unknown name.
    async fn agent(&self, agent: &AgentName) -> Result<AgentDetail, ErrorBody>;

    /// Pauses or resumes an agent on every node; returns it as it is then.
    async fn pause(&self, agent: &AgentName, paused: bool) -> Result<AgentView, ErrorBody>;

    /// Answers `approvals.list`.
    async fn approvals(&self) -> Result<ApprovalList, ErrorBody>;

    /// Answers `approvals.show`; `not_found` for a call that does not wait for a person.
    async fn approval(&self, call: CallId) -> Result<Approval, ErrorBody>;

    /// Decides about a call; returns once that is stored. `conflict` if `action` is not what
    /// waits, or nothing is left to decide.
    async fn decide(
        &self,
        call: CallId,
        action: Digest,
        decision: Decision,
        reason: Option<String>,
    ) -> Result<Approval, ErrorBody>;

    /// Answers `policy.check`; `not_found` for an agent that there is not,
    /// `invalid_params` for an action that is none of its tools.
    async fn check(&self, check: PolicyCheck) -> Result<PolicyView, ErrorBody>;

    /// Answers `providers.health`.
    async fn providers(&self) -> ProvidersView;

    /// Answers `scheduler.diagnose`; `not_found` for an agent that there is not,
    /// `invalid_params` for an action that is none of its tools.
    async fn diagnose(&self, params: &DiagnoseParams) -> Result<DiagnoseView, ErrorBody>;

    /// Answers `execute`: stores a plan durably; returns once that is done, or what is waited for
    /// has come. `conflict` if its name is that of another plan, `unavailable` if no node can run a
    /// step.
    async fn execute(&self, request: ExecuteRequest) -> Result<ExecutionView, ErrorBody>;

    /// Answers `execute.show`, once it has ended or `wait` is over.
    async fn execution(
        &self,
        execution: ExecutionId,
        wait: Duration,
    ) -> Result<ExecutionView, ErrorBody>;

    /// Asks to end an execution, then answers as `execution` does. No effect on one that has ended.
    async fn cancel_execution(
        &self,
        execution: ExecutionId,
        wait: Duration,
        trace: Option<Traceparent>,
    ) -> Result<ExecutionView, ErrorBody>;

    /// Gives a turn that has used up its steps more; returns once that is stored. `conflict` if it
    /// does not wait for any.
    async fn go_on(
        &self,
        session: &SessionRef,
        turn: Option<TurnId>,
    ) -> Result<ContinuedView, ErrorBody>;

    /// What is kept of jobs.
    fn archive(&self) -> &dyn JobArchive;

    /// Answers `mcp.list`.
    async fn mcp_servers(&self) -> McpList;

    /// Answers `mcp.show`; `not_found` for a server that is neither configured nor known.
    async fn mcp_server(&self, server: &McpServerName) -> Result<McpServerView, ErrorBody>;

    /// Approves what a server says of its tools now, or of one, or only if it has this digest;
    /// returns it as it is then.
    async fn approve_mcp(
        &self,
        server: &McpServerName,
        tool: Option<&str>,
        digest: Option<&str>,
    ) -> Result<McpServerView, ErrorBody>;

    /// Gives a node, by its name or process id, an order; returns it as it is then.
    async fn order(&self, node: &str, order: NodeOrder) -> Result<NodeView, ErrorBody>;

    /// Answers `panic`: stops what is asked for on every node, and says how each took it.
    /// `credential` is whose word it is.
    async fn panic(
        &self,
        params: PanicParams,
        credential: &'static str,
    ) -> Result<PanicView, ErrorBody>;

    /// Answers `panic.list`.
    async fn panics(&self) -> LatchList;

    /// Answers `panic.clear`; `not_found` for a latch that is not on.
    async fn clear_panic(
        &self,
        params: PanicClear,
        credential: &'static str,
    ) -> Result<PanicView, ErrorBody>;

    /// Appends what the node itself counts, in Prometheus' text format.
    fn metrics(&self, out: &mut String);
}

// === impl SessionRef ===

impl From<SessionKey> for SessionRef {
    fn from(key: SessionKey) -> Self {
        Self { id: key.entity(), key: Some(key) }
    }
}

impl std::str::FromStr for SessionRef {
    type Err = clawnode_proto::id::ParseIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with(EntityId::PREFIX) {
            return Ok(Self { id: text.parse()?, key: None });
        }
        text.parse::<SessionKey>().map(Self::from)
    }
}

// === impl Following ===

impl fmt::Debug for Following {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Following").field("accepted", &self.accepted).finish_non_exhaustive()
    }
}
