//! Reads from a stream's leader, by exact subject.

use std::collections::BTreeMap;

use async_nats::{
    HeaderMap,
    header::{NATS_MARKER_REASON, NATS_ROLLUP},
    jetstream::{message::StreamMessage, stream::Stream},
};
use clawnode_cluster::PAGE_BYTES;
use clawnode_proto::Position;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde_json::json;

use super::api::{Api, RequestFailure, until_answered};

/// A stream, read at its leader.
#[derive(Clone, Debug)]
pub(super) struct StreamReader {
    api: Api,
    name: String,
    stream: Stream<()>,
}

/// Messages of a page that are asked for at the same time.
const PAGE_AT_ONCE: usize = 32;

/// A server's counts for a stream.
#[derive(Deserialize)]
struct StreamCounts {
    #[serde(default)]
    num_subjects: u64,
    #[serde(default)]
    last_seq: u64,
}

#[derive(Deserialize)]
struct SubjectsPage {
    #[serde(default)]
    total: u64,
    state: SubjectsState,
}

#[derive(Deserialize)]
struct SubjectsState {
    #[serde(default)]
    subjects: Option<BTreeMap<String, u64>>,
}

// === impl StreamReader ===

impl StreamReader {
    pub(super) async fn new(api: Api, name: String) -> Result<Self, RequestFailure> {
        let stream = api
            .context
            .get_stream_no_info(&name)
            .await
            .map_err(|error| RequestFailure::Rejected(error.to_string()))?;
        Ok(Self { api, name, stream })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn stream(&self) -> &Stream<()> {
        &self.stream
    }

    /// The last message of a literal subject.
    pub(super) async fn last(
        &self,
        subject: &str,
    ) -> Result<Option<StreamMessage>, RequestFailure> {
        self.api.check_open()?;
        let ask = || self.stream.raw_message_builder().last_by_subject(subject).send();
        found(until_answered(ask).await)
    }

    /// The same, asked for once: an answer that is large takes its time on a busy connection, and
    /// must not come several times.
    pub(super) async fn last_once(
        &self,
        subject: &str,
    ) -> Result<Option<StreamMessage>, RequestFailure> {
        self.api.check_open()?;
        found(self.stream.raw_message_builder().last_by_subject(subject).send().await)
    }

    /// The first message at or after `from` whose subject matches.
    pub(super) async fn next(
        &self,
        subject: &str,
        from: u64,
    ) -> Result<Option<StreamMessage>, RequestFailure> {
        self.api.check_open()?;
        let request = || self.stream.raw_message_builder().sequence(from).next_by_subject(subject);
        found(until_answered(|| request().send()).await)
    }

    /// All messages of a subject after `after`, up to the last one when this began. A message that
    /// replaced all before it is the first of the answer, as if this had begun after it.
    pub(super) async fn all(
        &self,
        subject: &str,
        after: Position,
    ) -> Result<Vec<StreamMessage>, RequestFailure> {
        let Some(last) = self.last(subject).await? else { return Ok(Vec::new()) };
        let mut messages = Vec::new();
        let mut from = after.0 + 1;
        while from < last.sequence {
            let Some(message) = self.next(subject, from).await? else { return Ok(messages) };
            from = message.sequence + 1;
            let replaces = message.headers.get(NATS_ROLLUP).is_some();
            if replaces {
                messages.clear();
            }
            let is_last = message.sequence >= last.sequence;
            messages.push(message);
            if is_last {
                return Ok(messages);
            }
        }
        if last.headers.get(NATS_ROLLUP).is_some() {
            messages.clear();
        }
        if last.sequence > after.0 {
            messages.push(last);
        }
        Ok(messages)
    }

    /// The subjects that match and have messages, with how many.
    pub(super) async fn subjects(
        &self,
        filter: &str,
    ) -> Result<BTreeMap<String, u64>, RequestFailure> {
        let mut all = BTreeMap::new();
        loop {
            let question = json!({ "subjects_filter": filter, "offset": all.len() });
            let subject = format!("STREAM.INFO.{}", self.name);
            let page: SubjectsPage = until_answered(|| self.api.ask(&subject, &question)).await?;
            let subjects = page.state.subjects.unwrap_or_default();
            // An empty page ends it too: subjects may vanish while this counts.
            let is_end = subjects.is_empty();
            all.extend(subjects);
            if is_end || all.len() as u64 >= page.total {
                return Ok(all);
            }
        }
    }

    /// How many subjects have messages: a number that the server keeps.
    pub(super) async fn subject_count(&self) -> Result<u64, RequestFailure> {
        Ok(self.counts().await?.num_subjects)
    }

    /// The sequence of the last message that was stored, also if it was removed since.
    pub(super) async fn last_sequence(&self) -> Result<u64, RequestFailure> {
        Ok(self.counts().await?.last_seq)
    }

    /// A server's counts.
    async fn counts(&self) -> Result<StreamCounts, RequestFailure> {
        #[derive(Deserialize)]
        struct Info {
            state: StreamCounts,
        }
        let (subject, question) = (format!("STREAM.INFO.{}", self.name), json!({}));
        let info: Info = until_answered(|| self.api.ask(&subject, &question)).await?;
        Ok(info.state)
    }

    /// The first messages whose subjects match `filter` after `after`, at most `limit`, by sequence,
    /// and the sequence up to which there are no others. `filter` must match most of the stream.
    pub(super) async fn page(
        &self,
        filter: &str,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<StreamMessage>, u64), RequestFailure> {
        let last = self.counts().await?.last_seq;
        if last <= after {
            return Ok((Vec::new(), after));
        }
        // Jumps over all that was removed before the next one.
        let Some(first) = self.next(filter, after + 1).await? else {
            return Ok((Vec::new(), after));
        };
        let from = first.sequence;
        let end = last.min(from.saturating_add(limit.saturating_sub(1) as u64));
        let mut rest =
            stream::iter(from + 1..=end).map(|at| self.at_if_any(at)).buffered(PAGE_AT_ONCE);
        let (mut bytes, mut page) = (first.payload.len(), vec![first]);
        // Sequences are given in order, so one below a message without a message of its own never
        // has one again. The read continues after the last message that was found.
        while let Some(message) = rest.next().await {
            let Some(message) = message? else { continue };
            bytes += message.payload.len();
            if bytes > PAGE_BYTES {
                break;
            }
            page.push(message);
        }
        let upto = page.last().map_or(after, |last| last.sequence);
        Ok((page, upto))
    }

    /// The message at a sequence. That there is none is believed if it is said twice: a leader that was
    /// deposed may say so too.
    async fn at_if_any(&self, sequence: u64) -> Result<Option<StreamMessage>, RequestFailure> {
        match self.at(sequence).await? {
            Some(message) => Ok(Some(message)),
            None => self.at(sequence).await,
        }
    }

    /// The message at a sequence.
    async fn at(&self, sequence: u64) -> Result<Option<StreamMessage>, RequestFailure> {
        self.api.check_open()?;
        found(until_answered(|| self.stream.raw_message_builder().sequence(sequence).send()).await)
    }

    /// The backlog of each consumer of this stream, by its name: not delivered, and delivered
    /// without an acknowledgement.
    pub(super) async fn backlogs(&self) -> Result<BTreeMap<String, (u64, u64)>, RequestFailure> {
        #[derive(Deserialize)]
        struct Page {
            #[serde(default)]
            total: usize,
            #[serde(default)]
            consumers: Vec<Consumer>,
        }
        #[derive(Deserialize)]
        struct Consumer {
            name: String,
            #[serde(default)]
            num_pending: u64,
            #[serde(default)]
            num_ack_pending: u64,
        }
        let mut all = BTreeMap::new();
        let mut offset = 0;
        loop {
            let question = json!({ "offset": offset });
            let page: Page =
                self.api.ask(&format!("CONSUMER.LIST.{}", self.name), &question).await?;
            offset += page.consumers.len();
            let is_end = page.consumers.is_empty() || offset >= page.total;
            let left = |consumer: Consumer| {
                (consumer.name, (consumer.num_pending, consumer.num_ack_pending))
            };
            all.extend(page.consumers.into_iter().map(left));
            if is_end {
                return Ok(all);
            }
        }
    }

    /// Removes the messages whose subjects match.
    pub(super) async fn purge(&self, filter: &str) -> Result<(), RequestFailure> {
        #[derive(Deserialize)]
        struct Purged {}
        let question = json!({ "filter": filter });
        let Purged {} = self.api.ask(&format!("STREAM.PURGE.{}", self.name), &question).await?;
        Ok(())
    }
}

/// Whether a message only says that there is none: the server's marker of an expired one.
pub(super) fn is_expiry_marker(headers: &HeaderMap) -> bool {
    headers.get(NATS_MARKER_REASON).is_some()
}

fn found(
    answer: Result<StreamMessage, async_nats::jetstream::stream::RawMessageError>,
) -> Result<Option<StreamMessage>, RequestFailure> {
    match answer.map_err(|error| RequestFailure::of_raw_read(&error)) {
        Ok(message) => Ok(Some(message)),
        Err(failure) if failure.is_no_message() => Ok(None),
        Err(failure) => Err(failure),
    }
}
