//! Searches while a memory has something in its inbox.

use std::time::Duration;

use clawnode_cluster::Storage;
use clawnode_proto::{IdempotencyKey, Input, Kind, Timestamp, memory_point::MemoryInput};

use super::served_tests::{Owner, memory, served_with, storage};
use crate::store::{MemoryStore as _, RecallQuery};

const KEY: &str = "default/all";

/// The first input that [`Owner`] journals waits in the inbox, and stays there: it is not acknowledged.
async fn sends_first(storage: &Storage) {
    let name: IdempotencyKey = "input:1".parse().unwrap();
    let body = MemoryInput::Put { points: Vec::new() };
    let input = Input::new(Kind::MEMORY, KEY, name, Timestamp(1), &body).unwrap();
    storage.inbox.put(&input).await.unwrap();
}

#[tokio::test]
async fn a_search_is_degraded_while_a_memory_has_not_taken_what_it_was_sent() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let served = served_with(folder.path(), &storage, None);
    let scopes = [memory(KEY)];
    sends_first(&storage).await;
    for journal in ["none", "one without the input"] {
        let found = served.search(&scopes, &RecallQuery::new("tea"), 10).await.unwrap();
        assert_eq!(found.damaged, scopes, "it has {journal}");
        let standing = served.standing(&scopes).await.unwrap();
        assert_eq!(standing.damaged, scopes, "it has {journal}");
        if journal == "none" {
            Owner::new(&storage, Kind::MEMORY, KEY).await;
        }
    }
    let others = [memory("shared/other")];
    let found = served.search(&others, &RecallQuery::new("tea"), 10).await.unwrap();
    assert_eq!(found.damaged, [], "nothing waits for that memory");
}

#[tokio::test]
async fn a_search_waits_until_a_memory_has_taken_what_it_was_sent() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let served = served_with(folder.path(), &storage, None);
    let scope = memory(KEY);
    let mut owner = Owner::new(&storage, Kind::MEMORY, KEY).await;
    sends_first(&storage).await;
    let learns = async {
        tokio::task::yield_now().await;
        owner.learns("Tea is at four.", "tea").await;
    };
    let (has_all, ()) = tokio::join!(served.has_taken_all(&scope, Duration::from_mins(1)), learns);
    assert!(has_all, "it is in the journal, also before it is acknowledged");
    let found = served.search(&[scope], &RecallQuery::new("tea"), 10).await.unwrap();
    let texts: Vec<_> = found.found.iter().map(|found| found.document.text.as_str()).collect();
    assert_eq!((texts, found.damaged), (vec!["Tea is at four."], vec![]));
}
