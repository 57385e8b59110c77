//! Gemini's API (`generateContent`, streamed): what is asked (`request`, with tools in the `schema` that it
//! takes), and what a reply says (`reply`).
//!
//! A part of a reply may have a signature: it is sent back with that very part, because models from Gemini 3
//! on refuse a tool call of the running turn without it. Here it is an opaque item before its part; a part
//! that shows nothing, and has one, is kept whole.

mod embedding;
mod reply;
mod request;
mod schema;

pub(super) use reply::GeminiReader;
pub(super) use request::Gemini;

/// The signature of the part after it.
const SIGNATURE: &str = "thoughtSignature";
/// The id of the tool call after it.
const ID: &str = "id";
/// A whole part.
const PART: &str = "part";
/// Between two texts that are parts of their own; it is not sent.
const SEAM: &str = "seam";
