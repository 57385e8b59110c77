//! Holds requests to the wire: what a vendor would refuse, and what it would wrongly let pass.

mod anthropic;
mod media;
mod openai;
mod request;
mod schemas;
mod tools;

pub(super) use request::{Asked, check};
