//! What handlers are given where the parameters of their method are text.

use std::time::Duration;

use clawnode_proto::{
    CallId, Cursor, Digest, ExecutionId, McpServerName, TurnId,
    context_view::{ContextPlace, TurnPlace},
    feedback::Thumb,
    ledger::LedgerShow,
};

use super::session_ref::SessionRef;

/// Which rows a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListPage {
    /// The last row before it; nothing for the first page.
    pub after: Option<Cursor>,
    /// Rows at most.
    pub limit: usize,
}

/// A page of a list about one session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionPage {
    pub session: SessionRef,
    /// The last row before it; nothing for the first page.
    pub after: Option<Cursor>,
    /// Rows at most.
    pub limit: usize,
}

/// The parameters of methods that read or cancel one turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionTurn {
    pub session: SessionRef,
    /// Which turn of it.
    pub turn: TurnId,
}

/// A turn that is to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinuedTurn {
    pub session: SessionRef,
    /// Which turn of it; nothing for the one that waits.
    pub turn: Option<TurnId>,
}

/// A call whose context is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionContext {
    pub session: SessionRef,
    /// Which call of it; nothing for the last one.
    pub at: Option<ContextPlace>,
}

/// What a person thinks of a turn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnRating {
    pub session: SessionRef,
    /// Which turn of it.
    pub turn: TurnPlace,
    /// Good or bad.
    pub thumb: Thumb,
    /// What the person says about it.
    pub comment: Option<String>,
    /// The client's name for the request; nothing if it has none.
    pub name: Option<String>,
}

/// A turn that a model is to look back at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReflectRequest {
    pub session: SessionRef,
    /// Which turn of it; nothing for the last one that has ended.
    pub turn: Option<TurnPlace>,
    /// The client's name for the request; nothing if it has none.
    pub name: Option<String>,
}

/// Entries of a session's ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionLedgerShow {
    pub session: SessionRef,
    /// Which entries of it.
    pub wanted: LedgerShow,
}

/// A tool of an MCP server that is approved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpApproval {
    pub server: McpServerName,
    /// Which tool of it; nothing for all.
    pub tool: Option<String>,
    /// The digest of the approved tool.
    pub digest: Option<String>,
}

/// What a person decides about a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallDecision {
    pub call: CallId,
    /// The action that was shown.
    pub action: Digest,
    /// As the person wrote it; it is recorded.
    pub reason: Option<String>,
}

/// An execution whose state is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecutionWait {
    pub execution: ExecutionId,
    /// How long to wait for its end.
    pub wait: Duration,
}
