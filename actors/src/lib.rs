//! What a turn of an agent needs, on the kernel (`clawnode_kernel`).
//!
//! [`session`] is the entity kind of conversations. [`agent`] admits its turns, [`llm`] calls models,
//! [`runner`] runs the jobs of one process, [`hook`] asks the operator's own programs, and [`usage`]
//! counts what model calls used.
#![forbid(unsafe_code)]

pub mod agent;
pub mod hook;
pub mod llm;
pub mod runner;
pub mod session;
pub mod usage;
