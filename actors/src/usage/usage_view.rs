//! What the API shows of usage: the saved days, summed.

use std::{collections::BTreeMap, time::Duration};

use clawnode_cluster::{Storage, StoreError};
use clawnode_proto::{
    Timestamp,
    event::decode_record,
    usage::{Calls, Day, Followed, UsageBy, UsageDay, UsageKey, UsageRow, UsageView},
};
use futures_util::future::BoxFuture;
use tokio::time::Instant;

use super::{
    counted_days::each_day,
    stopped::{CountingStopped, HEAD},
    stored::{counted_to, stored},
};

/// How long an answer waits for calls that are not counted yet, and how often it looks. They are counted
/// within a second, unless calls end all the time.
const FRESH: (Duration, Duration) = (Duration::from_secs(2), Duration::from_millis(100));

/// Sums what is counted, and says how far that is behind.
pub fn show(
    storage: &Storage,
    now: Timestamp,
    by: UsageBy,
    since: Option<Day>,
) -> BoxFuture<'_, Result<UsageView, StoreError>> {
    Box::pin(async move {
        wait_until_counted(storage, now).await?;
        summed(storage, now, by, since).await.map_err(of_store)
    })
}

/// Waits a moment for calls that are not counted yet.
pub(super) async fn wait_until_counted(
    storage: &Storage,
    now: Timestamp,
) -> Result<(), StoreError> {
    let begun = Instant::now();
    while begun.elapsed() < FRESH.0 && behind(storage, now).await? > 0 {
        tokio::time::sleep(FRESH.1).await;
    }
    Ok(())
}

/// How old the oldest event is that is not counted yet, in milliseconds (1 at least); 0 if all are counted.
pub fn behind(storage: &Storage, now: Timestamp) -> BoxFuture<'_, Result<u64, StoreError>> {
    Box::pin(async move {
        let behind = async {
            let (followed, _) = stored::<Followed>(storage, HEAD).await?;
            Ok(behind_since(storage, now, &followed).await?)
        };
        behind.await.map_err(of_store)
    })
}

pub(super) async fn behind_since(
    storage: &Storage,
    now: Timestamp,
    followed: &Followed,
) -> Result<u64, StoreError> {
    let left = storage.journal.follow(counted_to(followed), 1).await?;
    let Some((_, record)) = left.records.first() else { return Ok(0) };
    let events = decode_record(&record.bytes).unwrap_or_default();
    let age = events.first().map_or(0, |event| now.since(event.head.ts).as_millis());
    Ok(u64::try_from(age).unwrap_or(u64::MAX).max(1))
}

pub(super) fn of_store(stopped: CountingStopped) -> StoreError {
    match stopped {
        CountingStopped::Store(failure) => failure,
        other => StoreError::Refused { store: "usage", detail: other.to_string() },
    }
}

async fn summed(
    storage: &Storage,
    now: Timestamp,
    by: UsageBy,
    since: Option<Day>,
) -> Result<UsageView, CountingStopped> {
    let mut sums: BTreeMap<String, Calls> = BTreeMap::new();
    // Before the days: what is counted meanwhile is shown as counted, or as still to be counted.
    let (followed, _) = stored::<Followed>(storage, HEAD).await?;
    each_day(storage, since, |day, stored: UsageDay| {
        for (row, calls) in stored.rows {
            let sum = sums.entry(name(by, day, row)).or_default();
            *sum = sum.plus(calls);
        }
    })
    .await?;
    let behind_ms = behind_since(storage, now, &followed).await?;
    Ok(UsageView {
        by,
        total: sums.values().fold(Calls::default(), |sum, calls| sum.plus(*calls)),
        rows: sums.into_iter().map(|(name, calls)| UsageRow { name, calls }).collect(),
        behind_ms,
    })
}

fn name(by: UsageBy, day: &str, row: UsageKey) -> String {
    match by {
        UsageBy::Day => day.to_owned(),
        UsageBy::Agent => row.agent.to_string(),
        UsageBy::User => row.user,
        UsageBy::Model => row.model.to_string(),
    }
}
