//! The command line as people and scripts meet it: the real binary, with an environment and a
//! directory of its own.
// `cfg(test)` always holds here; it tells the linter that helpers may unwrap as tests do.
#![cfg(test)]

mod chat;
mod cluster;
mod config;
mod examples;
mod harness;
mod help;
mod ids;
mod node;
mod up;
