//! Jobs: each waits once, and is delivered at least once, to one at a time.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use clawnode_cluster::{JobConsumer, JobDelivery, Storage};
use clawnode_proto::{
    CallId, Capability, EventId, JobId, Position, TurnId, job::Job, limits::APPEND_BYTES,
    subject::job_key, tool::EffectClass,
};
use tokio::task::JoinSet;

use super::{
    BackendFixture, Result,
    support::{InHand, eventually, holds, same, soon},
};

pub async fn a_put_job_is_delivered(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = consume(&storage, "exec").await?;
    let jobs = storage.jobs.clone();
    // The consumer waits already: no polling is needed.
    let waiting = tokio::spawn(async move { next(&mut consumer).await });
    let put = job("exec", 1)?;
    jobs.put(&put).await?;
    let delivery = soon("the delivery", waiting).await???;
    same("its id", delivery.job_id, put.id)?;
    same("its bytes", delivery.bytes.to_vec(), put.to_bytes()?)?;
    holds("a first delivery is no redelivery", !delivery.redelivered)?;
    same("it waits", storage.jobs.pending(&put.capability).await?, 1)?;
    same("it waits", storage.jobs.list().await?, vec![Bytes::from(put.to_bytes()?)])?;
    delivery.handle.ack().await?;
    delivery.handle.ack().await?;
    nothing_waits(&storage, "exec").await
}

pub async fn a_job_waits_once(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let (first, second) = (job("exec", 1)?, job("exec", 2)?);
    storage.jobs.put(&first).await?;
    storage.jobs.put(&first).await?;
    // Other bytes under the same id do not replace it.
    storage.jobs.put(&Job { arguments: "{\"other\":1}".to_owned(), ..first.clone() }).await?;
    same("it waits once", storage.jobs.pending(&first.capability).await?, 1)?;
    let mut consumer = consume(&storage, "exec").await?;
    let delivery = next(&mut consumer).await?;
    same("its bytes", delivery.bytes.to_vec(), first.to_bytes()?)?;
    // In a hand it waits still.
    storage.jobs.put(&first).await?;
    same("it waits once", storage.jobs.pending(&first.capability).await?, 1)?;
    delivery.handle.ack().await?;
    storage.jobs.put(&second).await?;
    let delivery = next(&mut consumer).await?;
    same("what comes next", delivery.job_id, second.id)?;
    delivery.handle.ack().await?;
    nothing_waits(&storage, "exec").await
}

/// Who puts a job again can know first whether it waits.
pub async fn a_job_waits_until_it_is_acknowledged(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let (put, other) = (job("exec", 1)?, job("other", 1)?);
    holds("it was never put", !storage.jobs.waits(&put).await?)?;
    storage.jobs.put(&put).await?;
    holds("it waits", storage.jobs.waits(&put).await?)?;
    holds("no other capability has it", !storage.jobs.waits(&other).await?)?;
    let mut consumer = consume(&storage, "exec").await?;
    let delivery = next(&mut consumer).await?;
    holds("it waits in a hand", storage.jobs.waits(&put).await?)?;
    same("its bytes", delivery.bytes.to_vec(), put.to_bytes()?)?;
    delivery.handle.ack().await?;
    nothing_waits(&storage, "exec").await?;
    eventually("it is gone", || async { Ok(!storage.jobs.waits(&put).await?) }).await?;
    same("asking stores nothing", storage.jobs.list().await?, Vec::new())
}

pub async fn many_puts_of_a_job_are_one(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut putting = JoinSet::new();
    for _ in 0..16 {
        let (jobs, job) = (storage.jobs.clone(), job("exec", 1)?);
        putting.spawn(async move { jobs.put(&job).await });
    }
    while let Some(put) = putting.join_next().await {
        put??;
    }
    same("how many wait", storage.jobs.pending(&capability("exec")?).await?, 1)
}

pub async fn a_done_job_may_be_put_again(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = consume(&storage, "exec").await?;
    let put = job("exec", 1)?;
    let mut handles = Vec::new();
    for _ in 0..3 {
        storage.jobs.put(&put).await?;
        let delivery = next(&mut consumer).await?;
        same("the same job", delivery.job_id, put.id)?;
        holds("its first delivery since it was put", !delivery.redelivered)?;
        delivery.handle.ack().await?;
        nothing_waits(&storage, "exec").await?;
        handles.push(delivery.handle);
    }
    storage.jobs.put(&put).await?;
    // What was acknowledged was another message of the same job.
    for handle in &handles {
        handle.ack().await?;
    }
    let delivery = next(&mut consumer).await?;
    same("it waits", storage.jobs.pending(&put.capability).await?, 1)?;
    delivery.handle.ack().await?;
    nothing_waits(&storage, "exec").await
}

pub async fn an_unanswered_job_comes_again(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = consume(&storage, "exec").await?;
    let put = job("exec", 1)?;
    storage.jobs.put(&put).await?;
    next(&mut consumer).await?;
    for _ in 0..2 {
        let again = next(&mut consumer).await?;
        same("the same", again.job_id, put.id)?;
        holds("it is a redelivery", again.redelivered)?;
        same("it still waits", storage.jobs.pending(&put.capability).await?, 1)?;
    }
    Ok(())
}

pub async fn progress_keeps_a_job_in_hand(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let (mut one, mut two) = (consume(&storage, "exec").await?, consume(&storage, "exec").await?);
    let mut in_hand = InHand::new(fixture.ack_wait());
    storage.jobs.put(&job("exec", 1)?).await?;
    let held = next(&mut one).await?;
    storage.jobs.put(&job("exec", 2)?).await?;
    let mut clock = next(&mut two).await?;
    // The other job is left alone: its redeliveries show that the wait has passed, three times.
    for _ in 0..3 {
        let redelivered = async {
            loop {
                held.handle.progress().await?;
                in_hand.said();
                let look = tokio::time::timeout(Duration::from_millis(50), two.next());
                let Ok(delivery) = look.await else { continue };
                let delivery = delivery?;
                if delivery.job_id == JobId::from_u128(2) || !in_hand.was_late() {
                    return Result::Ok(delivery);
                }
            }
        };
        clock = soon("the other's redelivery", redelivered).await??;
        same("only the other comes again", clock.job_id, JobId::from_u128(2))?;
    }
    held.handle.ack().await?;
    clock.handle.ack().await?;
    nothing_waits(&storage, "exec").await
}

pub async fn a_nak_brings_a_job_back(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = consume(&storage, "exec").await?;
    storage.jobs.put(&job("exec", 1)?).await?;
    let mut before = next(&mut consumer).await?;
    for delay in [Duration::ZERO, Duration::from_millis(20)] {
        before.handle.nak(delay).await?;
        let again = next(&mut consumer).await?;
        same("the same", again.job_id, before.job_id)?;
        holds("it is a redelivery", again.redelivered)?;
        before = again;
    }
    before.handle.ack().await?;
    nothing_waits(&storage, "exec").await
}

pub async fn a_late_ack_removes_a_job(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = consume(&storage, "exec").await?;
    storage.jobs.put(&job("exec", 1)?).await?;
    let first = next(&mut consumer).await?;
    let second = next(&mut consumer).await?;
    // Acknowledgements are not fenced: the first holder's counts.
    first.handle.ack().await?;
    nothing_waits(&storage, "exec").await?;
    second.handle.nak(Duration::ZERO).await?;
    storage.jobs.put(&job("exec", 2)?).await?;
    same("it does not come back", next(&mut consumer).await?.job_id, JobId::from_u128(2))
}

pub async fn capabilities_do_not_mix(fixture: &dyn BackendFixture) -> Result {
    const NAMES: [&str; 5] = ["mcp:files.v1", "mcp:files", "mcp:files.v10", "v1", "MCP:files.v1"];
    let storage = fixture.fresh().await?;
    let mut consumers = Vec::new();
    for (number, name) in NAMES.iter().enumerate() {
        consumers.push(consume(&storage, name).await?);
        // The same id under each: they are different jobs.
        storage.jobs.put(&job(name, 1)?).await?;
        storage.jobs.put(&job(name, 10 + number as u128)?).await?;
    }
    for ((number, name), consumer) in NAMES.iter().enumerate().zip(&mut consumers) {
        same(name, storage.jobs.pending(&capability(name)?).await?, 2)?;
        let mut found = BTreeSet::new();
        for _ in 0..2 {
            let delivery = next(consumer).await?;
            same("its own", Job::from_bytes(&delivery.bytes)?.capability, capability(name)?)?;
            found.insert(delivery.job_id);
            delivery.handle.ack().await?;
        }
        let expected = [1, 10 + number as u128].map(JobId::from_u128);
        same("its jobs", found, expected.into())?;
        nothing_waits(&storage, name).await?;
    }
    same("of an unused capability", storage.jobs.pending(&capability("x")?).await?, 0)
}

pub async fn jobs_wait_for_who_can_do_them(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    for number in 0..3 {
        storage.jobs.put(&job("later", number)?).await?;
    }
    same("how many wait", storage.jobs.pending(&capability("later")?).await?, 3)?;
    let mut consumer = consume(&storage, "later").await?;
    for number in 0..3 {
        let delivery = next(&mut consumer).await?;
        same("in order", delivery.job_id, JobId::from_u128(number))?;
        delivery.handle.ack().await?;
    }
    nothing_waits(&storage, "later").await
}

pub async fn two_consumers_share_a_capability(fixture: &dyn BackendFixture) -> Result {
    const JOBS: u128 = 30;
    let storage = fixture.fresh().await?;
    let (done, _) = tokio::sync::broadcast::channel::<()>(1);
    let (found, mut all) = tokio::sync::mpsc::channel(64);
    let mut consumers = JoinSet::new();
    for _ in 0..2 {
        let mut consumer = consume(&storage, "exec").await?;
        let (found, mut done) = (found.clone(), done.subscribe());
        consumers.spawn(async move {
            loop {
                let delivery = tokio::select! {
                    delivery = consumer.next() => delivery?,
                    _ = done.recv() => return Result::Ok(()),
                };
                delivery.handle.ack().await?;
                found.send((delivery.job_id, delivery.redelivered)).await?;
            }
        });
    }
    for number in 0..JOBS {
        storage.jobs.put(&job("exec", number)?).await?;
    }
    let mut ids = BTreeSet::new();
    while (ids.len() as u128) < JOBS {
        let (id, redelivered) = soon("a job", all.recv()).await?.ok_or("the consumers ended")?;
        holds("each goes to one", ids.insert(id) || redelivered)?;
    }
    drop(done);
    while let Some(ended) = consumers.join_next().await {
        ended??;
    }
    nothing_waits(&storage, "exec").await
}

pub async fn who_is_busy_keeps_nothing_from_others(fixture: &dyn BackendFixture) -> Result {
    const JOBS: u128 = 6;
    let storage = fixture.fresh().await?;
    let (mut busy, mut idle) = (consume(&storage, "exec").await?, consume(&storage, "exec").await?);
    for number in 0..JOBS {
        storage.jobs.put(&job("exec", number)?).await?;
    }
    let held = next(&mut busy).await?;
    let all = async {
        for _ in 1..JOBS {
            let delivery = idle.next().await?;
            holds("no other consumer had it", !delivery.redelivered)?;
            delivery.handle.ack().await?;
            held.handle.progress().await?;
        }
        Result::Ok(())
    };
    soon("all others", all).await??;
    let exec = capability("exec")?;
    eventually("the held job is left", || async { Ok(storage.jobs.pending(&exec).await? == 1) })
        .await?;
    held.handle.ack().await?;
    nothing_waits(&storage, "exec").await
}

pub async fn who_rests_keeps_nothing_from_others(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let (mut resting, mut other) =
        (consume(&storage, "exec").await?, consume(&storage, "exec").await?);
    // It gives up waiting, more than once, and wants nothing more for now.
    for _ in 0..2 {
        let look = tokio::time::timeout(Duration::from_millis(5), resting.next());
        holds("nothing is there yet", look.await.is_err())?;
    }
    resting.rest().await;
    resting.rest().await;
    for number in 0..2 {
        storage.jobs.put(&job("exec", number)?).await?;
        let delivery = next(&mut other).await?;
        same("it comes to the other", delivery.job_id, JobId::from_u128(number))?;
        delivery.handle.ack().await?;
    }
    drop(other);
    storage.jobs.put(&job("exec", 7)?).await?;
    let delivery = next(&mut resting).await?;
    same("who has rested goes on", delivery.job_id, JobId::from_u128(7))?;
    delivery.handle.ack().await?;
    nothing_waits(&storage, "exec").await
}

pub async fn a_dropped_consumer_loses_no_job(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut first = consume(&storage, "exec").await?;
    for _ in 0..3 {
        let look = tokio::time::timeout(Duration::from_millis(5), first.next());
        holds("nothing is there yet", look.await.is_err())?;
    }
    drop(first);
    let mut second = consume(&storage, "exec").await?;
    let mut found = BTreeSet::new();
    for number in 0..2 {
        storage.jobs.put(&job("exec", number)?).await?;
    }
    while found.len() < 2 {
        let delivery = next(&mut second).await?;
        delivery.handle.ack().await?;
        found.insert(delivery.job_id);
    }
    nothing_waits(&storage, "exec").await
}

pub async fn a_job_that_is_too_large_is_refused(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let large = |bytes: usize| Result::Ok(Job { arguments: "x".repeat(bytes), ..job("exec", 1)? });
    let refused = storage.jobs.put(&large(APPEND_BYTES)?).await;
    holds("it is refused", refused.is_err_and(|error| !error.is_transient()))?;
    let fits = large(APPEND_BYTES - 1_024)?;
    storage.jobs.put(&fits).await?;
    let delivery = next(&mut consume(&storage, "exec").await?).await?;
    same("its bytes", delivery.bytes.to_vec(), fits.to_bytes()?)
}

pub async fn a_state_key_changes_by_one_hand(fixture: &dyn BackendFixture) -> Result {
    let ttl = fixture.shortest_ttl();
    let storage = fixture.fresh().await?;
    let key = job_key(JobId::from_u128(1));
    let put = |expected, text: &'static str| {
        storage.bucket.put(&key, expected, Bytes::from_static(text.as_bytes()), None)
    };
    let started = put(Position(0), "started").await?;
    holds("it is started once", put(Position(0), "started again").await.is_err())?;
    let done = put(started, "done").await?;
    holds("it is done once", put(started, "done again").await.is_err())?;
    let value = Bytes::from_static(b"closed");
    storage.bucket.put(&key, done, value, Some(ttl)).await?;
    eventually("what is closed goes", || async { Ok(storage.bucket.get(&key).await?.is_none()) })
        .await
}

/// A job of this capability; its id is this number.
pub(super) fn job(capability: &str, number: u128) -> Result<Job> {
    Ok(Job {
        id: JobId::from_u128(number),
        capability: capability.parse()?,
        session: "a:cli:local:p".parse()?,
        turn: TurnId::from_u128(1),
        call: CallId::from_u128(1),
        nonce: EventId::from_u128(1),
        tool: "tool".parse()?,
        arguments: "{}".to_owned(),
        class: EffectClass::Idempotent,
        timeout_ms: 1_000,
        limit: None,
        action: None,
        callbacks: None,
        traceparent: None,
        not_after: None,
    })
}

pub(super) fn capability(name: &str) -> Result<Capability> {
    Ok(name.parse()?)
}

pub(super) async fn consume(storage: &Storage, name: &str) -> Result<Box<dyn JobConsumer>> {
    Ok(storage.jobs.consume(&capability(name)?).await?)
}

/// The next delivery.
pub(super) async fn next(consumer: &mut Box<dyn JobConsumer>) -> Result<JobDelivery> {
    Ok(soon("a job", consumer.next()).await??)
}

pub(super) async fn nothing_waits(storage: &Storage, name: &str) -> Result {
    let capability = capability(name)?;
    eventually("no job waits", || async { Ok(storage.jobs.pending(&capability).await? == 0) }).await
}
