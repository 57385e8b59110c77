//! Changing what is stopped: by compare-and-set, so that an operator clears what was shown.

use bytes::Bytes;
use clawnode_cluster::{Bucket, BucketError, StoreError};
use clawnode_proto::{
    Position, SwitchId, Timestamp, codec,
    kill_switch::{CLEARED_TTL, KillSwitch, SwitchRecord, SwitchScope},
    limits::SWITCHES_MAX,
    subject::SWITCH_KEYS,
};

use super::{SwitchGate, state::unreadable};

/// Tries at a record that others change at the same time.
const TRIES: u32 = 16;

/// Why a kill switch was not changed.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// There is no room for a further scope.
    #[error("there are records of {SWITCHES_MAX} scopes already, no more are kept")]
    Full,
    /// It was cleared meanwhile, or never was.
    #[error("kill switch `{0}` is not on")]
    NotOn(SwitchId),
    /// Others change it all the time.
    #[error("kill switch `{0}` is being changed by another operator")]
    Busy(SwitchId),
    /// The store failed; whether the change was stored is not known.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Stops a scope. Returns the position of the record, and the kill switch that is on from now on:
/// an earlier one, if it was on already.
pub async fn set(
    switch_gate: &SwitchGate,
    bucket: &dyn Bucket,
    switch: KillSwitch,
) -> Result<(Position, KillSwitch), SwitchError> {
    let key = switch.scope.key();
    let record = SwitchRecord::Set { switch: switch.clone() };
    let bytes = encode(&record)?;
    for _ in 0..TRIES {
        let expected = match bucket.get(&key).await? {
            // Everything can always be stopped.
            None if switch.scope != SwitchScope::All
                && switch_gate.switches().len() >= SWITCHES_MAX =>
            {
                return Err(SwitchError::Full);
            }
            None => Position(0),
            Some(entry) => match codec::decode(&entry.value) {
                Ok(known @ SwitchRecord::Set { .. }) => {
                    let switch = known.switch().clone();
                    switch_gate.take(entry.position, known);
                    return Ok((entry.position, switch));
                }
                // A record that cannot be read is replaced: to stop is more important than to know.
                Ok(SwitchRecord::Cleared { .. }) | Err(_) => entry.position,
            },
        };
        match bucket.put(&key, expected, bytes.clone(), None).await {
            Ok(position) => {
                switch_gate.take(position, record);
                return Ok((position, switch));
            }
            // An own put whose answer was lost is found by the next read.
            Err(BucketError::Conflict { .. }) => {}
            Err(BucketError::Store(failure)) => return Err(failure.into()),
        }
    }
    Err(SwitchError::Busy(switch.id))
}

/// Clears a kill switch, and no later one of its scope. Returns the position of the record, and the
/// switch. A record that cannot be read is replaced, or removed if no scope has its key.
pub async fn clear(
    switch_gate: &SwitchGate,
    bucket: &dyn Bucket,
    id: SwitchId,
    by: String,
    at: Timestamp,
) -> Result<(Position, KillSwitch), SwitchError> {
    let found = bucket.list(SWITCH_KEYS).await?.into_iter().find_map(|(key, entry)| {
        let switch = match codec::decode::<SwitchRecord>(&entry.value) {
            Ok(record) => record.is_on().then(|| record.switch().clone())?,
            Err(_) => unreadable(&key, entry.position),
        };
        (switch.id == id).then_some((key, entry.position, switch))
    });
    let Some((key, expected, switch)) = found else { return Err(SwitchError::NotOn(id)) };
    if SwitchScope::of_key(&key).is_none() {
        return match bucket.delete(&key, expected).await {
            Ok(()) => {
                switch_gate.forget(&key);
                // No process has to have seen a later record.
                Ok((Position(0), switch))
            }
            Err(BucketError::Conflict { .. }) => Err(SwitchError::Busy(id)),
            Err(BucketError::Store(failure)) => Err(failure.into()),
        };
    }
    let record = SwitchRecord::Cleared { switch: switch.clone(), by, at };
    match bucket.put(&key, expected, encode(&record)?, Some(CLEARED_TTL)).await {
        Ok(position) => {
            switch_gate.take(position, record);
            Ok((position, switch))
        }
        Err(BucketError::Conflict { .. }) => Err(SwitchError::Busy(id)),
        Err(BucketError::Store(failure)) => Err(failure.into()),
    }
}

fn encode(record: &SwitchRecord) -> Result<Bytes, StoreError> {
    codec::encode(record)
        .map(Bytes::from)
        .map_err(|error| StoreError::Refused { store: "bucket", detail: error.to_string() })
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::kill_switch::{SwitchView, contact, follow, look, read};
    use clawnode_cluster::{Storage, SystemClock};
    use clawnode_local as local;

    fn open_storage(dir: &std::path::Path) -> Storage {
        let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::new(SystemClock));
        local::open(dir, options).unwrap().0
    }

    fn switch(id: u128) -> KillSwitch {
        let (scope, by) = (SwitchScope::All, "token at a".to_owned());
        KillSwitch { id: SwitchId::from_u128(id), scope, by, at: Timestamp(1), why: String::new() }
    }

    #[tokio::test]
    async fn a_switch_is_cleared_as_it_was_shown_and_seen_by_every_gate() {
        let dir = tempfile::tempdir().unwrap();
        let storage = open_storage(dir.path());
        let bucket = Arc::clone(&storage.bucket);
        let (here, there) = (SwitchGate::default(), SwitchGate::default());
        let following = tokio::spawn(follow(there.clone(), Arc::clone(&bucket)));
        let by = || "token at b".to_owned();

        let (_, first) = set(&here, bucket.as_ref(), switch(1)).await.unwrap();
        let (_, again) = set(&here, bucket.as_ref(), switch(2)).await.unwrap();
        assert_eq!(first, again, "it is on already");
        let refused =
            clear(&here, bucket.as_ref(), SwitchId::from_u128(2), by(), Timestamp(2)).await;
        assert!(matches!(refused, Err(SwitchError::NotOn(_))), "{refused:?}");
        there.view().wait_for(|view| view.all().is_some()).await.unwrap();
        clear(&here, bucket.as_ref(), first.id, by(), Timestamp(2)).await.unwrap();
        there.view().wait_for(|view| view.all().is_none()).await.unwrap();

        // Another one of the same scope is not the one that was shown.
        let (position, _) = set(&here, bucket.as_ref(), switch(3)).await.unwrap();
        assert!(clear(&here, bucket.as_ref(), first.id, by(), Timestamp(2)).await.is_err());
        there.view().wait_for(|view| view.all().is_some()).await.unwrap();
        let late = SwitchGate::default();
        read(&late, bucket.as_ref()).await.unwrap();
        assert_eq!(late.switches().all().unwrap().id, SwitchId::from_u128(3));
        assert_eq!(look(&late, bucket.as_ref(), &SwitchScope::All).await.unwrap(), position);
        following.abort();
        storage.health.close().await;
    }

    #[tokio::test]
    async fn kill_4_what_cannot_be_read_keeps_nobody_from_starting_and_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let storage = open_storage(dir.path());
        let bucket = Arc::clone(&storage.bucket);
        let (here, there) = (SwitchGate::default(), SwitchGate::default());
        let following = tokio::spawn(follow(there.clone(), Arc::clone(&bucket)));
        set(&here, bucket.as_ref(), switch(1)).await.unwrap();
        let words = Bytes::from_static(br#"{"type":"io.nats.jetstream.api.v1.x","error":{}}"#);
        let by = || "token at b".to_owned();
        for (key, scope) in
            [("latch.all", "all"), ("latch.tool.clock", "tool:clock"), ("latch.zz", "all")]
        {
            // The present record: of a stop, or none.
            let entry = bucket.get(key).await.unwrap();
            let expected = entry.map_or(Position(0), |entry| entry.position);
            bucket.put(key, expected, words.clone(), None).await.unwrap();
            let fresh = SwitchGate::default();
            read(&fresh, bucket.as_ref()).await.unwrap();
            let switches: Vec<KillSwitch> = fresh.switches().on().cloned().collect();
            assert_eq!(switches.len(), 1, "{key}: {switches:?}");
            assert_eq!(switches[0].scope.to_string(), scope, "{key}");
            assert!(switches[0].why.contains(key), "{switches:?}");
            there
                .view()
                .wait_for(|view| view.on().any(|switch| switch.id == switches[0].id))
                .await
                .unwrap();
            clear(&fresh, bucket.as_ref(), switches[0].id, by(), Timestamp(2)).await.unwrap();
            assert_eq!(fresh.switches().on().count(), 0, "{key}");
            there.view().wait_for(|view| view.on().count() == 0).await.unwrap();
            let again = SwitchGate::default();
            read(&again, bucket.as_ref()).await.unwrap();
            assert_eq!(again.switches().on().count(), 0, "{key}");
            let refused = clear(&again, bucket.as_ref(), switches[0].id, by(), Timestamp(2)).await;
            assert!(matches!(refused, Err(SwitchError::NotOn(_))), "{refused:?}");
        }
        // A gate that reads all records finds one without a scope.
        bucket.put("latch.zz", Position(0), words, None).await.unwrap();
        let late = SwitchGate::default();
        read(&late, bucket.as_ref()).await.unwrap();
        let entry = bucket.get("latch.zz").await.unwrap().unwrap();
        bucket.delete("latch.zz", entry.position).await.unwrap();
        look(&late, bucket.as_ref(), &SwitchScope::All).await.unwrap();
        assert_eq!(late.switches().on().count(), 0);
        following.abort();
        storage.health.close().await;
    }

    #[tokio::test]
    async fn a_store_that_does_not_answer_shuts_the_gate_and_one_that_does_opens_it() {
        let dir = tempfile::tempdir().unwrap();
        let storage = open_storage(dir.path());
        let switch_gate = SwitchGate::default();
        let (bucket, lost_after) = (Arc::clone(&storage.bucket), Duration::from_millis(100));
        let asking = tokio::spawn(contact(switch_gate.clone(), Arc::clone(&bucket), lost_after));
        switch_gate.touch(true);
        switch_gate.view().wait_for(|view| !view.is_out_of_touch()).await.unwrap();
        storage.health.close().await;
        switch_gate.view().wait_for(SwitchView::is_out_of_touch).await.unwrap();
        asking.abort();
    }
}
