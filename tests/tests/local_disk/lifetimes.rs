//! How long bucket values live, whatever the clock does.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{Clock, SystemClock};
use clawnode_local::{LocalOptions, open};
use clawnode_proto::Timestamp;

use crate::support::{Home, NONE, Result, options};

const DAY: Duration = Duration::from_hours(24);

/// The machine's clock, set ahead by so many milliseconds.
#[derive(Debug, Default)]
struct Ahead(AtomicU64);

impl Clock for Ahead {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.0.load(Ordering::Relaxed))
    }
}

impl Ahead {
    fn jump(&self, by: Duration) {
        self.0.fetch_add(by.as_millis().try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
    }
}

fn options_by(clock: &Arc<Ahead>) -> LocalOptions {
    LocalOptions { clock: Arc::<Ahead>::clone(clock), ..options() }
}

/// A finished job's key must outlive the job: a clock that jumps must not end it.
#[tokio::test]
async fn a_clock_that_jumps_ahead_expires_nothing_before_its_time() -> Result {
    let home = Home::new()?;
    let clock = Arc::new(Ahead::default());
    let (store, control) = open(home.path(), options_by(&clock))?;
    let value = Bytes::from_static(b"closed");
    let position = store.bucket.put("week", NONE, value.clone(), Some(DAY * 7)).await?;
    let brief = Duration::from_millis(300);
    store.bucket.put("brief", NONE, value.clone(), Some(brief)).await?;

    clock.jump(DAY * 8);
    // A commit later, when what is due by the clock has been looked at.
    store.bucket.put("other", NONE, value.clone(), None).await?;
    control.checkpoint().await?;
    let found = store.bucket.get("week").await?.map(|entry| entry.position);
    assert_eq!(found, Some(position), "at once");
    assert!(store.bucket.put("week", NONE, value.clone(), None).await.is_err(), "it is there");
    // What is really over is over, and is found to be so without anybody asking.
    while store.bucket.get("brief").await?.is_some() {
        tokio::task::yield_now().await;
    }
    home.close(store).await;

    clock.jump(DAY * 8);
    for index_too in [false, true] {
        if index_too {
            std::fs::remove_dir_all(home.path().join("index"))?;
        }
        let (store, _control) = open(home.path(), options_by(&clock))?;
        let found = store.bucket.get("week").await?.map(|entry| entry.position);
        assert_eq!(found, Some(position), "after a restart");
        home.close(store).await;
    }
    // Without the note of this boot, as after a reboot, the clock is believed.
    std::fs::remove_file(home.path().join("clock"))?;
    let (store, _control) = open(home.path(), options_by(&clock))?;
    assert!(store.bucket.get("week").await?.is_none());
    home.close(store).await;
    Ok(())
}
