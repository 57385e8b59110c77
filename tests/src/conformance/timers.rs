//! The timers: an input that arrives when its time has come.

use std::collections::BTreeSet;

use clawnode_cluster::{Overdue, Storage, Timer};
use clawnode_proto::{Partition, Position, TimerId, Timestamp};

use super::{
    BackendFixture, Result,
    support::{entity, eventually, holds, input, next, same},
};

/// Far enough that no run of this suite reaches it, in milliseconds.
const FAR: u64 = 3_600_000;
/// Soon, in milliseconds.
const SOON: u64 = 1_000;

pub async fn a_due_timer_arrives_in_the_inbox(fixture: &dyn BackendFixture) -> Result {
    let now = fixture.now();
    let storage = fixture.fresh().await?;
    let mut consumer = storage.inbox.consume(partition(&storage), 0).await?;
    storage.timers.set(&timer(1, now, "overdue")?).await?;
    let (name, delivery) = next(&mut consumer).await?;
    same("what arrives", name, "overdue".to_owned())?;
    same(
        "it is the input itself",
        delivery.bytes.to_vec(),
        timer(1, now, "overdue")?.input.to_bytes()?,
    )?;
    same("it waits as any input", storage.inbox.pending(entity("one")).await?, 1)?;
    delivery.handle.ack().await?;
    eventually("nothing is left", || async {
        let fired = storage.timers.pending(partition(&storage)).await?.is_empty();
        Ok(fired && storage.inbox.pending(entity("one")).await? == 0)
    })
    .await
}

pub async fn a_timer_waits_until_it_is_due(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = storage.inbox.consume(partition(&storage), 0).await?;
    let due = Timestamp(fixture.now().0 + SOON);
    let (near, far) = (timer(1, due, "near")?, timer(2, Timestamp(due.0 + FAR), "far")?);
    storage.timers.set(&far).await?;
    storage.timers.set(&near).await?;
    let pending = storage.timers.pending(partition(&storage)).await?;
    holds("what is set is pending", pending.contains(&far))?;
    let (name, delivery) = next(&mut consumer).await?;
    same("the near one arrives", name, "near".to_owned())?;
    holds("not before it is due", fixture.now() >= due)?;
    delivery.handle.ack().await?;
    eventually("the far one is left", || async {
        Ok(storage.timers.pending(partition(&storage)).await? == vec![far.clone()])
    })
    .await
}

pub async fn a_timer_is_replaced(fixture: &dyn BackendFixture) -> Result {
    let now = fixture.now();
    let storage = fixture.fresh().await?;
    let mut consumer = storage.inbox.consume(partition(&storage), 0).await?;
    let far = Timestamp(now.0 + FAR);
    storage.timers.set(&timer(1, far, "old")?).await?;
    storage.timers.set(&timer(1, now, "new")?).await?;
    let (name, delivery) = next(&mut consumer).await?;
    same("the new one arrives", name, "new".to_owned())?;
    delivery.handle.ack().await?;
    eventually("the old one is gone", || async {
        Ok(storage.timers.pending(partition(&storage)).await?.is_empty())
    })
    .await?;
    // And it can be set again after it has fired.
    storage.timers.set(&timer(1, far, "again")?).await?;
    same("again", storage.timers.pending(partition(&storage)).await?.len(), 1)
}

pub async fn a_cancelled_timer_does_not_fire(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = storage.inbox.consume(partition(&storage), 0).await?;
    let due = Timestamp(fixture.now().0 + SOON);
    storage.timers.set(&timer(1, due, "cancelled")?).await?;
    storage.timers.cancel(entity("one"), TimerId::from_u128(1)).await?;
    storage.timers.cancel(entity("one"), TimerId::from_u128(1)).await?;
    storage.timers.set(&timer(2, Timestamp(due.0 + 1), "after it")?).await?;
    let (name, _) = next(&mut consumer).await?;
    same("only what was not cancelled arrives", name, "after it".to_owned())
}

pub async fn timers_fire_in_any_number(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let now = fixture.now();
    let mut expected = BTreeSet::new();
    for n in 0..50 {
        let name = format!("timer{n}");
        storage.timers.set(&timer(n, Timestamp(now.0 + u64::try_from(n % 7)?), &name)?).await?;
        expected.insert(name);
    }
    let mut consumer = storage.inbox.consume(partition(&storage), 0).await?;
    let mut found = BTreeSet::new();
    while found.len() < expected.len() {
        let (name, delivery) = next(&mut consumer).await?;
        delivery.handle.ack().await?;
        found.insert(name);
    }
    same("all of them", found, expected)
}

pub async fn what_is_not_overdue_is_left_alone(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let far = timer(1, Timestamp(fixture.now().0 + FAR), "far")?;
    storage.timers.set(&far).await?;
    let partition = partition(&storage);
    let look = storage.timers.restore_overdue(partition, fixture.now(), Position(0)).await?;
    same("nothing is stored again", look, Overdue::default())?;
    let look = storage.timers.restore_overdue(partition, far.due, Position(0)).await?;
    same("nor at the moment when it is due", look, Overdue::default())?;
    // What is said to be overdue is stored again, and waits for its time as before.
    let later = Timestamp(far.due.0 + 1);
    let look = storage.timers.restore_overdue(partition, later, Position(0)).await?;
    same("it is stored again", look, Overdue { restored: 1, next: None })?;
    same("once", storage.timers.pending(partition).await?, vec![far.clone()])?;
    storage.timers.cancel(entity("one"), far.id).await?;
    let look = storage.timers.restore_overdue(partition, later, Position(0)).await?;
    same("what is cancelled stays so", look, Overdue::default())
}

fn partition(storage: &Storage) -> Partition {
    entity("one").partition(storage.partitions)
}

fn timer(id: u128, due: Timestamp, name: &str) -> Result<Timer> {
    Ok(Timer { id: TimerId::from_u128(id), due, input: input("one", name)? })
}
