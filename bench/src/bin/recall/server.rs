//! The searches of `speed` on a Qdrant server: as a plain call of its client, and by the store `qdrant` of a node.

use std::time::{Duration, Instant};

use clawnode_bench::{Error, Row};
use clawnode_memory::store::{DocumentBatch, MemoryStore as _};
use clawnode_qdrant::{QdrantOptions, QdrantStore};
use qdrant_client::{
    Payload, Qdrant,
    qdrant::{
        CollectionStatus, Condition, CreateCollectionBuilder, CreateFieldIndexCollectionBuilder,
        Distance, FieldType, Filter, PointStruct, Query, QueryPointsBuilder, UpsertPointsBuilder,
        VectorParamsBuilder,
    },
};
use tokio::{runtime::Runtime, time::sleep};

use crate::speed::{FOUND, SpeedSet, search_row};

/// What the names of the store's collections begin with.
const PREFIX: &str = "clawnode-bench";
/// What the names of all collections of this bench begin with: they are removed before and after.
const OWN: &str = "clawnode-bench-";
/// The collection of plain calls.
const PLAIN: &str = "clawnode-bench-plain";
/// What a point of it has.
const SCOPE: &str = "scope";
const TEXT: &str = "text";
/// For an answer of the server.
const ANSWER: Duration = Duration::from_mins(1);
/// How long the server may take to build its graph of vectors, and how often it is asked whether it has.
const PATIENCE: Duration = Duration::from_mins(10);
const LOOK: Duration = Duration::from_secs(1);

/// How large a set is, and how often it is searched.
#[derive(Clone, Copy)]
struct ServerLoad {
    documents: usize,
    dimensions: usize,
    searches: usize,
}

/// Fills the server with the passages that the local store is timed with, and searches them; in both ways.
pub(crate) fn timed(
    url: &str,
    documents: usize,
    dimensions: usize,
    searches: usize,
) -> Result<[Row; 2], Error> {
    Runtime::new()?.block_on(both(url, ServerLoad { documents, dimensions, searches }))
}

async fn both(url: &str, load: ServerLoad) -> Result<[Row; 2], Error> {
    let client = Qdrant::from_url(url).timeout(ANSWER).skip_compatibility_check().build()?;
    clear(&client).await?;
    let plain = Box::pin(plain(&client, load)).await?;
    let store = Box::pin(by_store(url, load)).await?;
    clear(&client).await?;
    Ok([plain, store])
}

async fn clear(client: &Qdrant) -> Result<(), Error> {
    for collection in client.list_collections().await?.collections {
        if collection.name.starts_with(OWN) {
            client.delete_collection(collection.name).await?;
        }
    }
    Ok(())
}

/// The nearest vectors of a scope, with their texts.
async fn plain(client: &Qdrant, load: ServerLoad) -> Result<Row, Error> {
    let ServerLoad { documents, dimensions, searches } = load;
    let vectors = VectorParamsBuilder::new(u64::try_from(dimensions)?, Distance::Cosine);
    client.create_collection(CreateCollectionBuilder::new(PLAIN).vectors_config(vectors)).await?;
    let index = CreateFieldIndexCollectionBuilder::new(PLAIN, SCOPE, FieldType::Keyword);
    client.create_field_index(index.wait(true)).await?;
    let mut set = SpeedSet::new(dimensions)?;
    let scope = set.scope.to_string();
    let mut filling = Duration::ZERO;
    for batch in set.batches(documents) {
        let points = points(&scope, batch);
        let began = Instant::now();
        client.upsert_points(UpsertPointsBuilder::new(PLAIN, points).wait(true)).await?;
        filling += began.elapsed();
    }
    let began = Instant::now();
    let indexed = indexed(client).await?;
    let indexing = began.elapsed();
    let limit = u64::try_from(FOUND)?;
    let mut times = Vec::with_capacity(searches);
    for _ in 0..searches {
        let vector = set.query().embedding.unwrap_or_default();
        let query = QueryPointsBuilder::new(PLAIN)
            .query(Query::new_nearest(vector))
            .filter(Filter::must([Condition::matches(SCOPE, scope.clone())]))
            .limit(limit)
            .with_payload(true);
        let began = Instant::now();
        client.query(query).await?;
        times.push(began.elapsed());
    }
    let name = format!("recall::qdrant/plain/documents={documents}/dimensions={dimensions}");
    Ok(search_row(name, &mut times)
        .figure("fill_s", filling.as_secs_f64())
        .figure("index_s", indexing.as_secs_f64())
        .figure("indexed", f64::from(u32::try_from(indexed)?)))
}

fn points(scope: &str, batch: DocumentBatch) -> Vec<PointStruct> {
    let documents = batch.documents.into_iter();
    let point = documents.map(|document| {
        let mut payload = Payload::new();
        payload.insert(SCOPE, scope);
        payload.insert(TEXT, document.text);
        PointStruct::new(document.id.event, document.embedding.unwrap_or_default(), payload)
    });
    point.collect()
}

/// Waits until the server builds nothing more, or for [`PATIENCE`]; gives how many vectors its graph has. It compares
/// those of a small collection without one.
async fn indexed(client: &Qdrant) -> Result<u64, Error> {
    let began = Instant::now();
    loop {
        // It begins a moment after the last points.
        sleep(LOOK).await;
        let info = client.collection_info(PLAIN).await?.result.unwrap_or_default();
        let is_done = info.status == i32::from(CollectionStatus::Green);
        if is_done || began.elapsed() > PATIENCE {
            return Ok(info.indexed_vectors_count.unwrap_or_default());
        }
    }
}

/// By words, meaning and neighbours, as nodes with the store `qdrant` search.
async fn by_store(url: &str, load: ServerLoad) -> Result<Row, Error> {
    let ServerLoad { documents, dimensions, searches } = load;
    let (url, prefix) = (url.to_owned(), PREFIX.to_owned());
    let options = QdrantOptions { url, api_key: None, ca: None, prefix };
    let store = QdrantStore::new(&options, Some(("bench", dimensions)))?;
    let mut set = SpeedSet::new(dimensions)?;
    let scope = set.scope.clone();
    let mut filling = Duration::ZERO;
    for batch in set.batches(documents) {
        let began = Instant::now();
        store.put(&scope, batch).await?;
        filling += began.elapsed();
    }
    // With its first search a process loads the scope into its memory.
    let mut loading = Duration::ZERO;
    let mut times = Vec::with_capacity(searches);
    for number in 0..=searches {
        let query = set.query();
        let began = Instant::now();
        store.search(std::slice::from_ref(&scope), &query, FOUND).await?;
        if number == 0 {
            loading = began.elapsed();
        } else {
            times.push(began.elapsed());
        }
    }
    let name = format!("recall::qdrant/store/documents={documents}/dimensions={dimensions}");
    Ok(search_row(name, &mut times)
        .figure("fill_s", filling.as_secs_f64())
        .figure("load_s", loading.as_secs_f64()))
}
