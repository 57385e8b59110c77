//! The timers handle. The engine fires them; see [`super::commit`].

use std::{ops::Bound, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{Overdue, StoreError, Timer, Timers};
use clawnode_proto::{
    EntityId, Input, Partition, Position, TimerId, Timestamp, envelope::InputError,
};
use tokio::sync::oneshot;

use super::{
    inbox::encode,
    index::{Loc, decode_timed, keys},
    queue::EngineOp,
    read_threads::blocking,
    record::{split_due, split_timer},
    shared::{DirectoryClient, OpenDirectory},
};

/// The name of this store in errors.
pub(super) const STORE: &str = "local timers";

/// Timers in the log.
#[derive(Debug)]
pub(super) struct LocalTimers(pub(super) Arc<DirectoryClient>);

#[async_trait]
impl Timers for LocalTimers {
    async fn set(&self, timer: &Timer) -> Result<(), StoreError> {
        let input = encode(STORE, &timer.input)?;
        let (entity, due) = (timer.input.entity, timer.due.0);
        self.store(entity, timer.id, due, input).await
    }

    async fn cancel(&self, entity: EntityId, timer: TimerId) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let op = EngineOp::TimerCancel { entity, timer, reply };
        self.0.0.ask(STORE, op, 0, answer).await?.map(drop)
    }

    async fn pending(&self, partition: Partition) -> Result<Vec<Timer>, StoreError> {
        // This reads all timers.
        let stored = blocking(&self.0.0, STORE, move |shared| pending(shared, partition)).await?;
        stored.into_iter().map(StoredTimer::read).collect()
    }

    async fn restore_overdue(
        &self,
        partition: Partition,
        before: Timestamp,
        _: Position,
    ) -> Result<Overdue, StoreError> {
        let look = move |shared: &OpenDirectory| overdue(shared, partition, before);
        let overdue = blocking(&self.0.0, STORE, look).await?;
        let restored = overdue.len();
        for timer in overdue {
            self.store(timer.entity, timer.id, timer.due, timer.input).await?;
        }
        Ok(Overdue { restored, next: None })
    }
}

/// A timer as the log has it. Its input may be for newer builds only, so it is kept as it is.
#[derive(Debug)]
struct StoredTimer {
    entity: EntityId,
    position: Position,
    id: TimerId,
    due: u64,
    input: Bytes,
}

impl LocalTimers {
    async fn store(
        &self,
        entity: EntityId,
        id: TimerId,
        due: u64,
        input: Bytes,
    ) -> Result<(), StoreError> {
        let (reply, answer) = oneshot::channel();
        let bytes = input.len();
        let op = EngineOp::TimerSet { entity, timer: id, due, input, reply };
        self.0.0.ask(STORE, op, bytes, answer).await?.map(drop)
    }
}

impl StoredTimer {
    /// The timer with its input, as far as this build knows it.
    fn read(self) -> Result<Timer, StoreError> {
        let Self { entity, position, id, due, input } = self;
        let unreadable = |error: InputError| {
            let detail = error.to_string();
            StoreError::Corrupt { entity, position, detail }
        };
        let input = Input::of_any_version(&input).map_err(unreadable)?;
        Ok(Timer { id, due: Timestamp(due), input })
    }
}

/// A timer and where its input is.
type TimerPlace = (EntityId, TimerId, (u64, Position, Loc));

fn pending(shared: &OpenDirectory, partition: Partition) -> Result<Vec<StoredTimer>, StoreError> {
    let mut places = Vec::new();
    shared.look(STORE, |index| {
        index.each(keys::TIMERS, Bound::Unbounded, &mut |key, value| {
            if let (Some((entity, id)), Some(place)) = (keys::split_timer(key), decode_timed(value))
                && entity.partition(shared.partitions) == partition
            {
                places.push((entity, id, place));
            }
            true
        })
    })?;
    read(shared, places)
}

/// Those that were due before `before`. The engine fires timers in this order, so they come first.
fn overdue(
    shared: &OpenDirectory,
    partition: Partition,
    before: Timestamp,
) -> Result<Vec<StoredTimer>, StoreError> {
    let places = shared.look(STORE, |index| {
        let mut due = Vec::new();
        index.each(keys::DUE, Bound::Unbounded, &mut |key, _| {
            let Some((at, entity, id)) = keys::split_due(key) else { return true };
            if at < before.0 && entity.partition(shared.partitions) == partition {
                due.push((entity, id));
            }
            at < before.0
        })?;
        let mut places: Vec<TimerPlace> = Vec::new();
        for (entity, id) in due {
            let value = index.get(&keys::timer(entity, id))?;
            places.extend(value.and_then(|value| Some((entity, id, decode_timed(&value)?))));
        }
        Ok(places)
    })?;
    read(shared, places)
}

fn read(shared: &OpenDirectory, places: Vec<TimerPlace>) -> Result<Vec<StoredTimer>, StoreError> {
    let mut timers = Vec::with_capacity(places.len());
    for (entity, id, (due, position, loc)) in places {
        let (_, body) = shared.read(entity, position, loc)?;
        let input = split_timer(&body)
            .and_then(|(_, rest)| split_due(rest))
            .map(|(_, input)| body.slice_ref(input))
            .ok_or_else(|| {
                let detail = "a timer without an input".to_owned();
                StoreError::Corrupt { entity, position, detail }
            })?;
        timers.push(StoredTimer { entity, position, id, due, input });
    }
    Ok(timers)
}
