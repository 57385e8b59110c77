//! An input is delivered before it is stored, so that what its actor writes is stored with it.

use std::sync::Arc;

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Consumer, Storage, StoreError, Write};
use clawnode_local::{DiskFault, LocalOptions, PowerCutDisk, open};
use clawnode_proto::Position;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::support::{Home, NONE, Result, entity, input, options};

const KEY: &str = "one";

fn on(disk: &Arc<PowerCutDisk>) -> LocalOptions {
    LocalOptions { disk: Some(Arc::clone(disk)), ..options() }
}

async fn consumer(store: &Storage) -> Result<Box<dyn Consumer>> {
    Ok(store.inbox.consume(entity(KEY).partition(store.partitions), 0).await?)
}

fn write() -> Write {
    Write { bytes: Bytes::from_static(b"what follows"), rollup: false }
}

#[tokio::test]
async fn an_input_is_delivered_before_it_is_stored_and_answered_after() -> Result {
    let home = Home::new()?;
    let disk = Arc::new(PowerCutDisk::new());
    let (store, _control) = open(home.path(), on(&disk))?;
    let mut consumer = consumer(&store).await?;
    let sent = input(KEY, "early")?;
    disk.hold_syncs(true);
    let (inbox, put) = (store.inbox.clone(), sent.clone());
    let putting = tokio::spawn(async move { inbox.put(&put).await });
    let delivery = consumer.next().await?;
    assert_eq!(delivery.bytes, sent.to_bytes()?, "what is not in the log yet");
    assert!(delivery.foremost && !delivery.redelivered);
    let waiting = store.inbox.read(entity(KEY), NONE).await?;
    assert_eq!(waiting.len(), 1, "a read shows what was delivered: {waiting:?}");
    assert_eq!(waiting[0].bytes, delivery.bytes);
    let journal = store.journal.clone();
    let appending = tokio::spawn(async move { journal.append(entity(KEY), NONE, write()).await });
    // The log has written the input and waits for the sync: what is answered before it, is by now.
    let held = Arc::clone(&disk);
    tokio::task::spawn_blocking(move || held.wait_for_held_sync()).await?;
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!putting.is_finished() && !appending.is_finished());
    disk.hold_syncs(false);
    let position = putting.await??;
    assert_eq!(position, delivery.position);
    let answer = appending.await?;
    assert!(matches!(answer, AppendAnswer::Stored(at) if at > position), "{answer:?}");
    let waiting = store.inbox.read(entity(KEY), NONE).await?;
    assert_eq!(waiting[0].bytes, sent.to_bytes()?, "from the log");
    delivery.handle.ack().await?;
    assert_eq!(store.inbox.pending(entity(KEY)).await?, 0);
    home.close(store).await;
    Ok(())
}

/// LOC-4: whatever is lost, what follows from an input is never there without it.
#[tokio::test]
async fn what_follows_from_an_input_is_never_there_without_it() -> Result {
    let (mut alone, mut both) = (0, 0);
    for seed in 0..120 {
        let home = Home::new()?;
        let disk = Arc::new(PowerCutDisk::new());
        let (store, control) = open(home.path(), on(&disk))?;
        let mut consumer = consumer(&store).await?;
        let fault = [DiskFault::PowerCut, DiskFault::Kill, DiskFault::FailedSync][seed % 3];
        disk.fail_after(1 + seed as u64 / 3 % 4, fault, seed as u64);
        let sent = input(KEY, &"long".repeat(60))?;
        let (inbox, put) = (store.inbox.clone(), sent.clone());
        let putting = tokio::spawn(async move { inbox.put(&put).await });
        if consumer.next().await.is_ok() {
            // Answered or not: what counts is what the next life finds.
            drop(store.journal.append(entity(KEY), NONE, write()).await);
        }
        let answered = putting.await?;
        home.close(store).await;
        drop((consumer, control));
        disk.cut_power(&mut ChaCha8Rng::seed_from_u64(seed as u64));

        let (store, _control) = open(home.path(), on(&disk))?;
        let is_there = store.inbox.pending(entity(KEY)).await? == 1;
        let follows = store.journal.position(entity(KEY)).await? > Position(0);
        assert!(is_there || !follows, "seed {seed}: an effect without its cause");
        assert!(is_there || answered.is_err(), "seed {seed}: an answered input is lost");
        alone += usize::from(is_there && !follows);
        both += usize::from(follows);
        home.close(store).await;
    }
    assert!(alone > 0 && both > 0, "{alone} {both}");
    Ok(())
}

/// The sender gets an error without certainty: a process that has seen the input may still write it
/// down.
#[tokio::test]
async fn an_input_that_the_disk_refuses_is_taken_back() -> Result {
    let home = Home::new()?;
    let disk = Arc::new(PowerCutDisk::new());
    let (store, _control) = open(home.path(), on(&disk))?;
    let mut consumer = consumer(&store).await?;
    disk.set_free(Some(10));
    let refused = store.inbox.put(&input(KEY, "no room")?).await.expect_err("no room");
    assert!(matches!(refused, StoreError::Unavailable { .. }), "{refused}");
    assert_eq!(store.inbox.pending(entity(KEY)).await?, 0);
    disk.set_free(None);
    let sent = input(KEY, "room")?;
    store.inbox.put(&sent).await?;
    let delivery = consumer.next().await?;
    assert_eq!(delivery.bytes, sent.to_bytes()?);
    assert_eq!(store.inbox.pending(entity(KEY)).await?, 1);
    home.close(store).await;
    Ok(())
}
