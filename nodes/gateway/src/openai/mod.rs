//! OpenAI's chat API: agents are models, `user` is a stable session.
//!
//! A turn here is a turn like any other: stored before it is answered, never cancelled by a lost
//! client, found again by its `Idempotency-Key`.

mod format;
mod handlers;
mod parts;
mod repeats;
mod reply;
mod request;
mod stream;

pub(super) use handlers::{completions, model, models};
pub(super) use repeats::Repeats;
