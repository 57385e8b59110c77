//! What makes vectors.

use std::fmt;

use async_trait::async_trait;

/// Texts of one batch that an embedder takes at most.
pub const BATCH: usize = 96;

/// A model that makes vectors of texts, all with as many numbers. Texts that mean the like have vectors in about the same
/// direction; how long a vector is says nothing.
#[async_trait]
pub trait TextEmbedder: Send + Sync + fmt::Debug {
    /// Its name. What has another name makes other vectors.
    fn model(&self) -> &str;

    /// The vectors of at most [`BATCH`] texts, in their order. It ends by itself within minutes.
    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedFault>;
}

/// Why there are no vectors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmbedFault {
    /// The model did not make them.
    #[error("the model of embeddings made no vectors: {0}")]
    Failed(String),
    /// It answered with something else.
    #[error("the model of embeddings answered with {found} vectors for {texts} texts")]
    Count {
        /// Vectors of the answer.
        found: usize,
        /// Texts that it was asked for.
        texts: usize,
    },
}

/// The vectors of these texts, one for each.
pub(crate) async fn vectors(
    embedder: &dyn TextEmbedder,
    texts: Vec<String>,
) -> Result<Vec<Vec<f32>>, EmbedFault> {
    let count = texts.len();
    let made = embedder.embed(texts).await?;
    if made.len() == count {
        Ok(made)
    } else {
        Err(EmbedFault::Count { found: made.len(), texts: count })
    }
}
