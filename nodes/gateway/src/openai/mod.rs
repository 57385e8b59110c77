//! OpenAI's chat and Responses APIs: agents are models, `user` is a stable session.
//!
//! A turn here is a turn like any other: stored before it is answered, never cancelled by a lost
//! client, found again by its `Idempotency-Key`. One that asks its client to run tools ends the answer and
//! waits for the results, which the next request brings. `anthropic` says the same in other words, and uses
//! what is done here.

pub(super) mod approval;
pub(super) mod conversation;
mod embeddings;
mod format;
pub(super) mod handlers;
mod id;
pub(super) mod message_parts;
mod metadata;
mod repeats;
pub(super) mod reply;
pub(super) mod request;
pub(super) mod responses;
mod settings;
mod stored_completion;
pub(super) mod stream;
pub(super) mod tools;

pub(super) use approval::SESSION;
pub(super) use embeddings::embeddings;
pub(super) use handlers::{completions, model, models};
pub(super) use repeats::Repeats;
pub(super) use stored_completion::stored;
