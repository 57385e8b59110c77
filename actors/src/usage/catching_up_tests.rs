//! Tests: a follower that is far behind.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use bytes::Bytes;
use clawnode_cluster::Record;
use clawnode_proto::{Position, Timestamp};

use super::{
    actor::round,
    stopped::CountingStopped,
    tests::{World, tokens},
};

#[tokio::test]
async fn a_stop_on_a_long_way_loses_a_minute_at_most() {
    let mut world = World::new(1_000);
    for turn in 0..60 {
        world.turn(&format!("m{turn}"), 10).await;
    }
    world.count_page_of(1, 0).await;
    for (seconds, is_saved) in [(10, false), (60, true)] {
        let since_saved = Some(Duration::from_secs(seconds));
        let round = round(&world.storage, Timestamp(1), &mut world.books, since_saved);
        let round = round.await.unwrap();
        assert_eq!((round.is_saved, round.is_more), (is_saved, true), "after {seconds} s");
    }
    // It stops: what is in memory is lost.
    world.books = None;
    let done = world.shown().await.total.done;
    assert!((1..60).contains(&done), "{done} calls are saved");
    world.count().await;
    world.save().await;
    assert_eq!(tokens(&world.shown().await), (60, 600, 0));
}

/// Each save counts what snapshots ahead have replaced so far. The feed up to its end is read once for that, and a
/// journal only when a record of it was missing since the save before.
#[tokio::test]
async fn saves_on_the_way_look_for_snapshots_once() {
    let mut world = World::new(20);
    world.run.stride = 32;
    for turn in 0..12 {
        world.turn(&format!("m{turn}"), 10).await;
    }
    assert!(!world.run.archives.is_empty());
    let archived = world.run.archives.iter().flat_map(|(records, _)| records);
    let own: BTreeSet<u64> =
        archived.chain(&world.run.journal).map(|record| record.position.0).collect();
    // All between records of the session are those of the other journal.
    let others = (1..=own.last().copied().unwrap()).filter(|at| !own.contains(at)).map(|at| {
        let bytes = Bytes::from_static(b"other");
        Record { position: Position(at), bytes }
    });
    *world.tape.others.lock().unwrap() = others.collect();
    world.count_page_of(8, 0).await;
    let mut saves = 0;
    loop {
        world.save().await;
        saves += 1;
        if !world.books().await.unwrap().count_page().await.unwrap() {
            break;
        }
    }
    let records = own.len();
    assert!(saves > 3 * records, "{saves} saves");
    let pages = world.tape.pages.load(Ordering::SeqCst);
    assert!(pages <= 2 * saves + 4, "{pages} pages were read for {saves} saves");
    let reads = world.tape.reads.load(Ordering::SeqCst);
    assert!(reads <= records + 4, "{reads} times a journal of {records} records was read");
    assert_eq!(tokens(&world.shown().await), (12, 120, 0));
}

/// A session of which a page was counted that lacks what a snapshot replaced; how many calls it has.
async fn lacking() -> (World, u64) {
    let mut world = World::new(20);
    for turn in 0..12 {
        world.turn(&format!("m{turn}"), 10).await;
    }
    assert!(!world.run.archives.is_empty());
    // It has records of the other journal alone.
    world.count_page_of(12, 0).await;
    (world, 12)
}

/// A leader of the store that was deposed may say that there is nothing more.
#[tokio::test]
async fn that_no_snapshot_is_ahead_is_not_believed_at_once() {
    let (mut world, calls) = lacking().await;
    world.tape.empty.store(1, Ordering::SeqCst);
    world.save().await;
    world.books = None;
    world.count().await;
    world.save().await;
    assert_eq!(tokens(&world.shown().await), (calls, 10 * calls, 0));
}

#[tokio::test]
async fn a_feed_that_grows_and_has_nothing_saves_nothing() {
    let (mut world, calls) = lacking().await;
    world.tape.empty.store(usize::MAX, Ordering::SeqCst);
    world.tape.grows.store(1, Ordering::SeqCst);
    let saved = world.books().await.unwrap().save(Timestamp(1)).await;
    assert!(matches!(saved, Err(CountingStopped::Store(_))), "{saved:?}");
    world.books = None;
    // What was removed at its end is not waited for.
    world.tape.grows.store(0, Ordering::SeqCst);
    world.books().await.unwrap().save(Timestamp(1)).await.unwrap();
    world.tape.empty.store(0, Ordering::SeqCst);
    world.count().await;
    world.save().await;
    assert_eq!(tokens(&world.shown().await), (calls, 10 * calls, 0));
}
