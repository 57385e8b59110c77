//! Holds requests to the wire: what a vendor would refuse, and what it would wrongly let pass.

mod anthropic;
mod bedrock;
mod bedrock_fields;
mod embed;
mod gemini;
mod media;
mod ollama;
mod openai;
mod request;
mod responses;
mod schemas;
mod tools;

pub(super) use embed::{Embeds, embeds};
pub(super) use request::{Asked, check};
