//! What can be wrong with a host before a command has begun.

use std::{path::PathBuf, time::Duration};

use clawnode_cluster::{BucketError, StoreError};
use clawnode_proto::{
    ErrorChain, SshHostName,
    tool::{ToolFailure, ToolOutcome},
};

/// Why a host cannot be spoken with.
#[derive(Debug, thiserror::Error)]
pub enum SshError {
    /// No server answers there.
    #[error("ssh_unavailable: `{host}:{port}` cannot be reached from this node")]
    Unreachable {
        host: String,
        port: u16,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// It takes too long.
    #[error("ssh_unavailable: the login on host `{name}` took longer than {} s", after.as_secs())]
    Slow {
        name: SshHostName,
        /// How long was waited.
        after: Duration,
    },
    /// The private key cannot be used. The error never contains any of it.
    #[error("the key file `{}` cannot be used: {why}", path.display())]
    Key {
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The file of known hosts cannot be used.
    #[error("the file `{}` of known hosts cannot be used: {why}", path.display())]
    KnownHosts {
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// It has another key than it had.
    #[error(
        "the key of the host `{name}` has changed: it is {now}, not {known}. Another host may have \
         taken its place; nothing was sent to it. If the host was reinstalled, ask its \
         administrator for the new fingerprint (`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` \
         there), and write the new key for it into a file that `known_hosts` of this \
         `[[ssh_hosts]]` names"
    )]
    Changed {
        name: SshHostName,
        /// The fingerprint that was known.
        known: String,
        /// The one that it has now.
        now: String,
    },
    /// It shows a certificate.
    #[error("the host `{0}` shows a certificate instead of a key, which is not supported")]
    Certificate(SshHostName),
    /// The key does not log in.
    #[error(
        "the host `{name}` refused the key for user `{user}`; add its public half to \
         `~/.ssh/authorized_keys` of that user there"
    )]
    NotLetIn {
        name: SshHostName,
        /// The user of the login.
        user: String,
    },
    /// What is known of the host cannot be read or written now.
    #[error("the known key of the host cannot be looked up now")]
    Pin(#[from] BucketError),
    /// What is known of the host makes no sense.
    #[error("the known key of the host `{0}` is not readable")]
    PinUnreadable(SshHostName),
    /// The protocol failed.
    #[error("ssh_unavailable: the SSH connection failed")]
    Protocol(#[from] russh::Error),
}

impl SshError {
    /// What it means for a tool call.
    pub const fn failure(&self) -> ToolFailure {
        match self {
            Self::Changed { .. } | Self::Certificate(_) => ToolFailure::Refused,
            _ => ToolFailure::Unavailable,
        }
    }
}

impl From<StoreError> for SshError {
    fn from(error: StoreError) -> Self {
        Self::Pin(error.into())
    }
}

impl From<SshError> for ToolOutcome {
    fn from(error: SshError) -> Self {
        Self::failed(error.failure(), ErrorChain(&error).to_string())
    }
}
