//! The store: the index that answers, and another one that is built beside it if the model of vectors has changed.
//!
//! Each model has collections of its own. A store that finds another index than that of its model answers from that, by
//! words, until its own index has all that the other one has; then it goes over to its own and removes the other one. What
//! was put meanwhile is put from journals: the store has another identity then.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use async_trait::async_trait;
use clawnode_memory::store::{
    Document, DocumentBatch, DocumentId, FilledStore, MemoryStore, MemoryStoreError, RecallAnswer,
    RecallQuery, StoreAway, StoreScope, VectorFill, VectorStore,
};
use clawnode_proto::{EntityId, memory_view::IndexBuild};
use qdrant_client::qdrant::{DeleteCollection, ListCollectionsRequest};
use tokio::sync::Mutex as AsyncMutex;
use tonic::Code;
use tracing::{info, warn};

use crate::{
    connection::{QdrantConnection, QdrantOptions, said},
    index::ServerIndex,
    layout,
};

/// The store on a Qdrant server. Its clones are one store.
#[derive(Clone, Debug)]
pub struct QdrantStore {
    options: QdrantOptions,
    connection: QdrantConnection,
    /// The model of its vectors and how many numbers they have, 0 if that is not known yet.
    model: Option<(String, usize)>,
    shared: Arc<StoreIndexes>,
}

/// An index that may answer, and the others that nothing needs then.
struct ChosenIndex {
    index: ServerIndex,
    is_whole: bool,
    left_over: Vec<ServerIndex>,
}

/// Which index answers.
#[derive(Debug, Default)]
struct StoreIndexes {
    /// None until the server was asked which ones there are.
    active: RwLock<Option<ServerIndex>>,
    /// Another index answers by one change at a time.
    changing: AsyncMutex<()>,
    building: Mutex<Option<IndexBuild>>,
    /// Whether the server knows that the index of the model is whole.
    is_marked: AtomicBool,
    /// Whether a process with another model has put its index in the place of that of the model.
    is_replaced: AtomicBool,
}

// === impl StoreIndexes ===

impl StoreIndexes {
    fn known(&self) -> Option<ServerIndex> {
        self.active.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn answers(&self, index: ServerIndex) {
        *self.active.write().unwrap_or_else(PoisonError::into_inner) = Some(index);
    }

    fn set_building(&self, building: Option<IndexBuild>) {
        *self.building.lock().unwrap_or_else(PoisonError::into_inner) = building;
    }
}

// === impl QdrantStore ===

impl QdrantStore {
    /// The store at this server, for vectors of this model with so many numbers, 0 if that is not known yet. Refuses options
    /// that cannot be used, and asks the server nothing yet. Needs a runtime.
    pub fn new(
        options: &QdrantOptions,
        model: Option<(&str, usize)>,
    ) -> Result<Self, MemoryStoreError> {
        Ok(Self {
            options: options.clone(),
            connection: QdrantConnection::new(options)?,
            model: model.map(|(name, dimensions)| (name.to_owned(), dimensions)),
            shared: Arc::default(),
        })
    }

    /// Fails if the server cannot be used; says why. It removes nothing.
    pub async fn check(&self) -> Result<(), MemoryStoreError> {
        if let Some(active) = self.shared.known() {
            return active.server.ready().await;
        }
        let ChosenIndex { index, .. } = Box::pin(self.chosen()).await?;
        self.shared.answers(index.clone());
        index.server.ready().await
    }

    /// Where the server is.
    pub fn url(&self) -> &str {
        &self.connection.url
    }

    /// The index that answers.
    async fn active(&self) -> Result<ServerIndex, MemoryStoreError> {
        if let Some(active) = self.shared.known() {
            // It may be gone because another process has built one in its place.
            return match active.server.connection.away() {
                None => Ok(active),
                Some(_) if self.model.is_none() || self.is_own(&active) => {
                    self.whole_or(active).await
                }
                Some(_) => self.own_or(active).await,
            };
        }
        let _changing = self.shared.changing.lock().await;
        if let Some(active) = self.shared.known() {
            return Ok(active);
        }
        let chosen = Box::pin(self.chosen()).await?;
        Ok(self.go_on_with(chosen).await)
    }

    /// The index of the model, if another process has built it meanwhile; else the one that answers, which is known.
    async fn own_or(&self, active: ServerIndex) -> Result<ServerIndex, MemoryStoreError> {
        if self.model.is_none() || self.is_own(&active) {
            return Ok(active);
        }
        let chosen = Box::pin(self.chosen()).await?;
        Ok(if self.is_own(&chosen.index) { self.go_on_with(chosen).await } else { active })
    }

    /// The index that a process with another model has built and put in the place of the one that answers; else the one that
    /// answers, which is known. To make that one again would fill it from all journals, and make all vectors again until the
    /// other process starts the next time. Nothing is removed: others may build still.
    async fn whole_or(&self, active: ServerIndex) -> Result<ServerIndex, MemoryStoreError> {
        let ChosenIndex { index, is_whole, .. } = Box::pin(self.chosen()).await?;
        if !is_whole || index.server.documents == active.server.documents {
            return Ok(active);
        }
        if self.model.is_some() {
            let (own, other) = (&active.server.documents, &index.server.documents);
            warn!(own, other, "a process with another model of embeddings replaced the index");
            self.shared.is_replaced.store(true, Ordering::SeqCst);
        }
        self.shared.answers(index.clone());
        Ok(index)
    }

    /// Two processes with different models would remove each other's index for ever: the one that started last decides.
    fn replaced(&self) -> MemoryStoreError {
        let detail = "a node that started later has another model of embeddings, and memories are searched by their \
                      words here; give all nodes the same `[memory] embeddings`, then restart this one";
        MemoryStoreError::Unfit { url: self.connection.url.clone(), detail: detail.to_owned() }
    }

    async fn go_on_with(&self, chosen: ChosenIndex) -> ServerIndex {
        let ChosenIndex { index, left_over, .. } = chosen;
        self.shared.answers(index.clone());
        for other in left_over {
            self.remove(&other).await;
        }
        index
    }

    /// The index that answers first: that of the model, if it is whole or there is no other one. Without a model, one that is
    /// whole, or the one without vectors; then what is there only in part is left over.
    async fn chosen(&self) -> Result<ChosenIndex, MemoryStoreError> {
        let all = self.collections().await?;
        let mut found = Vec::new();
        for name in &all {
            let Some(dimensions) = layout::dimensions(&self.options.prefix, name) else { continue };
            let index = ServerIndex::new(&self.options, name.clone(), dimensions)?;
            let is_whole = all.contains(&index.server.state) && index.server.is_whole().await?;
            found.push((index, is_whole));
        }
        let is_alone = found.len() == 1;
        let own = found.iter().position(|(index, is_whole)| {
            self.model.is_some() && self.is_own(index) && (*is_whole || is_alone)
        });
        let is_other = |index: &ServerIndex| self.model.is_none() || !self.is_own(index);
        let whole = found.iter().position(|(index, is_whole)| *is_whole && is_other(index));
        let words = found.iter().position(|(index, _)| index.server.dimensions == 0);
        let any = found.iter().position(|(index, _)| is_other(index));
        let Some(answering) = own.or(whole).or(words).or(any) else { return self.first() };
        let (index, is_whole) = found.swap_remove(answering);
        let is_settled = own.is_some() || self.model.is_none();
        let left_over = found.into_iter().map(|(index, _)| index).filter(|_| is_settled).collect();
        Ok(ChosenIndex { index, is_whole, left_over })
    }

    /// The names of all collections of the server.
    async fn collections(&self) -> Result<BTreeSet<String>, MemoryStoreError> {
        let mut collections = self.connection.collections();
        let listed = self.connection.ask(collections.list(ListCollectionsRequest {})).await?;
        self.connection.works();
        Ok(listed.collections.into_iter().map(|collection| collection.name).collect())
    }

    /// The indexes beside this one, which a process builds or built. The server is asked each time: another process may
    /// have begun one, and a build that broke off goes on only when a node with its model starts.
    async fn beside(&self, active: &ServerIndex) -> Result<Vec<ServerIndex>, MemoryStoreError> {
        let all = self.collections().await?;
        let index = |name: &String| {
            let dimensions = layout::dimensions(&self.options.prefix, name)?;
            Some(ServerIndex::over(self.connection.clone(), name.clone(), dimensions))
        };
        let is_there = |other: &ServerIndex| {
            other.server.documents != active.server.documents && all.contains(&other.server.state)
        };
        Ok(all.iter().filter_map(index).filter(is_there).collect())
    }

    /// The index of a server that has none.
    fn first(&self) -> Result<ChosenIndex, MemoryStoreError> {
        let index = match &self.model {
            Some((name, dimensions)) if *dimensions > 0 => self.own(name, *dimensions)?,
            Some(_) | None => {
                let words = layout::collection(&self.options.prefix, None);
                ServerIndex::new(&self.options, words, 0)?
            }
        };
        Ok(ChosenIndex { index, is_whole: false, left_over: Vec::new() })
    }

    /// The index of a model.
    fn own(&self, model: &str, dimensions: usize) -> Result<ServerIndex, MemoryStoreError> {
        let name = layout::collection(&self.options.prefix, Some((model, dimensions)));
        ServerIndex::new(&self.options, name, dimensions)
    }

    /// Whether an index has vectors of the model or, without one, none.
    fn is_own(&self, index: &ServerIndex) -> bool {
        let dimensions = index.server.dimensions;
        let model = self.model.as_ref().map(|(name, _)| (name.as_str(), dimensions));
        layout::collection(&self.options.prefix, model) == index.server.documents
    }

    /// The index that answers, if it has vectors of the model.
    fn with_vectors(&self) -> Option<ServerIndex> {
        let has_model = self.model.is_some();
        self.shared.known().filter(|active| has_model && self.is_own(active))
    }

    /// Builds the index of the model beside the one that answers, and has it answer then.
    async fn go_over(
        &self,
        before: &ServerIndex,
        own: ServerIndex,
    ) -> Result<(), MemoryStoreError> {
        own.server.ready().await?;
        let scopes = before.scopes().await?;
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let parts = count(scopes.len());
        info!(parts, index = own.server.documents, "an index of another model is built");
        for (done, scope) in scopes.iter().enumerate() {
            self.shared.set_building(Some(IndexBuild { done: count(done), parts }));
            Box::pin(own.copy(before, scope)).await?;
        }
        own.server.is_whole_now().await?;
        info!(index = own.server.documents, "memories are found in the index of another model");
        self.shared.answers(own);
        self.remove(before).await;
        Ok(())
    }

    /// Removes the collections of an index that nothing needs. What is left over is removed when a node starts: it is known
    /// by the collection of documents, which goes last.
    async fn remove(&self, index: &ServerIndex) {
        for name in [&index.server.state, &index.server.documents] {
            let request = DeleteCollection { collection_name: name.clone(), timeout: None };
            let mut collections = self.connection.collections();
            let removed = self.connection.ask_plainly(collections.delete(request)).await;
            // Another process, or this one before it died, may have removed it.
            if let Err(status) = removed
                && status.code() != Code::NotFound
            {
                let failure = said(&status);
                warn!(failure, name, "the collection of another model is not removed yet");
                return;
            }
        }
    }
}

#[async_trait]
impl MemoryStore for QdrantStore {
    async fn put(&self, scope: &StoreScope, batch: DocumentBatch) -> Result<(), MemoryStoreError> {
        self.active().await?.put(scope, batch).await
    }

    async fn mask(&self, scope: &StoreScope, ids: &[DocumentId]) -> Result<(), MemoryStoreError> {
        let active = self.active().await?;
        active.mask(scope, ids).await?;
        if ids.is_empty() {
            return Ok(());
        }
        // MEM-4: the one that answers first. What is copied from it meanwhile is looked at again by its copier.
        for other in self.beside(&active).await? {
            other.mask_there(scope, ids).await?;
        }
        Ok(())
    }

    async fn search(
        &self,
        scopes: &[StoreScope],
        query: &RecallQuery,
        k: usize,
    ) -> Result<RecallAnswer, MemoryStoreError> {
        self.active().await?.search(scopes, query, k).await
    }

    async fn upto(&self, scope: &StoreScope) -> Result<u64, MemoryStoreError> {
        self.active().await?.upto(scope).await
    }

    async fn drop(&self, scope: &StoreScope) -> Result<(), MemoryStoreError> {
        let active = self.active().await?;
        active.drop(scope).await?;
        // MEM-4: in this order, as for what is masked.
        for other in self.beside(&active).await? {
            other.drop_there(scope).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl FilledStore for QdrantStore {
    fn name(&self) -> &'static str {
        "qdrant"
    }

    async fn scope_of(&self, entity: EntityId) -> Result<Option<StoreScope>, MemoryStoreError> {
        self.active().await?.scope_of(entity).await
    }

    async fn sync(&self, entities: &BTreeSet<EntityId>) -> Result<(), MemoryStoreError> {
        self.active().await?.sync(entities).await
    }

    async fn look_again(&self) -> Result<(), MemoryStoreError> {
        self.active().await?.look_again().await
    }

    async fn identity(&self) -> Result<String, MemoryStoreError> {
        self.active().await?.identity().await
    }

    fn away(&self) -> Option<StoreAway> {
        let active = self.shared.known();
        active.map_or_else(|| self.connection.away(), |active| active.server.connection.away())
    }
}

#[async_trait]
impl VectorStore for QdrantStore {
    fn dimensions(&self) -> usize {
        self.with_vectors().map_or(0, |index| index.server.dimensions)
    }

    async fn learn_dimensions(&self, found: usize) -> Result<(), MemoryStoreError> {
        let Some((name, configured)) = &self.model else {
            return Err(MemoryStoreError::Dimensions { found, expected: 0 });
        };
        self.active().await?;
        let _changing = self.shared.changing.lock().await;
        // From here on one is known, so this does not wait for the lock.
        let before = self.active().await?;
        let before = self.own_or(before).await?;
        let is_own = self.is_own(&before);
        let expected = if is_own { before.server.dimensions } else { *configured };
        if found == 0 || expected > 0 && found != expected {
            return Err(MemoryStoreError::Dimensions { found, expected });
        }
        if is_own {
            // Once in each process: an index that answered from the beginning is whole, too.
            if !self.shared.is_marked.load(Ordering::SeqCst) {
                before.server.ready().await?;
                before.server.is_whole_now().await?;
                self.shared.is_marked.store(true, Ordering::SeqCst);
            }
            return Ok(());
        }
        if self.shared.is_replaced.load(Ordering::SeqCst) {
            return Err(self.replaced());
        }
        // Boxed: it is rare, and large.
        let built = Box::pin(self.go_over(&before, self.own(name, found)?)).await;
        self.shared.set_building(None);
        built
    }

    fn building(&self) -> Option<IndexBuild> {
        *self.shared.building.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn scopes(&self) -> Result<Vec<StoreScope>, MemoryStoreError> {
        let active = self.active().await?;
        self.own_or(active).await?.scopes().await
    }

    async fn vector_fill(&self, scope: &StoreScope) -> Result<VectorFill, MemoryStoreError> {
        let active = self.active().await?;
        let fill = active.vector_fill(scope).await?;
        Ok(if self.is_own(&active) { fill } else { VectorFill { vectors: 0, ..fill } })
    }

    /// In the index of another model, all documents lack the vectors of this one.
    async fn bare(
        &self,
        scope: &StoreScope,
        most: usize,
    ) -> Result<Vec<Document>, MemoryStoreError> {
        let active = self.active().await?;
        active.bare(scope, most, !self.is_own(&active)).await
    }

    async fn give_vectors(
        &self,
        scope: &StoreScope,
        made: Vec<(Document, Vec<f32>)>,
    ) -> Result<(), MemoryStoreError> {
        match self.with_vectors() {
            Some(index) => index.give_vectors(scope, made).await,
            None => Ok(()),
        }
    }

    async fn keep_vectors(
        &self,
        scope: &StoreScope,
        batch: DocumentBatch,
    ) -> Result<DocumentBatch, MemoryStoreError> {
        match self.with_vectors() {
            Some(index) => index.keep_vectors(scope, batch).await,
            None => Ok(batch),
        }
    }
}
