//! How the harness fails.

use std::{io, path::PathBuf};

use clawnode_proto::ErrorBody;

/// Why a process, or a conversation with it, is not what a test needs.
#[derive(Debug, thiserror::Error)]
pub enum ProcessError {
    /// There is no binary to run.
    #[error(
        "`{}` is not there: run `cargo build -p clawnode --features test-util`, \
         or name the binary in CLAWNODE_BIN",
        .0.display()
    )]
    NoBinary(PathBuf),
    /// The operating system said no.
    #[error("cannot {what}")]
    Io { what: String, source: io::Error },
    /// A node ended before it served.
    #[error("the node ended with {status} before it was ready; its log ends with:\n{log}")]
    NotReady {
        status: String,
        /// The end of its log.
        log: String,
    },
    /// Something that must come did not.
    #[error("{0} did not happen in time")]
    Late(String),
    /// The connection broke: the node is gone, or its answer is lost.
    #[error("the node is out of reach: {0}")]
    Lost(String),
    /// The node answered with an error.
    #[error("the node answers `{}`: {}", .0.code, .0.message)]
    Refused(Box<ErrorBody>),
    /// The node said what no node says.
    #[error("not what a node says: {0}")]
    Protocol(String),
    /// A rule is broken: what the tests are for.
    #[error("{0}")]
    Broken(String),
}

impl ProcessError {
    /// For `map_err`: what was tried.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// Whether sending again to the next process may help.
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Lost(_))
    }

    /// The node's answer, if it is one.
    pub fn refusal(&self) -> Option<&ErrorBody> {
        match self {
            Self::Refused(body) => Some(body),
            _ => None,
        }
    }
}
