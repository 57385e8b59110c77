//! OpenAI's chat and Responses APIs: agents are models, `user` is a stable session.
//!
//! A turn here is a turn like any other: stored before it is answered, never cancelled by a lost
//! client, found again by its `Idempotency-Key`. One that asks its client to run tools ends the answer and
//! waits for the results, which the next request brings.

mod approval;
mod conversation;
mod format;
mod handlers;
mod parts;
mod repeats;
mod reply;
mod request;
pub(super) mod responses;
mod settings;
mod stream;
mod tools;

pub(super) use handlers::{completions, model, models};
pub(super) use repeats::Repeats;
