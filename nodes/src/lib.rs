//! The binary `clawnode`: configuration, command line, telemetry, and the place where
//! everything is put together.
#![forbid(unsafe_code)]

pub mod app;
#[cfg(feature = "nats")]
pub mod bus;
pub mod cli;
pub mod client;
pub mod config;
pub mod failure;
mod files;
pub mod host;
pub mod local;
pub mod log_file;
pub mod node;
pub mod offline_commands;
pub mod start_error;
pub mod telemetry;
pub mod watchdog;
