//! Memories at a node: what performs their effects, and what `memory.…` answers.
//!
//! Answers are read from the journals of memories, and every change is an input for one. `listed_points` decides without
//! I/O.

mod embedding_model;
mod folder_model;
mod forget;
mod listed_points;
mod memory_answers;
mod memory_search;
mod memory_stats;
mod qdrant;
mod runner;
mod serving;

pub use embedding_model::find_meaning;
pub use folder_model::{FolderModel, FolderModelFault, check as check_folder_model};
pub use memory_answers::MemoryAnswers;
pub use qdrant::check as check_qdrant;
pub use runner::runner;
pub use serving::{begin, recall_store, store};
