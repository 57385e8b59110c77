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
    days::Days,
    history,
    meter::{CountedEvent, CountedWork, Meter, gone_on},
    stopped::{CountingStopped, HEAD},
    stored::{counted_to, encoded, stored},
};

/// Records that are read at once.
const PAGE: usize = 256;
/// Sessions whose meters are remembered, up to twice as many: about 10 MB.
const METERS: usize = 10_000;

/// The counts of this process. What goes wrong ends them: what is saved is opened again.
#[derive(Debug)]
pub(super) struct Books {
    storage: Storage,
    /// All records up to here are counted.
    upto: Position,
    /// Up to here they are saved, and where the bucket has that.
    saved: (Position, Position),
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
        Ok(Self { storage, upto, saved: (upto, position), usage, work, meters, pruned: None })
    }

    pub(super) fn is_changed(&self) -> bool {
        self.upto > self.saved.0
    }

    /// Counts the next page of the feed; says whether there was one.
    pub(super) async fn count_page(&mut self) -> Result<bool, CountingStopped> {
        let page = self.storage.journal.follow(self.upto, PAGE).await?;
        let mut journals: BTreeMap<EntityId, Vec<Record>> = BTreeMap::new();
        for (entity, record) in page.records {
            journals.entry(entity).or_default().push(record);
        }
        for (entity, records) in journals {
            for (position, counted) in self.counted(entity, &records, page.upto).await? {
                self.add(position, counted).await?;
            }
        }
        let is_more = page.upto > self.upto;
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
        let Some((meter, records)) = history::read(&self.storage, id, self.upto).await? else {
            let n = records.last().map_or(0, history::last_n);
            self.meters.put(id, Meter::other(n));
            return Ok(Vec::new());
        };
        let within: Vec<Record> =
            records.into_iter().take_while(|record| record.position <= upto).collect();
        let Some((meter, counted)) = gone_on(meter, &within) else {
            debug!(%id, "a damaged journal is not counted");
            return Ok(Vec::new());
        };
        self.meters.put(id, meter);
        let is_new = |position: &Position| *position > self.upto;
        Ok(counted.into_iter().filter(|(position, _)| is_new(position)).collect())
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
        let upto = Followed(vec![self.upto]);
        self.usage.save(&self.storage, &upto).await?;
        self.work.save(&self.storage, &upto).await?;
        let position = self.saved.1;
        let position = self.storage.bucket.put(HEAD, position, encoded(&upto)?, None).await?;
        self.saved = (self.upto, position);
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
