//! `[sandbox.process]`: what a person may set, and why it is what it is by default.

use std::{num::NonZeroU32, path::PathBuf, time::Duration};

use clawnode_proto::units::duration;
use serde::{Deserialize, Serialize};

use crate::sandbox::resource_limits::{Cpus, MemorySize, SandboxLimits};

/// `[sandbox.process]`: commands as processes of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProcessOptions {
    /// What keeps a command to itself: `bubblewrap`, or `none`. With `none` a command has all
    /// rights of the node: its files, its network, its secrets.
    pub isolation: Isolation,
    /// The program that isolates (`bwrap`, looked for on the node's `PATH`).
    pub bwrap: PathBuf,
    /// The second wall, around what is isolated already: `if_present` (where the kernel has
    /// Landlock), `required` (nothing is run without all of it), or `off`.
    pub landlock: Landlock,
    /// What a command sees of this host, read-only (programs and libraries). What is not there is
    /// left out; links are kept as links.
    pub paths: Vec<PathBuf>,
    /// A control group (version 2) that this node may divide, so that limits hold for all processes
    /// of a command together. By default the node's own, where systemd leaves it to the node
    /// (`Delegate=yes`); nodes do not share one.
    pub cgroup: Option<PathBuf>,
    /// Processors of one command (1.0), where there is a control group.
    pub cpus: Cpus,
    /// Memory (`512MiB`): of one command with all that it keeps in memory, where there is a control
    /// group; else of one process, without what it shares.
    pub memory: MemorySize,
    /// Processes and threads (256): of one command, where there is a control group. And of all commands
    /// together where the node is root, else of all that its user runs.
    pub pids: NonZeroU32,
    /// What each of `/tmp`, `/dev/shm` and `/artifacts` of one command can hold (`64MiB`), and the most
    /// bytes of a file.
    pub tmp: MemorySize,
    /// How long a command may take unless its call says otherwise (60 s).
    #[serde(with = "duration")]
    pub timeout: Duration,
}

/// What keeps a command to itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Bubblewrap; without it nothing is run.
    #[default]
    Bubblewrap,
    None,
}

/// Whether there is a second wall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Landlock {
    /// As much of it as the kernel keeps.
    #[default]
    IfPresent,
    /// All of it; without it nothing is run.
    Required,
    Off,
}

impl Default for ProcessOptions {
    fn default() -> Self {
        let paths = [
            "/usr",
            "/bin",
            "/sbin",
            "/lib",
            "/lib32",
            "/lib64",
            "/etc/alternatives",
            "/etc/ld.so.cache",
        ];
        Self {
            isolation: Isolation::Bubblewrap,
            bwrap: "bwrap".into(),
            landlock: Landlock::IfPresent,
            paths: paths.map(PathBuf::from).into(),
            cgroup: None,
            cpus: Cpus::whole(1),
            memory: MemorySize::mib(512),
            pids: NonZeroU32::MIN.saturating_add(255),
            tmp: MemorySize::mib(64),
            timeout: Duration::from_mins(1),
        }
    }
}

impl ProcessOptions {
    /// What one command may use.
    pub const fn limits(&self) -> SandboxLimits {
        SandboxLimits { cpus: self.cpus, memory: self.memory, pids: self.pids, tmp: self.tmp }
    }
}
