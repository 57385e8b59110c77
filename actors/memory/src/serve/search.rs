//! Searches in the store of a process: what journals say decides what is found.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use async_trait::async_trait;
use clawnode_proto::{EntityId, ErrorChain, Position, Seq, kernel::SNAPSHOT};
use futures_util::{StreamExt as _, stream};
use tracing::debug;

use super::{
    error::FillError,
    points::{self, PointMark},
    said::is_deletion,
    served::{MemoryTruth, ServedStore, SessionBeginning},
    store_meaning::MeantQuery,
};
use crate::store::{
    DocumentBatch, DocumentId, DocumentKind, MemoryStore, MemoryStoreError, RecallAnswer,
    RecallQuery, StoreScope, document::QUERY_SCOPES,
};

/// Journals that a search reads at the same time.
const READS_MOST: usize = 16;

// === impl ServedStore ===

impl ServedStore {
    /// What may be found of these memories. The journals of `unread` could not be read.
    async fn truths_of(
        &self,
        scopes: &BTreeSet<StoreScope>,
    ) -> (BTreeMap<StoreScope, Arc<MemoryTruth>>, BTreeSet<StoreScope>) {
        let memories = scopes.iter().filter(|scope| scope.memory().is_some());
        let asked = memories.map(|scope| async move { (scope.clone(), self.truth(scope).await) });
        let asked: Vec<_> = asked.collect();
        let asked: Vec<_> = stream::iter(asked).buffered(READS_MOST).collect().await;
        let (mut truths, mut unread) = (BTreeMap::new(), BTreeSet::new());
        for (scope, truth) in asked {
            match truth {
                Ok(truth) => {
                    truths.insert(scope, truth);
                }
                Err(failure) => {
                    let failure = ErrorChain(&failure);
                    debug!(%scope, %failure, "a memory is not searched: its journal cannot be read");
                    unread.insert(scope);
                }
            }
        }
        (truths, unread)
    }

    /// The events after which these sessions began: what was said before was deleted. Those that were deleted are not
    /// among them, and of `unread` the journals could not be read.
    async fn begins(
        &self,
        scopes: BTreeSet<StoreScope>,
    ) -> (BTreeMap<StoreScope, u64>, BTreeSet<StoreScope>) {
        let looked = scopes.into_iter().map(|scope| async move {
            let began = self.began(scope.entity()).await;
            (scope, began)
        });
        let looked: Vec<_> = looked.collect();
        let looked: Vec<_> = stream::iter(looked).buffered(READS_MOST).collect().await;
        let (mut begins, mut unread) = (BTreeMap::new(), BTreeSet::new());
        for (scope, began) in looked {
            match began {
                Ok(began) => begins.extend(began.map(|began| (scope, began))),
                Err(failure) => {
                    let failure = ErrorChain(&failure);
                    debug!(%scope, %failure, "a session is not searched: it cannot be read");
                    unread.insert(scope);
                }
            }
        }
        (begins, unread)
    }

    /// The event that ended the last deletion of a session; 0 if it was never deleted, and none if it is deleted now.
    async fn began(&self, session: EntityId) -> Result<Option<u64>, FillError> {
        let records = self.storage().journal.read(session, Position(0)).await?;
        let events = points::events(session, &records)?;
        let (mut began, mut is_there) = (0, false);
        for event in &events {
            is_there = !is_deletion(event)?;
            if !is_there {
                began = event.head.n.0;
            }
        }
        match events.first() {
            // It has replaced all that came before it, also a deletion.
            Some(first) if is_there && began == 0 && first.head.kind == SNAPSHOT => {
                self.deleted_before(session, first.head.n).await.map(Some)
            }
            _ => Ok(is_there.then_some(began)),
        }
    }

    /// The event that ended the last deletion before this snapshot; 0 if there was none.
    async fn deleted_before(&self, session: EntityId, snapshot: Seq) -> Result<u64, FillError> {
        if let Some(began) = self.beginning(session, snapshot) {
            return Ok(began);
        }
        let core = self.shared.entities.core(session).await?;
        let began = core.deleted_at.map_or(0, |deleted| deleted.0);
        self.has_begun(session, SessionBeginning { snapshot, began });
        Ok(began)
    }
}

#[async_trait]
impl MemoryStore for ServedStore {
    async fn put(&self, scope: &StoreScope, batch: DocumentBatch) -> Result<(), MemoryStoreError> {
        self.store().put(scope, batch).await
    }

    async fn mask(&self, scope: &StoreScope, ids: &[DocumentId]) -> Result<(), MemoryStoreError> {
        self.store().mask(scope, ids).await
    }

    async fn search(
        &self,
        scopes: &[StoreScope],
        query: &RecallQuery,
        k: usize,
    ) -> Result<RecallAnswer, MemoryStoreError> {
        let asked: BTreeSet<StoreScope> = scopes.iter().cloned().collect();
        if asked.len() > QUERY_SCOPES {
            return Err(MemoryStoreError::Scopes { found: asked.len() });
        }
        let (truths, unread) = self.truths_of(&asked).await;
        let MeantQuery { query, is_degraded } = self.meant(query).await;
        let (mut answer, is_away) = match self.store().search(scopes, &query, k).await {
            Err(failure) if failure.is_away() => {
                debug!(failure = %ErrorChain(&failure), "nothing is searched: the store is away");
                (RecallAnswer::default(), true)
            }
            answer => (answer?, false),
        };
        let passages =
            answer.found.iter().filter(|found| found.document.kind == DocumentKind::Passage);
        let passages = passages.map(|passage| passage.scope.clone()).collect();
        let (begins, unread_sessions) = self.begins(passages).await;
        // MEM-4: of a memory that cannot be asked, nothing is known to be live. A live point says what its journal says.
        answer.found.retain(|found| match found.document.kind {
            #[cfg(feature = "test-util")]
            DocumentKind::Point(_) if clawnode_kernel::KernelBug::BelievesStore.is_in_folds() => {
                true
            }
            DocumentKind::Passage => {
                let is_kept = found.scope.session().is_some_and(|session| self.keeps(&session));
                is_kept
                    && begins
                        .get(&found.scope)
                        .is_some_and(|began| found.document.id.event > *began)
            }
            DocumentKind::Point(_) => {
                let truth = truths.get(&found.scope);
                let mark = truth.and_then(|truth| truth.live.get(&found.document.id));
                let is_as_journaled = mark == Some(&PointMark::of(&found.document));
                if mark.is_some() && !is_as_journaled {
                    // Its scope is filled again.
                    answer.damaged.push(found.scope.clone());
                }
                is_as_journaled
            }
        });
        self.mark_damaged(&answer.damaged);
        if is_away || is_degraded {
            answer.damaged.extend(asked.iter().cloned());
        }
        answer.damaged.extend(unread);
        answer.damaged.extend(unread_sessions);
        // What was found damaged before is not filled again yet.
        answer
            .damaged
            .extend(self.damages().iter().filter(|damage| asked.contains(*damage)).cloned());
        // An index that is being built lacks what it does not have yet.
        if self.progress().is_rebuilding {
            answer.damaged.extend(asked.into_iter().filter(|scope| scope.session().is_some()));
        }
        answer.damaged.sort();
        answer.damaged.dedup();
        Ok(answer)
    }

    async fn standing(&self, scopes: &[StoreScope]) -> Result<RecallAnswer, MemoryStoreError> {
        let (mut truths, unread) = self.truths_of(&scopes.iter().cloned().collect()).await;
        let mut damaged = Vec::new();
        for scope in unread {
            // They are in the journal. A store that is away says nothing about them.
            match self.read_memory(&scope).await {
                Ok((_, truth, _)) if self.away().is_some() => {
                    truths.insert(scope, truth);
                }
                _ => damaged.push(scope),
            }
        }
        let found = truths.values().flat_map(|truth| truth.standing.iter().cloned()).collect();
        Ok(RecallAnswer { found, damaged })
    }

    async fn upto(&self, scope: &StoreScope) -> Result<u64, MemoryStoreError> {
        self.store().upto(scope).await
    }

    async fn drop(&self, scope: &StoreScope) -> Result<(), MemoryStoreError> {
        self.store().drop(scope).await
    }
}
