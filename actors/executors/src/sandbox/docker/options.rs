//! `[sandbox.docker]`: what a person may set, and why it is what it is by default.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    path::PathBuf,
    time::Duration,
};

use clawnode_proto::units::duration;
use serde::{Deserialize, Serialize};

use crate::sandbox::{
    resource_limits::{Cpus, MemorySize, SandboxLimits},
    spec::{Image, Network},
};

/// `[sandbox.docker]`: the engine, and what holds for its containers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DockerOptions {
    /// Where the engine listens (`/var/run/docker.sock`). Who can write to it is root on this host.
    pub socket: PathBuf,
    /// In which image `run_command` runs, and tools that name none (`debian:bookworm-slim`). It
    /// needs `sleep`, and `sh` for shell lines.
    pub image: Image,
    /// In which image `run_python` and `execute_code` run (`python:3.12-slim`). It needs `python3`
    /// with its standard library.
    pub python_image: Image,
    /// Processors of one container (1).
    pub cpus: Cpus,
    /// Memory and swap of one container together (`512MiB`).
    pub memory: MemorySize,
    /// Processes and threads of one container at once (128).
    pub pids: NonZeroU32,
    /// What `/tmp` of one container can hold (`64MiB`); it counts as its memory.
    pub tmp: MemorySize,
    /// The network of containers: `none`, or `bridge`, which reaches the Internet and the host's
    /// addresses, past `[egress]`.
    pub network: Network,
    /// How long a command may take unless its call says otherwise (30 s).
    #[serde(with = "duration")]
    pub timeout: Duration,
    /// Containers that stand ready for each kind that was used lately (2). More makes bursts of
    /// short calls faster and costs about 1 MB of memory each; 0 makes each call wait for a
    /// container of its own.
    pub warm: usize,
    /// The most containers that stand ready for all kinds together (8).
    pub warm_total: NonZeroUsize,
    /// How long containers of a kind stay ready after its last call (10 min).
    #[serde(with = "duration")]
    pub warm_idle: Duration,
    /// Whether a call pulls an image that is missing (false). A pull takes minutes and disk, and
    /// runs what others have made.
    pub auto_pull: bool,
}

impl Default for DockerOptions {
    fn default() -> Self {
        Self {
            socket: "/var/run/docker.sock".into(),
            image: Image::debian(),
            python_image: Image::python(),
            cpus: Cpus::whole(1),
            memory: MemorySize::mib(512),
            pids: NonZeroU32::MIN.saturating_add(127),
            tmp: MemorySize::mib(64),
            network: Network::None,
            timeout: Duration::from_secs(30),
            warm: 2,
            warm_total: NonZeroUsize::MIN.saturating_add(7),
            warm_idle: Duration::from_mins(10),
            auto_pull: false,
        }
    }
}

impl DockerOptions {
    /// What one container may use.
    pub const fn limits(&self) -> SandboxLimits {
        SandboxLimits { cpus: self.cpus, memory: self.memory, pids: self.pids, tmp: self.tmp }
    }
}
