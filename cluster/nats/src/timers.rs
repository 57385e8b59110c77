//! Timers: message schedules of the server, moved into the inbox when due.
//!
//! A timer is a schedule under its own subject, so setting it again replaces it. When due, the
//! server stores the input under the timer's `due` subject and removes the schedule; the inbox
//! stream takes it from there through a durable consumer, which survives a restart of either side.

use async_nats::{
    HeaderMap, HeaderValue,
    header::{NATS_ROLLUP, NATS_SCHEDULE, NATS_SCHEDULE_TARGET, NATS_SCHEDULE_TTL},
    jetstream::message::StreamMessage,
};
use async_trait::async_trait;
use bytes::Bytes;
use clawnode_cluster::{OVERDUE_LOOKS, Overdue, StoreError, Timer, Timers};
use clawnode_proto::{
    EntityId, Input, Partition, Position, TimerId, Timestamp,
    envelope::InputError,
    subject::{Prefix, entity_of},
};
use tracing::warn;

use super::{
    api::{Api, RequestFailure},
    journal::{ROLLUP_SUBJECT, expecting},
    rfc3339,
    stream::StreamReader,
};

/// The name of this store in errors.
const STORE: &str = "timers";
/// When the timer is due, in milliseconds since 1970: the time of [`NATS_SCHEDULE`], readable.
const DUE: &str = "Clawnode-Due";
/// How long a due timer's input stays in its own stream, for the inbox to take it from: long enough
/// for an outage of all servers but one.
const FIRED_TTL: &str = "168h";

/// Timers on `JetStream`.
#[derive(Debug)]
pub(super) struct NatsTimers {
    api: Api,
    prefix: Prefix,
    partitions: u16,
    reader: StreamReader,
}

/// A timer as the server has it. Its input may be for newer builds only, so it is kept as it is.
#[derive(Debug)]
struct TimerMessage {
    entity: EntityId,
    id: TimerId,
    due: Timestamp,
    input: Bytes,
}

// === impl NatsTimers ===

impl NatsTimers {
    pub(super) fn new(api: Api, prefix: Prefix, partitions: u16, reader: StreamReader) -> Self {
        Self { api, prefix, partitions, reader }
    }

    /// Stores a timer, under these headers beside its own.
    async fn store(
        &self,
        timer: TimerMessage,
        mut headers: HeaderMap,
    ) -> Result<Position, RequestFailure> {
        let partition = timer.entity.partition(self.partitions);
        let due = rfc3339::format(timer.due).ok_or_else(|| {
            RequestFailure::Rejected(format!("{} ms is after the year 9999", timer.due.0))
        })?;
        headers.insert(NATS_SCHEDULE, format!("@at {due}"));
        let target = self.prefix.due(partition, timer.entity, timer.id);
        headers.insert(NATS_SCHEDULE_TARGET, target);
        headers.insert(NATS_SCHEDULE_TTL, FIRED_TTL);
        headers.insert(NATS_ROLLUP, ROLLUP_SUBJECT);
        headers.insert(DUE, HeaderValue::from(timer.due.0));
        let subject = self.prefix.timer(partition, timer.entity, timer.id);
        self.api.publish(subject, headers, timer.input).await
    }
}

#[async_trait]
impl Timers for NatsTimers {
    async fn set(&self, timer: &Timer) -> Result<(), StoreError> {
        let input = timer
            .input
            .to_bytes()
            .map_err(|error| StoreError::Refused { store: STORE, detail: error.to_string() })?;
        let (entity, input) = (timer.input.entity, input.into());
        let stored = TimerMessage { entity, id: timer.id, due: timer.due, input };
        self.store(stored, HeaderMap::new()).await.map(drop).map_err(store_error)
    }

    async fn cancel(&self, entity: EntityId, timer: TimerId) -> Result<(), StoreError> {
        let subject = self.prefix.timer(entity.partition(self.partitions), entity, timer);
        self.reader.purge(&subject).await.map_err(store_error)
    }

    async fn pending(&self, partition: Partition) -> Result<Vec<Timer>, StoreError> {
        let filter = self.prefix.timers_of(partition);
        let mut timers = Vec::new();
        let mut from = 1;
        while let Some(message) = self.reader.next(&filter, from).await.map_err(store_error)? {
            from = message.sequence + 1;
            if let Some(timer) = stored(&message).and_then(TimerMessage::read) {
                timers.push(timer);
            } else {
                warn!(subject = %message.subject, "a stored timer is not readable");
            }
        }
        Ok(timers)
    }

    async fn restore_overdue(
        &self,
        partition: Partition,
        before: Timestamp,
        after: Position,
    ) -> Result<Overdue, StoreError> {
        let filter = self.prefix.timers_of(partition);
        let mut found = Overdue { restored: 0, next: Some(after) };
        let mut first_restored = None;
        for _ in 0..OVERDUE_LOOKS {
            let from = found.next.map_or(0, |last| last.0) + 1;
            let Some(message) = self.reader.next(&filter, from).await.map_err(store_error)? else {
                return Ok(Overdue { next: None, ..found });
            };
            let position = Position(message.sequence);
            if first_restored.is_some_and(|first| position >= first) {
                return Ok(Overdue { next: None, ..found });
            }
            found.next = Some(position);
            let Some(overdue) = stored(&message).filter(|timer| timer.due < before) else {
                continue;
            };
            match self.store(overdue, expecting(position)).await {
                Ok(stored) => {
                    found.restored += 1;
                    first_restored.get_or_insert(stored);
                }
                // It has just fired, or was set again or cancelled.
                Err(failure) if failure.is_wrong_last_sequence() => {}
                Err(failure) => return Err(store_error(failure)),
            }
        }
        Ok(found)
    }
}

// === impl TimerMessage ===

impl TimerMessage {
    /// The timer with its input, as far as this build knows it.
    fn read(self) -> Option<Timer> {
        let Self { id, due, input, .. } = self;
        let input = Input::of_any_version(&input).ok()?;
        Some(Timer { id, due, input })
    }
}

/// The timer that a message sets, also if its input is for newer builds only.
fn stored(message: &StreamMessage) -> Option<TimerMessage> {
    let entity = entity_of(&message.subject)?;
    let id = message.subject.rsplit('.').next()?.parse().ok()?;
    let due = message.headers.get(DUE)?.as_str().parse().ok()?;
    match Input::from_bytes(&message.payload) {
        Ok(input) if input.entity == entity => {}
        Err(InputError::TooNew { .. }) => {}
        Ok(_) | Err(_) => return None,
    }
    Some(TimerMessage { entity, id, due: Timestamp(due), input: message.payload.clone() })
}

fn store_error(failure: RequestFailure) -> StoreError {
    failure.of_store(STORE)
}
