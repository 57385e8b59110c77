//! A disk that is full, and one that fails.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, StoreError, Write};
use clawnode_local::{DiskFault, LocalOptions, OpenError, PowerCutDisk, open};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::time::timeout;

use crate::support::{Home, NONE, Result, append, entity, input, options, texts};

fn options_on(disk: &Arc<PowerCutDisk>) -> LocalOptions {
    LocalOptions { disk: Some(Arc::clone(disk)), ..options() }
}

/// A text of several sectors.
fn long(word: &str) -> String {
    format!("{word} ").repeat(400)
}

fn bytes_of_log(disk: &PowerCutDisk) -> usize {
    let is_log =
        |path: &std::path::Path| path.extension().is_some_and(|extension| extension == "seg");
    disk.files().iter().filter(|(path, _)| is_log(path)).map(|(_, bytes)| bytes.len()).sum()
}

#[tokio::test]
async fn a_full_disk_refuses_input_early_and_loses_nothing() -> Result {
    let home = Home::new()?;
    let disk = Arc::new(PowerCutDisk::new());
    let mut options = options();
    options.disk = Some(Arc::clone(&disk));
    options.head_room = 64 << 20;
    disk.set_free(Some(128 << 20));
    let (store, _control) = open(home.path(), options.clone())?;
    store.inbox.put(&input("one", "in time")?).await?;
    let first = append(&store, "one", NONE, "first").await?;
    let mut consumer = store.inbox.consume(entity("one").partition(store.partitions), 0).await?;

    disk.set_free(Some(32 << 20));
    let refused = loop {
        // The free space is looked up every second at most.
        match store.inbox.put(&input("one", "too late")?).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, StoreError::Full { .. }), "{refused}");
    assert!(store.health.ready().await.is_err());
    assert_eq!(store.health.warnings().await[0].name, "local.disk_full");
    let second = append(&store, "one", first, "what was begun goes on").await?;
    let acked = consumer.next().await?;
    acked.handle.ack().await?;

    disk.set_free(Some(60));
    let write = Write { bytes: Bytes::from(vec![b'x'; 300]), rollup: false };
    let answer = store.journal.append(entity("one"), second, write.clone()).await;
    assert!(matches!(answer, AppendAnswer::Unknown(StoreError::Full { .. })), "{answer:?}");

    disk.set_free(None);
    // Room comes back without a restart, and without anybody sending.
    while store.health.ready().await.is_err() {
        tokio::task::yield_now().await;
    }
    let answer = store.journal.append(entity("one"), second, write).await;
    assert!(matches!(answer, AppendAnswer::Stored(_)), "{answer:?}");
    store.inbox.put(&input("one", "again")?).await?;
    drop(consumer);
    home.close(store).await;
    disk.cut_power(&mut ChaCha8Rng::seed_from_u64(1));
    let (store, _control) = open(home.path(), options)?;
    assert_eq!(texts(&store, "one").await?.len(), 3);
    let waiting = store.inbox.read(entity("one"), NONE).await?;
    assert!(waiting.iter().all(|waiting| waiting.position != acked.position), "the ack was kept");
    home.close(store).await;
    Ok(())
}

/// A disk that hangs in a sync does not keep the process: who waits for the close may leave it, and nothing that was
/// answered is lost. Once the disk works again, the close ends.
#[tokio::test(start_paused = true)]
async fn a_close_can_be_left_while_the_disk_does_not_sync() -> Result {
    let home = Home::new()?;
    let disk = Arc::new(PowerCutDisk::new());
    let (store, _control) = open(home.path(), options_on(&disk))?;
    append(&store, "one", NONE, "answered").await?;
    disk.hold_syncs(true);
    let (inbox, sent) = (store.inbox.clone(), input("one", "not answered")?);
    let putting = tokio::spawn(async move { inbox.put(&sent).await });
    let held = Arc::clone(&disk);
    tokio::task::spawn_blocking(move || held.wait_for_held_sync()).await?;
    let left = timeout(Duration::from_secs(30), store.health.close()).await;
    assert!(left.is_err(), "it says that it is closed, and its last sync has not ended");
    assert!(!putting.is_finished(), "an input is answered that is not synced");

    disk.hold_syncs(false);
    home.close(store).await;
    let answered = putting.await?;
    disk.cut_power(&mut ChaCha8Rng::seed_from_u64(1));
    let (store, _control) = open(home.path(), options_on(&disk))?;
    assert_eq!(texts(&store, "one").await?, ["answered"]);
    let waiting = store.inbox.pending(entity("one")).await?;
    assert!(waiting == 1 || answered.is_err(), "an answered input is lost");
    home.close(store).await;
    Ok(())
}

#[tokio::test]
async fn a_failed_sync_ends_the_store() -> Result {
    let home = Home::new()?;
    let disk = Arc::new(PowerCutDisk::new());
    let mut options = options();
    options.disk = Some(Arc::clone(&disk));
    let (store, control) = open(home.path(), options.clone())?;
    let first = append(&store, "one", NONE, "first").await?;
    let mut consumer = store.inbox.consume(entity("one").partition(store.partitions), 0).await?;
    disk.fail_syncs(true, 7);
    let write = Write { bytes: Bytes::from_static(b"second"), rollup: false };
    let answer = store.journal.append(entity("one"), first, write).await;
    let is_closed = |error: &StoreError| matches!(error, StoreError::Closed { .. });
    assert!(matches!(&answer, AppendAnswer::Unknown(error) if is_closed(error)), "{answer:?}");
    let why = control.fatal().await;
    assert!(why.contains("sync"), "{why}");
    assert_eq!(store.health.ready().await, Err(why));
    assert!(is_closed(&consumer.next().await.expect_err("closed")));
    assert!(is_closed(&store.inbox.put(&input("one", "x")?).await.expect_err("closed")));
    assert!(is_closed(&store.journal.read(entity("one"), NONE).await.expect_err("closed")));
    assert!(is_closed(&store.bucket.get("x").await.expect_err("closed")));
    assert!(is_closed(&store.blobs.list().await.expect_err("closed")));
    assert!(store.bus.publish("a".to_owned(), None, Bytes::new()).await.is_err());
    home.close(store).await;
    drop((consumer, control));
    disk.fail_syncs(false, 7);
    disk.cut_power(&mut ChaCha8Rng::seed_from_u64(7));
    let (store, _control) = open(home.path(), options)?;
    assert_eq!(texts(&store, "one").await?[0], "first");
    home.close(store).await;
    Ok(())
}

/// LOC-1: what the page cache keeps after a failed sync is no base to write on.
#[tokio::test]
async fn a_failed_sync_and_a_restart_leave_no_hole() -> Result {
    for seed in 0..30 {
        let home = Home::new()?;
        let disk = Arc::new(PowerCutDisk::new());
        let (store, control) = open(home.path(), options_on(&disk))?;
        let first = append(&store, "one", NONE, &long("first")).await?;
        let synced = bytes_of_log(&disk);
        disk.fail_syncs(true, seed);
        let write = Write { bytes: Bytes::from(long("second")), rollup: false };
        let answer = store.journal.append(entity("one"), first, write).await;
        assert!(matches!(answer, AppendAnswer::Unknown(_)), "{answer:?}");
        control.fatal().await;
        home.close(store).await;
        disk.fail_syncs(false, 0);
        assert_eq!(bytes_of_log(&disk), synced, "what was not synced is taken back");

        let (store, _control) = open(home.path(), options_on(&disk))?;
        let position = store.journal.position(entity("one")).await?;
        append(&store, "one", position, &long("third")).await?;
        append(&store, "two", NONE, &long("another")).await?;
        let expected = texts(&store, "one").await?;
        home.close(store).await;
        if seed % 2 == 0 {
            disk.drop_cache();
        } else {
            disk.cut_power(&mut ChaCha8Rng::seed_from_u64(seed));
        }
        std::fs::remove_dir_all(home.path().join("index"))?;
        let (store, _control) = open(home.path(), options_on(&disk))
            .map_err(|error| format!("seed {seed}: {error}"))?;
        assert_eq!(texts(&store, "one").await?, expected, "seed {seed}");
        assert_eq!(texts(&store, "two").await?, [long("another")], "seed {seed}");
        home.close(store).await;
    }
    Ok(())
}

/// The same where what was not synced could not be taken back: the process dies with the error.
#[tokio::test]
async fn pages_that_a_failed_sync_left_clean_are_written_again() -> Result {
    for seed in 0..30 {
        let home = Home::new()?;
        let disk = Arc::new(PowerCutDisk::new());
        let (store, _control) = open(home.path(), options_on(&disk))?;
        append(&store, "one", NONE, &long("first")).await?;
        let write = Write { bytes: Bytes::from(long("second")), rollup: false };
        // The write, and the sync: the process is killed between the two.
        disk.fail_after(2, DiskFault::Kill, seed);
        let first = store.journal.position(entity("one")).await?;
        let answer = store.journal.append(entity("one"), first, write).await;
        assert!(matches!(answer, AppendAnswer::Unknown(_)), "{answer:?}");
        home.close(store).await;

        // Nothing is served before it is on the disk, and a start that fails serves nothing.
        disk.fail_after(1, DiskFault::FailedSync, seed);
        let error = open(home.path(), options_on(&disk)).expect_err("the disk fails");
        assert!(matches!(error, OpenError::Unsynced { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains(".seg` durable") && text.contains("start again"), "{text}");

        let (store, _control) = open(home.path(), options_on(&disk))?;
        let served = texts(&store, "one").await?;
        assert_eq!(served, [long("first"), long("second")], "the page cache has it");
        // Without a word in between: nothing else is synced.
        disk.cut_power(&mut ChaCha8Rng::seed_from_u64(seed));
        home.close(store).await;
        let (store, _control) = open(home.path(), options_on(&disk))?;
        assert_eq!(texts(&store, "one").await?, served, "seed {seed}: it was shown");
        home.close(store).await;
    }
    Ok(())
}

/// The same for the head of a segment and its name.
#[tokio::test]
async fn a_segment_that_was_begun_is_made_durable() -> Result {
    // A start makes the segment: it writes the head, syncs it, and syncs its name.
    for (change, seed) in (1..8).flat_map(|change| (0..8).map(move |seed| (change, seed))) {
        let home = Home::new()?;
        let disk = Arc::new(PowerCutDisk::new());
        disk.fail_after(change, DiskFault::Kill, seed);
        if let Ok((store, _control)) = open(home.path(), options_on(&disk)) {
            home.close(store).await;
        }
        disk.kill();
        let (store, _control) = open(home.path(), options_on(&disk))?;
        append(&store, "one", NONE, "answered").await?;
        disk.cut_power(&mut ChaCha8Rng::seed_from_u64(seed));
        home.close(store).await;
        let (store, _control) = open(home.path(), options_on(&disk))?;
        assert_eq!(texts(&store, "one").await?, ["answered"], "change {change}, seed {seed}");
        home.close(store).await;
    }
    Ok(())
}

/// Reads are served from a disk without a free byte, and messages as soon as there is room.
#[tokio::test]
async fn a_start_needs_no_free_byte() -> Result {
    for index_too in [false, true] {
        let home = Home::new()?;
        let disk = Arc::new(PowerCutDisk::new());
        let mut options = options_on(&disk);
        options.head_room = 64 << 20;
        let (store, _control) = open(home.path(), options.clone())?;
        append(&store, "one", NONE, "first").await?;
        store.inbox.put(&input("one", "waits")?).await?;
        home.close(store).await;
        if index_too {
            // What the last rebuild left is the first to go.
            std::fs::rename(home.path().join("index"), home.path().join("index.old"))?;
        }

        disk.set_free(Some(0));
        let (store, _control) = open(home.path(), options.clone())?;
        for name in ["index", "index.old"] {
            assert!(!home.path().join(name).exists(), "`{name}` is given up");
        }
        assert!(store.health.ready().await.is_err(), "it says so before anybody asks for more");
        assert_eq!(store.health.warnings().await[0].name, "local.disk_full");
        assert_eq!(texts(&store, "one").await?, ["first"]);
        assert_eq!(store.inbox.read(entity("one"), NONE).await?.len(), 1);
        let refused = store.inbox.put(&input("one", "too much")?).await.expect_err("full");
        assert!(matches!(refused, StoreError::Full { .. }), "{refused}");

        disk.set_free(None);
        while store.health.ready().await.is_err() {
            tokio::task::yield_now().await;
        }
        store.inbox.put(&input("one", "in time")?).await?;
        home.close(store).await;
        let (store, _control) = open(home.path(), options)?;
        assert_eq!(store.inbox.read(entity("one"), NONE).await?.len(), 2);
        assert!(home.path().join("index").exists(), "it is built again where there is room");
        home.close(store).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_disk_that_fills_up_is_noticed_without_a_message() -> Result {
    let home = Home::new()?;
    let disk = Arc::new(PowerCutDisk::new());
    let mut options = options_on(&disk);
    options.head_room = 64 << 20;
    let (store, _control) = open(home.path(), options)?;
    store.health.ready().await?;
    disk.set_free(Some(32 << 20));
    // Nothing is sent.
    while store.health.ready().await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert_eq!(store.health.warnings().await[0].name, "local.disk_full");
    home.close(store).await;
    Ok(())
}
