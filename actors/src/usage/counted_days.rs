//! The days that are counted: in memory, and as saved. Each knows up to where it counts, so what is followed again adds
//! nothing.

use std::collections::{BTreeMap, btree_map::Entry};

use clawnode_cluster::Storage;
use clawnode_proto::{
    Position,
    agent_work::WorkDay,
    limits::USAGE_DAYS,
    usage::{Day, Followed, UsageDay},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    stopped::{CountingStopped, DAYS, WORK},
    stored::{counted_to, decoded, encoded, stored},
};

/// Days that stay in memory once they are saved: those that still change.
const OPEN: usize = 2;

/// A day of counts, as stored.
pub(super) trait StoredDay: Default + Serialize + DeserializeOwned + Send {
    /// What its keys begin with; the day follows.
    const PREFIX: &'static str;

    /// How far the feed is counted in it.
    fn upto(&mut self) -> &mut Followed;
}

/// Days of one kind.
#[derive(Debug)]
pub(super) struct Days<T>(BTreeMap<Day, OpenDay<T>>);

/// A day, as it is counted.
#[derive(Debug)]
struct OpenDay<T> {
    day: T,
    /// Where the bucket has it; 0 if it does not.
    position: Position,
    is_changed: bool,
}

// === impl StoredDay ===

impl StoredDay for UsageDay {
    const PREFIX: &'static str = DAYS;

    fn upto(&mut self) -> &mut Followed {
        &mut self.upto
    }
}

impl StoredDay for WorkDay {
    const PREFIX: &'static str = WORK;

    fn upto(&mut self) -> &mut Followed {
        &mut self.upto
    }
}

// === impl Days ===

impl<T> Default for Days<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: StoredDay> Days<T> {
    /// The day to which what happened at this position is to be added. Nothing, if it counts that already: a process that
    /// ended between saving the day and saving how far it was has counted it.
    pub(super) async fn uncounted(
        &mut self,
        storage: &Storage,
        day: Day,
        position: Position,
    ) -> Result<Option<&mut T>, CountingStopped> {
        let open = match self.0.entry(day) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let (day, position) = stored(storage, &key::<T>(day)).await?;
                place.insert(OpenDay { day, position, is_changed: false })
            }
        };
        if position <= counted_to(open.day.upto()) {
            return Ok(None);
        }
        open.is_changed = true;
        Ok(Some(&mut open.day))
    }

    /// Saves the days that have changed.
    pub(super) async fn save(
        &mut self,
        storage: &Storage,
        upto: &Followed,
    ) -> Result<(), CountingStopped> {
        for (day, open) in self.0.iter_mut().filter(|(_, open)| open.is_changed) {
            open.day.upto().clone_from(upto);
            let (key, bytes) = (key::<T>(*day), encoded(&open.day)?);
            let put = storage.bucket.put(&key, open.position, bytes, None);
            (open.position, open.is_changed) = (put.await?, false);
        }
        Ok(())
    }

    /// Forgets all but the newest, once all are saved.
    pub(super) fn keep_newest(&mut self) {
        while self.0.len() > OPEN {
            self.0.pop_first();
        }
    }

    /// Removes days that are too old. A clock that is far ahead removes none: the newest day in which something was counted
    /// counts, if it is older.
    pub(super) async fn prune(
        &mut self,
        storage: &Storage,
        today: Day,
    ) -> Result<(), CountingStopped> {
        let stored = storage.bucket.list(T::PREFIX).await?;
        for (name, entry) in &stored {
            decoded::<T>(name, &entry.value)?;
        }
        let day = |name: &str| -> Option<Day> { name.strip_prefix(T::PREFIX)?.parse().ok() };
        let newest = stored.iter().filter_map(|(name, _)| day(name)).max();
        let Some(newest) = newest.map(|newest| newest.min(today)) else { return Ok(()) };
        let oldest = Day(newest.0.saturating_sub(USAGE_DAYS - 1));
        for (name, entry) in stored {
            if name < key::<T>(oldest) {
                storage.bucket.delete(&name, entry.position).await?;
            }
        }
        self.0.retain(|day, _| *day >= oldest);
        Ok(())
    }
}

/// Where a day is stored.
pub(super) fn key<T: StoredDay>(day: Day) -> String {
    format!("{}{day}", T::PREFIX)
}

/// Visits the saved days of one kind by their names, the oldest first.
pub(super) async fn each_day<T: StoredDay>(
    storage: &Storage,
    since: Option<Day>,
    mut visit: impl FnMut(&str, T),
) -> Result<(), CountingStopped> {
    let first = since.map(key::<T>);
    for (key, entry) in storage.bucket.list(T::PREFIX).await? {
        if first.as_ref().is_none_or(|first| key >= *first) {
            visit(key.strip_prefix(T::PREFIX).unwrap_or(&key), decoded(&key, &entry.value)?);
        }
    }
    Ok(())
}
