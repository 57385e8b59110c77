//! The executors of tools. Only the program and tests name this crate.
//!
//! Built in are [`Basics`] (`time_now`, `calculate`, `transform_*`: pure, beside the session), [`Ledger`] (`ledger_*`,
//! whose calls the session ends itself), [`MemoryTools`] (those of memories, which it runs itself), [`HttpFetch`] (`http_fetch`, `http_post`, capability `egress`) and [`Workspace`] (`file_*`, capability `workspace`). Commands run in a
//! [`sandbox`], in containers (capability `docker`) or as isolated processes (`process`), and on other
//! hosts over [`ssh`]. [`mcp`] has MCP servers, [`plugin`] WebAssembly components. Whatever touches an
//! agent's files goes through the directory handles of [`workspace`].
#![forbid(unsafe_code)]

mod builtin;
pub mod mcp;
pub mod plugin;
pub mod sandbox;
pub mod ssh;
pub mod workspace;

pub use builtin::{
    ACTIVATE_SKILL, Basics, DISCOVER_SKILLS, HttpFetch, Ledger, MemoryTools, SkillTools,
    memory_tools,
};
pub use sandbox::SandboxOptions;
pub use workspace::{Workspace, WorkspaceOptions};
