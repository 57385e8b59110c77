//! One HTTP route: what it takes, and who answers.

use std::sync::Arc;

use axum::routing::MethodRouter;
use clawnode_proto::api::Method;
use serde_json::{Map, Value};

use super::gateway::Gateway;

/// One verb of one path.
#[derive(Debug)]
pub(super) struct Route {
    pub(super) verb: Verb,
    /// As axum writes it: `{name}` matches one part of a path, `{*name}` for all that is left.
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
    Put,
    Delete,
}

/// How the text of a query's parameter is read.
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
    /// A JSON object, or nothing. An example, for the error when something else is sent.
    Optional(&'static str),
    /// A JSON object. An example, for the error when something else is sent.
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

/// The parameters of a query. What should be a number or a flag and is none stays a text, which the
/// method refuses by name.
pub(super) fn query(text: Option<&str>, known: &[(&str, QueryKind)]) -> Map<String, Value> {
    let value = |name: &str, text: &str| {
        let kind = known.iter().find_map(|(known, kind)| (*known == name).then_some(*kind));
        let read = match kind {
            Some(QueryKind::Number) => text.parse::<u64>().ok().map(Value::from),
            Some(QueryKind::Flag) => text.parse::<bool>().ok().map(Value::from),
            Some(QueryKind::Text) | None => None,
        };
        read.unwrap_or_else(|| text.into())
    };
    let pairs = url::form_urlencoded::parse(text.unwrap_or_default().as_bytes());
    pairs.map(|(name, text)| (name.to_string(), value(&name, &text))).collect()
}

pub(super) const fn a(verb: Verb, path: &'static str, method: Method) -> Route {
    Route { verb, path, query: &[], body: RouteBody::None, serves: Serves::Method(method) }
}

pub(super) const fn own(
    verb: Verb,
    path: &'static str,
    handler: fn() -> MethodRouter<Arc<Gateway>>,
) -> Route {
    Route { verb, path, query: &[], body: RouteBody::None, serves: Serves::Handler(handler) }
}

// === impl Route ===

impl Route {
    pub(super) const fn asked(self, query: &'static [(&'static str, QueryKind)]) -> Self {
        Self { query, ..self }
    }

    pub(super) const fn with(self, body: RouteBody) -> Self {
        Self { body, ..self }
    }
}
