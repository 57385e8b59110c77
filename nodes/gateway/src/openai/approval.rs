//! A turn that waits for a person while its client waits for an answer.
//!
//! A stream says so, and is kept alive. Who waits for the whole answer waits for a person for
//! `approval_patience`; then an error names the call and says how to go on. The turn itself waits on.

use std::time::Duration;

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue},
    response::Response,
};
use clawnode_proto::{
    CallId, ErrorBody, ErrorCode,
    frame::ApprovalRequest,
    turn::{TurnBody, TurnEvent},
};
use futures_util::{StreamExt as _, stream::BoxStream};
use tokio::time::{Instant, timeout_at};

use super::super::{error::OpenAiError, gateway::Gateway};

/// The header that names the session.
pub(in super::super) const SESSION: HeaderName = HeaderName::from_static("clawnode-session");
/// The header that names the call that waits for a person.
pub(super) const APPROVAL: HeaderName = HeaderName::from_static("clawnode-approval");

/// How long a client still waits for people.
#[derive(Debug)]
pub(super) struct PersonWait {
    patience: Duration,
    /// Calls that wait for a person, as far as events say.
    waiting: Vec<ApprovalRequest>,
    until: Option<Instant>,
}

/// What a client hears next that waits for the whole answer.
pub(super) enum Heard {
    Event(Option<TurnEvent>),
    /// This call still waits for a person, and its client has waited for long enough.
    TooLong(ApprovalRequest),
}

// === impl PersonWait ===

impl PersonWait {
    pub(super) const fn new(patience: Duration) -> Self {
        Self { patience, waiting: Vec::new(), until: None }
    }

    /// The next event, or that a person does not decide in time.
    pub(super) async fn next(
        &mut self,
        gateway: &Gateway,
        events: &mut BoxStream<'static, TurnEvent>,
    ) -> Heard {
        loop {
            let Some(until) = self.until else {
                let event = events.next().await;
                self.see(event.as_ref());
                return Heard::Event(event);
            };
            if let Ok(event) = timeout_at(until, events.next()).await {
                self.see(event.as_ref());
                return Heard::Event(event);
            }
            self.until = None;
            for request in std::mem::take(&mut self.waiting) {
                if is_undecided(gateway, request.id).await {
                    return Heard::TooLong(request);
                }
            }
        }
    }

    fn see(&mut self, event: Option<&TurnEvent>) {
        match event.map(|event| &event.body) {
            Some(TurnBody::ApprovalRequest(request)) => {
                self.waiting.push(request.clone());
                self.until.get_or_insert_with(|| Instant::now() + self.patience);
            }
            Some(TurnBody::ToolResult(ended)) => {
                self.waiting.retain(|request| request.id != ended.id);
                if self.waiting.is_empty() {
                    self.until = None;
                }
            }
            _ => {}
        }
    }
}

/// Events do not say that a person has approved: the tool runs, and its result follows.
async fn is_undecided(gateway: &Gateway, call: CallId) -> bool {
    let shown = gateway.backend.approvals_show(&gateway.caller(None), call).await;
    shown.is_ok_and(|approval| approval.decided.is_none())
}

/// The answer to a client that has waited for a person for long enough.
pub(super) fn pending(request: &ApprovalRequest, session: &str) -> Response {
    let mut response = OpenAiError::from(pending_error(request, session)).respond_ended();
    response.headers_mut().extend(headers(Some(request), session));
    response
}

/// The error of it.
pub(in super::super) fn pending_error(request: &ApprovalRequest, session: &str) -> ErrorBody {
    let call = request.id;
    let what = format!("the turn waits for a person: may `{}` run (`{call}`)?", request.name);
    let how = format!(
        "`clawnode approvals approve {call}` or `deny` decides; the turn goes on by itself: read it at \
         `/v1/sessions/{session}/events`, or send the request again with the same `Idempotency-Key`"
    );
    ErrorBody::new(ErrorCode::ApprovalPending, what).hint(how)
}

/// The headers that name a session and the call of it that waits for a person.
pub(in super::super) fn headers(request: Option<&ApprovalRequest>, session: &str) -> HeaderMap {
    let value = |text: &str| HeaderValue::from_str(text).ok();
    let session = value(session).map(|session| (SESSION, session));
    let call = request.and_then(|request| value(&request.id.to_string()));
    session.into_iter().chain(call.map(|call| (APPROVAL, call))).collect()
}
