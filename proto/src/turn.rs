//! The events of a turn, as a gateway gets them from its node: what is left of frames once they are in
//! order and nothing is repeated or superseded. They stay within a process; clients get what the
//! gateway makes of them.

use crate::{
    error::ErrorBody,
    frame::{FrameBody, FrameKey},
    id::{CallId, Digest},
    llm::Usage,
    session::TurnOutcome,
    timestamp::Timestamp,
    tool::Risk,
};

/// One event of a turn.
#[derive(Clone, Debug, PartialEq)]
pub struct TurnEvent {
    /// The place of this event: a reader that has seen it resumes from here.
    pub cursor: FrameKey,
    /// What happened.
    pub body: TurnBody,
}

/// What happened in a turn.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnBody {
    /// More of the reply, to be added to the text so far.
    Text(String),
    /// The tokens that one model call used.
    Usage(Usage),
    /// Something the user should know while the turn goes on.
    Notice {
        /// A stable name, for programs.
        name: String,
        /// One line, for people.
        message: String,
    },
    /// A tool is run.
    ToolUse {
        /// The call; its `ToolResult` has the same.
        id: CallId,
        /// The tool's name, as the model wrote it.
        name: String,
        /// Its arguments, as the model wrote them: JSON, cut beyond a length.
        arguments: String,
    },
    /// A tool call waits for a person.
    ApprovalRequest(ApprovalRequest),
    /// A tool call has ended.
    ToolResult {
        /// The call.
        id: CallId,
        /// The tool's name, as the model wrote it.
        name: String,
        /// What the tool answered; cut beyond a length.
        content: String,
        /// How it failed, if it did: a `tool::ToolFailure`, or `uncertain`.
        failure: Option<String>,
    },
    /// The reply shown so far is void; it now begins with this.
    Reset {
        /// The reply so far; may be empty.
        text: String,
    },
    /// Events were left out because the reader was slow; a `Reset` follows.
    Lagged,
    /// The turn failed; `Done` follows.
    Error(ErrorBody),
    /// The turn has ended and is in the journal. The last event.
    Done(TurnOutcome),
}

/// What a person is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// The call that waits.
    pub id: CallId,
    /// The tool's name.
    pub name: String,
    /// Its arguments as JSON; if they are cut ([`Self::truncated`]), nobody should decide by them.
    pub arguments: String,
    /// The digest of the action: what is approved.
    pub action: Digest,
    /// How much harm it can do.
    pub risk: Risk,
    /// Why a person is asked, if a rule says so.
    pub reason: Option<String>,
    /// When the request expires, in milliseconds since 1970.
    pub expires: Timestamp,
    /// Whether the arguments are cut.
    pub truncated: bool,
    /// Characters of the whole arguments; 0 from builds that do not say.
    pub chars: u64,
}

// === impl TurnBody ===

impl TurnBody {
    /// The event for a frame about a tool call; `None` for every other frame.
    pub fn of_tool(body: FrameBody) -> Option<Self> {
        match body {
            FrameBody::ToolUse { id, name, arguments } => {
                Some(Self::ToolUse { id, name, arguments })
            }
            FrameBody::ToolResult { id, name, content, failure } => {
                Some(Self::ToolResult { id, name, content, failure })
            }
            FrameBody::ApprovalRequest {
                id,
                name,
                arguments,
                action,
                risk,
                reason,
                expires,
                truncated,
                chars,
            } => Some(Self::ApprovalRequest(ApprovalRequest {
                id,
                name,
                arguments,
                action,
                risk,
                reason,
                expires,
                truncated,
                chars,
            })),
            FrameBody::Text { .. }
            | FrameBody::Reset {}
            | FrameBody::Usage { .. }
            | FrameBody::Notice { .. }
            | FrameBody::Error { .. }
            | FrameBody::Done { .. } => None,
        }
    }
}
