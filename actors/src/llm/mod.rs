//! The door to models: one trait, a client per wire format, and the demo model.
//!
//! A client turns one [`ModelRequest`] into a stream of [`ModelEvent`]s. Its contract: exactly one
//! terminal event ([`ModelEvent::Done`] or [`ModelEvent::Failed`]), and nothing after it; a
//! provider's stream that ends without its proper end is a failure
//! (`FailureClass::BrokenStream`), never a short success. Retries happen inside, only while
//! nothing of the reply has been received. Dropping the stream aborts the call.
//!
//! [`Models`] finds a client by name; [`discover`](fn@discover) chooses one where nobody did.
//! A call is told by one future (`tell`): prepare, send, read, retry (`call`), over HTTP
//! (`http`, `retry`) and server-sent events (`sse`); what the bytes mean is a sans-I/O decoder per
//! wire (`anthropic`, `openai`).
//!
//! Not here: what the model is shown (the session decides), and what a call costs.

mod anthropic;
mod call;
mod demo;
mod discover;
#[cfg(feature = "test-util")]
pub mod fuzz;
mod http;
mod models;
mod openai;
mod options;
mod prompt;
mod retry;
mod sse;
mod tell;

use std::{fmt, time::Duration};

use clawnode_proto::llm::{ModelFailure, Role, Sampling, StopReason, Usage};
use futures_util::stream::BoxStream;

pub use discover::{Choice, discover, ollama_models};
pub use models::{Models, ResolveError};
pub use options::{BaseUrl, OptionsError, ParseBaseUrlError, ProviderOptions, Wire};

/// What a model is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// The model's name at its provider.
    pub model: String,
    /// The system prompt; empty for none.
    pub system: String,
    /// The conversation; begins and ends with the user.
    pub messages: Vec<PlainMessage>,
    /// Settings of this call.
    pub sampling: Sampling,
    /// Sent to providers that know it, so that a provider's own retry does not bill twice.
    pub idempotency_key: String,
}

/// A message with its text in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainMessage {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub text: String,
}

/// What a model says, piece by piece.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// More of the reply.
    Text(String),
    /// Usage known so far; each report replaces the one before it.
    Usage(Usage),
    /// The provider refused or could not be reached; the call is tried again after `wait`.
    Retrying {
        /// Which retry, from 1.
        retry: u32,
        /// How long until then.
        wait: Duration,
        /// Why.
        failure: ModelFailure,
    },
    /// The proper end.
    Done {
        /// Why the model stopped.
        stop: StopReason,
        /// The final usage.
        usage: Usage,
        /// The model's name as the provider reports it.
        model: String,
    },
    /// The end of a call that failed.
    Failed(ModelFailure),
}

/// One provider's models.
pub trait Model: Send + Sync + fmt::Debug {
    /// Begins a call. The request is sent when the stream is first polled.
    fn stream(&self, request: ModelRequest) -> BoxStream<'static, ModelEvent>;
}
