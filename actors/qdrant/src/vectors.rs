//! Vectors of documents that an index has already, and what another index is built from.

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

    /// Puts what `from` has of a scope, without vectors. What this index has further of it already stays.
    pub(crate) async fn copy(
        &self,
        from: &Self,
        scope: &StoreScope,
    ) -> Result<(), MemoryStoreError> {
        let before = from.server.state_of(scope).await?;
        if self.server.state_of(scope).await?.upto >= before.upto {
            return Ok(());
        }
        let generation = before.generation.as_str();
        let masked = from.server.masked(scope, generation).await?;
        let masked: Vec<DocumentId> = masked.into_iter().collect();
        self.mask(scope, &masked).await?;
        let filter = layout::in_generations(scope, std::slice::from_ref(&before.generation));
        let wanted = WantedParts::Only(key::DIGEST);
        let listed = from.server.list(&from.server.documents, filter, wanted, COPIED_MOST).await?;
        let ids: Vec<PointId> = listed.into_iter().filter_map(|point| point.id).collect();
        for ids in ids.chunks(COPIED_ONCE) {
            let points = from.server.get(&from.server.documents, ids, WantedParts::Payload).await?;
            let documents =
                points.iter().filter_map(|point| layout::document(point, scope, generation));
            let batch = DocumentBatch { after: 0, upto: 0, documents: documents.collect() };
            self.put_chosen(scope, batch, PutChoice::Changed).await?;
        }
        // What was dropped meanwhile was not read whole. It is put from its journal.
        if from.server.state_of(scope).await?.generation != before.generation {
            return Ok(());
        }
        let batch = DocumentBatch { after: 0, upto: before.upto, documents: Vec::new() };
        self.put_chosen(scope, batch, PutChoice::Changed).await
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
