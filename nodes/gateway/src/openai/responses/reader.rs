//! Reads a turn's events into a response. [`ResponseReply`] is the pure part.
//!
//! What was said may be void later. What a client was told is never taken back: the same is composed again,
//! and told from there on where it ends. If it is not the same, the client learns that.

use std::{sync::Arc, time::Instant};

use clawnode_proto::{
    CallId, ErrorBody, FrameKey,
    frame::ApprovalRequest,
    session::TurnOutcome,
    turn::{StreamEnd, TurnBody, TurnEvent},
};
use futures_util::stream::BoxStream;
use serde::de::IgnoredAny;
use serde_json::Value;

use super::{
    super::{
        super::{
            backend::Following,
            gateway::Gateway,
            turn::{count, lost},
        },
        reply::{FinishReason, OpenAiReply, ReplyStep},
        stream::diverged,
    },
    compose::{Composer, Events},
    id::ResponseId,
    number::Number,
    shape::{ResponseLabel, Status},
};

/// A response as far as it was read.
pub(super) struct ResponseReply {
    label: ResponseLabel,
    now: Composer,
    /// As it was before the call whose events come now.
    before_call: Composer,
    call: Option<CallId>,
    /// What is said at the end, because it may be corrected until then.
    held: Option<String>,
    /// The first event, if it is of a later call: the next one says whether events were missed before it.
    first: Option<TurnEvent>,
    /// The first events were missed: only those at the end are whole.
    is_late: bool,
}

/// What follows from an event.
#[derive(Debug, PartialEq)]
pub(super) enum ResponseStep {
    More,
    /// A tool call waits for a person.
    Asks(ApprovalRequest),
    Ended(Status),
    /// What was read is not the whole: the turn is to be followed from its start.
    Again,
    /// Its client was told something else.
    Other,
    /// The node lost sight of the turn.
    Lost,
}

/// A response, and the turn that it is read from.
pub(super) struct ResponseReader {
    pub(super) gateway: Arc<Gateway>,
    pub(super) reply: ResponseReply,
    pub(super) events: BoxStream<'static, TurnEvent>,
    /// When its message was sent, if that was by this request: only those turns are counted.
    pub(super) sent: Option<Instant>,
    is_followed_again: bool,
}

/// Follows the turn of a response from the response's start.
pub(super) async fn follow(gateway: &Gateway, id: &ResponseId) -> Result<Following, ErrorBody> {
    match id.after {
        None => gateway.backend.follow(&id.session(), Some(id.turn), None).await,
        Some(call) => gateway.backend.follow_results(id.session, call).await,
    }
}

// === impl ResponseReply ===

impl ResponseReply {
    /// Of a client that has all events up to this one.
    pub(super) fn new(label: ResponseLabel, told: Option<Number>) -> Self {
        let held = label.id.is_held.then(String::new);
        let now = Composer::after(told);
        Self { label, before_call: now.clone(), now, call: None, held, first: None, is_late: false }
    }

    /// Begins to tell.
    pub(super) fn begin(&mut self, out: &mut Events) {
        self.now.begin(&self.label, out);
    }

    /// The response as it is.
    pub(super) fn response(&self, status: &Status) -> Value {
        self.label.response(status, self.now.output(), self.now.usage())
    }

    /// The event of an error that is not the turn's.
    pub(super) fn error(&self, error: &ErrorBody) -> (&'static str, Value) {
        let message = match &error.hint {
            Some(hint) => format!("{} ({hint})", error.message),
            None => error.message.clone(),
        };
        self.now.error(error.code.as_str(), &message)
    }

    /// Takes an event.
    pub(super) fn take(&mut self, event: TurnEvent, out: &mut Events) -> ResponseStep {
        if let Some(first) = self.first.take() {
            // What the journal tells has one cursor; frames have one each.
            if first.cursor == event.cursor {
                self.read(first, out);
            } else {
                self.is_late = true;
            }
        } else if self.is_of_later_call(&event) {
            self.first = Some(event);
            return ResponseStep::More;
        }
        let step = self.read(event, out);
        if self.now.is_other() {
            return ResponseStep::Other;
        }
        step
    }

    fn read(&mut self, event: TurnEvent, out: &mut Events) -> ResponseStep {
        if let Some(cursor) = event.cursor {
            self.see(cursor);
        }
        let label = &self.label;
        match event.body {
            TurnBody::Done(_) | TurnBody::ClientCalls(_) if self.is_late => {
                return ResponseStep::Again;
            }
            TurnBody::Usage(usage) => self.now.add_usage(usage),
            TurnBody::Error(error) => return self.end(Status::Failed(error), out),
            TurnBody::Done(end) => return self.done(end, out),
            _ if self.is_late => {}
            TurnBody::Text(more) => match &mut self.held {
                Some(held) => held.push_str(&more),
                None => self.now.say(label, &more, out),
            },
            TurnBody::Thought(more) => self.now.think(label, &more, out),
            TurnBody::ToolUse(started) => self.now.start(started),
            TurnBody::ToolResult(finished) => self.now.ran(&finished, out),
            TurnBody::ApprovalRequest(request) => {
                self.now.ask(label, &request, out);
                return ResponseStep::Asks(request);
            }
            TurnBody::ClientCalls(calls) => {
                self.now.call(label, &calls, out);
                return self.end(Status::Ended(FinishReason::ToolCalls), out);
            }
            TurnBody::Reset(reset) => return self.reset(reset.text, out),
            TurnBody::Accepted(_)
            | TurnBody::Notice(_)
            | TurnBody::Lagged(_)
            | TurnBody::Unknown { .. } => {}
        }
        ResponseStep::More
    }

    /// Whether this is the first event, and not of the turn's first call. What is told at the end has no
    /// place of its own.
    fn is_of_later_call(&self, event: &TurnEvent) -> bool {
        let Some(cursor) = event.cursor.filter(|cursor| cursor.index < FrameKey::ERROR) else {
            return false;
        };
        let first = CallId::derive(cursor.turn, 0);
        let calls = [first, CallId::derive_tools(first)];
        self.call.is_none() && self.label.id.after.is_none() && !calls.contains(&cursor.call)
    }

    /// Notes which call the event is of.
    fn see(&mut self, cursor: FrameKey) {
        if self.call == Some(cursor.call) {
            return;
        }
        self.call = Some(cursor.call);
        self.before_call = self.now.clone();
    }

    /// What was said before is void, and this is said instead; nothing means that of the last call.
    fn reset(&mut self, text: String, out: &mut Events) -> ResponseStep {
        if let Some(held) = &mut self.held {
            *held = text;
            self.now.break_off(out);
            return ResponseStep::More;
        }
        if !text.is_empty() {
            let is_same = self.now.text() == text;
            return if is_same { ResponseStep::More } else { ResponseStep::Again };
        }
        if self.now.has_only_thought_since(&self.before_call) {
            // Thoughts are no part of the reply: those that were told stay.
            self.now.break_off(out);
            self.before_call = self.now.clone();
        } else {
            self.now = self.before_call.before(&self.now);
        }
        ResponseStep::More
    }

    fn done(&mut self, end: StreamEnd, out: &mut Events) -> ResponseStep {
        let Some(outcome) = end.outcome else { return ResponseStep::Lost };
        let status = match OpenAiReply::end(&outcome) {
            _ if outcome == TurnOutcome::Cancelled => Status::Cancelled,
            ReplyStep::Finished(reason) => Status::Ended(reason),
            ReplyStep::Failed(error) => Status::Failed(error),
            _ => return ResponseStep::Lost,
        };
        if let Some(text) = self.held.take() {
            // Clients read the whole as JSON.
            let text = match end.structured {
                Some(json) if serde_json::from_str::<IgnoredAny>(&text).is_err() => {
                    json.to_string()
                }
                _ => text,
            };
            self.now.say(&self.label, &text, out);
        }
        self.end(status, out)
    }

    fn end(&mut self, status: Status, out: &mut Events) -> ResponseStep {
        self.now.end(&self.label, &status, out);
        if self.now.is_behind() { ResponseStep::Other } else { ResponseStep::Ended(status) }
    }
}

// === impl ResponseReader ===

impl ResponseReader {
    pub(super) fn new(
        gateway: Arc<Gateway>,
        reply: ResponseReply,
        events: BoxStream<'static, TurnEvent>,
        sent: Option<Instant>,
    ) -> Self {
        Self { gateway, reply, events, sent, is_followed_again: false }
    }

    /// Whether what comes now is the turn from its start, once more.
    pub(super) const fn is_followed_again(&self) -> bool {
        self.is_followed_again
    }

    /// Takes an event, and follows the turn again if need be.
    pub(super) async fn take(&mut self, event: TurnEvent, out: &mut Events) -> ResponseStep {
        if let Some(sent) = self.sent {
            count(&self.gateway, &event.body, sent);
        }
        let step = self.reply.take(event, out);
        if step != ResponseStep::Again {
            return step;
        }
        if std::mem::replace(&mut self.is_followed_again, true) {
            return ResponseStep::Other;
        }
        match follow(&self.gateway, &self.reply.label.id).await {
            Ok(following) => {
                let told = self.reply.now.told();
                self.reply = ResponseReply::new(self.reply.label.clone(), told);
                self.reply.begin(out);
                self.events = following.events;
                // Its usage and its end were counted, or will be by what follows.
                self.sent = None;
                ResponseStep::More
            }
            Err(error) => {
                tracing::debug!(error = error.message, "a turn cannot be followed again");
                ResponseStep::Lost
            }
        }
    }
}

/// Why a stream ends before its response does.
pub(super) fn broken(step: &ResponseStep) -> ErrorBody {
    if *step == ResponseStep::Other { diverged() } else { lost() }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
