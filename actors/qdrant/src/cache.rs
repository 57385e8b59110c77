//! What a process has in memory of the scopes that it searched lately.
//!
//! An index belongs to a token of its scope. If the server has another one, the ids and digests of all documents are
//! listed, and those that are new or changed are read. Nothing here is the truth: what is left out is read again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use clawnode_memory::store::{
    Document, DocumentId, HeldIndex, MemoryStoreError, StoreScope, document::SCOPE_DOCUMENTS,
};
use qdrant_client::qdrant::PointId;
use tokio::sync::{OwnedRwLockReadGuard, RwLock};

use crate::{
    layout::{self, PointNumber, key},
    server::{ServerPoints, WantedParts},
    state::ScopeState,
};

/// Documents whose index is kept in memory. A scope that is larger stays while it is in use.
const CACHED_DOCUMENTS: usize = 2 * SCOPE_DOCUMENTS;
/// Scopes that are kept in memory.
const CACHED_SCOPES: usize = 1_024;
/// Documents of a scope that are listed: as many as it may have, and those of a race.
const LISTED_MOST: usize = 2 * SCOPE_DOCUMENTS;
/// Documents that are read and indexed at once.
const READ_ONCE: usize = 256;

/// The indexes in memory.
#[derive(Debug, Default)]
pub(crate) struct ScopeCache {
    scopes: Mutex<CachedScopes>,
}

#[derive(Debug, Default)]
struct CachedScopes {
    scopes: HashMap<StoreScope, CachedScope>,
    /// Counts uses, to know which scope was not used for longest.
    uses: u64,
}

#[derive(Debug)]
struct CachedScope {
    index: Arc<RwLock<IndexedScope>>,
    documents: usize,
    used: u64,
}

/// The index of a scope, as it was at one token.
#[derive(Debug)]
pub(crate) struct IndexedScope {
    /// None while it is not known to be whole.
    token: Option<String>,
    generation: String,
    pub(crate) index: HeldIndex,
    /// The points that are in it.
    known: HashMap<PointNumber, (DocumentId, u128)>,
}

// === impl ScopeCache ===

impl ScopeCache {
    /// The index of a scope in this state. Scopes are to be asked for in one order, because the index stays as it is while
    /// the caller has it.
    pub(crate) async fn current(
        &self,
        server: &ServerPoints,
        scope: &StoreScope,
        state: &ScopeState,
    ) -> Result<OwnedRwLockReadGuard<IndexedScope>, MemoryStoreError> {
        let index = self.of(scope, server.dimensions);
        let guard = Arc::clone(&index).read_owned().await;
        if guard.token.as_ref() == Some(&state.token) {
            return Ok(guard);
        }
        drop(guard);
        let mut guard = index.write_owned().await;
        if guard.token.as_ref() != Some(&state.token) {
            guard.refresh(server, scope, state).await?;
            self.counted(scope, guard.index.documents());
        }
        Ok(guard.downgrade())
    }

    /// Leaves out all scopes.
    pub(crate) fn clear(&self) {
        self.lock().scopes.clear();
    }

    fn of(&self, scope: &StoreScope, dimensions: usize) -> Arc<RwLock<IndexedScope>> {
        let mut cached = self.lock();
        cached.uses += 1;
        let used = cached.uses;
        if let Some(found) = cached.scopes.get_mut(scope) {
            found.used = used;
            return Arc::clone(&found.index);
        }
        cached.make_room();
        let index = Arc::new(RwLock::new(IndexedScope::new(dimensions, String::new())));
        let entry = CachedScope { index: Arc::clone(&index), documents: 0, used };
        cached.scopes.insert(scope.clone(), entry);
        index
    }

    fn counted(&self, scope: &StoreScope, documents: usize) {
        if let Some(cached) = self.lock().scopes.get_mut(scope) {
            cached.documents = documents;
        }
    }

    fn lock(&self) -> MutexGuard<'_, CachedScopes> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl CachedScopes ===

impl CachedScopes {
    /// Leaves out the scopes that were not used for longest until the rest is within bounds. A search that has one goes on
    /// with it.
    fn make_room(&mut self) {
        loop {
            let documents: usize = self.scopes.values().map(|cached| cached.documents).sum();
            if documents < CACHED_DOCUMENTS && self.scopes.len() < CACHED_SCOPES {
                return;
            }
            let oldest = self.scopes.iter().min_by_key(|(_, cached)| cached.used);
            let Some(oldest) = oldest.map(|(scope, _)| scope.clone()) else { return };
            self.scopes.remove(&oldest);
        }
    }
}

// === impl IndexedScope ===

impl IndexedScope {
    fn new(dimensions: usize, generation: String) -> Self {
        let (index, known) = (HeldIndex::new(dimensions), HashMap::new());
        Self { token: None, generation, index, known }
    }

    /// Makes it what the server has in this state or a later one.
    async fn refresh(
        &mut self,
        server: &ServerPoints,
        scope: &StoreScope,
        state: &ScopeState,
    ) -> Result<(), MemoryStoreError> {
        if self.generation != state.generation || self.index.is_sparse() {
            *self = Self::new(server.dimensions, state.generation.clone());
        }
        self.token = None;
        let listed = self.list(server, scope).await?;
        let masked = server.masked(scope, &self.generation).await?;
        let gone: Vec<PointNumber> = self
            .known
            .iter()
            .filter(|(number, (id, digest))| {
                listed.get(number) != Some(digest) || masked.contains(id)
            })
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            if let Some((id, _)) = self.known.remove(&number) {
                self.index.remove(id);
            }
        }
        let lacking = listed.keys().filter(|number| !self.known.contains_key(number));
        let lacking: Vec<PointId> = lacking.map(|number| number.id()).collect();
        for ids in lacking.chunks(READ_ONCE) {
            self.read(server, scope, ids, &masked).await?;
        }
        self.token = Some(state.token.clone());
        Ok(())
    }

    /// All documents that the server has, by what says whether they are the same.
    async fn list(
        &self,
        server: &ServerPoints,
        scope: &StoreScope,
    ) -> Result<HashMap<PointNumber, u128>, MemoryStoreError> {
        let filter = layout::in_generations(scope, std::slice::from_ref(&self.generation));
        let wanted = WantedParts::Only(key::DIGEST);
        let listed = server.list(&server.documents, filter, wanted, LISTED_MOST).await?;
        let pair = |point| Some((PointNumber::read(point)?, layout::digest(&point.payload)?));
        Ok(listed.iter().filter_map(pair).collect())
    }

    /// Reads documents into the index. One that is gone meanwhile is left out.
    async fn read(
        &mut self,
        server: &ServerPoints,
        scope: &StoreScope,
        ids: &[PointId],
        masked: &BTreeSet<DocumentId>,
    ) -> Result<(), MemoryStoreError> {
        let points = server.get(&server.documents, ids, WantedParts::All).await?;
        let mut documents: Vec<Document> = Vec::with_capacity(points.len());
        for point in &points {
            let number = PointNumber::read(point).zip(layout::digest(&point.payload));
            let document = layout::document(point, scope, &self.generation);
            let (Some((number, digest)), Some(document)) = (number, document) else { continue };
            if !masked.contains(&document.id) {
                self.known.insert(number, (document.id, digest));
                documents.push(document);
            }
        }
        self.index.add(&documents);
        Ok(())
    }
}
