//! Real nodes are killed at every point of a turn; nothing accepted is lost, and no recorded reply
//! is asked for again. Needs the binary: `cargo build -p clawnode --features test-util`.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod best;
mod budgets;
mod checks;
mod client_tools;
mod cluster;
mod damage;
mod drain;
mod embeddings;
mod executions;
mod fleet;
mod gateways;
mod give_way;
mod import;
mod journals;
mod kills;
mod learning;
mod memory_writes;
mod panics;
mod pipelines;
mod placement;
mod points;
mod purges;
mod streams;
mod structured;
mod support;
mod suspects;
mod thought_kills;
mod thoughts;
mod tool_kills;
mod tools;
mod unplugged;
mod versions;
