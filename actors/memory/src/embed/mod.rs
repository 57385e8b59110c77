//! Vectors of texts: what makes them, and those of queries, which are remembered.

mod embedder;
mod queries;

pub(crate) use embedder::vectors;
pub use embedder::{BATCH, EmbedFault, TextEmbedder};
pub(crate) use queries::QueryVectors;
