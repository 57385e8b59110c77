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
//! Where the kernel has Landlock, a second layer confines the command ([`landlock_rules`](Strength)): what it is
//! shown by mistake it still cannot touch. A filter of system calls (`filter`) refuses parts of the
//! kernel that namespaces do not divide, keyrings above all. Between the node and the command stands this
//! program itself ([`Steps`]), which shuts itself in and becomes the command: nothing is done between
//! fork and exec. Landlock alone is not taken for isolation: whom a command may reach is part of its
//! policy, and networks pass it, as do the list of processes and memory without end.
//!
//! Bounds: where the node may divide a control group (`groups`), memory, processes and processor time of
//! all that a command starts, together. Elsewhere those of single processes (`setrlimit`): memory that is
//! shared, or that of many processes, is not limited there, and `doctor` says so. File systems in memory
//! have a size, and the kernel ends commands before the node when the host's memory ends. Not here: a
//! quota of an agent's files, of which each has a greatest size.

mod argv;
mod enter;
mod groups;
mod landlock_rules;
mod options;
mod outlet;
mod run;
mod second_layer;
mod streams;
mod tree;

pub use enter::{Steps, step};
pub use groups::GroupLimits;
pub use landlock_rules::Strength;
pub use options::{Isolation, Landlock, ProcessOptions};
pub use run::Processes;
