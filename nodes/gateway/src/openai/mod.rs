//! OpenAI's chat API: agents are models, `user` is a stable session.
//!
//! A turn here is a turn like any other: stored before it is answered, never cancelled by a lost
//! client, found again by its `Idempotency-Key`. One that asks its client to run tools ends the answer and
//! waits for the results, which the next request brings.

mod approval;
mod conversation;
mod embeddings;
mod format;
mod handlers;
mod parts;
mod repeats;
mod reply;
mod request;
mod settings;
mod stream;
mod tools;

pub(super) use embeddings::embeddings;
pub(super) use handlers::{completions, model, models};
pub(super) use repeats::Repeats;
