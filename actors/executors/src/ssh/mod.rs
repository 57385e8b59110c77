//! Commands on other hosts, over SSH: a tool for each host, `ssh_NAME`, of the capability `ssh.NAME`.
//!
//! SSH-1: nothing is said to a host whose key is not the known one. What an OpenSSH `known_hosts`
//! file says of a host counts; of others the key that a node of the cluster met first does, which is
//! a value of the bucket, so all nodes go by it. A key that has changed is refused with both
//! fingerprints, and stays so until a person says otherwise in the file.
//!
//! Only keys log in, never passwords. A command is begun at most once. If the connection is lost
//! while it runs, its result is unknown, and the outcome says so.
//!
//! Where an end reaches: if a command takes too long or is cancelled, its server sends it SIGTERM
//! and then SIGKILL, if it can (OpenSSH since 7.9, for the process group of the command, but
//! neither for logins as root nor if the key has a forced command). Then the connection is closed.
//! Processes that left the group, or that never got the signal, may go on there, and the outcome
//! tells the model so.
//!
//! In a build without the feature `ssh` the tools can be given to agents, and other nodes run them.
//!
//! Not here: forwarding, terminals, agents, certificates of hosts, RSA keys, and proxies.

mod options;
mod spec;

#[cfg(feature = "ssh")]
mod command;
#[cfg(feature = "ssh")]
mod connect;
#[cfg(feature = "ssh")]
mod error;
#[cfg(feature = "ssh")]
mod executor;
#[cfg(feature = "ssh")]
mod known_hosts;

#[cfg(feature = "ssh")]
pub use error::SshError;
#[cfg(feature = "ssh")]
pub use executor::{SshContext, SshHost};
pub use options::{SshHostOptions, SshOptionsError};
pub use spec::specs;
