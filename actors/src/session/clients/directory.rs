//! Knows the last event of every journal, the newest first. It reads the last record of each journal once, and
//! then follows the journal feed. So a list of sessions costs one request to the store, however many
//! there are.
//!
//! Each process that answers lists has its own directory in memory: 100,000 ends are about 20 MB.
//!
//! An entity never changes its kind. So entities of other kinds are remembered by their ids alone, and have no end here.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use clawnode_cluster::{Journal, Record, StoreError};
use clawnode_kernel::{Core, LoadedJournal, recent::RecentEntities};
use clawnode_proto::{
    AgentName, Digest, EntityId, Kind, Position, Timestamp, event::decode_record, id::KeyPart,
    kernel::KernelEvent,
};
use futures_util::{StreamExt, stream};
use tokio::{sync::Mutex, time::Instant};

use super::session_list::PageEnd;

/// How many journals are known at most, without those of other kinds: at first the first ones in the store's order,
/// then the ones that were written last. A list says if there are others.
const KNOWN_MAX: usize = 100_000;
/// Entities of other kinds that are remembered, twice: about 9 MB. One that is forgotten is recognized again by its next
/// record, or by a list that folds it.
const OTHERS_KEPT: usize = 200_000;
/// Last records that one look at all journals reads at most: of sessions, and of entities whose kind is not remembered.
const TAILS_MAX: usize = 5 * KNOWN_MAX;
/// How often all last records are read again: the feed does not report damaged and removed journals.
const SCAN_AGAIN: Duration = Duration::from_mins(10);
/// Positions of the feed that are read for one list. If there are more, reading all last records is cheaper.
const FOLLOW_MAX: u64 = 50_000;
/// Records that are read of the feed at once.
const PAGE: usize = 1_000;
/// Ids that are asked for at once.
const IDS: usize = 1_000;
/// Last records that are read at the same time.
const TAILS_AT_ONCE: usize = 64;

/// What the last record of a journal says.
#[derive(Clone, Debug)]
pub(in crate::session) struct JournalEnd {
    pub(in crate::session) at: PageEnd,
    /// The last event. Absent if it cannot be read.
    pub(in crate::session) hash: Option<Digest>,
    pub(in crate::session) is_tombstone: bool,
    /// The fields that a list can filter by, once this process has folded the journal up to here.
    pub(in crate::session) facts: Option<Arc<Facts>>,
}

/// The fields that a list can filter by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct Facts {
    /// Absent if it cannot be read.
    pub(in crate::session) of: Option<(AgentName, KeyPart)>,
    pub(in crate::session) state: String,
    pub(in crate::session) is_stateless: bool,
}

/// All journals, as far as they were read.
#[derive(Debug, Default)]
pub(in crate::session) struct SessionDirectory(Mutex<KnownJournals>);

/// What is known of journals at one time.
#[derive(Debug)]
struct KnownJournals {
    ends: KnownEnds,
    /// Entities of other kinds.
    others: RecentEntities<()>,
}

/// Ends at one time.
#[derive(Debug, Default)]
pub(in crate::session) struct KnownEnds {
    ends: BTreeMap<Reverse<PageEnd>, JournalEnd>,
    by_id: HashMap<EntityId, PageEnd>,
    /// `ends` has the feed up to here.
    upto: Position,
    scanned: Option<Instant>,
    /// Whether there are more journals.
    is_cut: bool,
}

// === impl SessionDirectory ===

impl SessionDirectory {
    /// Applies `read` to the current ends of all journals.
    pub(in crate::session) async fn now<T>(
        &self,
        journal: &dyn Journal,
        read: impl FnOnce(&KnownEnds) -> T,
    ) -> Result<T, StoreError> {
        let mut held = self.0.lock().await;
        let KnownJournals { ends, others } = &mut *held;
        // In place, so that a reader who gives up loses nothing of it.
        let is_recent = ends.scanned.is_some_and(|at| at.elapsed() < SCAN_AGAIN);
        if !is_recent || !ends.follow(journal, others).await? {
            *ends = KnownEnds::scan(journal, others).await?;
        }
        Ok(read(ends))
    }

    /// Notes the filter fields of journals that still have the same end, or that an entity is of another kind. Does
    /// nothing while another task reads the ends; a later list then finds the same again.
    pub(in crate::session) fn note(&self, found: Vec<(JournalEnd, Option<Facts>)>) {
        let Ok(mut held) = self.0.try_lock() else { return };
        for (end, facts) in found {
            let Some(facts) = facts else {
                held.ends.forget(end.at.id);
                held.others.put(end.at.id, ());
                continue;
            };
            let known = held.ends.ends.get_mut(&Reverse(end.at));
            if let Some(known) = known.filter(|known| known.hash == end.hash) {
                known.facts = Some(Arc::new(facts));
            }
        }
    }
}

// === impl KnownJournals ===

impl Default for KnownJournals {
    fn default() -> Self {
        Self { ends: KnownEnds::default(), others: RecentEntities::new(OTHERS_KEPT) }
    }
}

// === impl KnownEnds ===

impl KnownEnds {
    /// The ends behind `after` in the order of lists, the newest first.
    pub(in crate::session) fn behind(
        &self,
        after: Option<PageEnd>,
    ) -> impl Iterator<Item = &JournalEnd> {
        let from =
            after.map_or(std::ops::Bound::Unbounded, |at| std::ops::Bound::Excluded(Reverse(at)));
        self.ends.range((from, std::ops::Bound::Unbounded)).map(|(_, end)| end)
    }

    pub(in crate::session) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Reads the last record of every journal, but of those that are known to be of other kinds.
    async fn scan(
        journal: &dyn Journal,
        others: &mut RecentEntities<()>,
    ) -> Result<Self, StoreError> {
        let mut known = Self {
            ends: BTreeMap::new(),
            by_id: HashMap::new(),
            // The feed has all that is written meanwhile.
            upto: journal.end().await?,
            scanned: Some(Instant::now()),
            is_cut: false,
        };
        let (mut after, mut tails) = (None, 0);
        while !known.is_cut {
            let mut ids = journal.entities(after, IDS).await?;
            let Some(last) = ids.last() else { break };
            after = Some(*last);
            ids.retain(|id| !is_remembered(others, *id));
            tails += ids.len();
            let mut found = stream::iter(ids)
                .map(|id| async move { (id, journal.tail(id).await) })
                .buffer_unordered(TAILS_AT_ONCE);
            while let Some((id, tail)) = found.next().await {
                match tail {
                    Ok(Some(record)) => known.take(id, &record, others),
                    Ok(None) => {}
                    Err(StoreError::Corrupt { .. }) => known.put(JournalEnd::unreadable(id)),
                    Err(failure) => return Err(failure),
                }
            }
            known.is_cut |= tails >= TAILS_MAX;
            // A store that answers at once would keep this thread to itself.
            tokio::task::yield_now().await;
        }
        Ok(known)
    }

    /// Reads the feed since the last time; `false` if it is too much to read.
    async fn follow(
        &mut self,
        journal: &dyn Journal,
        others: &mut RecentEntities<()>,
    ) -> Result<bool, StoreError> {
        // Positions also count entries that are no records.
        if journal.end().await?.0.saturating_sub(self.upto.0) > FOLLOW_MAX {
            return Ok(false);
        }
        loop {
            let page = journal.follow(self.upto, PAGE).await?;
            if page.upto == self.upto {
                return Ok(true);
            }
            for (id, record) in page.records {
                self.take(id, &record, others);
            }
            self.upto = page.upto;
        }
    }

    /// Takes the last record of a journal, unless its entity is of another kind.
    fn take(&mut self, id: EntityId, record: &Record, others: &mut RecentEntities<()>) {
        if is_remembered(others, id) {
            return;
        }
        if !self.by_id.contains_key(&id)
            && kind_in(id, record).is_some_and(|kind| kind != Kind::SESSION)
        {
            others.put(id, ());
            return;
        }
        self.put(of_record(id, record));
    }

    fn forget(&mut self, id: EntityId) {
        if let Some(at) = self.by_id.remove(&id) {
            self.ends.remove(&Reverse(at));
        }
    }

    fn put(&mut self, end: JournalEnd) {
        if let Some(before) = self.by_id.insert(end.at.id, end.at) {
            self.ends.remove(&Reverse(before));
        }
        self.ends.insert(Reverse(end.at), end);
        if self.ends.len() > KNOWN_MAX {
            self.is_cut = true;
            if let Some((Reverse(oldest), _)) = self.ends.pop_last() {
                self.by_id.remove(&oldest.id);
            }
        }
    }
}

// === impl JournalEnd ===

impl JournalEnd {
    /// The end of a journal whose last record cannot be read.
    const fn unreadable(id: EntityId) -> Self {
        let at = PageEnd { updated: Timestamp(0), id };
        Self { at, hash: None, is_tombstone: false, facts: None }
    }
}

/// The end of a journal. `None` if the journal no longer exists.
pub(in crate::session) async fn read(
    journal: &dyn Journal,
    id: EntityId,
) -> Result<Option<JournalEnd>, StoreError> {
    match journal.tail(id).await {
        Ok(record) => Ok(record.map(|record| of_record(id, &record))),
        Err(StoreError::Corrupt { .. }) => Ok(Some(JournalEnd::unreadable(id))),
        Err(failure) => Err(failure),
    }
}

/// Whether this entity is one of the `others`. It is remembered for longer then.
fn is_remembered(others: &mut RecentEntities<()>, id: EntityId) -> bool {
    let is_known = others.take(id).is_some();
    if is_known {
        others.put(id, ());
    }
    is_known
}

/// The kind of an entity, if this record names it: births, inputs and small snapshots do. Only a kind from which the
/// entity's id follows counts, so no damage hides a session.
fn kind_in(id: EntityId, record: &Record) -> Option<Kind> {
    let events = decode_record(&record.bytes).ok()?;
    let named = events.iter().find_map(|sealed| match sealed.event::<KernelEvent>() {
        Ok(Some(KernelEvent::Born(born))) => Some((born.kind, born.key)),
        Ok(Some(KernelEvent::Accepted(accepted))) => {
            Some((accepted.input.kind, accepted.input.key))
        }
        Ok(Some(KernelEvent::Snapshot(_))) => {
            let loaded = LoadedJournal { records: vec![record.clone()], snapshot: None };
            let core = Core::salvaged(id, &loaded);
            core.kind.zip(core.key)
        }
        Ok(_) | Err(_) => None,
    });
    let (kind, key) = named?;
    (EntityId::derive(kind, &key) == id).then_some(kind)
}

fn of_record(id: EntityId, record: &Record) -> JournalEnd {
    let events = decode_record(&record.bytes).unwrap_or_default();
    let Some(last) = events.last() else { return JournalEnd::unreadable(id) };
    // A snapshot of a session that goes on names what it replaced.
    let of_nothing = |event: KernelEvent| match event {
        KernelEvent::Snapshot(snapshot) => snapshot.archive.is_none(),
        _ => false,
    };
    JournalEnd {
        at: PageEnd { updated: last.head.ts, id },
        hash: Some(last.hash),
        is_tombstone: last.event().ok().flatten().is_some_and(of_nothing),
        facts: None,
    }
}
