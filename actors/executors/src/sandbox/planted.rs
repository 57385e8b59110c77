//! Bugs planted into the sandboxes, for their tests to find. Compiled for tests only.

/// Which bug is planted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SandboxBug {
    #[default]
    None,
    /// The sandbox shares the host's network.
    HostNetwork,
    /// The engine's socket is mounted.
    EngineSocket,
    /// It has every privilege.
    Privileged,
    /// It is root, and nothing keeps it from new privileges.
    Root,
    /// Nothing limits it.
    NoLimits,
    /// The root file system can be written, and a container is used again.
    Reused,
    /// A process has no process namespace of its own.
    SharedPids,
    /// A process is shown all files of the host, at `/host`.
    HostFiles,
    /// The system calls of a process are not filtered.
    NoFilter,
}

impl SandboxBug {
    pub const ALL: [Self; 9] = [
        Self::HostNetwork,
        Self::EngineSocket,
        Self::Privileged,
        Self::Root,
        Self::NoLimits,
        Self::Reused,
        Self::SharedPids,
        Self::HostFiles,
        Self::NoFilter,
    ];
}
