//! The local substrate on disks that lose power, fill up, rot and fail.
//!
//! Needs `strace` for the system-call test.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use bytes::Bytes;
use clawnode_cluster::{
    AppendAnswer, StoreError, Substrate, SystemClock, Timer, Write,
    local::{
        LocalControl, LocalOptions, OpenError, Planted, PowerCutDisk, open, open_read_only, repair,
    },
};
use clawnode_proto::{
    Digest, EntityId, Input, Kind, Position, TimerId, Timestamp, subject::Prefix,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;
use tokio::task::JoinSet;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

const NONE: Position = Position(0);
/// Beyond the end of any test.
const FAR: Timestamp = Timestamp(u64::MAX / 2);
/// Tells a re-executed test binary which directory it is to work on.
const CHILD_DIR: &str = "CLAWNODE_TEST_DIR";
/// Tells it to have the planted bug.
const CHILD_PLANTED: &str = "CLAWNODE_TEST_PLANTED";

// === power cuts ===

/// What one writer was answered, and what it asked last, whose answer it did not get.
#[derive(Debug, Default)]
struct Told {
    journal: Vec<(Position, Bytes)>,
    inputs: BTreeMap<Position, Vec<u8>>,
    acked: BTreeSet<Position>,
    value: Option<(Position, Bytes)>,
    timers: BTreeSet<TimerId>,
    blobs: Vec<Digest>,
    unsure: Option<Asked>,
}

#[derive(Debug)]
enum Asked {
    Append(Bytes, bool),
    Put(Vec<u8>),
    Value(Option<Bytes>),
    Timer(TimerId),
    Blob,
}

/// Random work by several writers until the power goes, several times over.
async fn survive(seed: u64, planted: Option<Planted>) -> Result {
    const WRITERS: u64 = 4;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let disk = Arc::new(PowerCutDisk::new());
    let dir = tempfile::tempdir()?;
    let mut told: Vec<Told> = (0..WRITERS).map(|_| Told::default()).collect();
    for life in 0..4 {
        let mut options = options();
        options.disk = Some(Arc::clone(&disk));
        options.planted = planted;
        options.segment_bytes = 8 << 10;
        if rng.random_bool(0.4) && dir.path().join("index").exists() {
            std::fs::remove_dir_all(dir.path().join("index"))?;
        }
        // The power may go while the log is being opened, too.
        disk.cut_after(rng.random_range(1..150), rng.random());
        let (store, control) = match open(dir.path(), options) {
            Ok(opened) => opened,
            Err(OpenError::Io { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let checked = check(&store, &mut told).await;
        if let Err(error) = checked {
            if !control_failed(&control).await {
                return Err(format!("seed {seed}, life {life}: {error}").into());
            }
            store.health.close().await;
            continue;
        }
        let mut writers = JoinSet::new();
        for (writer, told) in (0..WRITERS).zip(std::mem::take(&mut told)) {
            let rng = ChaCha8Rng::seed_from_u64(rng.random());
            let (store, control) = (store.clone(), control.clone());
            writers.spawn(async move { (writer, work(&store, &control, writer, told, rng).await) });
        }
        let mut ended = BTreeMap::new();
        while let Some(writer) = writers.join_next().await {
            let (writer, told) = writer?;
            ended.insert(writer, told?);
        }
        told = ended.into_values().collect();
        store.health.close().await;
    }
    let mut options = options();
    // Whatever was left of an armed cut is gone with the last one.
    disk.cut_power(&mut rng);
    options.disk = Some(Arc::clone(&disk));
    options.segment_bytes = 8 << 10;
    let (store, _control) = open(dir.path(), options)?;
    let checked = check(&store, &mut told).await;
    store.health.close().await;
    checked.map_err(|error| format!("seed {seed}, at the end: {error}").into())
}

/// Whether the store has failed by now.
async fn control_failed(control: &LocalControl) -> bool {
    tokio::time::timeout(std::time::Duration::from_millis(100), control.fatal()).await.is_ok()
}

/// One writer's random work until the store ends, or enough is done.
async fn work(
    store: &Substrate,
    control: &LocalControl,
    writer: u64,
    mut told: Told,
    mut rng: ChaCha8Rng,
) -> Result<Told> {
    let key = format!("writer{writer}");
    let entity = entity(&key);
    for step in 0..200 {
        let bytes = Bytes::from(format!("{writer}/{step}/").repeat(rng.random_range(1..60)));
        let asked = match rng.random_range(0..12) {
            0..4 => Asked::Append(bytes, rng.random_bool(0.15)),
            4..7 => Asked::Put(input(&key, &rng.random::<u64>().to_string())?.to_bytes()?),
            7 => Asked::Value((rng.random_bool(0.8) || told.value.is_none()).then_some(bytes)),
            8 => Asked::Timer(TimerId::from_u128(rng.random())),
            9 => Asked::Blob,
            10 => {
                acknowledge(store, entity, &mut told).await?;
                continue;
            }
            _ if writer == 0 => {
                if control.checkpoint().await.is_err() {
                    return Ok(told);
                }
                continue;
            }
            _ => continue,
        };
        if !ask(store, &key, &mut told, &asked).await? {
            told.unsure = Some(asked);
            return Ok(told);
        }
    }
    Ok(told)
}

/// Asks for one thing; `false` if the answer did not come.
async fn ask(store: &Substrate, key: &str, told: &mut Told, asked: &Asked) -> Result<bool> {
    let entity = entity(key);
    match asked {
        Asked::Append(bytes, rollup) => {
            let expected = told.journal.last().map_or(NONE, |(position, _)| *position);
            let write = Write { bytes: bytes.clone(), rollup: *rollup };
            match store.journal.append(entity, expected, write).await {
                AppendAnswer::Stored(position) => {
                    if *rollup {
                        told.journal.clear();
                    }
                    told.journal.push((position, bytes.clone()));
                }
                AppendAnswer::Unknown(_) => return Ok(false),
                other => return Err(format!("{key} was answered {other:?}").into()),
            }
        }
        Asked::Put(bytes) => match store.inbox.put(&Input::from_bytes(bytes)?).await {
            Ok(position) => drop(told.inputs.insert(position, bytes.clone())),
            Err(_) => return Ok(false),
        },
        Asked::Value(value) => {
            let expected = told.value.as_ref().map_or(NONE, |(position, _)| *position);
            match value {
                Some(value) => match store.bucket.put(key, expected, value.clone(), None).await {
                    Ok(position) => told.value = Some((position, value.clone())),
                    Err(_) => return Ok(false),
                },
                None => match store.bucket.delete(key, expected).await {
                    Ok(()) => told.value = None,
                    Err(_) => return Ok(false),
                },
            }
        }
        Asked::Timer(id) => {
            let timer = Timer { id: *id, due: FAR, input: input(key, "timer")? };
            if store.timers.set(&timer).await.is_err() {
                return Ok(false);
            }
            told.timers.insert(*id);
        }
        Asked::Blob => {
            let content = Bytes::from(format!("{key} blob {}", told.blobs.len()));
            match store.blobs.put(content).await {
                Ok(digest) => told.blobs.push(digest),
                Err(_) => return Ok(false),
            }
        }
    }
    Ok(true)
}

/// Takes one delivery of the partition and acknowledges it, if it is this writer's.
async fn acknowledge(store: &Substrate, entity: EntityId, told: &mut Told) -> Result {
    let mut consumer = store.inbox.consume(entity.partition(store.partitions), 0).await?;
    let look = std::time::Duration::from_millis(1);
    if let Ok(Ok(delivery)) = tokio::time::timeout(look, consumer.next()).await
        && delivery.entity == entity
        && delivery.handle.ack().await.is_ok()
    {
        told.acked.insert(delivery.position);
    }
    Ok(())
}

/// Compares what is there with what was answered, and learns what became of the last request.
async fn check(store: &Substrate, told: &mut [Told]) -> Result {
    for (writer, told) in told.iter_mut().enumerate() {
        let key = format!("writer{writer}");
        let entity = entity(&key);
        let unsure = told.unsure.take();
        let journal: Vec<_> = store.journal.read(entity, NONE).await?;
        let journal: Vec<_> = journal.into_iter().map(|r| (r.position, r.bytes)).collect();
        if journal != told.journal {
            let Some(Asked::Append(bytes, rollup)) = &unsure else {
                return Err(
                    format!("{key}: journal is {journal:?}, told {:?}", told.journal).into()
                );
            };
            let before = if *rollup { &[][..] } else { &told.journal[..] };
            let is_taken = journal
                .split_last()
                .is_some_and(|(last, others)| others == before && last.1 == *bytes);
            if !is_taken {
                return Err(
                    format!("{key}: journal is {journal:?}, told {:?}", told.journal).into()
                );
            }
            told.journal = journal;
        }
        let waiting: BTreeMap<_, _> = (store.inbox.read(entity, NONE).await?.into_iter())
            .map(|waiting| (waiting.position, waiting.bytes.to_vec()))
            .collect();
        for (position, bytes) in &waiting {
            let is_unsure = matches!(&unsure, Some(Asked::Put(put)) if put == bytes);
            if told.inputs.get(position) != Some(bytes) && !is_unsure {
                return Err(format!("{key}: an input at {position} that nobody put").into());
            }
        }
        for position in told.inputs.keys() {
            if !waiting.contains_key(position) && !told.acked.contains(position) {
                return Err(format!("{key}: the input at {position} is lost").into());
            }
        }
        told.inputs = waiting;
        told.acked.clear();
        let value = store.bucket.get(&key).await?.map(|entry| (entry.position, entry.value));
        if value != told.value {
            let found = value.as_ref().map(|(_, value)| value);
            if !matches!(&unsure, Some(Asked::Value(asked)) if asked.as_ref() == found) {
                return Err(format!("{key}: value is {value:?}, told {:?}", told.value).into());
            }
            told.value = value;
        }
        let timers = store.timers.pending(entity.partition(store.partitions)).await?;
        let timers: BTreeSet<_> =
            timers.iter().filter(|t| t.input.entity == entity).map(|t| t.id).collect();
        if let Some(Asked::Timer(id)) = unsure
            && timers.contains(&id)
        {
            told.timers.insert(id);
        }
        if timers != told.timers {
            return Err(format!("{key}: timers are {timers:?}, told {:?}", told.timers).into());
        }
        for (n, digest) in told.blobs.iter().enumerate() {
            let content = store.blobs.get(*digest).await?;
            if content != Some(Bytes::from(format!("{key} blob {n}"))) {
                return Err(format!("{key}: blob {n} is lost").into());
            }
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_power_cuts() -> Result {
    for seed in 0..40 {
        survive(seed, None).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_before_the_sync_is_found_by_power_cuts() {
    for seed in 0..40 {
        if let Err(error) = survive(seed, Some(Planted::AnswerBeforeSync)).await {
            let error = error.to_string();
            let is_loss = ["told", "lost"].iter().any(|word| error.contains(word));
            assert!(is_loss, "the planted bug loses what was answered, but: {error}");
            return;
        }
    }
    panic!("LOC-1: the planted bug went unseen");
}

// === damage ===

#[tokio::test]
async fn a_torn_tail_is_cut() -> Result {
    for cut in [1, 30, 60] {
        let home = Home::new()?;
        let (store, _control) = home.open()?;
        let first = append(&store, "one", NONE, "first").await?;
        let second = append(&store, "one", first, "second").await?;
        append(&store, "one", second, "third, of which a part is missing").await?;
        home.close(store).await;
        let (path, mut bytes) = home.segment()?;
        bytes.truncate(bytes.len() - cut);
        std::fs::write(&path, &bytes)?;
        let (store, _control) = home.open()?;
        assert_eq!(texts(&store, "one").await?, ["first", "second"], "{cut} bytes missing");
        append(&store, "one", second, "third again").await?;
        home.close(store).await;
        // Garbage after the last record is a tail, too.
        let (path, mut bytes) = home.segment()?;
        bytes.extend_from_slice(b"CLR1 begun, and never ended");
        std::fs::write(&path, &bytes)?;
        let (store, _control) = home.open()?;
        assert_eq!(texts(&store, "one").await?, ["first", "second", "third again"]);
        home.close(store).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_damaged_body_costs_one_entity() -> Result {
    for index_too in [false, true] {
        let home = Home::new()?;
        let (store, _control) = home.open()?;
        let first = append(&store, "one", NONE, "the needle").await?;
        let second = append(&store, "one", first, "second").await?;
        let other = append(&store, "two", NONE, "other").await?;
        home.close(store).await;
        let (path, mut bytes) = home.segment()?;
        let at = find(&bytes, b"needle").ok_or("the needle")?;
        bytes[at] ^= 1;
        std::fs::write(&path, &bytes)?;
        if index_too {
            std::fs::remove_dir_all(home.path().join("index"))?;
        }

        let (store, _control) = home.open()?;
        match store.journal.read(entity("one"), NONE).await {
            Err(StoreError::Corrupt { entity: found, position, detail }) => {
                assert_eq!((found, position), (entity("one"), first));
                assert!(detail.contains("offset"), "{detail}");
            }
            other => return Err(format!("expected damage, found {other:?}").into()),
        }
        let write = |rollup| Write { bytes: Bytes::from_static(b"x"), rollup };
        let answer = store.journal.append(entity("one"), second, write(false)).await;
        assert!(matches!(answer, AppendAnswer::Defect(_)), "{answer:?}");
        assert!(store.health.warnings().await.iter().any(|w| w.name == "local.damaged"));
        // The other is not concerned, and a rollup makes the first whole again.
        assert_eq!(texts(&store, "two").await?, ["other"]);
        append(&store, "two", other, "more").await?;
        let answer = store.journal.append(entity("one"), second, write(true)).await;
        assert!(matches!(answer, AppendAnswer::Stored(_)), "{answer:?}");
        assert_eq!(texts(&store, "one").await?, ["x"]);
        home.close(store).await;
        let (store, _control) = home.open()?;
        assert_eq!(texts(&store, "one").await?, ["x"]);
        home.close(store).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_damaged_header_refuses_to_open_until_repaired() -> Result {
    let home = Home::new()?;
    let (store, _control) = home.open()?;
    let first = append(&store, "one", NONE, "first").await?;
    append(&store, "one", first, "second").await?;
    append(&store, "two", NONE, "other").await?;
    home.close(store).await;
    let (path, mut bytes) = home.segment()?;
    let offset = find(&bytes, b"first").ok_or("the first record")? - 56;
    bytes[offset + 9] ^= 4;
    std::fs::write(&path, &bytes)?;

    for attempt in 0..2 {
        let error = home.open().expect_err("a damaged header is no log");
        let OpenError::Damaged { file, offset: found, .. } = &error else {
            return Err(format!("attempt {attempt}: {error}").into());
        };
        assert_eq!((file, *found), (&path, offset as u64));
        let text = error.to_string();
        assert!(text.contains("clawnode journal repair"), "{text}");
        assert!(text.contains(&offset.to_string()), "{text}");
    }
    let report = repair(home.path())?;
    assert_eq!(report.spans.len(), 1, "{report:?}");
    assert_eq!((report.spans[0].offset, report.records), (offset as u64, 2));
    assert_eq!(std::fs::read(&report.spans[0].kept)?.len() as u64, report.spans[0].len);
    assert_eq!(repair(home.path())?.spans, [], "what is sound is left alone");

    let (store, _control) = home.open()?;
    assert_eq!(texts(&store, "one").await?, ["second"]);
    assert_eq!(texts(&store, "two").await?, ["other"]);
    home.close(store).await;
    Ok(())
}

#[tokio::test]
async fn a_missing_or_damaged_index_is_built_anew() -> Result {
    type Harm = fn(&Path) -> std::io::Result<()>;
    let remove: Harm = |home| std::fs::remove_dir_all(home.join("index"));
    let garble: Harm = |home| {
        for entry in std::fs::read_dir(home.join("index"))? {
            let path = entry?.path();
            if path.is_file() {
                std::fs::write(path, [0xa5; 4_096])?;
            }
        }
        Ok(())
    };
    let empty: Harm = |home| std::fs::write(home.join("index").join("db"), []);
    let untrusted: Harm = |home| std::fs::write(home.join("index.state"), "open another boot");
    for (harm, name) in
        [(remove, "remove"), (garble, "garble"), (empty, "empty"), (untrusted, "untrusted")]
    {
        let home = Home::new()?;
        let (store, _control) = home.open()?;
        let expected = fill(&store).await?;
        home.close(store).await;
        harm(home.path())?;
        let (store, _control) = home.open()?;
        assert_eq!(everything(&store).await?, expected, "{name}");
        home.close(store).await;
    }
    Ok(())
}

// === cleaning ===

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

// === a full disk, a failing disk ===

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

// === who may open ===

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
    let mut child = spawn_child("child_holds_the_directory", home.path())?;
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
    std::fs::write(&path, text.replace("\"format\":1", "\"format\":2"))?;
    for error in
        [home.open().expect_err("too new"), open_read_only(home.path()).expect_err("too new")]
    {
        assert!(matches!(error, OpenError::TooNew { found: 2, supported: 1, .. }), "{error}");
    }
    std::fs::write(&path, text)?;
    let mut options = options();
    options.partitions = 4;
    let (store, _control) = open(home.path(), options)?;
    assert_eq!(store.partitions, 16, "a directory keeps what it was born with");
    home.close(store).await;
    Ok(())
}

// === system calls ===

/// Runs as a child under `strace`, or with a parent that kills it.
#[tokio::test]
async fn child_holds_the_directory() -> Result {
    let Some(dir) = std::env::var_os(CHILD_DIR) else { return Ok(()) };
    let mut options = options();
    options.planted = std::env::var_os(CHILD_PLANTED).map(|_| Planted::AnswerBeforeSync);
    let (store, _control) = open(Path::new(&dir), options)?;
    let mut last = NONE;
    let say = |text: &str| std::io::stderr().write_all(format!("{text}\n").as_bytes());
    for n in 0..20 {
        last = append(&store, "child", last, &format!("answered {n}")).await?;
        store.inbox.put(&input("child", &format!("input {n}"))?).await?;
        say(&format!("answered {n}"))?;
    }
    say("ready")?;
    // A parent that keeps this pipe open kills this process in a moment.
    std::io::stdin().read_line(&mut String::new())?;
    store.health.close().await;
    Ok(())
}

#[test]
fn every_answer_follows_a_sync() -> Result {
    let home = Home::new()?;
    let trace = trace(home.path(), false)?;
    let unsynced = unsynced_answers(&trace)?;
    assert_eq!(unsynced, Vec::<String>::new(), "LOC-1");
    Ok(())
}

#[test]
fn an_answer_before_the_sync_is_found_by_its_system_calls() -> Result {
    let home = Home::new()?;
    let trace = trace(home.path(), true)?;
    assert!(!unsynced_answers(&trace)?.is_empty(), "LOC-1: the planted bug went unseen");
    Ok(())
}

/// The system calls of a child's work.
fn trace(dir: &Path, planted: bool) -> Result<String> {
    let out = tempfile::NamedTempFile::new()?;
    let mut command = Command::new("strace");
    command
        .args(["-f", "-y", "-qq", "-e", "trace=fdatasync,fsync,write,pwrite64", "-o"])
        .arg(out.path())
        .arg(std::env::current_exe()?)
        .args(["--exact", "child_holds_the_directory", "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdin(Stdio::null());
    if planted {
        command.env(CHILD_PLANTED, "yes");
    }
    let ran = command.output().map_err(|error| format!("`strace` is needed here: {error}"))?;
    if !ran.status.success() {
        return Err(String::from_utf8_lossy(&ran.stderr).into_owned().into());
    }
    Ok(std::fs::read_to_string(out.path())?)
}

/// Answers that were given while a write to the log was not synced.
fn unsynced_answers(trace: &str) -> Result<Vec<String>> {
    let (mut written, mut answers, mut syncs) = (false, 0, 0);
    let mut unsynced = Vec::new();
    for line in trace.lines() {
        let is_sync = line.contains("fdatasync");
        if line.contains("pwrite64(") && line.contains(".seg>") {
            written = true;
        } else if is_sync && line.trim_end().ends_with("= 0") {
            written = false;
            syncs += 1;
        } else if line.contains("\"answered ") {
            answers += 1;
            if written {
                unsynced.push(line.to_owned());
            }
        }
    }
    if answers != 20 || syncs < 20 {
        return Err(format!("{answers} answers and {syncs} syncs in this trace:\n{trace}").into());
    }
    Ok(unsynced)
}

fn spawn_child(test: &str, dir: &Path) -> Result<Child> {
    let child = Command::new(std::env::current_exe()?)
        .args(["--exact", test, "--nocapture"])
        .env(CHILD_DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    Ok(child)
}

/// What a child says before `last`.
fn lines_until(child: &mut Child, last: &str) -> Result<Vec<String>> {
    let stderr = child.stderr.take().ok_or("its stderr")?;
    let mut lines = Vec::new();
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        if line == last {
            return Ok(lines);
        }
        lines.push(line);
    }
    Err(format!("the child ended after {lines:?}").into())
}

// === helpers ===

/// A data directory that goes with the test.
struct Home(TempDir);

impl Home {
    fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn open(&self) -> std::result::Result<(Substrate, LocalControl), OpenError> {
        open(self.path(), options())
    }

    async fn close(&self, store: Substrate) {
        store.health.close().await;
    }

    /// The last segment that holds a record.
    fn segment(&self) -> Result<(PathBuf, Vec<u8>)> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(self.path().join("log"))? {
            paths.push(entry?.path());
        }
        paths.sort();
        let path = paths.pop().ok_or("a segment")?;
        let bytes = std::fs::read(&path)?;
        Ok((path, bytes))
    }

    fn segments(&self) -> Result<usize> {
        Ok(std::fs::read_dir(self.path().join("log"))?.count())
    }

    /// All files and what is in them.
    fn tree(&self) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
        let mut tree = BTreeMap::new();
        let mut dirs = vec![self.path().to_owned()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir)? {
                let path = entry?.path();
                if path.is_dir() {
                    dirs.push(path);
                } else {
                    let bytes = std::fs::read(&path)?;
                    tree.insert(path, bytes);
                }
            }
        }
        Ok(tree)
    }
}

fn options() -> LocalOptions {
    let mut options = LocalOptions::new(Prefix::default(), Arc::new(SystemClock));
    options.segment_bytes = 16 << 10;
    options.head_room = 0;
    options
}

fn entity(key: &str) -> EntityId {
    EntityId::derive(Kind::Session, key)
}

fn input(key: &str, name: &str) -> Result<Input> {
    Ok(Input::new(Kind::Session, key, name.parse()?, Timestamp(1), &name)?)
}

async fn append(store: &Substrate, key: &str, expected: Position, text: &str) -> Result<Position> {
    let write = Write { bytes: Bytes::copy_from_slice(text.as_bytes()), rollup: false };
    match store.journal.append(entity(key), expected, write).await {
        AppendAnswer::Stored(position) => Ok(position),
        other => Err(format!("`{text}` was not stored: {other:?}").into()),
    }
}

async fn texts(store: &Substrate, key: &str) -> Result<Vec<String>> {
    let records = store.journal.read(entity(key), NONE).await?;
    Ok(records.iter().map(|r| String::from_utf8_lossy(&r.bytes).into_owned()).collect())
}

fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

/// A bit of everything, some of it dead; returns what should be found.
async fn fill(store: &Substrate) -> Result<Vec<String>> {
    for n in 0..30 {
        let key = format!("session{n}");
        let mut last = NONE;
        for step in 0..6 {
            let text = format!("{key} step {step} ").repeat(30);
            let write = Write { bytes: Bytes::from(text), rollup: n % 3 == 0 && step == 4 };
            match store.journal.append(entity(&key), last, write).await {
                AppendAnswer::Stored(position) => last = position,
                other => return Err(format!("{other:?}").into()),
            }
        }
        store.inbox.put(&input(&key, "done")?).await?;
        store.inbox.put(&input(&key, "open")?).await?;
        let value = store.bucket.put(&key, NONE, Bytes::from(key.clone()), None).await?;
        if n % 4 == 0 {
            store.bucket.delete(&key, value).await?;
        }
        let id = TimerId::from_u128(n);
        store.timers.set(&Timer { id, due: FAR, input: input(&key, "timer")? }).await?;
        if n % 5 == 0 {
            store.timers.cancel(entity(&key), id).await?;
        }
    }
    for partition in store.all_partitions() {
        let mut consumer = store.inbox.consume(partition, 0).await?;
        let mut held = 0;
        for waiting in store.inbox.scan(partition).await? {
            held += store.inbox.pending(waiting).await?;
        }
        for _ in 0..held {
            let delivery = consumer.next().await?;
            if Input::from_bytes(&delivery.bytes)?.idempotency_key.as_str() == "done" {
                delivery.handle.ack().await?;
            }
        }
    }
    store.blobs.put(Bytes::from_static(b"a blob")).await?;
    everything(store).await
}

/// Everything that a store says, as lines.
async fn everything(store: &Substrate) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for entity in store.journal.entities(None, 1_000).await? {
        for record in store.journal.read(entity, NONE).await? {
            lines.push(format!("journal {entity} {record:?}"));
        }
    }
    for partition in store.all_partitions() {
        for entity in store.inbox.scan(partition).await? {
            for waiting in store.inbox.read(entity, NONE).await? {
                lines.push(format!("input {entity} {waiting:?}"));
            }
        }
        for timer in store.timers.pending(partition).await? {
            lines.push(format!("timer {timer:?}"));
        }
    }
    for (key, entry) in store.bucket.list("").await? {
        lines.push(format!("value {key} {entry:?}"));
    }
    for digest in store.blobs.list().await? {
        lines.push(format!("blob {digest} {:?}", store.blobs.get(digest).await?));
    }
    Ok(lines)
}
