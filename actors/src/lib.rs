//! The living: the durable kernel, and the domain on top of it.
//!
//! [`durable`] is the kernel: what an entity is, and the sans-I/O machines that own, fold, decide
//! and recover it. [`session`] is the first entity kind; [`agent`] admits its turns; [`llm`] is
//! the door to models, [`latch`] what operators have stopped, [`tool`] the door to tools, [`policy`]
//! says who may use them, [`hook`] asks the operator's own programs; [`supervise`] keeps it all going.
#![forbid(unsafe_code)]

pub mod agent;
#[cfg(feature = "test-util")]
pub mod counter;
pub mod durable;
pub mod hook;
pub mod latch;
pub mod llm;
pub mod policy;
pub mod session;
pub mod supervise;
pub mod tool;
pub mod units;
pub mod usage;
