//! The living: the durable kernel, and the domain on top of it.
//!
//! [`durable`] is the kernel: what an entity is, and the sans-I/O machines that own, fold, decide
//! and recover it. [`session`] is the first entity kind; [`agent`] admits its turns; [`llm`] is
//! the door to models.

pub mod llm;
pub mod session;
