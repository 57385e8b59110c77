//! Why a call did not get its answer.

use std::path::PathBuf;

use clawnode_proto::{ErrorBody, ErrorCode};

use crate::node_file::LocalFileError;

/// Why a call did not get its answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing says that a node runs on this directory.
    #[error("no node runs on `{}`", data_dir.display())]
    NotRunning {
        /// Where was looked.
        data_dir: PathBuf,
    },
    /// What was named is no address of a node.
    #[error("`{url}` is not an address such as `http://127.0.0.1:3100`")]
    Address {
        /// What was named.
        url: String,
    },
    /// The node does not answer at its address, or went away.
    #[error("cannot reach the node at `{url}`: {detail}")]
    Unreachable { url: String, detail: String },
    /// The node answered with an error.
    #[error("{}", .0.message)]
    Answered(ErrorBody),
    /// The answer is not one that a node gives.
    #[error("unexpected answer from `{url}`: {detail}")]
    Protocol { url: String, detail: String },
    /// A file that leads to the node cannot be used.
    #[error("cannot use `{}`: {detail}", path.display())]
    Local { path: PathBuf, detail: String },
}

impl From<LocalFileError> for ClientError {
    fn from(LocalFileError { path, detail }: LocalFileError) -> Self {
        Self::Local { path, detail }
    }
}

impl ClientError {
    /// Whether the node may be there again later.
    pub const fn is_lost(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::NotRunning { .. })
    }

    /// Whether the node does not let us in.
    pub fn is_refused(&self) -> bool {
        let refusals = [ErrorCode::Unauthorized, ErrorCode::Forbidden];
        matches!(self, Self::Answered(body) if refusals.contains(&body.code))
    }

    /// Whether the node only cannot answer just now, because it stops or is not ready; another one
    /// may.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Answered(body) if body.code == ErrorCode::Unavailable)
    }
}
