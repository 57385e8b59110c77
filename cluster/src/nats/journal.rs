//! The journal: one stream, one literal subject for each entity.
//!
//! An append carries the expected last sequence of its subject and no message id. A position is a
//! stream sequence.

use async_nats::{
    HeaderMap, HeaderValue,
    header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_ROLLUP},
    jetstream::message::StreamMessage,
};
use async_trait::async_trait;
use clawnode_proto::{
    EntityId, Partition, Position,
    limits::APPEND_BYTES,
    subject::{Prefix, entity_of},
};

use super::{
    api::{Api, Failure},
    stream::Reader,
};
use crate::{AppendAnswer, Journal, Record, StoreError, Write};

/// What errors call it.
const STORE: &str = "journal";

/// A publish that replaces what its subject had before.
pub(super) const ROLLUP_SUBJECT: &str = "sub";

/// The journal on `JetStream`.
#[derive(Debug)]
pub(super) struct NatsJournal {
    api: Api,
    prefix: Prefix,
    partitions: u16,
    reader: Reader,
}

// === impl NatsJournal ===

impl NatsJournal {
    pub(super) fn new(api: Api, prefix: Prefix, partitions: u16, reader: Reader) -> Self {
        Self { api, prefix, partitions, reader }
    }

    fn subject(&self, entity: EntityId) -> String {
        self.prefix.journal(entity.partition(self.partitions), entity)
    }
}

#[async_trait]
impl Journal for NatsJournal {
    async fn append(&self, entity: EntityId, expected: Position, write: Write) -> AppendAnswer {
        let bytes = write.bytes.len();
        if bytes > APPEND_BYTES {
            return AppendAnswer::Defect(StoreError::Refused {
                store: STORE,
                detail: format!("an append of {bytes} bytes is over the limit of {APPEND_BYTES}"),
            });
        }
        let mut headers = expecting(expected);
        if write.rollup {
            headers.insert(NATS_ROLLUP, ROLLUP_SUBJECT);
        }
        match self.api.publish(self.subject(entity), headers, write.bytes).await {
            Ok(position) => AppendAnswer::Stored(position),
            Err(failure) if failure.is_wrong_last_sequence() => AppendAnswer::Refused,
            Err(failure) => match failure.of_store(STORE) {
                defect @ StoreError::Refused { .. } => AppendAnswer::Defect(defect),
                error => AppendAnswer::Unknown(error),
            },
        }
    }

    async fn read(&self, entity: EntityId, after: Position) -> Result<Vec<Record>, StoreError> {
        let messages = self.reader.all(&self.subject(entity), after).await.map_err(store_error)?;
        Ok(messages.into_iter().map(record).collect())
    }

    async fn tail(&self, entity: EntityId) -> Result<Option<Record>, StoreError> {
        let message = self.reader.last(&self.subject(entity)).await.map_err(store_error)?;
        Ok(message.map(record))
    }

    async fn entities(
        &self,
        after: Option<EntityId>,
        limit: usize,
    ) -> Result<Vec<EntityId>, StoreError> {
        // Partition by partition, from that of the page before on, so that neither an answer of the
        // server nor a page grows with the whole cluster.
        let from = after.map_or(0, |after| after.partition(self.partitions).0);
        let mut found = Vec::new();
        for partition in (from..self.partitions).map(Partition) {
            let filter = self.prefix.journals_of(partition);
            let subjects = self.reader.subjects(&filter).await.map_err(store_error)?;
            let before = after.filter(|_| partition.0 == from);
            let mut entities: Vec<EntityId> = subjects
                .keys()
                .filter_map(|subject| entity_of(subject))
                .filter(|entity| before.is_none_or(|before| *entity > before))
                .collect();
            entities.sort_unstable();
            entities.truncate(limit - found.len());
            found.append(&mut entities);
            if found.len() == limit {
                break;
            }
        }
        Ok(found)
    }

    async fn count(&self) -> Result<u64, StoreError> {
        // The stream has nothing but journals, and each has one subject.
        self.reader.subject_count().await.map_err(store_error)
    }
}

/// Headers with which a publish is stored only if the subject's last message is at `expected`.
pub(super) fn expecting(expected: Position) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, HeaderValue::from(expected.0));
    headers
}

fn record(message: StreamMessage) -> Record {
    Record { position: Position(message.sequence), bytes: message.payload }
}

fn store_error(failure: Failure) -> StoreError {
    failure.of_store(STORE)
}
