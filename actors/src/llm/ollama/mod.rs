//! Ollama's own API (`/api/chat`), on which a request decides about the window (`num_ctx`), about thoughts
//! and how long the model stays loaded: what is asked (`request`, `picture_markers`), and what a reply says (`reply`).

mod address;
mod embedding;
mod picture_markers;
mod reply;
mod request;

pub(super) use address::address;
pub(super) use reply::OllamaReader;
pub(super) use request::Ollama;
