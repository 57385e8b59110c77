//! Why a sandbox could not be had, or was lost.

use std::path::PathBuf;

use clawnode_proto::{
    ErrorChain,
    tool::{ToolFailure, ToolOutcome},
};

use super::spec::Image;

/// Why a command has no end of its own.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// No engine answers.
    #[error(
        "sandbox_unavailable: no Docker engine answers at `{}`; start it, or set \
         `sandbox.docker.socket`", socket.display()
    )]
    EngineMissing {
        /// Where it should be.
        socket: PathBuf,
        /// What the client says.
        #[source]
        source: bollard::errors::Error,
    },
    /// It answered before, and does not any more.
    #[error(
        "sandbox_unavailable: the Docker engine went away while the command ran; whether it did \
         anything is not known"
    )]
    EngineGone(#[source] bollard::errors::Error),
    /// The container was removed from outside, or the engine was started again.
    #[error(
        "sandbox_unavailable: the container was taken away while the command ran; whether it did \
         anything is not known"
    )]
    ContainerGone(#[source] bollard::errors::Error),
    /// The engine does not have the image.
    #[error(
        "there is no image `{0}` on this node: `docker pull {0}` there, or set \
         `sandbox.docker.auto_pull = true`"
    )]
    ImageMissing(Image),
    /// It cannot be had.
    #[error("the image `{image}` cannot be pulled; look at the name and at the registry")]
    Pull {
        image: Image,
        /// What the engine says.
        #[source]
        source: bollard::errors::Error,
    },
    /// The engine does not make the container.
    #[error("the Docker engine refused to {what}")]
    Refused {
        /// What was asked of it.
        what: &'static str,
        #[source]
        source: bollard::errors::Error,
    },
    /// A process cannot be isolated here.
    #[error(
        "sandbox_unavailable: processes cannot be isolated on this node ({0}); install bubblewrap \
         (Landlock alone limits neither networks nor memory), or run tools in Docker \
         (`sandbox.run_in = \"docker\"`)"
    )]
    NoIsolation(String),
    /// A process would be isolated, without the second wall that is asked for.
    #[error(
        "sandbox_unavailable: `sandbox.process.landlock` is \"required\", and {0}; use a kernel \
         that has it, or set \"if_present\""
    )]
    NoSecondWall(String),
    /// The agent's files cannot be shown to it.
    #[error("the files of agent `{agent}` cannot be mounted: {why}")]
    Workspace {
        agent: String,
        /// What is wrong with them.
        why: String,
    },
    /// The system refused.
    #[error("cannot {what}")]
    Io {
        what: &'static str,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

impl SandboxError {
    /// What it means for a tool call.
    pub const fn failure(&self) -> ToolFailure {
        match self {
            Self::EngineMissing { .. }
            | Self::ImageMissing(_)
            | Self::Pull { .. }
            | Self::Refused { .. }
            | Self::NoIsolation(_)
            | Self::NoSecondWall(_)
            | Self::Workspace { .. } => ToolFailure::Unavailable,
            Self::EngineGone(_) | Self::ContainerGone(_) | Self::Io { .. } => ToolFailure::Crashed,
        }
    }
}

impl From<SandboxError> for ToolOutcome {
    fn from(error: SandboxError) -> Self {
        Self::failed(error.failure(), ErrorChain(&error).to_string())
    }
}
