//! The parts of a running node that are neither gateway nor actor: what it stands on, who answers,
//! and how both look from the gateway.
//!
//! `base` is what the parts of a node share, `ground` opens the substrate, `models` turns settings into providers and agents, `backend` is
//! the gateway's door to sessions, `answers` its handler for each method, `delete` deletes a session, `execute` runs plans, `archive` is the one to what is kept of jobs, `offline` the same door where no node runs, `backup` keeps and
//! brings back a data directory, `import` and `transfer` move one into a cluster, `reload` follows the configuration's files, `standing` says whether
//! this process takes work, `greet` tells the others and hears which versions they speak, `orders`
//! carries an operator's word to one node, `panic` stops things on all of them, `serving` sets up the gateway, `scan` places the worker
//! among the others and looks after the inputs of processes that died, `mcp` has the MCP servers of
//! this node, `load` says how busy the process is, `tools` has what agents may be given and what runs
//! here, `failpoint` (tests only) kills the process at a named point, `effects` (tests only) are tools
//! whose runs are counted.
//!
//! For those who operate the cluster, put together in `operate`: `overview` answers them, `events` remembers what happened,
//! `observe` tells what happens to nodes, `tree` what runs, `looked` which sessions are out of
//! service, `views` makes documents of heartbeats and ranks.

mod answers;
pub mod archive;
pub mod backend;
pub mod backup;
pub mod base;
mod delete;
#[cfg(feature = "test-util")]
pub mod effects;
pub mod events;
mod execute;
#[cfg(feature = "test-util")]
pub mod failpoint;
pub mod greet;
pub mod ground;
pub mod health;
pub mod hooks;
pub mod import;
pub mod load;
pub mod looked;
pub mod mcp;
pub mod models;
pub mod observe;
pub mod offline;
pub mod operate;
pub mod orders;
pub mod overview;
pub mod panic;
pub mod plugins;
mod policy;
pub mod reload;
pub mod scan;
mod scheduler;
pub mod serving;
pub mod standing;
pub mod sweep;
pub mod tools;
mod transfer;
pub mod tree;
pub mod usage;
pub mod views;
mod wanted;
