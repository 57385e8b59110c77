//! The bucket: small values, changed only by who knows what is there.

use std::{pin::Pin, sync::Arc};

use bytes::Bytes;
use clawnode_cluster::{BucketChange, BucketError};
use clawnode_proto::Position;
use futures_util::{Stream, StreamExt};
use tokio::{task::JoinSet, time::Instant};

use super::{
    BackendFixture, Result,
    support::{eventually, holds, same, soon},
};

const NONE: Position = Position(0);

pub async fn a_value_is_set_changed_and_removed(fixture: &dyn BackendFixture) -> Result {
    let bucket = fixture.fresh().await?.bucket;
    same("an absent value", bucket.get("a.b").await?, None)?;
    let first = bucket.put("a.b", NONE, bytes("one"), None).await?;
    let entry = bucket.get("a.b").await?.ok_or("a value")?;
    same("the first", (entry.position, entry.value), (first, bytes("one")))?;
    let second = bucket.put("a.b", first, bytes("two"), None).await?;
    let entry = bucket.get("a.b").await?.ok_or("a value")?;
    same("the second", (entry.position, entry.value), (second, bytes("two")))?;
    bucket.delete("a.b", second).await?;
    same("a removed value", bucket.get("a.b").await?, None)?;
    let third = bucket.put("a.b", NONE, bytes("three"), None).await?;
    let entry = bucket.get("a.b").await?.ok_or("a value")?;
    same("the third", (entry.position, entry.value), (third, bytes("three")))
}

pub async fn a_stale_change_is_refused(fixture: &dyn BackendFixture) -> Result {
    let bucket = fixture.fresh().await?.bucket;
    conflict(bucket.put("key", Position(1), bytes("x"), None).await)?;
    let first = bucket.put("key", NONE, bytes("one"), None).await?;
    conflict(bucket.put("key", NONE, bytes("x"), None).await)?;
    let second = bucket.put("key", first, bytes("two"), None).await?;
    conflict(bucket.put("key", first, bytes("x"), None).await)?;
    conflict(bucket.delete("key", first).await)?;
    let entry = bucket.get("key").await?.ok_or("a value")?;
    same("the present value", (entry.position, entry.value), (second, bytes("two")))?;
    bucket.delete("key", second).await?;
    conflict(bucket.put("key", second, bytes("x"), None).await)
}

pub async fn one_of_many_setters_wins(fixture: &dyn BackendFixture) -> Result {
    let bucket = fixture.fresh().await?.bucket;
    let mut expected = NONE;
    for round in 0..5 {
        let mut racers = JoinSet::new();
        for racer in 0..8 {
            let bucket = Arc::clone(&bucket);
            let value = Bytes::from(format!("{round}/{racer}"));
            racers.spawn(
                async move { (value.clone(), bucket.put("key", expected, value, None).await) },
            );
        }
        let mut winners = Vec::new();
        while let Some(raced) = racers.join_next().await {
            match raced? {
                (value, Ok(position)) => winners.push((position, value)),
                (_, Err(BucketError::Conflict { .. })) => {}
                (_, Err(error)) => return Err(error.into()),
            }
        }
        same("winners", winners.len(), 1)?;
        let (position, value) = winners.remove(0);
        let entry = bucket.get("key").await?.ok_or("a value")?;
        same("the present value", (entry.position, entry.value), (position, value))?;
        expected = position;
    }
    Ok(())
}

pub async fn a_list_is_ordered_and_by_prefix(fixture: &dyn BackendFixture) -> Result {
    let bucket = fixture.fresh().await?.bucket;
    for key in ["agent.b", "agent.a", "other", "agent.c"] {
        bucket.put(key, NONE, bytes(key), None).await?;
    }
    let gone = bucket.get("agent.b").await?.ok_or("a value")?.position;
    bucket.delete("agent.b", gone).await?;
    let listed = bucket.list("agent.").await?;
    let found: Vec<_> = listed.iter().map(|(key, entry)| (key.as_str(), &entry.value)).collect();
    let (a, c) = (bytes("agent.a"), bytes("agent.c"));
    same("by prefix", found, vec![("agent.a", &a), ("agent.c", &c)])?;
    same("all", bucket.list("").await?.len(), 3)?;
    same("none", bucket.list("absent.").await?, Vec::new())
}

pub async fn a_value_with_a_ttl_goes(fixture: &dyn BackendFixture) -> Result {
    let bucket = fixture.fresh().await?.bucket;
    let ttl = fixture.shortest_ttl();
    let begun = Instant::now();
    let position = bucket.put("brief", NONE, bytes("x"), Some(ttl)).await?;
    let found = bucket.get("brief").await?.map(|e| e.position);
    // On a busy machine its time may be over before it is looked for.
    if begun.elapsed() < ttl {
        same("it is there at first", found, Some(position))?;
    }
    loop {
        let begun = Instant::now();
        let kept = bucket.put("kept", NONE, bytes("x"), Some(ttl)).await?;
        match bucket.put("kept", kept, bytes("y"), None).await {
            Ok(_) => break,
            // It has gone before it was set without an end.
            Err(BucketError::Conflict { .. }) if begun.elapsed() >= ttl => {
                eventually("it goes", || async { Ok(bucket.get("kept").await?.is_none()) }).await?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    eventually("it goes", || async { Ok(bucket.get("brief").await?.is_none()) }).await?;
    same("it is not listed", bucket.list("brief").await?, Vec::new())?;
    holds("what was set without an end stays", bucket.get("kept").await?.is_some())?;
    bucket.put("brief", NONE, bytes("new"), None).await?;
    Ok(())
}

pub async fn a_watch_shows_what_is_and_what_comes(fixture: &dyn BackendFixture) -> Result {
    let bucket = fixture.fresh().await?.bucket;
    let first = bucket.put("w.a", NONE, bytes("1"), None).await?;
    bucket.put("w.b", NONE, bytes("2"), None).await?;
    bucket.put("elsewhere", NONE, bytes("3"), None).await?;
    let mut watch = bucket.watch("w.").await?;
    let mut present = [change(&mut watch).await?, change(&mut watch).await?];
    present.sort();
    let expected = [("w.a", "1"), ("w.b", "2")].map(|(k, v)| (k.to_owned(), Some(v.to_owned())));
    same("what is", present, expected)?;
    let second = bucket.put("w.a", first, bytes("4"), None).await?;
    same("a change", change(&mut watch).await?, ("w.a".to_owned(), Some("4".to_owned())))?;
    bucket.put("elsewhere.too", NONE, bytes("5"), None).await?;
    bucket.delete("w.a", second).await?;
    same("a removal", change(&mut watch).await?, ("w.a".to_owned(), None))?;
    bucket.put("w.c", NONE, bytes("6"), None).await?;
    same("a new one", change(&mut watch).await?, ("w.c".to_owned(), Some("6".to_owned())))
}

pub async fn a_watch_sees_an_expiry(fixture: &dyn BackendFixture) -> Result {
    let bucket = fixture.fresh().await?.bucket;
    let mut watch = bucket.watch("").await?;
    bucket.put("brief", NONE, bytes("x"), Some(fixture.shortest_ttl())).await?;
    same("it comes", change(&mut watch).await?, ("brief".to_owned(), Some("x".to_owned())))?;
    same("it goes", change(&mut watch).await?, ("brief".to_owned(), None))
}

pub async fn positions_increase(fixture: &dyn BackendFixture) -> Result {
    let bucket = fixture.fresh().await?.bucket;
    let mut last = NONE;
    for _ in 0..5 {
        let position = bucket.put("key", NONE, bytes("x"), None).await?;
        holds("a position is never given again", position > last)?;
        last = bucket.put("key", position, bytes("y"), None).await?;
        bucket.delete("key", last).await?;
    }
    Ok(())
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn conflict<T: std::fmt::Debug>(outcome: std::result::Result<T, BucketError>) -> Result {
    match outcome {
        Err(BucketError::Conflict { .. }) => Ok(()),
        other => Err(format!("expected a conflict, found {other:?}").into()),
    }
}

async fn change(
    watch: &mut Pin<Box<dyn Stream<Item = BucketChange> + Send>>,
) -> Result<(String, Option<String>)> {
    let change = soon("a change", watch.next()).await?.ok_or("the watch ended")?;
    let value = match change.entry {
        Some(entry) => Some(String::from_utf8(entry.value.to_vec())?),
        None => None,
    };
    Ok((change.key, value))
}
