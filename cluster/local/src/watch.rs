//! Watchers of the bucket: each holds the latest state of every key it has not shown yet.

use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    task::{Context, Poll, Waker},
};

use clawnode_cluster::{BucketChange, BucketEntry};
use futures_util::Stream;

/// All watchers of a store.
#[derive(Debug, Default)]
pub struct Watchers(Mutex<Vec<Weak<LocalWatcher>>>);

/// One watcher. It holds at most one change per key, so it is bounded by the bucket itself.
#[derive(Debug)]
struct LocalWatcher {
    prefix: String,
    state: Mutex<WatchState>,
}

#[derive(Debug, Default)]
struct WatchState {
    changes: BTreeMap<String, Option<BucketEntry>>,
    closed: bool,
    waker: Option<Waker>,
}

/// Yields changes; ends when the store is closed.
#[derive(Debug)]
pub struct Watch(Arc<LocalWatcher>);

impl Watchers {
    /// Watches the keys that begin with `prefix`; `present` comes first.
    pub fn add(&self, prefix: String, present: Vec<(String, BucketEntry)>) -> Watch {
        let changes = present.into_iter().map(|(key, entry)| (key, Some(entry))).collect();
        let state = Mutex::new(WatchState { changes, ..WatchState::default() });
        let watcher = Arc::new(LocalWatcher { prefix, state });
        self.all().push(Arc::downgrade(&watcher));
        Watch(watcher)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all().is_empty()
    }

    /// Informs all watchers of the key.
    pub fn tell(&self, key: &str, entry: Option<&BucketEntry>) {
        self.each(|watcher, state| {
            if key.starts_with(&watcher.prefix) {
                state.changes.insert(key.to_owned(), entry.cloned());
            }
        });
    }

    /// Ends all.
    pub fn close(&self) {
        self.each(|_, state| state.closed = true);
    }

    fn each(&self, mut change: impl FnMut(&LocalWatcher, &mut WatchState)) {
        self.all().retain(|watcher| {
            let Some(watcher) = watcher.upgrade() else { return false };
            let mut state = watcher.lock();
            change(&watcher, &mut state);
            if (state.closed || !state.changes.is_empty())
                && let Some(waker) = state.waker.take()
            {
                waker.wake();
            }
            true
        });
    }

    fn all(&self) -> MutexGuard<'_, Vec<Weak<LocalWatcher>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LocalWatcher {
    fn lock(&self) -> MutexGuard<'_, WatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream for Watch {
    type Item = BucketChange;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<BucketChange>> {
        let mut state = self.0.lock();
        if let Some((key, entry)) = state.changes.pop_first() {
            return Poll::Ready(Some(BucketChange { key, entry }));
        }
        if state.closed {
            return Poll::Ready(None);
        }
        state.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}
