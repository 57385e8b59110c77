//! Commands as processes of this host, isolated by bubblewrap.
//!
//! A command sees the paths that are allowed, read-only, and a `/tmp` of its own; it has no network,
//! no other processes, no capabilities and no new privileges, and runs as nobody where the node is
//! root. It dies with its process namespace: whatever it has started, however it detached itself.
//!
//! Where bubblewrap is missing or does not work, nothing is run, unless
//! `sandbox.process.isolation = "none"` says so. Then only processes are hunted down when a command
//! ends, by a mark in their environment; nothing else is kept from them.
//!
//! Bounds: limits of memory, files and processes are those of single processes (`setrlimit`), not of
//! all together, which takes a control group; Docker has one. Not here: Landlock (a path that is not
//! allowed is not there at all), and a filter of system calls.

mod argv;
mod options;
mod outlet;
mod run;
mod tree;

pub use options::{Isolation, ProcessOptions};
pub use run::Processes;
