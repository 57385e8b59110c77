//! `OpenAI`'s Responses API, without anything stored at the vendor: what is asked (`request`), and what a
//! reply says (`reply`, from its `events`).
//!
//! What a model has reasoned comes as encrypted items. Each goes back before what followed it, byte for
//! byte, so that the model goes on from there.

mod events;
mod reply;
mod request;

pub(super) use reply::ResponsesReader;
pub(super) use request::Responses;

/// A reasoning item; what follows it belongs to it.
const REASONING: &str = "reasoning";
/// What the text after it is: a comment or the answer.
const PHASE: &str = "phase";
