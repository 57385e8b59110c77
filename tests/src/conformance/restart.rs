//! Stored data outlives the process that stored it. Backends that cannot restart pass.

use std::collections::BTreeSet;

use bytes::Bytes;
use clawnode_cluster::Timer;
use clawnode_proto::{Position, TimerId, Timestamp};

use super::{
    BackendFixture, Result, jobs,
    support::{append, entity, eventually, holds, input, next, refused, same, texts, write},
};

const NONE: Position = Position(0);
/// Far enough that no run of this suite reaches it, in milliseconds.
const FAR: u64 = 3_600_000;

pub async fn everything_stored_is_there_after_a_restart(fixture: &dyn BackendFixture) -> Result {
    let before = fixture.fresh().await?;
    let partition = entity("one").partition(before.partitions);
    let first = append(&*before.journal, entity("one"), NONE, "first").await?;
    let second = append(&*before.journal, entity("one"), first, "second").await?;
    let put = before.inbox.put(&input("one", "waiting")?).await?;
    let value = before.bucket.put("key", NONE, Bytes::from_static(b"value"), None).await?;
    let due = Timestamp(fixture.now().0 + FAR);
    let timer = Timer { id: TimerId::from_u128(1), due, input: input("one", "later")? };
    before.timers.set(&timer).await?;
    let blob = before.blobs.put(Bytes::from_static(b"blob")).await?;
    for (capability, number) in [("exec", 1), ("exec", 2), ("mcp:files.v1", 3)] {
        before.jobs.put(&jobs::job(capability, number)?).await?;
    }
    jobs::next(&mut jobs::consume(&before, "exec").await?).await?;

    let Some(after) = fixture.restart(before).await? else { return Ok(()) };
    let expected = vec!["first".to_owned(), "second".to_owned()];
    same("the journal", texts(&*after.journal, entity("one"), NONE).await?, expected)?;
    let followed = after.journal.follow(NONE, 10).await?;
    let positions = followed.records.iter().map(|(_, record)| record.position).collect();
    same("what is followed", positions, vec![first, second])?;
    refused(&*after.journal, entity("one"), first, false).await?;
    append(&*after.journal, entity("one"), second, "third").await?;
    let mut consumer = after.inbox.consume(partition, 0).await?;
    let (name, delivery) = next(&mut consumer).await?;
    same("the input", (name, delivery.position), ("waiting".to_owned(), put))?;
    let later = after.inbox.put(&input("one", "later")?).await?;
    holds("positions go on", later > put)?;
    let entry = after.bucket.get("key").await?.ok_or("the value")?;
    same("the value", (entry.position, entry.value), (value, Bytes::from_static(b"value")))?;
    same("the timer", after.timers.pending(partition).await?, vec![timer])?;
    same("the blob", after.blobs.get(blob).await?, Some(Bytes::from_static(b"blob")))?;
    // One of them was in hand.
    for (capability, left) in [("exec", 2), ("mcp:files.v1", 1)] {
        let parsed = jobs::capability(capability)?;
        same("jobs", after.jobs.pending(&parsed).await?, left)?;
        let mut consumer = jobs::consume(&after, capability).await?;
        for _ in 0..left {
            let delivery = jobs::next(&mut consumer).await?;
            let expected = jobs::job(capability, delivery.job_id.as_u128())?.to_bytes()?;
            same("a job", delivery.bytes.to_vec(), expected)?;
            delivery.handle.ack().await?;
        }
        jobs::nothing_waits(&after, capability).await?;
    }
    Ok(())
}

pub async fn what_was_done_stays_done(fixture: &dyn BackendFixture) -> Result {
    let before = fixture.fresh().await?;
    let partition = entity("one").partition(before.partitions);
    let first = append(&*before.journal, entity("one"), NONE, "first").await?;
    write(&*before.journal, entity("one"), first, "rolled up", true).await?;
    let value = before.bucket.put("key", NONE, Bytes::from_static(b"value"), None).await?;
    before.bucket.delete("key", value).await?;
    let due = Timestamp(fixture.now().0 + FAR);
    let timer = Timer { id: TimerId::from_u128(1), due, input: input("one", "later")? };
    before.timers.set(&timer).await?;
    before.timers.cancel(entity("one"), timer.id).await?;
    before.inbox.put(&input("one", "done")?).await?;
    let mut consumer = before.inbox.consume(partition, 0).await?;
    next(&mut consumer).await?.1.handle.ack().await?;
    eventually("it is acknowledged", || async {
        Ok(before.inbox.pending(entity("one")).await? == 0)
    })
    .await?;
    before.inbox.put(&input("one", "open")?).await?;
    drop(consumer);
    before.jobs.put(&jobs::job("exec", 1)?).await?;
    jobs::next(&mut jobs::consume(&before, "exec").await?).await?.handle.ack().await?;
    jobs::nothing_waits(&before, "exec").await?;
    before.jobs.put(&jobs::job("exec", 2)?).await?;

    let Some(after) = fixture.restart(before).await? else { return Ok(()) };
    let rolled = vec!["rolled up".to_owned()];
    same("the journal", texts(&*after.journal, entity("one"), NONE).await?, rolled)?;
    same("what is followed", after.journal.follow(NONE, 10).await?.records.len(), 1)?;
    same("the value", after.bucket.get("key").await?, None)?;
    same("the timer", after.timers.pending(partition).await?, Vec::new())?;
    let mut consumer = after.inbox.consume(partition, 0).await?;
    let (name, _) = next(&mut consumer).await?;
    same("only what is open is delivered", name, "open".to_owned())?;
    let waiting: BTreeSet<_> =
        after.inbox.read(entity("one"), NONE).await?.into_iter().map(|w| w.position).collect();
    same("only it waits", waiting.len(), 1)?;
    let delivery = jobs::next(&mut jobs::consume(&after, "exec").await?).await?;
    same("only the open job is delivered", delivery.job_id.as_u128(), 2)?;
    same("only it waits", after.jobs.pending(&jobs::capability("exec")?).await?, 1)
}
