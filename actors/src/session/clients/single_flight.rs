//! Shares a read between all callers that need the same: after a gateway dies, hundreds of readers of one
//! session connect to another gateway at once.
//!
//! A read answers only callers that asked before it began, so that no answer is older than its question.
//! A caller that asks during a read waits for the next one, together with all others. So there is at
//! most one read of a key at a time, and no answer is cached.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::oneshot;

/// The reads of one kind that are under way.
pub(in crate::session) struct SharedReadsOf<K, V> {
    /// The callers that wait for the next read. A key is here as long as its flight.
    waiting: Mutex<HashMap<K, Vec<oneshot::Sender<V>>>>,
}

/// Reads one key as long as a caller waits. When it is dropped, also by a panic, its callers end too.
struct Flight<K: Eq + Hash, V> {
    key: K,
    all: Arc<SharedReadsOf<K, V>>,
    /// It ended in order, and the key may be another flight's.
    over: bool,
}

// === impl SharedReadsOf ===

impl<K, V> Default for SharedReadsOf<K, V> {
    fn default() -> Self {
        Self { waiting: Mutex::default() }
    }
}

impl<K, V> fmt::Debug for SharedReadsOf<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedReadsOf").finish_non_exhaustive()
    }
}

impl<K, V> SharedReadsOf<K, V> {
    fn lock(&self) -> MutexGuard<'_, HashMap<K, Vec<oneshot::Sender<V>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K, V> SharedReadsOf<K, V>
where
    K: Clone + Eq + Hash + Send + 'static,
    V: Clone + Send + 'static,
{
    /// The result of a read that begins after this call; `None` if it broke off. All callers with the same
    /// key must pass the same `read`.
    pub(in crate::session) async fn share<R>(
        self: &Arc<Self>,
        key: K,
        read: impl Fn() -> R + Send + 'static,
    ) -> Option<V>
    where
        R: Future<Output = V> + Send + 'static,
    {
        let (told, answer) = oneshot::channel();
        let first = match self.lock().entry(key.clone()) {
            Entry::Occupied(mut waiting) => {
                waiting.get_mut().push(told);
                false
            }
            Entry::Vacant(free) => {
                free.insert(vec![told]);
                true
            }
        };
        if first {
            let flight = Flight { key, all: Arc::clone(self), over: false };
            // Detached: it ends as soon as no caller waits, and must not end with the one that began it.
            drop(tokio::spawn(flight.run(read)));
        }
        answer.await.ok()
    }
}

// === impl Flight ===

impl<K: Clone + Eq + Hash, V: Clone> Flight<K, V> {
    async fn run<R: Future<Output = V>>(mut self, read: impl Fn() -> R) {
        while let Some(waiting) = self.next() {
            let value = read().await;
            for one in waiting {
                // A caller that has left needs no answer.
                one.send(value.clone()).ok();
            }
        }
    }

    /// Who waits now; with no one left the flight is over.
    fn next(&mut self) -> Option<Vec<oneshot::Sender<V>>> {
        let mut all = self.all.lock();
        let waiting = all.get_mut(&self.key)?;
        waiting.retain(|one| !one.is_closed());
        if waiting.is_empty() {
            all.remove(&self.key);
            self.over = true;
            return None;
        }
        Some(std::mem::take(waiting))
    }
}

impl<K: Eq + Hash, V> Drop for Flight<K, V> {
    fn drop(&mut self) {
        if !self.over {
            self.all.lock().remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::{
        sync::Semaphore,
        time::{Duration, timeout},
    };

    use super::*;

    /// Reaching it means a bug.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// A read that says which one it is, once it is let go.
    #[derive(Clone)]
    struct Reads {
        flights: Arc<SharedReadsOf<u8, u32>>,
        begun: Arc<AtomicU32>,
        gate: Arc<Semaphore>,
    }

    impl Reads {
        fn new() -> Self {
            let (begun, gate) = (Arc::default(), Arc::new(Semaphore::new(0)));
            Self { flights: Arc::default(), begun, gate }
        }

        async fn ask(&self, key: u8) -> Option<u32> {
            let reader = self.clone();
            let read = move || {
                let reader = reader.clone();
                async move {
                    let number = reader.begun.fetch_add(1, Ordering::SeqCst) + 1;
                    reader.gate.acquire().await.unwrap().forget();
                    number
                }
            };
            timeout(PATIENCE, self.flights.share(key, read)).await.unwrap()
        }

        fn asking(&self, key: u8) -> tokio::task::JoinHandle<Option<u32>> {
            let reader = self.clone();
            tokio::spawn(async move { reader.ask(key).await })
        }

        /// Until so many wait for the next read of a key.
        async fn waiting(&self, key: u8, count: usize) {
            let all = async {
                while self.flights.lock().get(&key).map(Vec::len) != Some(count) {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, all).await.unwrap();
        }

        async fn begun(&self, count: u32) {
            let all = async {
                while self.begun.load(Ordering::SeqCst) != count {
                    tokio::task::yield_now().await;
                }
            };
            timeout(PATIENCE, all).await.unwrap();
        }
    }

    #[tokio::test]
    async fn who_asks_during_a_read_is_told_by_the_next_one_with_all_who_asked_meanwhile() {
        let reads = Reads::new();
        let first = reads.asking(1);
        reads.begun(1).await;
        let late: Vec<_> = (0..500).map(|_| reads.asking(1)).collect();
        reads.waiting(1, 500).await;
        // Another key does not wait.
        let other = reads.asking(2);
        reads.begun(2).await;
        reads.gate.add_permits(2);
        assert_eq!(first.await.unwrap(), Some(1));
        assert_eq!(other.await.unwrap(), Some(2));
        reads.gate.add_permits(1);
        for one in late {
            assert_eq!(one.await.unwrap(), Some(3), "one read for all, begun after they asked");
        }
        // Nothing is kept: the next question is read for.
        reads.gate.add_permits(1);
        assert_eq!(reads.ask(1).await, Some(4));
        assert_eq!(reads.begun.load(Ordering::SeqCst), 4);
    }

    #[tokio::test]
    async fn a_read_that_breaks_off_lets_go_of_those_who_wait_and_of_its_key() {
        let reads = Reads::new();
        let first = reads.asking(1);
        reads.begun(1).await;
        let second = reads.asking(1);
        reads.waiting(1, 1).await;
        // The read panics.
        reads.gate.close();
        assert_eq!(first.await.unwrap(), None);
        assert_eq!(second.await.unwrap(), None);
        assert!(reads.flights.lock().is_empty());
    }

    #[tokio::test]
    async fn nothing_is_read_for_those_who_left() {
        let reads = Reads::new();
        let first = reads.asking(1);
        reads.begun(1).await;
        let left = reads.asking(1);
        reads.waiting(1, 1).await;
        left.abort();
        assert!(left.await.unwrap_err().is_cancelled());
        reads.gate.add_permits(2);
        assert_eq!(first.await.unwrap(), Some(1));
        // Its flight is over before another begins.
        assert_eq!(reads.ask(1).await, Some(2));
    }
}
