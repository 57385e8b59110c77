//! Tools: what runs them, and what every run of one must keep.
//!
//! An [`Executor`] is one way of running tools; a [`Toolbox`] holds executors by tool name and
//! keeps what every one of them must keep: the timeout, an end to panics, a bound on output.
//! [`schema`] judges the arguments that a model wrote before anything is run, and says what is
//! wrong in words that help the model to do better. A tool that runs code may call other tools as far
//! as [`CallBack`] lets it. Whatever leaves for another machine on an agent's behalf leaves through
//! [`egress`]. The [`archive`] keeps for people what runs print and make. [`orphaned_processes`] and
//! [`seccomp`] confine programs, and [`workspace_path`] the paths of an agent's files. [`skill`] reads the skills of agents.
//! [`template`] puts outputs of earlier steps into the arguments of a plan's step.
//!
//! The executors themselves are in `clawnode_executors`. Not here: who may call what
//! (`clawnode_guard::policy`), where a call waits (jobs), what is kept of it (the session's journal),
//! and the blob store for long output.
#![forbid(unsafe_code)]

pub mod append;
pub mod archive;
pub mod arguments;
mod callbacks;
pub mod egress;
mod executor;
mod executors;
mod hidden_data_directory;
pub mod orphaned_processes;
mod provider_health;
pub mod schema;
pub mod seccomp;
mod shown_media;
pub mod skill;
pub mod spec;
mod stopped_run;
pub mod template;
mod toolbox;
pub mod workspace_path;

pub use archive::{Archive, ArchiveContext, ArchiveOptions, RunSink};
pub use callbacks::{CallBack, Caller, Nested};
pub use egress::{Egress, EgressOptions};
pub use executor::{Executor, ToolRun};
pub use executors::{Available, Executors};
pub use provider_health::{LOCAL, ProviderWork, Providers};
pub use shown_media::ShownMedia;
pub use toolbox::{OUTPUT_BYTES, Tool, Toolbox, ToolboxError};
