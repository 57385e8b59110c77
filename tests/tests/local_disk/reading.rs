//! What takes long is read on a thread that may wait.

use futures_util::FutureExt;

use crate::support::{Home, NONE, Result, append, entity, input, job};

/// A read that is over at its first look has held the worker all the while. The only thread that may wait is busy
/// meanwhile, so no long one can be over by then.
#[test]
fn long_reads_hold_no_worker_and_short_ones_need_no_other_thread() -> Result {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_all().max_blocking_threads(1).build().unwrap().block_on(reads())
}

async fn reads() -> Result {
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

    let (release, held) = std::sync::mpsc::channel::<()>();
    let busy = tokio::task::spawn_blocking(move || held.recv());
    assert!(store.journal.read(entity("few"), NONE).now_or_never().is_some());
    assert!(store.inbox.read(entity("few"), NONE).now_or_never().is_some());
    assert!(store.bucket.list("many.7.").now_or_never().is_some());
    assert!(store.journal.read(entity("many"), NONE).now_or_never().is_none());
    assert!(store.inbox.read(entity("many"), NONE).now_or_never().is_none());
    assert!(store.bucket.list("many").now_or_never().is_none());
    assert!(store.jobs.list().now_or_never().is_none());

    release.send(())?;
    busy.await??;
    assert_eq!(store.journal.read(entity("many"), NONE).await?.len(), 200);
    assert_eq!(store.inbox.read(entity("many"), NONE).await?.len(), 200);
    assert_eq!(store.bucket.list("many").await?.len(), 200);
    assert_eq!(store.jobs.list().await?.len(), 200);
    home.close(store).await;
    Ok(())
}
