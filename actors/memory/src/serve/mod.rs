//! Fills a store from journals, and answers from it.
//!
//! A [`ServedStore`] is the store of one process. [`fill_from_journals`](fill_from_journals::run) reads the feed of journals and puts what is
//! new: points of memories, and what was said in the conversations of agents that the configuration names. The store says
//! per scope up to which event it is filled, so whatever was lost is put again (C24, C28): a scope from its journal, the
//! whole store from the feed's beginning. No turn waits for that,
//! but for the memories that it searches, within the time of its search.
//!
//! A search asks the journals of its memories first. What the store lacks of them is put, and what is masked or superseded
//! is left out, whatever the store says (MEM-4).
//!
//! In a cluster without a server, the workers share the scopes of persons: the one that ranks first for a person searches
//! there for all. What it says, and what a server says, is compared with journals.
//!
//! With a model of embeddings, documents are put at once, and their vectors follow in the background.

mod document_vectors;
#[cfg(test)]
mod document_vectors_tests;
mod error;
pub mod fill_from_journals;
mod fill_locks;
mod fill_progress;
mod fill_sessions;
mod lacking_points;
mod remote_search;
#[cfg(test)]
mod remote_search_tests;
mod said;
mod scope_ranks;
mod search;
mod served;
#[cfg(test)]
mod served_tests;
mod vector_model;
mod waiting_inputs;
#[cfg(test)]
mod waiting_inputs_tests;

pub use document_vectors::MeaningState;
pub use error::FillError;
pub use fill_progress::{FillProgress, ScopeFill};
pub use served::ServedStore;
