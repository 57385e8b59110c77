//! The journal: one stream, one literal subject for each entity.
//!
//! An append carries the expected last sequence of its subject and no message id. A position is a
//! stream sequence. Messages under the subject that are not records ([`super::foreign_messages`]) are not
//! read. An append that finds only such messages after its expected position is made after them:
//! the fence is about records.

use async_nats::{
    HeaderMap, HeaderValue,
    header::{NATS_EXPECTED_LAST_SUBJECT_SEQUENCE, NATS_ROLLUP},
    jetstream::message::StreamMessage,
};
use async_trait::async_trait;
use clawnode_cluster::{AppendAnswer, FeedPage, Journal, Record, StoreError, Write};
use clawnode_proto::{
    EntityId, Partition, Position,
    limits::APPEND_BYTES,
    subject::{Prefix, entity_of},
};

use super::{
    api::{Api, RequestFailure},
    foreign_messages::is_foreign,
    stream::StreamReader,
};

/// The name of this store in errors.
const STORE: &str = "journal";

/// How often an append is made again after messages that are not records, before the journal counts
/// as busy.
const FOREIGN_TRIES: u32 = 16;
/// A publish that replaces all earlier messages of its subject.
pub(super) const ROLLUP_SUBJECT: &str = "sub";

/// The journal on `JetStream`.
#[derive(Debug)]
pub(super) struct NatsJournal {
    api: Api,
    prefix: Prefix,
    partitions: u16,
    reader: StreamReader,
}

// === impl NatsJournal ===

impl NatsJournal {
    pub(super) fn new(api: Api, prefix: Prefix, partitions: u16, reader: StreamReader) -> Self {
        Self { api, prefix, partitions, reader }
    }

    /// Where the subject ends, if all behind `expected` are no records; `None` if one is.
    async fn behind_foreign(
        &self,
        subject: &str,
        expected: Position,
    ) -> Result<Option<Position>, RequestFailure> {
        let behind = self.reader.all(subject, expected).await?;
        if !behind.iter().all(|message| self.is_foreign(message)) {
            return Ok(None);
        }
        Ok(behind.last().map(|last| Position(last.sequence)))
    }

    fn is_foreign(&self, message: &StreamMessage) -> bool {
        let is_foreign = is_foreign(Some(&message.headers), &message.payload);
        if is_foreign {
            self.api.signals.met_foreign(&message.subject, message.sequence);
        }
        is_foreign
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
        let (subject, mut behind) = (self.subject(entity), expected);
        for _ in 0..FOREIGN_TRIES {
            let mut headers = expecting(behind);
            if write.rollup {
                headers.insert(NATS_ROLLUP, ROLLUP_SUBJECT);
            }
            match self.api.publish(subject.clone(), headers, write.bytes.clone()).await {
                Ok(position) => return AppendAnswer::Stored(position),
                Err(failure) if failure.is_wrong_last_sequence() => {}
                Err(failure) => {
                    return match failure.of_store(STORE) {
                        defect @ StoreError::Refused { .. } => AppendAnswer::Defect(defect),
                        error => AppendAnswer::Unknown(error),
                    };
                }
            }
            match self.behind_foreign(&subject, expected).await {
                Ok(Some(last)) => behind = last,
                Ok(None) => return AppendAnswer::Refused,
                Err(failure) => return AppendAnswer::Unknown(store_error(failure)),
            }
        }
        AppendAnswer::Unknown(StoreError::Unavailable {
            store: STORE,
            detail: format!("other writers change `{subject}` all the time"),
        })
    }

    async fn read(&self, entity: EntityId, after: Position) -> Result<Vec<Record>, StoreError> {
        let messages = self.reader.all(&self.subject(entity), after).await.map_err(store_error)?;
        Ok(messages.into_iter().filter(|message| !self.is_foreign(message)).map(record).collect())
    }

    async fn tail(&self, entity: EntityId) -> Result<Option<Record>, StoreError> {
        let subject = self.subject(entity);
        match self.reader.last(&subject).await.map_err(store_error)? {
            // Nothing reads backwards.
            Some(last) if self.is_foreign(&last) => Ok(self.read(entity, Position(0)).await?.pop()),
            last => Ok(last.map(record)),
        }
    }

    async fn follow(&self, after: Position, limit: usize) -> Result<FeedPage, StoreError> {
        let filter = self.prefix.journals();
        let page = self.reader.page(&filter, after.0, limit);
        let (messages, upto) = page.await.map_err(store_error)?;
        let entity_record =
            |message: StreamMessage| Some((entity_of(&message.subject)?, record(message)));
        let ours = messages.into_iter().filter(|message| !self.is_foreign(message));
        Ok(FeedPage { records: ours.filter_map(entity_record).collect(), upto: Position(upto) })
    }

    async fn end(&self) -> Result<Position, StoreError> {
        self.reader.last_sequence().await.map(Position).map_err(store_error)
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

fn store_error(failure: RequestFailure) -> StoreError {
    failure.of_store(STORE)
}
