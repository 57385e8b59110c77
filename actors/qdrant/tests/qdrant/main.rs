//! The store on a server, over a fixture that speaks Qdrant's gRPC; the suite also over a real server.
#![expect(clippy::unwrap_used, reason = "helpers of tests: their panic is the test's failure")]

mod away;
mod conformance;
mod models;
mod refused;
mod shared;

use clawnode_memory::store::{
    Document, DocumentBatch, MemoryStore as _, RecallQuery, StoreScope,
    conformance::{DIMENSIONS, point},
};
use clawnode_qdrant::{
    QdrantOptions, QdrantStore,
    fixture::{FixtureOptions, QdrantFixture},
};

async fn fixture() -> QdrantFixture {
    QdrantFixture::start(FixtureOptions::default()).await.unwrap()
}

fn options(fixture: &QdrantFixture) -> QdrantOptions {
    QdrantOptions { url: fixture.url(), api_key: None, ca: None, prefix: "clawnode".to_owned() }
}

/// A store of its own process, with vectors.
fn store(fixture: &QdrantFixture) -> QdrantStore {
    QdrantStore::new(&options(fixture), Some(("test", DIMENSIONS))).unwrap()
}

fn scope(key: &str) -> StoreScope {
    StoreScope::of_memory(&key.parse().unwrap())
}

fn batch(after: u64, upto: u64, documents: Vec<Document>) -> DocumentBatch {
    DocumentBatch { after, upto, documents }
}

/// The documents of these events, which all have the word `house`.
fn houses(events: std::ops::RangeInclusive<u64>) -> Vec<Document> {
    events.map(|event| point(event, &format!("house number{event}"))).collect()
}

/// The events of the documents that are found, in order.
async fn found(store: &QdrantStore, scopes: &[StoreScope], text: &str) -> Vec<u64> {
    let answer = store.search(scopes, &RecallQuery::new(text), 200).await.unwrap();
    let mut events: Vec<u64> = answer.found.iter().map(|found| found.document.id.event).collect();
    events.sort_unstable();
    events
}
