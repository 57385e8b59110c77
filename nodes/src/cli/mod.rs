//! The command line: what is typed, in; what is printed, out. One file a noun.
//!
//! [`args`] declares the command line, and [`clap_command`] gives each command its settings and examples.
//! [`output`] is the only place that prints, [`command_context`] what every command is given. Commands speak
//! to a running node through [`crate::client`]; where none runs, those that only read open the data
//! directory ([`crate::node::offline`]).

mod agent_profile;
mod agents;
mod approvals;
mod args;
mod backup;
mod budget;
mod budget_changes;
mod budget_flags;
mod chat;
mod clap_command;
#[cfg(feature = "nats")]
mod cluster;
mod command_context;
mod config;
mod doctor;
mod entity_tables;
mod events;
mod execute;
mod feedback;
mod flags;
mod help;
mod hidden_characters;
mod history;
mod hooks;
mod id_prefix;
mod import;
mod job_tables;
mod jobs;
mod journal;
mod ledger;
mod man_pages;
mod mcp;
mod memory;
mod memory_forget;
mod memory_put;
mod memory_search;
mod model_route;
mod models;
mod node;
mod nodes;
mod output;
mod panic;
mod parked;
mod partitions;
mod providers;
mod quarantine;
mod reconnection;
mod run;
mod session_context;
mod session_list;
mod sessions;
mod signals;
mod skill_bundles;
mod skills;
mod status;
mod tools;
#[cfg(feature = "tui")]
mod top;
mod tree;
mod turn;
mod up;
mod usage;
mod verify;

pub use clap_command::documented;
pub use run::{BoxedFuture, keeper, main, sandboxed_exec};
