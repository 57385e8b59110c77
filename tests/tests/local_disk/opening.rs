//! Who may open a data directory.

use bytes::Bytes;
use clawnode_local::{OpenError, open, open_read_only, repair};

use crate::support::{Home, Result, everything, fill, input, options, texts};
use crate::system_calls::{lines_until, spawn_child};

#[tokio::test]
async fn a_second_open_is_told_who_holds_the_directory() -> Result {
    let home = Home::new()?;
    let (store, _control) = home.open()?;
    let me = format!("process {}", std::process::id());
    for error in [
        home.open().expect_err("held"),
        open_read_only(home.path()).expect_err("held"),
        repair(home.path()).expect_err("held"),
    ] {
        assert!(matches!(&error, OpenError::Held { holder, .. } if *holder == me), "{error}");
    }
    home.close(store).await;
    Ok(())
}

#[tokio::test]
async fn a_killed_process_leaves_the_directory_free_and_whole() -> Result {
    let home = Home::new()?;
    let mut child = spawn_child("system_calls::child_holds_the_directory", home.path())?;
    let pid = child.id();
    let answered = lines_until(&mut child, "ready")?;
    assert_eq!(answered.len(), 20);
    let error = home.open().expect_err("held by the child");
    let expected = format!("process {pid}");
    assert!(matches!(&error, OpenError::Held { holder, .. } if *holder == expected), "{error}");
    child.kill()?;
    // Opened before it is reaped: the lock is waited for.
    let reaper = std::thread::spawn(move || child.wait());
    let (store, _control) = home.open()?;
    reaper.join().map_err(|_panic| "the reaper panicked")??;
    assert_eq!(texts(&store, "child").await?, answered);
    home.close(store).await;
    Ok(())
}

#[tokio::test]
async fn a_stopped_directory_can_be_read_and_stays_as_it_is() -> Result {
    let home = Home::new()?;
    let error = open_read_only(home.path()).expect_err("nothing is there");
    assert!(matches!(error, OpenError::NotADataDirectory { .. }), "{error}");
    let (store, _control) = home.open()?;
    let expected = fill(&store).await?;
    home.close(store).await;
    let before = home.tree()?;
    let (store, control) = open_read_only(home.path())?;
    assert_eq!(everything(&store).await?, expected);
    let error = store.inbox.put(&input("one", "x")?).await.expect_err("read only");
    assert!(error.to_string().contains("reading only"), "{error}");
    assert!(store.blobs.put(Bytes::from_static(b"x")).await.is_err());
    assert!(control.checkpoint().await.is_err());
    let error = home.open().expect_err("a reader keeps nodes away");
    assert!(matches!(error, OpenError::Held { .. }), "{error}");
    store.health.close().await;
    assert_eq!(home.tree()?, before);
    let (store, _control) = home.open()?;
    home.close(store).await;
    Ok(())
}

#[tokio::test]
async fn a_newer_format_is_refused() -> Result {
    let home = Home::new()?;
    let (store, _control) = home.open()?;
    assert_eq!(store.partitions, 16);
    home.close(store).await;
    let path = home.path().join("format");
    let text = std::fs::read_to_string(&path)?;
    std::fs::write(&path, text.replace("\"format\":2", "\"format\":3"))?;
    for error in
        [home.open().expect_err("too new"), open_read_only(home.path()).expect_err("too new")]
    {
        assert!(matches!(error, OpenError::TooNew { found: 3, supported: 2, .. }), "{error}");
    }
    std::fs::write(&path, text)?;
    let mut options = options();
    options.partitions = 4;
    let (store, _control) = open(home.path(), options)?;
    assert_eq!(store.partitions, 16, "a directory keeps what it was born with");
    home.close(store).await;
    Ok(())
}

#[tokio::test]
async fn a_directory_of_the_first_format_is_taken_and_kept_from_older_programs() -> Result {
    let home = Home::new()?;
    let (store, _control) = home.open()?;
    let expected = fill(&store).await?;
    home.close(store).await;
    let path = home.path().join("format");
    let text = std::fs::read_to_string(&path)?;
    let older = text.replace("\"format\":2", "\"format\":1");
    assert_ne!(older, text);
    std::fs::write(&path, &older)?;
    let (store, _control) = open_read_only(home.path())?;
    assert_eq!(everything(&store).await?, expected);
    store.health.close().await;
    assert_eq!(std::fs::read_to_string(&path)?, older, "reading changes nothing");
    let (store, _control) = home.open()?;
    assert_eq!(everything(&store).await?, expected);
    assert_eq!(std::fs::read_to_string(&path)?, text);
    home.close(store).await;
    Ok(())
}
