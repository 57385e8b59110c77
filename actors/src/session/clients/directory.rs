//! Knows the last event of every journal, the newest first. It reads the last record of each journal once, and
//! then follows the journal feed. So a list of sessions costs one request to the store, however many
//! there are.
//!
//! Each process that answers lists has its own directory in memory: 100,000 ends are about 20 MB.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use clawnode_cluster::{Journal, Record, StoreError};
use clawnode_proto::{
    AgentName, Digest, EntityId, Position, Timestamp, event::decode_record, id::KeyPart,
    kernel::KernelEvent,
};
use futures_util::{StreamExt, stream};
use tokio::{sync::Mutex, time::Instant};

use super::listing::PageEnd;

/// How many journals are known at most: at first the first ones in the store's order, then the ones that were
/// written last. A list says if there are others.
pub(in crate::session) const KNOWN_MAX: usize = 100_000;
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
    /// Absent if it is no session, or cannot be read.
    pub(in crate::session) of: Option<(AgentName, KeyPart)>,
    pub(in crate::session) state: String,
    pub(in crate::session) is_stateless: bool,
}

/// All ends, as far as they were read.
#[derive(Debug, Default)]
pub(in crate::session) struct SessionDirectory(Mutex<KnownEnds>);

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
        // In place, so that a reader who gives up loses nothing of it.
        let is_recent = held.scanned.is_some_and(|at| at.elapsed() < SCAN_AGAIN);
        if !is_recent || !held.follow(journal).await? {
            *held = KnownEnds::scan(journal).await?;
        }
        Ok(read(&held))
    }

    /// Notes the filter fields of journals that still have the same end. Does nothing while another task
    /// reads the ends; a later list then finds the fields again.
    pub(in crate::session) fn note(&self, found: Vec<(JournalEnd, Facts)>) {
        let Ok(mut held) = self.0.try_lock() else { return };
        for (end, facts) in found {
            let known = held.ends.get_mut(&Reverse(end.at));
            if let Some(known) = known.filter(|known| known.hash == end.hash) {
                known.facts = Some(Arc::new(facts));
            }
        }
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

    /// Reads the last record of every journal.
    async fn scan(journal: &dyn Journal) -> Result<Self, StoreError> {
        let mut known = Self {
            ends: BTreeMap::new(),
            by_id: HashMap::new(),
            // The feed has all that is written meanwhile.
            upto: journal.end().await?,
            scanned: Some(Instant::now()),
            is_cut: false,
        };
        let mut after = None;
        while !known.is_cut {
            let ids = journal.entities(after, IDS).await?;
            let Some(last) = ids.last() else { break };
            after = Some(*last);
            let mut found =
                stream::iter(ids).map(|id| read(journal, id)).buffer_unordered(TAILS_AT_ONCE);
            while let Some(end) = found.next().await {
                if let Some(end) = end? {
                    known.put(end);
                }
            }
            // A store that answers at once would keep this thread to itself.
            tokio::task::yield_now().await;
        }
        Ok(known)
    }

    /// Reads the feed since the last time; `false` if it is too much to read.
    async fn follow(&mut self, journal: &dyn Journal) -> Result<bool, StoreError> {
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
                self.put(of_record(id, &record));
            }
            self.upto = page.upto;
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
