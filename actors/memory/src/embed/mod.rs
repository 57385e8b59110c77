//! Vectors of texts: what makes them, and those of queries, which are remembered.

mod bert_text;
mod embedder;
#[cfg(feature = "embed-local")]
mod local_model;
mod model_files;
mod queries;
mod static_model;
mod vector_table;
mod word_pieces;

pub(crate) use embedder::vectors;
pub use embedder::{BATCH, EmbedFault, TextEmbedder};
#[cfg(feature = "embed-local")]
pub use local_model::LocalModel;
pub use model_files::ModelFileError;
pub(crate) use queries::QueryVectors;
pub use static_model::StaticModel;
