//! One index on the server: the documents with the vectors of one model, or without vectors. It is a store, too.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use clawnode_cluster::Backoff;
use clawnode_memory::store::{
    Document, DocumentBatch, DocumentId, FilledStore, FoundDocument, MemoryStore, MemoryStoreError,
    RecallAnswer, RecallQuery, StoreAway, StoreScope,
    document::{QUERY_SCOPES, SCOPE_DOCUMENTS},
    held::{self, HeldHit},
};
use clawnode_proto::EntityId;
use qdrant_client::qdrant::{PointId, PointStruct};
use tracing::debug;

use crate::{
    cache::ScopeCache,
    connection::{QdrantConnection, QdrantOptions},
    layout::{self, PointNumber, key},
    server::{ServerPoints, WantedParts},
    state::ScopeState,
};

/// How often a change begins again that another process was faster than.
const RACES: u32 = 16;
/// The first and the longest wait before that.
const RACE_WAIT: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// An index on a Qdrant server. Its clones are one index.
#[derive(Clone, Debug)]
pub(crate) struct ServerIndex {
    pub(crate) server: ServerPoints,
    pub(crate) cache: Arc<ScopeCache>,
}

/// Which documents of a batch are put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PutChoice {
    /// Those that are new or changed.
    Changed,
    /// Those that are there with the same text: they get a vector.
    Vectors,
}

/// The points of these documents.
fn document_points(
    scope: &StoreScope,
    generation: &str,
    ids: &BTreeSet<DocumentId>,
) -> Vec<PointId> {
    ids.iter().map(|id| PointNumber::of_document(scope, generation, *id).id()).collect()
}

/// Another process was faster: lets it go on.
async fn wait(backoff: &mut Backoff) {
    let wait = backoff.next(&mut rand::rng());
    tokio::time::sleep(wait).await;
}

/// The documents of a batch that are put.
struct NewPoints {
    points: BTreeMap<DocumentId, PointStruct>,
    /// The digests of those that the server has, and that they replace.
    seen: Vec<u128>,
}

/// How a change ended.
enum Changed {
    Done,
    /// Another process changed the scope meanwhile: it begins again.
    Raced,
}

// === impl PutChoice ===

impl PutChoice {
    /// Whether a document with the digest `own` is written, where the server has `there`.
    fn takes(self, there: Option<u128>, own: u128) -> bool {
        let is_same_text = there.is_some_and(|there| layout::is_same_text(there, own));
        match self {
            // A vector that is there already stays.
            Self::Changed if is_same_text && !layout::has_vector(own) => false,
            Self::Changed => there != Some(own),
            Self::Vectors => is_same_text && there != Some(own),
        }
    }
}

// === impl ServerIndex ===

impl ServerIndex {
    /// The index in these collections, for vectors with so many numbers, 0 for none. Refuses options that cannot be used,
    /// and asks the server nothing yet. Needs a runtime.
    pub(crate) fn new(
        options: &QdrantOptions,
        documents: String,
        dimensions: usize,
    ) -> Result<Self, MemoryStoreError> {
        Ok(Self::over(QdrantConnection::new(options)?, documents, dimensions))
    }

    /// The same over a connection that is there.
    pub(crate) fn over(connection: QdrantConnection, documents: String, dimensions: usize) -> Self {
        let state = layout::state(&documents);
        let server = ServerPoints { connection, documents, state, dimensions };
        Self { server, cache: Arc::default() }
    }

    fn raced(&self, scope: &StoreScope) -> MemoryStoreError {
        let detail = format!("other processes change `{scope}` all the time");
        MemoryStoreError::Away { url: self.server.connection.url.clone(), detail }
    }

    // === Putting ===

    /// Puts documents of a batch, however many processes do that.
    pub(crate) async fn put_chosen(
        &self,
        scope: &StoreScope,
        batch: DocumentBatch,
        choice: PutChoice,
    ) -> Result<(), MemoryStoreError> {
        for document in &batch.documents {
            MemoryStoreError::check(document, self.server.dimensions)?;
        }
        self.server.ready().await?;
        let (mut has_written, mut backoff) = (false, Backoff::new(RACE_WAIT.0, RACE_WAIT.1));
        while backoff.tries() < RACES {
            match self.put_once(scope, &batch, choice, &mut has_written).await? {
                Changed::Done => return Ok(()),
                Changed::Raced => debug!(%scope, "another process fills it, too"),
            }
            wait(&mut backoff).await;
        }
        Err(self.raced(scope))
    }

    async fn put_once(
        &self,
        scope: &StoreScope,
        batch: &DocumentBatch,
        choice: PutChoice,
        has_written: &mut bool,
    ) -> Result<Changed, MemoryStoreError> {
        let server = &self.server;
        let old = server.state_of(scope).await?;
        if batch.after > old.upto {
            let (upto, after) = (old.upto, batch.after);
            return Err(MemoryStoreError::Behind { scope: scope.clone(), upto, after });
        }
        if old.upto == 0 {
            // What a process left that died while it dropped the scope.
            server.sweep(scope, &old.stale).await?;
        }
        let NewPoints { points: new, seen } =
            self.new_points(scope, &old, &batch.documents, choice).await?;
        if new.is_empty() && !*has_written && batch.upto <= old.upto {
            return Ok(Changed::Done);
        }
        let ids: Vec<DocumentId> = new.keys().copied().collect();
        *has_written |= !new.is_empty();
        // A vector changes nothing else of its document: one that was put meanwhile, by whichever process, stays. It gets its
        // vector from the process that put it.
        let only = (choice == PutChoice::Vectors).then(|| layout::as_seen(&seen));
        server.put(&server.documents, new.into_values().collect(), only).await?;
        // Those that were masked meanwhile go again.
        let masked = server.masked_of(scope, &old.generation, ids.into_iter()).await?;
        self.remove(scope, &old.generation, &masked).await?;
        let filled = old.filled(batch.upto);
        let now = server.change(scope, &old, &filled).await?;
        if now.token == filled.token {
            return Ok(Changed::Done);
        }
        if now.generation != old.generation {
            server.sweep(scope, std::slice::from_ref(&old.generation)).await?;
        }
        Ok(Changed::Raced)
    }

    /// The documents that the server does not have as they are, and that are not masked.
    async fn new_points(
        &self,
        scope: &StoreScope,
        state: &ScopeState,
        documents: &[Document],
        choice: PutChoice,
    ) -> Result<NewPoints, MemoryStoreError> {
        let (server, generation) = (&self.server, state.generation.as_str());
        let mut new = BTreeMap::new();
        for document in documents {
            let point = layout::of_document(scope, generation, document).map_err(|failure| {
                let detail = format!("a document cannot be written: {failure}");
                MemoryStoreError::Away { url: server.connection.url.clone(), detail }
            })?;
            new.insert(document.id, point);
        }
        let masked = server.masked_of(scope, generation, new.keys().copied()).await?;
        new.retain(|id, _| !masked.contains(id));
        let numbers = new.keys().map(|id| PointNumber::of_document(scope, generation, *id));
        let ids: Vec<PointId> = numbers.map(PointNumber::id).collect();
        let wanted = WantedParts::Only(key::DIGEST);
        let known = server.get(&server.documents, &ids, wanted).await?;
        let known: BTreeMap<PointNumber, u128> = known
            .iter()
            .filter_map(|point| Some((PointNumber::read(point)?, layout::digest(&point.payload)?)))
            .collect();
        let (mut further, mut seen) = (0, Vec::new());
        new.retain(|id, point| {
            let number = PointNumber::of_document(scope, generation, *id);
            let there = known.get(&number).copied();
            further += usize::from(there.is_none());
            let own = layout::digest(&point.payload);
            let is_taken = own.is_some_and(|own| choice.takes(there, own));
            seen.extend(there.filter(|_| is_taken));
            is_taken
        });
        self.check_room(scope, generation, further).await?;
        Ok(NewPoints { points: new, seen })
    }

    /// Refuses more documents, also masked ones, than a scope may have.
    async fn check_room(
        &self,
        scope: &StoreScope,
        generation: &str,
        further: usize,
    ) -> Result<(), MemoryStoreError> {
        if further == 0 {
            return Ok(());
        }
        let own = layout::in_generations(scope, &[generation.to_owned()]);
        let documents = self.server.count(&self.server.documents, own).await?;
        let masked = self.server.count_masked(scope, generation).await?;
        if documents + masked + further > SCOPE_DOCUMENTS {
            return Err(MemoryStoreError::Full { scope: scope.clone() });
        }
        Ok(())
    }

    // === Masking and dropping ===

    /// As [`MemoryStore::mask`]. The collections are there: if they are not, this does not make them.
    pub(crate) async fn mask_there(
        &self,
        scope: &StoreScope,
        ids: &[DocumentId],
    ) -> Result<(), MemoryStoreError> {
        let ids: BTreeSet<DocumentId> = ids.iter().copied().collect();
        let mut backoff = Backoff::new(RACE_WAIT.0, RACE_WAIT.1);
        while backoff.tries() < RACES {
            if let Changed::Done = self.mask_once(scope, &ids).await? {
                return Ok(());
            }
            wait(&mut backoff).await;
        }
        Err(self.raced(scope))
    }

    /// As [`MemoryStore::drop`]. The collections are there: if they are not, this does not make them.
    pub(crate) async fn drop_there(&self, scope: &StoreScope) -> Result<(), MemoryStoreError> {
        let mut backoff = Backoff::new(RACE_WAIT.0, RACE_WAIT.1);
        while backoff.tries() < RACES {
            let old = self.server.state_of(scope).await?;
            let dropped = old.dropped();
            let now = self.server.change(scope, &old, &dropped).await?;
            // Either this process dropped it, or another one has since.
            if now.generation != old.generation {
                return self.server.sweep(scope, &now.stale).await;
            }
            wait(&mut backoff).await;
        }
        Err(self.raced(scope))
    }

    async fn mask_once(
        &self,
        scope: &StoreScope,
        ids: &BTreeSet<DocumentId>,
    ) -> Result<Changed, MemoryStoreError> {
        let server = &self.server;
        let old = server.state_of(scope).await?;
        let known = server.masked_of(scope, &old.generation, ids.iter().copied()).await?;
        let new: BTreeSet<DocumentId> = ids.difference(&known).copied().collect();
        let points = document_points(scope, &old.generation, &new);
        let wanted = WantedParts::Only(key::DIGEST);
        let there = server.get(&server.documents, &points, wanted).await?.len();
        self.check_room(scope, &old.generation, new.len().saturating_sub(there)).await?;
        server.mask(scope, &old.generation, &new).await?;
        self.remove(scope, &old.generation, ids).await?;
        let changed = old.filled(0);
        let now = server.change(scope, &old, &changed).await?;
        Ok(if now.token == changed.token { Changed::Done } else { Changed::Raced })
    }

    async fn remove(
        &self,
        scope: &StoreScope,
        generation: &str,
        ids: &BTreeSet<DocumentId>,
    ) -> Result<(), MemoryStoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        let points = document_points(scope, generation, ids);
        self.server.remove(&self.server.documents, points).await
    }

    // === Searching ===

    /// Reads the documents that fit best.
    async fn read(
        &self,
        asked: &[(&StoreScope, ScopeState)],
        query: &RecallQuery,
        hits: Vec<HeldHit>,
    ) -> Result<Vec<FoundDocument>, MemoryStoreError> {
        let number = |hit: &HeldHit| {
            let (scope, state) = asked.get(hit.index)?;
            Some(PointNumber::of_document(scope, &state.generation, hit.id))
        };
        let ids: Vec<PointId> = hits.iter().filter_map(number).map(PointNumber::id).collect();
        let points = self.server.get(&self.server.documents, &ids, WantedParts::Payload).await?;
        let found = |hit: HeldHit| {
            let (scope, state) = asked.get(hit.index)?;
            let own = number(&hit)?;
            let point = points.iter().find(|point| PointNumber::read(point) == Some(own))?;
            // MEM-1: what is not of this scope is not given, whatever the server says.
            let document = layout::document(point, scope, &state.generation)?;
            let is_asked = query.admits(document.kind, document.trust);
            let scope = (*scope).clone();
            is_asked.then_some(FoundDocument { scope, document, score: hit.score })
        };
        Ok(hits.into_iter().filter_map(found).collect())
    }
}

#[async_trait]
impl MemoryStore for ServerIndex {
    async fn put(&self, scope: &StoreScope, batch: DocumentBatch) -> Result<(), MemoryStoreError> {
        self.put_chosen(scope, batch, PutChoice::Changed).await
    }

    async fn mask(&self, scope: &StoreScope, ids: &[DocumentId]) -> Result<(), MemoryStoreError> {
        if ids.is_empty() {
            return Ok(());
        }
        self.server.ready().await?;
        self.mask_there(scope, ids).await
    }

    async fn search(
        &self,
        scopes: &[StoreScope],
        query: &RecallQuery,
        k: usize,
    ) -> Result<RecallAnswer, MemoryStoreError> {
        let scopes: BTreeSet<&StoreScope> = scopes.iter().collect();
        if scopes.len() > QUERY_SCOPES {
            return Err(MemoryStoreError::Scopes { found: scopes.len() });
        }
        if let Some(vector) = &query.embedding {
            MemoryStoreError::check_dimensions(vector, self.server.dimensions)?;
        }
        self.server.ready().await?;
        // In order: two searches that wait for each other's scopes would wait for ever.
        let scopes: Vec<&StoreScope> = scopes.into_iter().collect();
        let states = self.server.states(&scopes).await?;
        let asked: Vec<(&StoreScope, ScopeState)> = scopes.into_iter().zip(states).collect();
        let mut indexes = Vec::with_capacity(asked.len());
        for (scope, state) in &asked {
            indexes.push(self.cache.current(&self.server, scope, state).await?);
        }
        let asked_for = query.clone();
        let ranked = tokio::task::spawn_blocking(move || {
            let indexes: Vec<_> = indexes.iter().map(|indexed| &indexed.index).collect();
            held::rank(&indexes, &asked_for, k)
        });
        let hits = ranked.await.map_err(|_ended| MemoryStoreError::Closed)?;
        let found = self.read(&asked, query, hits).await?;
        let upto = asked.iter().map(|(scope, state)| ((*scope).clone(), state.upto)).collect();
        Ok(RecallAnswer { found, damaged: Vec::new(), upto })
    }

    async fn upto(&self, scope: &StoreScope) -> Result<u64, MemoryStoreError> {
        self.server.ready().await?;
        Ok(self.server.state_of(scope).await?.upto)
    }

    async fn drop(&self, scope: &StoreScope) -> Result<(), MemoryStoreError> {
        self.server.ready().await?;
        self.drop_there(scope).await
    }
}

#[async_trait]
impl FilledStore for ServerIndex {
    fn name(&self) -> &'static str {
        "qdrant"
    }

    async fn scope_of(&self, entity: EntityId) -> Result<Option<StoreScope>, MemoryStoreError> {
        self.server.ready().await?;
        for collection in [&self.server.state, &self.server.documents] {
            let wanted = WantedParts::Only(key::SCOPE);
            let found = self.server.list(collection, layout::of_entity(entity), wanted, 1).await?;
            let scope = found.iter().find_map(|point| layout::text(&point.payload, key::SCOPE));
            if let Some(scope) = scope.and_then(StoreScope::read) {
                return Ok(Some(scope));
            }
        }
        Ok(None)
    }

    /// The server wrote each change to its log before it answered.
    async fn sync(&self, _entities: &BTreeSet<EntityId>) -> Result<(), MemoryStoreError> {
        Ok(())
    }

    async fn look_again(&self) -> Result<(), MemoryStoreError> {
        self.cache.clear();
        Ok(())
    }

    async fn identity(&self) -> Result<String, MemoryStoreError> {
        self.server.ready().await?;
        self.server.identity().await
    }

    fn away(&self) -> Option<StoreAway> {
        self.server.connection.away()
    }
}
