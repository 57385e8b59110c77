//! Segments in which nothing lives any more go, and nothing else does.

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Timer, Write};
use clawnode_proto::{TimerId, Timestamp, limits};
use clawnode_tests::wait::until;

use crate::support::{
    FAR, Home, NONE, Result, append, entity, everything, fill, find, input, options, texts,
};

/// LOC-3.
#[tokio::test]
async fn a_checkpoint_keeps_everything() -> Result {
    let home = Home::new()?;
    let (store, control) = home.open()?;
    let expected = fill(&store).await?;
    let before = home.segments()?;
    assert!(before > 3, "{before} segments");
    control.checkpoint().await?;
    assert!(home.segments()? < before, "dead segments are removed");
    assert_eq!(everything(&store).await?, expected, "at once");
    home.close(store).await;
    let (store, control) = home.open()?;
    assert_eq!(everything(&store).await?, expected, "after a restart");
    control.checkpoint().await?;
    control.checkpoint().await?;
    home.close(store).await;
    std::fs::remove_dir_all(home.path().join("index"))?;
    let (store, _control) = home.open()?;
    assert_eq!(everything(&store).await?, expected, "from the log alone");
    home.close(store).await;
    Ok(())
}

#[tokio::test]
async fn a_copied_fired_timer_does_not_take_back_a_new_one() -> Result {
    let home = Home::new()?;
    let (store, control) = home.open()?;
    let timer = |due| -> Result<Timer> {
        Ok(Timer { id: TimerId::from_u128(1), due, input: input("one", "timer")? })
    };
    store.timers.set(&timer(Timestamp(1))?).await?;
    let partition = entity("one").partition(store.partitions);
    let mut consumer = store.inbox.consume(partition, 0).await?;
    let fired = consumer.next().await?;
    store.timers.set(&timer(FAR)?).await?;
    control.checkpoint().await?;
    drop(consumer);
    home.close(store).await;
    std::fs::remove_dir_all(home.path().join("index"))?;
    let (store, _control) = home.open()?;
    assert_eq!(store.timers.pending(partition).await?, [timer(FAR)?]);
    let waiting = store.inbox.read(entity("one"), NONE).await?;
    assert_eq!(waiting.len(), 1);
    assert_eq!((waiting[0].position, &waiting[0].bytes), (fired.position, &fired.bytes));
    home.close(store).await;
    Ok(())
}

#[tokio::test]
async fn dead_segments_go_by_themselves() -> Result {
    let home = Home::new()?;
    let (store, control) = home.open()?;
    let mut last = NONE;
    for n in 0..400 {
        let write = Write { bytes: Bytes::from(format!("{n}").repeat(100)), rollup: true };
        match store.journal.append(entity("one"), last, write).await {
            AppendAnswer::Stored(position) => last = position,
            other => return Err(format!("{other:?}").into()),
        }
    }
    // Behind it in the queue: whatever cleaning was under way has ended.
    control.checkpoint().await?;
    let segments = home.segments()?;
    assert!(segments <= 2, "{segments} segments are left");
    assert_eq!(texts(&store, "one").await?, ["399".repeat(100)]);
    home.close(store).await;
    Ok(())
}

/// Offsets in a segment have 32 bits, so a segment must end even where only cleaning writes.
#[tokio::test]
async fn a_checkpoint_of_an_idle_store_begins_segments() -> Result {
    // What one step copies at most, and a record that goes beyond it.
    const STEP: u64 = (1 << 20) + limits::APPEND_BYTES as u64;
    let home = Home::new()?;
    let (store, control) = home.open()?;
    let text = "x".repeat(limits::APPEND_BYTES / 2);
    for n in 0..24 {
        append(&store, &format!("session{n}"), NONE, &text).await?;
    }
    control.checkpoint().await?;
    let mut longest = 0;
    for entry in std::fs::read_dir(home.path().join("log"))? {
        longest = longest.max(entry?.metadata()?.len());
    }
    let bound = u64::from(options().segment_bytes) + STEP;
    assert!(longest <= bound, "a segment of {longest} bytes, at most {bound}");
    assert_eq!(texts(&store, "session23").await?, [text]);
    home.close(store).await;
    Ok(())
}

/// Whether any file has this text. A segment may go while this looks.
fn has(home: &Home, text: &str) -> bool {
    let is_there = |bytes: &Vec<u8>| find(bytes, text.as_bytes()).is_some();
    home.tree().is_ok_and(|tree| tree.values().any(is_there))
}

#[tokio::test]
async fn a_cleaning_that_a_process_owed_is_made_by_the_next_one() -> Result {
    let home = Home::new()?;
    let note = home.path().join("cleaning");
    let (store, _control) = home.open()?;
    let secret = "the-walrus-was-paul";
    let first = append(&store, "one", NONE, secret).await?;
    let write = Write { bytes: Bytes::from_static(b"what is left"), rollup: true };
    let replaced = store.journal.append(entity("one"), first, write).await;
    assert!(matches!(replaced, AppendAnswer::Stored(_)), "{replaced:?}");
    assert!(!note.exists(), "nothing is owed yet");
    store.journal.scrub().await?;
    assert!(note.exists(), "the answer comes once the note is stored");
    // It ends before it cleans, unless this machine has slept for a second.
    home.close(store).await;
    assert_eq!(has(&home, secret), note.exists());

    let (store, control) = home.open()?;
    let gone = async || Ok((!has(&home, secret) && !note.exists()).then_some(()));
    until("a log without the text", gone).await?;
    assert_eq!(texts(&store, "one").await?, ["what is left"]);
    // A cleaning that no deletion asked for leaves no note, and needs none.
    control.checkpoint().await?;
    assert!(!note.exists());
    home.close(store).await;
    Ok(())
}
