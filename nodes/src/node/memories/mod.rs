//! Memories at a node: what performs their effects, and what `memory.…` answers.
//!
//! Answers are read from the journals of memories, and every change is an input for one. `view` decides without
//! I/O.

mod answers;
mod embedding_model;
mod folder_model;
mod forget;
mod qdrant;
mod runner;
mod search;
mod serving;
mod stats;
mod view;

pub use answers::MemoryAnswers;
pub use embedding_model::find_meaning;
pub use folder_model::{FolderModel, FolderModelFault, check as check_folder_model};
pub use qdrant::check as check_qdrant;
pub use runner::runner;
pub use serving::{begin, recall_store, store};
