//! The bus trait: publish, subscribe, request. Keeps nothing; delivers at most once.
//!
//! Subjects are tokens between dots; a subscription may use `*` for one token and a last `>` for
//! all that follow, as in NATS.

use std::{pin::Pin, time::Duration};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_proto::{ProcessId, Traceparent};
use futures_util::Stream;
use tokio::sync::broadcast;

use crate::StoreError;

/// Messages that wait for one slow subscriber before it gets `Lagged`.
pub const SUBSCRIPTION_CAPACITY: usize = 1_024;

/// The first part of the subjects on which requests wait for answers. A user of NATS has those
/// below its public key, and no other user may listen there.
pub const INBOX: &str = "_INBOX";

/// A message as a subscriber gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusMessage {
    pub subject: String,
    /// Where an answer is expected.
    pub reply: Option<String>,
    /// The trace it belongs to.
    pub traceparent: Option<Traceparent>,
    pub payload: Bytes,
}

// === impl BusMessage ===

impl BusMessage {
    /// Where to answer: an inbox, or nowhere. The sender names the subject. It must not get a
    /// message written where only a process with more rights may write.
    pub fn answer_to(&self) -> Option<&str> {
        let is_inbox =
            |subject: &&str| subject.strip_prefix(INBOX).is_some_and(|rest| rest.starts_with('.'));
        self.reply.as_deref().filter(is_inbox)
    }
}

/// An item of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusEvent {
    Message(BusMessage),
    /// Messages were dropped, because this subscriber was too slow.
    Lagged,
}

/// Yields events until it is dropped or the bus is closed.
pub type Subscription = Pin<Box<dyn Stream<Item = BusEvent> + Send>>;

/// Why a request has no answer.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No process listens on the subject.
    #[error("`{subject}` has no listener")]
    NoResponders { subject: String },
    /// A process may have it, but did not answer in time.
    #[error("no answer on `{subject}` within {timeout:?}")]
    Timeout {
        subject: String,
        /// How long was waited.
        timeout: Duration,
    },
    /// The bus is out of reach.
    #[error(transparent)]
    Bus(#[from] StoreError),
}

/// How a process is connected at present.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BusConnection {
    /// The server at its other end, by its own name; empty for a bus within the process.
    pub server: String,
    /// How many times that connection broke, was made again, or was announced to end.
    pub breaks: u64,
}

/// Publish, subscribe, request.
#[async_trait]
pub trait Bus: Send + Sync + std::fmt::Debug {
    /// Sends to the present listeners.
    async fn publish(
        &self,
        subject: String,
        traceparent: Option<Traceparent>,
        payload: Bytes,
    ) -> Result<(), StoreError>;

    /// Listens; registered when this returns.
    async fn subscribe(&self, subject: String) -> Result<Subscription, StoreError>;

    /// Asks and waits for one answer, at most `timeout`.
    async fn request(
        &self,
        subject: String,
        payload: Bytes,
        timeout: Duration,
    ) -> Result<Bytes, RequestError>;

    /// The present connection.
    fn attached(&self) -> BusConnection;

    /// Processes whose connection has ended according to a server, if servers report that.
    fn partings(&self) -> Option<broadcast::Receiver<ProcessId>>;
}

/// Whether a subscription's `pattern` takes in `subject`.
pub fn matches(pattern: &str, subject: &str) -> bool {
    let mut subject = subject.split('.');
    for wanted in pattern.split('.') {
        match (wanted, subject.next()) {
            (">", Some(_)) => return true,
            ("*", Some(_)) => {}
            (wanted, Some(token)) if wanted == token => {}
            _ => return false,
        }
    }
    subject.next().is_none()
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{BusMessage, matches};

    #[test]
    fn wildcards_match_as_in_nats() {
        for (pattern, subject, expected) in [
            ("a.b", "a.b", true),
            ("a.b", "a.b.c", false),
            ("a.b.c", "a.b", false),
            ("a.*", "a.b", true),
            ("a.*", "a", false),
            ("a.*.c", "a.b.c", true),
            ("a.>", "a.b.c", true),
            ("a.>", "a", false),
            (">", "a", true),
        ] {
            assert_eq!(matches(pattern, subject), expected, "{pattern} {subject}");
        }
    }

    #[test]
    fn only_inboxes_are_answered() {
        for (reply, answered) in [
            (None, false),
            (Some("_INBOX.U.1"), true),
            (Some("_INBOX"), false),
            (Some("_INBOXES.U.1"), false),
            (Some("cn.kv.latch.all"), false),
            (Some("$JS.API.STREAM.DELETE.CN_JOURNAL"), false),
            (Some(""), false),
        ] {
            let message = BusMessage {
                subject: "cn.name.n".to_owned(),
                reply: reply.map(str::to_owned),
                traceparent: None,
                payload: Bytes::new(),
            };
            assert_eq!(message.answer_to(), reply.filter(|_| answered), "{reply:?}");
        }
    }
}
