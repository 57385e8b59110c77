//! What agents remember: memories, and stores that find what is in them.
//!
//! A memory is an entity: what one agent knows of one peer or in general, or what agents share. Its journal is the
//! truth. A [`store`] is a projection of it; it may lag, be empty or be away; [`serve`] keeps it filled.

#![forbid(unsafe_code)]

pub mod embed;
pub mod extract;
pub mod points;
mod runner;
pub mod serve;
pub mod store;

pub use points::Memory;
pub use runner::MemoryRunner;
