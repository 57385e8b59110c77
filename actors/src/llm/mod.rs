//! Calls of models: one trait, a client per wire format, and the demo model.
//!
//! A client turns one [`ModelRequest`] into a stream of [`ModelEvent`]s. Its contract: exactly one
//! terminal event ([`ModelEvent::Done`] or [`ModelEvent::Failed`]), and nothing after it; a
//! provider's stream that ends without its proper end is a failure
//! (`FailureClass::BrokenStream`), never a short success. Retries happen inside, only while
//! nothing of the reply has been received. Dropping the stream aborts the call.
//!
//! [`Models`] finds a client by name; [`discover`](fn@discover) chooses one where no setting names one.
//! A call is made by one future (`call_stream`): prepare, send, read, retry (`call`), over HTTP
//! (`http`, `retry`) and server-sent events, lines or Amazon's messages (`framing`, `sse`, `event_stream`). A wire is a folder: it writes
//! requests, and a sans-I/O decoder says what the bytes mean and gathers tool calls within bounds
//! (`tool_uses`). `protocols` is the table of them. A tool call is delivered as the model made it, also one
//! that was cut off or makes no sense.
//!
//! Each attempt passes the [`circuit`] of its provider, which refuses calls of a provider that does not
//! work and delays those that it would refuse.
//!
//! `embed` asks for the vectors of texts, where a wire has them.
//!
//! Not here: what the model is shown and which tool calls are valid (the session decides), and what
//! a call costs.

mod anthropic;
mod attempts;
mod aws;
mod bedrock;
mod blocks;
#[cfg(test)]
mod cache_tests;
mod call;
mod call_stream;
pub mod circuit;
mod demo;
mod discover;
mod embed;
mod embed_call;
mod event_stream;
mod failure_text;
mod framing;
#[cfg(feature = "test-util")]
pub mod fuzz;
mod gemini;
mod http;
mod machine_role;
mod media;
mod models;
mod ollama;
mod openai;
mod options;
mod ordered_parts;
pub mod profile;
mod prompt;
mod protocols;
mod request_signature;
mod responses;
mod retry;
mod settings;
mod sse;
mod structured;
#[cfg(test)]
mod structured_tests;
mod thinking_budget;
pub(crate) mod token_counts;
mod too_long;
mod tool_uses;
#[cfg(all(test, feature = "test-util"))]
mod usage_tests;
mod wire;

use std::{fmt, time::Duration};

use clawnode_proto::{
    ToolName,
    llm::{ModelFailure, Role, Sampling, StopReason, Usage},
    model::SchemaStyle,
    tool::ToolUse,
};
use futures_util::{future::BoxFuture, stream::BoxStream};

pub use blocks::{Item, PlainBlock, ReplyBlocks};
pub(crate) use blocks::{bytes_sent_back, outlives_its_turn};
pub use discover::{ModelChoice, demo as demo_model, discover, ollama_models};
pub use embed::{EmbedReply, EmbedRequest};
pub use media::PlainMedia;
pub use models::{Models, ResolveError, provider_places};
pub use options::{BaseUrl, MAX_CALLS, OptionsError, ParseBaseUrlError, ProviderOptions};
pub use structured::ReplySchema;
pub use wire::Wire;

/// What a model is asked.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// The model's name at its provider.
    pub model: String,
    /// The system prompt; empty for none.
    pub system: String,
    /// The conversation; begins and ends with the user.
    pub messages: Vec<PlainMessage>,
    /// The tools it may ask for.
    pub tools: Vec<ToolOffer>,
    /// Settings of this call.
    pub sampling: Sampling,
    /// Sent to providers that know it, so that a provider's own retry does not bill twice.
    pub idempotency_key: String,
    /// What the reply has to fit.
    pub reply_schema: Option<ReplySchema>,
    /// The same for all requests of a conversation, so that a provider finds what it kept of their common
    /// beginning; empty for none.
    pub cache_key: String,
}

/// A message with its text in place. The user's side answers each tool that the assistant's side
/// before it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainMessage {
    /// Who says it.
    pub role: Role,
    /// What is said.
    pub text: String,
    /// What is attached to it.
    pub media: Vec<PlainMedia>,
    /// Tools that the assistant asks for; their arguments are JSON objects, their ids unique.
    pub tool_uses: Vec<ToolUse>,
    /// The results of those that it asked for before.
    pub tool_replies: Vec<PlainReply>,
    /// What the assistant said beside text and tool calls to this very model, and the order of
    /// everything; empty if there was nothing beside them.
    pub blocks: Vec<PlainBlock>,
}

/// The result of a tool call, with its text in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainReply {
    /// The id of the tool use that it answers.
    pub id: String,
    /// The text that the model gets.
    pub text: String,
    /// Whether it is an error.
    pub is_error: bool,
    /// What the model is shown besides.
    pub media: Vec<PlainMedia>,
}

/// A tool that a model may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolOffer {
    /// Its name.
    pub name: ToolName,
    /// What it does.
    pub description: String,
    /// The JSON Schema of its arguments.
    pub input_schema: serde_json::Value,
}

/// What a model says, piece by piece.
#[derive(Clone, Debug, PartialEq)]
pub enum ModelEvent {
    /// More of the reply.
    Text(String),
    /// More of the model's thoughts, to be shown; the whole thought follows as an item.
    Thought(String),
    /// Something beside text and tool calls, whole, in its place between them.
    Item(Item),
    /// A whole tool call, as the model made it.
    ToolUse(ToolUse),
    /// More of the arguments of a tool call that is not whole yet: so many bytes came.
    Arguments {
        /// How many.
        bytes: usize,
    },
    /// Usage known so far; each report replaces the one before it. Estimated, if something is not reported.
    Usage(Usage),
    /// The provider allows no request yet; it is sent after `wait`.
    Paced {
        /// How long until then.
        wait: Duration,
    },
    /// The provider refused, could not be reached or broke off; the call is tried again after `wait`.
    /// All that was said before it is void. The usage before it was used besides what follows.
    Retrying {
        /// Which retry, from 1.
        retry: u32,
        /// How long until then.
        wait: Duration,
        failure: ModelFailure,
    },
    /// The proper end.
    Done {
        /// Why the model stopped.
        stop: StopReason,
        /// The final usage, as reported: estimated, if something is not.
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

    /// The first of these settings that the model of this name does not take. A call with it fails.
    fn refused(&self, model: &str, sampling: &Sampling) -> Option<&'static str>;

    /// Asks whether the provider can be reached, with a request that costs nothing; none if its wire has no
    /// such request. Its circuit hears the end.
    fn probe(&self) -> Option<BoxFuture<'static, Result<(), ModelFailure>>>;

    /// How a request to the model of this name says that its reply has to fit a schema, if the model can be
    /// held to one.
    fn schema_style(&self, model: &str) -> Option<SchemaStyle>;

    /// Asks for the vectors of texts; `None` if the provider has no embeddings.
    fn embed(
        &self,
        request: EmbedRequest,
    ) -> Option<BoxFuture<'static, Result<EmbedReply, ModelFailure>>>;
}
