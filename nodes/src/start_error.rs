//! Why a node does not start, why it ends, and why a command on its data or its cluster fails. It
//! knows no exit codes: [`crate::failure`] assigns them.

use clawnode_proto::{ErrorBody, ErrorCode};

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartErrorKind {
    /// It was tried and failed.
    Failed,
    /// It was asked for in a wrong way.
    Usage,
    /// A server or a node that it needs cannot be reached.
    Unreachable,
    /// A credential is missing or wrong, or this may not be done.
    Refused,
    /// The configuration is wrong.
    Config,
}

/// What happened, where, a stable code, and what to do next.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StartError {
    /// What kind of thing went wrong.
    pub kind: StartErrorKind,
    /// For scripts: a word that does not change.
    pub code: &'static str,
    /// What happened, where.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
}

// === impl StartErrorKind ===

impl StartErrorKind {
    /// The kind of an error that clients of the API know as well.
    pub const fn of(code: ErrorCode) -> Self {
        match code {
            ErrorCode::Unauthorized | ErrorCode::Forbidden => Self::Refused,
            ErrorCode::Unavailable => Self::Unreachable,
            _ => Self::Failed,
        }
    }
}

// === impl StartError ===

impl StartError {
    /// It was tried and failed.
    pub fn failed(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StartErrorKind::Failed, code, message.into())
    }

    /// It was asked for in a wrong way.
    pub fn usage(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StartErrorKind::Usage, code, message.into())
    }

    /// A server or a node that it needs cannot be reached.
    pub fn unreachable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StartErrorKind::Unreachable, code, message.into())
    }

    /// A credential is missing or wrong, or this may not be done.
    pub fn refused(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StartErrorKind::Refused, code, message.into())
    }

    /// The configuration is wrong.
    pub fn config(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StartErrorKind::Config, code, message.into())
    }

    /// Something that was tried and failed, with a code that clients of the API know as well.
    pub fn of(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::new(StartErrorKind::of(code), code.as_str(), message.into())
    }

    const fn new(kind: StartErrorKind, code: &'static str, message: String) -> Self {
        Self { kind, code, message, hint: None }
    }

    /// The same, saying what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<ErrorBody> for StartError {
    fn from(body: ErrorBody) -> Self {
        Self { hint: body.hint, ..Self::of(body.code, body.message) }
    }
}
