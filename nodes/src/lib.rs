//! The binary `clawnode`: configuration, command line, telemetry, and the place where
//! everything is put together.
#![forbid(unsafe_code)]

pub mod api_token;
pub mod app;
#[cfg(feature = "nats")]
pub mod bus;
pub mod cli;
pub mod client;
pub mod config;
pub mod failure;
mod files;
pub mod host;
pub mod log_file;
pub mod node;
pub mod node_file;
pub mod offline_commands;
pub mod secret;
pub mod start_error;
pub mod telemetry;
pub mod watchdog;
