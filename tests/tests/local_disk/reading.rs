//! What takes long is read on a thread that may wait.

use futures_util::FutureExt;

use crate::support::{Home, NONE, Result, append, entity, input, job};

/// A read that is over at its first look has held the worker all the while.
#[tokio::test]
async fn long_reads_hold_no_worker_and_short_ones_need_no_other_thread() -> Result {
    let home = Home::new()?;
    let (store, _control) = home.open()?;
    let mut last = NONE;
    for n in 0..200 {
        last = append(&store, "many", last, &format!("event {n}")).await?;
        store.inbox.put(&input("many", &format!("input {n}"))?).await?;
        store.bucket.put(&format!("many.{n}"), NONE, "value".into(), None).await?;
        store.jobs.put(&job(n)?).await?;
    }
    append(&store, "few", NONE, "event").await?;
    store.inbox.put(&input("few", "input")?).await?;

    assert!(store.journal.read(entity("few"), NONE).now_or_never().is_some());
    assert!(store.inbox.read(entity("few"), NONE).now_or_never().is_some());
    assert!(store.bucket.list("many.7.").now_or_never().is_some());
    assert!(store.journal.read(entity("many"), NONE).now_or_never().is_none());
    assert!(store.inbox.read(entity("many"), NONE).now_or_never().is_none());
    assert!(store.bucket.list("many").now_or_never().is_none());
    assert!(store.jobs.list().now_or_never().is_none());

    assert_eq!(store.journal.read(entity("many"), NONE).await?.len(), 200);
    assert_eq!(store.inbox.read(entity("many"), NONE).await?.len(), 200);
    assert_eq!(store.bucket.list("many").await?.len(), 200);
    assert_eq!(store.jobs.list().await?.len(), 200);
    home.close(store).await;
    Ok(())
}
