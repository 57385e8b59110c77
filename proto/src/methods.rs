//! The gateway's methods, declared once: the same table serves `/ws`, `POST /v1/rpc`, REST, the CLI and
//! the documents. What streams answers `accepted` first.

#[cfg(feature = "schema")]
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

#[cfg(feature = "schema")]
use crate::{
    agents::{AgentDetail, AgentList, AgentView},
    api::{
        AgentParams, ApprovalDecide, ApprovalParams, ChatCancel, ChatContinue, ChatSend,
        EventsParams, JobArtifact, JobLogs, JobParams, JobsClean, JobsList, JournalShow,
        JournalVerify, ListParams, McpApprove, McpParams, NodeParams, NodesDrain, PanicClear,
        PanicParams, ParkedDrop, PolicyCheck, SessionParams, SessionsList, SessionsResume,
        TreeParams,
    },
    archive::{ArchiveStats, ArtifactView, CleanView, JobList, JobView, LogView},
    execute::{ExecuteParams, ExecutionParams, ExecutionView},
    latch::{LatchList, PanicView},
    mcp::{McpList, McpServerView},
    overview::{FeedView, NodeList, PartitionList, StatsView, TreeView},
    policy::Approval,
    provider::{DiagnoseParams, DiagnoseView, ProvidersView},
    usage::{UsageParams, UsageView},
    view::{
        AcceptedView, ApprovalList, ContinuedView, DoneView, EventView, HistoryView, NodeView,
        ParkedList, PolicyView, QuarantineDone, QuarantineList, QuarantineView, SessionList,
        StatusView, TicketView, VerifyView,
    },
};

macro_rules! methods {
    ($( $(#[doc = $about:literal])* $variant:ident = $wire:literal: $takes:ty => $answers:ty; )*) => {
        /// A JSON-RPC method.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Method {
            $( $(#[doc = $about])* $variant, )*
        }

        impl Method {
            /// All of them, for documents and tests.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            /// Its name.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $wire, )* }
            }

            /// The method of this name.
            pub fn parse(name: &str) -> Option<Self> {
                match name { $( $wire => Some(Self::$variant), )* _ => None }
            }

            /// What it does, in a line.
            #[cfg(feature = "schema")]
            pub const fn about(self) -> &'static str {
                match self { $( Self::$variant => concat!($($about),*), )* }
            }

            /// The schemas of what it takes and answers.
            #[cfg(feature = "schema")]
            pub fn schemas(self, of: &mut SchemaGenerator) -> (Schema, Schema) {
                match self {
                    $( Self::$variant => {
                        (of.subschema_for::<$takes>(), of.subschema_for::<$answers>())
                    } )*
                }
            }
        }
    };
}

methods! {
    /// Answers `pong`.
    Ping = "ping": Nothing => String;
    /// The node and the cluster, as far as this node sees them.
    Status = "status": Nothing => StatusView;
    /// The processes of the cluster.
    NodesList = "nodes.list": Nothing => NodeList;
    /// The partitions: who serves them, in which order, and what waits in them.
    PartitionsList = "partitions.list": Nothing => PartitionList;
    /// What each process runs.
    ClusterTree = "cluster.tree": TreeParams => TreeView;
    /// What happened in the cluster lately; waits for more, if told to.
    EventsList = "events.list": EventsParams => FeedView;
    /// What the answering gateway measures.
    StatsShow = "stats.show": Nothing => StatsView;
    /// Stops what its parameters say, everywhere, until that is cleared.
    Panic = "panic": PanicParams => PanicView;
    /// What model calls used, summed by day, agent, user or model.
    UsageShow = "usage.show": UsageParams => UsageView;
    /// What is stopped.
    PanicList = "panic.list": Nothing => LatchList;
    /// Lets what was stopped go on.
    PanicClear = "panic.clear": PanicClear => PanicView;
    /// Sends a message to a session and streams the turn.
    ChatSend = "chat.send": ChatSend => AcceptedView;
    /// Cancels a turn.
    ChatCancel = "chat.cancel": ChatCancel => DoneView;
    /// The sessions there are.
    SessionsList = "sessions.list": SessionsList => SessionList;
    /// What was said in a session.
    SessionsHistory = "sessions.history": SessionParams => HistoryView;
    /// Streams a session's frames from a cursor on.
    SessionsResume = "sessions.resume": SessionsResume => AcceptedView;
    /// Everything known of one session, for keeping.
    SessionsExport = "sessions.export": SessionParams => serde_json::Value;
    /// Deletes a session and what is personal in it.
    SessionsDelete = "sessions.delete": SessionParams => DoneView;
    /// A session's journal, event by event.
    JournalShow = "journal.show": JournalShow => Vec<EventView>;
    /// Verifies hash chains and invariants.
    JournalVerify = "journal.verify": JournalVerify => VerifyView;
    /// The agents there are.
    AgentsList = "agents.list": Nothing => AgentList;
    /// One agent.
    AgentsShow = "agents.show": AgentParams => AgentDetail;
    /// Stops an agent from starting turns, on every node.
    AgentsPause = "agents.pause": AgentParams => AgentView;
    /// Lets it start turns again.
    AgentsResume = "agents.resume": AgentParams => AgentView;
    /// The MCP servers there are, with their tools.
    McpList = "mcp.list": Nothing => McpList;
    /// One of them.
    McpShow = "mcp.show": McpParams => McpServerView;
    /// Approves what a server says of its tools now, or of one of them.
    McpApprove = "mcp.approve": McpApprove => McpServerView;
    /// Lets a node hand everything over and end.
    NodesDrain = "nodes.drain": NodesDrain => NodeView;
    /// Lets a node take no more entities; it keeps those that it has.
    NodesCordon = "nodes.cordon": NodeParams => NodeView;
    /// Lets it take entities again.
    NodesUncordon = "nodes.uncordon": NodeParams => NodeView;
    /// Sessions out of service: quarantined, or with a journal that cannot be used.
    QuarantineList = "quarantine.list": ListParams => QuarantineList;
    /// One of them, with the inputs that are parked or wait for it.
    QuarantineShow = "quarantine.show": SessionParams => QuarantineView;
    /// Puts a quarantined session back in service; its parked inputs are served.
    QuarantineReplay = "quarantine.replay": SessionParams => QuarantineDone;
    /// Deletes a session that is out of service, with the inputs that are parked or wait for it.
    QuarantineDrop = "quarantine.drop": SessionParams => QuarantineDone;
    /// Inputs that were put aside whole: those of quarantined sessions, and dead letters.
    ParkedList = "parked.list": ListParams => ParkedList;
    /// Forgets a dead letter.
    ParkedDrop = "parked.drop": ParkedDrop => DoneView;
    /// The tool calls that wait for a person.
    ApprovalsList = "approvals.list": Nothing => ApprovalList;
    /// One of them.
    ApprovalsShow = "approvals.show": ApprovalParams => Approval;
    /// Has one of them done, once.
    ApprovalsApprove = "approvals.approve": ApprovalDecide => Approval;
    /// Has one of them not done.
    ApprovalsDeny = "approvals.deny": ApprovalDecide => Approval;
    /// The jobs that are kept: tool calls that any node with the capability ran.
    JobsList = "jobs.list": JobsList => JobList;
    /// One of them.
    JobsShow = "jobs.show": JobParams => JobView;
    /// What one of them said; waits for more, if told to.
    JobsLogs = "jobs.logs": JobLogs => LogView;
    /// A file that one of them made, in parts.
    JobsArtifact = "jobs.artifact": JobArtifact => ArtifactView;
    /// Removes what is kept of jobs.
    JobsClean = "jobs.clean": JobsClean => CleanView;
    /// How much is kept of jobs.
    JobsStats = "jobs.stats": Nothing => ArchiveStats;
    /// What an agent's policy says of a call, without making it.
    PolicyCheck = "policy.check": PolicyCheck => PolicyView;
    /// How what runs tools, and who serves models, fares on every node.
    ProvidersHealth = "providers.health": Nothing => ProvidersView;
    /// Which node would be chosen for some work, and why, without doing it.
    SchedulerDiagnose = "scheduler.diagnose": DiagnoseParams => DiagnoseView;
    /// Runs the steps of a plan without a model.
    Execute = "execute": ExecuteParams => ExecutionView;
    /// How far that is; waits for its end, if told to.
    ExecuteShow = "execute.show": ExecutionParams => ExecutionView;
    /// Ends it.
    ExecuteCancel = "execute.cancel": ExecutionParams => ExecutionView;
    /// Gives a turn that has used up its steps more of them.
    ChatContinue = "chat.continue": ChatContinue => ContinuedView;
    /// A one-time ticket that opens one WebSocket from a browser.
    TicketCreate = "ticket.create": Nothing => TicketView;
}

/// Parameters of what takes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Nothing {}
