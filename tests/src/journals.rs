//! Recorded journals: real ones, kept to be read by every later version.
//!
//! A recording is one session: its records as they were stored, the blobs that they name, and what
//! was known of it when it was recorded.

use std::{collections::BTreeMap, io, path::Path, sync::Arc};

use bytes::Bytes;
use clawnode_actors::session::{Sessions, clients::listing::SessionQuery};
use clawnode_cluster::{AppendAnswer, Storage, SystemClock, Write};
use clawnode_kernel::core::snapshot_blob;
use clawnode_local as local;
use clawnode_local::LocalOptions;
use clawnode_proto::{Digest, EntityId, Kind, Position, subject::Prefix};
use serde::{Deserialize, Serialize};

/// A recorded session.
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
    /// Its state, as `sessions list` has it.
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
        let events = verdict.journals.iter().map(|row| row.events).sum();
        Ok(Self { state: row.state.clone(), turns: row.turns, events, requests })
    }
}

// === impl Recording ===

impl Recording {
    /// Records the only session in a data directory that no node runs on.
    pub async fn take(about: &str, data: &Path) -> io::Result<Self> {
        let data = data.to_owned();
        let opened = tokio::task::spawn_blocking(move || local::open_read_only(&data)).await?;
        let (storage, _control) = opened.map_err(io::Error::other)?;
        let all = storage.journal.entities(None, 2).await.map_err(io::Error::other)?;
        let &[entity] = &all[..] else {
            return Err(io::Error::other(format!("{} sessions instead of one", all.len())));
        };
        let sessions = Sessions::new(storage.clone(), Arc::new(SystemClock));
        let facts = Facts::of(&sessions, entity).await?;
        let stored = storage.journal.read(entity, Position(0)).await;
        let stored = stored.map_err(io::Error::other)?;
        let mut named =
            sessions.entities().blobs_of(Kind::SESSION, entity).await.map_err(io::Error::other)?;
        named.extend(snapshot_blob(&stored));
        let mut blobs = BTreeMap::new();
        for digest in named {
            if let Some(bytes) = storage.blobs.get(digest).await.map_err(io::Error::other)? {
                blobs.insert(digest.to_string(), hex(&bytes));
            }
        }
        let records = stored.iter().map(|record| hex(&record.bytes)).collect();
        Ok(Self { about: about.to_owned(), facts, entity, records, blobs })
    }

    /// Puts it into an empty data directory, for this build to read; closed again when it returns.
    pub async fn put(&self, data: &Path) -> io::Result<Facts> {
        let (data, options) =
            (data.to_owned(), LocalOptions::new(Prefix::default(), Arc::new(SystemClock)));
        let opened = tokio::task::spawn_blocking(move || local::open(&data, options)).await?;
        let (storage, control) = opened.map_err(io::Error::other)?;
        self.store(&storage).await?;
        let sessions = Sessions::new(storage.clone(), Arc::new(SystemClock));
        let facts = Facts::of(&sessions, self.entity).await;
        storage.health.close().await;
        drop((sessions, storage, control));
        facts
    }

    async fn store(&self, storage: &Storage) -> io::Result<()> {
        for (digest, bytes) in &self.blobs {
            let stored = storage.blobs.put(Bytes::from(unhex(bytes)?)).await;
            let stored: Digest = stored.map_err(io::Error::other)?;
            if stored.to_string() != *digest {
                return Err(io::Error::other(format!("blob `{digest}` is `{stored}` now")));
            }
        }
        let mut expected = Position(0);
        for record in &self.records {
            let write = Write { bytes: Bytes::from(unhex(record)?), rollup: false };
            match storage.journal.append(self.entity, expected, write).await {
                AppendAnswer::Stored(position) => expected = position,
                other => return Err(io::Error::other(format!("not stored: {other:?}"))),
            }
        }
        Ok(())
    }
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
