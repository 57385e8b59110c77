//! The store in this process: a file for each scope, and an index in memory for the scopes that were used last.
//!
//! The files are a projection of journals, so a write waits for no disk, except one that removes something: what was
//! masked or dropped is gone from the files when the call returns. Each method of [`MemoryStore`] has a twin that blocks
//! (`put_now`, …), for callers without a runtime.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map},
    fs::{self, File},
    io,
    path::Path,
    sync::{Arc, RwLockReadGuard},
};

use async_trait::async_trait;
use clawnode_proto::EntityId;

use super::{
    contract::{FilledStore, MemoryStore, MemoryStoreError, RecallAnswer, StoreAway},
    document::{
        Document, DocumentBatch, DocumentId, FoundDocument, QUERY_SCOPES, RecallQuery, StoreScope,
    },
    file::{self, StoreFileError},
    index::{ScopeIndex, at},
    ranking::{self, Hit},
    resident::{ResidentScope, ScopeFolder, failed},
    take_over, vectors,
};

/// The store in this process. Its clones are one store.
#[derive(Clone, Debug)]
pub struct LocalStore {
    pub(super) shared: Arc<ScopeFolder>,
}

// === impl LocalStore ===

impl LocalStore {
    /// Opens the store in this folder, which belongs to it alone, and makes the folder. `model` is the name of the model of
    /// its vectors and how many numbers they have, 0 if that is not known yet; another model has other files.
    pub fn open(folder: &Path, model: Option<(&str, usize)>) -> Result<Self, MemoryStoreError> {
        let folder = folder.join(take_over::name(model));
        let made = fs::create_dir_all(&folder).and_then(|()| fs::read_dir(&folder));
        for entry in made.map_err(|source| failed(&folder, source))?.flatten() {
            // What a process left that died while it wrote a file again.
            if entry.path().extension().is_some_and(|extension| extension == "new") {
                fs::remove_file(entry.path()).map_err(|source| failed(&entry.path(), source))?;
            }
        }
        let dimensions = match model {
            None => 0,
            Some((_, 0)) => take_over::dimensions(&folder),
            Some((_, dimensions)) => dimensions,
        };
        Ok(Self { shared: Arc::new(ScopeFolder::new(folder, dimensions)) })
    }

    /// As [`MemoryStore::put`]; blocks.
    pub fn put_now(
        &self,
        scope: &StoreScope,
        batch: &DocumentBatch,
    ) -> Result<(), MemoryStoreError> {
        for document in &batch.documents {
            MemoryStoreError::check(document, self.shared.dimensions())?;
        }
        let resident = self.shared.resident(scope);
        resident.exclusive(self.shared.dimensions())?.put(batch)
    }

    /// As [`MemoryStore::mask`]; blocks.
    pub fn mask_now(&self, scope: &StoreScope, ids: &[DocumentId]) -> Result<(), MemoryStoreError> {
        let resident = self.shared.resident(scope);
        resident.exclusive(self.shared.dimensions())?.mask(ids)
    }

    /// As [`MemoryStore::search`]; blocks.
    pub fn search_now(
        &self,
        scopes: &[StoreScope],
        query: &RecallQuery,
        k: usize,
    ) -> Result<RecallAnswer, MemoryStoreError> {
        let asked: BTreeSet<&StoreScope> = scopes.iter().collect();
        if asked.len() > QUERY_SCOPES {
            return Err(MemoryStoreError::Scopes { found: asked.len() });
        }
        if let Some(vector) = &query.embedding {
            MemoryStoreError::check_dimensions(vector, self.shared.dimensions())?;
        }
        let mut damaged = BTreeSet::new();
        let residents: Vec<Arc<ResidentScope>> =
            asked.iter().map(|scope| self.shared.resident(scope)).collect();
        for resident in &residents {
            match resident.loaded(self.shared.dimensions()) {
                Err(MemoryStoreError::Damaged { scope, .. }) => {
                    damaged.insert(scope);
                }
                other => other?,
            }
        }
        // Before it is searched: what is found may be newer, and is never older.
        let upto = residents.iter().filter_map(|resident| {
            Some((resident.scope.clone(), resident.upto(self.shared.dimensions())?))
        });
        let mut upto: BTreeMap<StoreScope, u64> = upto.collect();
        let (mut found, broken) = find(&residents, query, k)?;
        for resident in residents.iter().filter(|resident| broken.contains(&resident.scope)) {
            resident.remove()?;
            damaged.insert(resident.scope.clone());
        }
        // MEM-1: what is not asked for is not given, whatever an index says.
        found.retain(|found| asked.contains(&found.scope) && !damaged.contains(&found.scope));
        upto.retain(|scope, _| !damaged.contains(scope));
        Ok(RecallAnswer { found, damaged: damaged.into_iter().collect(), upto })
    }

    /// As [`MemoryStore::upto`]; blocks. The scope of a damaged file is filled up to 0.
    pub fn upto_now(&self, scope: &StoreScope) -> Result<u64, MemoryStoreError> {
        let resident = self.shared.resident(scope);
        // Each search asks this first. A scope that it took for itself would wait for all searches that are under way.
        if let Some(upto) = resident.upto(self.shared.dimensions()) {
            return Ok(upto);
        }
        match resident.exclusive(self.shared.dimensions()) {
            Ok(mut exclusive) => Ok(exclusive.index().upto),
            Err(MemoryStoreError::Damaged { .. }) => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// As [`MemoryStore::drop`]; blocks.
    pub fn drop_now(&self, scope: &StoreScope) -> Result<(), MemoryStoreError> {
        self.shared.resident(scope).remove()
    }

    /// The folder with its files. What is not named `*.scope`, `*.new` or `dimensions` in it is not the store's own.
    pub fn folder(&self) -> &Path {
        self.shared.folder()
    }

    /// The scope of this entity, if the store has a file of it; blocks. A deleted entity has no key to compute it from.
    pub fn scope_of(&self, entity: EntityId) -> Result<Option<StoreScope>, MemoryStoreError> {
        let path = self.shared.path(entity);
        file::scope_of(&path).map_err(|source| failed(&path, source))
    }

    /// Has the files of these entities, as they are now, survive a power cut; blocks.
    pub fn sync_now(&self, entities: &BTreeSet<EntityId>) -> Result<(), MemoryStoreError> {
        for entity in entities {
            let path = self.shared.path(*entity);
            file::sync(&path).map_err(|source| failed(&path, source))?;
        }
        let folder = self.shared.folder();
        let synced = File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|source| failed(folder, source))
    }

    /// Goes on with its files as they are now, after something else removed them; blocks.
    pub fn look_again(&self) -> Result<(), MemoryStoreError> {
        self.shared.forget().map_err(|source| failed(self.shared.folder(), source))
    }

    pub(crate) async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, MemoryStoreError> + Send + 'static,
    ) -> Result<T, MemoryStoreError> {
        let store = self.clone();
        let worked = tokio::task::spawn_blocking(move || work(&store)).await;
        worked.unwrap_or(Err(MemoryStoreError::Closed))
    }
}

#[async_trait]
impl MemoryStore for LocalStore {
    async fn put(&self, scope: &StoreScope, batch: DocumentBatch) -> Result<(), MemoryStoreError> {
        let scope = scope.clone();
        self.work(move |store| store.put_now(&scope, &batch)).await
    }

    async fn mask(&self, scope: &StoreScope, ids: &[DocumentId]) -> Result<(), MemoryStoreError> {
        let (scope, ids) = (scope.clone(), ids.to_vec());
        self.work(move |store| store.mask_now(&scope, &ids)).await
    }

    async fn search(
        &self,
        scopes: &[StoreScope],
        query: &RecallQuery,
        k: usize,
    ) -> Result<RecallAnswer, MemoryStoreError> {
        let (scopes, query) = (scopes.to_vec(), query.clone());
        self.work(move |store| store.search_now(&scopes, &query, k)).await
    }

    async fn upto(&self, scope: &StoreScope) -> Result<u64, MemoryStoreError> {
        // Each search asks this first, and another thread takes longer to begin than this.
        if let Some(upto) = self.shared.upto_at_once(scope) {
            return Ok(upto);
        }
        let scope = scope.clone();
        self.work(move |store| store.upto_now(&scope)).await
    }

    async fn drop(&self, scope: &StoreScope) -> Result<(), MemoryStoreError> {
        let scope = scope.clone();
        self.work(move |store| store.drop_now(&scope)).await
    }
}

#[async_trait]
impl FilledStore for LocalStore {
    fn name(&self) -> &'static str {
        "local"
    }

    async fn scope_of(&self, entity: EntityId) -> Result<Option<StoreScope>, MemoryStoreError> {
        self.work(move |store| store.scope_of(entity)).await
    }

    async fn sync(&self, entities: &BTreeSet<EntityId>) -> Result<(), MemoryStoreError> {
        let entities = entities.clone();
        self.work(move |store| store.sync_now(&entities)).await
    }

    async fn look_again(&self) -> Result<(), MemoryStoreError> {
        self.work(Self::look_again).await
    }

    /// Always the same: its folder is lost together with what says how far it is filled.
    async fn identity(&self) -> Result<String, MemoryStoreError> {
        Ok(String::new())
    }

    fn away(&self) -> Option<StoreAway> {
        None
    }
}

/// Ranks the documents of these scopes and reads those that fit best. Names the scopes whose files turn out damaged.
fn find(
    residents: &[Arc<ResidentScope>],
    query: &RecallQuery,
    k: usize,
) -> Result<(Vec<FoundDocument>, BTreeSet<StoreScope>), MemoryStoreError> {
    let guards: Vec<(&ResidentScope, RwLockReadGuard<'_, Option<ScopeIndex>>)> =
        residents.iter().map(|resident| (resident.as_ref(), resident.read())).collect();
    let loaded: Vec<(&ResidentScope, &ScopeIndex)> =
        guards.iter().filter_map(|(resident, guard)| Some((*resident, guard.as_ref()?))).collect();
    let indexes: Vec<&ScopeIndex> = loaded.iter().map(|(_, index)| *index).collect();
    let vector = query.embedding.as_deref().map(vectors::in_bytes);
    let hits = ranking::rank(&indexes, query, vector.as_deref(), k);
    let (mut found, mut broken) = (Vec::with_capacity(hits.len()), BTreeSet::new());
    let mut files: BTreeMap<usize, File> = BTreeMap::new();
    for hit in hits {
        let Some((resident, index)) = loaded.get(hit.index) else { continue };
        match read(resident, index, hit, &mut files) {
            Ok(document) => {
                let scope = resident.scope.clone();
                found.push(FoundDocument { scope, document, score: hit.score });
            }
            Err(StoreFileError::Damaged(_)) => {
                broken.insert(resident.scope.clone());
            }
            Err(StoreFileError::Io(source)) => return Err(failed(&resident.path, source)),
        }
    }
    Ok((found, broken))
}

/// Reads the document of a hit. A file that is gone is as bad as a damaged one.
fn read(
    resident: &ResidentScope,
    index: &ScopeIndex,
    hit: Hit,
    files: &mut BTreeMap<usize, File>,
) -> Result<Document, StoreFileError> {
    let entry = index.entries().get(at(hit.number));
    let lost = || StoreFileError::Damaged("its file lacks a document".to_owned());
    let (entry, place) = entry.and_then(|entry| Some((entry, entry.place?))).ok_or_else(lost)?;
    if let btree_map::Entry::Vacant(vacant) = files.entry(hit.index) {
        match File::open(&resident.path) {
            Ok(file) => vacant.insert(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(lost()),
            Err(error) => return Err(StoreFileError::Io(error)),
        };
    }
    let file = files.get_mut(&hit.index).ok_or_else(lost)?;
    let document = file::document(file, place)?;
    if document.id == entry.id { Ok(document) } else { Err(lost()) }
}
