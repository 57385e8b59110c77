//! A data directory, and what the tests put into it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Storage, SystemClock, Timer, Write};
use clawnode_local::{LocalControl, LocalOptions, OpenError, open};
use clawnode_proto::{
    CallId, EntityId, EventId, Input, JobId, Kind, Position, TimerId, Timestamp, TurnId, job::Job,
    subject::Prefix, tool::EffectClass,
};
use tempfile::TempDir;

pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

pub(crate) const NONE: Position = Position(0);
/// Beyond the end of any test.
pub(crate) const FAR: Timestamp = Timestamp(u64::MAX / 2);

/// A data directory that goes with the test.
pub(crate) struct Home(TempDir);

impl Home {
    pub(crate) fn new() -> Result<Self> {
        Ok(Self(tempfile::tempdir()?))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn open(&self) -> std::result::Result<(Storage, LocalControl), OpenError> {
        open(self.path(), options())
    }

    pub(crate) async fn close(&self, store: Storage) {
        store.health.close().await;
    }

    /// The last segment that holds a record.
    pub(crate) fn segment(&self) -> Result<(PathBuf, Vec<u8>)> {
        let mut paths = Vec::new();
        for entry in std::fs::read_dir(self.path().join("log"))? {
            paths.push(entry?.path());
        }
        paths.sort();
        let path = paths.pop().ok_or("a segment")?;
        let bytes = std::fs::read(&path)?;
        Ok((path, bytes))
    }

    pub(crate) fn segments(&self) -> Result<usize> {
        Ok(std::fs::read_dir(self.path().join("log"))?.count())
    }

    /// All files and what is in them.
    pub(crate) fn tree(&self) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
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

pub(crate) fn options() -> LocalOptions {
    let mut options = LocalOptions::new(Prefix::default(), Arc::new(SystemClock));
    options.segment_bytes = 16 << 10;
    options.head_room = 0;
    options
}

pub(crate) fn entity(key: &str) -> EntityId {
    EntityId::derive(Kind::SESSION, key)
}

pub(crate) fn input(key: &str, name: &str) -> Result<Input> {
    Ok(Input::new(Kind::SESSION, key, name.parse()?, Timestamp(1), &name)?)
}

/// A job of one of two capabilities.
pub(crate) fn job(number: u128) -> Result<Job> {
    Ok(Job {
        id: JobId::from_u128(number),
        capability: ["exec", "mcp:files.v1"][usize::from(number % 2 == 1)].parse()?,
        session: "a:cli:local:p".parse()?,
        turn: TurnId::from_u128(1),
        call: CallId::from_u128(number),
        nonce: EventId::from_u128(1),
        tool: "tool".parse()?,
        arguments: format!("{{\"number\":{number}}}"),
        class: EffectClass::Safe,
        timeout_ms: 1_000,
        limit: None,
        action: None,
        callbacks: None,
        traceparent: None,
        not_after: None,
    })
}

pub(crate) async fn append(
    store: &Storage,
    key: &str,
    expected: Position,
    text: &str,
) -> Result<Position> {
    let write = Write { bytes: Bytes::copy_from_slice(text.as_bytes()), rollup: false };
    match store.journal.append(entity(key), expected, write).await {
        AppendAnswer::Stored(position) => Ok(position),
        other => Err(format!("`{text}` was not stored: {other:?}").into()),
    }
}

pub(crate) async fn texts(store: &Storage, key: &str) -> Result<Vec<String>> {
    let records = store.journal.read(entity(key), NONE).await?;
    Ok(records.iter().map(|r| String::from_utf8_lossy(&r.bytes).into_owned()).collect())
}

pub(crate) fn find(bytes: &[u8], needle: &[u8]) -> Option<usize> {
    bytes.windows(needle.len()).position(|window| window == needle)
}

/// A bit of everything, some of it dead; returns what should be found.
pub(crate) async fn fill(store: &Storage) -> Result<Vec<String>> {
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
    for number in 0..30 {
        store.jobs.put(&job(number)?).await?;
    }
    let mut consumer = store.jobs.consume(&job(0)?.capability).await?;
    for _ in 0..10 {
        let delivery = consumer.next().await?;
        // Some are done, the others stay in hand.
        if delivery.job_id.as_u128() % 3 == 0 {
            delivery.handle.ack().await?;
        }
    }
    store.blobs.put(Bytes::from_static(b"a blob")).await?;
    everything(store).await
}

/// Everything that a store says, as lines.
pub(crate) async fn everything(store: &Storage) -> Result<Vec<String>> {
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
    for job in store.jobs.list().await? {
        lines.push(format!("job {:?}", Job::from_bytes(&job)?));
    }
    for (key, entry) in store.bucket.list("").await? {
        lines.push(format!("value {key} {entry:?}"));
    }
    for digest in store.blobs.list().await? {
        lines.push(format!("blob {digest} {:?}", store.blobs.get(digest).await?));
    }
    Ok(lines)
}
