//! The frames of a stream, and how a WebSocket carries them: `{"id","event","data"[,"cursor"]}`.
//!
//! Written by hand around the request's id, which is kept as the JSON it arrived as: frames are
//! the hot path, and most of a frame is the same each time.

use std::fmt::Write as _;

use clawnode_proto::{
    CallId, Digest, ErrorBody, ErrorCode, FrameKey, Timestamp, TurnId,
    llm::Usage,
    session::TurnOutcome,
    tool::Risk,
    turn::{TurnBody, TurnEvent},
    view::AcceptedView,
};
use serde::Serialize;
use serde_json::Value;

use super::error::json;

/// Bytes of a client's request id, as JSON.
const ID_BYTES: usize = 256;

/// A request's id, as the JSON that answers repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestId(Box<str>);

#[derive(Serialize)]
struct Notice<'a> {
    name: &'a str,
    message: &'a str,
}

#[derive(Serialize)]
struct ToolUse<'a> {
    id: &'a CallId,
    name: &'a str,
    arguments: &'a str,
}

#[derive(Serialize)]
struct ToolResult<'a> {
    id: &'a CallId,
    name: &'a str,
    content: &'a str,
    is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'a str>,
}

#[derive(Serialize)]
struct Request<'a> {
    id: &'a CallId,
    name: &'a str,
    arguments: &'a str,
    action: &'a Digest,
    risk: Risk,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    expires: Timestamp,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    chars: u64,
}

#[derive(Serialize)]
struct Reset<'a> {
    text: &'a str,
}

#[derive(Serialize)]
struct Lagged {
    message: &'static str,
}

/// `done`; both absent when the request was refused before there was a turn, the outcome absent
/// when this node lost sight of it.
#[derive(Serialize)]
struct Done<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<TurnId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<&'a TurnOutcome>,
}

// === impl RequestId ===

impl RequestId {
    /// The id of what cannot be answered by id.
    pub(super) fn null() -> Self {
        Self("null".into())
    }

    /// A number, a short text, or none.
    pub(super) fn new(id: &Value) -> Result<Self, ErrorBody> {
        let text = match id {
            Value::Null | Value::Number(_) | Value::String(_) => id.to_string(),
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(ErrorBody::new(
                    ErrorCode::InvalidRequest,
                    "`id` is neither a string nor a number",
                ));
            }
        };
        if text.len() > ID_BYTES {
            let message = format!("`id` is longer than {ID_BYTES} bytes");
            return Err(ErrorBody::new(ErrorCode::InvalidRequest, message));
        }
        Ok(Self(text.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The answer of a method that does not stream; `result` is JSON.
    pub(super) fn result(&self, result: &str) -> String {
        format!(r#"{{"id":{},"result":{result}}}"#, self.0)
    }

    pub(super) fn accepted(&self, accepted: &AcceptedView) -> String {
        self.frame("accepted", &json(accepted), None)
    }

    pub(super) fn error(&self, error: &ErrorBody) -> String {
        self.frame("error", &json(error), None)
    }

    /// The end of a stream that did not see its turn's end.
    pub(super) fn done_early(&self, turn: Option<TurnId>) -> String {
        self.frame("done", &done_early(turn), None)
    }

    pub(super) fn lagged(&self, cursor: Option<FrameKey>) -> String {
        self.frame("lagged", &lagged(), cursor)
    }

    /// The frame of one event.
    pub(super) fn event(&self, event: &TurnEvent) -> String {
        let (name, data) = said(event);
        self.frame(name, &data, Some(event.cursor))
    }

    fn frame(&self, event: &str, data: &str, cursor: Option<FrameKey>) -> String {
        let mut out = String::with_capacity(self.0.len() + data.len() + 160);
        out.push_str(r#"{"id":"#);
        out.push_str(&self.0);
        out.push_str(r#","event":""#);
        out.push_str(event);
        out.push_str(r#"","data":"#);
        out.push_str(data);
        if let Some(cursor) = cursor {
            // A cursor's text needs no escaping, and writing to a `String` cannot fail.
            if write!(out, r#","cursor":"{cursor}""#).is_err() {
                tracing::error!("a cursor could not be written");
            }
        }
        out.push('}');
        out
    }
}

/// An event's name, and its data as JSON.
pub(super) fn said(event: &TurnEvent) -> (&'static str, String) {
    match &event.body {
        TurnBody::Text(text) => ("text", json(text)),
        TurnBody::Usage(usage) => ("usage", json::<Usage>(usage)),
        TurnBody::Notice { name, message } => ("notice", json(&Notice { name, message })),
        TurnBody::ToolUse { id, name, arguments } => {
            ("tool_use", json(&ToolUse { id, name, arguments }))
        }
        TurnBody::ToolResult { id, name, content, failure } => {
            let is_error = failure.is_some();
            let failure = failure.as_deref();
            ("tool_result", json(&ToolResult { id, name, content, is_error, failure }))
        }
        TurnBody::ApprovalRequest(it) => {
            let request = Request {
                id: &it.id,
                name: &it.name,
                arguments: &it.arguments,
                action: &it.action,
                risk: it.risk,
                reason: it.reason.as_deref(),
                expires: it.expires,
                truncated: it.truncated,
                chars: it.chars,
            };
            ("approval_request", json(&request))
        }
        TurnBody::Reset { text } => ("reset", json(&Reset { text })),
        TurnBody::Lagged => ("lagged", lagged()),
        TurnBody::Error(error) => ("error", json(error)),
        TurnBody::Done(outcome) => {
            let turn = Some(event.cursor.turn);
            ("done", json(&Done { turn, outcome: Some(outcome) }))
        }
    }
}

/// The data of a `done` that is not the turn's end.
pub(super) fn done_early(turn: Option<TurnId>) -> String {
    json(&Done { turn, outcome: None })
}

fn lagged() -> String {
    let message = "frames were left out because this connection reads too slowly; what follows \
                   continues from `cursor`";
    json(&Lagged { message })
}

/// Bytes of texts that are joined (32 KiB): a frame that is larger than what may wait for a slow client
/// would get in all the same.
const JOINED_MOST: usize = 32 << 10;

/// Joins texts of one attempt that follow each other: one frame for what is ready at once. A client
/// knows what it has seen by its cursor alone, so texts of two calls stay apart.
pub(super) fn coalesce(events: Vec<TurnEvent>) -> Vec<TurnEvent> {
    let mut joined: Vec<TurnEvent> = Vec::with_capacity(events.len());
    for event in events {
        let of = |one: &TurnEvent| (one.cursor.call, one.cursor.attempt);
        if let TurnBody::Text(more) = &event.body
            && let Some(last) = joined.last_mut()
            && of(last) == of(&event)
            && let TurnBody::Text(text) = &mut last.body
            && text.len() + more.len() <= JOINED_MOST
        {
            text.push_str(more);
            last.cursor = event.cursor;
        } else {
            joined.push(event);
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{Attempt, CallId, llm::StopReason};
    use serde_json::json;

    use super::*;

    fn event(index: u32, body: TurnBody) -> TurnEvent {
        let turn = TurnId::from_u128(1);
        let cursor = FrameKey { turn, call: CallId::derive(turn, 0), attempt: Attempt(1), index };
        TurnEvent { cursor, body }
    }

    #[test]
    fn no_more_is_joined_than_may_wait_for_a_slow_client() {
        let piece = "x".repeat(10 << 10);
        let events = (0..7).map(|index| event(index, TurnBody::Text(piece.clone()))).collect();
        let joined = coalesce(events);
        let sizes: Vec<usize> = joined
            .iter()
            .map(|one| match &one.body {
                TurnBody::Text(text) => text.len() / piece.len(),
                _ => 0,
            })
            .collect();
        assert_eq!(sizes, [3, 3, 1]);
        let at: Vec<u32> = joined.iter().map(|one| one.cursor.index).collect();
        assert_eq!(at, [2, 5, 6], "a client goes on from the last piece that it has");
    }

    #[test]
    fn frames_are_json_whatever_they_carry() {
        let id = RequestId::new(&json!("a\"b")).unwrap();
        let nasty = "\"}\n\u{2028}\u{0}é";
        let completed = TurnOutcome::Completed { stop: StopReason::EndTurn };
        let bodies = [
            (TurnBody::Text(nasty.to_owned()), json!(nasty)),
            (
                TurnBody::Notice { name: "n".to_owned(), message: nasty.to_owned() },
                json!({"name": "n", "message": nasty}),
            ),
            (TurnBody::Reset { text: nasty.to_owned() }, json!({"text": nasty})),
            (
                TurnBody::Done(completed),
                json!({
                    "turn": TurnId::from_u128(1).to_string(),
                    "outcome": {"type": "completed", "stop": {"type": "end_turn"}},
                }),
            ),
        ];
        for (body, data) in bodies {
            let event = event(7, body);
            let frame: Value = serde_json::from_str(&id.event(&event)).unwrap();
            assert_eq!(frame["id"], "a\"b");
            assert_eq!(frame["data"], data);
            assert_eq!(frame["cursor"], event.cursor.to_string());
        }
    }

    #[test]
    fn ids_are_numbers_or_short_texts() {
        for good in [json!(null), json!(1), json!(1.5), json!("x")] {
            assert_eq!(RequestId::new(&good).unwrap().as_str(), good.to_string());
        }
        for bad in [json!([1]), json!({}), json!(true), json!("x".repeat(300))] {
            assert!(RequestId::new(&bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn texts_that_follow_each_other_become_one() {
        let text = |text: &str| TurnBody::Text(text.to_owned());
        let usage = TurnBody::Usage(Usage::default());
        let events =
            vec![event(0, text("a")), event(1, text("b")), event(2, usage), event(3, text("c"))];
        let joined = coalesce(events);
        assert_eq!(joined.len(), 3);
        assert_eq!(joined[0], event(1, text("ab")));
        assert_eq!(joined[2], event(3, text("c")));
        let other = FrameKey { attempt: Attempt(2), ..event(0, text("")).cursor };
        let events = vec![event(0, text("a")), TurnEvent { cursor: other, body: text("b") }];
        assert_eq!(coalesce(events.clone()), events);
    }
}
