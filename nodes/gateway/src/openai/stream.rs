//! A completion as server-sent events.
//!
//! Each text's `id` is its cursor, and `Clawnode-Session` names the session: a client that is cut off goes
//! on at `/v1/sessions/SESSION/events`, at any gateway.
//!
//! The answer's head waits for the turn's first word, for [`HEAD_WITHIN`] at most, so that a failure
//! before it has its proper HTTP status; a failure after it is an error chunk.

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
    frame::ApprovalRequest,
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
        turn::{count, lost},
    },
    approval::headers,
    reply::{FinishReason, Label, OpenAiReply, ReplyStep},
};

/// How long the answer's head waits for a word or a failure: providers refuse within that time, and no
/// proxy or client gives up before.
const HEAD_WITHIN: Duration = Duration::from_secs(2);
/// After how long without a word a comment keeps proxies from hanging up.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(10);
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

/// One completion under way.
struct CompletionStream {
    gateway: Arc<Gateway>,
    label: Label,
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
/// may be corrected, and is told at its end.
pub(super) async fn respond(
    gateway: Arc<Gateway>,
    label: Label,
    following: Following,
    sent: Instant,
    is_held: bool,
) -> Response {
    let (session, mut events) = (following.accepted.session, following.events);
    let Early { events: early, asked } = match Early::of(&gateway, &mut events, sent).await {
        Ok(early) => early,
        Err(refusal) => return refusal.respond(),
    };
    let telling = CompletionStream {
        gateway,
        label,
        reply: OpenAiReply::held(is_held),
        sent,
        events: Some(events),
        early,
        opened: false,
        spoke: false,
    };
    let kind = HeaderValue::from_static("text/event-stream");
    let body = Body::from_stream(stream::unfold(telling, CompletionStream::next));
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
            let is_word = step != ReplyStep::Nothing;
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

// === impl CompletionStream ===

impl CompletionStream {
    async fn next(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        let mut out = String::new();
        while out.is_empty() {
            let mut events = self.events.take()?;
            if !std::mem::replace(&mut self.opened, true) {
                data(&mut out, &self.label.first());
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
                Err(_elapsed) => comment(&mut out, "still here"),
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
                at(out, event.cursor);
                data(out, &self.label.text(&text));
            }
            ReplyStep::Thought(text) => {
                at(out, event.cursor);
                data(out, &self.label.thought(&text));
            }
            ReplyStep::Asks(request) => {
                comment(out, &format!("a person is asked whether `{}` may run", request.name));
                data(out, &self.label.approval(&request));
            }
            ReplyStep::Called(calls) if self.reply.is_told() => {
                for (index, call) in calls.calls.iter().enumerate() {
                    data(out, &self.label.call(call, index));
                }
                self.finish(FinishReason::ToolCalls, out);
            }
            ReplyStep::Finished(reason) if ends_well => {
                if let Some(text) = self.reply.rest() {
                    data(out, &self.label.text(text));
                }
                self.finish(reason, out);
            }
            ReplyStep::Called(_) | ReplyStep::Finished(_) | ReplyStep::Diverged => {
                self.fail(diverged(), out);
            }
            ReplyStep::Failed(error) => self.fail(error, out),
        }
    }

    fn finish(&mut self, reason: FinishReason, out: &mut String) {
        data(out, &self.label.finish(reason));
        if self.label.usage {
            data(out, &self.label.usage(self.reply.usage()));
        }
        self.end(out);
    }

    fn fail(&mut self, error: ErrorBody, out: &mut String) {
        self.gateway.metrics.refusal(error.code);
        data(out, &OpenAiError::from(error).to_json());
        self.end(out);
    }

    fn end(&mut self, out: &mut String) {
        data(out, "[DONE]");
        if let Some(mut events) = self.events.take() {
            drain(&self.gateway, &mut events, self.sent);
        }
    }
}

/// This protocol cannot take back what it said.
pub(super) fn diverged() -> ErrorBody {
    let message = "the reply was restarted after a fault, and differs from the first one";
    ErrorBody::new(ErrorCode::ProviderBrokenStream, message)
        .hint("ask again with the same `Idempotency-Key` to read it whole")
}

/// Where a client that has seen the event that follows goes on. What is told at the end has no place of
/// its own.
fn at(out: &mut String, cursor: Option<FrameKey>) {
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
