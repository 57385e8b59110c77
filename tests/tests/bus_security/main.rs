//! The bus lets every role do what it needs and nothing besides, and refuses a node that does not
//! belong before it takes any work. Needs the binary: `cargo build -p clawnode --features
//! test-util`.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod forbidden;
mod foreign;
mod hostile;
mod identity;
mod joining;
mod kept;
mod nodes;
mod partings;
mod renewal;
mod revocation;
mod support;
mod table;
