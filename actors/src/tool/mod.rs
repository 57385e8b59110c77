//! Tools: the door to whatever runs them, and the tools that are built in.
//!
//! An [`Executor`] is one way of running tools; a [`Toolbox`] holds executors by tool name and
//! keeps what every one of them must keep: the timeout, an end to panics, a bound on output.
//! [`schema`] judges the arguments that a model wrote before anything is run, and says what is
//! wrong in words that help the model to do better.
//!
//! Built in are [`Basics`] (`time_now`, `calculate`: pure, beside the session), [`HttpFetch`]
//! (capability `egress`) and [`Workspace`] (`file_*`, capability `workspace`). Whatever leaves for
//! another machine on an agent's behalf leaves through [`egress`]; whatever touches an agent's
//! files goes through the directory handles of [`workspace`].
//!
//! Not here: who may call what (policy), where a call waits (jobs), what is kept of it (the
//! session's journal), and the blob store for long output.

mod append;
mod arguments;
mod builtin;
pub mod egress;
mod executor;
pub mod runner;
pub mod schema;
mod spec;
mod toolbox;
pub mod workspace;

pub use builtin::{Basics, HttpFetch};
pub use egress::{Egress, EgressOptions};
pub use executor::{Executor, ToolRun};
pub use runner::{JobRunner, RunnerContext, RunnerOptions};
pub use toolbox::{OUTPUT_BYTES, Tool, Toolbox, ToolboxError};
pub use workspace::{Workspace, WorkspaceOptions};
