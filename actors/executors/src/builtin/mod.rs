//! Built-in tools without a home of their own.

mod calculate;
mod discover_and_activate_skills;
mod http_fetch;
mod ledger_tool_specs;
mod memory_tool_specs;
mod pure_tools;
mod time;
mod transform;

pub use discover_and_activate_skills::{ACTIVATE_SKILL, DISCOVER_SKILLS, SkillTools};
pub use http_fetch::HttpFetch;
pub use ledger_tool_specs::Ledger;
pub use memory_tool_specs::{MemoryTools, memory_tools};
pub use pure_tools::Basics;
