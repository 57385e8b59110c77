//! Every HTTP route: those in the rows of the method table, and those with handlers of their own. The
//! router and the `OpenAPI` document are made from both.

use std::sync::Arc;

use axum::{
    Router, middleware,
    routing::{MethodFilter, any, delete, get, on, post},
};
use clawnode_proto::api::Method;

use super::{
    anthropic, connect_page, docs, execute,
    gateway::Gateway,
    guard::guard,
    jobs, openai, openai_files, openapi, rest,
    route::{QueryKind, Route, RouteBody, Serves, Verb, a, own},
    session_events, session_files, session_messages, ws,
};

use QueryKind::{Flag, Number, Text};
use RouteBody::{Object, Optional};
use Verb::{Delete, Get, Post, Put};

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
/// What `memory.show` is asked for with.
const POINTS: &[(&str, QueryKind)] =
    &[("memory", Text), ("all", Flag), ("cursor", Text), ("limit", Number)];
/// What `usage.calls` is asked for with.
const USAGE_CALLS: &[(&str, QueryKind)] = &[("since", Text), ("cursor", Text), ("limit", Number)];
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
/// What `ledger.show` is asked for with.
const LEDGER: &[(&str, QueryKind)] = &[("type", Text), ("last", Number), ("before", Number)];
/// What `events.list` is asked for with.
const EVENTS: &[(&str, QueryKind)] = &[("cursor", Text), ("limit", Number), ("wait_ms", Number)];

/// The example of a body with a plan.
const PLAN: &str = r#"{"execution_spec":{"steps":[{"action":"TOOL"}]}}"#;

/// The example of a body with limits.
const LIMITS: &str = r#"{"limits":[{"unit":"usd","window":"day","amount":"5.00"}]}"#;

/// Those with handlers of their own.
static OWN: &[Route] = &[
    own(Get, "/", || get(connect_page::page)),
    own(Get, "/healthz", || get(rest::health)),
    own(Get, "/readyz", || get(rest::ready)),
    own(Get, "/metrics", || get(rest::metrics)),
    own(Get, "/ws", || any(ws::upgrade)),
    own(Post, "/v1/rpc", || post(rest::call)).with(Object(r#"{"id":1,"method":"ping"}"#)),
    own(Get, "/v1/models", || get(anthropic::models)),
    own(Get, "/v1/models/{model}", || get(anthropic::model)),
    own(Post, "/v1/chat/completions", || post(openai::completions))
        .with(Object(r#"{"model":"default","messages":[{"role":"user","content":"hi"}]}"#)),
    own(Get, "/v1/chat/completions/{completion}", || get(openai::stored)),
    own(Post, "/v1/messages", || post(anthropic::messages)).with(Object(
        r#"{"model":"default","max_tokens":1024,"messages":[{"role":"user","content":"hi"}]}"#,
    )),
    own(Post, "/v1/messages/count_tokens", || post(anthropic::count_tokens))
        .with(Object(r#"{"model":"default","messages":[{"role":"user","content":"hi"}]}"#)),
    own(Post, "/v1/embeddings", || post(openai::embeddings))
        .with(Object(r#"{"model":"openai/text-embedding-3-small","input":"hi"}"#)),
    own(Post, "/v1/responses", || post(openai::responses::create))
        .with(Object(r#"{"model":"default","input":"hi"}"#)),
    own(Get, "/v1/responses/{response}", || get(openai::responses::retrieve))
        .asked(openai::responses::QUERY),
    own(Delete, "/v1/responses/{response}", || delete(openai::responses::delete)),
    own(Post, "/v1/responses/{response}/cancel", || post(openai::responses::cancel)),
    own(Get, "/v1/openapi.json", || get(openapi::document)),
    own(Get, "/v1/docs", || get(docs::docs)),
    own(Post, "/v1/sessions/{session}/messages", || post(session_messages::send))
        .with(Object(session_messages::EXAMPLE)),
    own(Get, "/v1/sessions/{session}/events", || get(session_events::events))
        .asked(&[("turn", Text), ("cursor", Text)]),
    own(Post, "/v1/sessions/{session}/files", || post(session_files::upload))
        .asked(&[("name", Text)]),
    own(Get, "/v1/sessions/{session}/files/{file}", || get(session_files::show)),
    own(Post, "/v1/files", || post(openai_files::create)),
    own(Get, "/v1/files", || get(openai_files::list)),
    own(Get, "/v1/files/{file}", || get(openai_files::show)),
    own(Get, "/v1/files/{file}/content", || get(openai_files::content)),
    own(Delete, "/v1/files/{file}", || delete(openai_files::delete)),
    own(Post, "/v1/approvals/{call}", || post(rest::decide))
        .with(Object(r#"{"decision":"approve","digest":"DIGEST"}"#)),
    own(Get, "/v1/jobs/{job}/artifacts/{*name}", || get(jobs::artifact)).asked(&[("run", Number)]),
    own(Post, "/v1/execute", || post(execute::begin)).asked(&[("wait", Number)]).with(Object(PLAN)),
    own(Get, "/v1/execute/{execution}", || get(execute::show)).asked(&[("wait", Number)]),
    own(Post, "/v1/execute/{execution}/cancel", || post(execute::cancel))
        .asked(&[("wait", Number)]),
];

macro_rules! of_methods {
    ($(
        $(#[doc = $about:literal])*
        $variant:ident $($handler:ident)? = $wire:literal: $takes:ident => $answers:ident
        $([$( $verb:ident $path:literal $(.$with:ident($($arg:tt)*))* ),*])?;
    )*) => {
        /// Those that are a method, from its row in the table.
        static OF_METHODS: &[Route] = &[$($($(
            a($verb, $path, Method::$variant)$(.$with($($arg)*))*,
        )*)?)*];
    };
}

clawnode_proto::methods!(of_methods);

/// All of them.
pub(super) fn routes() -> impl Iterator<Item = &'static Route> {
    OWN.iter().chain(OF_METHODS)
}

/// A router of all of them; what needs a token is the guard's to say.
pub(super) fn router(gateway: Arc<Gateway>) -> Router {
    let router = routes().fold(Router::new(), |router, route| {
        let serves = match route.serves {
            Serves::Handler(handler) => handler(),
            Serves::Method(method) => {
                let verb = match route.verb {
                    Get => MethodFilter::GET,
                    Post => MethodFilter::POST,
                    Put => MethodFilter::PUT,
                    Delete => MethodFilter::DELETE,
                };
                on(verb, move |gateway, trace, path, query, request| {
                    rest::answer(route, method, gateway, trace, path, query, request)
                })
            }
        };
        router.route(route.path, serves)
    });
    router
        .fallback(rest::nowhere)
        .method_not_allowed_fallback(rest::wrong_verb)
        .layer(middleware::from_fn_with_state(Arc::clone(&gateway), guard))
        .with_state(gateway)
}
