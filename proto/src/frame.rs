//! Frames: what a client sees of a turn while it runs.
//!
//! Frames are provisional (I7: never folded). Their key is `(turn, call, attempt, index)`: a higher
//! attempt at the same call implies a reset, a lower one is ignored, an index already seen is a
//! repeat.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    client_tool::ClientCalls,
    error::ErrorBody,
    id::{Attempt, CallId, Digest, ParseIdError, TurnId},
    llm::Usage,
    session::TurnOutcome,
    timestamp::Timestamp,
    tool::Risk,
};

/// A frame's place in its turn; as text, the cursor that a client resumes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FrameKey {
    /// The turn that clients see a piece of.
    pub turn: TurnId,
    /// The model call. A turn's last frames belong to its last call.
    pub call: CallId,
    /// The attempt at the call.
    pub attempt: Attempt,
    /// The number of the frame within the attempt, from 0.
    pub index: u32,
}

impl FrameKey {
    /// The index of a turn's error frame: after all that was streamed, and the same on every process that
    /// emits it.
    pub const ERROR: u32 = u32::MAX - 1;
    /// The index of a turn's last frame.
    pub const DONE: u32 = u32::MAX;
}

impl fmt::Display for FrameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}.{}", self.turn, self.call, self.attempt, self.index)
    }
}

impl FromStr for FrameKey {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let malformed = || ParseIdError::new(text, "a cursor `turn.call.attempt.index`");
        let mut parts = text.split('.');
        let mut next = || parts.next().ok_or_else(malformed);
        let key = Self {
            turn: next()?.parse()?,
            call: next()?.parse()?,
            attempt: Attempt(next()?.parse().ok().ok_or_else(malformed)?),
            index: next()?.parse().ok().ok_or_else(malformed)?,
        };
        if parts.next().is_some() { Err(malformed()) } else { Ok(key) }
    }
}

impl Serialize for FrameKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(self)
        } else {
            (self.turn, self.call, self.attempt, self.index).serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for FrameKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = FrameKey;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a cursor `turn.call.attempt.index`, or its four parts")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<FrameKey, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_seq<A: de::SeqAccess<'de>>(self, parts: A) -> Result<FrameKey, A::Error> {
                let parts = de::value::SeqAccessDeserializer::new(parts);
                let (turn, call, attempt, index) = Deserialize::deserialize(parts)?;
                Ok(FrameKey { turn, call, attempt, index })
            }
        }
        // Any, because a buffering enum reader does not say which form it buffered.
        deserializer.deserialize_any(Visitor)
    }
}

/// One frame as it crosses the bus.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Frame {
    /// Its place in the turn.
    pub key: FrameKey,
    /// Its content.
    pub body: FrameBody,
}

/// The content of a frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FrameBody {
    /// More of the reply.
    Text {
        /// What is added.
        delta: String,
    },
    /// More of the model's thoughts. It is no part of the reply.
    Thought {
        /// What is added.
        delta: String,
    },
    /// The reply of this call begins again, because its provider broke off. Its earlier frames are
    /// void.
    Reset {
        /// Whether the text of earlier calls is void too, because the reply did not fit its schema.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        whole: bool,
    },
    /// The tokens that the call used.
    Usage {
        /// Reported by the provider.
        usage: Usage,
    },
    /// Something the user should know while the turn goes on.
    Notice(Notice),
    /// A tool call begins.
    ToolUse(ToolStarted),
    /// A tool call waits for a person.
    ApprovalRequest(ApprovalRequest),
    /// The turn waits for tools that its client runs.
    ClientCalls(ClientCalls),
    /// A tool call has ended.
    ToolResult(ToolFinished),
    /// The turn failed; `done` follows.
    Error {
        /// What happened.
        error: ErrorBody,
    },
    /// The turn has ended and is in the journal.
    Done {
        /// How it ended.
        outcome: TurnOutcome,
        /// The bytes of text in all frames of the turn's calls, so that a reader knows whether it has
        /// missed any.
        text_bytes: u64,
        /// The reply as JSON, if it had to fit a schema and does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        structured: Option<String>,
    },
}

/// Something the user should know while the turn goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Notice {
    /// A stable name, for example `history_dropped` or `retrying`.
    pub name: String,
    /// One line, for people.
    pub message: String,
}

impl Notice {
    /// The name of the notice of a call that waits for a person, who has to allow more of a budget.
    pub const BUDGET_ASKS: &str = "budget_asks";
}

/// A tool call begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolStarted {
    /// The call. Its `tool_result` has the same id.
    pub id: CallId,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// Its arguments, as the model wrote them: JSON, cut beyond a length.
    pub arguments: String,
}

/// A tool call has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolFinished {
    /// The call.
    pub id: CallId,
    /// The tool's name, as the model wrote it.
    pub name: String,
    /// The result; cut beyond a length.
    pub content: String,
    /// Whether it failed.
    // Told to clients; absent on the bus, where `failure` says the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_error: Option<bool>,
    /// How it failed, for example `timed_out` or `uncertain`; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// A tool call waits for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalRequest {
    /// The call.
    pub id: CallId,
    /// The tool's name.
    pub name: String,
    /// Its arguments as JSON; do not decide by them if they are cut (`truncated`).
    pub arguments: String,
    /// The digest of the action: what is approved.
    pub action: Digest,
    /// How much harm it can do.
    pub risk: Risk,
    /// Why a person is asked, if a rule says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the request expires, in milliseconds since 1970.
    pub expires: Timestamp,
    /// The arguments are cut; `approvals.show` has them whole.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
    /// Characters of the whole arguments; 0 or absent from builds that do not say.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub chars: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Several frames, as one bus message carries them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FrameBatch {
    /// In order.
    pub frames: Vec<Frame>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{codec, node::NodeReply};

    #[test]
    fn a_cursor_is_text_for_people_and_short_for_machines() {
        let turn = TurnId::from_u128(1);
        let key = FrameKey { turn, call: CallId::derive(turn, 0), attempt: Attempt(2), index: 3 };
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(json, format!("\"{key}\""));
        assert_eq!(serde_json::from_str::<FrameKey>(&json).unwrap(), key);
        let body = FrameBody::Text { delta: "a".to_owned() };
        // Inside a tagged enum, where the reader buffers.
        let reply = NodeReply::Frames { frames: vec![Frame { key, body }], truncated: false };
        let bytes = codec::encode(&reply).unwrap();
        assert_eq!(codec::decode::<NodeReply>(&bytes).unwrap(), reply);
    }
}
