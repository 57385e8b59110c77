//! Vectors of texts: what makes them, and those of queries, which are remembered.

mod bert_text;
mod embedder;
mod queries;
mod static_model;
mod vector_table;
mod word_pieces;

pub(crate) use embedder::vectors;
pub use embedder::{BATCH, EmbedFault, TextEmbedder};
pub(crate) use queries::QueryVectors;
pub use static_model::{StaticModel, StaticModelError};
