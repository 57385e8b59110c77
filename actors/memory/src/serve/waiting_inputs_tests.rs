//! Searches while a memory has something in its inbox.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use clawnode_cluster::{AppendAnswer, FeedPage, Journal, Record, Storage, StoreError, Write};
use clawnode_proto::{
    EntityId, IdempotencyKey, Input, Kind, Position, Timestamp, memory_point::MemoryInput,
};

use super::served_tests::{Owner, memory, served_with, storage};
use crate::store::{MemoryStore as _, RecallQuery};

const KEY: &str = "default/all";

/// A journal that is written all the time, or does not say where it ends, and counts how often it is read whole.
#[derive(Debug)]
struct BusyJournal {
    journal: Arc<dyn Journal>,
    /// How often it was asked where it ends. Each time it is one further than it was.
    looks: Option<AtomicU64>,
    hangs: bool,
    reads: AtomicU64,
}

impl BusyJournal {
    /// The same storage with this journal in the place of its own.
    fn of(storage: &Storage, moves: bool, hangs: bool) -> (Arc<Self>, Storage) {
        let journal = Arc::clone(&storage.journal);
        let looks = moves.then(AtomicU64::default);
        let busy = Arc::new(Self { journal, looks, hangs, reads: AtomicU64::default() });
        let journal = Arc::clone(&busy) as Arc<dyn Journal>;
        (busy, Storage { journal, ..storage.clone() })
    }
}

#[async_trait]
impl Journal for BusyJournal {
    async fn append(&self, entity: EntityId, expected: Position, write: Write) -> AppendAnswer {
        self.journal.append(entity, expected, write).await
    }

    async fn read(&self, entity: EntityId, after: Position) -> Result<Vec<Record>, StoreError> {
        self.reads.fetch_add(u64::from(after == Position(0)), Ordering::SeqCst);
        self.journal.read(entity, after).await
    }

    async fn tail(&self, entity: EntityId) -> Result<Option<Record>, StoreError> {
        self.journal.tail(entity).await
    }

    async fn position(&self, entity: EntityId) -> Result<Position, StoreError> {
        if self.hangs {
            std::future::pending::<()>().await;
        }
        // A store on another machine is waited for.
        tokio::task::yield_now().await;
        let position = self.journal.position(entity).await?;
        let moved = self.looks.as_ref().map_or(0, |looks| looks.fetch_add(1, Ordering::SeqCst));
        Ok(Position(position.0 + moved))
    }

    async fn follow(&self, after: Position, limit: usize) -> Result<FeedPage, StoreError> {
        self.journal.follow(after, limit).await
    }

    async fn end(&self) -> Result<Position, StoreError> {
        self.journal.end().await
    }

    async fn entities(
        &self,
        after: Option<EntityId>,
        limit: usize,
    ) -> Result<Vec<EntityId>, StoreError> {
        self.journal.entities(after, limit).await
    }
}

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

/// One memory that is busy must not take the time of all others.
#[tokio::test]
async fn a_search_does_not_wait_longer_for_a_journal_that_moves_or_hangs() {
    for (moves, hangs) in [(true, false), (false, true)] {
        let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let storage = storage(data.path());
        Owner::new(&storage, Kind::MEMORY, KEY).await;
        sends_first(&storage).await;
        let (_, busy) = BusyJournal::of(&storage, moves, hangs);
        let (served, scope) = (served_with(folder.path(), &busy, None), memory(KEY));
        let taken = served.has_taken_all(&scope, Duration::from_millis(20));
        let taken = tokio::time::timeout(Duration::from_secs(20), taken).await;
        assert_eq!(taken, Ok(false), "moves: {moves}, hangs: {hangs}");
    }
}

#[tokio::test]
async fn what_was_read_to_know_what_a_memory_has_taken_is_not_read_again() {
    let (data, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let storage = storage(data.path());
    let mut owner = Owner::new(&storage, Kind::MEMORY, KEY).await;
    owner.learns("Tea is at four.", "tea").await;
    sends_first(&storage).await;
    let (journal, counted) = BusyJournal::of(&storage, false, false);
    let served = served_with(folder.path(), &counted, None);
    let view = served.journal_view(&BTreeSet::from([memory(KEY)])).await;
    assert_eq!(view.unread().count(), 0, "it has taken its input");
    assert_eq!(journal.reads.load(Ordering::SeqCst), 1);
}
