//! What a search has to know of the documents of a scope, in memory, where the documents themselves are elsewhere: on a
//! server. Ranks them as the local store does, so that both give the same order.

use super::{
    document::{Document, DocumentId, RecallQuery},
    file::RecordPlace,
    index::{ScopeIndex, at},
    ranking,
    score::ScoreParts,
    vector_fill::VectorFill,
    vectors,
};

/// Documents are in no file; every live one needs a place all the same.
const NOWHERE: RecordPlace = RecordPlace { offset: 0, bytes: 0 };

/// The words, vectors and positions of the documents of one scope, without their texts.
#[derive(Debug)]
pub struct HeldIndex {
    index: ScopeIndex,
}

/// A document that fits, and how well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeldHit {
    /// Which of the indexes has it.
    pub index: usize,
    /// Which document it is there.
    pub id: DocumentId,
    pub score: ScoreParts,
}

// === impl HeldIndex ===

impl HeldIndex {
    /// An index without documents, for vectors with so many numbers; 0 for none.
    pub fn new(dimensions: usize) -> Self {
        Self { index: ScopeIndex::new(dimensions, std::collections::BTreeSet::new()) }
    }

    /// Adds documents, each in the place of one with its id.
    pub fn add(&mut self, documents: &[Document]) {
        for document in documents {
            let vector = document.embedding.as_deref().map(vectors::in_bytes);
            self.index.add(document, vector.as_deref(), 0, NOWHERE);
        }
        self.index.order();
    }

    /// Lets nothing find a document any more.
    pub fn remove(&mut self, id: DocumentId) {
        self.index.hide(id);
    }

    /// Documents that can be found.
    pub fn documents(&self) -> usize {
        self.index.documents()
    }

    /// How many of them have a vector.
    pub fn vector_fill(&self) -> VectorFill {
        VectorFill { vectors: self.ids(true).count(), documents: self.documents() }
    }

    /// Those that have a vector, or those that have none.
    pub fn ids(&self, have_vector: bool) -> impl Iterator<Item = DocumentId> {
        let live = self.index.entries().iter().filter(|entry| entry.place.is_some());
        live.filter(move |entry| entry.has_vector == have_vector).map(|entry| entry.id)
    }

    /// Whether removed documents take so much of it that it should be made again.
    pub fn is_sparse(&self) -> bool {
        self.index.is_sparse()
    }
}

/// The best `k` documents of these indexes, best first, in the same order each time.
pub fn rank(indexes: &[&HeldIndex], query: &RecallQuery, k: usize) -> Vec<HeldHit> {
    let indexes: Vec<&ScopeIndex> = indexes.iter().map(|held| &held.index).collect();
    let vector = query.embedding.as_deref().map(vectors::in_bytes);
    let hits = ranking::rank(&indexes, query, vector.as_deref(), k).into_iter();
    let held = |hit: ranking::Hit| {
        let entry = indexes.get(hit.index)?.entries().get(at(hit.number))?;
        Some(HeldHit { index: hit.index, id: entry.id, score: hit.score })
    };
    hits.filter_map(held).collect()
}
