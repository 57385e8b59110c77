//! Searches a store for what a turn is reminded of, while its first call waits.
//!
//! The append of the call waits for the search, and for nothing else of it: a store that is slow, away or damaged makes a
//! turn forgetful, and later by 150 ms at most. It never fails.
//!
//! A turn that has just ended may not have sent its memory yet what it teaches. That is sent before the search, under the same
//! keys, so it is the same inputs.

use std::{sync::Arc, time::Duration};

use clawnode_kernel::driver::Port;
use clawnode_memory::store::{
    MemoryStore, MemoryStoreError, RecallAnswer, RecallQuery, StoreScope, document::MEANING_WITHIN,
};
use clawnode_proto::{
    limits::{RECALL_PASSAGES, RECALL_STANDING},
    recall::{RecallFault, Recalled},
};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use crate::{
    agent::Grant,
    session::turn::{
        effect::Effect,
        kind::Session,
        memory::recall_for_turn::{RecallAsk, RecallFinds},
    },
};

/// Passages that are found at most. All that the request shows anyway may be among them, and is left out afterwards.
const PASSAGES_FOUND: usize = 100;

/// Where sessions look for what was learned and said.
#[derive(Clone, Debug)]
pub struct RecallStore {
    /// Its name in journals.
    pub name: &'static str,
    pub store: Arc<dyn MemoryStore>,
}

/// What a search for a turn gave.
#[derive(Debug)]
pub struct SearchedTurn {
    /// The message that was searched with.
    text: String,
    finds: RecallFinds,
}

/// Brings a grant to a session's actor. Dropped without that, it says so, and the session asks again.
pub(super) struct GrantReply {
    effect: Effect,
    port: Port<Session>,
    is_answered: bool,
}

// === impl GrantReply ===

impl GrantReply {
    pub(super) fn new(effect: Effect, port: Port<Session>) -> Self {
        Self { effect, port, is_answered: false }
    }

    pub(super) fn granted(mut self, grant: Grant) {
        self.is_answered = true;
        self.port.granted(self.effect, grant);
    }
}

impl Drop for GrantReply {
    fn drop(&mut self) {
        if !self.is_answered {
            self.port.forgotten(self.effect);
        }
    }
}

// === impl RecallStore ===

impl RecallStore {
    /// How long a search may take.
    pub const WITHIN: Duration = Duration::from_millis(150);
    /// How much of that it waits until the inbox of the memory has what it is `taught`: one write.
    const TAUGHT_WITHIN: Duration = Duration::from_millis(50);

    /// Searches for what a turn is reminded of by its message, which `text` gives, once the memory was `taught`; its session
    /// hears of the answer.
    pub(super) fn recall(
        self,
        effect: Effect,
        grant: Grant,
        ask: RecallAsk,
        port: Port<Session>,
        taught: impl Future<Output = ()> + Send + 'static,
        text: impl Future<Output = Result<String, String>> + Send + 'static,
    ) {
        let reply = GrantReply::new(effect, port);
        // Detached: it ends by its time.
        drop(tokio::spawn(async move {
            let recalled = Some(Arc::new(self.reminds(&ask, taught, text).await));
            reply.granted(Grant { recalled, ..grant });
        }));
    }

    /// What a turn is reminded of, within [`Self::WITHIN`].
    async fn reminds(
        &self,
        ask: &RecallAsk,
        taught: impl Future<Output = ()>,
        text: impl Future<Output = Result<String, String>>,
    ) -> Recalled {
        let until = Instant::now() + Self::WITHIN;
        let is_taught = timeout(Self::TAUGHT_WITHIN, taught).await.is_ok();
        let searched = timeout_at(until, self.search(ask, text)).await;
        let mut recalled = self.recalled(ask, searched.ok());
        if !is_taught {
            recalled.degraded.get_or_insert(RecallFault::Late);
        }
        recalled
    }

    /// Searches for a turn, however long it takes. `text`: the message that begins it. Fails with what people read in
    /// the log.
    pub async fn search(
        &self,
        ask: &RecallAsk,
        text: impl Future<Output = Result<String, String>>,
    ) -> Result<SearchedTurn, String> {
        let text = text.await?;
        let memories = ask.scopes.memories();
        let found = tokio::try_join!(
            finds(self, ask, &text, MEANING_WITHIN),
            self.store.standing(&memories)
        );
        let (finds, standing) = found.map_err(|failure| failure.to_string())?;
        let is_damaged = (!standing.damaged.is_empty()).then_some(RecallFault::Damaged);
        let (standing, degraded) = (standing.found, finds.degraded.or(is_damaged));
        Ok(SearchedTurn { text, finds: RecallFinds { standing, degraded, ..finds } })
    }

    /// What a turn is reminded of after its search; none if that did not end within [`Self::WITHIN`].
    pub fn recalled(
        &self,
        ask: &RecallAsk,
        searched: Option<Result<SearchedTurn, String>>,
    ) -> Recalled {
        let degraded = match searched {
            Some(Ok(SearchedTurn { text, finds })) => {
                return ask.recalled(&text, self.name, finds);
            }
            Some(Err(failure)) => {
                warn!(turn = %ask.turn, failure, "nothing is recalled, because the search failed");
                RecallFault::Failed
            }
            None => RecallFault::Late,
        };
        let finds = RecallFinds { degraded: Some(degraded), ..RecallFinds::default() };
        ask.recalled("", self.name, finds)
    }
}

/// What a store has of this text, which waits so long for the vector of the text.
pub(super) async fn finds(
    at: &RecallStore,
    ask: &RecallAsk,
    text: &str,
    meaning_within: Duration,
) -> Result<RecallFinds, MemoryStoreError> {
    let (memories, sessions) = (ask.scopes.memories(), ask.scopes.sessions());
    let points = RecallQuery { meaning_within, ..ask.points(text) };
    let passages = RecallQuery { meaning_within, ..ask.passages(text) };
    // Standing instructions are shown beside what was found.
    let most = match ask.memory.top_facts {
        0 => 0,
        most => most.saturating_add(RECALL_STANDING),
    };
    // One more: the message itself may be there.
    let passages_most = ask.shown.count().saturating_add(RECALL_PASSAGES + 1).min(PASSAGES_FOUND);
    let (points, passages) = tokio::try_join!(
        search(at, &memories, &points, most),
        search(at, &sessions, &passages, passages_most),
    )?;
    let is_damaged = !points.damaged.is_empty() || !passages.damaged.is_empty();
    let degraded = is_damaged.then_some(RecallFault::Damaged);
    let mut upto = points.upto;
    upto.extend(passages.upto);
    let (standing, points, passages) = (Vec::new(), points.found, passages.found);
    Ok(RecallFinds { standing, points, passages, upto, degraded })
}

async fn search(
    at: &RecallStore,
    scopes: &[StoreScope],
    query: &RecallQuery,
    most: usize,
) -> Result<RecallAnswer, MemoryStoreError> {
    if scopes.is_empty() || most == 0 {
        return Ok(RecallAnswer::default());
    }
    at.store.search(scopes, query, most).await
}

#[cfg(test)]
mod tests {
    use std::{
        future::ready,
        sync::atomic::{AtomicBool, Ordering},
    };

    use async_trait::async_trait;
    use clawnode_memory::store::{DocumentBatch, DocumentId};
    use clawnode_proto::{TurnId, limits::RECALL_BYTES};

    use super::*;
    use crate::{
        agent::AgentMemory,
        session::turn::memory::{recall_for_turn::RecallScopes, shown_passages::ShownPassages},
    };

    /// A store that answers nothing but searches, and those so.
    #[derive(Debug)]
    enum PoorStore {
        Hangs,
        Fails,
        Empty,
        Damaged,
    }

    #[async_trait]
    impl MemoryStore for PoorStore {
        async fn put(&self, _: &StoreScope, _: DocumentBatch) -> Result<(), MemoryStoreError> {
            Err(MemoryStoreError::Closed)
        }

        async fn mask(&self, _: &StoreScope, _: &[DocumentId]) -> Result<(), MemoryStoreError> {
            Err(MemoryStoreError::Closed)
        }

        async fn search(
            &self,
            scopes: &[StoreScope],
            _: &RecallQuery,
            _: usize,
        ) -> Result<RecallAnswer, MemoryStoreError> {
            match self {
                Self::Hangs => std::future::pending().await,
                Self::Fails => Err(MemoryStoreError::Closed),
                Self::Empty => Ok(RecallAnswer::default()),
                Self::Damaged => {
                    Ok(RecallAnswer { damaged: scopes.to_vec(), ..RecallAnswer::default() })
                }
            }
        }

        async fn upto(&self, _: &StoreScope) -> Result<u64, MemoryStoreError> {
            Err(MemoryStoreError::Closed)
        }

        async fn drop(&self, _: &StoreScope) -> Result<(), MemoryStoreError> {
            Err(MemoryStoreError::Closed)
        }
    }

    fn ask() -> RecallAsk {
        RecallAsk {
            turn: TurnId::from_u128(1),
            text: "hi".into(),
            scopes: RecallScopes::of(&"main:web:a:b".parse().unwrap(), &[]),
            shown: ShownPassages::default(),
            memory: AgentMemory::default(),
            room: RECALL_BYTES,
            untaught: Vec::new(),
        }
    }

    fn at(store: PoorStore) -> RecallStore {
        RecallStore { name: "poor", store: Arc::new(store) }
    }

    /// A turn goes on, whatever becomes of its search, and its journal says why it may lack something.
    #[tokio::test(start_paused = true)]
    async fn a_store_that_is_late_away_or_damaged_only_degrades() {
        let degraded = async |store, text: Result<&str, &str>| {
            let text = text.map(str::to_owned).map_err(str::to_owned);
            at(store).reminds(&ask(), ready(()), ready(text)).await.degraded
        };
        assert_eq!(degraded(PoorStore::Empty, Ok("hi")).await, None);
        assert_eq!(degraded(PoorStore::Hangs, Ok("hi")).await, Some(RecallFault::Late));
        assert_eq!(degraded(PoorStore::Fails, Ok("hi")).await, Some(RecallFault::Failed));
        assert_eq!(degraded(PoorStore::Damaged, Ok("hi")).await, Some(RecallFault::Damaged));
        let lost = degraded(PoorStore::Damaged, Err("no blob")).await;
        assert_eq!(lost, Some(RecallFault::Failed), "its message cannot be read");
    }

    /// What the turn before it taught is found, or its journal says that it may be missing.
    #[tokio::test(start_paused = true)]
    async fn a_memory_is_searched_after_it_was_sent_what_it_is_taught() {
        let is_sent = AtomicBool::new(false);
        let taught = async {
            tokio::task::yield_now().await;
            is_sent.store(true, Ordering::SeqCst);
        };
        let text = async {
            if is_sent.load(Ordering::SeqCst) { Ok("hi".to_owned()) } else { Err(String::new()) }
        };
        assert_eq!(at(PoorStore::Empty).reminds(&ask(), taught, text).await.degraded, None);

        let begins = Instant::now();
        let never = std::future::pending();
        let recalled =
            at(PoorStore::Empty).reminds(&ask(), never, ready(Ok("hi".to_owned()))).await;
        assert_eq!(recalled.degraded, Some(RecallFault::Late));
        assert!(begins.elapsed() < RecallStore::WITHIN, "the other memories are searched");
    }
}
