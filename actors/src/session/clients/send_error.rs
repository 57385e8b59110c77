//! Why a request about a session fails, and what clients are told.

use clawnode_cluster::StoreError;
use clawnode_kernel::FoldError;
use clawnode_proto::{
    CodecError, CursorError, ErrorBody, ErrorChain, ErrorCode, limits::PENDING_INPUTS,
};

/// Why a session was not reached.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// Too many messages wait in it.
    #[error("session `{session}` has {PENDING_INPUTS} messages waiting")]
    Overloaded {
        /// Which.
        session: String,
    },
    /// There is none.
    #[error("no session `{session}`")]
    NotFound {
        /// Which.
        session: String,
    },
    /// Its journal cannot be folded.
    #[error(transparent)]
    Corrupt(#[from] FoldError),
    /// It is in service, so no order about sessions that are not is for it.
    #[error("session `{session}` is in service")]
    InService {
        /// Which.
        session: String,
    },
    /// A newer build wrote to it what this one cannot read.
    #[error("session `{session}` needs a newer build: {reason}")]
    TooNew {
        /// Which.
        session: String,
        /// What this build cannot read.
        reason: String,
    },
    /// It cannot be put back in service.
    #[error("session `{session}` cannot be put back in service: {reason}")]
    Unusable {
        /// Which.
        session: String,
        /// Why.
        reason: String,
    },
    /// What was asked is stored, and not done yet.
    #[error("the request about session `{session}` is accepted, but not done yet")]
    Pending {
        /// Which.
        session: String,
    },
    /// There is no such dead letter.
    #[error("no dead letter `{letter}`")]
    NoLetter {
        /// Its name.
        letter: String,
    },
    /// No call of this id waits for a person.
    #[error("no tool call `{call}` waits for a person")]
    NoApproval {
        /// Which.
        call: String,
    },
    /// What was shown is not what waits.
    #[error("the given digest does not match the action of tool call `{call}`")]
    OtherAction {
        /// Which.
        call: String,
    },
    /// It is decided, or over.
    #[error("nothing is left to decide about tool call `{call}`: {what}")]
    Decided {
        /// Which.
        call: String,
        /// Why not.
        what: String,
    },
    /// No such turn waits for more steps.
    #[error("no such turn of session `{session}` waits for more steps")]
    NoStepsWanted {
        /// Which.
        session: String,
    },
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
        /// The limit.
        limit: usize,
    },
    /// A store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The message cannot be written down.
    #[error(transparent)]
    Codec(#[from] CodecError),
}

// === impl SendError ===

impl From<SendError> for ErrorBody {
    fn from(error: SendError) -> Self {
        let message = ErrorChain(&error).to_string();
        match error {
            SendError::Overloaded { .. } => Self::new(ErrorCode::Overloaded, message)
                .hint("wait until the session has answered some of them"),
            SendError::NotFound { .. } => Self::new(ErrorCode::NotFound, message)
                .hint("`clawnode sessions list` shows the sessions"),
            SendError::Corrupt(failure) if failure.needs().is_some() => {
                Self::new(ErrorCode::Unavailable, message)
                    .hint("upgrade this node, or ask a node of the newer version")
            }
            SendError::Corrupt(_) => Self::new(ErrorCode::Corrupt, message).hint(
                "`clawnode journal verify` names the damage; restore a backup, or go on in a new \
                 session",
            ),
            SendError::InService { .. } => Self::new(ErrorCode::Conflict, message)
                .hint("`clawnode quarantine list` shows the sessions that are out of service"),
            SendError::TooNew { session, .. } => {
                Self::new(ErrorCode::Unavailable, message).hint(format!(
                    "start a node of the newer version, or delete the session with `clawnode \
                     quarantine drop {session}`"
                ))
            }
            SendError::Unusable { session, .. } => {
                Self::new(ErrorCode::Corrupt, message).hint(format!(
                    "restore a backup, or delete the session with `clawnode quarantine drop \
                     {session}`"
                ))
            }
            SendError::Pending { .. } => Self::new(ErrorCode::Unavailable, message)
                .hint("check again with `clawnode quarantine show`"),
            SendError::NoLetter { .. } => Self::new(ErrorCode::NotFound, message)
                .hint("`clawnode parked` lists the dead letters"),
            SendError::NoApproval { .. } => Self::new(ErrorCode::NotFound, message)
                .hint("`clawnode approvals list` shows the calls that wait"),
            SendError::OtherAction { .. } => Self::new(ErrorCode::Conflict, message)
                .hint("read it again with `clawnode approvals show`"),
            SendError::Decided { .. } => Self::new(ErrorCode::Conflict, message)
                .hint("`clawnode approvals list` shows the calls that still wait"),
            SendError::NoStepsWanted { .. } => Self::new(ErrorCode::Conflict, message)
                .hint("the turn runs or has ended; `clawnode sessions show` shows it"),
            SendError::Cursor(error) => error.into(),
            SendError::HiddenKey(_) => Self::new(ErrorCode::InvalidParams, message)
                .hint("leave out control, format, direction and private characters"),
            SendError::TooLarge { .. } => {
                Self::new(ErrorCode::TooLarge, message).hint("send a shorter message")
            }
            SendError::Store(failure) => {
                let hint = match &failure {
                    StoreError::Full { .. } => "free some space; nothing accepted is lost",
                    StoreError::Corrupt { .. } => "`clawnode journal verify` names the damage",
                    StoreError::Unavailable { .. }
                    | StoreError::Refused { .. }
                    | StoreError::Closed { .. } => "try again; `clawnode doctor` looks for causes",
                };
                Self::new(failure.code(), message).hint(hint)
            }
            SendError::Codec(_) => Self::new(ErrorCode::Internal, message),
        }
    }
}
