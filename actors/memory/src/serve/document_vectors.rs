//! Gives documents of a served store their vectors, in the background, and queries theirs while they are searched.
//!
//! A document is put at once and found by its words; its vector follows. What the model cannot make now is tried again,
//! after a wait that grows to five minutes. Nothing else waits for it.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use clawnode_cluster::Backoff;
use clawnode_proto::{ErrorChain, memory_view::IndexBuild};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use super::{
    served::ServedStore,
    vector_model::{MeantQuery, StoreMeaning},
};
use crate::{
    embed::{self, BATCH, EmbedFault, TextEmbedder},
    store::{
        Document, MemoryStoreError, RecallQuery, StoreScope, VectorFill, document::QUERY_CHARS,
    },
};

/// How often new documents are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// The first and the longest wait after the model failed.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(5));
/// Documents of a scope that are read at once.
const PAGE: usize = 1_024;

/// How well a store finds documents by their meaning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeaningState {
    /// The model of its vectors.
    pub model: String,
    /// Numbers of a vector; 0 if none was made yet.
    pub dimensions: usize,
    /// Why the last try to make vectors failed, if it did.
    pub failure: Option<String>,
    /// How far the index of the model is, while it is built beside the one that answers.
    pub building: Option<IndexBuild>,
}

/// A document without a vector, and its scope.
#[derive(Debug)]
struct BareDocument {
    scope: StoreScope,
    document: Document,
}

/// Why documents got no vectors.
#[derive(Debug, thiserror::Error)]
pub(super) enum VectorFault {
    #[error(transparent)]
    Embed(#[from] EmbedFault),
    #[error(transparent)]
    Store(#[from] MemoryStoreError),
}

// === impl ServedStore ===

impl ServedStore {
    /// Has this model find documents by their meaning, too. It makes the vectors that the store was opened for. A second
    /// model is not taken, nor one for a store that has no vectors.
    pub fn finds_meaning(&self, embedder: Arc<dyn TextEmbedder>) {
        let Some(store) = self.shared.vectors.clone() else {
            warn!("this store of memories finds nothing by its meaning");
            return;
        };
        let meaning = StoreMeaning::new(embedder, store);
        if self.shared.meaning.set(meaning).is_err() {
            debug!("the store of memories has a model of embeddings already");
        }
    }

    /// How well it finds documents by their meaning; none if it finds them by their words alone.
    pub fn meaning_state(&self) -> Option<MeaningState> {
        let meaning = self.shared.meaning.get()?;
        let failure = meaning.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let model = meaning.embedder.model().to_owned();
        let (dimensions, building) = (meaning.store.dimensions(), meaning.store.building());
        Some(MeaningState { model, dimensions, failure, building })
    }

    /// How many documents of a scope have a vector; none without a model.
    pub async fn vector_fill(&self, scope: &StoreScope) -> Result<VectorFill, MemoryStoreError> {
        let Some(meaning) = self.shared.meaning.get() else { return Ok(VectorFill::default()) };
        meaning.store.vector_fill(scope).await
    }

    /// Documents were put into this scope.
    pub(super) fn lacks_vectors(&self, scope: &StoreScope) {
        if let Some(meaning) = self.shared.meaning.get() {
            meaning.add(scope);
        }
    }

    /// A query with its vector, if that is there in time.
    pub(super) async fn meant(&self, query: &RecallQuery) -> MeantQuery {
        let query = query.clone();
        let Some(meaning) = self.shared.meaning.get().filter(|_| query.embedding.is_none()) else {
            return MeantQuery { query, is_degraded: false };
        };
        let is_whole = meaning.is_whole.load(Ordering::SeqCst);
        let dimensions = meaning.store.dimensions();
        let text: String = query.text.chars().take(QUERY_CHARS).collect();
        // Before the first document has a vector, there is nothing to compare with.
        if dimensions == 0 || text.trim().is_empty() {
            return MeantQuery { query, is_degraded: !is_whole };
        }
        let vector = meaning.queries.vector(&meaning.embedder, &text, query.meaning_within).await;
        let embedding = vector.filter(|vector| vector.len() == dimensions);
        let is_degraded = !is_whole || embedding.is_none();
        MeantQuery { query: RecallQuery { embedding, ..query }, is_degraded }
    }

    /// Gives documents their vectors, for ever. It ends at once if there is no model.
    pub(super) async fn make_vectors(&self) {
        let Some(meaning) = self.shared.meaning.get() else { return };
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        let mut look = interval(LOOK);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            look.tick().await;
            match self.vector_round(meaning).await {
                Ok(()) => {
                    meaning.set_failure(None);
                    backoff = Backoff::new(AGAIN.0, AGAIN.1);
                }
                Err(failure) => {
                    let failure = ErrorChain(&failure).to_string();
                    if backoff.tries() == 0 {
                        warn!(
                            failure,
                            "memories are searched by their words until there are vectors"
                        );
                    } else {
                        debug!(failure, "vectors are made later");
                    }
                    meaning.set_failure(Some(failure));
                    look.reset_after(backoff.next(&mut rand::rng()));
                }
            }
        }
    }

    /// Makes the vectors that are lacking. After a failure, what is lacking is looked for again.
    pub(super) async fn vector_round(&self, meaning: &StoreMeaning) -> Result<(), VectorFault> {
        let new = meaning.take_new();
        // Read after them: what is put meanwhile is among them, or is looked at.
        let is_all = meaning.is_all_new.swap(false, Ordering::SeqCst);
        let made = if is_all {
            self.all_vectors(meaning).await
        } else {
            self.vectors_of(meaning, new.iter().cloned()).await
        };
        if made.is_err() {
            meaning.is_whole.store(false, Ordering::SeqCst);
            if is_all {
                meaning.is_all_new.store(true, Ordering::SeqCst);
            }
            for scope in &new {
                meaning.add(scope);
            }
        } else if is_all && !meaning.is_whole.swap(true, Ordering::SeqCst) {
            info!(model = meaning.embedder.model(), "memories are found by their meaning");
        } else {
            meaning.is_whole.store(true, Ordering::SeqCst);
        }
        made
    }

    /// Looks at all scopes that the store has.
    async fn all_vectors(&self, meaning: &StoreMeaning) -> Result<(), VectorFault> {
        let scopes = meaning.store.scopes().await?;
        self.vectors_of(meaning, scopes.into_iter()).await
    }

    /// Makes the vectors that these scopes lack, for documents of several scopes together.
    async fn vectors_of(
        &self,
        meaning: &StoreMeaning,
        scopes: impl Iterator<Item = StoreScope>,
    ) -> Result<(), VectorFault> {
        let mut waiting: Vec<BareDocument> = Vec::new();
        for scope in scopes {
            loop {
                let found = match meaning.store.bare(&scope, PAGE).await {
                    // It is filled again, and its documents are new then.
                    Err(MemoryStoreError::Damaged { scope, .. }) => {
                        self.mark_damaged(&[scope]);
                        Vec::new()
                    }
                    found => found?,
                };
                let is_more = found.len() == PAGE;
                let bare = |document| BareDocument { scope: scope.clone(), document };
                waiting.extend(found.into_iter().map(bare));
                while waiting.len() >= BATCH || is_more && !waiting.is_empty() {
                    let rest = waiting.split_off(BATCH.min(waiting.len()));
                    self.give(meaning, std::mem::replace(&mut waiting, rest)).await?;
                }
                if !is_more {
                    break;
                }
            }
        }
        if waiting.is_empty() { Ok(()) } else { self.give(meaning, waiting).await }
    }

    /// Makes the vectors of one batch, and gives them to its documents.
    async fn give(
        &self,
        meaning: &StoreMeaning,
        bare: Vec<BareDocument>,
    ) -> Result<(), VectorFault> {
        let texts = bare.iter().map(|bare| bare.document.text.clone()).collect();
        let made = embed::vectors(meaning.embedder.as_ref(), texts).await?;
        let length = made.first().map_or(0, Vec::len);
        meaning.store.learn_dimensions(length).await?;
        let mut by_scope: BTreeMap<StoreScope, Vec<(Document, Vec<f32>)>> = BTreeMap::new();
        for (BareDocument { scope, document }, vector) in bare.into_iter().zip(made) {
            by_scope.entry(scope).or_default().push((document, vector));
        }
        for (scope, made) in by_scope {
            match meaning.store.give_vectors(&scope, made).await {
                Err(MemoryStoreError::Damaged { scope, .. }) => self.mark_damaged(&[scope]),
                given => given?,
            }
        }
        Ok(())
    }
}
