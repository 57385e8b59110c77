//! Every HTTP route, in one table. The router and the `OpenAPI` document are made from it.

use std::sync::Arc;

use axum::{
    Router,
    routing::{MethodFilter, MethodRouter, any, get, on, post},
};
use clawnode_proto::api::Method;

use super::{
    docs, events, execute, files, jobs, messages, openai, openapi, page, rest, serve::Gateway, ws,
};

/// One verb of one path.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) verb: Verb,
    /// As axum writes it: `{name}` stands for one part of a path, `{*name}` for all that is left.
    pub(super) path: &'static str,
    /// What a query may have. Another name is passed on, and the method refuses it by name; without any
    /// of its own, a route takes no notice of a query.
    pub(super) query: &'static [(&'static str, QueryKind)],
    pub(super) body: RouteBody,
    pub(super) serves: Serves,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Get,
    Post,
    Delete,
}

/// What the text of a query's parameter stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryKind {
    Text,
    Number,
    Flag,
}

/// What a request has to say beside its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RouteBody {
    /// Nothing; a body is not read.
    None,
    /// A JSON object, or nothing. An example, for whoever sends something else.
    Optional(&'static str),
    /// A JSON object. An example, for whoever sends something else.
    Object(&'static str),
}

/// Who answers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Serves {
    /// A method: path, query and body are its parameters, and its result is the answer.
    Method(Method),
    /// A handler of its own.
    Handler(fn() -> MethodRouter<Arc<Gateway>>),
}

use Method as M;
use QueryKind::{Flag, Number, Text};
use Verb::{Delete, Get, Post};

/// What a page of a list is asked for with.
const PAGE: &[(&str, QueryKind)] = &[("cursor", Text), ("limit", Number)];
/// What `sessions.list` is asked for with.
const SESSIONS: &[(&str, QueryKind)] = &[
    ("cursor", Text),
    ("limit", Number),
    ("agent", Text),
    ("channel", Text),
    ("state", Text),
    ("since", Text),
    ("stateless", Flag),
];
/// What `jobs.list` is asked for with.
const JOBS: &[(&str, QueryKind)] = &[
    ("cursor", Text),
    ("limit", Number),
    ("session", Text),
    ("agent", Text),
    ("tool", Text),
    ("state", Text),
];
/// What `jobs.logs` is asked for with.
const LOGS: &[(&str, QueryKind)] = &[
    ("run", Number),
    ("cursor", Text),
    ("tail", Number),
    ("search", Text),
    ("stream", Text),
    ("limit", Number),
    ("wait_ms", Number),
];
/// What `events.list` is asked for with.
const EVENTS: &[(&str, QueryKind)] = &[("cursor", Text), ("limit", Number), ("wait_ms", Number)];

/// All of them.
pub(super) static ROUTES: &[Route] = &[
    own(Get, "/", || get(page::page)),
    own(Get, "/healthz", || get(rest::health)),
    own(Get, "/readyz", || get(rest::ready)),
    own(Get, "/metrics", || get(rest::metrics)),
    own(Get, "/ws", || any(ws::upgrade)),
    own(Post, "/v1/rpc", || post(rest::call))
        .with(RouteBody::Object(r#"{"id":1,"method":"ping"}"#)),
    own(Get, "/v1/models", || get(openai::models)),
    own(Get, "/v1/models/{model}", || get(openai::model)),
    own(Post, "/v1/chat/completions", || post(openai::completions)).with(RouteBody::Object(
        r#"{"model":"default","messages":[{"role":"user","content":"hi"}]}"#,
    )),
    own(Get, "/v1/openapi.json", || get(openapi::document)),
    own(Get, "/v1/docs", || get(docs::docs)),
    a(Get, "/v1/status", M::Status),
    a(Get, "/v1/stats", M::StatsShow),
    a(Get, "/v1/usage", M::UsageShow).asked(&[("by", Text), ("since", Text)]),
    a(Get, "/v1/events", M::EventsList).asked(EVENTS),
    a(Get, "/v1/nodes", M::NodesList),
    a(Post, "/v1/nodes/{node}/drain", M::NodesDrain).with(RouteBody::Optional(r#"{"force":true}"#)),
    a(Post, "/v1/nodes/{node}/cordon", M::NodesCordon),
    a(Post, "/v1/nodes/{node}/uncordon", M::NodesUncordon),
    a(Get, "/v1/partitions", M::PartitionsList),
    a(Get, "/v1/tree", M::ClusterTree).asked(&[("node", Text)]),
    a(Get, "/v1/agents", M::AgentsList),
    a(Get, "/v1/agents/{agent}", M::AgentsShow),
    a(Post, "/v1/agents/{agent}/pause", M::AgentsPause),
    a(Post, "/v1/agents/{agent}/resume", M::AgentsResume),
    a(Get, "/v1/sessions", M::SessionsList).asked(SESSIONS),
    a(Get, "/v1/sessions/{session}", M::SessionsHistory).asked(PAGE),
    a(Delete, "/v1/sessions/{session}", M::SessionsDelete),
    own(Post, "/v1/sessions/{session}/messages", || post(messages::send))
        .with(RouteBody::Object(messages::EXAMPLE)),
    own(Get, "/v1/sessions/{session}/events", || get(events::events))
        .asked(&[("turn", Text), ("cursor", Text)]),
    a(Post, "/v1/sessions/{session}/cancel", M::ChatCancel)
        .with(RouteBody::Object(r#"{"turn":"turn_…"}"#)),
    a(Post, "/v1/sessions/{session}/continue", M::ChatContinue)
        .with(RouteBody::Optional(r#"{"turn":"turn_…"}"#)),
    own(Post, "/v1/sessions/{session}/files", || post(files::upload)).asked(&[("name", Text)]),
    own(Get, "/v1/sessions/{session}/files/{file}", || get(files::show)),
    a(Get, "/v1/sessions/{session}/export", M::SessionsExport),
    a(Get, "/v1/sessions/{session}/journal", M::JournalShow).asked(PAGE),
    a(Post, "/v1/journal/verify", M::JournalVerify).with(RouteBody::Optional(r#"{"session":"…"}"#)),
    a(Get, "/v1/quarantine", M::QuarantineList).asked(PAGE),
    a(Get, "/v1/quarantine/{session}", M::QuarantineShow),
    a(Post, "/v1/quarantine/{session}/replay", M::QuarantineReplay),
    a(Delete, "/v1/quarantine/{session}", M::QuarantineDrop),
    a(Get, "/v1/parked", M::ParkedList).asked(PAGE),
    a(Delete, "/v1/parked/{letter}", M::ParkedDrop),
    a(Get, "/v1/approvals", M::ApprovalsList).asked(PAGE),
    a(Get, "/v1/approvals/{call}", M::ApprovalsShow),
    own(Post, "/v1/approvals/{call}", || post(rest::decide))
        .with(RouteBody::Object(r#"{"decision":"approve","digest":"DIGEST"}"#)),
    a(Get, "/v1/jobs", M::JobsList).asked(JOBS),
    a(Delete, "/v1/jobs", M::JobsClean).asked(&[("older_than_ms", Number), ("session", Text)]),
    a(Get, "/v1/jobs/stats", M::JobsStats),
    a(Get, "/v1/jobs/{job}", M::JobsShow),
    a(Delete, "/v1/jobs/{job}", M::JobsClean),
    a(Get, "/v1/jobs/{job}/logs", M::JobsLogs).asked(LOGS),
    a(Get, "/v1/jobs/{job}/artifacts", M::JobsShow),
    own(Get, "/v1/jobs/{job}/artifacts/{*name}", || get(jobs::artifact)).asked(&[("run", Number)]),
    own(Post, "/v1/execute", || post(execute::begin))
        .asked(&[("wait", Number)])
        .with(RouteBody::Object(r#"{"execution_spec":{"steps":[{"action":"TOOL"}]}}"#)),
    own(Get, "/v1/execute/{execution}", || get(execute::show)).asked(&[("wait", Number)]),
    own(Post, "/v1/execute/{execution}/cancel", || post(execute::cancel))
        .asked(&[("wait", Number)]),
    a(Post, "/v1/policy/check", M::PolicyCheck).with(RouteBody::Object(r#"{"action":"TOOL"}"#)),
    a(Post, "/v1/scheduler/diagnose", M::SchedulerDiagnose)
        .with(RouteBody::Object(r#"{"execution_spec":{"steps":[{"action":"TOOL"}]}}"#)),
    a(Get, "/v1/providers/health", M::ProvidersHealth),
    a(Get, "/v1/mcp", M::McpList),
    a(Get, "/v1/mcp/{server}", M::McpShow),
    a(Post, "/v1/mcp/{server}/approve", M::McpApprove)
        .with(RouteBody::Optional(r#"{"tool":"echo"}"#)),
    a(Get, "/v1/panic", M::PanicList),
    a(Post, "/v1/panic", M::Panic).with(RouteBody::Optional(r#"{"scope":"all"}"#)),
    a(Delete, "/v1/panic", M::PanicClear).asked(&[("latch", Text)]),
    a(Post, "/v1/tickets", M::TicketCreate),
];

const fn a(verb: Verb, path: &'static str, method: Method) -> Route {
    Route { verb, path, query: &[], body: RouteBody::None, serves: Serves::Method(method) }
}

const fn own(verb: Verb, path: &'static str, handler: fn() -> MethodRouter<Arc<Gateway>>) -> Route {
    Route { verb, path, query: &[], body: RouteBody::None, serves: Serves::Handler(handler) }
}

// === impl Route ===

impl Route {
    const fn asked(self, query: &'static [(&'static str, QueryKind)]) -> Self {
        Self { query, ..self }
    }

    const fn with(self, body: RouteBody) -> Self {
        Self { body, ..self }
    }
}

/// A router of all of them.
pub(super) fn router() -> Router<Arc<Gateway>> {
    ROUTES.iter().fold(Router::new(), |router, route| {
        let serves = match route.serves {
            Serves::Handler(handler) => handler(),
            Serves::Method(method) => {
                let verb = match route.verb {
                    Get => MethodFilter::GET,
                    Post => MethodFilter::POST,
                    Delete => MethodFilter::DELETE,
                };
                on(verb, move |gateway, trace, path, query, request| {
                    rest::answer(route, method, (gateway, trace), (path, query), request)
                })
            }
        };
        router.route(route.path, serves)
    })
}
