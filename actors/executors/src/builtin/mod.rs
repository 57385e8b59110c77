//! Built-in tools without a home of their own.

mod basics;
mod calculate;
mod http_fetch;
mod ledger;
mod memory;
mod skills;
mod time;
mod transform;

pub use basics::Basics;
pub use http_fetch::HttpFetch;
pub use ledger::Ledger;
pub use memory::{MemoryTools, memory_tools};
pub use skills::{ACTIVATE_SKILL, DISCOVER_SKILLS, SkillTools};
