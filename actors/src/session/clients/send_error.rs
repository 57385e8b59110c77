//! Why a request about a session fails, and what clients read.

use clawnode_cluster::StoreError;
use clawnode_kernel::{EntityError, FoldError};
use clawnode_proto::{
    CodecError, CursorError, EntityId, ErrorBody, ErrorChain, ErrorCode, Kind,
    limits::PENDING_INPUTS,
};

/// Why a session was not reached.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Too many messages wait in it.
    #[error("session `{session}` has {PENDING_INPUTS} messages waiting")]
    Overloaded { session: String },
    /// There is none.
    #[error("no session `{session}`")]
    NotFound { session: String },
    /// Its journal cannot be folded.
    #[error(transparent)]
    Corrupt(#[from] FoldError),
    /// The entity is no session.
    #[error("`{entity}` is of the kind `{kind}`, not a session")]
    OtherKind { entity: EntityId, kind: Kind },
    /// An entity, of whatever kind, was not reached.
    #[error(transparent)]
    Entity(Box<EntityError>),
    /// No call of this id waits for a person.
    #[error("no tool call `{call}` waits for a person")]
    NoApproval { call: String },
    /// What was shown is not what waits.
    #[error("the given digest does not match the action of tool call `{call}`")]
    OtherAction { call: String },
    /// It is decided, or over.
    #[error("nothing is left to decide about tool call `{call}`: {what}")]
    Decided {
        call: String,
        /// Why not.
        what: String,
    },
    /// No such turn waits for more steps.
    #[error("no such turn of session `{session}` waits for more steps")]
    NoStepsWanted { session: String },
    /// The session has no such turn.
    #[error("the session has no turn `{turn}`")]
    NoTurn { turn: String },
    /// A turn takes no feedback.
    #[error("turn `{turn}` takes no feedback: {what}")]
    NoFeedback {
        turn: String,
        /// Why not.
        what: String,
    },
    /// No model looks back at a turn.
    #[error("no model can look back at turn `{turn}`: {what}")]
    NoReflection {
        turn: String,
        /// Why not.
        what: String,
    },
    /// No turn of a session has ended.
    #[error("no turn of session `{session}` has ended")]
    NoTurnEnded { session: String },
    /// No model call is at the place.
    #[error("no model call{} in session `{session}`", place.as_ref().map(|call| format!(" `{call}`")).unwrap_or_default())]
    NoCall {
        session: String,
        /// The place, if one was named.
        place: Option<String>,
    },
    /// Results of a client's tools are not those that a turn waits for.
    #[error("parameter `messages`: {0}")]
    Results(String),
    /// Results of a client's tools are waited for no longer.
    #[error("parameter `messages`: {0}")]
    LateResults(String),
    /// A page begins nowhere.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// Its key looks like another one's.
    #[error("session key `{}` contains invisible characters", .0.escape_debug())]
    HiddenKey(String),
    /// The message is larger than one message may be.
    #[error("the message takes {found} bytes, at most {limit} are allowed")]
    TooLarge {
        /// Its size.
        found: usize,
        limit: usize,
    },
    /// A node that may serve the session does not know a part of the message, and would answer without it.
    #[error("a node of this cluster runs an older build, which does not know {0}")]
    OlderBuild(&'static str),
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The message cannot be written down.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

// === impl SendError ===

impl From<EntityError> for SendError {
    fn from(error: EntityError) -> Self {
        match error {
            EntityError::Corrupt(failure) => Self::Corrupt(failure),
            EntityError::Store(failure) => Self::Store(failure),
            EntityError::Codec(failure) => Self::Codec(failure),
            error => Self::Entity(Box::new(error)),
        }
    }
}

impl From<SendError> for ErrorBody {
    fn from(error: SendError) -> Self {
        let message = ErrorChain(&error).to_string();
        match error {
            SendError::Overloaded { .. } => Self::new(ErrorCode::Overloaded, message)
                .hint("wait until the session has answered some of them"),
            SendError::NotFound { .. } => Self::new(ErrorCode::NotFound, message)
                .hint("`clawnode sessions list` shows the sessions"),
            SendError::Corrupt(failure) => EntityError::Corrupt(failure).into(),
            SendError::OtherKind { .. } => Self::new(ErrorCode::NotFound, message)
                .hint("`clawnode journal show` shows entities of every kind"),
            SendError::Entity(failure) => (*failure).into(),
            SendError::NoTurn { .. } => Self::new(ErrorCode::NotFound, message)
                .hint("name it by its number, from 1, or its id; `clawnode sessions show` shows turns in order, and with `--json` their ids"),
            SendError::NoFeedback { .. } => Self::new(ErrorCode::Conflict, message)
                .hint("give feedback to one of the last turns, once it has ended; `clawnode sessions show --json` has their ids"),
            SendError::NoReflection { .. } | SendError::NoTurnEnded { .. } => {
                Self::new(ErrorCode::Conflict, message)
                    .hint("name one of the last turns, once it has ended; `clawnode sessions show --json` has their ids")
            }
            SendError::NoCall { .. } => Self::new(ErrorCode::NotFound, message)
                .hint("name it as `TURN` or `TURN.STEP`; turns count from 1, and `clawnode sessions show` shows them in order"),
            SendError::NoApproval { .. } => Self::new(ErrorCode::NotFound, message)
                .hint("`clawnode approvals list` shows the calls that wait"),
            SendError::OtherAction { .. } => Self::new(ErrorCode::Conflict, message)
                .hint("read it again with `clawnode approvals show`"),
            SendError::Decided { .. } => Self::new(ErrorCode::Conflict, message)
                .hint("`clawnode approvals list` shows the calls that still wait"),
            SendError::NoStepsWanted { .. } => Self::new(ErrorCode::Conflict, message)
                .hint("the turn runs or has ended; `clawnode sessions show` shows it"),
            SendError::Results(_) => Self::new(ErrorCode::InvalidParams, message)
                .hint("bring the results of all tool calls of the reply together, each once"),
            SendError::LateResults(_) => Self::new(ErrorCode::Conflict, message)
                .hint("a turn ends if its client sends another message, or no results for a day"),
            SendError::Cursor(error) => error.into(),
            SendError::HiddenKey(_) => Self::new(ErrorCode::InvalidParams, message)
                .hint("leave out control, format, direction and private characters"),
            SendError::TooLarge { .. } => {
                Self::new(ErrorCode::TooLarge, message).hint("send a shorter message")
            }
            SendError::OlderBuild(_) => Self::new(ErrorCode::Unavailable, message)
                .hint("send the message without that, or upgrade the node; `clawnode status` shows builds"),
            SendError::Store(failure) => EntityError::Store(failure).into(),
            SendError::Codec(_) => Self::new(ErrorCode::Internal, message),
        }
    }
}
