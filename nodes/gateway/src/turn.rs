//! Carries a turn's events to a socket that may be slow (GATE-2, GATE-3).

use std::time::Instant;

use clawnode_proto::{
    ErrorBody, ErrorCode, FrameKey,
    turn::{Lagged, StreamEnd, TurnBody, TurnEvent},
};
use futures_util::{StreamExt as _, stream::BoxStream};

use super::{
    backend::{Following, SessionRef},
    frame::{RequestId, coalesce},
    outbox::{Closed, Outbox, Refused},
    serve::Gateway,
};

/// Events taken from a stream at once, when that many are ready. Room for so many is made for each
/// that comes alone.
const READY: usize = 16;

/// Why a stream ends before its turn does.
enum Stop {
    /// The socket is gone.
    Closed,
    /// No room: let go, wait for the reader, begin again from the cursor.
    Lagged,
    /// The node lost sight of the turn.
    Lost,
}

/// Whether an event waits for room. Each makes good what was left out or follows what does: left out
/// itself, it would be told anew and left out again for ever where the text before it takes all room.
const fn must_be_told(body: &TurnBody) -> bool {
    matches!(body, TurnBody::Reset(_) | TurnBody::Usage(_) | TurnBody::Error(_) | TurnBody::Done(_))
}

/// The node lost sight of a turn.
pub(super) fn lost() -> ErrorBody {
    ErrorBody::new(ErrorCode::Unavailable, "this node lost track of the turn, which continues")
        .hint("ask again with the same `Idempotency-Key` to read its reply")
}

/// Counts what an event tells of a turn.
pub(super) fn count(gateway: &Gateway, body: &TurnBody, sent: Instant) {
    match body {
        TurnBody::Usage(usage) => gateway.metrics.usage(usage),
        TurnBody::Done(StreamEnd { outcome: Some(outcome), .. }) => {
            gateway.metrics.turn(outcome, sent.elapsed());
            tracing::debug!(took = ?sent.elapsed(), outcome = outcome.name(), "turn done");
        }
        TurnBody::Done(_)
        | TurnBody::Accepted(_)
        | TurnBody::Text(_)
        | TurnBody::Notice(_)
        | TurnBody::ToolUse(_)
        | TurnBody::ApprovalRequest(_)
        | TurnBody::ToolResult(_)
        | TurnBody::Reset(_)
        | TurnBody::Lagged(_)
        | TurnBody::Error(_)
        | TurnBody::Unknown { .. } => {}
    }
}

/// One stream on one socket.
pub(super) struct Stream<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) out: &'a Outbox,
    pub(super) id: &'a RequestId,
    pub(super) session: SessionRef,
    /// The last cursor that the client has, or will have.
    pub(super) seen: Option<FrameKey>,
    /// No text was seen yet.
    pub(super) first: bool,
    /// When the message was sent, if this stream began with one: only those are counted.
    pub(super) sent: Option<Instant>,
}

// === impl Stream ===

impl Stream<'_> {
    /// Follows the turn to its end, or the socket's.
    pub(super) async fn run(mut self, following: Following) -> Result<(), Closed> {
        let turn = following.accepted.turn;
        let accepted = TurnBody::Accepted(following.accepted);
        self.out.push_wait(self.id.event(&accepted.into())).await?;
        let mut events = following.events;
        loop {
            match self.pump(events).await {
                Ok(()) => return Ok(()),
                Err(Stop::Closed) => return Err(Closed),
                Err(Stop::Lost) => {
                    let error = ErrorBody::new(
                        ErrorCode::Unavailable,
                        "this node lost track of the turn, which continues",
                    )
                    .hint("follow it with `sessions.resume` from the last cursor");
                    return self.fail(&error, turn).await;
                }
                Err(Stop::Lagged) => {}
            }
            self.gateway.metrics.lagged();
            self.out.emptied().await?;
            let lagged = TurnEvent { body: TurnBody::Lagged(Lagged::default()), cursor: self.seen };
            self.out.push_wait(self.id.event(&lagged)).await?;
            let again = self.gateway.backend.follow(&self.session, Some(turn), self.seen).await;
            match again {
                Ok(following) => events = following.events,
                Err(error) => return self.fail(&error, turn).await,
            }
        }
    }

    async fn pump(&mut self, events: BoxStream<'static, TurnEvent>) -> Result<(), Stop> {
        let mut ready = events.ready_chunks(READY);
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = ready.next() => chunk.ok_or(Stop::Lost)?,
                () = self.out.closed() => return Err(Stop::Closed),
            };
            for event in coalesce(chunk) {
                let frame = self.id.event(&event);
                if must_be_told(&event.body) {
                    self.out.push_wait(frame).await.map_err(|Closed| Stop::Closed)?;
                } else {
                    match self.out.push(frame) {
                        Ok(()) => {}
                        Err(Refused::Full) => return Err(Stop::Lagged),
                        Err(Refused::Closed) => return Err(Stop::Closed),
                    }
                }
                self.seen = event.cursor.or(self.seen);
                self.count(&event.body);
                if matches!(event.body, TurnBody::Done(_)) {
                    return Ok(());
                }
            }
        }
    }

    async fn fail(&self, error: &ErrorBody, turn: clawnode_proto::TurnId) -> Result<(), Closed> {
        self.gateway.metrics.refusal(error.code);
        self.out.push_wait(self.id.error(error)).await?;
        self.out.push_wait(self.id.done_early(Some(turn))).await
    }

    fn count(&mut self, body: &TurnBody) {
        let Some(sent) = self.sent else { return };
        if self.first && matches!(body, TurnBody::Text(_)) {
            self.first = false;
            self.gateway.metrics.first_text(sent.elapsed());
        }
        count(self.gateway, body, sent);
    }
}
