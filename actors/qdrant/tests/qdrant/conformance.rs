//! The store does what every store does, and ranks as the local one.

use std::{
    env,
    sync::atomic::{AtomicU32, Ordering},
};

use clawnode_memory::store::{
    DocumentBatch, LocalStore, MemoryStore as _, RecallQuery, StoreScope,
    conformance::{DIMENSIONS, conforms, conforms_with_vectors},
    quality,
};
use clawnode_qdrant::{QdrantOptions, QdrantStore};

use super::{fixture, options, store};

/// Stores with collections of their own.
fn maker(options: &QdrantOptions) -> impl AsyncFn() -> QdrantStore {
    let (made, options) = (AtomicU32::new(0), options.clone());
    async move || {
        let number = made.fetch_add(1, Ordering::SeqCst);
        let prefix = format!("{}-{number}", options.prefix);
        let options = QdrantOptions { prefix, ..options.clone() };
        QdrantStore::new(&options, Some(("conformance", DIMENSIONS))).unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_conforms() {
    let fixture = fixture().await;
    conforms(maker(&options(&fixture))).await.unwrap();
    let store = QdrantStore::new(&options(&fixture), Some(("conformance", 0))).unwrap();
    conforms_with_vectors(&store).await.unwrap();
}

/// Runs where `CLAWNODE_TEST_QDRANT_URL` names the gRPC interface of a server for tests. It leaves its collections there;
/// their names begin with `clawnode-test`.
#[tokio::test(flavor = "multi_thread")]
async fn it_conforms_on_a_real_server() {
    let Ok(url) = env::var("CLAWNODE_TEST_QDRANT_URL") else { return };
    let api_key = env::var("CLAWNODE_TEST_QDRANT_KEY").ok().map(Into::into);
    let prefix = format!("clawnode-test-{:08x}", rand::random::<u32>());
    let options = QdrantOptions { url, api_key, ca: None, prefix };
    conforms(maker(&options)).await.unwrap();
    let store = QdrantStore::new(&options, Some(("conformance", 0))).unwrap();
    conforms_with_vectors(&store).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn it_finds_the_same_in_the_same_order_as_the_local_store() {
    let (fixture, folder) = (fixture().await, tempfile::tempdir().unwrap());
    let remote = store(&fixture);
    let local = LocalStore::open(folder.path(), Some(("test", DIMENSIONS))).unwrap();
    let set = quality::synthetic::set();
    let mut scopes: Vec<StoreScope> = Vec::new();
    for conversation in &set.conversations {
        let (scope, mut documents) = (&conversation.scope, conversation.documents.clone());
        for (number, document) in (0_u8..=u8::MAX).cycle().zip(&mut documents) {
            // Every third one has none.
            let turn = f32::from(number) * 0.37;
            let vector = vec![turn.sin(), turn.cos(), (turn * 1.7).sin(), 0.3];
            document.embedding = (number % 3 > 0).then_some(vector);
        }
        // In two orders: what is found must not depend on it.
        let upto = 1_000_000;
        let whole = DocumentBatch { after: 0, upto, documents: documents.clone() };
        local.put(scope, whole).await.unwrap();
        let rest = documents.split_off(documents.len() / 3);
        for (upto, documents) in [(7, rest), (upto, documents)] {
            let after = if upto == 7 { 0 } else { 7 };
            remote.put(scope, DocumentBatch { after, upto, documents }).await.unwrap();
        }
        scopes.push(scope.clone());
    }
    let mut hits = 0;
    for (number, question) in (0_u8..60).zip(&set.questions) {
        let turn = f32::from(number);
        let embedding = (number % 2 > 0).then(|| vec![turn.sin(), turn.cos(), 0.5, 0.0]);
        let query = RecallQuery { embedding, ..RecallQuery::new(question.text.clone()) };
        let expected = local.search(&scopes, &query, 20).await.unwrap();
        let answer = remote.search(&scopes, &query, 20).await.unwrap();
        assert_eq!(answer, expected, "{}", question.text);
        hits += answer.found.len();
    }
    assert!(hits > 500, "{hits} say little");
}
