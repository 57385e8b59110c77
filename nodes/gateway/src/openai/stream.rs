//! A reply as server-sent events, in the words of the protocol that its client speaks.
//!
//! Each text's `id` is its cursor, and `Clawnode-Session` names the session: a client that is cut off goes
//! on at `/v1/sessions/SESSION/events`, at any gateway.
//!
//! The answer's head waits for the turn's first word, for [`HEAD_WITHIN`] at most, so that a failure
//! before it has its proper HTTP status; a failure after it is an error event.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use clawnode_proto::{
    ErrorBody, ErrorCode, FrameKey,
    client_tool::ClientCalls,
    frame::{ApprovalRequest, Notice},
    turn::{TurnBody, TurnEvent},
};
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};

use super::{
    super::{
        backend::Following,
        error::OpenAiError,
        gateway::Gateway,
        slow_client_stream::{count, lost},
    },
    approval::headers,
    reply::{FinishReason, Label, OpenAiReply, ReplyStep},
};

/// How long the answer's head waits for a word or a failure: providers refuse within that time, and no
/// proxy or client gives up before.
const HEAD_WITHIN: Duration = Duration::from_secs(2);
/// After how long without a word a comment keeps proxies from hanging up.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The last words of a stream of chat completions.
const DONE: &str = "[DONE]";
/// Events taken at once, when that many are ready; they leave in one write.
pub(super) const READY: usize = 16;

/// What was read of a turn before the head of its answer is sent.
#[derive(Default)]
pub(super) struct Early {
    pub(super) events: VecDeque<TurnEvent>,
    /// The call that waits for a person.
    pub(super) asked: Option<ApprovalRequest>,
}

/// A turn that ends before its first word.
pub(super) enum EarlyEnd {
    Lost,
    Failed(ErrorBody),
}

/// What a stream says of a turn, in the words of one protocol, each as server-sent events.
pub(in super::super) trait StreamWords: Send + 'static {
    /// What it begins with.
    fn open(&mut self, out: &mut String);

    /// More of the reply; a client that has seen it goes on from `cursor`.
    fn text(&mut self, text: &str, cursor: Option<FrameKey>, out: &mut String);

    /// More of the model's thoughts.
    fn thought(&mut self, text: &str, cursor: Option<FrameKey>, out: &mut String);

    /// A call waits for a person.
    fn asks(&mut self, request: &ApprovalRequest, out: &mut String);

    /// The turn waits for a provider. A protocol without words for it keeps the connection alive.
    fn waits(&mut self, _notice: &Notice, out: &mut String) {
        self.keep_alive(out);
    }

    /// Nothing was said for a while.
    fn keep_alive(&mut self, out: &mut String);

    /// The client is to run tools. The last words.
    fn called(&mut self, calls: &ClientCalls, reply: &OpenAiReply, out: &mut String);

    /// The reply is whole. The last words.
    fn finished(&mut self, reason: FinishReason, reply: &OpenAiReply, out: &mut String);

    /// There is no reply, or no more of it. The last words.
    fn failed(&mut self, error: ErrorBody, out: &mut String);

    /// The answer to a turn that has failed before its first word; `ended`: it is over.
    fn refusal(error: ErrorBody, ended: bool) -> Response;
}

/// The words of chat completions.
pub(super) struct CompletionWords(pub(super) Label);

/// One reply under way.
struct ReplyStream<W> {
    gateway: Arc<Gateway>,
    words: W,
    reply: OpenAiReply,
    sent: Instant,
    /// Absent once all is said.
    events: Option<BoxStream<'static, TurnEvent>>,
    /// What was read before the head was sent.
    early: VecDeque<TurnEvent>,
    /// Whether the first chunk was sent, and the first text.
    opened: bool,
    spoke: bool,
}

/// Answers with a stream, or with an error if the turn fails before its first word. `is_held`: the reply
/// may be corrected, so the client gets it only at its end.
pub(in super::super) async fn respond<W: StreamWords>(
    gateway: Arc<Gateway>,
    words: W,
    following: Following,
    sent: Instant,
    is_held: bool,
) -> Response {
    let (session, mut events) = (following.accepted.session, following.events);
    let Early { events: early, asked } = match Early::of(&gateway, &mut events, sent).await {
        Ok(early) => early,
        Err(EarlyEnd::Lost) => return W::refusal(lost(), false),
        Err(EarlyEnd::Failed(error)) => return W::refusal(error, true),
    };
    let telling = ReplyStream {
        gateway,
        words,
        reply: OpenAiReply::held(is_held),
        sent,
        events: Some(events),
        early,
        opened: false,
        spoke: false,
    };
    let kind = HeaderValue::from_static("text/event-stream");
    let body = Body::from_stream(stream::unfold(telling, ReplyStream::next));
    let mut response = ([(header::CONTENT_TYPE, kind)], body).into_response();
    response.headers_mut().extend(headers(asked.as_ref(), &session));
    response
}

// === impl Early ===

impl Early {
    /// Waits for a turn's first word, for a while.
    pub(super) async fn of(
        gateway: &Gateway,
        events: &mut BoxStream<'static, TurnEvent>,
        sent: Instant,
    ) -> Result<Self, EarlyEnd> {
        let mut early = Self::default();
        let until = tokio::time::Instant::now() + HEAD_WITHIN;
        while let Ok(event) = tokio::time::timeout_at(until, events.next()).await {
            let Some(event) = event else { return Err(EarlyEnd::Lost) };
            // A throw-away reply, only to read the event as the stream will.
            let step = OpenAiReply::default().take(event.body.clone());
            if let ReplyStep::Failed(error) = step {
                count(gateway, &event.body, sent);
                drain(gateway, events, sent);
                return Err(EarlyEnd::Failed(error));
            }
            let is_word = !matches!(step, ReplyStep::Nothing | ReplyStep::Waits(_));
            if let ReplyStep::Asks(request) = step {
                early.asked = Some(request);
            }
            early.events.push_back(event);
            if is_word {
                break;
            }
        }
        Ok(early)
    }
}

// === impl EarlyEnd ===

impl EarlyEnd {
    pub(super) fn respond(self) -> Response {
        match self {
            Self::Lost => OpenAiError::from(lost()).respond(),
            Self::Failed(error) => OpenAiError::from(error).respond_ended(),
        }
    }
}

// === impl ReplyStream ===

impl<W: StreamWords> ReplyStream<W> {
    async fn next(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        let mut out = String::new();
        while out.is_empty() {
            let mut events = self.events.take()?;
            if !std::mem::replace(&mut self.opened, true) {
                self.words.open(&mut out);
                if self.early.is_empty() {
                    self.events = Some(events);
                    continue;
                }
            }
            if let Some(event) = self.early.pop_front() {
                self.events = Some(events);
                self.tell(event, &mut out);
                continue;
            }
            let mut ready = events.as_mut().ready_chunks(READY);
            let chunk = tokio::time::timeout(KEEP_ALIVE, ready.next()).await;
            drop(ready);
            self.events = Some(events);
            match chunk {
                Ok(Some(chunk)) => {
                    for event in super::super::frame::coalesce(chunk) {
                        self.tell(event, &mut out);
                    }
                }
                Ok(None) => self.fail(lost(), &mut out),
                Err(_elapsed) => self.words.keep_alive(&mut out),
            }
        }
        Some((Ok(Bytes::from(out)), self))
    }

    fn tell(&mut self, event: TurnEvent, out: &mut String) {
        if self.events.is_none() {
            return;
        }
        count(&self.gateway, &event.body, self.sent);
        let ends_well = matches!(event.body, TurnBody::Done(_)) && self.reply.is_told();
        match self.reply.take(event.body) {
            ReplyStep::Nothing => {}
            ReplyStep::Text(text) => {
                if !std::mem::replace(&mut self.spoke, true) {
                    self.gateway.metrics.first_text(self.sent.elapsed());
                }
                self.words.text(&text, event.cursor, out);
            }
            ReplyStep::Thought(text) => self.words.thought(&text, event.cursor, out),
            ReplyStep::Asks(request) => self.words.asks(&request, out),
            ReplyStep::Waits(notice) => self.words.waits(&notice, out),
            ReplyStep::Called(calls) if self.reply.is_told() => {
                self.words.called(&calls, &self.reply, out);
                self.end();
            }
            ReplyStep::Finished(reason) if ends_well => {
                if let Some(text) = self.reply.rest() {
                    self.words.text(text, None, out);
                }
                self.words.finished(reason, &self.reply, out);
                self.end();
            }
            ReplyStep::Called(_) | ReplyStep::Finished(_) | ReplyStep::Diverged => {
                self.fail(diverged(), out);
            }
            ReplyStep::Failed(error) => self.fail(error, out),
        }
    }

    fn fail(&mut self, error: ErrorBody, out: &mut String) {
        self.gateway.metrics.refusal(error.code);
        self.words.failed(error, out);
        self.end();
    }

    fn end(&mut self) {
        if let Some(mut events) = self.events.take() {
            drain(&self.gateway, &mut events, self.sent);
        }
    }
}

// === impl CompletionWords ===

impl CompletionWords {
    fn finish(&self, reason: FinishReason, reply: &OpenAiReply, out: &mut String) {
        data(out, &self.0.finish(reason));
        if self.0.usage {
            data(out, &self.0.usage(reply.usage()));
        }
        data(out, DONE);
    }
}

impl StreamWords for CompletionWords {
    fn open(&mut self, out: &mut String) {
        data(out, &self.0.first());
    }

    fn text(&mut self, text: &str, cursor: Option<FrameKey>, out: &mut String) {
        at(out, cursor);
        data(out, &self.0.text(text));
    }

    fn thought(&mut self, text: &str, cursor: Option<FrameKey>, out: &mut String) {
        at(out, cursor);
        data(out, &self.0.thought(text));
    }

    fn asks(&mut self, request: &ApprovalRequest, out: &mut String) {
        comment(out, &format!("a person is asked whether `{}` may run", request.name));
        data(out, &self.0.approval(request));
    }

    fn waits(&mut self, notice: &Notice, out: &mut String) {
        data(out, &self.0.waits(notice));
    }

    fn keep_alive(&mut self, out: &mut String) {
        comment(out, "still here");
    }

    fn called(&mut self, calls: &ClientCalls, reply: &OpenAiReply, out: &mut String) {
        for (index, call) in calls.calls.iter().enumerate() {
            data(out, &self.0.call(call, index));
        }
        self.finish(FinishReason::ToolCalls, reply, out);
    }

    fn finished(&mut self, reason: FinishReason, reply: &OpenAiReply, out: &mut String) {
        self.finish(reason, reply, out);
    }

    fn failed(&mut self, error: ErrorBody, out: &mut String) {
        data(out, &OpenAiError::from(error).to_json());
        data(out, DONE);
    }

    fn refusal(error: ErrorBody, ended: bool) -> Response {
        let error = OpenAiError::from(error);
        if ended { error.respond_ended() } else { error.respond() }
    }
}

/// These protocols cannot take back what they said.
pub(super) fn diverged() -> ErrorBody {
    let message = "the reply was restarted after a fault, and differs from the first one";
    ErrorBody::new(ErrorCode::ProviderBrokenStream, message)
        .hint("ask again with the same `Idempotency-Key` to read it whole")
}

/// Where a client that has seen the event that follows goes on. An event at the end has no place of its
/// own.
pub(in super::super) fn at(out: &mut String, cursor: Option<FrameKey>) {
    if let Some(cursor) = cursor.filter(|cursor| cursor.index != FrameKey::DONE) {
        out.push_str("id: ");
        out.push_str(&cursor.to_string());
        out.push('\n');
    }
}

/// What clients leave out. One line: names of tools hold no line breaks.
pub(super) fn comment(out: &mut String, text: &str) {
    out.push_str(": ");
    out.push_str(text);
    out.push_str("\n\n");
}

fn data(out: &mut String, json: &str) {
    out.push_str("data: ");
    out.push_str(json);
    out.push_str("\n\n");
}

/// Counts how a turn ends whose error was sent already; `done` follows an error at once.
pub(super) fn drain(gateway: &Gateway, events: &mut BoxStream<'static, TurnEvent>, sent: Instant) {
    use futures_util::FutureExt as _;
    while let Some(Some(event)) = events.next().now_or_never() {
        count(gateway, &event.body, sent);
    }
}
