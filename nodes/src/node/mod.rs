//! The parts of a running node that are neither gateway nor actor: what it stands on, who answers,
//! and how both look from the gateway.
//!
//! `ground` opens the substrate, `models` turns settings into providers and agents, `backend` is
//! the gateway's door to sessions, `offline` the same door where no node runs, `backup` keeps and
//! brings back a data directory, `reload` follows the configuration's files, `scan` places the worker among the others and looks after the
//! inputs of processes that died, `load` says how busy the process is, `failpoint` (tests only) kills
//! it at a named point.

pub mod backend;
pub mod backup;
#[cfg(feature = "test-util")]
pub mod failpoint;
pub mod ground;
pub mod load;
pub mod models;
pub mod offline;
pub mod reload;
pub mod scan;
