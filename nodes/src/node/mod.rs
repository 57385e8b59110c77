//! The parts of a running node that are neither gateway nor actor: what it stands on, who answers,
//! and how both look from the gateway.
//!
//! `ground` opens the substrate, `models` turns settings into providers and agents, `backend` is
//! the gateway's door to sessions, `offline` the same door where no node runs, `backup` keeps and
//! brings back a data directory, `keeping` is what commands do with one, `scan` looks after the inputs of processes that died, `failpoint`
//! (tests only) kills the process at a named point.

pub mod backend;
pub mod backup;
#[cfg(feature = "test-util")]
pub mod failpoint;
pub mod ground;
pub mod keeping;
pub mod models;
pub mod offline;
pub mod scan;
