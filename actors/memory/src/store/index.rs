//! The index of one scope, in memory: which documents have which words, their vectors, and who is beside whom.
//!
//! A document that was masked or replaced stays as a number that nothing finds, until the scope is loaded again.

use std::collections::{BTreeSet, HashMap};

use clawnode_proto::memory::MemoryTrust;

use super::{
    document::{Document, DocumentId, DocumentKind},
    file::RecordPlace,
    vectors::Vectors,
    words,
};

/// Numbers that nothing finds, beside as many as there are documents, before the scope is loaded again.
const DEAD: usize = 1_024;

/// The index of one scope.
#[derive(Debug, Default)]
pub(super) struct ScopeIndex {
    entries: Vec<IndexEntry>,
    numbers: HashMap<DocumentId, u32>,
    masked: BTreeSet<DocumentId>,
    /// Whether the file does not know yet what was masked.
    is_behind: bool,
    postings: HashMap<u64, Vec<Posting>>,
    vectors: Vectors,
    /// The positions that documents have, in order: a document's `rank` is a place in this list.
    positions: Vec<u64>,
    /// The event of the journal up to which it is filled.
    pub(super) upto: u64,
    /// Bytes of the scope's file; 0 if there is none.
    pub(super) bytes: u64,
}

/// What is known of a document without reading it.
#[derive(Debug)]
pub(super) struct IndexEntry {
    pub(super) id: DocumentId,
    pub(super) kind: DocumentKind,
    pub(super) trust: MemoryTrust,
    pub(super) importance: u8,
    /// How many words it has.
    pub(super) length: u32,
    pub(super) position: Option<u64>,
    /// Where its position is in the order of all.
    pub(super) rank: Option<u32>,
    /// What says whether a document with its id is the same.
    pub(super) digest: u64,
    /// Whether its vector was made.
    pub(super) has_vector: bool,
    /// Where it is in the file; none if nothing may find it.
    pub(super) place: Option<RecordPlace>,
}

/// A document that has a word, and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Posting {
    pub(super) number: u32,
    pub(super) times: u32,
}

/// The place of a document in lists of all of them.
pub(super) fn at(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

// === impl ScopeIndex ===

impl ScopeIndex {
    pub(super) fn new(dimensions: usize, masked: BTreeSet<DocumentId>) -> Self {
        Self { vectors: Vectors::new(dimensions), masked, ..Self::default() }
    }

    /// Adds a document, in the place of one with its id.
    pub(super) fn add(
        &mut self,
        document: &Document,
        vector: Option<&[i8]>,
        digest: u64,
        place: RecordPlace,
    ) {
        self.hide(document.id);
        let Ok(number) = u32::try_from(self.entries.len()) else { return };
        let mut found = Vec::new();
        words::numbers(document.speaker.as_deref().unwrap_or_default(), &mut found);
        words::numbers(&document.text, &mut found);
        let length = u32::try_from(found.len()).unwrap_or(u32::MAX);
        found.sort_unstable();
        for same in found.chunk_by(|one, other| one == other) {
            let Some(word) = same.first() else { continue };
            let times = u32::try_from(same.len()).unwrap_or(u32::MAX);
            self.postings.entry(*word).or_default().push(Posting { number, times });
        }
        self.vectors.push(vector);
        self.numbers.insert(document.id, number);
        self.entries.push(IndexEntry {
            id: document.id,
            kind: document.kind,
            trust: document.trust,
            importance: document.importance,
            length,
            position: document.position,
            rank: None,
            digest,
            has_vector: vector.is_some(),
            place: Some(place),
        });
    }

    /// Gives each document its rank, after some were added: documents mostly come in the order of their positions.
    pub(super) fn order(&mut self) {
        let Self { entries, positions, .. } = self;
        let new = entries.iter().rposition(|entry| entry.rank.is_some()).map_or(0, |last| last + 1);
        let mut is_in_order = true;
        for entry in entries.iter_mut().skip(new) {
            let Some(position) = entry.position else { continue };
            is_in_order &= positions.last().is_none_or(|last| *last <= position);
            if positions.last() != Some(&position) {
                positions.push(position);
            }
            entry.rank = u32::try_from(positions.len() - 1).ok();
        }
        if is_in_order {
            return;
        }
        positions.sort_unstable();
        positions.dedup();
        for entry in entries {
            let rank = entry.position.and_then(|position| positions.binary_search(&position).ok());
            entry.rank = rank.and_then(|rank| u32::try_from(rank).ok());
        }
    }

    /// Lets nothing find a document any more. Says whether there was one.
    pub(super) fn hide(&mut self, id: DocumentId) -> bool {
        let entry = self.numbers.remove(&id).and_then(|number| self.entries.get_mut(at(number)));
        entry.is_some_and(|entry| entry.place.take().is_some())
    }

    /// Hides documents for ever. Says whether the file has to be written again.
    pub(super) fn mask(&mut self, ids: &[DocumentId]) -> bool {
        for id in ids {
            self.hide(*id);
            self.is_behind |= self.masked.insert(*id);
        }
        self.is_behind
    }

    pub(super) fn masked(&self) -> &BTreeSet<DocumentId> {
        &self.masked
    }

    /// Documents that can be found.
    pub(super) fn documents(&self) -> usize {
        self.numbers.len()
    }

    /// Whether it has so many numbers that nothing finds that it should be loaded again.
    pub(super) fn is_sparse(&self) -> bool {
        self.entries.len() > 2 * self.numbers.len() + DEAD
    }

    /// Bytes of the documents that can be found.
    pub(super) fn live_bytes(&self) -> u64 {
        self.live().map(|place| u64::from(place.bytes)).sum()
    }

    /// Where the documents are that can be found, in the order of the file.
    pub(super) fn live(&self) -> impl Iterator<Item = RecordPlace> {
        self.entries.iter().filter_map(|entry| entry.place)
    }

    /// The file was written again: where its documents are now, and how long it is.
    pub(super) fn moved(&mut self, places: &[RecordPlace], bytes: u64) {
        let live = self.entries.iter_mut().filter_map(|entry| entry.place.as_mut());
        for (place, new) in live.zip(places) {
            *place = *new;
        }
        self.bytes = bytes;
        self.is_behind = false;
    }

    /// Whether the same document is there.
    pub(super) fn has(&self, id: DocumentId, digest: u64) -> bool {
        let entry = self.numbers.get(&id).and_then(|number| self.entries.get(at(*number)));
        entry.is_some_and(|entry| entry.digest == digest)
    }

    pub(super) fn contains(&self, id: DocumentId) -> bool {
        self.numbers.contains_key(&id)
    }

    pub(super) fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    pub(super) fn postings(&self, word: u64) -> &[Posting] {
        self.postings.get(&word).map_or(&[], Vec::as_slice)
    }

    pub(super) fn vectors(&self) -> &Vectors {
        &self.vectors
    }

    pub(super) fn positions(&self) -> &[u64] {
        &self.positions
    }
}
