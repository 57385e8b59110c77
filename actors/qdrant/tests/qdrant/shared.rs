//! Two processes and more, with one server.

use std::{slice::from_ref, sync::Arc};

use clawnode_memory::store::{
    Document, FilledStore as _, MemoryStore as _, MemoryStoreError, RecallQuery, VectorStore as _,
    conformance::{DIMENSIONS, point},
};

use super::{batch, fixture, found, houses, scope, store};

#[tokio::test]
async fn what_one_puts_and_masks_the_other_knows_at_once() {
    let fixture = fixture().await;
    let (one, other) = (store(&fixture), store(&fixture));
    let scope = scope("a/all");
    one.put(&scope, batch(0, 3, houses(1..=3))).await.unwrap();
    assert_eq!(found(&other, from_ref(&scope), "house").await, [1, 2, 3]);
    one.put(&scope, batch(3, 4, houses(4..=4))).await.unwrap();
    assert_eq!(found(&other, from_ref(&scope), "house").await, [1, 2, 3, 4]);
    let changed = vec![point(2, "a garden")];
    one.put(&scope, batch(3, 4, changed)).await.unwrap();
    assert_eq!(found(&other, from_ref(&scope), "garden").await, [2], "at the same event, too");
    assert_eq!(found(&other, from_ref(&scope), "house").await, [1, 3, 4]);
    other.mask(&scope, &[point(3, "").id]).await.unwrap();
    assert_eq!(found(&one, from_ref(&scope), "house").await, [1, 4]);
    assert!(!fixture.has_text("number3"), "it is gone from the server");
    one.put(&scope, batch(4, 5, houses(3..=5))).await.unwrap();
    assert_eq!(found(&other, from_ref(&scope), "house").await, [1, 4, 5], "it does not come back");
    assert_eq!(one.identity().await.unwrap(), other.identity().await.unwrap());
}

#[tokio::test]
async fn the_same_batch_by_two_is_as_good_as_by_one() {
    let fixture = fixture().await;
    let (one, other) = (store(&fixture), store(&fixture));
    let scope = scope("a/all");
    one.put(&scope, batch(0, 3, houses(1..=3))).await.unwrap();
    let query = RecallQuery::new("house number2");
    let before = one.search(from_ref(&scope), &query, 10).await.unwrap();
    other.put(&scope, batch(0, 3, houses(1..=3))).await.unwrap();
    let asked = fixture.requests();
    assert_eq!(one.search(from_ref(&scope), &query, 10).await.unwrap(), before);
    assert_eq!(fixture.requests() - asked, 2, "nothing changed, so nothing is listed again");
    let behind = other.put(&scope, batch(4, 6, houses(5..=6))).await;
    assert!(
        matches!(behind, Err(MemoryStoreError::Behind { upto: 3, after: 4, .. })),
        "{behind:?}"
    );
}

/// Four processes put what the store lacks, as they see it, while a fifth one drops the scope now and then. Whatever their
/// order is, in the end nothing is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn processes_that_race_leave_no_gap() {
    const END: u64 = 32;
    let fixture = Arc::new(fixture().await);
    let scope = scope("a/all");
    let mut fillers = Vec::new();
    for _ in 0..4 {
        let (store, scope) = (store(&fixture), scope.clone());
        fillers.push(tokio::spawn(async move {
            loop {
                let upto = store.upto(&scope).await.unwrap();
                if upto == END {
                    return;
                }
                let next = END.min(upto + 1 + rand::random::<u64>() % 4);
                match store.put(&scope, batch(upto, next, houses(upto + 1..=next))).await {
                    Ok(()) | Err(MemoryStoreError::Behind { .. }) => {}
                    Err(failure) => panic!("{failure}"),
                }
            }
        }));
    }
    let (dropping, dropped) = (store(&fixture), scope.clone());
    let drops = tokio::spawn(async move {
        let mut left = 3;
        while left > 0 {
            if dropping.upto(&dropped).await.unwrap() >= END / 4 {
                dropping.drop(&dropped).await.unwrap();
                left -= 1;
            }
        }
    });
    for task in fillers.into_iter().chain([drops]) {
        task.await.unwrap();
    }
    // The last drop may have been after the last put.
    let last = store(&fixture);
    let upto = last.upto(&scope).await.unwrap();
    let expected: Vec<u64> = (1..=upto).collect();
    assert_eq!(found(&last, from_ref(&scope), "house").await, expected, "up to {upto}");
    last.drop(&scope).await.unwrap();
    assert!(!fixture.has_text("house"), "no process left anything of another generation");
}

/// One process changes how much a document matters while another one gives it the vector of its text.
#[tokio::test]
async fn a_vector_brings_no_older_document_back() {
    let fixture = fixture().await;
    let (one, other) = (store(&fixture), store(&fixture));
    let scope = scope("a/all");
    let weighs = |importance| Document { importance, ..point(1, "house") };
    one.put(&scope, batch(0, 1, vec![weighs(1)])).await.unwrap();
    assert_eq!(other.upto(&scope).await.unwrap(), 1);
    for upto in 2..=40 {
        let (before, now) = if upto % 2 == 0 { (1, 9) } else { (9, 1) };
        let vector = vec![f32::from(before); DIMENSIONS];
        let (put, given) = tokio::join!(
            one.put(&scope, batch(upto - 1, upto, vec![weighs(now)])),
            other.give_vectors(&scope, vec![(weighs(before), vector)]),
        );
        put.unwrap();
        given.unwrap();
        let answer = one.search(from_ref(&scope), &RecallQuery::new("house"), 1).await.unwrap();
        assert_eq!(answer.found[0].document.importance, now, "up to {upto}");
    }
}

#[tokio::test]
async fn a_scope_of_a_deleted_entity_is_found_by_its_entity() {
    let fixture = fixture().await;
    let (one, other) = (store(&fixture), store(&fixture));
    let scope = scope("a/peer/web:bot:ada");
    assert_eq!(other.scope_of(scope.entity()).await.unwrap(), None);
    let with = Document { embedding: Some(vec![0.5; DIMENSIONS]), ..point(1, "house") };
    one.put(&scope, batch(0, 1, vec![with])).await.unwrap();
    assert_eq!(other.scope_of(scope.entity()).await.unwrap(), Some(scope.clone()));
    other.drop(&scope).await.unwrap();
    assert_eq!(one.scope_of(scope.entity()).await.unwrap(), None);
    assert!(!fixture.has_text("ada"), "not even its name is left");
    assert_eq!(found(&one, from_ref(&scope), "house").await, [0; 0]);
}
