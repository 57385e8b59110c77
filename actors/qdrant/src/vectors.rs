//! Vectors of documents that an index has already, and what another index is built from.

use std::collections::BTreeSet;

use clawnode_memory::store::{
    Document, DocumentBatch, DocumentId, MemoryStore as _, MemoryStoreError, StoreScope, VectorFill,
};
use qdrant_client::qdrant::PointId;
use rand::seq::SliceRandom as _;

use crate::{
    index::{PutChoice, ServerIndex},
    layout::{self, PointNumber, key},
    server::WantedParts,
};

/// Scopes of an index that are listed. What is beyond gets its vectors when it changes.
const SCOPES_MOST: usize = 1 << 20;
/// Documents that are copied at once.
const COPIED_ONCE: usize = 256;
/// Documents of a scope that are copied: as many as it may have, and those of a race.
const COPIED_MOST: usize = 2 * clawnode_memory::store::document::SCOPE_DOCUMENTS;
/// How often a scope is looked at that other processes change while it is copied. After that it is left to its journal.
const COPY_TRIES: u32 = 8;

// === impl ServerIndex ===

impl ServerIndex {
    /// The scopes that are filled, in another order each time: processes that work through them together mostly do not do the
    /// same twice.
    pub(crate) async fn scopes(&self) -> Result<Vec<StoreScope>, MemoryStoreError> {
        self.server.ready().await?;
        let (state, wanted) = (&self.server.state, WantedParts::Only(key::SCOPE));
        let listed = self.server.list(state, layout::states(), wanted, SCOPES_MOST).await?;
        let named = listed.iter().filter_map(|point| layout::text(&point.payload, key::SCOPE));
        let mut scopes: Vec<StoreScope> = named.filter_map(StoreScope::read).collect();
        scopes.shuffle(&mut rand::rng());
        Ok(scopes)
    }

    pub(crate) async fn vector_fill(
        &self,
        scope: &StoreScope,
    ) -> Result<VectorFill, MemoryStoreError> {
        self.server.ready().await?;
        let state = self.server.state_of(scope).await?;
        let indexed = self.cache.current(&self.server, scope, &state).await?;
        Ok(indexed.index.vector_fill())
    }

    /// At most so many documents of a scope that have no vector; with `all`, also those that have one.
    pub(crate) async fn bare(
        &self,
        scope: &StoreScope,
        most: usize,
        all: bool,
    ) -> Result<Vec<Document>, MemoryStoreError> {
        self.server.ready().await?;
        let state = self.server.state_of(scope).await?;
        let ids: Vec<DocumentId> = {
            let indexed = self.cache.current(&self.server, scope, &state).await?;
            let with = indexed.index.ids(true).filter(|_| all);
            indexed.index.ids(false).chain(with).take(most).collect()
        };
        let generation = state.generation.as_str();
        self.documents(scope, generation, &ids, WantedParts::Payload).await
    }

    /// Gives documents their vectors, those that are there as they were.
    pub(crate) async fn give_vectors(
        &self,
        scope: &StoreScope,
        made: Vec<(Document, Vec<f32>)>,
    ) -> Result<(), MemoryStoreError> {
        let documents = made
            .into_iter()
            .map(|(document, vector)| Document { embedding: Some(vector), ..document })
            .collect();
        let batch = DocumentBatch { after: 0, upto: 0, documents };
        self.put_chosen(scope, batch, PutChoice::Vectors).await
    }

    /// The batch with the vectors that the scope has of the same texts.
    pub(crate) async fn keep_vectors(
        &self,
        scope: &StoreScope,
        mut batch: DocumentBatch,
    ) -> Result<DocumentBatch, MemoryStoreError> {
        self.server.ready().await?;
        let state = self.server.state_of(scope).await?;
        let bare = batch.documents.iter().filter(|document| document.embedding.is_none());
        let ids: Vec<DocumentId> = bare.map(|document| document.id).collect();
        let generation = state.generation.as_str();
        let known = self.documents(scope, generation, &ids, WantedParts::All).await?;
        for document in batch.documents.iter_mut().filter(|document| document.embedding.is_none()) {
            let mut same = known.iter().filter(|known| known.id == document.id);
            let same = same.find(|same| same.text == document.text);
            document.embedding = same.and_then(|same| same.embedding.clone());
        }
        Ok(batch)
    }

    /// Puts what `from` has of a scope, without vectors, and says that the scope is filled as far as there, if this index
    /// has just that of it. Anything else is left to its journal, which goes on from where the scope says that it ends.
    pub(crate) async fn copy(
        &self,
        from: &Self,
        scope: &StoreScope,
    ) -> Result<(), MemoryStoreError> {
        let before = from.server.state_of(scope).await?;
        // A build that broke off has put it. If it were said to be filled further, what was forgotten since would stay.
        if before.upto == 0 || self.server.state_of(scope).await?.upto > 0 {
            return Ok(());
        }
        // Boxed: it is large.
        let copied = Box::pin(self.copy_documents(from, scope, &before.generation)).await?;
        let after = from.server.state_of(scope).await?;
        if after.generation != before.generation || after.upto < before.upto {
            // It was dropped meanwhile: it was not read whole, and what was read may have been forgotten.
            return self.drop(scope).await;
        }
        for _ in 0..COPY_TRIES {
            let own = self.server.state_of(scope).await?;
            let number = |id: &DocumentId| PointNumber::of_document(scope, &own.generation, *id);
            let expected: BTreeSet<PointNumber> = copied.iter().map(number).collect();
            if own.upto > 0 || self.numbers(scope, &own.generation).await? != expected {
                break;
            }
            // Only if nothing has changed since: another process may have dropped it, or puts the same.
            let filled = own.filled(before.upto);
            if self.server.change(scope, &own, &filled).await?.token == filled.token {
                break;
            }
        }
        Ok(())
    }

    /// Puts the documents that `from` has in this generation of a scope; gives their ids.
    async fn copy_documents(
        &self,
        from: &Self,
        scope: &StoreScope,
        generation: &str,
    ) -> Result<BTreeSet<DocumentId>, MemoryStoreError> {
        let masked = from.server.masked(scope, generation).await?;
        let masked: Vec<DocumentId> = masked.into_iter().collect();
        self.mask(scope, &masked).await?;
        let numbers = from.numbers(scope, generation).await?;
        let ids: Vec<PointId> = numbers.into_iter().map(PointNumber::id).collect();
        let mut copied = BTreeSet::new();
        for ids in ids.chunks(COPIED_ONCE) {
            let points = from.server.get(&from.server.documents, ids, WantedParts::Payload).await?;
            let documents =
                points.iter().filter_map(|point| layout::document(point, scope, generation));
            let documents: Vec<Document> = documents.collect();
            copied.extend(documents.iter().map(|document| document.id));
            let batch = DocumentBatch { after: 0, upto: 0, documents };
            self.put_chosen(scope, batch, PutChoice::Changed).await?;
        }
        Ok(copied)
    }

    /// The points of all documents in this generation of a scope.
    async fn numbers(
        &self,
        scope: &StoreScope,
        generation: &str,
    ) -> Result<BTreeSet<PointNumber>, MemoryStoreError> {
        let filter = layout::in_generations(scope, &[generation.to_owned()]);
        let (documents, wanted) = (&self.server.documents, WantedParts::Only(key::DIGEST));
        let listed = self.server.list(documents, filter, wanted, COPIED_MOST).await?;
        Ok(listed.iter().filter_map(PointNumber::read).collect())
    }

    async fn documents(
        &self,
        scope: &StoreScope,
        generation: &str,
        ids: &[DocumentId],
        wanted: WantedParts<'_>,
    ) -> Result<Vec<Document>, MemoryStoreError> {
        let number = |id: &DocumentId| PointNumber::of_document(scope, generation, *id);
        let ids: Vec<PointId> = ids.iter().map(|id| number(id).id()).collect();
        let points = self.server.get(&self.server.documents, &ids, wanted).await?;
        let documents =
            points.iter().filter_map(|point| layout::document(point, scope, generation));
        Ok(documents.collect())
    }
}
