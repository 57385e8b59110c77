//! What a turn of an agent needs, on the kernel (`clawnode_kernel`).
//!
//! [`session`] is the entity kind of conversations. [`agent`] admits its turns, [`llm`] calls models,
//! [`tool`] runs tools, [`policy`] says which calls are allowed, [`latch`] is the kill switch, [`hook`]
//! asks the operator's own programs, and [`usage`] counts what model calls used.
#![forbid(unsafe_code)]

pub mod agent;
pub mod hook;
pub mod latch;
pub mod llm;
pub mod policy;
pub mod session;
pub mod tool;
pub mod units;
pub mod usage;
