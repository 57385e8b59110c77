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
//! Where the kernel has Landlock, the command is behind a second wall ([`wall`](Strength)): what it is
//! shown by mistake it still cannot touch. Between the node and the command stands this program
//! itself ([`Steps`]), which shuts itself in and becomes the command: nothing is done between fork
//! and exec. Landlock alone is not taken for isolation: whom a command may reach is part of its
//! policy, and networks pass it, as do the list of processes and memory without end.
//!
//! Bounds: limits of memory, files and processes are those of single processes (`setrlimit`), not of
//! all together, which takes a control group; Docker has one. Not here: a filter of system calls.

mod argv;
mod enter;
mod options;
mod outlet;
mod run;
mod second;
mod tree;
mod wall;

pub use enter::{Steps, step};
pub use options::{Isolation, Landlock, ProcessOptions};
pub use run::Processes;
pub use wall::Strength;
