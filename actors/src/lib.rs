//! The living: the durable kernel, and the domain on top of it.
//!
//! [`durable`] is the kernel: what an entity is, and the sans-I/O machines that own, fold, decide
//! and recover it. [`session`] is the first entity kind; [`agent`] admits its turns; [`llm`] is
//! the door to models, [`tool`] the door to tools; [`supervise`] keeps it all going.
#![forbid(unsafe_code)]

pub mod agent;
pub mod durable;
pub mod llm;
pub mod session;
pub mod supervise;
pub mod tool;
