//! Vectors of queries. They are remembered, because the calls of a turn and the turns after it often ask for the same.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::sync::{OnceCell, Semaphore};
use tracing::debug;

use super::embedder::{TextEmbedder, vectors};

/// Queries whose vectors are remembered, up to twice as many: 32 KiB each at most.
const REMEMBERED: usize = 256;
/// Queries whose vectors are made at the same time. Further ones are searched by their words.
const AT_ONCE: usize = 16;

/// The vector of a query, once it is made.
type QueryVector = Arc<OnceCell<Vec<f32>>>;

/// The vectors of the queries that were asked last.
#[derive(Debug)]
pub(crate) struct QueryVectors {
    recent: Mutex<RecentQueries>,
    room: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct RecentQueries {
    young: HashMap<blake3::Hash, QueryVector>,
    old: HashMap<blake3::Hash, QueryVector>,
}

// === impl QueryVectors ===

impl QueryVectors {
    pub(crate) fn new() -> Self {
        Self { recent: Mutex::default(), room: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// The vector of a text, if it is there within this time. What comes later is remembered for the next one who asks.
    pub(crate) async fn vector(
        &self,
        embedder: &Arc<dyn TextEmbedder>,
        text: &str,
        within: Duration,
    ) -> Option<Vec<f32>> {
        let cell = self.cell(text);
        if let Some(known) = cell.get() {
            return Some(known.clone());
        }
        let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else { return None };
        let (embedder, text) = (Arc::clone(embedder), text.to_owned());
        // Detached: it is made to the end, whether its search waits or not.
        let making = tokio::spawn(async move {
            let _permit = permit;
            let make = async || {
                let mut made = vectors(embedder.as_ref(), vec![text]).await?;
                Ok::<_, super::EmbedFault>(made.pop().unwrap_or_default())
            };
            match cell.get_or_try_init(make).await {
                Ok(vector) => Some(vector.clone()),
                Err(failure) => {
                    debug!(%failure, "a query is searched by its words alone");
                    None
                }
            }
        });
        tokio::time::timeout(within, making).await.ok()?.ok().flatten()
    }

    fn cell(&self, text: &str) -> QueryVector {
        let digest = blake3::hash(text.as_bytes());
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let known = recent.young.get(&digest).cloned().or_else(|| recent.old.remove(&digest));
        let cell = known.unwrap_or_default();
        if recent.young.len() >= REMEMBERED {
            recent.old = std::mem::take(&mut recent.young);
        }
        recent.young.insert(digest, Arc::clone(&cell));
        cell
    }
}
