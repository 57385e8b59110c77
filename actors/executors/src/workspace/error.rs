//! Why a file was not touched.

use std::io;

use clawnode_proto::tool::ToolFailure;
use clawnode_tool::workspace_path::PathError;

/// Why nothing was done. Paths are named as they were given.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// No agent's directory can be called so.
    #[error("an agent called `{0}` cannot have files")]
    Agent(String),
    /// The directory of agents' files cannot be used.
    #[error("the workspace cannot be opened")]
    Root(#[source] io::Error),
    /// It is no path that is taken.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It leads out of the agent's directory.
    #[error("`{0}` leads out of the workspace")]
    Outside(String),
    /// There is nothing there.
    #[error("there is no `{0}`")]
    NotFound(String),
    /// It is something else than it should be.
    #[error("`{path}` is {is}, not {wanted}")]
    Kind {
        path: String,
        is: &'static str,
        /// What was wanted.
        wanted: &'static str,
    },
    /// It has other names, which may be anywhere.
    #[error("`{0}` has several names (hard links), and one of them may be outside the workspace")]
    Linked(String),
    /// It cannot be shown.
    #[error("`{path}` is not text ({bytes} bytes)")]
    Binary { path: String, bytes: u64 },
    /// The search pattern is not valid.
    #[error("the pattern cannot be used: {0}")]
    Pattern(String),
    /// There is no such part of it.
    #[error("`{path}` has {bytes} bytes: nothing is at offset {offset}")]
    Beyond {
        path: String,
        bytes: u64,
        /// What was asked for.
        offset: u64,
    },
    /// More than may be written at once.
    #[error("the content has {bytes} bytes; at most {most} may be written at once")]
    TooLong {
        /// How many.
        bytes: usize,
        most: usize,
    },
    /// The call was cancelled before anything was changed.
    #[error("stopped: nothing was changed")]
    Cancelled,
    /// The system refused.
    #[error("`{path}` cannot be used")]
    Io {
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
}

impl WorkspaceError {
    /// What the system's refusal means.
    pub(super) fn of(path: &str, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::NotFound(path),
            io::ErrorKind::NotADirectory => {
                Self::Kind { path, is: "below a file", wanted: "in a directory" }
            }
            // So cap-std calls an attempt to get out; a plain refusal has the system's number.
            io::ErrorKind::PermissionDenied if source.raw_os_error().is_none() => {
                Self::Outside(path)
            }
            _ => Self::Io { path, source },
        }
    }

    /// What it means for a tool call.
    pub const fn failure(&self) -> ToolFailure {
        match self {
            Self::Agent(_) | Self::Outside(_) | Self::Linked(_) => ToolFailure::Refused,
            Self::Root(_) => ToolFailure::Unavailable,
            Self::Path(_) | Self::Pattern(_) | Self::Beyond { .. } | Self::TooLong { .. } => {
                ToolFailure::Invalid
            }
            Self::NotFound(_) | Self::Kind { .. } | Self::Binary { .. } | Self::Io { .. } => {
                ToolFailure::Failed
            }
            Self::Cancelled => ToolFailure::Cancelled,
        }
    }
}
