//! Stub.
pub mod conformance;
