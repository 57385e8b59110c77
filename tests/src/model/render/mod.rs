//! A reply in the bytes of a wire.

pub(super) mod bedrock;
mod errors;
pub(super) mod gemini;
mod gemini_error;
mod ollama;
mod openai;
pub(super) mod responses;
mod writer;

pub(super) use errors::{error, error_kind};
pub(super) use writer::{
    NO_TIME, Part, anthropic_usage, called, id, openai_usage, said, stop, stream,
};
