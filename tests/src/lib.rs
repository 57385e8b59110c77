//! The harness as a library.

pub mod model;
