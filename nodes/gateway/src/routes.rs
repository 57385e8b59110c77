//! Every HTTP route: those in the rows of the method table, and those with handlers of their own. The
//! router and the `OpenAPI` document are made from both.

use std::sync::Arc;

use axum::{
    Router,
    routing::{MethodFilter, MethodRouter, any, get, on, post},
};
use clawnode_proto::api::Method;

use super::{
    docs, events, execute, jobs, messages, openai, openapi, page, rest, serve::Gateway, ws,
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

use QueryKind::{Flag, Number, Text};
use RouteBody::{Object, Optional};
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

/// The example of a body with a plan.
const PLAN: &str = r#"{"execution_spec":{"steps":[{"action":"TOOL"}]}}"#;

/// Those with handlers of their own.
static OWN: &[Route] = &[
    own(Get, "/", || get(page::page)),
    own(Get, "/healthz", || get(rest::health)),
    own(Get, "/readyz", || get(rest::ready)),
    own(Get, "/metrics", || get(rest::metrics)),
    own(Get, "/ws", || any(ws::upgrade)),
    own(Post, "/v1/rpc", || post(rest::call)).with(Object(r#"{"id":1,"method":"ping"}"#)),
    own(Get, "/v1/models", || get(openai::models)),
    own(Get, "/v1/models/{model}", || get(openai::model)),
    own(Post, "/v1/chat/completions", || post(openai::completions))
        .with(Object(r#"{"model":"default","messages":[{"role":"user","content":"hi"}]}"#)),
    own(Get, "/v1/openapi.json", || get(openapi::document)),
    own(Get, "/v1/docs", || get(docs::docs)),
    own(Post, "/v1/sessions/{session}/messages", || post(messages::send))
        .with(Object(messages::EXAMPLE)),
    own(Get, "/v1/sessions/{session}/events", || get(events::events))
        .asked(&[("turn", Text), ("cursor", Text)]),
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
    routes().fold(Router::new(), |router, route| {
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
