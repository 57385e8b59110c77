//! Commands as processes of this host, isolated by bubblewrap.
//!
//! A command sees the paths that are allowed, read-only, and a `/tmp` of its own. It has no
//! network, no other processes, no capabilities and no new privileges. If the node is root, it runs
//! as user 65534. It dies with its process namespace, with all that it has started, even if that
//! detached itself.
//!
//! If bubblewrap is missing or does not work, clawnode refuses commands, unless
//! `sandbox.process.isolation = "none"` is set. Then clawnode only kills a command's processes when
//! it ends, found by a mark in their environment; nothing else is isolated.
//!
//! If the kernel has Landlock, a second layer confines the command ([`landlock_rules`](Strength)):
//! what it is shown by mistake it still cannot touch. A filter of system calls (`filter`) refuses
//! parts of the kernel that namespaces do not divide, keyrings above all. Between the node and the
//! command, this program itself ([`Steps`]) runs first, confines itself and becomes the command:
//! nothing is done between fork and exec. Landlock alone does not count as isolation: it does not
//! cover networks, which the policy restricts, nor the list of processes, nor memory use.
//!
//! Bounds: where the node may divide a control group (`cgroups`), memory, processes and processor time of
//! all that a command starts, together. Elsewhere those of single processes (`setrlimit`): memory that is
//! shared, or that of many processes, is not limited there, and `doctor` says so. File systems in memory
//! have a size, and the kernel ends commands before the node when the host's memory ends. Not here: a
//! quota of an agent's files, of which each has a greatest size.

mod bubblewrap_args;
mod cgroups;
mod isolation;
mod landlock_rules;
mod options;
mod output_files;
mod process_run;
mod process_tree;
mod sandboxed_exec;
mod second_layer;
mod streams;

pub use cgroups::GroupLimits;
pub use landlock_rules::Strength;
pub use options::{Isolation, Landlock, ProcessOptions};
pub use process_run::Processes;
pub use sandboxed_exec::{Steps, step};
