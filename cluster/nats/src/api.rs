//! One request, one publish, and the meaning of their failures: the only file that reads the
//! server's error codes.

use std::{sync::Arc, time::Duration};

use async_nats::{
    Client, HeaderMap, Request, RequestErrorKind, connection::State, jetstream::Context,
};
use bytes::Bytes;
use clawnode_cluster::{StoreError, clock::Backoff};
use clawnode_proto::Position;
use futures_util::{StreamExt, stream::FuturesUnordered};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tokio_util::sync::CancellationToken;

use super::signals::ConnectionSignals;

/// The server's words for "the last message of the subject is not the expected one".
const WRONG_LAST_SEQUENCE: u64 = 10_071;
/// Another write to the same subject is under way; nothing is known.
const BUSY: u64 = 10_164;
/// Tries while another write is under way; together they take about a second.
const BUSY_TRIES: u32 = 24;
/// Tries while no server takes what is written; together they take about a second.
const UNHEARD_TRIES: u32 = 24;
/// No message under this subject or sequence.
const NO_MESSAGE: u64 = 10_037;
/// A stream of this name does not exist, or has no leader at the moment.
const STREAM_NOT_FOUND: u64 = 10_059;
/// A consumer of this name does not exist.
const CONSUMER_NOT_FOUND: u64 = 10_014;
/// A stream of this name exists with another configuration.
const STREAM_EXISTS: u64 = 10_058;
/// Three replicas need a cluster.
const REPLICAS_NOT_SUPPORTED: u64 = 10_074;
/// Not enough servers for the replicas.
const NO_PEERS: u64 = 10_005;
/// `JetStream` is off, for the server or for the account.
const NOT_ENABLED: [u64; 2] = [10_076, 10_039];
/// A limit on storage was reached: of the server, the account or the stream.
const FULL: [u64; 3] = [10_047, 10_023, 10_122];
/// The stream could not store; its description says why.
const STORE_FAILED: u64 = 10_077;

/// How long a read waits for its answer before it is sent again. A stream without a leader does not
/// answer, not even "no responders", because all servers listen to such requests. A request sent
/// before the election is lost, and its timeout would end seconds after the new leader is there.
const ASKED_AGAIN: Duration = Duration::from_millis(500);

/// The connection, and how long to wait on it. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Api {
    pub(super) client: Client,
    pub(super) context: Context,
    pub(super) signals: Arc<ConnectionSignals>,
    pub(super) closing: CancellationToken,
    pub(super) timeout: Duration,
}

/// Why a request or publish has no good answer.
#[derive(Clone, Debug)]
pub(super) enum RequestFailure {
    /// Nothing is known; it may or may not have taken effect.
    Unknown(String),
    /// No server listened, so it has not taken effect.
    Unheard(String),
    /// The server answered with an error.
    Answer(ApiError),
    /// It was not sent, because it can't be.
    Rejected(String),
    /// The storage backend was closed.
    Closed,
}

/// The server's answer when it fails.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct ApiError {
    code: u16,
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

/// Any `JetStream` answer: an error, or the requested data.
#[derive(Deserialize)]
struct Envelope {
    error: Option<ApiError>,
}

#[derive(Deserialize)]
struct PublishAck {
    seq: u64,
}

// === impl Api ===

impl Api {
    /// Asks the `JetStream` API for `subject`, without its `$JS.API.`.
    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        subject: &str,
        question: &impl Serialize,
    ) -> Result<T, RequestFailure> {
        let payload = serde_json::to_vec(question)
            .map_err(|error| RequestFailure::Rejected(error.to_string()))?;
        let request = Request::new().payload(payload.into()).timeout(Some(self.timeout));
        parse(&self.request(format!("$JS.API.{subject}"), request).await?)
    }

    /// Publishes into a stream and waits until it is stored there.
    ///
    /// No server listens for a stream's subjects while the stream has no leader. Just after its
    /// creation, a server may not know of it yet. Such a message was not stored, so it is sent
    /// again for about a second.
    pub(super) async fn publish(
        &self,
        subject: String,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<Position, RequestFailure> {
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(100));
        loop {
            let request = Request::new()
                .headers(headers.clone())
                .payload(payload.clone())
                .timeout(Some(self.timeout));
            match self.request(subject.clone(), request).await {
                Err(RequestFailure::Unheard(_)) if backoff.tries() < UNHEARD_TRIES => {
                    let pause = backoff.next(&mut rand::rng());
                    tokio::time::sleep(pause).await;
                }
                answer => {
                    let ack: PublishAck = parse(&answer?)?;
                    return Ok(Position(ack.seq));
                }
            }
        }
    }

    /// Publishes as [`publish`](Self::publish) does, and waits while another write to the subject
    /// is under way: a busy stream has not stored ours.
    pub(super) async fn publish_when_free(
        &self,
        subject: &str,
        headers: HeaderMap,
        payload: Bytes,
    ) -> Result<Position, RequestFailure> {
        let mut backoff = Backoff::new(Duration::from_millis(2), Duration::from_millis(100));
        loop {
            let stored = self.publish(subject.to_owned(), headers.clone(), payload.clone()).await;
            match stored {
                Err(failure) if failure.is_busy() && backoff.tries() < BUSY_TRIES => {
                    let pause = backoff.next(&mut rand::rng());
                    tokio::time::sleep(pause).await;
                }
                stored => return stored,
            }
        }
    }

    /// Waits until the server has taken all earlier messages: it answers in order. A flush only
    /// waits for the socket.
    pub(super) async fn round_trip(&self, within: Duration) -> Result<(), RequestFailure> {
        // A new inbox has no listener, and the server says so at once.
        let request = Request::new().timeout(Some(within));
        match self.client.send_request(self.client.new_inbox(), request).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == RequestErrorKind::NoResponders => Ok(()),
            Err(error) => Err(RequestFailure::Unknown(error.to_string())),
        }
    }

    /// Sends a request and waits for its answer, at most as long as it says.
    pub(super) async fn request(
        &self,
        subject: String,
        request: Request,
    ) -> Result<Bytes, RequestFailure> {
        self.check_open()?;
        let answer = self.client.send_request(subject.clone(), request);
        // The client's own timeout begins after the request is queued; a full queue waits too.
        match tokio::time::timeout(self.timeout.saturating_mul(2), answer).await {
            Ok(Ok(message)) => Ok(message.payload),
            Ok(Err(error)) => match error.kind() {
                RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                    Err(RequestFailure::Rejected(error.to_string()))
                }
                RequestErrorKind::TimedOut if self.signals.is_denied(&subject) => Err(
                    RequestFailure::Rejected(format!("this user may not publish to `{subject}`")),
                ),
                RequestErrorKind::NoResponders => Err(RequestFailure::Unheard(error.to_string())),
                RequestErrorKind::TimedOut | RequestErrorKind::Other => {
                    Err(RequestFailure::Unknown(error.to_string()))
                }
            },
            Err(elapsed) => Err(RequestFailure::Unknown(elapsed.to_string())),
        }
    }

    /// Fails at once when closed or not connected, so that nothing is queued to be sent much later.
    pub(super) fn check_open(&self) -> Result<(), RequestFailure> {
        if self.closing.is_cancelled() {
            return Err(RequestFailure::Closed);
        }
        match self.client.connection_state() {
            State::Connected => Ok(()),
            State::Pending | State::Disconnected => {
                Err(RequestFailure::Unknown("not connected to NATS".to_owned()))
            }
        }
    }
}

fn parse<T: DeserializeOwned>(answer: &[u8]) -> Result<T, RequestFailure> {
    let unreadable =
        |error: serde_json::Error| RequestFailure::Unknown(format!("unreadable answer: {error}"));
    let envelope: Envelope = serde_json::from_slice(answer).map_err(unreadable)?;
    match envelope.error {
        Some(error) => Err(RequestFailure::Answer(error)),
        None => serde_json::from_slice(answer).map_err(unreadable),
    }
}

/// Sends a question repeatedly until one copy has an answer, or the first has waited for its whole
/// time. Only for questions that may be answered late and more than once: a read is valid then, and
/// creating a thing twice with the same settings creates it once.
pub(super) async fn until_answered<A: Future>(ask: impl Fn() -> A) -> A::Output {
    let mut asked = FuturesUnordered::from_iter([ask()]);
    loop {
        tokio::select! {
            Some(answer) = asked.next() => return answer,
            () = tokio::time::sleep(ASKED_AGAIN) => asked.push(ask()),
        }
    }
}

// === impl RequestFailure ===

impl RequestFailure {
    /// A failure of a read by the client library's own request.
    pub(super) fn of_raw_read(error: &async_nats::jetstream::stream::RawMessageError) -> Self {
        use async_nats::jetstream::stream::RawMessageErrorKind as Kind;
        match error.kind() {
            Kind::NoMessageFound => Self::Answer(ApiError {
                code: 404,
                err_code: NO_MESSAGE,
                description: error.to_string(),
            }),
            Kind::InvalidSubject => Self::Rejected(error.to_string()),
            Kind::JetStream(inner) => Self::Answer(ApiError {
                code: u16::try_from(inner.code()).unwrap_or(500),
                err_code: inner.error_code().0,
                description: inner.to_string(),
            }),
            Kind::Other => Self::Unknown(error.to_string()),
        }
    }

    fn err_code(&self) -> Option<u64> {
        match self {
            Self::Answer(error) => Some(error.err_code),
            Self::Unknown(_) | Self::Unheard(_) | Self::Rejected(_) | Self::Closed => None,
        }
    }

    pub(super) fn is_wrong_last_sequence(&self) -> bool {
        self.err_code() == Some(WRONG_LAST_SEQUENCE)
    }

    /// Where the last message of a subject is, 0 for none, if a refusal for that says so: it does not
    /// while another message of the subject is on its way.
    pub(super) fn last_sequence(&self) -> Option<u64> {
        match self {
            Self::Answer(error) if error.err_code == WRONG_LAST_SEQUENCE => {
                error.description.rsplit(' ').next()?.parse().ok()
            }
            _ => None,
        }
    }

    fn is_busy(&self) -> bool {
        self.err_code() == Some(BUSY)
    }

    pub(super) fn is_no_message(&self) -> bool {
        self.err_code() == Some(NO_MESSAGE)
    }

    pub(super) fn is_stream_not_found(&self) -> bool {
        self.err_code() == Some(STREAM_NOT_FOUND)
    }

    pub(super) fn is_consumer_not_found(&self) -> bool {
        self.err_code() == Some(CONSUMER_NOT_FOUND)
    }

    pub(super) fn is_stream_exists(&self) -> bool {
        self.err_code() == Some(STREAM_EXISTS)
    }

    pub(super) fn is_replicas_not_supported(&self) -> bool {
        self.err_code() == Some(REPLICAS_NOT_SUPPORTED)
    }

    pub(super) fn is_no_peers(&self) -> bool {
        self.err_code() == Some(NO_PEERS)
    }

    pub(super) fn is_not_enabled(&self) -> bool {
        self.err_code().is_some_and(|code| NOT_ENABLED.contains(&code))
    }

    /// Whether the same call may work later.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unknown(_) | Self::Unheard(_) => true,
            Self::Answer(error) => error.is_transient(),
            Self::Rejected(_) | Self::Closed => false,
        }
    }

    /// The error of a store handle.
    pub(super) fn of_store(self, store: &'static str) -> StoreError {
        match self {
            Self::Unknown(detail) | Self::Unheard(detail) => {
                StoreError::Unavailable { store, detail }
            }
            Self::Answer(error) if error.is_full() => {
                StoreError::Full { store, detail: error.to_string() }
            }
            Self::Answer(error) if error.is_transient() => {
                StoreError::Unavailable { store, detail: error.to_string() }
            }
            Self::Answer(error) => StoreError::Refused { store, detail: error.to_string() },
            Self::Rejected(detail) => StoreError::Refused { store, detail },
            Self::Closed => {
                StoreError::Closed { store, detail: "the connection was closed".to_owned() }
            }
        }
    }
}

impl std::fmt::Display for RequestFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unknown(detail) | Self::Unheard(detail) | Self::Rejected(detail) => {
                f.write_str(detail)
            }
            Self::Answer(error) => error.fmt(f),
            Self::Closed => f.write_str("the connection was closed"),
        }
    }
}

// === impl ApiError ===

impl ApiError {
    fn is_full(&self) -> bool {
        // A failed store says only in its text that a limit of the stream was the reason.
        FULL.contains(&self.err_code)
            || (self.err_code == STORE_FAILED && self.description.contains("maximum"))
    }

    /// A server without a leader or in trouble; all 503 are that, and some 404 and 400 too.
    fn is_transient(&self) -> bool {
        !self.is_full()
            && (self.code == 503
                || matches!(self.err_code, BUSY | STREAM_NOT_FOUND | STORE_FAILED | NO_PEERS))
    }
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} (NATS error {})", self.description, self.err_code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(code: u16, err_code: u64, description: &str) -> RequestFailure {
        RequestFailure::Answer(ApiError { code, err_code, description: description.to_owned() })
    }

    #[test]
    fn answers_are_told_apart() {
        assert!(failure(400, WRONG_LAST_SEQUENCE, "").is_wrong_last_sequence());
        for (says, at) in [
            ("wrong last sequence: 17", Some(17)),
            ("wrong last sequence: 0", Some(0)),
            ("?", None),
        ] {
            assert_eq!(failure(400, WRONG_LAST_SEQUENCE, says).last_sequence(), at);
        }
        for (given, transient, word) in [
            (failure(400, BUSY, "busy"), true, "unavailable"),
            (failure(503, 10_008, "no leader"), true, "unavailable"),
            (failure(404, STREAM_NOT_FOUND, "stream not found"), true, "unavailable"),
            (failure(503, STORE_FAILED, "maximum bytes exceeded"), false, "full"),
            (failure(503, STORE_FAILED, "disk"), true, "unavailable"),
            (failure(500, 10_047, "insufficient storage"), false, "full"),
            (failure(400, 10_054, "message size exceeds maximum allowed"), false, "refused"),
            (RequestFailure::Unknown("timed out".to_owned()), true, "unavailable"),
            (RequestFailure::Unheard("no responders".to_owned()), true, "unavailable"),
            (RequestFailure::Rejected("too large".to_owned()), false, "refused"),
            (RequestFailure::Closed, false, "closed"),
        ] {
            assert_eq!(given.is_transient(), transient, "{given}");
            let error = given.of_store("journal");
            assert_eq!(error.is_transient(), transient, "{error}");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn an_error_inside_an_answer_is_found() {
        let answer = br#"{"error":{"code":400,"err_code":10071,"description":"wrong"},"seq":0}"#;
        assert!(parse::<PublishAck>(answer).is_err_and(|failure| failure.is_wrong_last_sequence()));
        assert!(parse::<PublishAck>(br#"{"stream":"A","seq":7}"#).is_ok_and(|ack| ack.seq == 7));
        assert!(parse::<PublishAck>(b"what").is_err_and(|failure| failure.is_transient()));
    }
}
