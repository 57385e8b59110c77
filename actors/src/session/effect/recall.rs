//! Searches a store for what a turn is reminded of, while its first call waits.
//!
//! The append of the call waits for the search, and for nothing else of it: a store that is slow, away or damaged makes a
//! turn forgetful, and never late or failed.

use std::{sync::Arc, time::Duration};

use clawnode_kernel::driver::Port;
use clawnode_memory::store::{MemoryStore, RecallAnswer, RecallQuery, StoreError, StoreScope};
use clawnode_proto::{
    limits::RECALL_PASSAGES,
    recall::{RecallFault, Recalled},
};
use tracing::debug;

use super::run::SessionRunner;
use crate::{
    agent::Grant,
    session::turn::{
        effect::Effect,
        kind::Session,
        recall::{RecallAsk, RecallFinds},
    },
};

/// How long a search may take.
const WITHIN: Duration = Duration::from_millis(150);

/// Where sessions look for what was learned and said.
#[derive(Clone, Debug)]
pub struct RecallStore {
    /// Its name in journals.
    pub name: &'static str,
    /// The store.
    pub store: Arc<dyn MemoryStore>,
}

/// Brings what was found to a session's actor. Dropped without that, it says so, and the session asks again.
struct RecallReply {
    effect: Effect,
    port: Port<Session>,
    is_answered: bool,
}

// === impl RecallReply ===

impl RecallReply {
    fn granted(mut self, grant: Grant) {
        self.is_answered = true;
        self.port.granted(self.effect, grant);
    }
}

impl Drop for RecallReply {
    fn drop(&mut self) {
        if !self.is_answered {
            self.port.forgotten(self.effect);
        }
    }
}

// === impl SessionRunner ===

impl SessionRunner {
    /// Searches for what a turn is reminded of; its session hears of the answer. Without a store, there is nothing.
    pub(in crate::session) fn recall(
        &self,
        effect: Effect,
        grant: Grant,
        ask: RecallAsk,
        port: &Port<Session>,
    ) -> Option<Grant> {
        let Some(store) = self.parts.memory.clone() else {
            let nothing = ask.recalled("", "", RecallFinds::default());
            return Some(Grant { recalled: Some(Arc::new(nothing)), ..grant });
        };
        let reply = RecallReply { effect, port: port.clone(), is_answered: false };
        let runner = self.clone();
        // Detached: it ends by its time.
        drop(tokio::spawn(async move {
            let recalled = Some(Arc::new(runner.search(&store, &ask).await));
            reply.granted(Grant { recalled, ..grant });
        }));
        None
    }

    async fn search(&self, at: &RecallStore, ask: &RecallAsk) -> Recalled {
        let searching = async {
            let text: String = self.text(&ask.text).await.map_err(|failure| failure.message)?;
            let (memories, sessions) = (ask.scopes.memories(), ask.scopes.sessions());
            let (points, passages) = (ask.points(&text), ask.passages(&text));
            let found = tokio::try_join!(
                search(at, &memories, &points, ask.memory.top_facts),
                // One more: the message itself may be there.
                search(at, &sessions, &passages, RECALL_PASSAGES + 1),
            );
            let (points, passages) = found.map_err(|failure| failure.to_string())?;
            let is_damaged = !points.damaged.is_empty() || !passages.damaged.is_empty();
            let degraded = is_damaged.then_some(RecallFault::Damaged);
            let (points, passages) = (points.found, passages.found);
            Ok::<_, String>((text, RecallFinds { points, passages, degraded }))
        };
        let degraded = match tokio::time::timeout(WITHIN, searching).await {
            Ok(Ok((text, finds))) => return ask.recalled(&text, at.name, finds),
            Ok(Err(failure)) => {
                debug!(turn = %ask.turn, failure, "nothing is recalled, because the store failed");
                RecallFault::Failed
            }
            Err(_elapsed) => RecallFault::Late,
        };
        let finds = RecallFinds { degraded: Some(degraded), ..RecallFinds::default() };
        ask.recalled("", at.name, finds)
    }
}

async fn search(
    at: &RecallStore,
    scopes: &[StoreScope],
    query: &RecallQuery,
    most: usize,
) -> Result<RecallAnswer, StoreError> {
    if scopes.is_empty() || most == 0 {
        return Ok(RecallAnswer::default());
    }
    at.store.search(scopes, query, most).await
}
