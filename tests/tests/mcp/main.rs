//! MCP servers: real ones, and one that does harm.

#![expect(clippy::unwrap_used, reason = "a test's panic is its failure")]

mod bench;
mod cluster;
mod hidden;
mod hostile;
mod http;
mod pins;
mod product;
mod stop;

use clawnode_tests::process::ProcessError;

pub(crate) type Outcome = Result<(), ProcessError>;
