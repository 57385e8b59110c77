//! `OpenAI`'s Chat Completions API, as its inventor and as compatible servers speak it: what is
//! asked (`request`), what a reply says (`reply`), and how its tool calls come together (`calls`).

mod calls;
mod embedding;
mod reply;
mod request;

pub(super) use reply::OpenAiReader;
pub(super) use request::OpenAi;

/// The field of a tool call that compatible servers want back as it is.
const EXTRA_CONTENT: &str = "extra_content";
