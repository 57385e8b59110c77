//! Recorded journals: real ones, kept to be read by every later version.
//!
//! A recording is one entity, most often a session: its records as they were stored, the blobs that they name, and what
//! was known of it when it was recorded.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
};

use bytes::Bytes;
use clawnode_actors::session::{Session, Sessions, clients::session_list::SessionQuery};
use clawnode_budget::Budget;
use clawnode_cluster::{AppendAnswer, Record, Storage, SystemClock, Write};
use clawnode_kernel::{Entities, KnownKinds, archive, core::snapshot_blob};
use clawnode_local as local;
use clawnode_local::{LocalControl, LocalOptions};
use clawnode_memory::Memory;
use clawnode_proto::{
    Digest, EntityId, Grammar as _, Kind, Position, budget::BudgetEvent, event::decode_record,
    kernel::KernelEvent, memory_point::MemoryEvent, session::SessionEvent, subject::Prefix,
};
use serde::{Deserialize, Serialize};

/// Entities of one data directory that are recorded at most.
const ENTITIES_MOST: usize = 64;
/// Archives behind each other that are looked into.
const ARCHIVES_MOST: usize = 1_000;

/// A recorded entity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// How it came about.
    pub about: String,
    /// What was known of it.
    pub facts: Facts,
    pub entity: EntityId,
    /// Its records, oldest first, in hexadecimal.
    pub records: Vec<String>,
    /// The blobs that it needs, in hexadecimal.
    pub blobs: BTreeMap<String, String>,
}

/// What every reader must find again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Facts {
    /// Its state, as `sessions list` has it; or the kind, if it is no session.
    pub state: String,
    pub turns: u64,
    /// Its events, archived ones included.
    pub events: u64,
    /// Model requests that a replay compares.
    pub requests: u64,
}

// === impl Facts ===

impl Facts {
    /// What this build finds; an error if the journal is not sound, or would be replayed otherwise.
    pub async fn of(sessions: &Sessions, entity: EntityId) -> io::Result<Self> {
        let verdict = sessions.entities().verify(Some(entity)).await.map_err(io::Error::other)?;
        if let Some(problem) = verdict.journals.iter().find_map(|row| row.problem.as_ref()) {
            return Err(io::Error::other(format!("not sound: {problem}")));
        }
        let kind = verdict.journals.first().and_then(|row| row.kind).unwrap_or(Kind::UNTOLD);
        let events = verdict.journals.iter().map(|row| row.events).sum();
        if kind != Kind::SESSION {
            // It shows people nothing that could be compared.
            return Ok(Self { state: kind.to_string(), turns: 0, events, requests: 0 });
        }
        let replayed = sessions.entities().replay(entity).await;
        let (requests, problem) = replayed.ok_or_else(|| io::Error::other("no session"))?;
        if let Some(problem) = problem {
            return Err(io::Error::other(format!("replayed otherwise: {problem}")));
        }
        let mut rows = Vec::new();
        for state in [None, Some("deleted".to_owned())] {
            let wanted =
                SessionQuery { limit: 10, state, stateless: true, ..SessionQuery::default() };
            rows.extend(sessions.list(&wanted).await.map_err(io::Error::other)?.sessions);
        }
        let row = rows.iter().find(|row| row.id == entity);
        let row = row.ok_or_else(|| io::Error::other("the session is not listed"))?;
        Ok(Self { state: row.state.clone(), turns: row.turns, events, requests })
    }
}

// === impl Recording ===

impl Recording {
    /// Records the only session in a data directory that no node runs on.
    pub async fn take(about: &str, data: &Path) -> io::Result<Self> {
        let storage = read_only(data).await?;
        let all = storage.journal.entities(None, 2).await.map_err(io::Error::other)?;
        let &[entity] = &all[..] else {
            return Err(io::Error::other(format!("{} sessions instead of one", all.len())));
        };
        Self::of(&readers(storage), about, entity).await
    }

    /// Records all entities in a data directory that no node runs on, each with all blobs.
    pub async fn take_all(about: &str, data: &Path) -> io::Result<Vec<Self>> {
        let storage = read_only(data).await?;
        let journals = &storage.journal;
        let all = journals.entities(None, ENTITIES_MOST).await.map_err(io::Error::other)?;
        let sessions = readers(storage.clone());
        let mut recordings = Vec::new();
        for entity in all {
            let mut recording = Self::of(&sessions, about, entity).await?;
            let stored = storage.blobs.list().await.map_err(io::Error::other)?;
            recording.add(&storage, stored).await?;
            recordings.push(recording.checked().await?);
        }
        Ok(recordings)
    }

    /// Records a journal that was written elsewhere, with those of these blobs that it needs.
    pub async fn of_records(
        about: &str,
        entity: EntityId,
        records: &[Bytes],
        blobs: &BTreeMap<Digest, Bytes>,
    ) -> io::Result<Self> {
        let data = tempfile::tempdir()?;
        let (storage, control) = writable(data.path()).await?;
        for blob in blobs.values() {
            storage.blobs.put(blob.clone()).await.map_err(io::Error::other)?;
        }
        append(&storage, entity, records.iter().cloned()).await?;
        let recorded = Self::of(&readers(storage.clone()), about, entity).await;
        storage.health.close().await;
        drop((storage, control));
        recorded?.checked().await
    }

    /// An error if something is missing that a reader needs.
    async fn checked(self) -> io::Result<Self> {
        let data = tempfile::tempdir()?;
        let facts = self.put(data.path()).await?;
        if facts == self.facts {
            Ok(self)
        } else {
            Err(io::Error::other(format!("{facts:?} instead of {:?}", self.facts)))
        }
    }

    async fn of(sessions: &Sessions, about: &str, entity: EntityId) -> io::Result<Self> {
        let storage = sessions.storage();
        let facts = Facts::of(sessions, entity).await?;
        let stored = storage.journal.read(entity, Position(0)).await;
        let stored = stored.map_err(io::Error::other)?;
        let kind = sessions.entities().kind(entity).await.map_err(io::Error::other)?;
        let kind = kind.unwrap_or(Kind::UNTOLD);
        let named = sessions.entities().blobs_of(kind, entity).await.map_err(io::Error::other)?;
        let records = stored.iter().map(|record| hex(&record.bytes)).collect();
        let (about, blobs) = (about.to_owned(), BTreeMap::new());
        let mut recording = Self { about, facts, entity, records, blobs };
        recording.add(storage, named.into_iter().chain(snapshot_blob(&stored))).await?;
        Ok(recording)
    }

    /// Adds these blobs, if they are there.
    async fn add(
        &mut self,
        storage: &Storage,
        digests: impl IntoIterator<Item = Digest>,
    ) -> io::Result<()> {
        for digest in digests {
            if let Some(bytes) = storage.blobs.get(digest).await.map_err(io::Error::other)? {
                self.blobs.insert(digest.to_string(), hex(&bytes));
            }
        }
        Ok(())
    }

    /// Puts it into an empty data directory, for this build to read; closed again when it returns.
    pub async fn put(&self, data: &Path) -> io::Result<Facts> {
        let (storage, control) = writable(data).await?;
        self.store(&storage).await?;
        let sessions = readers(storage.clone());
        let facts = Facts::of(&sessions, self.entity).await;
        storage.health.close().await;
        drop((sessions, storage, control));
        facts
    }

    /// The kinds of its events, also of those in its archives.
    pub fn kinds(&self) -> io::Result<BTreeSet<String>> {
        let mut blobs = BTreeMap::new();
        for (digest, bytes) in &self.blobs {
            let digest = digest.parse::<Digest>().map_err(io::Error::other)?;
            blobs.insert(digest, Bytes::from(unhex(bytes)?));
        }
        Ok(kinds_of(self.bytes()?, &blobs))
    }

    fn bytes(&self) -> io::Result<Vec<Bytes>> {
        self.records.iter().map(|record| unhex(record).map(Bytes::from)).collect()
    }

    async fn store(&self, storage: &Storage) -> io::Result<()> {
        for (digest, bytes) in &self.blobs {
            let stored = storage.blobs.put(Bytes::from(unhex(bytes)?)).await;
            let stored: Digest = stored.map_err(io::Error::other)?;
            if stored.to_string() != *digest {
                return Err(io::Error::other(format!("blob `{digest}` is `{stored}` now")));
            }
        }
        append(storage, self.entity, self.bytes()?).await
    }
}

/// The kinds of all events that this build has.
pub fn every_kind() -> BTreeSet<&'static str> {
    let all = [KernelEvent::KINDS, SessionEvent::KINDS, MemoryEvent::KINDS, BudgetEvent::KINDS];
    all.into_iter().flatten().copied().collect()
}

/// The kinds of the events in these records, and in the archives behind them.
pub fn kinds_of(mut records: Vec<Bytes>, blobs: &BTreeMap<Digest, Bytes>) -> BTreeSet<String> {
    let mut kinds = BTreeSet::new();
    for _ in 0..ARCHIVES_MOST {
        let events = records.iter().filter_map(|record| decode_record(record).ok()).flatten();
        kinds.extend(events.map(|event| event.head.kind));
        let before: Vec<Record> =
            records.drain(..).map(|bytes| Record { position: Position(0), bytes }).collect();
        let named = archive::snapshot_of(&before).and_then(|snapshot| snapshot.archive);
        let archived = named.and_then(|digest| archive::unpack(blobs.get(&digest)?).ok());
        let Some(archived) = archived else { break };
        records.extend(archived.into_iter().map(|record| record.bytes));
    }
    kinds
}

/// What reads journals of each kind.
fn readers(storage: Storage) -> Sessions {
    let kinds = KnownKinds::default().with::<Session>().with::<Budget>().with::<Memory>();
    Sessions::of(Entities::new(storage, Arc::new(SystemClock), kinds))
}

async fn read_only(data: &Path) -> io::Result<Storage> {
    let data = data.to_owned();
    let opened = tokio::task::spawn_blocking(move || local::open_read_only(&data)).await?;
    opened.map(|(storage, _control)| storage).map_err(io::Error::other)
}

/// A data directory for this process alone.
pub async fn writable(data: &Path) -> io::Result<(Storage, LocalControl)> {
    let (data, options) =
        (data.to_owned(), LocalOptions::new(Prefix::default(), Arc::new(SystemClock)));
    let opened = tokio::task::spawn_blocking(move || local::open(&data, options)).await?;
    opened.map_err(io::Error::other)
}

/// Appends these records to an empty journal.
async fn append(
    storage: &Storage,
    entity: EntityId,
    records: impl IntoIterator<Item = Bytes>,
) -> io::Result<()> {
    let mut expected = Position(0);
    for bytes in records {
        let write = Write { bytes, rollup: false };
        match storage.journal.append(entity, expected, write).await {
            AppendAnswer::Stored(position) => expected = position,
            other => return Err(io::Error::other(format!("not stored: {other:?}"))),
        }
    }
    Ok(())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // A string takes what it is given.
        if write!(text, "{byte:02x}").is_err() {
            text.clear();
        }
        text
    })
}

fn unhex(text: &str) -> io::Result<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks(2).map(|pair| match pair {
        [high, low] => Some((digit(*high)? << 4) | digit(*low)?),
        _ => None,
    });
    pairs.collect::<Option<_>>().ok_or_else(|| io::Error::other("not hexadecimal"))
}
