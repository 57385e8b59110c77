//! What was answered survives power cuts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Storage, Timer, Write};
use clawnode_local::{DiskFault, LocalBug, LocalControl, OpenError, PowerCutDisk, open};
use clawnode_proto::{Digest, EntityId, Input, JobId, Position, TimerId, job::Job};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinSet;

use crate::support::{FAR, NONE, Result, entity, input, job, options};

/// What one writer was answered, and what it asked last, whose answer it did not get.
#[derive(Debug, Default)]
struct Told {
    journal: Vec<(Position, Bytes)>,
    inputs: BTreeMap<Position, Vec<u8>>,
    acked: BTreeSet<Position>,
    value: Option<(Position, Bytes)>,
    timers: BTreeSet<TimerId>,
    blobs: Vec<Digest>,
    /// Jobs that wait, and those that were acknowledged, which may not have been stored.
    jobs: BTreeSet<JobId>,
    done: BTreeSet<JobId>,
    unsure: Option<Asked>,
}

#[derive(Clone, Debug)]
enum Asked {
    Append(Bytes, bool),
    Put(Vec<u8>),
    Value(Option<Bytes>),
    Timer(TimerId),
    Blob,
    Job(JobId),
}

/// Random work by several writers until the power goes, the process is killed or a sync fails,
/// several times over.
async fn survive(seed: u64, planted: Option<LocalBug>) -> Result {
    const WRITERS: u64 = 4;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let disk = Arc::new(PowerCutDisk::new());
    let dir = tempfile::tempdir()?;
    let mut told: Vec<Told> = (0..WRITERS).map(|_| Told::default()).collect();
    for life in 0..6 {
        let mut options = options();
        options.disk = Some(Arc::clone(&disk));
        options.planted = planted;
        options.segment_bytes = 8 << 10;
        if rng.random_bool(0.4) && dir.path().join("index").exists() {
            std::fs::remove_dir_all(dir.path().join("index"))?;
        }
        // The fault may come while the log is being opened, too.
        let fault =
            [DiskFault::PowerCut, DiskFault::Kill, DiskFault::FailedSync][rng.random_range(0..3)];
        disk.fail_after(rng.random_range(1..150), fault, rng.random());
        let (store, control) = match open(dir.path(), options) {
            Ok(opened) => opened,
            Err(OpenError::Io { .. } | OpenError::Unsynced { .. }) => continue,
            Err(error) => return Err(format!("seed {seed}, life {life}: {error}").into()),
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
        if rng.random_bool(0.3) {
            disk.drop_cache();
        }
    }
    let mut options = options();
    // Whatever was left of an armed cut is gone with the last one.
    disk.cut_power(&mut rng);
    options.disk = Some(Arc::clone(&disk));
    options.segment_bytes = 8 << 10;
    let (store, _control) =
        open(dir.path(), options).map_err(|error| format!("seed {seed}, at the end: {error}"))?;
    let checked = check(&store, &mut told).await;
    store.health.close().await;
    checked.map_err(|error| format!("seed {seed}, at the end: {error}").into())
}

/// Whether the store has failed. Its callers may hear of it before it says why.
async fn control_failed(control: &LocalControl) -> bool {
    tokio::time::timeout(std::time::Duration::from_secs(5), control.fatal()).await.is_ok()
}

/// One writer's random work until the store ends, or enough is done.
async fn work(
    store: &Storage,
    control: &LocalControl,
    writer: u64,
    mut told: Told,
    mut rng: ChaCha8Rng,
) -> Result<Told> {
    let key = format!("writer{writer}");
    let entity = entity(&key);
    for step in 0..200 {
        let bytes = Bytes::from(format!("{writer}/{step}/").repeat(rng.random_range(1..60)));
        let asked = match rng.random_range(0..15) {
            0..4 => Asked::Append(bytes, rng.random_bool(0.15)),
            4..7 => Asked::Put(input(&key, &rng.random::<u64>().to_string())?.to_bytes()?),
            7 => Asked::Value((rng.random_bool(0.8) || told.value.is_none()).then_some(bytes)),
            8 => Asked::Timer(TimerId::from_u128(rng.random())),
            9 => Asked::Blob,
            10 => {
                acknowledge(store, entity, &mut told).await?;
                continue;
            }
            // Few, so that they are put again, while they wait and after.
            11..13 => Asked::Job(JobId::from_u128(rng.random_range(0..6))),
            13 => {
                acknowledge_job(store, &key, &mut told).await?;
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
async fn ask(store: &Storage, key: &str, told: &mut Told, asked: &Asked) -> Result<bool> {
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
        Asked::Job(id) => {
            let job = Job { capability: key.parse()?, ..job(id.as_u128())? };
            if store.jobs.put(&job).await.is_err() {
                return Ok(false);
            }
            told.jobs.insert(*id);
            told.done.remove(id);
        }
    }
    Ok(true)
}

/// Takes one delivery of the partition and acknowledges it, if it is this writer's.
async fn acknowledge(store: &Storage, entity: EntityId, told: &mut Told) -> Result {
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

/// Takes one of the writer's jobs and acknowledges it.
async fn acknowledge_job(store: &Storage, key: &str, told: &mut Told) -> Result {
    let mut consumer = store.jobs.consume(&key.parse()?).await?;
    let look = std::time::Duration::from_millis(1);
    if let Ok(Ok(delivery)) = tokio::time::timeout(look, consumer.next()).await
        && delivery.handle.ack().await.is_ok()
    {
        told.jobs.remove(&delivery.job_id);
        told.done.insert(delivery.job_id);
    }
    Ok(())
}

/// Compares the writer's jobs that wait with what was answered.
async fn check_jobs(store: &Storage, key: &str, told: &mut Told, unsure: Option<&Asked>) -> Result {
    let mut waiting = BTreeSet::new();
    for bytes in store.jobs.list().await? {
        let job = Job::from_bytes(&bytes)?;
        if job.capability.as_str() == key && !waiting.insert(job.id) {
            return Err(format!("{key}: {} waits twice", job.id).into());
        }
    }
    for id in &waiting {
        let is_unsure = matches!(unsure, Some(Asked::Job(put)) if put == id);
        if !told.jobs.contains(id) && !told.done.contains(id) && !is_unsure {
            return Err(format!("{key}: {id} waits, and was never put").into());
        }
    }
    if let Some(id) = told.jobs.difference(&waiting).next() {
        return Err(format!("{key}: {id} is lost").into());
    }
    told.jobs = waiting;
    told.done.clear();
    Ok(())
}

/// Compares what is there with what was answered, and learns what became of the last request.
async fn check(store: &Storage, told: &mut [Told]) -> Result {
    for (writer, told) in told.iter_mut().enumerate() {
        let key = format!("writer{writer}");
        let entity = entity(&key);
        // Kept until all is read: the store may fail before.
        let unsure = told.unsure.clone();
        check_jobs(store, &key, told, unsure.as_ref()).await?;
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
                return Err(format!("{key}: an input at {position} that was never put").into());
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
        told.unsure = None;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_survives_power_cuts_kills_and_failed_syncs() -> Result {
    for seed in 0..40 {
        survive(seed, None).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_before_the_sync_is_found_by_power_cuts() {
    for seed in 0..40 {
        if let Err(error) = survive(seed, Some(LocalBug::AnswerBeforeSync)).await {
            let error = error.to_string();
            let is_loss = ["told", "lost"].iter().any(|word| error.contains(word));
            assert!(is_loss, "the planted bug loses what was answered, but: {error}");
            return;
        }
    }
    panic!("LOC-1: the planted bug went unseen");
}
