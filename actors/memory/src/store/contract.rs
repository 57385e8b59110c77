//! What every store does, and how it fails.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    path::PathBuf,
};

use async_trait::async_trait;
use clawnode_proto::EntityId;

use super::document::{
    DOCUMENT_CHARS, Document, DocumentBatch, DocumentId, FoundDocument, QUERY_SCOPES, RecallQuery,
    SCOPE_DOCUMENTS, SPEAKER_CHARS, StoreScope,
};

/// A place that finds documents. The suite `conformance` says in code what each has to do.
#[async_trait]
pub trait MemoryStore: Send + Sync + fmt::Debug {
    /// Adds documents of a scope. The same batch twice is as good as once. A document that was masked stays away.
    async fn put(&self, scope: &StoreScope, batch: DocumentBatch) -> Result<(), MemoryStoreError>;

    /// Removes documents, also from the disk, and remembers that they may not come back: those that were forgotten, and
    /// those that something newer supersedes.
    async fn mask(&self, scope: &StoreScope, ids: &[DocumentId]) -> Result<(), MemoryStoreError>;

    /// The `k` documents of these scopes that fit best, best first, in the same order each time. Nothing of any other
    /// scope has a part in it (MEM-1).
    async fn search(
        &self,
        scopes: &[StoreScope],
        query: &RecallQuery,
        k: usize,
    ) -> Result<RecallAnswer, MemoryStoreError>;

    /// The standing instructions of these memories, which turns are shown without a search; the 10 newest ones of each, at
    /// least. A store that does not know the journals of memories has none.
    async fn standing(&self, _scopes: &[StoreScope]) -> Result<RecallAnswer, MemoryStoreError> {
        Ok(RecallAnswer::default())
    }

    /// The event of the entity's journal up to which the scope is filled; 0 if it is empty. What comes after it has to
    /// be put.
    async fn upto(&self, scope: &StoreScope) -> Result<u64, MemoryStoreError>;

    /// Removes a scope with everything in it, also what was masked.
    async fn drop(&self, scope: &StoreScope) -> Result<(), MemoryStoreError>;
}

/// A store that a process keeps filled from journals.
#[async_trait]
pub trait FilledStore: MemoryStore {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// The scope of this entity, if the store has something of it. A deleted entity has no key to compute it from.
    async fn scope_of(&self, entity: EntityId) -> Result<Option<StoreScope>, MemoryStoreError>;

    /// Has what was put of these entities survive a power cut.
    async fn sync(&self, entities: &BTreeSet<EntityId>) -> Result<(), MemoryStoreError>;

    /// Goes on with what there is now, after something else removed its files.
    async fn look_again(&self) -> Result<(), MemoryStoreError>;

    /// Which store this is: another text after all that it had was lost.
    async fn identity(&self) -> Result<String, MemoryStoreError>;

    /// Why it cannot be used now, and what to do; none if it can be, as far as is known.
    fn away(&self) -> Option<StoreAway>;
}

/// A store that cannot be used now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreAway {
    /// What happened, and where.
    pub what: String,
    /// What to do.
    pub hint: String,
}

/// What a search found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecallAnswer {
    /// Best first.
    pub found: Vec<FoundDocument>,
    /// Scopes that were not searched whole. An index that was damaged is empty now, and has to be put from the
    /// beginning; a journal that could not be read may have more to say than the store knows.
    pub damaged: Vec<StoreScope>,
    /// The event up to which each of the scopes was filled, at least: as `upto` says it, without a further request. A store
    /// that does not know it says nothing.
    pub upto: BTreeMap<StoreScope, u64>,
}

/// Why a store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum MemoryStoreError {
    /// Events between were never put. Nothing was added; put from `upto` on.
    #[error(
        "the store has `{scope}` up to event {upto}, and this batch begins after {after}; put what is between first"
    )]
    Behind {
        scope: StoreScope,
        /// The event up to which it is filled.
        upto: u64,
        /// The event after which the batch begins.
        after: u64,
    },
    /// The index of a scope was damaged and is removed. Put the scope from its first event on.
    #[error(
        "the index of `{scope}` was damaged ({detail}) and is removed; build it again from its journal"
    )]
    Damaged {
        scope: StoreScope,
        /// How that showed.
        detail: String,
    },
    /// A document is empty, or too long. Nothing of its batch was added.
    #[error("document `{id}` has {what}: {found}; it may have 1 to {limit}")]
    Malformed {
        /// Which document.
        id: DocumentId,
        /// What is wrong, with its unit.
        what: &'static str,
        /// How many there are.
        found: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A vector of another model.
    #[error(
        "a vector has {found} numbers, and those of this index have {expected}: the model behind this name has changed. Use a \
         model with another name, or, if the store is `local`, stop the node and remove the folder `memory` of its data \
         directory, which the node makes again"
    )]
    Dimensions {
        /// Numbers of the vector.
        found: usize,
        /// Numbers of the store's vectors; 0 if it has none.
        expected: usize,
    },
    /// A scope has as many documents as it may. Nothing was added.
    #[error(
        "`{scope}` has {SCOPE_DOCUMENTS} documents, and no more fit; consolidate or forget some of them first"
    )]
    Full { scope: StoreScope },
    /// More scopes than a search may name.
    #[error("a search names {found} scopes, and {QUERY_SCOPES} are the limit")]
    Scopes {
        /// How many.
        found: usize,
    },
    /// The file of a scope cannot be read or written.
    #[error("cannot use the index `{}`; check its disk and permissions", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        source: std::io::Error,
    },
    /// The server of the store cannot be reached, or does not do what it is asked.
    #[error("cannot use the store of memories at `{url}`: {detail}")]
    Away {
        /// Where the server is.
        url: String,
        /// What it said, or how it failed.
        detail: String,
    },
    /// The server of the store is there, and cannot be used as it is.
    #[error("the store of memories at `{url}` does not fit: {detail}")]
    Unfit {
        /// Where the server is.
        url: String,
        /// What is wrong, and what to do.
        detail: String,
    },
    /// The process ends.
    #[error("the store is closed, because this process ends")]
    Closed,
}

impl MemoryStoreError {
    /// Whether the whole store cannot be used now, whatever it is asked.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Away { .. } | Self::Unfit { .. })
    }

    /// Refuses a document that no store may hold.
    pub fn check(document: &Document, dimensions: usize) -> Result<(), Self> {
        let chars = document.text.chars().count();
        let malformed =
            |what, found, limit| Err(Self::Malformed { id: document.id, what, found, limit });
        if !(1..=DOCUMENT_CHARS).contains(&chars) {
            return malformed("characters of text", chars, DOCUMENT_CHARS);
        }
        let speaker = document.speaker.as_ref().map_or(1, |name| name.chars().count());
        if !(1..=SPEAKER_CHARS).contains(&speaker) {
            return malformed("characters in the name of its speaker", speaker, SPEAKER_CHARS);
        }
        match &document.embedding {
            Some(vector) => Self::check_dimensions(vector, dimensions),
            None => Ok(()),
        }
    }

    /// Refuses a vector that is not of the store's model.
    pub fn check_dimensions(vector: &[f32], expected: usize) -> Result<(), Self> {
        let found = vector.len();
        if found == expected { Ok(()) } else { Err(Self::Dimensions { found, expected }) }
    }
}
