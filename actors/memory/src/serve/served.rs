//! The store of a process, with the journals that it is filled from.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use clawnode_cluster::{Clock, Record, Storage};
use clawnode_kernel::{Entities, Entity, KnownKinds, recent::RecentEntities};
use clawnode_proto::{AgentName, EntityId, Position, Sealed, SessionKey};
use tokio::sync::Semaphore;

use super::{
    error::FillError,
    fill_locks::FillLocks,
    fill_progress::{FillProgress, ScopeFill},
    lacking_points::{self, DocumentMark, MissingPoints},
    said::SaidTruths,
    scope_ranks::ScopeRanks,
    vector_model::StoreMeaning,
};
use crate::{
    points::Memory,
    store::{
        DocumentBatch, DocumentId, FilledStore, FoundDocument, LocalStore, MemoryStoreError,
        StoreAway, StoreScope, VectorStore,
    },
};

/// Memories whose live points are remembered, up to twice as many: up to 20,000 points of 64 bytes each.
const TRUTHS: usize = 64;
/// Sessions whose beginnings are remembered, up to twice as many.
const BEGINNINGS: usize = 4_096;
/// Sessions that are filled for searches, or whose journals are read for them, at the same time.
pub(super) const SESSIONS_AT_ONCE: usize = 64;
/// Scopes with damaged files that are filled again one by one. With more, everything is filled again.
const DAMAGED: usize = 1_024;
/// How often a memory is looked at again for one filling, if other processes fill the same store.
const FILL_TRIES: u32 = 4;

/// The store of a process, which is filled from journals. Its clones are one store.
#[derive(Clone, Debug)]
pub struct ServedStore {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) store: Arc<dyn FilledStore>,
    /// The same store, if its documents can be given vectors.
    pub(super) vectors: Option<Arc<dyn VectorStore>>,
    /// Whether its files are those of this process, which no other program writes.
    pub(super) is_local: bool,
    /// Has what says how far the feed was followed.
    pub(super) folder: PathBuf,
    /// What finds documents by their meaning, if something does.
    pub(super) meaning: OnceLock<StoreMeaning>,
    pub(super) entities: Entities,
    /// The agents whose conversations can be found.
    pub(super) conversations: BTreeSet<AgentName>,
    /// What is live in memories that were searched lately.
    truths: Mutex<RecentEntities<Arc<MemoryTruth>>>,
    /// After which events sessions began that were searched lately.
    beginnings: Mutex<RecentEntities<SessionBeginning>>,
    /// What was said in sessions that were searched lately.
    said: Mutex<SaidTruths>,
    /// With which workers it shares the scopes of persons, if it does.
    pub(super) ranks: OnceLock<ScopeRanks>,
    /// Sessions that were filled, and lack nothing that the feed has shown since.
    followed: Mutex<RecentEntities<()>>,
    /// Memories that are filled now, by searches and by the feed.
    pub(super) filling: FillLocks,
    /// Sessions that are filled now.
    pub(super) reading: FillLocks,
    /// What bounds the sessions that wait for that in searches.
    pub(super) fills: Arc<Semaphore>,
    /// What bounds the sessions whose journals are read to the end, also for searches that gave up.
    pub(super) reads: Arc<Semaphore>,
    progress: Mutex<FillProgress>,
    /// Whether the feed is to be read from its beginning.
    again: AtomicBool,
    /// Scopes whose files were damaged, until they are filled again.
    damaged: Mutex<BTreeSet<StoreScope>>,
    /// Keeps other processes from the folder until this one ends, however it ends.
    _lock: File,
}

/// A store, and where this process keeps how far it is filled.
struct Stores {
    store: Arc<dyn FilledStore>,
    vectors: Option<Arc<dyn VectorStore>>,
    folder: PathBuf,
    is_local: bool,
}

/// What a journal says of a memory.
#[derive(Debug)]
pub(super) struct MemoryTruth {
    /// Where the journal ended.
    position: Position,
    /// The event that it ended with; 0 if there is no memory.
    event: u64,
    pub(super) live: BTreeMap<DocumentId, DocumentMark>,
    /// The newest standing instructions.
    pub(super) standing: Vec<FoundDocument>,
}

/// What the journal of a session says of its deletions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SessionBeginning {
    /// The last record that was read.
    pub(super) position: Position,
    /// The event that ended the last deletion; 0 if there was none.
    pub(super) began: u64,
    /// Whether the session has something since then.
    pub(super) is_there: bool,
}

// === impl ServedStore ===

impl ServedStore {
    /// Serves this store, whose folder the lock holds, from these journals. The conversations of `conversations` can be
    /// found, and no others.
    pub fn new(
        store: LocalStore,
        lock: File,
        storage: Storage,
        clock: Arc<dyn Clock>,
        conversations: BTreeSet<AgentName>,
    ) -> Self {
        let folder = store.folder().to_owned();
        let store: Arc<dyn VectorStore> = Arc::new(store);
        let vectors = Some(Arc::clone(&store));
        let stores =
            Stores { store: store as Arc<dyn FilledStore>, vectors, folder, is_local: true };
        Self::of(stores, lock, storage, clock, conversations)
    }

    /// The same with any store that has vectors; see [`Self::over`].
    pub fn over_vectors(
        store: Arc<dyn VectorStore>,
        folder: PathBuf,
        lock: File,
        storage: Storage,
        clock: Arc<dyn Clock>,
        conversations: BTreeSet<AgentName>,
    ) -> Self {
        let (vectors, store) = (Some(Arc::clone(&store)), store as Arc<dyn FilledStore>);
        let stores = Stores { store, vectors, folder, is_local: false };
        Self::of(stores, lock, storage, clock, conversations)
    }

    /// The same with any store. `folder` is there, belongs to this process by the lock, and gets what says how far the
    /// feed was followed.
    pub fn over(
        store: Arc<dyn FilledStore>,
        folder: PathBuf,
        lock: File,
        storage: Storage,
        clock: Arc<dyn Clock>,
        conversations: BTreeSet<AgentName>,
    ) -> Self {
        let stores = Stores { store, vectors: None, folder, is_local: false };
        Self::of(stores, lock, storage, clock, conversations)
    }

    fn of(
        stores: Stores,
        lock: File,
        storage: Storage,
        clock: Arc<dyn Clock>,
        conversations: BTreeSet<AgentName>,
    ) -> Self {
        let Stores { store, vectors, folder, is_local } = stores;
        let kinds = KnownKinds::default().with::<Memory>();
        let began_at = clock.now();
        Self {
            shared: Arc::new(Shared {
                store,
                vectors,
                is_local,
                folder,
                meaning: OnceLock::new(),
                entities: Entities::new(storage, clock, kinds),
                conversations,
                truths: Mutex::new(RecentEntities::new(TRUTHS)),
                beginnings: Mutex::new(RecentEntities::new(BEGINNINGS)),
                said: Mutex::new(SaidTruths::new()),
                ranks: OnceLock::new(),
                followed: Mutex::new(RecentEntities::new(BEGINNINGS)),
                filling: FillLocks::default(),
                reading: FillLocks::default(),
                fills: Arc::new(Semaphore::new(SESSIONS_AT_ONCE)),
                reads: Arc::new(Semaphore::new(SESSIONS_AT_ONCE)),
                progress: Mutex::new(FillProgress {
                    is_rebuilding: true,
                    began_at,
                    ..FillProgress::default()
                }),
                again: AtomicBool::new(false),
                damaged: Mutex::default(),
                _lock: lock,
            }),
        }
    }

    /// Whether what is said in this session can be found: its agent is one of those that the configuration names, and
    /// the session is not made for one request.
    pub fn keeps(&self, session: &SessionKey) -> bool {
        self.shared.conversations.contains(&session.agent) && !session.is_stateless()
    }

    /// The name of the store in the configuration.
    pub fn name(&self) -> &'static str {
        self.store().name()
    }

    /// Why the store cannot be used now; none if it can be.
    pub fn away(&self) -> Option<StoreAway> {
        self.store().away()
    }

    /// How far the store is filled.
    pub fn progress(&self) -> FillProgress {
        *self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far one scope is filled.
    pub async fn fill_of(&self, scope: &StoreScope) -> Result<ScopeFill, FillError> {
        let upto = self.store().upto(scope).await?;
        let end = self.last_event(scope.entity()).await?.map_or(0, |last| last.head.n.0);
        Ok(ScopeFill { upto, end })
    }

    /// Fills one scope again from its journal. If another worker holds it, it goes from the files.
    pub async fn refill(&self, scope: &StoreScope) -> Result<(), FillError> {
        if !self.holds(scope) {
            self.lets_go(scope).await?;
            self.damages().remove(scope);
            return Ok(());
        }
        // Whatever ends this on the way, the scope is filled later, and searches say that they lack it.
        self.mark_damaged(std::slice::from_ref(scope));
        if scope.memory().is_some() {
            let _filling = self.shared.filling.lock(scope.entity()).await;
            self.store().drop(scope).await?;
            self.fill_memory(scope).await?;
        } else if let Some(session) = scope.session() {
            let _reading = self.shared.reading.lock(scope.entity()).await;
            self.store().drop(scope).await?;
            if self.keeps(&session) {
                self.fill_session(scope, &mut None).await?;
            }
        }
        self.damages().remove(scope);
        Ok(())
    }

    /// Puts what the scope of a memory lacks, and takes from its files what is not live any more. If another worker holds
    /// it, it goes from the files.
    pub async fn catch_up(&self, memory: &StoreScope) -> Result<(), FillError> {
        if !self.holds(memory) {
            return self.lets_go(memory).await;
        }
        let _filling = self.shared.filling.lock(memory.entity()).await;
        self.fill_memory(memory).await.map(drop)
    }

    /// Has the whole store filled again, behind what is there: what it lacks is put.
    pub fn refill_all(&self) {
        self.shared.again.store(true, Ordering::SeqCst);
        self.set_progress(|progress| (progress.is_rebuilding, progress.upto) = (true, Position(0)));
    }

    /// Whether the feed is to be read from its beginning.
    pub(super) fn is_to_begin_again(&self) -> bool {
        self.shared.again.load(Ordering::SeqCst)
    }

    /// The feed is read from its beginning from now on.
    pub(super) fn begins_again(&self) {
        self.shared.again.store(false, Ordering::SeqCst);
        self.followed().clear();
        self.damages().clear();
    }

    /// Has these scopes filled again: their files were damaged, and are removed.
    pub(super) fn mark_damaged(&self, scopes: &[StoreScope]) {
        for scope in scopes {
            self.followed().take(scope.entity());
        }
        let mut damages = self.damages();
        damages.extend(scopes.iter().cloned());
        if damages.len() > DAMAGED {
            drop(damages);
            self.refill_all();
        }
    }

    /// Which scopes are to be filled again.
    pub(super) fn damaged(&self) -> BTreeSet<StoreScope> {
        self.damages().clone()
    }

    pub(super) fn damages(&self) -> MutexGuard<'_, BTreeSet<StoreScope>> {
        self.shared.damaged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_progress(&self, change: impl FnOnce(&mut FillProgress)) {
        change(&mut self.shared.progress.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn truths(&self) -> MutexGuard<'_, RecentEntities<Arc<MemoryTruth>>> {
        self.shared.truths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of the deletions of a session; it is not any more.
    pub(super) fn take_beginning(&self, session: EntityId) -> Option<SessionBeginning> {
        self.beginnings().take(session)
    }

    /// Remembers after which event a session began.
    pub(super) fn has_begun(&self, session: EntityId, beginning: SessionBeginning) {
        let mut beginnings = self.beginnings();
        // It is in one place only.
        beginnings.take(session);
        beginnings.put(session, beginning);
    }

    fn beginnings(&self) -> MutexGuard<'_, RecentEntities<SessionBeginning>> {
        self.shared.beginnings.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sessions that were filled, and lack nothing that the feed has shown since.
    pub(super) fn followed(&self) -> MutexGuard<'_, RecentEntities<()>> {
        self.shared.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn said(&self) -> MutexGuard<'_, SaidTruths> {
        self.shared.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn store(&self) -> &dyn FilledStore {
        self.shared.store.as_ref()
    }

    pub(super) fn storage(&self) -> &Storage {
        self.shared.entities.storage()
    }

    /// The last event of a journal. None if there is no journal.
    pub(super) async fn last_event(&self, entity: EntityId) -> Result<Option<Sealed>, FillError> {
        let Some(record) = self.storage().journal.tail(entity).await? else { return Ok(None) };
        Ok(lacking_points::events(entity, std::slice::from_ref(&record))?.pop())
    }

    // === Memories ===

    /// Fills the scope of a memory, if it lacks something. The caller has its lock of `filling`.
    async fn fill_memory(&self, scope: &StoreScope) -> Result<Arc<MemoryTruth>, FillError> {
        let mut tries = 0;
        loop {
            match self.fill_memory_once(scope).await {
                // Another process has put the scope from its beginning meanwhile.
                Err(FillError::Store(MemoryStoreError::Behind { .. })) if tries < FILL_TRIES => {
                    tries += 1;
                }
                filled => return filled,
            }
        }
    }

    async fn fill_memory_once(&self, scope: &StoreScope) -> Result<Arc<MemoryTruth>, FillError> {
        let store = self.store();
        // Before the journal: another process may fill the store beyond what this one has read.
        let upto = store.upto(scope).await?;
        let (memory, truth, records) = self.read_memory(scope).await?;
        match lacking_points::missing(upto, &memory, &records)? {
            MissingPoints::None => {}
            MissingPoints::Gone => store.drop(scope).await?,
            MissingPoints::Further { masked, batch, replaces } => {
                if !masked.is_empty() {
                    store.mask(scope, &masked).await?;
                }
                let batch = if replaces { self.with_vectors(scope, batch).await? } else { batch };
                match store.put(scope, batch).await {
                    // What was masked takes room as well. With the live points alone, it is forgotten.
                    Err(MemoryStoreError::Full { .. }) => {
                        self.put_whole(scope, lacking_points::whole(&memory)).await?;
                    }
                    put => put?,
                }
            }
            MissingPoints::Whole(batch) => self.put_whole(scope, batch).await?,
        }
        if upto != truth.event {
            self.lacks_vectors(scope);
        }
        self.truths().put(scope.entity(), Arc::clone(&truth));
        Ok(truth)
    }

    /// What the journal of a memory says, whatever the store has.
    pub(super) async fn read_memory(
        &self,
        scope: &StoreScope,
    ) -> Result<(Entity<Memory>, Arc<MemoryTruth>, Vec<Record>), FillError> {
        let id = scope.entity();
        let loaded = self.shared.entities.load(id).await?;
        let position = loaded.records.last().map_or(Position(0), |last| last.position);
        let memory = Entity::<Memory>::of(id, &loaded);
        let memory = memory.map_err(clawnode_kernel::EntityError::from)?;
        let (live, standing) =
            (lacking_points::live(&memory), lacking_points::standing(scope, &memory));
        let truth = Arc::new(MemoryTruth { position, event: memory.core.tail.n.0, live, standing });
        Ok((memory, truth, loaded.records))
    }

    /// Puts these documents in the place of all that the scope has.
    async fn put_whole(
        &self,
        scope: &StoreScope,
        batch: DocumentBatch,
    ) -> Result<(), MemoryStoreError> {
        let batch = self.with_vectors(scope, batch).await?;
        self.store().drop(scope).await?;
        self.store().put(scope, batch).await
    }

    /// The same documents, with the vectors of those that are there with the same text.
    async fn with_vectors(
        &self,
        scope: &StoreScope,
        batch: DocumentBatch,
    ) -> Result<DocumentBatch, MemoryStoreError> {
        match &self.shared.vectors {
            Some(store) => store.keep_vectors(scope, batch).await,
            None => Ok(batch),
        }
    }

    /// What is live in a memory now. If `fills`, the store has all of it then.
    pub(super) async fn truth(
        &self,
        scope: &StoreScope,
        fills: bool,
    ) -> Result<Arc<MemoryTruth>, FillError> {
        let position = self.storage().journal.position(scope.entity()).await?;
        if position == Position(0) {
            let (live, standing) = (BTreeMap::new(), Vec::new());
            return Ok(Arc::new(MemoryTruth { position, event: 0, live, standing }));
        }
        if !fills {
            if let Some(known) = self.remembered(scope, position) {
                return Ok(known);
            }
            let (_, truth, _) = self.read_memory(scope).await?;
            self.truths().put(scope.entity(), Arc::clone(&truth));
            return Ok(truth);
        }
        if let Some(known) = self.known(scope, position).await? {
            return Ok(known);
        }
        let (served, scope) = (self.clone(), scope.clone());
        // Detached: what a search has begun that gives up is there for the next one, and no write is cut off.
        let filled = tokio::spawn(async move {
            let _filling = served.shared.filling.lock(scope.entity()).await;
            match served.known(&scope, position).await? {
                Some(known) => Ok(known),
                None => served.fill_memory(&scope).await,
            }
        });
        filled.await.unwrap_or_else(|_ended| Err(MemoryStoreError::Closed.into()))
    }

    /// What is live in a memory whose journal ends at `position`, if that is remembered and the store has all of it.
    async fn known(
        &self,
        scope: &StoreScope,
        position: Position,
    ) -> Result<Option<Arc<MemoryTruth>>, FillError> {
        let Some(known) = self.remembered(scope, position) else { return Ok(None) };
        let is_filled = known.live.is_empty() || self.store().upto(scope).await? == known.event;
        Ok(is_filled.then_some(known))
    }

    /// What is remembered of a memory whose journal ends at `position`.
    fn remembered(&self, scope: &StoreScope, position: Position) -> Option<Arc<MemoryTruth>> {
        let mut truths = self.truths();
        let known = truths.take(scope.entity()).filter(|truth| truth.position >= position)?;
        truths.put(scope.entity(), Arc::clone(&known));
        Some(known)
    }
}
