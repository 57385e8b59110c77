//! Commands of agents in sandboxes: containers of a Docker engine, or processes with bubblewrap.
//!
//! A tool's call becomes a [`SandboxCommand`](spec::SandboxCommand) (by its recipe) and a
//! [`SandboxPolicy`](spec::SandboxPolicy) (by the configuration alone); what can be said of a sandbox ends there.
//! [`Docker`] and [`Processes`] turn both into what their engine is asked for, in one pure function
//! each, follow the command, and end it with everything that it has started. [`Commands`] is the
//! executor of either: `run_command`, `run_python`, `execute_code` and the tools of
//! `[sandbox.tools]`.
//!
//! Where the place that a tool names is missing, its calls are refused or go to another node. They
//! never run anywhere else.
//!
//! Not here: who may call what (policy), and the network of containers (`bridge` is the engine's).

mod code;
pub mod command_output;
mod command_tools;
mod dialogue;
mod docker;
mod error;
mod executor;
mod options;
#[cfg(feature = "test-util")]
mod planted;
mod process;
pub mod resource_limits;
pub mod spec;

pub use docker::{ContainerOwner, Docker, DockerOptions, IsDead};
pub use error::SandboxError;
pub use executor::{Commands, specs};
pub use options::{
    CommandTool, MaxTimeout, SandboxOptions, SandboxOptionsError, SandboxPlace, WorkspaceAccess,
};
#[cfg(feature = "test-util")]
pub use planted::SandboxBug;
pub use process::{
    GroupLimits, Isolation, Landlock, ProcessOptions, Processes, Steps, Strength, step,
};
