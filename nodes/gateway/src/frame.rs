//! How the events of a stream are written: as frames of a WebSocket, `{"id","event","data"[,"cursor"]}`,
//! and as server-sent events.
//!
//! A frame is a [`TurnEvent`] with the request's id before it, which is kept as the JSON it arrived as.

use clawnode_proto::{
    ErrorBody, ErrorCode, FrameKey, TurnId,
    turn::{EventData, StreamEnd, TurnBody, TurnEvent},
    view::AcceptedView,
};
use serde_json::Value;

use super::error::json;

/// Bytes of a client's request id, as JSON.
const ID_BYTES: usize = 256;

/// A request's id, as the JSON that answers repeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestId(Box<str>);

/// How a stream writes its events.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wording<'a> {
    /// As frames, in answer to this request.
    Frames(&'a RequestId),
    /// As server-sent events.
    Events,
}

// === impl Wording ===

impl Wording<'_> {
    pub(super) fn event(self, event: &TurnEvent) -> String {
        match self {
            Self::Frames(id) => id.event(event),
            Self::Events => server_sent(event),
        }
    }

    pub(super) fn accepted(self, accepted: AcceptedView) -> String {
        let cursor = match self {
            Self::Frames(_) => None,
            Self::Events => Some(accepted.cursor),
        };
        self.event(&TurnEvent { body: TurnBody::Accepted(accepted), cursor })
    }

    /// The end of a stream that did not see its turn's end.
    pub(super) fn done_early(self, turn: Option<TurnId>) -> String {
        self.event(&TurnBody::Done(StreamEnd { turn, ..StreamEnd::default() }).into())
    }

    /// What a client does whose node lost sight of the turn.
    pub(super) const fn again(self) -> &'static str {
        match self {
            Self::Frames(_) => "follow it with `sessions.resume` from the last cursor",
            Self::Events => "connect again with `Last-Event-ID`",
        }
    }
}

/// `data` is JSON and a cursor has no space, so neither has a line break.
fn server_sent(event: &TurnEvent) -> String {
    // Events just before the end have no cursor of their own: a client that loses its connection there gets
    // the end again.
    let ends = matches!(event.body, TurnBody::Done(_));
    let cursor = event.cursor.filter(|cursor| ends || cursor.index != FrameKey::DONE);
    let id = cursor.map(|cursor| format!("id: {cursor}\n")).unwrap_or_default();
    let (name, data) = (event.body.name(), json(&EventData(&event.body)));
    format!("event: {name}\n{id}data: {data}\n\n")
}

// === impl RequestId ===

impl RequestId {
    /// The id of a request that cannot be answered by id.
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

    /// The frame of one event.
    pub(super) fn event(&self, event: &TurnEvent) -> String {
        let event = json(event);
        // An object: what is left of it goes on after the id.
        let fields = event.strip_prefix('{').unwrap_or("}");
        format!(r#"{{"id":{},{fields}"#, self.0)
    }

    /// The frame of an error that has no place in a turn.
    pub(super) fn error(&self, error: &ErrorBody) -> String {
        self.event(&TurnBody::Error(error.clone()).into())
    }

    /// The end of a stream that was refused before there was a turn.
    pub(super) fn done_refused(&self) -> String {
        self.event(&TurnBody::Done(StreamEnd::default()).into())
    }
}

/// Bytes of texts that are joined (32 KiB): a frame that is larger than what may wait for a slow client
/// would get in all the same.
const JOINED_MOST: usize = 32 << 10;

/// Joins texts of one attempt that follow each other: one frame for what is ready at once. A client
/// knows what it has seen by its cursor alone, so texts of two calls stay apart.
pub(super) fn coalesce(events: Vec<TurnEvent>) -> Vec<TurnEvent> {
    let mut joined: Vec<TurnEvent> = Vec::with_capacity(events.len());
    for event in events {
        let attempt_of = |one: &TurnEvent| one.cursor.map(|cursor| (cursor.call, cursor.attempt));
        if let Some(last) = joined.last_mut()
            && attempt_of(last) == attempt_of(&event)
            && let (TurnBody::Text(text), TurnBody::Text(more))
            | (TurnBody::Thought(text), TurnBody::Thought(more)) = (&mut last.body, &event.body)
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
    use clawnode_proto::{
        Attempt, CallId, FrameKey,
        frame::Notice,
        llm::{StopReason, Usage},
        session::TurnOutcome,
        turn::ReplyReset,
    };
    use serde_json::json;

    use super::*;

    fn event(index: u32, body: TurnBody) -> TurnEvent {
        let turn = TurnId::from_u128(1);
        let cursor = FrameKey { turn, call: CallId::derive(turn, 0), attempt: Attempt(1), index };
        TurnEvent::at(cursor, body)
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
        let at: Vec<u32> = joined.iter().map(|one| one.cursor.unwrap().index).collect();
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
                TurnBody::Notice(Notice { name: "n".to_owned(), message: nasty.to_owned() }),
                json!({"name": "n", "message": nasty}),
            ),
            (TurnBody::Reset(ReplyReset { text: nasty.to_owned() }), json!({"text": nasty})),
            (
                TurnEvent::done(event(7, TurnBody::Text(String::new())).cursor.unwrap(), completed)
                    .body,
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
            assert_eq!(frame["cursor"], event.cursor.unwrap().to_string());
            // A client reads the frame as the event that it is.
            assert_eq!(serde_json::from_value::<TurnEvent>(frame).unwrap(), event);
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
        let first = event(0, text("a"));
        let other = FrameKey { attempt: Attempt(2), ..first.cursor.unwrap() };
        let events = vec![first, TurnEvent::at(other, text("b"))];
        assert_eq!(coalesce(events.clone()), events);
    }
}
