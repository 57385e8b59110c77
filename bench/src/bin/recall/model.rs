//! Vectors of the sets, by a model in this process, as a node makes them.

use std::{
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use clawnode_bench::{Error, Row, percentile};
use clawnode_memory::{
    embed::{BATCH, EmbedFault, StaticModel, TextEmbedder},
    store::{Document, document::QUERY_CHARS},
};
use tokio::runtime::Runtime;

use crate::ways::AskedSet;

const MICROSECONDS: f64 = 1_000_000.0;

/// What a model in a folder is, as `memory.embeddings` of the configuration calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ModelSort {
    /// A vector for each token
    Static,
    /// A sentence encoder
    Local,
}

/// A model that was read from a folder.
pub(crate) struct SetModel {
    embedder: Arc<dyn TextEmbedder>,
    runtime: Runtime,
}

// === impl SetModel ===

impl SetModel {
    pub(crate) fn open(folder: &Path, sort: ModelSort) -> Result<Self, Error> {
        let embedder: Arc<dyn TextEmbedder> = match sort {
            ModelSort::Static => Arc::new(StaticModel::open(folder)?),
            ModelSort::Local => local(folder)?,
        };
        Ok(Self { embedder, runtime: Runtime::new()? })
    }

    /// Gives the documents and the queries of a set their vectors; says how long that took. Documents are embedded in
    /// batches, and queries one by one, as a node does it.
    pub(crate) fn embed(&self, name: &str, asked: &mut AskedSet) -> Result<Row, Error> {
        let conversations = asked.set.conversations.iter_mut();
        let mut documents: Vec<&mut Document> =
            conversations.flat_map(|conversation| &mut conversation.documents).collect();
        let mut filling = Duration::ZERO;
        for batch in documents.chunks_mut(BATCH) {
            let texts = batch.iter().map(|document| document.text.clone()).collect();
            let began = Instant::now();
            let made = self.vectors(texts)?;
            filling += began.elapsed();
            for (document, vector) in batch.iter_mut().zip(made) {
                document.embedding = Some(vector);
            }
        }
        let passages = f64::from(u32::try_from(documents.len())?);
        let mut times = Vec::with_capacity(asked.queries.len());
        for query in &mut asked.queries {
            let text = query.text.chars().take(QUERY_CHARS).collect();
            let began = Instant::now();
            query.embedding = self.vectors(vec![text])?.pop();
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let query = |of_1000| percentile(&times, of_1000).as_secs_f64() * MICROSECONDS;
        Ok(Row::new(format!("recall::embed/{name}"))
            .figure("passages", passages)
            .figure("passage_us", filling.as_secs_f64() * MICROSECONDS / passages.max(1.0))
            .figure("query_p50_us", query(500))
            .figure("query_p99_us", query(990)))
    }

    fn vectors(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, Error> {
        let count = texts.len();
        let made = self.runtime.block_on(self.embedder.embed(texts))?;
        if made.len() == count {
            Ok(made)
        } else {
            Err(EmbedFault::Count { found: made.len(), texts: count }.into())
        }
    }
}

#[cfg(feature = "embed-local")]
fn local(folder: &Path) -> Result<Arc<dyn TextEmbedder>, Error> {
    Ok(Arc::new(clawnode_memory::embed::LocalModel::open(folder)?))
}

#[cfg(not(feature = "embed-local"))]
fn local(_folder: &Path) -> Result<Arc<dyn TextEmbedder>, Error> {
    Err("this bench has no model `local`: build it with `--features embed-local`".into())
}
