//! Memories at a node: what performs their effects, and what `memory.…` answers.
//!
//! Answers are read from the journals of memories, and every change is an input for one. `view` decides without
//! I/O.

mod answers;
mod forget;
mod runner;
mod view;

pub use answers::MemoryAnswers;
pub use runner::runner;
