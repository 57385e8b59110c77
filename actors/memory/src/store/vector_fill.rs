//! Vectors of documents that the store in this process has already: they are made later than the documents are put.
//!
//! A vector is added only to the document whose text it was made from. What was masked, replaced or dropped meanwhile
//! gets none.

use std::{
    collections::HashMap,
    fs::{self, File},
};

use async_trait::async_trait;
use clawnode_proto::{EntityId, memory_view::IndexBuild};

use super::{
    contract::{FilledStore, MemoryStoreError},
    document::{Document, DocumentBatch, DocumentId, StoreScope},
    file::{self, StoreFileError, StoredDocument},
    local::LocalStore,
    resident::{self, failed},
    take_over,
};

/// A store whose documents get their vectors after they were put, all of one model.
#[async_trait]
pub trait VectorStore: FilledStore {
    /// How many numbers its vectors have; 0 if there are none, or none yet.
    fn dimensions(&self) -> usize;

    /// Says how many numbers the vectors of its model have, and keeps that. Refuses another number than is known. A store
    /// that answers from the index of another model builds its own one beside it, and goes over to that before this ends;
    /// what fails on the way goes on with the next call.
    async fn learn_dimensions(&self, found: usize) -> Result<(), MemoryStoreError>;

    /// How far an index is that is built beside the one that answers; none if none is.
    fn building(&self) -> Option<IndexBuild>;

    /// The scopes that it has.
    async fn scopes(&self) -> Result<Vec<StoreScope>, MemoryStoreError>;

    /// How many documents of a scope have a vector.
    async fn vector_fill(&self, scope: &StoreScope) -> Result<VectorFill, MemoryStoreError>;

    /// At most so many documents of a scope that have no vector of its model.
    async fn bare(
        &self,
        scope: &StoreScope,
        most: usize,
    ) -> Result<Vec<Document>, MemoryStoreError>;

    /// Gives documents of a scope their vectors, those that are there as they were.
    async fn give_vectors(
        &self,
        scope: &StoreScope,
        made: Vec<(Document, Vec<f32>)>,
    ) -> Result<(), MemoryStoreError>;

    /// The batch with the vectors that the scope has of the same texts, so that they are not made again when the scope is
    /// written again.
    async fn keep_vectors(
        &self,
        scope: &StoreScope,
        batch: DocumentBatch,
    ) -> Result<DocumentBatch, MemoryStoreError>;
}

/// How many documents of a scope have a vector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VectorFill {
    /// Documents with a vector.
    pub vectors: usize,
    /// All documents.
    pub documents: usize,
}

// === impl LocalStore ===

impl LocalStore {
    /// How many numbers its vectors have; 0 if there are none, or none yet.
    pub fn dimensions(&self) -> usize {
        self.shared.dimensions()
    }

    /// Says how many numbers the vectors of its model have, and keeps that. Refuses another number than is known; blocks.
    pub(crate) fn learn_dimensions_now(&self, found: usize) -> Result<(), MemoryStoreError> {
        let known = self.dimensions();
        if known == 0 {
            take_over::keep_dimensions(self.folder(), found)
                .map_err(|source| failed(self.folder(), source))?;
        }
        let expected = self.shared.learn_dimensions(found);
        if found == expected {
            Ok(())
        } else {
            Err(MemoryStoreError::Dimensions { found, expected })
        }
    }

    /// The entities that it has files of; blocks.
    pub(crate) fn entities(&self) -> Result<Vec<EntityId>, MemoryStoreError> {
        let folder = self.folder();
        let entries = fs::read_dir(folder).map_err(|source| failed(folder, source))?;
        let entity = |entry: fs::DirEntry| {
            let name = entry.file_name();
            name.to_str()?.strip_suffix(".scope")?.parse().ok()
        };
        Ok(entries.flatten().filter_map(entity).collect())
    }

    /// How many documents of a scope have a vector; blocks.
    pub(crate) fn vector_fill_now(
        &self,
        scope: &StoreScope,
    ) -> Result<VectorFill, MemoryStoreError> {
        let resident = self.shared.resident(scope);
        let mut exclusive = resident.exclusive(self.dimensions())?;
        let (vectors, bare) = (exclusive.places(true).len(), exclusive.places(false).len());
        Ok(VectorFill { vectors, documents: vectors.saturating_add(bare) })
    }

    /// At most so many documents of a scope that have no vector; blocks.
    pub(crate) fn bare_now(
        &self,
        scope: &StoreScope,
        most: usize,
    ) -> Result<Vec<Document>, MemoryStoreError> {
        let stored = self.read(scope, false, most)?.into_iter();
        Ok(stored.map(|stored| stored.document).collect())
    }

    /// Gives documents of a scope their vectors, those that are there as they were; blocks.
    pub(crate) fn give_vectors_now(
        &self,
        scope: &StoreScope,
        made: Vec<(Document, Vec<f32>)>,
    ) -> Result<(), MemoryStoreError> {
        let dimensions = self.dimensions();
        for (_, vector) in &made {
            MemoryStoreError::check_dimensions(vector, dimensions)?;
        }
        let resident = self.shared.resident(scope);
        let mut exclusive = resident.exclusive(dimensions)?;
        let index = exclusive.index();
        let mut documents = Vec::with_capacity(made.len());
        for (document, vector) in made {
            let bare = StoredDocument { document, vector: None };
            let digest =
                resident::digest(&bare).map_err(|source| failed(&resident.path, source))?;
            if index.has(bare.document.id, digest) {
                documents.push(Document { embedding: Some(vector), ..bare.document });
            }
        }
        let upto = index.upto;
        exclusive.put(&DocumentBatch { after: upto, upto, documents })
    }

    /// Gives the documents of a batch the vectors that the scope has of the same texts, so that they are not made again
    /// when the scope is written again; blocks.
    pub(crate) fn keep_vectors_now(
        &self,
        scope: &StoreScope,
        batch: &mut DocumentBatch,
    ) -> Result<(), MemoryStoreError> {
        if self.dimensions() == 0 {
            return Ok(());
        }
        let known = self.read(scope, true, usize::MAX)?.into_iter();
        let known: HashMap<DocumentId, StoredDocument> =
            known.map(|stored| (stored.document.id, stored)).collect();
        for document in batch.documents.iter_mut().filter(|document| document.embedding.is_none()) {
            let same = known.get(&document.id).filter(|same| same.document.text == document.text);
            let vector = same.and_then(|same| same.vector.as_ref());
            document.embedding =
                vector.map(|vector| vector.iter().map(|number| f32::from(*number)).collect());
        }
        Ok(())
    }

    /// At most so many documents of a scope that have a vector, or those that have none. Nothing changes the file meanwhile.
    fn read(
        &self,
        scope: &StoreScope,
        have_vector: bool,
        most: usize,
    ) -> Result<Vec<StoredDocument>, MemoryStoreError> {
        let resident = self.shared.resident(scope);
        let mut exclusive = resident.exclusive(self.dimensions())?;
        let mut places = exclusive.places(have_vector);
        places.truncate(most);
        if places.is_empty() {
            return Ok(Vec::new());
        }
        let path = &resident.path;
        let mut file = File::open(path).map_err(|source| failed(path, source))?;
        let mut read = Vec::with_capacity(places.len());
        for place in places {
            match file::stored(&mut file, place) {
                Ok(stored) => read.push(stored),
                // A search that finds it says so.
                Err(StoreFileError::Damaged(_)) => {}
                Err(StoreFileError::Io(source)) => return Err(failed(path, source)),
            }
        }
        Ok(read)
    }
}

#[async_trait]
impl VectorStore for LocalStore {
    fn dimensions(&self) -> usize {
        self.shared.dimensions()
    }

    async fn learn_dimensions(&self, found: usize) -> Result<(), MemoryStoreError> {
        self.work(move |store| store.learn_dimensions_now(found)).await
    }

    /// Its files are taken over before it is opened.
    fn building(&self) -> Option<IndexBuild> {
        None
    }

    async fn scopes(&self) -> Result<Vec<StoreScope>, MemoryStoreError> {
        let find = |store: &Self| {
            let found = store.entities()?.into_iter().map(|entity| store.scope_of(entity));
            found.filter_map(Result::transpose).collect::<Result<Vec<_>, _>>()
        };
        self.work(find).await
    }

    async fn vector_fill(&self, scope: &StoreScope) -> Result<VectorFill, MemoryStoreError> {
        let scope = scope.clone();
        self.work(move |store| store.vector_fill_now(&scope)).await
    }

    async fn bare(
        &self,
        scope: &StoreScope,
        most: usize,
    ) -> Result<Vec<Document>, MemoryStoreError> {
        let scope = scope.clone();
        self.work(move |store| store.bare_now(&scope, most)).await
    }

    async fn give_vectors(
        &self,
        scope: &StoreScope,
        made: Vec<(Document, Vec<f32>)>,
    ) -> Result<(), MemoryStoreError> {
        let scope = scope.clone();
        self.work(move |store| store.give_vectors_now(&scope, made)).await
    }

    async fn keep_vectors(
        &self,
        scope: &StoreScope,
        batch: DocumentBatch,
    ) -> Result<DocumentBatch, MemoryStoreError> {
        let scope = scope.clone();
        let keep = move |store: &Self| {
            let mut batch = batch;
            match store.keep_vectors_now(&scope, &mut batch) {
                Ok(()) | Err(MemoryStoreError::Damaged { .. }) => Ok(batch),
                Err(failure) => Err(failure),
            }
        };
        self.work(keep).await
    }
}
