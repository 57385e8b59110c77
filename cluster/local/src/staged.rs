//! The effect of a group of records on the index, worked out before it is written.
//!
//! A commit and a replay use the same function, so the meaning of a record is defined once.

use std::{collections::HashMap, ops::Bound};

use clawnode_proto::{Capability, EntityId, JobId, Position, TimerId};

use super::{
    bytes_at::u64_at,
    index::{
        Changes, Index, IndexError, Loc, decode_job, decode_timed, decode_waiting, encode_job,
        encode_timed, encode_waiting, keys,
    },
    record::{HEADER, Header, RecordKind, split_bucket, split_due, split_job, split_timer},
};

/// Changes that are not in the index yet; reads see them.
#[derive(Debug, Default)]
pub(super) struct Staged {
    changes: Changes,
    /// Bytes that became live or dead, by segment.
    pub(super) live: HashMap<u32, i64>,
    /// Changes to the waiting inputs, in order.
    pub(super) inputs: Vec<InputChange>,
    /// Changes to the waiting jobs, in order.
    pub(super) jobs: Vec<JobChange>,
    /// Keys of the bucket that changed.
    pub(super) values: Vec<String>,
    /// The earliest due moment of anything set here.
    pub(super) next_due: Option<u64>,
}

/// A change to the waiting inputs.
#[derive(Clone, Copy, Debug)]
pub(super) enum InputChange {
    Added { entity: EntityId, position: Position, loc: Loc },
    Removed { position: Position },
    Moved { position: Position, loc: Loc },
}

/// A change to the waiting jobs.
#[derive(Clone, Debug)]
pub(super) enum JobChange {
    Added { job: JobId, capability: Capability, position: Position, loc: Loc },
    Removed { position: Position },
    Moved { position: Position, loc: Loc },
}

impl Staged {
    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn take(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    pub(super) fn set(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.changes.insert(key, value);
    }

    fn get(&self, index: &Index, key: &[u8]) -> Result<Option<Vec<u8>>, IndexError> {
        match self.changes.get(key) {
            Some(change) => Ok(change.clone()),
            None => index.get(key),
        }
    }

    /// The position of an entity's last record, 0 for none.
    pub(super) fn tail(&self, index: &Index, entity: EntityId) -> Result<Position, IndexError> {
        let prefix = keys::journal(entity);
        let staged = self
            .changes
            .range::<[u8], _>((Bound::Included(prefix.as_slice()), Bound::Unbounded))
            .take_while(|(key, _)| key.starts_with(&prefix))
            .filter(|(_, value)| value.is_some())
            .last();
        // A staged record is higher than all in the index, and a rollup brings one.
        let key = match staged {
            Some((key, _)) => Some(key.clone()),
            None => index.last(&prefix)?.map(|(key, _)| key),
        };
        Ok(key.and_then(|key| keys::split_append(&key)).map_or(Position(0), |(_, at)| at))
    }

    /// A bucket value's expiry, position and place.
    pub(super) fn value(
        &self,
        index: &Index,
        key: &str,
    ) -> Result<Option<(u64, Position, Loc)>, IndexError> {
        Ok(self.get(index, &keys::value(key))?.as_deref().and_then(decode_timed))
    }

    /// A timer's due moment, position and place.
    pub(super) fn timer(
        &self,
        index: &Index,
        entity: EntityId,
        timer: TimerId,
    ) -> Result<Option<(u64, Position, Loc)>, IndexError> {
        Ok(self.get(index, &keys::timer(entity, timer))?.as_deref().and_then(decode_timed))
    }

    /// Applies a record; `body` is `None` if it is damaged. `false`: without its body it means
    /// nothing.
    pub(super) fn apply(
        &mut self,
        index: &Index,
        header: &Header,
        body: Option<&[u8]>,
        loc: Loc,
    ) -> Result<bool, IndexError> {
        let (entity, position) = (header.entity, header.position);
        match header.kind {
            RecordKind::Append => self.put_append(index, entity, position, loc)?,
            RecordKind::Rollup => {
                self.drop_journal(index, entity, position)?;
                self.put_append(index, entity, position, loc)?;
            }
            RecordKind::Put => self.put_input(index, entity, position, loc)?,
            RecordKind::Ack => {
                self.drop_input(index, header.target)?;
                self.drop_job(index, header.target)?;
            }
            RecordKind::JobPut => return self.put_job(index, header, body, loc),
            RecordKind::Fired => {
                self.put_input(index, entity, position, loc)?;
                match body.and_then(split_timer) {
                    Some((timer, _)) => self.drop_timer(index, entity, timer)?,
                    None => return Ok(false),
                }
            }
            RecordKind::TimerSet => {
                let Some((timer, rest)) = body.and_then(split_timer) else { return Ok(false) };
                let Some((due, _)) = split_due(rest) else { return Ok(false) };
                self.drop_timer(index, entity, timer)?;
                self.set(keys::timer(entity, timer), Some(encode_timed(due, position, loc)));
                self.set(keys::due(due, entity, timer), Some(Vec::new()));
                self.born(loc);
                self.wake_at(due);
            }
            RecordKind::TimerCancel => {
                let Some((timer, _)) = body.and_then(split_timer) else { return Ok(false) };
                self.drop_timer(index, entity, timer)?;
            }
            RecordKind::BucketPut => {
                let Some((expires, key, _)) = body.and_then(split_bucket) else {
                    return Ok(false);
                };
                self.drop_value(index, key)?;
                self.set(keys::value(key), Some(encode_timed(expires, position, loc)));
                if expires > 0 {
                    self.set(keys::expiry(expires, key), Some(Vec::new()));
                    self.wake_at(expires);
                }
                self.born(loc);
                self.values.push(key.to_owned());
            }
            RecordKind::BucketDelete => {
                let Some(key) = body.and_then(|body| std::str::from_utf8(body).ok()) else {
                    return Ok(false);
                };
                self.drop_value(index, key)?;
                self.values.push(key.to_owned());
            }
            RecordKind::Hole => {}
        }
        Ok(true)
    }

    /// Whether the record at `loc` still matters.
    pub(super) fn is_live(
        &self,
        index: &Index,
        header: &Header,
        body: &[u8],
        loc: Loc,
    ) -> Result<bool, IndexError> {
        let found = match header.kind {
            RecordKind::Append | RecordKind::Rollup => {
                let key = keys::append(header.entity, header.position);
                self.get(index, &key)?.as_deref().and_then(Loc::decode)
            }
            RecordKind::Put | RecordKind::Fired => self
                .get(index, &keys::input(header.position))?
                .as_deref()
                .and_then(decode_waiting)
                .map(|(_, loc)| loc),
            RecordKind::JobPut => self.job(index, header.position)?.map(|(loc, _, _)| loc),
            RecordKind::TimerSet => match split_timer(body) {
                Some((timer, _)) => self.timer(index, header.entity, timer)?.map(|(_, _, loc)| loc),
                None => None,
            },
            RecordKind::BucketPut => match split_bucket(body) {
                Some((_, key, _)) => self.value(index, key)?.map(|(_, _, loc)| loc),
                None => None,
            },
            RecordKind::Ack
            | RecordKind::TimerCancel
            | RecordKind::BucketDelete
            | RecordKind::Hole => None,
        };
        Ok(found == Some(loc))
    }

    fn put_append(
        &mut self,
        index: &Index,
        entity: EntityId,
        position: Position,
        loc: Loc,
    ) -> Result<(), IndexError> {
        let key = keys::append(entity, position);
        if let Some(old) = self.get(index, &key)?.as_deref().and_then(Loc::decode) {
            self.died(old);
        } else {
            self.set(keys::feed(position), Some(entity.as_u128().to_be_bytes().to_vec()));
        }
        self.set(key, Some(loc.encode().to_vec()));
        self.born(loc);
        Ok(())
    }

    /// Removes an entity's records below `position`.
    fn drop_journal(
        &mut self,
        index: &Index,
        entity: EntityId,
        position: Position,
    ) -> Result<(), IndexError> {
        let (prefix, end) = (keys::journal(entity), keys::append(entity, position));
        let mut found = Vec::new();
        index.each(&prefix, Bound::Unbounded, &mut |key, value| {
            let below = key < end.as_slice();
            if below {
                found.push((key.to_vec(), Loc::decode(value)));
            }
            below
        })?;
        let between = (Bound::Included(prefix.as_slice()), Bound::Excluded(end.as_slice()));
        let staged = self.changes.range::<[u8], _>(between);
        found.extend(staged.filter_map(|(key, value)| {
            value.as_ref().map(|value| (key.clone(), Loc::decode(value)))
        }));
        for (key, loc) in found {
            // In the index and staged: it counts once, as staged.
            if self.changes.get(&key) == Some(&None) {
                continue;
            }
            if let Some((_, position)) = keys::split_append(&key) {
                self.set(keys::feed(position), None);
            }
            let staged = self.changes.insert(key, None).flatten();
            if let Some(loc) = staged.as_deref().and_then(Loc::decode).or(loc) {
                self.died(loc);
            }
        }
        Ok(())
    }

    fn put_input(
        &mut self,
        index: &Index,
        entity: EntityId,
        position: Position,
        loc: Loc,
    ) -> Result<(), IndexError> {
        let key = keys::input(position);
        match self.get(index, &key)?.as_deref().and_then(decode_waiting) {
            Some((_, old)) => {
                self.died(old);
                self.inputs.push(InputChange::Moved { position, loc });
            }
            None => self.inputs.push(InputChange::Added { entity, position, loc }),
        }
        self.set(key, Some(encode_waiting(entity, loc)));
        self.born(loc);
        Ok(())
    }

    fn drop_input(&mut self, index: &Index, position: Position) -> Result<(), IndexError> {
        let key = keys::input(position);
        if let Some((_, loc)) = self.get(index, &key)?.as_deref().and_then(decode_waiting) {
            self.died(loc);
            self.set(key, None);
            self.inputs.push(InputChange::Removed { position });
        }
        Ok(())
    }

    /// The job that waits at a position.
    fn job(
        &self,
        index: &Index,
        position: Position,
    ) -> Result<Option<(Loc, JobId, Capability)>, IndexError> {
        Ok(self.get(index, &keys::job(position))?.as_deref().and_then(decode_job))
    }

    /// The place of a waiting job, and whether it only counts once this is stored.
    pub(super) fn place_of_job(
        &self,
        index: &Index,
        job: JobId,
        capability: &Capability,
    ) -> Result<Option<(Position, bool)>, IndexError> {
        let key = keys::place(job, capability);
        let place = self.get(index, &key)?.and_then(|at| u64_at(&at, 0));
        Ok(place.map(|at| (Position(at), self.changes.contains_key(&key))))
    }

    fn put_job(
        &mut self,
        index: &Index,
        header: &Header,
        body: Option<&[u8]>,
        loc: Loc,
    ) -> Result<bool, IndexError> {
        let position = header.position;
        // A copy is the same job, even if its bytes are damaged.
        let (job, capability) = if let Some((old, job, capability)) = self.job(index, position)? {
            self.died(old);
            self.jobs.push(JobChange::Moved { position, loc });
            (job, capability)
        } else {
            let Some((capability, _)) = body.and_then(split_job) else { return Ok(false) };
            let job = JobId::from_u128(header.entity.as_u128());
            let added = JobChange::Added { job, capability: capability.clone(), position, loc };
            self.jobs.push(added);
            (job, capability)
        };
        self.set(keys::job(position), Some(encode_job(loc, job, &capability)));
        let place = keys::place(job, &capability);
        self.set(place, Some(position.0.to_be_bytes().to_vec()));
        self.born(loc);
        Ok(true)
    }

    fn drop_job(&mut self, index: &Index, position: Position) -> Result<(), IndexError> {
        if let Some((loc, job, capability)) = self.job(index, position)? {
            self.died(loc);
            self.set(keys::job(position), None);
            self.set(keys::place(job, &capability), None);
            self.jobs.push(JobChange::Removed { position });
        }
        Ok(())
    }

    fn drop_timer(
        &mut self,
        index: &Index,
        entity: EntityId,
        timer: TimerId,
    ) -> Result<(), IndexError> {
        if let Some((due, _, loc)) = self.timer(index, entity, timer)? {
            self.died(loc);
            self.set(keys::timer(entity, timer), None);
            self.set(keys::due(due, entity, timer), None);
        }
        Ok(())
    }

    fn drop_value(&mut self, index: &Index, key: &str) -> Result<(), IndexError> {
        if let Some((expires, _, loc)) = self.value(index, key)? {
            self.died(loc);
            self.set(keys::value(key), None);
            if expires > 0 {
                self.set(keys::expiry(expires, key), None);
            }
        }
        Ok(())
    }

    fn born(&mut self, loc: Loc) {
        *self.live.entry(loc.segment).or_default() += record_bytes(loc);
    }

    fn died(&mut self, loc: Loc) {
        *self.live.entry(loc.segment).or_default() -= record_bytes(loc);
    }

    fn wake_at(&mut self, moment: u64) {
        self.next_due = Some(self.next_due.map_or(moment, |known| known.min(moment)));
    }
}

fn record_bytes(loc: Loc) -> i64 {
    i64::from(loc.len).saturating_add(i64::try_from(HEADER).unwrap_or(0))
}
