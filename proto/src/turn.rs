//! The events of a turn, as clients see them: what is left of frames once they are in order and
//! nothing is repeated or superseded.
//!
//! A node makes them, its gateway writes them, and clients read them back. As JSON, an event is
//! `{"event":NAME,"data":…,"cursor":…}`: `/ws` writes the request's `id` before that, and
//! server-sent events carry the three parts as `event`, `data` and `id`.
//!
//! A new event is a row of the table below, with the type of its data. Readers skip fields that they
//! do not know, and take an event that they do not know as [`TurnBody::Unknown`].

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::SerializeStruct as _};
use serde_json::{Map, Value};

use crate::{
    client_tool::ClientCalls,
    error::ErrorBody,
    frame::{ApprovalRequest, FrameBody, FrameKey, Notice, ToolFinished, ToolStarted},
    id::TurnId,
    llm::Usage,
    session::TurnOutcome,
    view::AcceptedView,
};

/// One event of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TurnEvent {
    /// What happened.
    #[cfg_attr(feature = "schema", schemars(flatten))]
    pub body: TurnBody,
    /// The place of this event: a reader that has seen it resumes from here. Absent in what has no
    /// place in the turn, such as a refusal.
    #[cfg_attr(feature = "schema", schemars(skip_serializing_if = "Option::is_none"))]
    pub cursor: Option<FrameKey>,
}

macro_rules! events {
    ($( $(#[$about:meta])* $variant:ident($data:ty) = $name:literal; )*) => {
        /// What happened in a turn.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[cfg_attr(
            feature = "schema",
            derive(schemars::JsonSchema),
            schemars(tag = "event", content = "data")
        )]
        pub enum TurnBody {
            $(
                $(#[$about])*
                #[cfg_attr(feature = "schema", schemars(rename = $name))]
                $variant($data),
            )*
            /// An event of a newer build.
            #[cfg_attr(feature = "schema", schemars(skip))]
            Unknown {
                /// Its name.
                name: String,
                /// Its data.
                data: Value,
            },
        }

        impl TurnBody {
            /// Its name on the wire.
            pub fn name(&self) -> &str {
                match self {
                    $( Self::$variant(_) => $name, )*
                    Self::Unknown { name, .. } => name,
                }
            }

            /// Reads an event's data by its name.
            fn read(name: String, data: Value) -> Result<Self, serde_json::Error> {
                Ok(match name.as_str() {
                    $( $name => Self::$variant(serde_json::from_value(data)?), )*
                    _ => Self::Unknown { name, data },
                })
            }
        }

        impl Serialize for EventData<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                match self.0 {
                    $( TurnBody::$variant(data) => data.serialize(serializer), )*
                    TurnBody::Unknown { data, .. } => data.serialize(serializer),
                }
            }
        }
    };
}

events! {
    /// The message is stored, or the turn was found. The first event of a stream.
    Accepted(AcceptedView) = "accepted";
    /// More of the reply, to be added to the text so far.
    Text(String) = "text";
    /// More of the model's thoughts, before or between parts of the reply.
    Thought(String) = "thought";
    /// The tokens that one model call used.
    Usage(Usage) = "usage";
    /// Something the user should know while the turn goes on.
    Notice(Notice) = "notice";
    /// A tool call begins.
    ToolUse(ToolStarted) = "tool_use";
    /// A tool call waits for a person.
    ApprovalRequest(ApprovalRequest) = "approval_request";
    /// The turn waits for tools that its client runs.
    ClientCalls(ClientCalls) = "client_calls";
    /// A tool call has ended.
    ToolResult(ToolFinished) = "tool_result";
    /// The reply and the thoughts shown so far are void; the reply now begins with this.
    Reset(ReplyReset) = "reset";
    /// The reader was too slow. The stream continues from `cursor`, if needed with a `reset`.
    Lagged(Lagged) = "lagged";
    /// The turn failed, or the request did; `done` follows.
    Error(ErrorBody) = "error";
    /// The end of the stream; with an outcome, the turn has ended and is in the journal.
    Done(StreamEnd) = "done";
}

/// The reply so far, in place of the text shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplyReset {
    /// The reply so far; may be empty.
    #[serde(default)]
    pub text: String,
}

/// What a slow reader gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Lagged {
    /// One line, for people.
    #[serde(default)]
    pub message: String,
}

/// The data of `done`, the last event of every stream (GATE-2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StreamEnd {
    /// The turn; absent if the request was refused before there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// How the turn ended; absent if it was refused, or if the node does not know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<TurnOutcome>,
    /// The reply as JSON. Absent if the turn has no `response_schema`, or the reply does not fit it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Value>,
}

/// An event's data without its name, for server-sent events.
#[derive(Clone, Copy, Debug)]
pub struct EventData<'a>(pub &'a TurnBody);

// === impl TurnEvent ===

impl TurnEvent {
    /// An event with a place in its turn.
    pub const fn at(cursor: FrameKey, body: TurnBody) -> Self {
        Self { body, cursor: Some(cursor) }
    }

    /// The end of a turn.
    pub const fn done(cursor: FrameKey, outcome: TurnOutcome) -> Self {
        Self::done_with(cursor, outcome, None)
    }

    /// The end of a turn whose reply had to fit a schema.
    pub const fn done_with(
        cursor: FrameKey,
        outcome: TurnOutcome,
        structured: Option<Value>,
    ) -> Self {
        let end = StreamEnd { turn: Some(cursor.turn), outcome: Some(outcome), structured };
        Self::at(cursor, TurnBody::Done(end))
    }
}

impl From<TurnBody> for TurnEvent {
    fn from(body: TurnBody) -> Self {
        Self { body, cursor: None }
    }
}

impl Serialize for TurnEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = 2 + usize::from(self.cursor.is_some());
        let mut event = serializer.serialize_struct("TurnEvent", fields)?;
        event.serialize_field("event", self.body.name())?;
        event.serialize_field("data", &EventData(&self.body))?;
        match &self.cursor {
            Some(cursor) => event.serialize_field("cursor", cursor)?,
            None => event.skip_field("cursor")?,
        }
        event.end()
    }
}

impl<'de> Deserialize<'de> for TurnEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Parts {
            event: String,
            #[serde(default)]
            data: Value,
            #[serde(default)]
            cursor: Option<FrameKey>,
        }
        let Parts { event, data, cursor } = Parts::deserialize(deserializer)?;
        // `done` without a turn, and `reset` to nothing, may have no data at all.
        let data = if data.is_null() { Value::Object(Map::default()) } else { data };
        let body = TurnBody::read(event, data).map_err(de::Error::custom)?;
        Ok(Self { body, cursor })
    }
}

// === impl TurnBody ===

impl TurnBody {
    /// What a frame says to a reader. `None` for frames whose meaning depends on what the reader was
    /// shown: that the reply begins again, and the end.
    pub fn of_frame(frame: FrameBody) -> Option<Self> {
        Some(match frame {
            FrameBody::Text { delta } => Self::Text(delta),
            FrameBody::Thought { delta } => Self::Thought(delta),
            FrameBody::Usage { usage } => Self::Usage(usage),
            FrameBody::Notice(notice) => Self::Notice(notice),
            FrameBody::ToolUse(started) => Self::ToolUse(started),
            FrameBody::ApprovalRequest(request) => Self::ApprovalRequest(request),
            FrameBody::ClientCalls(calls) => Self::ClientCalls(calls),
            FrameBody::ToolResult(finished) => {
                let is_error = Some(finished.failure.is_some());
                Self::ToolResult(ToolFinished { is_error, ..finished })
            }
            FrameBody::Error { error } => Self::Error(error),
            FrameBody::Reset { .. } | FrameBody::Done { .. } => return None,
        })
    }
}

// === impl Lagged ===

impl Default for Lagged {
    fn default() -> Self {
        let message = "frames were left out because this connection reads too slowly; what follows \
                       continues from `cursor`";
        Self { message: message.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{
        client_tool::ClientCall,
        error::ErrorCode,
        id::{Attempt, CallId, Digest},
        llm::{FailureClass, ModelFailure, StopReason},
        timestamp::Timestamp,
        tool::Risk,
    };

    fn cursor() -> impl Strategy<Value = FrameKey> {
        (any::<u128>(), any::<u128>(), any::<u32>(), any::<u32>()).prop_map(
            |(turn, call, attempt, index)| FrameKey {
                turn: TurnId::from_u128(turn),
                call: CallId::from_u128(call),
                attempt: Attempt(attempt),
                index,
            },
        )
    }

    fn outcome() -> impl Strategy<Value = TurnOutcome> {
        prop_oneof![
            Just(TurnOutcome::Completed { stop: StopReason::EndTurn }),
            Just(TurnOutcome::Cancelled),
            any::<String>().prop_map(|detail| TurnOutcome::Stopped { detail }),
            any::<String>().prop_map(|message| TurnOutcome::Failed {
                failure: ModelFailure::new(FailureClass::Timeout, message),
            }),
        ]
    }

    fn request() -> impl Strategy<Value = ApprovalRequest> {
        let what = (any::<u128>(), any::<String>(), any::<String>(), any::<[u8; 4]>());
        let how = (any::<Option<String>>(), any::<u64>(), any::<bool>(), any::<u64>());
        (what, how).prop_map(
            |((id, name, arguments, action), (reason, expires, truncated, chars))| {
                ApprovalRequest {
                    id: CallId::from_u128(id),
                    name,
                    arguments,
                    action: Digest::of(&action),
                    risk: Risk::Write,
                    reason,
                    expires: Timestamp(expires),
                    truncated,
                    chars,
                }
            },
        )
    }

    /// Any event that a gateway may write.
    fn body() -> impl Strategy<Value = TurnBody> {
        let texts = || (any::<u128>(), any::<String>(), any::<String>());
        prop_oneof![
            (any::<String>(), cursor()).prop_map(|(session, cursor)| {
                TurnBody::Accepted(AcceptedView { session, turn: cursor.turn, cursor })
            }),
            any::<String>().prop_map(TurnBody::Text),
            any::<String>().prop_map(TurnBody::Thought),
            any::<[u64; 5]>().prop_map(|[input, output, read, write, reasoning]| TurnBody::Usage(
                Usage {
                    input_tokens: input,
                    output_tokens: output,
                    cache_read_tokens: read,
                    cache_write_tokens: write,
                    cache_write_hour_tokens: write / 2,
                    reasoning_tokens: reasoning,
                    estimated: input > output,
                }
            )),
            any::<(String, String)>()
                .prop_map(|(name, message)| TurnBody::Notice(Notice { name, message })),
            texts().prop_map(|(id, name, arguments)| {
                TurnBody::ToolUse(ToolStarted { id: CallId::from_u128(id), name, arguments })
            }),
            request().prop_map(TurnBody::ApprovalRequest),
            texts().prop_map(|(id, name, arguments)| {
                let call = ClientCall { id: CallId::from_u128(id), name, arguments };
                TurnBody::ClientCalls(ClientCalls { calls: vec![call], expires: Timestamp(7) })
            }),
            (texts(), any::<Option<String>>()).prop_map(|((id, name, content), failure)| {
                let id = CallId::from_u128(id);
                let is_error = Some(failure.is_some());
                TurnBody::ToolResult(ToolFinished { id, name, content, is_error, failure })
            }),
            any::<String>().prop_map(|text| TurnBody::Reset(ReplyReset { text })),
            Just(TurnBody::Lagged(Lagged::default())),
            (any::<String>(), any::<Option<String>>(), any::<Option<u64>>()).prop_map(
                |(message, hint, retry_after_ms)| TurnBody::Error(ErrorBody {
                    code: ErrorCode::ProviderTimeout,
                    message,
                    hint,
                    retry_after_ms,
                })
            ),
            (any::<Option<u128>>(), prop::option::of(outcome())).prop_map(|(turn, outcome)| {
                let structured = outcome.as_ref().map(|_| json!([{ "a": null }]));
                TurnBody::Done(StreamEnd { turn: turn.map(TurnId::from_u128), outcome, structured })
            }),
        ]
    }

    fn event() -> impl Strategy<Value = TurnEvent> {
        (body(), prop::option::of(cursor())).prop_map(|(body, cursor)| TurnEvent { body, cursor })
    }

    /// What a newer build may have added anywhere.
    fn with_more(value: Value) -> Value {
        let Value::Object(fields) = value else { return value };
        let fields = fields.into_iter().map(|(name, value)| (name, with_more(value)));
        let more = ("added_later".to_owned(), json!({ "a": [1] }));
        Value::Object(fields.chain([more]).collect())
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(event in event()) {
            let text = serde_json::to_string(&event).unwrap();
            prop_assert_eq!(&serde_json::from_str::<TurnEvent>(&text).unwrap(), &event);
            // Server-sent events have the parts apart.
            let parts: Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(&parts["event"], event.body.name());
            let data = serde_json::to_value(EventData(&event.body)).unwrap();
            prop_assert_eq!(&parts["data"], &data);
        }

        #[test]
        fn fields_that_were_added_later_are_skipped(event in event()) {
            let newer = with_more(serde_json::to_value(&event).unwrap());
            prop_assert_eq!(serde_json::from_value::<TurnEvent>(newer).unwrap(), event);
        }

        #[test]
        fn an_event_that_was_added_later_is_kept_as_it_is(
            name in "later_[a-z]{1,8}",
            data in prop_oneof![Just(json!({})), Just(json!("x")), Just(json!({ "a": 1 }))],
            cursor in prop::option::of(cursor()),
        ) {
            let body = TurnBody::Unknown { name: name.clone(), data: data.clone() };
            let event = TurnEvent { body, cursor };
            let written = json!({ "event": name, "data": data, "cursor": cursor });
            prop_assert_eq!(&serde_json::from_value::<TurnEvent>(written).unwrap(), &event);
            let again = serde_json::to_value(&event).unwrap();
            prop_assert_eq!(serde_json::from_value::<TurnEvent>(again).unwrap(), event);
        }
    }

    #[test]
    fn an_end_and_a_reset_may_have_no_data() {
        let end = TurnEvent::from(TurnBody::Done(StreamEnd::default()));
        assert_eq!(serde_json::to_string(&end).unwrap(), r#"{"event":"done","data":{}}"#);
        for bare in [r#"{"event":"done"}"#, r#"{"event":"done","data":null,"cursor":null}"#] {
            assert_eq!(serde_json::from_str::<TurnEvent>(bare).unwrap(), end);
        }
        let reset = serde_json::from_str::<TurnEvent>(r#"{"event":"reset"}"#).unwrap();
        assert_eq!(reset.body, TurnBody::Reset(ReplyReset::default()));
    }
}
