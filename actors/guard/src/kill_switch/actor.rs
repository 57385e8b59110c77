//! Keeps a gate's view at what the bucket has, and knows when it cannot.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::{Bucket, BucketEntry, StoreError};
use clawnode_proto::{
    Position, codec, kill_switch::SwitchRecord, kill_switch::SwitchScope, subject::LATCH_KEYS,
};
use futures_util::StreamExt;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::{debug, error, warn};

use super::SwitchGate;

/// Looks at the store within the time after which a process is out of touch: two of them may fail.
const LOOKS: u32 = 4;
/// How soon the store is looked for again while it is out of reach.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Reads all records: before a process takes work, it must have read them.
pub async fn read(switch_gate: &SwitchGate, bucket: &dyn Bucket) -> Result<(), StoreError> {
    for (key, entry) in bucket.list(LATCH_KEYS).await? {
        heard(switch_gate, &key, &entry);
    }
    Ok(())
}

/// Reads the record of one scope now, after news of a change; returns its position.
pub async fn look(
    switch_gate: &SwitchGate,
    bucket: &dyn Bucket,
    scope: &SwitchScope,
) -> Result<Position, StoreError> {
    // What cannot be read and is of no scope stops everything, until it is gone.
    let strange =
        if *scope == SwitchScope::All { switch_gate.latches().strange() } else { Vec::new() };
    for key in strange {
        match bucket.get(&key).await? {
            Some(entry) => heard(switch_gate, &key, &entry),
            None => switch_gate.forget(&key),
        }
    }
    let key = scope.key();
    match bucket.get(&key).await? {
        Some(entry) => {
            heard(switch_gate, &key, &entry);
            Ok(entry.position)
        }
        None => Ok(Position(0)),
    }
}

/// Follows the records until the store is closed.
pub async fn follow(switch_gate: SwitchGate, bucket: Arc<dyn Bucket>) {
    let mut changes = match bucket.watch(LATCH_KEYS).await {
        Ok(changes) => changes,
        Err(error) => {
            warn!(%error, "cannot follow the kill switches; trying again");
            return;
        }
    };
    while let Some(change) = changes.next().await {
        match &change.entry {
            Some(entry) => heard(&switch_gate, &change.key, entry),
            // A record that is gone was cleared long ago; one that was removed past this program stays.
            None => switch_gate.forget(&change.key),
        }
    }
}

/// Takes in what is under a key. What cannot be read may be a stop, so it is one (LATCH-4).
fn heard(switch_gate: &SwitchGate, key: &str, entry: &BucketEntry) {
    match codec::decode::<SwitchRecord>(&entry.value) {
        Ok(record) => switch_gate.take(entry.position, record),
        Err(failure) => {
            if switch_gate.take_unreadable(key, entry.position) {
                error!(key, %failure, "cannot read a kill switch");
            }
        }
    }
}

/// Asks the store again and again, and keeps the gate shut while the store has not answered for
/// `lost_after`: a process that is out of touch would not hear of a kill switch.
pub async fn contact(switch_gate: SwitchGate, bucket: Arc<dyn Bucket>, lost_after: Duration) {
    let every = lost_after / LOOKS;
    let mut last = Instant::now();
    loop {
        let asked = Instant::now();
        let limit =
            if switch_gate.latches().is_out_of_touch() { asked + every } else { last + lost_after };
        let limit = limit.min(asked + every * 2);
        let answer =
            timeout_at(limit, look(&switch_gate, bucket.as_ref(), &SwitchScope::All)).await;
        let next = match answer {
            Ok(Ok(_)) => {
                last = asked;
                switch_gate.touch(false);
                asked + every
            }
            Ok(Err(StoreError::Refused { detail, .. })) => {
                error!(detail, "cannot read the kill switches");
                Instant::now() + LOOK_AGAIN
            }
            Ok(Err(failure)) => {
                debug!(%failure, "the store does not say what is stopped");
                Instant::now() + LOOK_AGAIN
            }
            Err(_elapsed) => Instant::now() + LOOK_AGAIN,
        };
        if last.elapsed() >= lost_after {
            switch_gate.touch(true);
        }
        let due = if switch_gate.latches().is_out_of_touch() {
            next
        } else {
            next.min(last + lost_after)
        };
        sleep_until(due).await;
    }
}
