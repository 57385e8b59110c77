//! The harness as a library: what scenarios stand on.
#![forbid(unsafe_code)]

pub mod conformance;
pub mod nats;
