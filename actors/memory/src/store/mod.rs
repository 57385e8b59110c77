//! Stores: they find what memories and conversations say about a text.
//!
//! A store is a projection of journals: of memories (their points) and of sessions (passages of their turns). It may
//! lag, be empty or be away, and it is never the truth. Each document is in one **scope**, which has the documents of one
//! entity. A search names the scopes that it may see; nothing else of the store has a part in it (MEM-1), not even by how
//! often a word occurs there.
//!
//! - [`MemoryStore`] is what every store does, and `conformance` the suite that each has to pass.
//! - [`LocalStore`] is in this process, with a file for each scope. A damaged file is removed and reported, and its
//!   scope is filled again from the journal.
//! - [`VectorStore`] is what a store also does whose documents can be found by their meaning.
//! - [`held`] ranks documents whose texts are elsewhere: stores that are servers have it in each process.
//! - [`passages`](passage::passages) cuts what was said into documents.
//! - [`score`] says how well a document fits, for every store in the same way.

#[cfg(any(test, feature = "test-util"))]
pub mod conformance;
pub mod contract;
pub mod document;
mod file;
pub mod held;
mod index;
pub mod local;
#[cfg(test)]
mod local_tests;
pub mod passage;
#[cfg(any(test, feature = "test-util"))]
pub mod quality;
mod ranking;
#[cfg(test)]
mod reference_tests;
mod resident;
pub mod score;
mod stem;
pub mod take_over;
pub(crate) mod vector_fill;
#[cfg(test)]
mod vector_fill_tests;
mod vectors;
pub mod words;

pub use contract::{FilledStore, MemoryStore, MemoryStoreError, RecallAnswer, StoreAway};
pub use document::{
    Document, DocumentBatch, DocumentId, DocumentKind, FoundDocument, RecallQuery, StoreScope,
};
pub use held::HeldIndex;
pub use local::LocalStore;
pub use vector_fill::{VectorFill, VectorStore};
