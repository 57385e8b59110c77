//! The journal door.

use std::{ops::Bound, sync::Arc};

use async_trait::async_trait;
use clawnode_proto::{EntityId, Position, limits};
use tokio::sync::oneshot;

use super::{
    index::{Index, IndexError, Loc, keys},
    queue::Op,
    shared::{Client, Shared},
};
use crate::{AppendAnswer, Journal, Record, StoreError, Write};

const STORE: &str = "local journal";
/// Reads of more bytes than this (256 KiB) go to a thread that may wait for the disk.
const READ_INLINE: u64 = 256 << 10;

/// Journals in the log.
#[derive(Debug)]
pub(super) struct LocalJournal(pub(super) Arc<Client>);

#[async_trait]
impl Journal for LocalJournal {
    async fn append(&self, entity: EntityId, expected: Position, write: Write) -> AppendAnswer {
        let bytes = write.bytes.len();
        if bytes > limits::APPEND_BYTES {
            return AppendAnswer::Defect(StoreError::Refused {
                store: STORE,
                detail: format!("{bytes} bytes in one append, at most {}", limits::APPEND_BYTES),
            });
        }
        let shared = &self.0.0;
        // A rollup replaces what is damaged; anything else would build upon it.
        if !write.rollup
            && let Err(error) = shared.sound(entity)
        {
            return AppendAnswer::Defect(error);
        }
        let (reply, answer) = oneshot::channel();
        let op = Op::Append { entity, expected, write, reply };
        match shared.ask(STORE, op, bytes, answer).await {
            Ok(answer) => answer,
            Err(error) => AppendAnswer::Unknown(error),
        }
    }

    async fn read(&self, entity: EntityId, after: Position) -> Result<Vec<Record>, StoreError> {
        let shared = &self.0.0;
        shared.sound(entity)?;
        let places = shared.look(STORE, |index| places(index, entity, after))?;
        let bytes: u64 = places.iter().map(|(_, loc)| u64::from(loc.len)).sum();
        if bytes <= READ_INLINE {
            return read_all(shared, entity, places);
        }
        let shared = Arc::clone(shared);
        let read = tokio::task::spawn_blocking(move || read_all(&shared, entity, places)).await;
        read.unwrap_or_else(|error| {
            Err(StoreError::Unavailable { store: STORE, detail: error.to_string() })
        })
    }

    async fn tail(&self, entity: EntityId) -> Result<Option<Record>, StoreError> {
        let shared = &self.0.0;
        shared.sound(entity)?;
        let last = shared.look(STORE, |index| index.last(&keys::journal(entity)))?;
        let place =
            last.and_then(|(key, value)| Some((keys::split_append(&key)?.1, Loc::decode(&value)?)));
        let Some((position, loc)) = place else { return Ok(None) };
        let (_, bytes) = shared.read(entity, position, loc)?;
        Ok(Some(Record { position, bytes }))
    }

    async fn position(&self, entity: EntityId) -> Result<Position, StoreError> {
        let last = self.0.0.look(STORE, |index| index.last(&keys::journal(entity)))?;
        let position = last.and_then(|(key, _)| Some(keys::split_append(&key)?.1));
        Ok(position.unwrap_or_default())
    }

    async fn scrub(&self) -> Result<(), StoreError> {
        self.0.0.queue.scrub().map_err(|detail| StoreError::Closed { store: STORE, detail })
    }

    async fn entities(
        &self,
        after: Option<EntityId>,
        limit: usize,
    ) -> Result<Vec<EntityId>, StoreError> {
        self.0.0.look(STORE, |index| {
            let mut found = Vec::new();
            let mut last = after;
            while found.len() < limit {
                let Some(entity) = next_entity(index, last)? else { break };
                found.push(entity);
                last = Some(entity);
            }
            Ok(found)
        })
    }
}

fn places(
    index: &Index,
    entity: EntityId,
    after: Position,
) -> Result<Vec<(Position, Loc)>, IndexError> {
    let mut places = Vec::new();
    let from = keys::append(entity, after);
    index.each(&keys::journal(entity), Bound::Excluded(&from), &mut |key, value| {
        if let (Some((_, position)), Some(loc)) = (keys::split_append(key), Loc::decode(value)) {
            places.push((position, loc));
        }
        true
    })?;
    Ok(places)
}

fn read_all(
    shared: &Shared,
    entity: EntityId,
    places: Vec<(Position, Loc)>,
) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::with_capacity(places.len());
    for (position, loc) in places {
        let (_, bytes) = shared.read(entity, position, loc)?;
        records.push(Record { position, bytes });
    }
    Ok(records)
}

/// The first entity with a journal after `last`.
fn next_entity(index: &Index, last: Option<EntityId>) -> Result<Option<EntityId>, IndexError> {
    let from = match last {
        None => keys::JOURNALS.to_vec(),
        Some(last) => keys::append(last, Position(u64::MAX)),
    };
    let mut found = None;
    index.each(keys::JOURNALS, Bound::Excluded(&from), &mut |key, _| {
        found = keys::split_append(key).map(|(entity, _)| entity);
        false
    })?;
    Ok(found)
}
