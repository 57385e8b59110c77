//! How long searches of the local store take.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use clawnode_bench::{Error, Row, Speech, percentile};
use clawnode_memory::store::{
    Document, DocumentBatch, DocumentId, DocumentKind, LocalStore, RecallQuery, StoreScope,
};
use clawnode_proto::{EntityId, SessionKey, Timestamp, id::Kind, memory::MemoryTrust};

/// The longest that a search of 10^5 documents may take in 99 of 100 cases, in milliseconds.
const SEARCH_MS: f64 = 25.0;
/// Documents that a search gives.
pub(crate) const FOUND: usize = 10;
/// Documents of a batch while an index is filled.
const BATCH: u64 = 1_000;

/// Passages of 120 words and searches of 12, the same in every run, with vectors of random numbers.
pub(crate) struct SpeedSet {
    pub(crate) scope: StoreScope,
    entity: EntityId,
    speech: Speech,
    dimensions: usize,
}

// === impl SpeedSet ===

impl SpeedSet {
    /// With vectors of so many numbers; 0 for none.
    pub(crate) fn new(dimensions: usize) -> Result<Self, Error> {
        let session: SessionKey = "bench:speed:set:person".parse()?;
        let scope = StoreScope::of_session(&session);
        let entity = EntityId::derive(Kind::SESSION, &session.to_string());
        Ok(Self { scope, entity, speech: Speech::default(), dimensions })
    }

    /// So many passages, in batches.
    pub(crate) fn batches(&mut self, documents: usize) -> impl Iterator<Item = DocumentBatch> {
        let last = u64::try_from(documents).unwrap_or(u64::MAX);
        (0..last.div_ceil(BATCH)).map(move |batch| {
            let (after, upto) = (batch * BATCH, last.min((batch + 1) * BATCH));
            let documents = (after + 1..=upto).map(|number| self.document(number)).collect();
            DocumentBatch { after, upto, documents }
        })
    }

    fn document(&mut self, number: u64) -> Document {
        Document {
            id: DocumentId { entity: self.entity, event: number, part: 0 },
            kind: DocumentKind::Passage,
            text: self.speech.text(120),
            speaker: None,
            position: Some(number),
            at: Timestamp(number),
            importance: 5,
            trust: MemoryTrust::Person,
            embedding: self.speech.vector(self.dimensions),
        }
    }

    pub(crate) fn query(&mut self) -> RecallQuery {
        RecallQuery {
            embedding: self.speech.vector(self.dimensions),
            ..RecallQuery::new(self.speech.text(12))
        }
    }
}

/// Fills an index of so many passages, opens it again, and searches it.
pub(crate) fn timed(
    dir: &Path,
    documents: usize,
    dimensions: usize,
    searches: usize,
) -> Result<Row, Error> {
    let folder = tempfile::tempdir_in(dir)?;
    let open =
        || LocalStore::open(folder.path(), (dimensions > 0).then_some(("bench", dimensions)));
    let mut set = SpeedSet::new(dimensions)?;
    let scope = set.scope.clone();
    let store = open()?;
    let mut filling = Duration::ZERO;
    for batch in set.batches(documents) {
        let began = Instant::now();
        store.put_now(&scope, &batch)?;
        filling += began.elapsed();
    }
    drop(store);
    let store = open()?;
    let began = Instant::now();
    store.upto_now(&scope)?;
    let loading = began.elapsed();
    let mut times = Vec::with_capacity(searches);
    for _ in 0..searches {
        let query = set.query();
        let began = Instant::now();
        store.search_now(std::slice::from_ref(&scope), &query, FOUND)?;
        times.push(began.elapsed());
    }
    let name = format!("recall::search/documents={documents}/dimensions={dimensions}");
    let row = search_row(name, &mut times)
        .figure("rebuild_s", filling.as_secs_f64())
        .figure("load_s", loading.as_secs_f64());
    Ok(row.at_most("p99", ms(&times, 990), SEARCH_MS))
}

/// How long searches took, which are sorted then.
pub(crate) fn search_row(name: String, times: &mut [Duration]) -> Row {
    times.sort_unstable();
    Row::new(name)
        .figure("least_ms", ms(times, 0))
        .figure("p50_ms", ms(times, 500))
        .figure("p99_ms", ms(times, 990))
}

fn ms(times: &[Duration], of_1000: usize) -> f64 {
    percentile(times, of_1000).as_secs_f64() * 1_000.0
}
