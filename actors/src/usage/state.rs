//! What is counted so far: in memory, and as saved.

use std::collections::BTreeMap;

use bytes::Bytes;
use clawnode_cluster::{Record, Storage};
use clawnode_proto::{
    EntityId, Position, Timestamp, codec,
    limits::USAGE_DAYS,
    usage::{Day, DayBounds, Followed, UsageDay},
};
use serde::de::DeserializeOwned;
use tracing::{debug, warn};

use clawnode_kernel::recent::RecentEntities;

use super::{
    history,
    meter::{CountedCall, Meter, gone_on},
    stopped::{CountingStopped, DAYS, HEAD},
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
    days: BTreeMap<Day, OpenDay>,
    meters: RecentEntities<Meter>,
    /// Up to which day old ones were removed.
    pruned: Option<Day>,
}

/// A day, as it is counted.
#[derive(Debug, Default)]
struct OpenDay {
    day: UsageDay,
    /// Where the bucket has it; 0 if it does not.
    position: Position,
    is_changed: bool,
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
        let days = BTreeMap::new();
        Ok(Self { storage, upto, saved: (upto, position), days, meters, pruned: None })
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
    ) -> Result<Vec<(Position, CountedCall)>, CountingStopped> {
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
            debug!(%id, "the model calls of a damaged journal are not counted");
            return Ok(Vec::new());
        };
        self.meters.put(id, meter);
        let is_new = |position: &Position| *position > self.upto;
        Ok(counted.into_iter().filter(|(position, _)| is_new(position)).collect())
    }

    async fn add(
        &mut self,
        position: Position,
        counted: CountedCall,
    ) -> Result<(), CountingStopped> {
        let day = Day::of(counted.at);
        if !self.days.contains_key(&day) {
            let (saved, position) = stored(&self.storage, &key(day)).await?;
            self.days.insert(day, OpenDay { day: saved, position, is_changed: false });
        }
        let open = self.days.entry(day).or_default();
        // A process that ended between saving the day and saving how far it was has counted it.
        if position > counted_to(&open.day.upto) {
            let calls = counted.calls();
            open.day.add(counted.key, calls, DayBounds::MOST);
            open.is_changed = true;
        }
        Ok(())
    }

    /// Saves the days, and then how far they count.
    pub(super) async fn save(&mut self, now: Timestamp) -> Result<(), CountingStopped> {
        let upto = Followed(vec![self.upto]);
        for (day, open) in &mut self.days {
            if !open.is_changed {
                continue;
            }
            open.day.upto.clone_from(&upto);
            let bytes = encoded(&open.day)?;
            let key = key(*day);
            let put = self.storage.bucket.put(&key, open.position, bytes, None);
            (open.position, open.is_changed) = (put.await?, false);
        }
        let position = self.saved.1;
        let position = self.storage.bucket.put(HEAD, position, encoded(&upto)?, None).await?;
        self.saved = (self.upto, position);
        // The last two are those that still change.
        while self.days.len() > 2 {
            self.days.pop_first();
        }
        self.prune(now).await
    }

    /// Removes days that are too old, once a day. A clock that is far ahead removes none: the newest day
    /// in which something was counted counts, if it is older.
    async fn prune(&mut self, now: Timestamp) -> Result<(), CountingStopped> {
        let today = Day::of(now);
        if self.pruned.replace(today) == Some(today) {
            return Ok(());
        }
        let stored = self.storage.bucket.list(DAYS).await?;
        for (name, entry) in &stored {
            decoded::<UsageDay>(name, &entry.value)?;
        }
        // Names are in the order of days.
        let newest = stored.last().map(|(name, _)| name.clone()).unwrap_or_default();
        let is_newest = |ago: &u64| key(Day(today.0.saturating_sub(*ago))) <= newest;
        let ago = (0..=today.0).find(is_newest).unwrap_or_default();
        let oldest = Day(today.0.saturating_sub(ago).saturating_sub(USAGE_DAYS - 1));
        for (name, entry) in stored {
            if name < key(oldest) {
                self.storage.bucket.delete(&name, entry.position).await?;
            }
        }
        self.days.retain(|day, _| *day >= oldest);
        Ok(())
    }
}

pub(super) fn key(day: Day) -> String {
    format!("{DAYS}{day}")
}

pub(super) fn counted_to(followed: &Followed) -> Position {
    followed.0.first().copied().unwrap_or_default()
}

/// A value of the bucket and where it is; the default at 0 if there is none.
pub(super) async fn stored<T: DeserializeOwned + Default>(
    storage: &Storage,
    key: &str,
) -> Result<(T, Position), CountingStopped> {
    let Some(entry) = storage.bucket.get(key).await? else {
        return Ok((T::default(), Position(0)));
    };
    Ok((decoded(key, &entry.value)?, entry.position))
}

pub(super) fn decoded<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T, CountingStopped> {
    codec::decode(bytes).map_err(|failure| CountingStopped::Unreadable {
        key: key.to_owned(),
        detail: failure.to_string(),
    })
}

/// Removes a count, and has the feed followed from its beginning: every other count knows up to where it
/// counts already.
pub(super) async fn forget(storage: &Storage, key: &str) -> Result<(), CountingStopped> {
    for key in [key, HEAD] {
        if let Some(entry) = storage.bucket.get(key).await? {
            storage.bucket.delete(key, entry.position).await?;
        }
    }
    Ok(())
}

fn encoded(value: &impl serde::Serialize) -> Result<Bytes, CountingStopped> {
    codec::encode(value).map(Bytes::from).map_err(CountingStopped::Unwritable)
}
