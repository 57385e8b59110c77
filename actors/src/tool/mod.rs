//! Tools: the door to whatever runs them, and the tools that are built in.
//!
//! An [`Executor`] is one way of running tools; a [`Toolbox`] holds executors by tool name and
//! keeps what every one of them must keep: the timeout, an end to panics, a bound on output.
//! [`schema`] judges the arguments that a model wrote before anything is run, and says what is
//! wrong in words that help the model to do better.
//!
//! Built in are [`Basics`] (`time_now`, `calculate`: pure, beside the session), [`HttpFetch`]
//! (capability `egress`) and [`Workspace`] (`file_*`, capability `workspace`). Commands run in a [`sandbox`], in containers
//! (capability `docker`) or as isolated processes (`process`); `execute_code` may call other tools
//! from there, as far as [`CallBack`] lets it. On other hosts they run over [`ssh`]. Whatever leaves for
//! another machine on an agent's behalf leaves through [`egress`]; whatever touches an agent's
//! files goes through the directory handles of [`workspace`]. What runs say and make is kept for people
//! by the [`archive`].
//!
//! Not here: who may call what (policy), where a call waits (jobs), what is kept of it (the
//! session's journal), and the blob store for long output.

mod append;
pub mod archive;
mod arguments;
mod builtin;
mod callbacks;
pub mod egress;
mod executor;
mod executors;
mod filter;
pub mod mcp;
pub mod plugin;
mod providers;
pub mod runner;
pub mod sandbox;
pub mod schema;
mod spec;
pub mod ssh;
mod toolbox;
pub mod workspace;

pub use archive::{Archive, ArchiveContext, ArchiveOptions, RunSink};
pub use builtin::{Basics, HttpFetch};
pub use callbacks::CallBack;
pub use egress::{Egress, EgressOptions};
pub use executor::{Executor, ToolRun};
pub use executors::{Available, Executors};
pub use providers::{LOCAL, Providers};
pub use runner::{JobRank, JobRunner, RunnerContext, RunnerOptions};
pub use sandbox::SandboxOptions;
pub use toolbox::{OUTPUT_BYTES, Tool, Toolbox, ToolboxError};
pub use workspace::{Workspace, WorkspaceOptions};
