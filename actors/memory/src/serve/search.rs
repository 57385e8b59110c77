//! Searches in the store of a process: what journals say decides what is found.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use clawnode_cluster::Record;
use clawnode_proto::{EntityId, ErrorChain, Position, Sealed, kernel::SNAPSHOT};
use futures_util::{StreamExt as _, stream};
use tokio::time::Instant;
use tracing::debug;

use super::{
    error::FillError,
    lacking_points::{self, DocumentMark},
    said::{SaidTruth, is_deletion},
    served::{MemoryTruth, ServedStore, SessionBeginning},
    vector_model::MeantQuery,
    waiting_inputs::TAKEN_WITHIN,
};
use crate::store::{
    DocumentBatch, DocumentId, DocumentKind, FoundDocument, MemoryStore, MemoryStoreError,
    RecallAnswer, RecallQuery, StoreScope,
    document::{MEANING_WITHIN, QUERY_SCOPES},
};

/// Journals that a search reads at the same time.
const READS_MOST: usize = 16;

/// What journals say of the scopes of a search: what a store finds is compared with it.
#[derive(Debug)]
pub(super) struct JournalView {
    truths: BTreeMap<StoreScope, Arc<MemoryTruth>>,
    /// Memories whose journals could not be read, or do not have all that they were sent.
    unread: BTreeSet<StoreScope>,
    sessions: SessionViews,
}

/// What journals say of sessions.
#[derive(Debug)]
struct SessionViews {
    /// After which events they began, if `said` does not say it. Those that are deleted are not among them.
    begins: BTreeMap<StoreScope, u64>,
    /// What was said in them since they began. None: the store is in this process, which has filled it.
    said: Option<BTreeMap<StoreScope, Arc<SaidTruth>>>,
    /// Those whose journals could not be read.
    unread: BTreeSet<StoreScope>,
}

// === impl JournalView ===

impl JournalView {
    /// Whether journals say this as well: it is live (MEM-4), and its text and trust are those of its event (S-22). The scope
    /// of a document that says something else is added to `altered`.
    pub(super) fn has(&self, found: &FoundDocument, altered: &mut Vec<StoreScope>) -> bool {
        let FoundDocument { scope, document, .. } = found;
        let (is_there, is_as_journaled) = match document.kind {
            #[cfg(feature = "test-util")]
            DocumentKind::Point(_) if clawnode_kernel::KernelBug::BelievesStore.is_in_folds() => {
                (true, true)
            }
            DocumentKind::Point(_) => {
                let truth = self.truths.get(scope);
                let mark = truth.and_then(|truth| truth.live.get(&document.id));
                (mark.is_some(), mark == Some(&DocumentMark::of(document)))
            }
            DocumentKind::Passage => {
                let SessionViews { begins, said, .. } = &self.sessions;
                if let Some(said) = said {
                    // What was said before the last deletion is not in it.
                    let said = said.get(scope);
                    let is_there = said.is_some_and(|said| said.knows(document.id));
                    (is_there, said.is_some_and(|said| said.has(document)))
                } else {
                    let began = begins.get(scope);
                    let is_there = began.is_some_and(|began| document.id.event > *began);
                    (is_there, is_there)
                }
            }
        };
        if is_there && !is_as_journaled {
            altered.push(scope.clone());
        }
        is_as_journaled
    }

    /// The scopes whose journals could not be read.
    pub(super) fn unread(&self) -> impl Iterator<Item = &StoreScope> {
        self.unread.iter().chain(&self.sessions.unread)
    }
}

// === impl SessionBeginning ===

impl SessionBeginning {
    /// The same after these records, which have these events.
    fn after(mut self, records: &[Record], events: &[Sealed]) -> Result<Self, FillError> {
        for event in events {
            self.is_there = !is_deletion(event)?;
            if !self.is_there {
                self.began = event.head.n.0;
            }
        }
        self.position = records.last().map_or(self.position, |last| last.position);
        Ok(self)
    }
}

// === impl ServedStore ===

impl ServedStore {
    /// What journals say of these scopes, for what comes from the store of another process. The store here is not filled.
    pub(super) async fn journal_view(&self, asked: &BTreeSet<StoreScope>) -> JournalView {
        let sessions = asked.iter().filter(|scope| scope.session().is_some()).cloned().collect();
        let ((truths, unread), sessions) = tokio::join!(
            self.truths_of(asked, false, TAKEN_WITHIN),
            self.sessions_of(sessions, true)
        );
        JournalView { truths, unread, sessions }
    }

    /// After which events these sessions began, of those that are kept, or what was said in them since, if `reads`.
    async fn sessions_of(&self, mut sessions: BTreeSet<StoreScope>, reads: bool) -> SessionViews {
        sessions.retain(|scope| scope.session().is_some_and(|session| self.keeps(&session)));
        if !reads {
            let (begins, unread) = self.begins(sessions).await;
            return SessionViews { begins, said: None, unread };
        }
        let (said, unread) = self.said_of(sessions).await;
        SessionViews { begins: BTreeMap::new(), said: Some(said), unread }
    }

    /// What was said in these sessions. The journals of `unread` could not be read.
    async fn said_of(
        &self,
        sessions: BTreeSet<StoreScope>,
    ) -> (BTreeMap<StoreScope, Arc<SaidTruth>>, BTreeSet<StoreScope>) {
        let reading = sessions.into_iter().map(|scope| async move {
            let said = self.said_in(&scope).await;
            (scope, said)
        });
        let reading: Vec<_> = reading.collect();
        let read: Vec<_> = stream::iter(reading).buffered(READS_MOST).collect().await;
        let (mut all, mut unread) = (BTreeMap::new(), BTreeSet::new());
        for (scope, said) in read {
            match said {
                Ok(said) => {
                    all.insert(scope, said);
                }
                Err(failure) => {
                    let failure = ErrorChain(&failure);
                    debug!(%scope, %failure, "what was said in a session cannot be read");
                    unread.insert(scope);
                }
            }
        }
        (all, unread)
    }

    /// What may be found of these memories. The journals of `unread` could not be read, or do not have all that the
    /// memories were sent, for which they have so long. If `fills`, the store has all of it then.
    async fn truths_of(
        &self,
        scopes: &BTreeSet<StoreScope>,
        fills: bool,
        taken_within: Duration,
    ) -> (BTreeMap<StoreScope, Arc<MemoryTruth>>, BTreeSet<StoreScope>) {
        let memories = scopes.iter().filter(|scope| scope.memory().is_some());
        let asked = memories.map(|scope| async move {
            let has_all = self.has_taken_all(scope, taken_within).await;
            (scope.clone(), has_all, self.truth(scope, fills).await)
        });
        let asked: Vec<_> = asked.collect();
        let asked: Vec<_> = stream::iter(asked).buffered(READS_MOST).collect().await;
        let (mut truths, mut unread) = (BTreeMap::new(), BTreeSet::new());
        for (scope, has_all, truth) in asked {
            match truth {
                Ok(truth) => {
                    if !has_all {
                        unread.insert(scope.clone());
                    }
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
        let beginning = self.beginning(session).await?;
        self.has_begun(session, beginning);
        Ok(beginning.is_there.then_some(beginning.began))
    }

    /// Reads on from where the journal was read to, or all of it.
    async fn beginning(&self, session: EntityId) -> Result<SessionBeginning, FillError> {
        let journal = &self.storage().journal;
        if let Some(known) = self.take_beginning(session) {
            let before = Position(known.position.0.saturating_sub(1));
            let records = journal.read(session, before).await?;
            // Without the last record that was read, a snapshot has replaced it, and perhaps also a deletion.
            if let Some((last, new)) = records.split_first()
                && last.position == known.position
            {
                return known.after(new, &lacking_points::events(session, new)?);
            }
        }
        let records = journal.read(session, Position(0)).await?;
        let events = lacking_points::events(session, &records)?;
        let read = SessionBeginning::default().after(&records, &events)?;
        match events.first() {
            // It has replaced all that came before it, also a deletion.
            Some(first) if read.is_there && read.began == 0 && first.head.kind == SNAPSHOT => {
                let core = self.shared.entities.core(session).await?;
                Ok(SessionBeginning { began: core.deleted_at.map_or(0, |at| at.0), ..read })
            }
            _ => Ok(read),
        }
    }

    /// Searches in the store of this process, or on its server. Memories have `taken_within` to take what they were sent.
    pub(super) async fn search_here(
        &self,
        asked: &BTreeSet<StoreScope>,
        query: &RecallQuery,
        k: usize,
        taken_within: Duration,
    ) -> Result<RecallAnswer, MemoryStoreError> {
        let is_shared = self.shared.ranks.get().is_some();
        let filling = async {
            if is_shared {
                self.fill_asked(asked, query.meaning_within / 2).await
            } else {
                BTreeSet::new()
            }
        };
        let ((truths, unread), lacking, meant) =
            tokio::join!(self.truths_of(asked, true, taken_within), filling, self.meant(query));
        let MeantQuery { query, is_degraded } = meant;
        let scopes: Vec<StoreScope> = asked.iter().cloned().collect();
        let (mut answer, is_away) = match self.store().search(&scopes, &query, k).await {
            Err(failure) if failure.is_away() => {
                debug!(failure = %ErrorChain(&failure), "the search finds nothing: the store cannot be reached");
                (RecallAnswer::default(), true)
            }
            answer => (answer?, false),
        };
        // MEM-1: nothing is read of other scopes, so what is of them is left out.
        let passages = answer.found.iter().filter(|found| {
            found.document.kind == DocumentKind::Passage && asked.contains(&found.scope)
        });
        let passages = passages.map(|passage| passage.scope.clone()).collect();
        // What was said is read again if a server has it: another program may write there.
        let is_elsewhere = !self.shared.is_local;
        let sessions = self.sessions_of(passages, is_elsewhere).await;
        let view = JournalView { truths, unread, sessions };
        // MEM-4: of a memory that cannot be asked, nothing is known to be live.
        let RecallAnswer { found, damaged, upto } = &mut answer;
        found.retain(|found| view.has(found, damaged));
        upto.retain(|scope, _| asked.contains(scope));
        self.mark_damaged(&answer.damaged);
        if is_away || is_degraded {
            answer.damaged.extend(asked.iter().cloned());
        }
        answer.damaged.extend(view.unread().cloned());
        answer.damaged.extend(lacking);
        // What was found damaged before is not filled again yet.
        answer
            .damaged
            .extend(self.damages().iter().filter(|damage| asked.contains(*damage)).cloned());
        // An index that is being built lacks what it does not have yet.
        if self.progress().is_rebuilding && !is_shared {
            let sessions = asked.iter().filter(|scope| scope.session().is_some());
            answer.damaged.extend(sessions.cloned());
        }
        answer.damaged.sort();
        answer.damaged.dedup();
        Ok(answer)
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
        let begins = Instant::now();
        if let Some(answer) = self.search_elsewhere(&asked, query, k).await {
            return Ok(answer);
        }
        let (within, waited) = (query.meaning_within, begins.elapsed());
        let taken_within = left_for_inputs(within, waited);
        let meaning_within = left_for_meaning(within, waited);
        let query = RecallQuery { meaning_within, ..query.clone() };
        self.search_here(&asked, &query, k, taken_within).await
    }

    async fn standing(&self, scopes: &[StoreScope]) -> Result<RecallAnswer, MemoryStoreError> {
        // A store that another process holds is not filled for it.
        let asked: BTreeSet<StoreScope> = scopes.iter().cloned().collect();
        let fills = asked.iter().all(|scope| self.holds(scope));
        let (mut truths, unread) = self.truths_of(&asked, fills, TAKEN_WITHIN).await;
        let mut damaged = Vec::new();
        for scope in unread {
            // They are in the journal. A store that is away says nothing about them.
            let is_unfilled = self.away().is_some() && !truths.contains_key(&scope);
            let read = if is_unfilled { self.truth(&scope, false).await.ok() } else { None };
            if let Some(truth) = read {
                truths.insert(scope, truth);
            } else {
                damaged.push(scope);
            }
        }
        let found = truths.values().flat_map(|truth| truth.standing.iter().cloned()).collect();
        Ok(RecallAnswer { found, damaged, ..RecallAnswer::default() })
    }

    async fn upto(&self, scope: &StoreScope) -> Result<u64, MemoryStoreError> {
        self.store().upto(scope).await
    }

    async fn drop(&self, scope: &StoreScope) -> Result<(), MemoryStoreError> {
        self.store().drop(scope).await
    }
}

/// How long a search here may still wait for its vector that has waited so long for another process. A turn has no more time
/// than that. Who waits longer than a turn gets at least as much as a turn has.
fn left_for_meaning(within: Duration, waited: Duration) -> Duration {
    let least = if within > MEANING_WITHIN { MEANING_WITHIN } else { Duration::ZERO };
    within.saturating_sub(waited).max(least)
}

/// How long memories may still take what they were sent, before a search here that has waited so long for another process.
fn left_for_inputs(within: Duration, waited: Duration) -> Duration {
    if within > MEANING_WITHIN { TAKEN_WITHIN } else { TAKEN_WITHIN.saturating_sub(waited) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_that_waited_in_vain_does_not_wait_for_inputs_as_well() {
        let left = |within: u64, waited: u64| {
            left_for_inputs(Duration::from_millis(within), Duration::from_millis(waited))
        };
        assert_eq!(left(100, 0), TAKEN_WITHIN);
        assert_eq!(left(100, 30), TAKEN_WITHIN.saturating_sub(Duration::from_millis(30)));
        assert_eq!(left(100, 125), Duration::ZERO, "25 ms are left of 150");
        assert_eq!(left(5_000, 5_025), TAKEN_WITHIN, "a tool can wait");
    }

    #[test]
    fn a_turn_that_waited_in_vain_does_not_wait_for_a_vector_as_well() {
        let left = |within: u64, waited: u64| {
            left_for_meaning(Duration::from_millis(within), Duration::from_millis(waited))
        };
        assert_eq!(left(100, 0), MEANING_WITHIN);
        assert_eq!(left(100, 30), Duration::from_millis(70));
        assert_eq!(left(100, 125), Duration::ZERO, "25 ms are left of 150");
        assert_eq!(left(5_000, 1_025), Duration::from_millis(3_975));
        assert_eq!(left(5_000, 5_025), MEANING_WITHIN, "a tool can wait");
    }
}
