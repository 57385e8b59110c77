//! A response as server-sent events.

use std::{collections::VecDeque, convert::Infallible};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use clawnode_proto::turn::TurnEvent;
use futures_util::{StreamExt as _, stream};

use super::{
    super::{
        approval::headers,
        stream::{Early, KEEP_ALIVE, READY, comment, drain},
    },
    composed_events::Events,
    reader::{ResponseReader, ResponseStep, broken},
};

/// One stream under way.
struct Telling {
    reader: ResponseReader,
    /// What was read before the head was sent.
    early: VecDeque<TurnEvent>,
    is_begun: bool,
    is_over: bool,
    spoke: bool,
}

/// Answers with what the reader reads, after what was read early.
pub(super) fn respond(reader: ResponseReader, early: Early, session: &str) -> Response {
    let Early { events, asked } = early;
    let telling = Telling { reader, early: events, is_begun: false, is_over: false, spoke: false };
    let kind = HeaderValue::from_static("text/event-stream");
    let body = Body::from_stream(stream::unfold(telling, Telling::next));
    let mut response = ([(header::CONTENT_TYPE, kind)], body).into_response();
    response.headers_mut().extend(headers(asked.as_ref(), session));
    response
}

// === impl Telling ===

impl Telling {
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        let mut out = String::new();
        while out.is_empty() {
            if self.is_over {
                return None;
            }
            let mut events = Events::new();
            if !std::mem::replace(&mut self.is_begun, true) {
                self.reader.reply.begin(&mut events);
            } else if let Some(event) = self.early.pop_front() {
                self.tell(event, &mut events, &mut out).await;
            } else {
                self.listen(&mut events, &mut out).await;
            }
            for (kind, event) in events {
                written(&mut out, kind, &event);
            }
        }
        Some((Ok(Bytes::from(out)), self))
    }

    async fn listen(&mut self, events: &mut Events, out: &mut String) {
        let mut ready = self.reader.events.as_mut().ready_chunks(READY);
        let chunk = tokio::time::timeout(KEEP_ALIVE, ready.next()).await;
        drop(ready);
        match chunk {
            Ok(Some(chunk)) => {
                for event in chunk {
                    let is_same_turn = self.tell(event, events, out).await;
                    if !is_same_turn {
                        break;
                    }
                }
            }
            Ok(None) => self.fail(&ResponseStep::Lost, events),
            Err(_elapsed) => comment(out, "still here"),
        }
    }

    /// Tells an event; says whether those that came with it are to be told.
    async fn tell(&mut self, event: TurnEvent, events: &mut Events, out: &mut String) -> bool {
        let followed = self.reader.is_followed_again();
        match self.reader.take(event, events).await {
            ResponseStep::More | ResponseStep::Again => {}
            ResponseStep::Asks(request) => {
                comment(out, &format!("a person is asked whether `{}` may run", request.name));
            }
            ResponseStep::Ended(_) => {
                self.is_over = true;
                if let Some(sent) = self.reader.sent {
                    drain(&self.reader.gateway, &mut self.reader.events, sent);
                }
            }
            step @ (ResponseStep::Other | ResponseStep::Lost) => self.fail(&step, events),
        }
        let is_word = |(kind, _): &(&str, _)| *kind == "response.output_text.delta";
        if let Some(sent) = self.reader.sent
            && !self.spoke
            && events.iter().any(is_word)
        {
            self.spoke = true;
            self.reader.gateway.metrics.first_text(sent.elapsed());
        }
        !self.is_over && followed == self.reader.is_followed_again()
    }

    fn fail(&mut self, step: &ResponseStep, events: &mut Events) {
        let error = broken(step);
        self.reader.gateway.metrics.refusal(error.code);
        events.push(self.reader.reply.error(&error));
        self.is_over = true;
    }
}

/// `data` is JSON, which has no line break.
fn written(out: &mut String, kind: &str, event: &serde_json::Value) {
    out.push_str("event: ");
    out.push_str(kind);
    out.push_str("\ndata: ");
    out.push_str(&event.to_string());
    out.push_str("\n\n");
}
