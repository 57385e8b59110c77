//! How a chaos run fails, as opposed to what it finds.

use std::io;

use crate::{nats::HarnessError, process::ProcessError};

/// The run itself could not continue. What it *finds* is a [`Violation`](super::Violation).
#[derive(Debug, thiserror::Error)]
pub enum ChaosError {
    /// The operating system said no.
    #[error("cannot {what}: {source}")]
    Io { what: String, source: io::Error },
    /// Something that a scenario needs is not there.
    #[error("{0}")]
    Missing(String),
    /// Something that must come did not.
    #[error("{0} did not happen in time")]
    Late(String),
    /// A process ended that was to stay.
    #[error("`{name}` ended by itself; its log ends with:\n{log}")]
    Ended {
        name: String,
        /// The end of its log.
        log: String,
    },
    /// A node, or the way to it.
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// A NATS server.
    #[error(transparent)]
    Nats(#[from] HarnessError),
}

impl ChaosError {
    /// For `map_err`: what was tried.
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}
