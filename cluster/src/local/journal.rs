//! The journal door.

use std::{ops::Bound, sync::Arc};

use async_trait::async_trait;
use clawnode_proto::{EntityId, Position, limits};
use tokio::sync::oneshot;

use super::{
    index::{Index, IndexError, Loc, keys},
    queue::Op,
    shared::{Client, Shared},
    work::{INLINE_RECORDS, blocking, is_small},
};
use crate::{AppendAnswer, Journal, Record, StoreError, Write};

const STORE: &str = "local journal";
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
        let few = INLINE_RECORDS + 1;
        let places = shared.look(STORE, |index| places_of(index, entity, after, few))?;
        if is_small(places.iter().map(|(_, loc)| *loc)) {
            return read_all(shared, entity, places);
        }
        let read = move |shared: &Shared| {
            let all = shared.look(STORE, |index| places_of(index, entity, after, usize::MAX))?;
            read_all(shared, entity, all)
        };
        blocking(shared, STORE, read).await
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

/// Where the first `limit` records after `after` are.
fn places_of(
    index: &Index,
    entity: EntityId,
    after: Position,
    limit: usize,
) -> Result<Vec<(Position, Loc)>, IndexError> {
    let mut places = Vec::new();
    let from = keys::append(entity, after);
    index.each(&keys::journal(entity), Bound::Excluded(&from), &mut |key, value| {
        if let (Some((_, position)), Some(loc)) = (keys::split_append(key), Loc::decode(value)) {
            places.push((position, loc));
        }
        places.len() < limit
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
