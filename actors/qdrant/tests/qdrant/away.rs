//! A server that goes away, comes back, and loses what it had.

use std::{slice::from_ref, time::Duration};

use clawnode_memory::store::{FilledStore as _, MemoryStore as _, MemoryStoreError, RecallQuery};
use clawnode_qdrant::QdrantStore;
use tokio::time::{Instant, timeout};

use super::{batch, fixture, found, houses, scope, store};

/// Longer than the longest wait after a failure.
const PATIENCE: Duration = Duration::from_secs(30);
/// So many calls in a tenth of a second do not wait for a server.
const QUICK: u32 = 20;
/// Looks at how quick they are.
const LOOKS: usize = 50;

async fn works(store: &QdrantStore) {
    let again = async {
        while store.check().await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, again).await.unwrap();
}

#[tokio::test]
async fn it_goes_away_and_comes_back() {
    let mut fixture = fixture().await;
    let (store, scope) = (store(&fixture), scope("a/all"));
    store.put(&scope, batch(0, 3, houses(1..=3))).await.unwrap();
    assert_eq!(store.away(), None);
    fixture.stop().await;
    let query = RecallQuery::new("house");
    let failed = store.search(from_ref(&scope), &query, 10).await;
    assert!(matches!(failed, Err(MemoryStoreError::Away { .. })), "{failed:?}");
    let away = store.away().unwrap();
    assert!(
        away.what.contains(&fixture.url()) && away.hint.contains("[memory.qdrant]"),
        "{away:?}"
    );

    // It is not asked all the time. A busy machine may hold up this test for a while, and calls that wait are slow always.
    let mut most = 0;
    for _ in 0..LOOKS {
        let (began, mut refused) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_millis(100) && refused <= QUICK {
            assert!(store.upto(&scope).await.is_err());
            refused += 1;
        }
        most = most.max(refused);
        if most > QUICK {
            break;
        }
    }
    assert!(most > QUICK, "calls wait for it: {most}");

    fixture.begin().await.unwrap();
    works(&store).await;
    assert_eq!(store.away(), None);
    assert_eq!(found(&store, from_ref(&scope), "house").await, [1, 2, 3]);
}

#[tokio::test]
async fn a_server_that_lost_everything_is_another_store() {
    let fixture = fixture().await;
    let (store, scope) = (store(&fixture), scope("a/all"));
    store.put(&scope, batch(0, 3, houses(1..=3))).await.unwrap();
    let before = store.identity().await.unwrap();
    assert_eq!(found(&store, from_ref(&scope), "house").await.len(), 3);
    fixture.wipe();
    let lost = store.upto(&scope).await;
    assert!(matches!(lost, Err(MemoryStoreError::Away { .. })), "{lost:?}");
    works(&store).await;
    assert_ne!(store.identity().await.unwrap(), before);
    assert_eq!(store.upto(&scope).await.unwrap(), 0);
    assert_eq!(found(&store, from_ref(&scope), "house").await, [0; 0]);
    store.put(&scope, batch(0, 2, houses(1..=2))).await.unwrap();
    assert_eq!(found(&store, from_ref(&scope), "house").await, [1, 2]);
}

/// An operator may remove a collection that does not fit, as the error says.
#[tokio::test]
async fn a_server_that_lost_the_documents_alone_is_another_store() {
    let fixture = fixture().await;
    let (store, scope) = (store(&fixture), scope("a/all"));
    store.put(&scope, batch(0, 3, houses(1..=3))).await.unwrap();
    let before = store.identity().await.unwrap();
    let names = fixture.collections();
    let documents = names.iter().find(|name| !name.ends_with("-state")).unwrap();
    fixture.lose(documents);
    assert!(store.put(&scope, batch(3, 4, houses(4..=4))).await.is_err());
    works(&store).await;
    assert_eq!((fixture.collections(), store.upto(&scope).await.unwrap()), (names, 0));
    assert_ne!(store.identity().await.unwrap(), before);
    store.put(&scope, batch(0, 3, houses(1..=3))).await.unwrap();
    assert_eq!(found(&store, from_ref(&scope), "house").await, [1, 2, 3]);
}
