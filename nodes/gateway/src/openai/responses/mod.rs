//! OpenAI's Responses API: a response is a turn, or the part of one between two answers to its client.
//!
//! Nothing is kept here. The id of a response names its session and its turn, so that any gateway reads it,
//! resumes it and goes on with it, also after a restart. Its events are made from what the turn says alone,
//! however that arrives: [`Composer`](composed_events::Composer) numbers them, and the number of an event says
//! whether what was said up to it is still the same.

mod composed_events;
mod event_number;
mod handlers;
mod input;
mod reader;
mod references;
mod request;
mod response_object;
mod stored_response;
mod stream;

pub(in super::super) use handlers::{QUERY, cancel, create, delete, retrieve};
pub(super) use reader::follow;
pub(super) use stored_response::record;
