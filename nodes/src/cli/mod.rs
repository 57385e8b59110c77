//! The command line: what is typed, in; what is printed, out. One file a noun.
//!
//! [`args`] is the shape of the command line, [`output`] the only place that prints, [`context`]
//! what every command is given. Commands speak to a running node through [`crate::client`]; where
//! none runs, those that only read open the data directory by [`offline`]'s door.

mod agents;
mod approvals;
mod args;
mod backup;
mod chat;
#[cfg(feature = "nats")]
mod cluster;
mod config;
mod context;
mod doctor;
mod events;
mod execute;
mod history;
mod hooks;
mod import;
mod jobs;
mod journal;
mod link;
mod listing;
mod mcp;
mod node;
mod nodes;
pub mod offline;
mod output;
mod panic;
mod parked;
mod partitions;
mod providers;
mod quarantine;
mod run;
mod sessions;
mod signals;
mod status;
mod tools;
#[cfg(feature = "tui")]
mod top;
mod tree;
mod turn;
mod up;
mod verify;

pub use run::{keeper, main, sandboxed_exec};
