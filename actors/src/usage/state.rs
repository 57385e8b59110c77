//! What is counted so far, and how far.

use std::collections::BTreeMap;

use clawnode_cluster::{Record, Storage};
use clawnode_proto::{
    EntityId, Position, Timestamp,
    agent_work::{WorkBounds, WorkDay},
    usage::{Day, DayBounds, Followed, UsageDay},
};
use tracing::{debug, warn};

use clawnode_kernel::recent::RecentEntities;

use super::{
    ahead::SnapshotsAhead,
    counted_days::Days,
    history,
    session_usage::{CountedEvent, CountedWork, Meter, gone_on},
    stopped::{CountingStopped, HEAD},
    stored::{counted_to, encoded, stored},
};

/// Records that are read at once.
const PAGE: usize = 256;
/// Pages that are counted at most before they are saved: about a million records.
const PAGES: usize = 4_096;
/// Sessions whose meters are remembered, up to twice as many: about 10 MB.
const METERS: usize = 10_000;

/// The counts of this process. What goes wrong ends them: what is saved is opened again.
///
/// A page of the feed lacks what a snapshot has replaced before the page was read, and the snapshot may be many pages
/// behind it. So between two saves, what a snapshot replaced is counted when the snapshot is met, back to what is saved;
/// and before a save, snapshots are looked for up to the end of the feed. Each record up to the saved position is then
/// counted, and none behind it.
#[derive(Debug)]
pub(super) struct Books {
    storage: Storage,
    /// The feed was followed up to here.
    upto: Position,
    /// Records that are read at once.
    page: usize,
    /// Pages that were counted since the last save.
    pages: usize,
    /// Up to here all is counted and saved, and where the bucket has that.
    saved: (Position, Position),
    /// The last record of each journal that is counted and not saved: one for each record of [`PAGES`] at most.
    unsaved: BTreeMap<EntityId, Position>,
    /// Snapshots that are still to be followed. Each save looks only at what is new of the feed.
    ahead: SnapshotsAhead,
    /// What model calls used.
    usage: Days<UsageDay>,
    /// What agents did.
    work: Days<WorkDay>,
    meters: RecentEntities<Meter>,
    /// Up to which day old ones were removed.
    pruned: Option<Day>,
}

// === impl Books ===

impl Books {
    /// Goes on from what is saved.
    pub(super) async fn open(storage: Storage) -> Result<Self, CountingStopped> {
        let (followed, position) = stored::<Followed>(&storage, HEAD).await?;
        let upto = counted_to(&followed);
        let end = storage.journal.end().await?;
        if upto > end {
            warn!(counted = %upto, stored = %end, "the counts of model calls are newer than the journals");
        }
        let meters = RecentEntities::new(METERS);
        let (usage, work) = (Days::default(), Days::default());
        Ok(Self {
            storage,
            upto,
            page: PAGE,
            pages: 0,
            saved: (upto, position),
            unsaved: BTreeMap::new(),
            ahead: SnapshotsAhead::default(),
            usage,
            work,
            meters,
            pruned: None,
        })
    }

    /// The same, with pages of another size.
    #[cfg(test)]
    pub(super) fn set_page(&mut self, records: usize) {
        self.page = records;
    }

    /// Whether so much is counted that it has to be saved on the way.
    pub(super) const fn is_far(&self) -> bool {
        self.pages >= PAGES
    }

    pub(super) fn is_changed(&self) -> bool {
        self.upto > self.saved.0
    }

    /// Counts up to where the feed ends now, so many pages at most; says whether there is more.
    pub(super) async fn count_pages(&mut self, most: usize) -> Result<bool, CountingStopped> {
        let end = self.storage.journal.end().await?;
        for _ in 0..most {
            if self.upto >= end || !self.count_page().await? {
                return Ok(false);
            }
        }
        Ok(self.upto < end)
    }

    /// Counts the next page of the feed; says whether there was one.
    pub(super) async fn count_page(&mut self) -> Result<bool, CountingStopped> {
        let page = self.storage.journal.follow(self.upto, self.page).await?;
        let mut journals: BTreeMap<EntityId, Vec<Record>> = BTreeMap::new();
        for (entity, record) in page.records {
            journals.entry(entity).or_default().push(record);
        }
        for (entity, records) in journals {
            let counted = self.counted(entity, &records, page.upto).await?;
            self.add_all(entity, counted).await?;
            if let Some(last) = records.last().map(|record| record.position) {
                // What a snapshot replaced while the page was read is behind its last record.
                let counted = self.unsaved.entry(entity).or_insert(last);
                *counted = last.max(*counted);
            }
        }
        let is_more = page.upto > self.upto;
        self.pages += usize::from(is_more);
        self.upto = page.upto;
        Ok(is_more)
    }

    /// What is to be counted of one journal, behind what is counted and up to the end of the page.
    async fn counted(
        &mut self,
        id: EntityId,
        records: &[Record],
        upto: Position,
    ) -> Result<Vec<(Position, CountedEvent)>, CountingStopped> {
        let meter = self.meters.take(id).unwrap_or_default();
        if let Some((meter, counted)) = gone_on(meter, records) {
            self.meters.put(id, meter);
            return Ok(counted);
        }
        // It was not followed lately, or a snapshot has replaced records before they were followed.
        let Some(counted) = self.replaced(id, upto).await? else {
            let n = records.last().map_or(0, history::last_n);
            self.meters.put(id, Meter::other(n));
            return Ok(Vec::new());
        };
        Ok(counted)
    }

    /// What is to be counted of one journal up to a position, also what snapshots have replaced. None, if it has no calls
    /// or cannot be read.
    async fn replaced(
        &mut self,
        id: EntityId,
        upto: Position,
    ) -> Result<Option<Vec<(Position, CountedEvent)>>, CountingStopped> {
        let counted = self.unsaved.get(&id).copied().unwrap_or(self.saved.0);
        let Some((meter, mut within)) = history::read(&self.storage, id, counted).await? else {
            self.ahead.is_counted(id, None);
            return Ok(None);
        };
        let next = within.iter().position(|record| record.position > upto);
        let later = within.split_off(next.unwrap_or(within.len()));
        self.ahead.is_counted(id, later.first().map(|next| next.position));
        let Some((meter, events)) = gone_on(meter, &within) else {
            debug!(%id, "a damaged journal is not counted");
            return Ok(Some(Vec::new()));
        };
        self.meters.put(id, meter);
        Ok(Some(events.into_iter().filter(|(position, _)| *position > counted).collect()))
    }

    /// Counts what was missing in the pages so far, because a snapshot that is still to be followed has replaced it.
    async fn count_replaced(&mut self) -> Result<(), CountingStopped> {
        self.ahead.look(&self.storage, self.upto, self.page).await?;
        for id in self.ahead.uncounted(self.upto) {
            let counted = self.replaced(id, self.upto).await?;
            self.add_all(id, counted.unwrap_or_default()).await?;
        }
        Ok(())
    }

    async fn add_all(
        &mut self,
        id: EntityId,
        counted: Vec<(Position, CountedEvent)>,
    ) -> Result<(), CountingStopped> {
        for (position, counted) in counted {
            self.add(position, counted).await?;
            self.unsaved.insert(id, position);
        }
        Ok(())
    }

    async fn add(
        &mut self,
        position: Position,
        counted: CountedEvent,
    ) -> Result<(), CountingStopped> {
        let storage = &self.storage;
        match counted {
            CountedEvent::Call(call) => {
                let day = self.usage.uncounted(storage, Day::of(call.at), position).await?;
                let Some(day) = day else { return Ok(()) };
                let calls = call.calls();
                day.add(call.key, calls, DayBounds::MOST);
            }
            CountedEvent::Work(CountedWork { at, agent, work }) => {
                let day = self.work.uncounted(storage, Day::of(at), position).await?;
                let Some(day) = day else { return Ok(()) };
                day.add(&agent, &work, WorkBounds::MOST);
            }
        }
        Ok(())
    }

    /// Saves the days, and then how far they count.
    pub(super) async fn save(&mut self, now: Timestamp) -> Result<(), CountingStopped> {
        self.count_replaced().await?;
        let upto = Followed(vec![self.upto]);
        self.usage.save(&self.storage, &upto).await?;
        self.work.save(&self.storage, &upto).await?;
        let position = self.saved.1;
        let position = self.storage.bucket.put(HEAD, position, encoded(&upto)?, None).await?;
        self.saved = (self.upto, position);
        self.unsaved.clear();
        self.pages = 0;
        self.usage.keep_newest();
        self.work.keep_newest();
        self.prune(Day::of(now)).await
    }

    /// Removes days that are too old, once a day.
    async fn prune(&mut self, today: Day) -> Result<(), CountingStopped> {
        if self.pruned.replace(today) == Some(today) {
            return Ok(());
        }
        self.usage.prune(&self.storage, today).await?;
        self.work.prune(&self.storage, today).await
    }
}
