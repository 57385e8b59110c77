//! Anthropic's Messages API: agents are models, `metadata.user_id` is a stable session.
//!
//! A turn here is one of `openai`: stored before it is answered, found again by its `Idempotency-Key`, and
//! of the same session if the user is the same. What this protocol says in other words is read and written
//! here; what both ask for is done there.

mod blocks;
mod count_tokens_route;
mod handlers;
mod models;
mod reply;
mod request;
mod settings;
mod tools;

pub(super) use count_tokens_route::count_tokens;
pub(super) use handlers::messages;
pub(super) use models::{model, models};
