//! A disk that is full, and one that fails.

use std::sync::Arc;

use bytes::Bytes;
use clawnode_cluster::{
    AppendAnswer, StoreError, Write,
    local::{PowerCutDisk, open},
};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use crate::support::{Home, NONE, Result, append, entity, input, options, texts};

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

#[tokio::test]
async fn a_failed_sync_ends_the_store() -> Result {
    let home = Home::new()?;
    let disk = Arc::new(PowerCutDisk::new());
    let mut options = options();
    options.disk = Some(Arc::clone(&disk));
    let (store, control) = open(home.path(), options.clone())?;
    let first = append(&store, "one", NONE, "first").await?;
    let mut consumer = store.inbox.consume(entity("one").partition(store.partitions), 0).await?;
    disk.fail_syncs(true);
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
    disk.fail_syncs(false);
    disk.cut_power(&mut ChaCha8Rng::seed_from_u64(7));
    let (store, _control) = open(home.path(), options)?;
    assert_eq!(texts(&store, "one").await?[0], "first");
    home.close(store).await;
    Ok(())
}
