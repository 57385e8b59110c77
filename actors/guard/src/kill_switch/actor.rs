//! Keeps a gate's view at what the bucket has.

use std::sync::Arc;

use clawnode_cluster::{Bucket, BucketEntry, StoreError};
use clawnode_proto::{
    Position, codec, kill_switch::SwitchRecord, kill_switch::SwitchScope, subject::SWITCH_KEYS,
};
use futures_util::StreamExt;
use tracing::{error, warn};

use super::SwitchGate;

/// Reads all records: before a process takes work, it must have read them.
pub async fn read(switch_gate: &SwitchGate, bucket: &dyn Bucket) -> Result<(), StoreError> {
    for (key, entry) in bucket.list(SWITCH_KEYS).await? {
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
    // A record that cannot be read and has no scope stops everything, until it is gone.
    let strange =
        if *scope == SwitchScope::All { switch_gate.switches().strange() } else { Vec::new() };
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
    let mut changes = match bucket.watch(SWITCH_KEYS).await {
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

/// Takes in what is under a key. What cannot be read may be a stop, so it is one (KILL-4).
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
