//! The inbox: at least once, until it is acknowledged.

use std::{collections::BTreeSet, time::Duration};

use clawnode_cluster::{Depth, Storage};
use clawnode_proto::{Partition, Position};
use tokio::{task::JoinSet, time::Instant};

use super::{
    BackendFixture, Result,
    support::{InHand, entity, eventually, holds, input, key_in, name_of, next, same, soon},
};

const NONE: Position = Position(0);

pub async fn a_put_is_delivered(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let partition = partition_of(&storage, "one");
    let mut consumer = storage.inbox.consume(partition, 0).await?;
    let inbox = storage.inbox.clone();
    // The consumer waits already: no polling is needed.
    let waiting = tokio::spawn(async move { next(&mut consumer).await });
    let put = input("one", "hello")?;
    let position = inbox.put(&put).await?;
    let (name, delivery) = soon("the delivery", waiting).await???;
    same("its name", name, "hello".to_owned())?;
    same("its entity", delivery.entity, entity("one"))?;
    same("its position", delivery.position, position)?;
    same("its bytes", delivery.bytes.to_vec(), put.to_bytes()?)?;
    holds("a first delivery is no redelivery", !delivery.redelivered)
}

pub async fn a_read_shows_what_waits_in_order(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut positions = Vec::new();
    for n in 0..5 {
        positions.push(storage.inbox.put(&input("one", &n.to_string())?).await?);
        storage.inbox.put(&input("two", &format!("other{n}"))?).await?;
    }
    let mut consumer = storage.inbox.consume(partition_of(&storage, "one"), 0).await?;
    next(&mut consumer).await?;
    let waiting = storage.inbox.read(entity("one"), NONE).await?;
    let found: Vec<_> = waiting.iter().map(|waiting| waiting.position).collect();
    same("positions, delivered or not", found, positions.clone())?;
    for (n, waiting) in waiting.iter().enumerate() {
        same("names", name_of(&waiting.bytes)?, n.to_string())?;
    }
    same(
        "what waits after the third",
        storage.inbox.read(entity("one"), positions[2]).await?.len(),
        2,
    )?;
    same("how many wait", storage.inbox.pending(entity("one")).await?, 5)?;
    same("of an unknown entity", storage.inbox.pending(entity("absent")).await?, 0)?;
    same("of an unknown entity", storage.inbox.read(entity("absent"), NONE).await?, Vec::new())
}

pub async fn a_delivery_is_foremost_only_if_nothing_waits_before_it(
    fixture: &dyn BackendFixture,
) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = storage.inbox.consume(partition_of(&storage, "one"), 0).await?;
    let room = 3;
    for name in ["first", "second"] {
        let put = storage.inbox.put_if_room(&input("one", name)?, room).await?;
        holds("there is room", put.is_some())?;
    }
    let mut handles = Vec::new();
    for (name, foremost) in [("first", true), ("second", false)] {
        let (found, delivery) = next(&mut consumer).await?;
        same("the next", found, name.to_owned())?;
        same("whether it is foremost", delivery.foremost, foremost)?;
        handles.push(delivery.handle);
    }
    for handle in handles {
        handle.ack().await?;
    }
    nothing_waits(&storage, "one").await?;
    storage.inbox.put_if_room(&input("one", "third")?, room).await?;
    let (_, third) = next(&mut consumer).await?;
    holds("it is foremost again", third.foremost)
}

pub async fn nothing_is_put_where_there_is_no_room(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    for room in [1, 2] {
        let put = storage.inbox.put_if_room(&input("one", &format!("{room}"))?, room).await?;
        holds("a put with room", put.is_some())?;
        let full = storage.inbox.put_if_room(&input("one", "refused")?, room).await?;
        same("a put without room", full, None)?;
    }
    same("how many wait", storage.inbox.pending(entity("one")).await?, 2)?;
    let other = storage.inbox.put_if_room(&input("two", "other")?, 1).await?;
    holds("another entity has room", other.is_some())
}

pub async fn an_ack_removes(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = storage.inbox.consume(partition_of(&storage, "one"), 0).await?;
    storage.inbox.put(&input("one", "first")?).await?;
    let (_, delivery) = next(&mut consumer).await?;
    delivery.handle.ack().await?;
    delivery.handle.ack().await?;
    nothing_waits(&storage, "one").await?;
    // What comes next is the second, not the first again.
    storage.inbox.put(&input("one", "second")?).await?;
    let (name, delivery) = next(&mut consumer).await?;
    same("the next", name, "second".to_owned())?;
    delivery.handle.ack().await?;
    nothing_waits(&storage, "one").await
}

pub async fn what_is_not_acknowledged_comes_again(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = storage.inbox.consume(partition_of(&storage, "one"), 0).await?;
    storage.inbox.put(&input("one", "hello")?).await?;
    let (_, first) = next(&mut consumer).await?;
    for _ in 0..2 {
        let (name, again) = next(&mut consumer).await?;
        same("the same", (name, again.position), ("hello".to_owned(), first.position))?;
        holds("it is a redelivery", again.redelivered)?;
        same("it still waits", storage.inbox.pending(entity("one")).await?, 1)?;
    }
    Ok(())
}

pub async fn progress_keeps_a_delivery_in_hand(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let partition = partition_of(&storage, "one");
    let other = key_in(partition, storage.partitions, "other")?;
    let mut consumer = storage.inbox.consume(partition, 0).await?;
    let mut in_hand = InHand::new(fixture.ack_wait());
    storage.inbox.put(&input("one", "held")?).await?;
    storage.inbox.put(&input(&other, "clock")?).await?;
    let (mut held, mut clock) = (None, None);
    while held.is_none() || clock.is_none() {
        let (name, delivery) = next(&mut consumer).await?;
        if name == "held" { held = Some(delivery) } else { clock = Some(delivery) }
    }
    let held = held.ok_or("held")?;
    // The other input is left alone: its redeliveries show that the wait has passed, three times.
    for _ in 0..3 {
        let redelivered = async {
            loop {
                held.handle.progress().await?;
                in_hand.said();
                let look = tokio::time::timeout(Duration::from_millis(50), consumer.next());
                let Ok(delivery) = look.await else { continue };
                let name = name_of(&delivery?.bytes)?;
                if name == "clock" || !in_hand.was_late() {
                    return Result::Ok(name);
                }
            }
        };
        let name = soon("the other's redelivery", redelivered).await??;
        same("only the other comes again", name, "clock".to_owned())?;
    }
    held.handle.ack().await?;
    nothing_waits(&storage, "one").await
}

pub async fn a_nak_brings_it_back(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = storage.inbox.consume(partition_of(&storage, "one"), 0).await?;
    storage.inbox.put(&input("one", "hello")?).await?;
    let (_, first) = next(&mut consumer).await?;
    first.handle.nak(Duration::from_millis(20)).await?;
    let (name, again) = next(&mut consumer).await?;
    same("the same", (name, again.position), ("hello".to_owned(), first.position))?;
    holds("it is a redelivery", again.redelivered)?;
    again.handle.ack().await?;
    nothing_waits(&storage, "one").await
}

pub async fn a_late_ack_removes(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumer = storage.inbox.consume(partition_of(&storage, "one"), 0).await?;
    storage.inbox.put(&input("one", "hello")?).await?;
    let (_, first) = next(&mut consumer).await?;
    let (_, second) = next(&mut consumer).await?;
    // Acknowledgements are not fenced: the first holder's counts.
    first.handle.ack().await?;
    nothing_waits(&storage, "one").await?;
    second.handle.nak(Duration::ZERO).await?;
    storage.inbox.put(&input("one", "later")?).await?;
    let (name, _) = next(&mut consumer).await?;
    same("it does not come back", name, "later".to_owned())
}

pub async fn a_scan_names_whose_input_waits(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let partition = Partition(0);
    let one = key_in(partition, storage.partitions, "one")?;
    let two = key_in(partition, storage.partitions, "two")?;
    let elsewhere = key_in(Partition(1), storage.partitions, "three")?;
    same("at first", storage.inbox.scan(partition).await?, Vec::new())?;
    for (key, name) in [(&one, "a"), (&one, "b"), (&two, "c"), (&elsewhere, "d")] {
        storage.inbox.put(&input(key, name)?).await?;
    }
    let found: BTreeSet<_> = storage.inbox.scan(partition).await?.into_iter().collect();
    same("those of the partition", found, BTreeSet::from([entity(&one), entity(&two)]))?;
    eventually("each partition tells how many wait, if any does", || async {
        let depths = storage.inbox.depths().await?;
        let waiting = |depths: Vec<Depth>| [depths[0].waiting, depths[1].waiting];
        Ok(depths.is_none_or(|depths| waiting(depths) == [3, 1]))
    })
    .await?;
    let mut consumer = storage.inbox.consume(partition, 0).await?;
    let mut left = 3;
    while left > 0 {
        let (_, delivery) = next(&mut consumer).await?;
        delivery.handle.ack().await?;
        left -= 1;
    }
    eventually("the scan is empty", || async {
        Ok(storage.inbox.scan(partition).await?.is_empty())
    })
    .await
}

pub async fn partitions_do_not_mix(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let mut consumers = Vec::new();
    for partition in [Partition(0), Partition(1)] {
        let key = key_in(partition, storage.partitions, "p")?;
        consumers.push((key.clone(), storage.inbox.consume(partition, 0).await?));
        storage.inbox.put(&input(&key, &key)?).await?;
    }
    for (key, consumer) in &mut consumers {
        let (name, delivery) = next(consumer).await?;
        same("its own partition's", name, key.clone())?;
        delivery.handle.ack().await?;
    }
    Ok(())
}

pub async fn two_consumers_share_a_partition(fixture: &dyn BackendFixture) -> Result {
    const INPUTS: usize = 40;
    let storage = fixture.fresh().await?;
    let partition = partition_of(&storage, "one");
    let begun = Instant::now();
    let (done, _) = tokio::sync::broadcast::channel::<()>(1);
    let (found, mut all) = tokio::sync::mpsc::channel(INPUTS * 2);
    let mut consumers = JoinSet::new();
    for _ in 0..2 {
        let mut consumer = storage.inbox.consume(partition, 0).await?;
        let (found, mut done) = (found.clone(), done.subscribe());
        consumers.spawn(async move {
            loop {
                let delivery = tokio::select! {
                    delivery = consumer.next() => delivery?,
                    _ = done.recv() => return Result::Ok(()),
                };
                delivery.handle.ack().await?;
                found.send((name_of(&delivery.bytes)?, delivery.redelivered)).await?;
            }
        });
    }
    for n in 0..INPUTS {
        storage.inbox.put(&input("one", &n.to_string())?).await?;
    }
    let mut names = BTreeSet::new();
    while names.len() < INPUTS {
        let (name, redelivered) =
            soon("all inputs", all.recv()).await?.ok_or("a consumer ended")?;
        // What a busy machine acknowledges late comes again, and not before.
        let may_be_late = redelivered && begun.elapsed() >= fixture.ack_wait();
        holds("each goes to one of the two", names.insert(name) || may_be_late)?;
    }
    drop(done);
    while let Some(ended) = consumers.join_next().await {
        ended??;
    }
    nothing_waits(&storage, "one").await
}

pub async fn a_dropped_consumer_loses_nothing(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let partition = partition_of(&storage, "one");
    let mut first = storage.inbox.consume(partition, 0).await?;
    // It gives up waiting, more than once, and goes.
    for _ in 0..3 {
        let look = tokio::time::timeout(Duration::from_millis(5), first.next());
        holds("nothing is there yet", look.await.is_err())?;
    }
    drop(first);
    let mut second = storage.inbox.consume(partition, 0).await?;
    for name in ["a", "b"] {
        storage.inbox.put(&input("one", name)?).await?;
    }
    let mut names = BTreeSet::new();
    while names.len() < 2 {
        let (name, delivery) = next(&mut second).await?;
        delivery.handle.ack().await?;
        names.insert(name);
    }
    nothing_waits(&storage, "one").await
}

pub async fn the_same_input_may_be_put_twice(fixture: &dyn BackendFixture) -> Result {
    let storage = fixture.fresh().await?;
    let put = input("one", "hello")?;
    let first = storage.inbox.put(&put).await?;
    let second = storage.inbox.put(&put).await?;
    holds("positions do not go back", first <= second)?;
    let mut consumer = storage.inbox.consume(partition_of(&storage, "one"), 0).await?;
    // One or two are stored; every one of them is the same.
    loop {
        let (name, delivery) = next(&mut consumer).await?;
        same("its name", name, "hello".to_owned())?;
        delivery.handle.ack().await?;
        if delivery.position == second {
            break;
        }
    }
    nothing_waits(&storage, "one").await
}

fn partition_of(storage: &Storage, key: &str) -> Partition {
    entity(key).partition(storage.partitions)
}

async fn nothing_waits(storage: &Storage, key: &str) -> Result {
    eventually("nothing waits", || async {
        let waiting = storage.inbox.read(entity(key), NONE).await?;
        Ok(waiting.is_empty() && storage.inbox.pending(entity(key)).await? == 0)
    })
    .await
}
