//! The journal handle.

use std::{ops::Bound, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, FeedPage, Journal, PAGE_BYTES, Record, StoreError, Write};
use clawnode_proto::{EntityId, Position, limits};
use tokio::sync::oneshot;

use super::{
    index::{Index, IndexError, Loc, keys},
    log::ReadError,
    queue::EngineOp,
    read_threads::{INLINE_RECORDS, blocking, is_small},
    shared::{DirectoryClient, OpenDirectory},
};

const STORE: &str = "local journal";

/// Where a record of the feed is.
#[derive(Clone, Copy)]
struct FeedPlace {
    entity: EntityId,
    position: Position,
    loc: Loc,
}

/// Journals in the log.
#[derive(Debug)]
pub(super) struct LocalJournal(pub(super) Arc<DirectoryClient>);

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
        // A rollup replaces damaged records; any other append would build upon them.
        if !write.rollup
            && let Err(error) = shared.sound(entity)
        {
            return AppendAnswer::Defect(error);
        }
        let (reply, answer) = oneshot::channel();
        let op = EngineOp::Append { entity, expected, write, reply };
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
        let read = move |shared: &OpenDirectory| {
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

    async fn follow(&self, after: Position, limit: usize) -> Result<FeedPage, StoreError> {
        let read = move |shared: &OpenDirectory| {
            let (places, upto) = shared.look(STORE, |index| places_after(index, after, limit))?;
            let mut records = Vec::with_capacity(places.len());
            for place in places {
                if let Some(bytes) = read_one(shared, place)? {
                    let FeedPlace { entity, position, .. } = place;
                    records.push((entity, Record { position, bytes }));
                }
            }
            Ok(FeedPage { records, upto })
        };
        blocking(&self.0.0, STORE, read).await
    }

    async fn end(&self) -> Result<Position, StoreError> {
        let last = self.0.0.look(STORE, |index| index.last(keys::FEED))?;
        let last = last.and_then(|(key, value)| keys::split_feed(&key, &value));
        Ok(last.map_or(Position(0), |(position, _)| position))
    }

    async fn scrub(&self) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        self.0.0.ask(STORE, EngineOp::Scrub { reply }, 0, answer).await
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

/// A record of the feed. Absent if a snapshot has replaced it since its place was looked up, or if
/// it is damaged, which is reported where its journal is read.
fn read_one(shared: &OpenDirectory, place: FeedPlace) -> Result<Option<Bytes>, StoreError> {
    let FeedPlace { entity, position, mut loc } = place;
    loop {
        match shared.files.read(loc) {
            Ok((_, body)) => return Ok(Some(Bytes::from(body))),
            Err(ReadError::Disk(error)) => {
                let detail = format!("cannot read the log: {error}");
                return Err(StoreError::Unavailable { store: STORE, detail });
            }
            // The cleaner may have moved it meanwhile.
            Err(ReadError::Damaged(_)) => {
                let key = keys::append(entity, position);
                let now = shared.look(STORE, |index| index.get(&key))?;
                match now.as_deref().and_then(Loc::decode) {
                    Some(moved) if moved != loc => loc = moved,
                    Some(_) | None => return Ok(None),
                }
            }
        }
    }
}

/// Where the first `limit` records of all journals after `after` are, and the position of the last.
fn places_after(
    index: &Index,
    after: Position,
    limit: usize,
) -> Result<(Vec<FeedPlace>, Position), IndexError> {
    let mut found = Vec::new();
    let from = keys::feed(after);
    index.each(keys::FEED, Bound::Excluded(&from), &mut |key, value| {
        found.extend(keys::split_feed(key, value));
        found.len() < limit.max(1)
    })?;
    let mut upto = after;
    let (mut places, mut bytes) = (Vec::with_capacity(found.len()), 0);
    for (position, entity) in found {
        let loc = index.get(&keys::append(entity, position))?.as_deref().and_then(Loc::decode);
        bytes += loc.map_or(0, |loc| loc.len as usize);
        if bytes > PAGE_BYTES && !places.is_empty() {
            break;
        }
        upto = position;
        places.extend(loc.map(|loc| FeedPlace { entity, position, loc }));
    }
    Ok((places, upto))
}

fn read_all(
    shared: &OpenDirectory,
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
