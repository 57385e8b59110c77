//! Carries a turn's events to a client that may be slow (GATE-2, GATE-3): the one protocol for that, on
//! `/ws` and in clawnode's own server-sent events. Streams in OpenAI's and Anthropic's shape have no event for it:
//! they wait for their client, and end with its connection if it reads nothing for `write_deadline`.
//!
//! What waits for a client is bounded ([`Outbox`]). When an event does not fit, the stream lets go of
//! the turn, waits until the client has read what there was, tells it `lagged`, and follows the turn
//! again from the last cursor: what was missed comes from the owner's frames, or as a `reset` from
//! the journal. So nothing waits for the client but its own outbox.

use std::time::Instant;

use clawnode_proto::{
    ErrorBody, ErrorCode, FrameKey,
    turn::{Lagged, StreamEnd, TurnBody, TurnEvent},
};
use futures_util::{StreamExt as _, stream::BoxStream};

use super::{
    backend::{Following, SessionRef},
    frame::{Wording, coalesce},
    gateway::Gateway,
    outbox::{Closed, Outbox, Refused},
};

/// Events taken from a stream at once, when that many are ready. Room for so many is made for each
/// that comes alone.
const READY: usize = 16;

/// How often in succession a stream that ends too early, with nothing new in it, is followed again: what reads the turn
/// for this process may have failed, and is there again at once.
const LOST_MOST: u32 = 3;

/// Why a stream ends before its turn does.
enum StreamStop {
    /// The client is gone.
    Closed,
    /// No room: let go, wait for the client, begin again from the cursor.
    Lagged,
    /// The node lost sight of the turn.
    Lost,
}

/// Whether an event waits for room. Each makes good what was left out or follows what does: left out
/// itself, it would be told again and left out again for ever where the text before it takes all room.
const fn must_be_told(body: &TurnBody) -> bool {
    matches!(body, TurnBody::Reset(_) | TurnBody::Usage(_) | TurnBody::Error(_) | TurnBody::Done(_))
}

fn lost_track() -> ErrorBody {
    ErrorBody::new(ErrorCode::Unavailable, "this node lost track of the turn, which continues")
}

/// The node lost sight of a turn.
pub(super) fn lost() -> ErrorBody {
    lost_track().hint("ask again with the same `Idempotency-Key` to read its reply")
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
        | TurnBody::Thought(_)
        | TurnBody::Notice(_)
        | TurnBody::ToolUse(_)
        | TurnBody::ApprovalRequest(_)
        | TurnBody::ClientCalls(_)
        | TurnBody::ToolResult(_)
        | TurnBody::Reset(_)
        | TurnBody::Lagged(_)
        | TurnBody::Error(_)
        | TurnBody::Unknown { .. } => {}
    }
}

/// One stream to one client.
pub(super) struct TurnStream<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) out: &'a Outbox,
    pub(super) wording: Wording<'a>,
    pub(super) session: SessionRef,
    /// The last cursor that the client has, or will have.
    pub(super) seen: Option<FrameKey>,
    /// No text was seen yet.
    pub(super) first: bool,
    /// When the message was sent, if this stream began with one: only those are counted.
    pub(super) sent: Option<Instant>,
}

// === impl TurnStream ===

impl TurnStream<'_> {
    /// Follows the turn to its end, or the connection's.
    pub(super) async fn run(mut self, following: Following) -> Result<(), Closed> {
        let turn = following.accepted.turn;
        self.out.push_wait(self.wording.accepted(following.accepted)).await?;
        let mut events = following.events;
        let mut lost = 0;
        loop {
            let before = self.seen;
            match self.pump(events).await {
                Ok(()) => return Ok(()),
                Err(StreamStop::Closed) => return Err(Closed),
                Err(StreamStop::Lost) => {
                    lost = if self.seen == before { lost + 1 } else { 1 };
                    if lost > LOST_MOST {
                        let error = lost_track().hint(self.wording.again());
                        return self.fail(&error, turn).await;
                    }
                }
                Err(StreamStop::Lagged) => self.lagged().await?,
            }
            let again = self.gateway.backend.follow(&self.session, Some(turn), self.seen).await;
            match again {
                Ok(following) => events = following.events,
                Err(error) => return self.fail(&error, turn).await,
            }
        }
    }

    /// Waits until the client has read what there was, and tells it that more is to come from there.
    async fn lagged(&self) -> Result<(), Closed> {
        self.gateway.metrics.lagged();
        self.out.emptied().await?;
        let lagged = TurnEvent { body: TurnBody::Lagged(Lagged::default()), cursor: self.seen };
        self.out.push_wait(self.wording.event(&lagged)).await
    }

    async fn pump(&mut self, events: BoxStream<'static, TurnEvent>) -> Result<(), StreamStop> {
        let mut ready = events.ready_chunks(READY);
        loop {
            let chunk = tokio::select! {
                biased;
                chunk = ready.next() => chunk.ok_or(StreamStop::Lost)?,
                () = self.out.closed() => return Err(StreamStop::Closed),
            };
            for event in coalesce(chunk) {
                let frame = self.wording.event(&event);
                if must_be_told(&event.body) {
                    self.out.push_wait(frame).await.map_err(|Closed| StreamStop::Closed)?;
                } else {
                    match self.out.push(frame) {
                        Ok(()) => {}
                        Err(Refused::Full) => return Err(StreamStop::Lagged),
                        Err(Refused::Closed) => return Err(StreamStop::Closed),
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
        self.out.push_wait(self.wording.event(&TurnBody::Error(error.clone()).into())).await?;
        self.out.push_wait(self.wording.done_early(Some(turn))).await
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
