//! The scopes whose index is in memory, and changes of one of them.

use std::{
    collections::{BTreeSet, HashMap},
    fs, io,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
        atomic::{AtomicUsize, Ordering},
    },
};

use clawnode_proto::EntityId;

use super::{
    contract::MemoryStoreError,
    document::{Document, DocumentBatch, DocumentId, SCOPE_DOCUMENTS, StoreScope},
    file::{self, RecordPlace, Records, StoreFileError, StoreRecord, StoredDocument},
    index::ScopeIndex,
    vectors,
};

/// Documents whose index is kept in memory. Scopes that were not used lately are left out, and loaded when they are
/// searched. A scope that is larger than this stays while it is in use.
const RESIDENT_DOCUMENTS: usize = 2 * SCOPE_DOCUMENTS;
/// Scopes that are kept in memory, also those without documents.
const RESIDENT_SCOPES: usize = 1_024;
/// Bytes of replaced documents that a file may have before it is written again.
const WASTE_BYTES: u64 = 1 << 20;

#[derive(Debug)]
pub(super) struct ScopeFolder {
    folder: PathBuf,
    /// Numbers of a vector. Not set if documents have none, or until the first one is made.
    dimensions: OnceLock<usize>,
    resident: Mutex<ResidentScopes>,
}

#[derive(Debug, Default)]
struct ResidentScopes {
    scopes: HashMap<StoreScope, (Arc<ResidentScope>, u64)>,
    /// Counts uses, to know which scope was not used for longest.
    uses: u64,
}

#[derive(Debug)]
pub(super) struct ResidentScope {
    pub(super) scope: StoreScope,
    pub(super) path: PathBuf,
    documents: AtomicUsize,
    /// None until it is loaded.
    index: RwLock<Option<ScopeIndex>>,
}

/// A scope that nothing else uses meanwhile.
pub(super) struct Exclusive<'a> {
    resident: &'a ResidentScope,
    dimensions: usize,
    guard: RwLockWriteGuard<'a, Option<ScopeIndex>>,
}

pub(super) fn failed(path: &Path, source: io::Error) -> MemoryStoreError {
    MemoryStoreError::Io { path: path.to_owned(), source }
}

// === impl ScopeFolder ===

impl ScopeFolder {
    /// Scopes with vectors of so many numbers; 0 if there are none, or none yet.
    pub(super) fn new(folder: PathBuf, dimensions: usize) -> Self {
        let known = (dimensions > 0).then_some(dimensions);
        let dimensions = known.map_or_else(OnceLock::new, OnceLock::from);
        Self { folder, dimensions, resident: Mutex::default() }
    }

    /// Numbers of a vector; 0 if documents have none.
    pub(super) fn dimensions(&self) -> usize {
        self.dimensions.get().copied().unwrap_or_default()
    }

    /// Vectors have so many numbers from now on, unless it is known already. Gives how many they have. Scopes in memory
    /// are loaded again when they are used.
    pub(super) fn learn_dimensions(&self, dimensions: usize) -> usize {
        *self.dimensions.get_or_init(|| dimensions)
    }

    /// The place of a scope in memory. Scopes that were not used for longest make room for it.
    pub(super) fn resident(&self, scope: &StoreScope) -> Arc<ResidentScope> {
        let mut resident = self.lock();
        resident.uses += 1;
        let now = resident.uses;
        if let Some((found, used)) = resident.scopes.get_mut(scope) {
            *used = now;
            return Arc::clone(found);
        }
        resident.make_room();
        let new = Arc::new(ResidentScope {
            scope: scope.clone(),
            path: self.path(scope.entity()),
            documents: AtomicUsize::new(0),
            index: RwLock::new(None),
        });
        resident.scopes.insert(scope.clone(), (Arc::clone(&new), now));
        new
    }

    /// The event up to which a scope is filled, if that can be said without a wait.
    pub(super) fn upto_at_once(&self, scope: &StoreScope) -> Option<u64> {
        let resident = self.resident.try_lock().ok()?;
        let (found, _) = resident.scopes.get(scope)?;
        let index = found.index.try_read().ok()?;
        let loaded =
            index.as_ref().filter(|index| index.vectors().dimensions() == self.dimensions());
        loaded.map(|index| index.upto)
    }

    /// The file of an entity. It has the entity's name and not its key, so that a deleted one, which has no key any
    /// more, can be removed.
    pub(super) fn path(&self, entity: EntityId) -> PathBuf {
        self.folder.join(format!("{entity}.scope"))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Goes on with the files as they are now: what is in memory is left out.
    pub(super) fn forget(&self) -> io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        // They stay where they are: a caller may have one, and there must not be two of one scope.
        let residents: Vec<_> =
            self.lock().scopes.values().map(|(resident, _)| Arc::clone(resident)).collect();
        for resident in residents {
            *resident.write() = None;
            resident.documents.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, ResidentScopes> {
        self.resident.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl ResidentScopes ===

impl ResidentScopes {
    /// Leaves out scopes that nothing uses now until the rest is within bounds.
    fn make_room(&mut self) {
        loop {
            let documents: usize = self
                .scopes
                .values()
                .map(|(resident, _)| resident.documents.load(Ordering::Relaxed))
                .sum();
            if documents < RESIDENT_DOCUMENTS && self.scopes.len() < RESIDENT_SCOPES {
                return;
            }
            // With a further reference, another call may be about to change it: there must not be two of one scope.
            let unused =
                self.scopes.iter().filter(|(_, (resident, _))| Arc::strong_count(resident) == 1);
            let oldest = unused.min_by_key(|(_, (_, used))| *used).map(|(scope, _)| scope.clone());
            let Some(oldest) = oldest else { return };
            self.scopes.remove(&oldest);
        }
    }
}

// === impl ResidentScope ===

impl ResidentScope {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Option<ScopeIndex>> {
        self.index.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Option<ScopeIndex>> {
        self.index.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Loads it, if it is not in memory.
    pub(super) fn loaded(&self, dimensions: usize) -> Result<(), MemoryStoreError> {
        if !self.is_loaded(dimensions) {
            self.exclusive(dimensions)?;
        }
        Ok(())
    }

    fn is_loaded(&self, dimensions: usize) -> bool {
        self.upto(dimensions).is_some()
    }

    /// The event up to which it is filled; none if it is not in memory.
    pub(super) fn upto(&self, dimensions: usize) -> Option<u64> {
        let index = self.read();
        let loaded = index.as_ref().filter(|index| index.vectors().dimensions() == dimensions);
        loaded.map(|index| index.upto)
    }

    /// Takes it for a change. A damaged file is removed, and reported once; after that the scope is empty.
    pub(super) fn exclusive(&self, dimensions: usize) -> Result<Exclusive<'_>, MemoryStoreError> {
        let mut exclusive = Exclusive { resident: self, dimensions, guard: self.write() };
        let index = exclusive.guard.as_ref();
        if index.is_none_or(|index| index.vectors().dimensions() != dimensions) {
            exclusive.load()?;
        }
        Ok(exclusive)
    }

    /// Removes it with its file.
    pub(super) fn remove(&self) -> Result<(), MemoryStoreError> {
        let mut guard = self.write();
        removed(&self.path)?;
        *guard = None;
        self.documents.store(0, Ordering::Relaxed);
        Ok(())
    }
}

/// Removes a file, if it is there, so that it does not come back after a power cut.
fn removed(path: &Path) -> Result<(), MemoryStoreError> {
    match fs::remove_file(path) {
        Ok(()) => file::sync_folder(path).map_err(|source| failed(path, source)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(path, error)),
    }
}

/// Reads a scope's file.
fn load(path: &Path, scope: &StoreScope, dimensions: usize) -> Result<ScopeIndex, StoreFileError> {
    let Some((mut records, masked)) = Records::open(path, scope)? else {
        return Ok(ScopeIndex::new(dimensions, BTreeSet::new()));
    };
    let mut index = ScopeIndex::new(dimensions, masked);
    while let Some((place, record)) = records.next()? {
        match record {
            StoreRecord::Document(stored) => {
                let digest = digest(&stored).map_err(StoreFileError::Io)?;
                index.add(&stored.document, stored.vector.as_deref(), digest, place);
            }
            StoreRecord::Upto(upto) => index.upto = upto,
            StoreRecord::Begin { .. } => {
                return Err(StoreFileError::Damaged("its file begins twice".to_owned()));
            }
        }
    }
    index.order();
    index.bytes = records.read_bytes();
    Ok(index)
}

/// What says whether two documents are the same.
pub(super) fn digest(stored: &StoredDocument) -> io::Result<u64> {
    let bytes = rmp_serde::to_vec(stored).map_err(io::Error::other)?;
    let (first, _) = blake3::hash(&bytes)
        .as_bytes()
        .split_first_chunk()
        .map_or(([0; 8], &[][..]), |(first, rest)| (*first, rest));
    Ok(u64::from_le_bytes(first))
}

// === impl Exclusive ===

impl Exclusive<'_> {
    pub(super) fn index(&mut self) -> &mut ScopeIndex {
        let dimensions = self.dimensions;
        self.guard.get_or_insert_with(|| ScopeIndex::new(dimensions, BTreeSet::new()))
    }

    fn count(&mut self) {
        let documents = self.index().documents();
        self.resident.documents.store(documents, Ordering::Relaxed);
    }

    /// Where the documents are that have a vector, or those that have none.
    pub(super) fn places(&mut self, have_vector: bool) -> Vec<RecordPlace> {
        let entries = self.index().entries().iter();
        entries
            .filter(|entry| entry.has_vector == have_vector)
            .filter_map(|entry| entry.place)
            .collect()
    }

    pub(super) fn put(mut self, batch: &DocumentBatch) -> Result<(), MemoryStoreError> {
        let resident = self.resident;
        let index = self.index();
        if batch.after > index.upto {
            let scope = resident.scope.clone();
            return Err(MemoryStoreError::Behind { scope, upto: index.upto, after: batch.after });
        }
        let new = new_documents(index, &batch.documents);
        let new = new.map_err(|source| failed(&resident.path, source))?;
        let further = new.iter().filter(|(added, _)| !index.contains(added.document.id)).count();
        if index.documents() + index.masked().len() + further > SCOPE_DOCUMENTS {
            return Err(MemoryStoreError::Full { scope: resident.scope.clone() });
        }
        let upto = index.upto.max(batch.upto);
        if new.is_empty() && upto == index.upto {
            return Ok(());
        }
        if index.bytes == 0 {
            self.rewrite()?;
        }
        let written = add(self.index(), &resident.path, &new, upto);
        written.map_err(|source| failed(&resident.path, source))?;
        self.count();
        let index = self.index();
        let wasted = index.bytes.saturating_sub(index.live_bytes());
        if index.is_sparse() || wasted > WASTE_BYTES && wasted > index.bytes / 2 {
            self.rewrite()?;
        }
        self.thin_out()
    }

    pub(super) fn mask(mut self, ids: &[DocumentId]) -> Result<(), MemoryStoreError> {
        let resident = self.resident;
        let index = self.index();
        let new = ids.iter().filter(|id| !index.contains(**id) && !index.masked().contains(id));
        if index.documents() + index.masked().len() + new.count() > SCOPE_DOCUMENTS {
            return Err(MemoryStoreError::Full { scope: resident.scope.clone() });
        }
        if !index.mask(ids) {
            return Ok(());
        }
        // Nothing finds them now, also if the disk fails.
        self.rewrite()?;
        self.count();
        self.thin_out()
    }

    /// Loads the index again if most of its numbers are of documents that nothing finds.
    fn thin_out(&mut self) -> Result<(), MemoryStoreError> {
        if self.index().is_sparse() { self.load() } else { Ok(()) }
    }

    fn load(&mut self) -> Result<(), MemoryStoreError> {
        let resident = self.resident;
        match load(&resident.path, &resident.scope, self.dimensions) {
            Ok(index) => {
                *self.guard = Some(index);
                self.count();
                Ok(())
            }
            Err(error) => Err(self.lost(error)),
        }
    }

    /// What to say of a file that cannot be used. A damaged one is removed; its scope is empty then.
    fn lost(&mut self, error: StoreFileError) -> MemoryStoreError {
        let resident = self.resident;
        *self.guard = None;
        match error {
            StoreFileError::Io(source) => failed(&resident.path, source),
            StoreFileError::Damaged(detail) => match removed(&resident.path) {
                Ok(()) => {
                    *self.guard = Some(ScopeIndex::new(self.dimensions, BTreeSet::new()));
                    self.count();
                    MemoryStoreError::Damaged { scope: resident.scope.clone(), detail }
                }
                Err(error) => error,
            },
        }
    }

    /// Writes the file again without what nothing may find.
    fn rewrite(&mut self) -> Result<(), MemoryStoreError> {
        let resident = self.resident;
        let index = self.index();
        let begin = StoreRecord::begin(&resident.scope, index.masked());
        let live: Vec<RecordPlace> = index.live().collect();
        match file::rewrite(&resident.path, &begin, &live, index.upto) {
            Ok((places, bytes)) => {
                index.moved(&places, bytes);
                Ok(())
            }
            // What was masked stays hidden in memory, also if the disk fails.
            Err(StoreFileError::Io(source)) => Err(failed(&resident.path, source)),
            Err(error) => Err(self.lost(error)),
        }
    }
}

/// The documents that are not there as they are, as they are stored, with their digests.
fn new_documents(
    index: &ScopeIndex,
    documents: &[Document],
) -> io::Result<Vec<(StoredDocument, u64)>> {
    let mut new = Vec::new();
    for document in documents.iter().filter(|document| !index.masked().contains(&document.id)) {
        let vector = document.embedding.as_deref().map(vectors::in_bytes);
        let document = Document { embedding: None, ..document.clone() };
        let stored = StoredDocument { document, vector };
        let digest = digest(&stored)?;
        if !index.has(stored.document.id, digest) {
            new.push((stored, digest));
        }
    }
    Ok(new)
}

/// Adds documents to the file, and then to the index.
fn add(
    index: &mut ScopeIndex,
    path: &Path,
    new: &[(StoredDocument, u64)],
    upto: u64,
) -> io::Result<()> {
    let (mut bytes, mut places) = (Vec::new(), Vec::with_capacity(new.len()));
    for (stored, _) in new {
        let framed = StoreRecord::Document(Box::new(stored.clone())).framed()?;
        let offset = index.bytes + u64::try_from(bytes.len()).map_err(io::Error::other)?;
        let length = u32::try_from(framed.len()).map_err(io::Error::other)?;
        places.push(RecordPlace { offset, bytes: length });
        bytes.extend_from_slice(&framed);
    }
    bytes.extend_from_slice(&StoreRecord::Upto(upto).framed()?);
    file::append(path, index.bytes, &bytes)?;
    for ((stored, digest), place) in new.iter().zip(places) {
        index.add(&stored.document, stored.vector.as_deref(), *digest, place);
    }
    index.order();
    index.bytes += u64::try_from(bytes.len()).map_err(io::Error::other)?;
    index.upto = upto;
    Ok(())
}
