//! The command line: what is typed, in; what is printed, out. One file a noun.
//!
//! [`args`] is the shape of the command line, [`output`] the only place that prints, [`context`]
//! what every command is given. Commands speak to a running node through [`crate::client`]; where
//! none runs, those that only read open the data directory by [`offline`]'s door.

mod agents;
mod args;
mod backup;
mod chat;
mod config;
mod context;
mod doctor;
mod journal;
pub mod offline;
mod output;
mod run;
mod sessions;
mod signals;
mod status;
mod terminal;
mod turn;
mod up;
mod verify;

pub use run::main;
