//! The gateway: holds client connections, owns nothing.
//!
//! One listener speaks HTTP/1.1 and WebSocket: JSON-RPC on `/ws` and `POST /v1/rpc`, a little
//! REST, OpenAI's chat API and Anthropic's messages. Everything it shows comes through [`Backend`].
//!
//! A request's way: [`serve()`] accepts and limits connections; `guard` asks who it is for
//! (`origin`), who sends it (`auth`) and counts it (`metrics`); then `ws`, `rest`, `session_events`,
//! `openai` or `anthropic` read it, all by way of the one method table (`rpc`), and `params` judges what
//! is asked for; `slow_client_stream` and `outbox` carry a turn's events to a client that may be slow; `error` is the one map from
//! condition to code.
//!
//! - GATE-1: no request reaches a handler before its `Host`, `Origin` and credentials were judged.
//! - GATE-2: every stream ends in `done`.
//! - GATE-3: a slow reader slows nothing but itself: its streams get `lagged` and resume.
//! - GATE-4: a lost client cancels nothing.
//! - GATE-5: any gateway goes on from any gateway's cursor; nothing is missed, nothing repeated.
#![forbid(unsafe_code)]

mod anthropic;
mod attachments;
mod auth;
mod backend;
mod connect_page;
mod connection;
mod connections;
mod docs;
mod error;
mod execute;
mod frame;
mod gateway;
mod given_params;
mod guard;
mod jobs;
mod lane;
mod local_socket;
mod metrics;
mod multipart;
mod openai;
mod openai_files;
mod openapi;
mod options;
mod origin;
mod outbox;
mod params;
mod rest;
mod route;
mod routes;
mod rpc;
mod serve;
mod session_events;
mod session_files;
mod session_messages;
mod session_ref;
mod slow_client_stream;
#[cfg(feature = "tls")]
mod tls;
mod write_timeout;
mod ws;

pub use backend::{
    Answers, AttachmentSource, Backend, Following, HandlerResult, NewAttachment, RemoteFile,
    RequestCaller, ResultsRequest, SendRequest, SessionRef, TurnRecord, TurnState,
};
pub use execute::ExecuteRequest;
pub use given_params::{
    CallDecision, ContinuedTurn, ExecutionWait, ListPage, McpApproval, ReflectRequest,
    SessionContext, SessionLedgerShow, SessionPage, SessionTurn, TurnRating,
};
pub use jobs::{CleanFilter, JobFilter, LogFilter};
pub use options::{AdoptTrace, GatewayOptions, ServeError, TlsFiles};
pub use params::{Checked, given};
pub use serve::{Clients, Serving, serve};
