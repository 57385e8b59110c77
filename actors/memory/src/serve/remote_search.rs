//! Searches that another process makes, and searches for another process.
//!
//! In a cluster without a server, the workers share the scopes of persons. One that ranks first for a person fills the
//! person's scopes from journals and answers searches in them. What it says is compared with the journals of memories and
//! sessions, like what every store elsewhere says. If it does not answer, the process searches for itself.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use clawnode_cluster::membership::Members;
use clawnode_proto::{
    EntityId, ErrorChain, ProcessId, codec,
    limits::STORE_FOUND_BYTES,
    node::{NodeReply, NodeRequest},
    recall::{StoreFind, StoreFound, StoreScore, StoreSearch},
};
use futures_util::future::join_all;
use tokio::{sync::watch, time::timeout};
use tracing::{debug, warn};

use super::{
    error::FillError,
    scope_ranks::{ScopeRanks, home},
    search::JournalView,
    served::ServedStore,
    waiting_inputs::TAKEN_WITHIN,
};
use crate::store::{
    Document, DocumentId, DocumentKind, FoundDocument, RecallAnswer, RecallQuery, StoreScope,
    document::{DOCUMENT_CHARS, QUERY_CHARS, QUERY_FOUND, QUERY_SCOPES},
    score::ScoreParts,
};

/// How much longer one process waits for the answer of another than a search here may wait for a vector. The other one gets
/// three quarters of that time for the vector. With both, a turn that waits in vain has some of its 150 ms left to search here.
const ANSWER_MORE: Duration = Duration::from_millis(25);
/// How long it waits at most where there are no vectors.
const PLAIN_MOST: Duration = Duration::from_secs(1);
/// How long ago the feed may have been followed to its end. Usually that is done each second.
const FEED_LATE: Duration = Duration::from_secs(5);

// === impl ServedStore ===

impl ServedStore {
    // === Who holds what ===

    /// Has the workers of the cluster hold one share of the scopes of persons each. What persons share is still in each
    /// process. A store on a server is shared anyway.
    pub fn shares_scopes(&self, me: ProcessId, members: watch::Receiver<Members>) {
        if self.shared.is_local && self.shared.ranks.set(ScopeRanks::new(me, members)).is_err() {
            debug!("the workers share the scopes of the store of memories already");
        }
    }

    /// Whether this process keeps the scope: another one does not, or does not answer.
    pub fn holds(&self, scope: &StoreScope) -> bool {
        let ranks = self.shared.ranks.get();
        let partition = |home: EntityId| home.partition(self.storage().partitions);
        // What persons share is in each process.
        ranks.zip(home(scope)).is_none_or(|(ranks, home)| ranks.holds(partition(home)))
    }

    /// The other process that keeps the scope; none if this one does.
    pub fn held_by(&self, scope: &StoreScope) -> Option<ProcessId> {
        if self.holds(scope) { None } else { self.holder([scope]) }
    }

    /// The other process that holds the first of these scopes that is a person's.
    fn holder<'a>(&self, scopes: impl IntoIterator<Item = &'a StoreScope>) -> Option<ProcessId> {
        let ranks = self.shared.ranks.get()?;
        let home = scopes.into_iter().find_map(home)?;
        ranks.holder(home.partition(self.storage().partitions))
    }

    /// Removes what the store has of a scope that another worker holds.
    pub(super) async fn lets_go(&self, scope: &StoreScope) -> Result<(), FillError> {
        let is_memory = scope.memory().is_some();
        let filling = if is_memory { &self.shared.filling } else { &self.shared.reading };
        let _filling = filling.lock(scope.entity()).await;
        self.removes(scope.entity()).await
    }

    /// Removes what the store has of an entity that is deleted. What a search is filling meanwhile goes as well: it may have
    /// read the journal before the deletion.
    pub(super) async fn drops_deleted(&self, entity: EntityId) -> Result<(), FillError> {
        // A deleted entity has no key that says which of the two it is. Nothing else has both.
        let _filling = self.shared.filling.lock(entity).await;
        let _reading = self.shared.reading.lock(entity).await;
        self.removes(entity).await
    }

    /// Removes what the store has of an entity that nothing fills meanwhile.
    pub(super) async fn removes(&self, entity: EntityId) -> Result<(), FillError> {
        self.followed().take(entity);
        if let Some(scope) = self.store().scope_of(entity).await? {
            self.store().drop(&scope).await?;
        }
        Ok(())
    }

    /// Whether a session was filled, and lacks nothing that the feed has shown since.
    pub(super) fn is_followed(&self, session: &StoreScope) -> bool {
        let mut followed = self.followed();
        let is_followed = followed.take(session.entity()).is_some();
        if is_followed {
            followed.put(session.entity(), ());
        }
        is_followed
    }

    /// A session was filled: the feed has what comes from now on.
    pub(super) fn is_followed_from_now(&self, session: &StoreScope) {
        let mut followed = self.followed();
        followed.take(session.entity());
        followed.put(session.entity(), ());
    }

    /// Fills sessions of persons that are asked for and were not filled yet, as far as there is time. What takes longer is
    /// there for a later search. Says which of them lack something.
    pub(super) async fn fill_asked(
        &self,
        asked: &BTreeSet<StoreScope>,
        within: Duration,
    ) -> BTreeSet<StoreScope> {
        self.doubts(asked);
        let damaged = self.damaged();
        let is_to_fill = |scope: &&StoreScope| {
            let is_kept = scope.session().is_some_and(|session| self.keeps(&session));
            is_kept && !damaged.contains(*scope) && !self.is_followed(scope)
        };
        let lacking: Vec<StoreScope> = asked.iter().filter(is_to_fill).cloned().collect();
        if lacking.is_empty() {
            return BTreeSet::new();
        }
        let filling = lacking.iter().cloned().map_while(|scope| {
            // With too many, the rest is lacking in this search, and filled for a later one.
            let place = Arc::clone(&self.shared.fills).try_acquire_owned().ok()?;
            let served = self.clone();
            // Detached: no write is cut off, and the next search finds what was filled.
            Some(tokio::spawn(async move {
                let _place = place;
                served.fill_unfollowed(&scope).await;
            }))
        });
        if timeout(within, join_all(filling)).await.is_err() {
            debug!(scopes = lacking.len(), "conversations are filled for a later search");
        }
        lacking.into_iter().filter(|scope| !self.is_followed(scope)).collect()
    }

    /// Has sessions looked at again while the feed is far behind: it has not shown yet what was said since they were filled.
    fn doubts(&self, asked: &BTreeSet<StoreScope>) {
        let whole_at = self.progress().whole_at;
        if self.shared.entities.now().since(whole_at) > FEED_LATE {
            let mut followed = self.followed();
            for scope in asked {
                followed.take(scope.entity());
            }
        }
    }

    async fn fill_unfollowed(&self, session: &StoreScope) {
        let _reading = self.shared.reading.lock(session.entity()).await;
        if self.is_followed(session) {
            return;
        }
        let filled = async {
            if self.has_all_said(session).await? {
                self.is_followed_from_now(session);
                return Ok(());
            }
            self.fill_session(session, &mut None).await
        };
        if let Err(failure) = filled.await {
            let failure = ErrorChain(&failure);
            warn!(scope = %session, %failure, "a conversation is not filled for a search");
        }
    }

    // === Asking ===

    /// What the process finds that holds these scopes. None: they are to be searched here.
    pub(super) async fn search_elsewhere(
        &self,
        asked: &BTreeSet<StoreScope>,
        query: &RecallQuery,
        k: usize,
    ) -> Option<RecallAnswer> {
        // A vector is of the store that made it.
        let holder = self.holder(asked).filter(|_| query.embedding.is_none())?;
        let asking = async { self.ask(holder, asked, query, k).await.ok_or(()) };
        let reading = async { Ok::<_, ()>(self.journal_view(asked).await) };
        let (answer, view) = tokio::try_join!(asking, reading).ok()?;
        Some(believed(answer, &view, asked, query, k))
    }

    /// What a process answers; none if it does not.
    async fn ask(
        &self,
        holder: ProcessId,
        asked: &BTreeSet<StoreScope>,
        query: &RecallQuery,
        k: usize,
    ) -> Option<StoreFound> {
        let patience = query.meaning_within;
        // Without vectors, it is not worth so long a wait.
        let patience =
            if self.shared.meaning.get().is_some() { patience } else { patience.min(PLAIN_MOST) };
        let search = StoreSearch {
            scopes: asked.iter().map(ToString::to_string).collect(),
            text: query.text.chars().take(QUERY_CHARS).collect(),
            within_ms: u32::try_from((patience * 3 / 4).as_millis()).unwrap_or(u32::MAX),
            layers: query.layers.clone(),
            passages: query.passages,
            least_trust: query.least_trust,
            most: u32::try_from(k.min(QUERY_FOUND)).unwrap_or(u32::MAX),
        };
        let request = codec::encode(&NodeRequest::SearchStore { search }).ok()?;
        let subject = self.storage().prefix.rpc(holder);
        let within = patience.saturating_add(ANSWER_MORE);
        let answer = self.storage().bus.request(subject, request.into(), within).await;
        let ranks = self.shared.ranks.get()?;
        match answer.map(|answer| codec::decode::<NodeReply>(&answer)) {
            Ok(Ok(NodeReply::StoreFound { found })) => {
                ranks.answers(holder);
                return Some(found);
            }
            Ok(Ok(NodeReply::NotMine)) => debug!(%holder, "a process cannot search for others now"),
            Ok(Ok(_)) => debug!(%holder, "a process answers a search with something else"),
            Ok(Err(failure)) => debug!(%holder, %failure, "a process answers a search unreadably"),
            Err(failure) => {
                let failure = ErrorChain(&failure);
                debug!(%holder, %failure, "a process does not answer a search");
            }
        }
        ranks.is_late(holder);
        None
    }

    // === Answering ===

    /// What this store finds for another process; none if it is not shared, or cannot be searched.
    pub async fn answer_search(&self, search: StoreSearch) -> Option<StoreFound> {
        self.shared.ranks.get()?;
        let StoreSearch { scopes, text, within_ms, layers, passages, least_trust, most } = search;
        if scopes.len() > QUERY_SCOPES {
            return None;
        }
        let scopes: Option<BTreeSet<StoreScope>> =
            scopes.iter().map(|scope| StoreScope::read(scope)).collect();
        let meaning_within = Duration::from_millis(within_ms.into());
        let query =
            RecallQuery { meaning_within, layers, passages, least_trust, ..RecallQuery::new(text) };
        let most = usize::try_from(most).unwrap_or(usize::MAX).min(QUERY_FOUND);
        match self.search_here(&scopes?, &query, most, TAKEN_WITHIN).await {
            Ok(answer) => Some(on_the_wire(answer)),
            Err(failure) => {
                let failure = ErrorChain(&failure);
                debug!(%failure, "nothing is searched for another process");
                None
            }
        }
    }
}

/// What is left of an answer: what journals say as well (MEM-1, MEM-4, S-22).
fn believed(
    answer: StoreFound,
    view: &JournalView,
    asked: &BTreeSet<StoreScope>,
    query: &RecallQuery,
    k: usize,
) -> RecallAnswer {
    let upto = answer.upto.iter().filter_map(|(scope, event)| {
        let scope = StoreScope::read(scope).filter(|scope| asked.contains(scope))?;
        Some((scope, *event))
    });
    let upto = upto.collect();
    let mut damaged: Vec<StoreScope> =
        answer.damaged.iter().filter_map(|scope| StoreScope::read(scope)).collect();
    let mut seen = BTreeSet::new();
    let found = answer.found.into_iter().take(QUERY_FOUND).filter_map(read);
    let found = found.filter(|found| {
        let is_asked =
            asked.contains(&found.scope) && query.admits(found.document.kind, found.document.trust);
        is_asked
            && view.has(found, &mut damaged)
            && seen.insert((found.scope.clone(), found.document.id))
    });
    let found: Vec<FoundDocument> = found.take(k).collect();
    damaged.extend(view.unread().cloned());
    // MEM-1: of other scopes, nothing is said either.
    damaged.retain(|scope| asked.contains(scope));
    damaged.sort();
    damaged.dedup();
    RecallAnswer { found, damaged, upto }
}

// === on the wire ===

fn on_the_wire(answer: RecallAnswer) -> StoreFound {
    let RecallAnswer { found, damaged, upto } = answer;
    let mut room = STORE_FOUND_BYTES;
    let found = found.into_iter().map_while(|found| {
        room = room.checked_sub(found.document.text.len())?;
        Some(written(found))
    });
    let found = found.collect();
    let upto = upto.into_iter().map(|(scope, event)| (scope.to_string(), event)).collect();
    StoreFound { found, damaged: damaged.iter().map(ToString::to_string).collect(), upto }
}

fn written(found: FoundDocument) -> StoreFind {
    let FoundDocument { scope, document, score } = found;
    let DocumentId { entity, event, part } = document.id;
    let layer = match document.kind {
        DocumentKind::Point(layer) => Some(layer),
        DocumentKind::Passage => None,
    };
    let ScoreParts { bm25, words, meaning, neighbours, factor, total } = score;
    StoreFind {
        scope: scope.to_string(),
        entity,
        event,
        part,
        layer,
        text: document.text,
        trust: document.trust,
        at: document.at,
        importance: document.importance,
        score: StoreScore {
            bm25: bm25.to_bits(),
            words: words.to_bits(),
            meaning: meaning.map(f64::to_bits),
            neighbours: neighbours.to_bits(),
            factor: factor.to_bits(),
            total: total.to_bits(),
        },
    }
}

/// A document of another process; none if it is of no scope, too long, or without a score.
fn read(find: StoreFind) -> Option<FoundDocument> {
    let StoreFind { scope: held, entity, event, part, layer, text, trust, at, importance, score } =
        find;
    let held = StoreScope::read(&held)?;
    if text.is_empty() || text.chars().nth(DOCUMENT_CHARS).is_some() {
        return None;
    }
    let number = |bits: u64| Some(f64::from_bits(bits)).filter(|number| number.is_finite());
    let score = ScoreParts {
        bm25: number(score.bm25)?,
        words: number(score.words)?,
        meaning: score.meaning.and_then(number),
        neighbours: number(score.neighbours)?,
        factor: number(score.factor)?,
        total: number(score.total)?,
    };
    let document = Document {
        id: DocumentId { entity, event, part },
        kind: layer.map_or(DocumentKind::Passage, DocumentKind::Point),
        text,
        speaker: None,
        position: None,
        at,
        importance,
        trust,
        embedding: None,
    };
    Some(FoundDocument { scope: held, document, score })
}
