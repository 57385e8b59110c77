//! Counts the usage of a day again from the journals, and compares it with what was counted.
//!
//! It reads and writes nothing but its answer, so it may end at any point. In memory are the rows of one day and
//! one archive of one journal.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_cluster::{Storage, StoreError};
use clawnode_proto::{
    AgentName, EntityId, Position, Timestamp,
    event::decode_record,
    usage::{AuditRow, Calls, Day, DayBounds, Followed, UsageAudit, UsageDay, UsageKey},
};
use futures_util::future::BoxFuture;

use super::{
    counted_days::key,
    history::{self, JournalRead},
    stopped::{CountingStopped, HEAD},
    stored::{counted_to, stored},
    usage_view::{of_store, wait_until_counted},
};

/// Ids of journals that are asked for at once.
const IDS: usize = 1_000;
/// How often the counts are read again, if they change in between.
const LOOKS: usize = 20;
/// The name that replaces all names.
const ALL: &str = "*";

/// A day as it is counted, and up to where.
struct CountedDay {
    upto: Position,
    day: UsageDay,
}

/// A day as the journals have it.
#[derive(Default)]
struct JournaledDay {
    day: UsageDay,
    journals: u64,
    deleted: u64,
    unreadable: u64,
}

/// Counts a day again, and compares. A difference of one token or micro-dollar is a difference.
pub fn audit(
    storage: &Storage,
    now: Timestamp,
    day: Day,
) -> BoxFuture<'_, Result<UsageAudit, StoreError>> {
    Box::pin(async move {
        wait_until_counted(storage, now).await?;
        let audited = async {
            let counted = CountedDay::read(storage, day).await?;
            let journaled = JournaledDay::read(storage, day, counted.upto).await?;
            Ok(compared(day, &counted.day, journaled))
        };
        audited.await.map_err(of_store)
    })
}

// === impl CountedDay ===

impl CountedDay {
    /// The day and how far it counts, both of one time.
    async fn read(storage: &Storage, day: Day) -> Result<Self, CountingStopped> {
        let mut before = stored::<Followed>(storage, HEAD).await?;
        for _ in 0..LOOKS {
            let (day, _) = stored::<UsageDay>(storage, &key::<UsageDay>(day)).await?;
            let after = stored::<Followed>(storage, HEAD).await?;
            if before.1 == after.1 {
                // A process that ended after it saved the day has not saved how far that is.
                let upto = counted_to(&after.0).max(counted_to(&day.upto));
                return Ok(Self { upto, day });
            }
            before = after;
        }
        Err(CountingStopped::Another)
    }
}

// === impl JournaledDay ===

impl JournaledDay {
    async fn read(storage: &Storage, day: Day, upto: Position) -> Result<Self, CountingStopped> {
        let (mut all, mut after) = (Self::default(), None);
        loop {
            let ids = storage.journal.entities(after, IDS).await?;
            let Some(last) = ids.last() else { return Ok(all) };
            after = Some(*last);
            for id in ids {
                all.add(storage, id, day, upto).await?;
                // A store that answers at once would keep this thread to itself.
                tokio::task::yield_now().await;
            }
        }
    }

    async fn add(
        &mut self,
        storage: &Storage,
        id: EntityId,
        day: Day,
        upto: Position,
    ) -> Result<(), CountingStopped> {
        if !may_have(storage, id, day).await? {
            return Ok(());
        }
        self.journals += 1;
        let of_day = &mut self.day;
        let read = history::whole(storage, id, |position, call| {
            if position <= upto && Day::of(call.at) == day {
                let calls = call.calls();
                of_day.add(call.key, calls, DayBounds::MOST);
            }
        });
        match read.await? {
            JournalRead::Whole => {}
            JournalRead::Deleted(_) => self.deleted += 1,
            JournalRead::Partly | JournalRead::Unreadable => self.unreadable += 1,
        }
        Ok(())
    }
}

/// Whether a journal may have something of a day: its last event is not older.
async fn may_have(storage: &Storage, id: EntityId, day: Day) -> Result<bool, CountingStopped> {
    let last = match storage.journal.tail(id).await {
        // It is read as a whole, and then it is known to be damaged.
        Err(StoreError::Corrupt { .. }) => return Ok(true),
        last => last?,
    };
    let Some(last) = last else { return Ok(false) };
    let events = decode_record(&last.bytes).unwrap_or_default();
    Ok(events.last().is_none_or(|last| Day::of(last.head.ts) >= day))
}

fn compared(day: Day, counted: &UsageDay, journaled: JournaledDay) -> UsageAudit {
    let JournaledDay { day: again, journals, deleted, unreadable } = journaled;
    let bounds = DayBounds::MOST;
    let rows = if counted.is_full(bounds) || again.is_full(bounds) {
        // Which keys had no room of their own depends on the order of calls.
        differing(&by_agent(counted), &by_agent(&again))
    } else {
        differing(&by_name(counted), &by_name(&again))
    };
    let may_be_gone = deleted > 0 || unreadable > 0;
    let is_explained = |row: &AuditRow| may_be_gone && row.counted.has_all_of(&row.journaled);
    let (unproven, differences) = rows.into_iter().partition(is_explained);
    UsageAudit {
        day: day.to_string(),
        counted: total(counted),
        journaled: total(&again),
        differences,
        unproven,
        journals,
        deleted,
        unreadable,
    }
}

fn total(day: &UsageDay) -> Calls {
    day.rows.iter().fold(Calls::default(), |sum, (_, calls)| sum.plus(*calls))
}

/// The agent, the user, the model and the model that answered.
type RowName = (AgentName, String, String, String);

fn by_name(day: &UsageDay) -> BTreeMap<RowName, Calls> {
    let named = |(key, calls): &(UsageKey, Calls)| {
        let key = key.clone();
        ((key.agent, key.user, key.model.to_string(), key.answered), *calls)
    };
    day.rows.iter().map(named).collect()
}

fn by_agent(day: &UsageDay) -> BTreeMap<RowName, Calls> {
    let mut sums: BTreeMap<RowName, Calls> = BTreeMap::new();
    for (key, calls) in &day.rows {
        let all = || ALL.to_owned();
        let sum = sums.entry((key.agent.clone(), all(), all(), all())).or_default();
        *sum = sum.plus(*calls);
    }
    sums
}

fn differing(
    counted: &BTreeMap<RowName, Calls>,
    journaled: &BTreeMap<RowName, Calls>,
) -> Vec<AuditRow> {
    let names: BTreeSet<&RowName> = counted.keys().chain(journaled.keys()).collect();
    let calls = |rows: &BTreeMap<RowName, Calls>, name| rows.get(name).copied().unwrap_or_default();
    let rows = names.into_iter().map(|name| {
        let (agent, user, model, answered) = name.clone();
        let (counted, journaled) = (calls(counted, name), calls(journaled, name));
        AuditRow { agent, user, model, answered, counted, journaled }
    });
    rows.filter(|row| row.counted != row.journaled).collect()
}
