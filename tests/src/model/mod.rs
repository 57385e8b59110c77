//! A scripted model server that speaks each wire exactly, streamed and not: Anthropic's Messages, `OpenAI`'s
//! Chat Completions and Responses, Gemini's `generateContent`, Ollama's own and its list of models, and Amazon
//! Bedrock's Converse, whose signatures it checks ([`AwsAccount`]); and the embeddings of those that have them.
//!
//! It answers by [`Script`]: acts for certain user texts, then acts in turn, then a default reply
//! derived from the last user message, which may name tools to call. What it thinks it wants back,
//! exactly and in its place ([`thoughts`]). It can cache prompts as the vendors do ([`Setup::caches`]).
//! It counts and lists what it was asked ([`Call`]), can write that down with an fsync per line so that
//! nothing is forgotten when processes are killed ([`Logged`]), and holds its clients to the wire: a
//! malformed request is a violation, is answered 400, and fails the test when the server stops or is
//! dropped. As a process of its own it is `model_server`.

mod book;
mod cache;
mod check;
mod details;
mod event_stream;
mod listen;
mod play;
mod render;
mod script;
mod server;
mod sigv4;
mod thoughts;
mod vectors;
mod whole;

pub use book::{Call, Logged, Violations, WireName, read_log};
pub use event_stream::event_stream;
pub use script::{Act, DefaultReply, Reply, ReportedTokens, Script, Status, Step, ToolCall};
pub use server::{ModelServer, Setup};
pub use sigv4::AwsAccount;
pub use vectors::vector;
