//! The gateway's methods, declared once: the same table serves `/ws`, `POST /v1/rpc`, REST, the CLI and
//! the documents. What streams answers `accepted` first.

#[cfg(feature = "schema")]
use schemars::{Schema, SchemaGenerator};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// What the rows of [`methods!`](crate::methods!) name: parameters and answers.
pub mod types {
    pub use super::Nothing;
    pub use crate::{
        agent_profile::{AgentProfile, AgentProfileParams},
        agents::{AgentDetail, AgentList, AgentView},
        api::{
            AgentParams, ApprovalDecide, ApprovalParams, ChatCancel, ChatContinue, ChatSend,
            EventsParams, JobArtifact, JobLogs, JobParams, JobsClean, JobsList, JournalShow,
            JournalVerify, ListParams, McpApprove, McpParams, NodeParams, NodesDrain, PanicClear,
            PanicParams, ParkedDrop, PolicyCheck, SessionParams, SessionsHistory, SessionsList,
            SessionsResume, TreeParams,
        },
        archive::{ArchiveStats, ArtifactView, CleanView, JobList, JobView, LogView},
        budget::{
            AccountView, BudgetAllowParams, BudgetExplainView, BudgetList, BudgetParams,
            BudgetReconcileParams, BudgetSetParams, ReconcileView,
        },
        context_view::{ContextView, SessionsContext},
        execute::{ExecuteParams, ExecutionParams, ExecutionView},
        feedback_view::{FeedbackGive, FeedbackList, FeedbackView, MemoryReflectParams},
        kill_switch::{PanicView, SwitchList},
        ledger::{LedgerShow, LedgerView},
        mcp::{McpList, McpServerView},
        memory_view::{
            MemoryForgetParams, MemoryForgetView, MemoryList, MemoryParams, MemoryPoints,
            MemoryPutParams, MemoryPutView, MemoryReindexParams, MemorySearchParams,
            MemorySearchView, MemoryShowParams, MemoryStats, MemoryStoreView,
        },
        model::{ModelList, ModelParams, ModelTest, ModelView},
        model_route::RouteView,
        overview::{FeedView, NodeList, PartitionList, StatsView, TreeView},
        policy::Approval,
        provider::{DiagnoseParams, DiagnoseView, ProvidersView},
        usage::{
            UsageAudit, UsageAuditParams, UsageCalls, UsageCallsParams, UsageParams, UsageView,
        },
        view::{
            AcceptedView, ApprovalList, ContinuedView, DoneView, EventList, HistoryView, NodeView,
            ParkedList, PolicyView, QuarantineDone, QuarantineList, QuarantineView, SessionList,
            StatusView, TicketView, VerifyView,
        },
    };

    /// What `ping` answers: `pong`.
    pub type Pong = String;
    /// A session's whole content, as `sessions.export` answers it.
    pub type Export = serde_json::Value;
}

/// Hands the table of methods, as it is below, to the macro of this name. A row is `Variant
/// handler = "name": Parameters => Answer [Verb "path"];`, and the two types are in
/// [`methods::types`](crate::methods::types). Without a handler, the gateway itself answers, or streams.
/// What is in brackets are the HTTP routes, which the gateway's `routes` reads. The path, the query that
/// is named in `asked`, and the body make the parameters. `with` shows an example of a body.
/// A method without brackets has its routes in `routes`.
#[macro_export]
macro_rules! methods {
    ($with:ident) => {
        $with! {
            /// Answers `pong`.
            Ping = "ping": Nothing => Pong;
            /// The state of the node and of the cluster, as this node sees it.
            Status status = "status": Nothing => StatusView [Get "/v1/status"];
            /// The processes of the cluster. This list has no pages.
            NodesList nodes_list = "nodes.list": Nothing => NodeList [Get "/v1/nodes"];
            /// The partitions, at most 512, with the workers that serve them in order of rank and the inputs
            /// that wait. This list has no pages.
            PartitionsList partitions_list = "partitions.list": Nothing => PartitionList
                [Get "/v1/partitions"];
            /// The actors of each process, as a tree. A process names some of its entities and counts the rest.
            ClusterTree cluster_tree = "cluster.tree": TreeParams => TreeView
                [Get "/v1/tree".asked(&[("node", Text)])];
            /// The recent events of the cluster, in pages; waits for more if `wait_ms` says so.
            EventsList events_list = "events.list": EventsParams => FeedView
                [Get "/v1/events".asked(EVENTS)];
            /// The counters of the gateway that answers.
            StatsShow = "stats.show": Nothing => StatsView [Get "/v1/stats"];
            /// Sets a kill switch: stops everything, egress, one tool or one agent on all nodes until it is cleared.
            Panic panic = "panic": PanicParams => PanicView
                [Post "/v1/panic".with(Optional(r#"{"scope":"all"}"#))];
            /// What model calls used, summed by day, agent, user or model. This list has no pages.
            UsageShow usage_show = "usage.show": UsageParams => UsageView
                [Get "/v1/usage".asked(&[("by", Text), ("since", Text)])];
            /// The accounts that have limits, with what is spent of them, in pages.
            BudgetList budget_list = "budget.list": ListParams => BudgetList
                [Get "/v1/budgets".asked(PAGE)];
            /// One account: its limits, what each process has of them, and who changed it.
            BudgetShow budget_show = "budget.show": BudgetParams => AccountView
                [Get "/v1/budgets/{account}"];
            /// Sets the limits of an account, whatever is configured.
            BudgetSet budget_set = "budget.set": BudgetSetParams => AccountView
                [Put "/v1/budgets/{account}".with(Object(LIMITS))];
            /// Takes away the limits that a person set, so that the configuration has effect again.
            BudgetReset budget_reset = "budget.reset": BudgetParams => AccountView
                [Delete "/v1/budgets/{account}"];
            /// Allows more to be spent than `ask_at` of a limit, up to the limit, until its window ends.
            BudgetAllow budget_allow = "budget.allow": BudgetAllowParams => AccountView
                [Post "/v1/budgets/{account}/allow"
                    .with(Optional(r#"{"limits":[{"unit":"usd","window":"day"}]}"#))];
            /// Gives back what a dead process has of an account, except for what its calls have cost.
            BudgetReconcile budget_reconcile = "budget.reconcile": BudgetReconcileParams => ReconcileView
                [Post "/v1/budgets/{account}/reconcile".with(Object(r#"{"node":"NODE","gone":true}"#))];
            /// Which limits hold for the next call of a session, and whether it could be made now.
            BudgetExplain budget_explain = "budget.explain": SessionParams => BudgetExplainView
                [Get "/v1/sessions/{session}/budget"];
            /// The memories of agents, with how much each has, in pages.
            MemoryList memory_list = "memory.list": ListParams => MemoryList
                [Get "/v1/memory".asked(PAGE)];
            /// The points of a memory, in pages.
            MemoryShow memory_show = "memory.show": MemoryShowParams => MemoryPoints
                [Get "/v1/memory/points".asked(POINTS)];
            /// Adds points to a memory. A source that it knows adds nothing.
            MemoryPut memory_put = "memory.put": MemoryPutParams => MemoryPutView
                [Post "/v1/memory/points"
                    .with(Object(r#"{"memory":"default/all","points":[{"text":"Tea is at four."}]}"#))];
            /// Masks a point of a memory, or deletes the memory with its journal.
            MemoryForget memory_forget = "memory.forget": MemoryForgetParams => MemoryForgetView
                [Delete "/v1/memory/points".asked(&[("memory", Text), ("point", Text), ("all", Flag)])];
            /// How much a memory has, and may have.
            MemoryStats memory_stats = "memory.stats": MemoryParams => MemoryStats
                [Get "/v1/memory/stats".asked(&[("memory", Text)])];
            /// What a memory, or a session and what its agent knows, says about a text.
            MemorySearch memory_search = "memory.search": MemorySearchParams => MemorySearchView
                [Post "/v1/memory/search"
                    .with(Object(r#"{"memory":"default/all","query":"When is tea?"}"#))];
            /// Fills the store of the node that answers from journals again, or says how far it is.
            MemoryReindex memory_reindex = "memory.reindex": MemoryReindexParams => MemoryStoreView
                [Post "/v1/memory/reindex".with(Object(r#"{"memory":"default/all"}"#))];
            /// Has a model look back at a turn, rate it, and write lessons into the memory of the person. It answers once the
            /// request is stored.
            MemoryReflect memory_reflect = "memory.reflect": MemoryReflectParams => DoneView
                [Post "/v1/sessions/{session}/reflect".with(Optional(r#"{"turn":"turn_…"}"#))];
            /// The attempts at model calls, newest first, in pages. It reads journals, which takes a while.
            UsageCalls usage_calls = "usage.calls": UsageCallsParams => UsageCalls
                [Get "/v1/usage/calls".asked(USAGE_CALLS)];
            /// Counts the usage of a day again from the journals, and compares. It reads all journals.
            UsageAudit usage_audit = "usage.audit": UsageAuditParams => UsageAudit
                [Get "/v1/usage/audit/{day}"];
            /// The kill switches that are set. This list has no pages.
            PanicList panic_list = "panic.list": Nothing => SwitchList [Get "/v1/panic"];
            /// Clears a kill switch, so that what it stopped continues.
            PanicClear panic_clear = "panic.clear": PanicClear => PanicView
                [Delete "/v1/panic".asked(&[("latch", Text)])];
            /// Sends a message to a session, and streams the turn.
            ChatSend = "chat.send": ChatSend => AcceptedView;
            /// Cancels a turn.
            ChatCancel chat_cancel = "chat.cancel": ChatCancel => DoneView
                [Post "/v1/sessions/{session}/cancel".with(Object(r#"{"turn":"turn_…"}"#))];
            /// The sessions, newest first, in pages.
            SessionsList sessions_list = "sessions.list": SessionsList => SessionList
                [Get "/v1/sessions".asked(SESSIONS)];
            /// The messages of a session, turn by turn, in pages.
            SessionsHistory sessions_history = "sessions.history": SessionsHistory => HistoryView
                [Get "/v1/sessions/{session}".asked(PAGE)];
            /// What a model was shown by a call of a session, part by part, and why. It reads the whole journal.
            SessionsContext sessions_context = "sessions.context": SessionsContext => ContextView
                [Get "/v1/sessions/{session}/context".asked(&[("at", Text)])];
            /// The work ledger of a session: what its agent wrote down. Entries that left the state of the session
            /// are read from its archives.
            LedgerShow ledger_show = "ledger.show": LedgerShow => LedgerView
                [Get "/v1/sessions/{session}/ledger".asked(LEDGER)];
            /// Says what a person thinks of a turn that has ended. What the turn recalled matters more or less from then
            /// on.
            FeedbackGive feedback_give = "feedback.give": FeedbackGive => DoneView
                [Post "/v1/feedback"
                    .with(Object(r#"{"session":"default:web:app:ada","turn":"turn_…","thumb":"up"}"#))];
            /// What people said of the turns of a session, and what models that looked back at them did, oldest first, in pages.
            /// It reads the whole journal.
            FeedbackList feedback_list = "feedback.list": FeedbackList => FeedbackView
                [Get "/v1/sessions/{session}/feedback".asked(PAGE)];
            /// Streams a session's frames from a cursor on.
            SessionsResume = "sessions.resume": SessionsResume => AcceptedView;
            /// All data of a session, to keep elsewhere.
            SessionsExport sessions_export = "sessions.export": SessionParams => Export
                [Get "/v1/sessions/{session}/export"];
            /// Deletes a session with its messages and files.
            SessionsDelete sessions_delete = "sessions.delete": SessionParams => DoneView
                [Delete "/v1/sessions/{session}"];
            /// A session's journal, event by event, in pages.
            JournalShow journal_show = "journal.show": JournalShow => EventList
                [Get "/v1/sessions/{session}/journal".asked(PAGE)];
            /// Verifies the hash chains and invariants of journals.
            JournalVerify journal_verify = "journal.verify": JournalVerify => VerifyView
                [Post "/v1/journal/verify".with(Optional(r#"{"session":"…"}"#))];
            /// The agents of the configuration. This list has no pages.
            AgentsList agents_list = "agents.list": Nothing => AgentList [Get "/v1/agents"];
            /// One agent.
            AgentsShow agents_show = "agents.show": AgentParams => AgentDetail
                [Get "/v1/agents/{agent}"];
            /// What an agent has done so far: its turns, tools, skills, feedback, times and costs, counted from journals.
            AgentsProfile agents_profile = "agents.profile": AgentProfileParams => AgentProfile
                [Get "/v1/agents/{agent}/profile".asked(&[("since", Text)])];
            /// Pauses an agent: it starts no new turns on any node.
            AgentsPause agents_pause = "agents.pause": AgentParams => AgentView
                [Post "/v1/agents/{agent}/pause"];
            /// Resumes a paused agent.
            AgentsResume agents_resume = "agents.resume": AgentParams => AgentView
                [Post "/v1/agents/{agent}/resume"];
            /// The models that agents use, with what is known of them. This list has no pages.
            ModelsList models_list = "models.list": Nothing => ModelList [Get "/v1/model-profiles"];
            /// What is known of a model.
            ModelsShow models_show = "models.show": ModelParams => ModelView
                [Get "/v1/model-profiles/{*model}"];
            /// Calls a model once and says what works. The call costs a few hundred tokens.
            ModelsTest models_test = "models.test": ModelParams => ModelTest
                [Post "/v1/model-tests".with(Object(r#"{"model":"ollama/llama3.2"}"#))];
            /// Which model the next call of a session asks, and why.
            ModelsRoute models_route = "models.route": SessionParams => RouteView
                [Get "/v1/sessions/{session}/model-route"];
            /// The MCP servers of the configuration, with their tools. This list has no pages.
            McpList mcp_list = "mcp.list": Nothing => McpList [Get "/v1/mcp"];
            /// One MCP server.
            McpShow mcp_show = "mcp.show": McpParams => McpServerView [Get "/v1/mcp/{server}"];
            /// Approves the present tools of an MCP server, or one of them.
            McpApprove mcp_approve = "mcp.approve": McpApprove => McpServerView
                [Post "/v1/mcp/{server}/approve".with(Optional(r#"{"tool":"echo"}"#))];
            /// Drains a node: it hands over all entities and ends.
            NodesDrain nodes_drain = "nodes.drain": NodesDrain => NodeView
                [Post "/v1/nodes/{node}/drain".with(Optional(r#"{"force":true}"#))];
            /// Cordons a node: it takes no more entities and keeps those that it has.
            NodesCordon nodes_cordon = "nodes.cordon": NodeParams => NodeView
                [Post "/v1/nodes/{node}/cordon"];
            /// Ends the cordon of a node.
            NodesUncordon nodes_uncordon = "nodes.uncordon": NodeParams => NodeView
                [Post "/v1/nodes/{node}/uncordon"];
            /// Sessions out of service, in pages: quarantined, or with a journal that cannot be used.
            QuarantineList quarantine_list = "quarantine.list": ListParams => QuarantineList
                [Get "/v1/quarantine".asked(PAGE)];
            /// One session out of service, with its parked and waiting inputs.
            QuarantineShow quarantine_show = "quarantine.show": SessionParams => QuarantineView
                [Get "/v1/quarantine/{session}"];
            /// Puts a quarantined session back in service; its parked inputs are served.
            QuarantineReplay quarantine_replay = "quarantine.replay": SessionParams => QuarantineDone
                [Post "/v1/quarantine/{session}/replay"];
            /// Deletes a session that is out of service, with the inputs that are parked or wait for it.
            QuarantineDrop quarantine_drop = "quarantine.drop": SessionParams => QuarantineDone
                [Delete "/v1/quarantine/{session}"];
            /// Inputs that clawnode has set aside, in pages: those of quarantined sessions, and dead letters.
            ParkedList parked_list = "parked.list": ListParams => ParkedList
                [Get "/v1/parked".asked(PAGE)];
            /// Deletes a dead letter.
            ParkedDrop parked_drop = "parked.drop": ParkedDrop => DoneView
                [Delete "/v1/parked/{letter}"];
            /// The tool calls that wait for a person's approval, the oldest first, in pages.
            ApprovalsList approvals_list = "approvals.list": ListParams => ApprovalList
                [Get "/v1/approvals".asked(PAGE)];
            /// One tool call that waits for approval.
            ApprovalsShow approvals_show = "approvals.show": ApprovalParams => Approval
                [Get "/v1/approvals/{call}"];
            /// Approves a tool call, which then runs once.
            ApprovalsApprove approvals_approve = "approvals.approve": ApprovalDecide => Approval;
            /// Denies a tool call.
            ApprovalsDeny approvals_deny = "approvals.deny": ApprovalDecide => Approval;
            /// Tool calls that ran as jobs and whose output is kept, newest first, in pages.
            JobsList jobs_list = "jobs.list": JobsList => JobList [Get "/v1/jobs".asked(JOBS)];
            /// One job.
            JobsShow jobs_show = "jobs.show": JobParams => JobView
                [Get "/v1/jobs/{job}", Get "/v1/jobs/{job}/artifacts"];
            /// The output of a job, in pages; waits for more if `wait_ms` says so.
            JobsLogs jobs_logs = "jobs.logs": JobLogs => LogView
                [Get "/v1/jobs/{job}/logs".asked(LOGS)];
            /// A part of a file that a job created.
            JobsArtifact = "jobs.artifact": JobArtifact => ArtifactView;
            /// Deletes the kept output of jobs.
            JobsClean jobs_clean = "jobs.clean": JobsClean => CleanView
                [Delete "/v1/jobs".asked(&[("older_than_ms", Number), ("session", Text)]),
                 Delete "/v1/jobs/{job}"];
            /// The size of the kept output of jobs.
            JobsStats jobs_stats = "jobs.stats": Nothing => ArchiveStats [Get "/v1/jobs/stats"];
            /// What an agent's policy decides about a tool call, without running it.
            PolicyCheck policy_check = "policy.check": PolicyCheck => PolicyView
                [Post "/v1/policy/check".with(Object(r#"{"action":"TOOL"}"#))];
            /// The state of executors and model providers on every node. This list has no pages.
            ProvidersHealth providers_health = "providers.health": Nothing => ProvidersView
                [Get "/v1/providers/health"];
            /// Which node the scheduler would choose for a job, and why, without running it.
            SchedulerDiagnose scheduler_diagnose = "scheduler.diagnose": DiagnoseParams => DiagnoseView
                [Post "/v1/scheduler/diagnose".with(Object(PLAN))];
            /// Runs the steps of a plan without a model.
            Execute execute = "execute": ExecuteParams => ExecutionView;
            /// The progress of a plan; waits for its end if `wait_ms` says so.
            ExecuteShow execute_show = "execute.show": ExecutionParams => ExecutionView;
            /// Cancels a plan.
            ExecuteCancel execute_cancel = "execute.cancel": ExecutionParams => ExecutionView;
            /// Continues a turn that reached its step limit.
            ChatContinue chat_continue = "chat.continue": ChatContinue => ContinuedView
                [Post "/v1/sessions/{session}/continue".with(Optional(r#"{"turn":"turn_…"}"#))];
            /// A one-time ticket that opens one WebSocket from a browser.
            TicketCreate = "ticket.create": Nothing => TicketView [Post "/v1/tickets"];
        }
    };
}

/// A method as a type, with what it takes and answers. [`calls`] has one for each method.
pub trait Call {
    /// The row of the table that this type is made from.
    const METHOD: Method;
    /// Its parameters.
    type Params: Serialize + Sync;
    /// Its answer.
    type Answer: DeserializeOwned;
}

macro_rules! declare {
    ($(
        $(#[doc = $about:literal])*
        $variant:ident $($handler:ident)? = $wire:literal: $takes:ident => $answers:ident
        $([$($routes:tt)*])?;
    )*) => {
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

            /// The schemas of its parameters and its answer.
            #[cfg(feature = "schema")]
            pub fn schemas(self, generator: &mut SchemaGenerator) -> (Schema, Schema) {
                match self {
                    $( Self::$variant => {
                        (generator.subschema_for::<types::$takes>(), generator.subschema_for::<types::$answers>())
                    } )*
                }
            }
        }

        /// Each method as a type of its own, so that a caller gets the answer that belongs to it.
        pub mod calls {
            use super::{Call, Method, types};

            $(
                $(#[doc = $about])*
                #[derive(Clone, Copy, Debug)]
                pub struct $variant;

                impl Call for $variant {
                    const METHOD: Method = Method::$variant;
                    type Params = types::$takes;
                    type Answer = types::$answers;
                }
            )*
        }
    };
}

methods!(declare);

/// Parameters of a method that takes none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Nothing {}
