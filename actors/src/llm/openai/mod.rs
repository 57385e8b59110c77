//! `OpenAI`'s Chat Completions API, as its inventor and as compatible servers speak it: what is
//! asked (`request`), the content of its messages (`content`) and what a reply says (`reply`). Two
//! parts of a reply come in pieces: tool calls (`calls`), and thoughts that a server wants back (`details`).

mod calls;
mod content;
mod details;
mod embedding;
mod reply;
mod request;

pub(super) use reply::OpenAiReader;
pub(super) use request::OpenAi;

/// The field of a tool call that compatible servers want back as it is.
const EXTRA_CONTENT: &str = "extra_content";
/// The server's own id of a tool call, where `reasoning_details` name it. Requests have other ids.
const CALL_ID: &str = "id";
