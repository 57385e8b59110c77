//! Following a turn: frames as they come, the journal where they do not.
//!
//! [`Progress`] is the pure part. The loop around it listens, asks the owner for what was missed,
//! and reads the journal when frames stay away: frames are never the only path.

use std::time::Duration;

use clawnode_cluster::{BusEvent, Subscription};
use clawnode_kernel::Service;
use clawnode_proto::{
    CallId, EntityId, ErrorBody, ErrorCode, Frame, FrameKey, ProcessId, TurnId, codec,
    frame::FrameBatch,
    session::TurnOutcome,
    turn::{TurnBody, TurnEvent},
};
use futures_util::{StreamExt, stream::BoxStream};
use tokio::{sync::mpsc, time::Instant};
use tracing::debug;

use super::{
    client::Sessions,
    look::{Glance, Look, shared_frames},
    progress::Progress,
};
use crate::session::turn::{
    state::{SEAM, Turn},
    tool_frames,
};

/// Events that wait for a slow reader; what comes beyond is made good by a reset.
const EVENTS_MAX: usize = 1_024;
/// How long the first frame of a turn may take before the journal is looked at: it may be a repeat
/// of a turn that ended long ago. Doubles with each look.
const FIRST_SILENCE: Duration = Duration::from_millis(500);
/// The same after a frame came: a model that thinks should not cost reads.
const SILENCE_BEGUN: Duration = Duration::from_secs(2);
/// The longest time between two looks.
const SILENCE_MOST: Duration = Duration::from_secs(10);
/// Looks in a row, over some seconds, after which a turn that is nowhere does not exist.
const ABSENCES_MAX: u32 = 4;

/// What is to be followed.
pub(in crate::session) struct Follow {
    pub(in crate::session) sessions: Sessions,
    pub(in crate::session) session: EntityId,
    pub(in crate::session) turn: TurnId,
    pub(in crate::session) after: Option<FrameKey>,
    pub(in crate::session) frames: Subscription,
    /// Nothing of the turn can have been missed.
    pub(in crate::session) fresh: bool,
}

/// Why following goes on or not.
enum Next {
    More,
    /// Ended as far as frames say, but something was missed: only the journal has the whole.
    ReadJournal,
    Over,
}

// === the loop ===

/// Follows until the turn's end or until nobody reads any more.
pub(in crate::session) fn follow(it: Follow) -> BoxStream<'static, TurnEvent> {
    let (tx, rx) = mpsc::channel(EVENTS_MAX);
    // Detached: it ends with its turn, or as soon as its reader is gone.
    drop(tokio::spawn(async move {
        let mut follower = Follower {
            progress: Progress::new(it.turn, it.after),
            sessions: it.sessions,
            session: it.session,
            tx,
            lagged: false,
            absences: 0,
            asked: Vec::new(),
            glance: Glance::default(),
        };
        follower.run(it.frames, it.fresh).await;
    }));
    let events =
        futures_util::stream::unfold(rx, |mut rx| async move { Some((rx.recv().await?, rx)) });
    // Readers that take what is ready at once find the end with the last event, and look again.
    events.fuse().boxed()
}

struct Follower {
    progress: Progress,
    sessions: Sessions,
    session: EntityId,
    tx: mpsc::Sender<TurnEvent>,
    /// The reader was too slow: it is told, and shown the whole from the journal at the end.
    lagged: bool,
    /// Looks in a row that found the turn neither in the journal nor on its way there.
    absences: u32,
    /// Calls that the reader knows to wait for a person.
    asked: Vec<CallId>,
    glance: Glance,
}

impl Follower {
    async fn run(&mut self, mut frames: Subscription, fresh: bool) {
        if !fresh {
            let caught = self.catch_up(true).await;
            if self.is_over(caught).await {
                return;
            }
        }
        // Other turns of the session are heard here too; only this turn's frames break its silence.
        let mut silence = FIRST_SILENCE;
        let mut until = Instant::now() + silence;
        loop {
            let heard = tokio::select! {
                () = self.tx.closed() => return,
                heard = tokio::time::timeout_at(until, frames.next()) => heard,
            };
            let next = match heard {
                Ok(Some(BusEvent::Message(message))) => {
                    match codec::decode::<FrameBatch>(&message.payload) {
                        Ok(batch) => {
                            let ours =
                                batch.frames.iter().any(|one| one.key.turn == self.progress.turn());
                            if ours {
                                silence = SILENCE_BEGUN;
                                until = Instant::now() + silence;
                            }
                            self.hear(batch.frames).await
                        }
                        Err(failure) => {
                            debug!(%failure, "a frame is not readable");
                            Next::More
                        }
                    }
                }
                Ok(Some(BusEvent::Lagged)) => self.catch_up(true).await,
                Ok(None) => return,
                Err(_elapsed) => {
                    let caught = self.look_again().await;
                    silence = SILENCE_MOST.min(silence * 2);
                    until = Instant::now() + silence;
                    caught
                }
            };
            let reads = matches!(next, Next::ReadJournal);
            if self.is_over(next).await {
                return;
            }
            if reads {
                // The turn has ended, but the journal did not show it, or could not be read.
                silence = FIRST_SILENCE;
                until = Instant::now() + silence;
            }
        }
    }

    /// Nothing was heard for a while: the journal is folded only if its end does not tell that the
    /// turn still runs.
    async fn look_again(&mut self) -> Next {
        let turn = self.progress.turn();
        if self.glance.runs(&self.sessions, self.session, turn).await {
            return Next::More;
        }
        self.catch_up(false).await
    }

    async fn is_over(&mut self, next: Next) -> bool {
        match next {
            Next::More => false,
            // `Done` follows the append: the journal has the end, or the next silence finds it.
            Next::ReadJournal => matches!(self.catch_up(false).await, Next::Over),
            Next::Over => true,
        }
    }

    /// Takes what was heard. What is missing before it is asked of the owner first, once: what the
    /// owner does not have either, the end makes good.
    async fn hear(&mut self, mut frames: Vec<Frame>) -> Next {
        // Whoever has seen frames of a call would take a refusal for an old one.
        let (heard, rings) = (frames.len(), refusal_key(self.progress.turn()));
        frames.retain(|one| one.key != rings);
        let refused = frames.len() < heard;
        if self.progress.misses_before(&frames) {
            let caught = self.catch_up(true).await;
            if !matches!(caught, Next::More) {
                return caught;
            }
        }
        let events = frames.into_iter().flat_map(|frame| self.progress.take(frame)).collect();
        match self.tell_all(events).await {
            Next::More if refused => Next::ReadJournal,
            next => next,
        }
    }

    async fn tell_all(&mut self, events: Vec<TurnEvent>) -> Next {
        for event in events {
            let over = matches!(event.body, TurnBody::Done(_));
            if over && (self.progress.has_holes() || self.lagged) {
                return Next::ReadJournal;
            }
            self.tell(event).await;
            if over {
                return Next::Over;
            }
        }
        Next::More
    }

    /// A slow reader never slows the turn: what does not fit is left out and made good at the
    /// end. The last event waits for room; the turn is over by then.
    async fn tell(&mut self, event: TurnEvent) {
        if matches!(event.body, TurnBody::Done(_)) {
            if self.tx.send(event).await.is_err() {
                debug!("a reader left before the end of its turn");
            }
            return;
        }
        if self.lagged {
            return;
        }
        if let TurnBody::ApprovalRequest(it) = &event.body {
            if self.asked.contains(&it.id) {
                return;
            }
            self.asked.push(it.id);
        }
        if self.tx.try_send(event).is_err() {
            self.lagged = true;
        }
    }

    /// Reads the journal: a turn that has ended is told to its end; of one that runs, the owner
    /// may still have what was missed.
    async fn catch_up(&mut self, ask: bool) -> Next {
        let Some(Look { nothing_waits, entity }) = Look::shared(&self.sessions, self.session).await
        else {
            debug!("reading a session was interrupted");
            return Next::More;
        };
        let entity = match entity {
            Ok(entity) => entity,
            Err(Some(damage)) => return self.refuse(damage).await,
            // It cannot be read now.
            Err(None) => return Next::More,
        };
        let turn = entity.state.turn(self.progress.turn());
        if let Some(turn) = turn
            && let Some(outcome) = turn.outcome.clone()
        {
            self.progress.is_of(turn.id);
            return self.tell_end(turn, outcome).await;
        }
        // What has not ended will not: neither what was parked nor what was journaled before.
        if let Service::Quarantined { reason } = &entity.core.service {
            let error = ErrorBody::new(
                ErrorCode::Quarantined,
                format!("session `{}` is out of service: {reason}", self.session),
            )
            .hint(format!("see `clawnode quarantine show {}`", self.session));
            return self.refuse(error).await;
        }
        let Some(turn) = turn else {
            return self.absent(nothing_waits).await;
        };
        self.progress.is_of(turn.id);
        self.glance.folded();
        if ask
            && let Some(owner) = entity.core.incarnation
            && let over @ (Next::ReadJournal | Next::Over) = self.ask(owner.process).await
        {
            return over;
        }
        self.tell_asked(turn).await;
        Next::More
    }

    /// Tells what waits for a person, if nobody told it: whoever asked may have left memory, with
    /// the frames that said so.
    async fn tell_asked(&mut self, turn: &Turn) {
        let cursor = self.progress.at();
        let cursor = cursor.unwrap_or_else(|| super::client::start_of(turn.id));
        let tools = turn.steps.iter().flat_map(|step| &step.tools);
        for tool in tools.filter(|tool| tool.is_asked_about()) {
            if let Some(body) = tool.request_frame().and_then(TurnBody::of_tool) {
                self.tell(TurnEvent { cursor, body }).await;
            }
        }
    }

    /// The journal does not know the turn. It will, while inputs wait; otherwise it was deleted, or
    /// never was. One look proves nothing, because a read may be old.
    async fn absent(&mut self, nothing_waits: bool) -> Next {
        self.absences = if nothing_waits { self.absences + 1 } else { 0 };
        if self.absences < ABSENCES_MAX {
            return Next::More;
        }
        let message = format!("session `{}` has no turn `{}`", self.session, self.progress.turn());
        let error = ErrorBody::new(ErrorCode::NotFound, message)
            .hint("it was deleted or never existed; `clawnode sessions show` lists the turns");
        self.refuse(error).await
    }

    async fn tell_end(&mut self, turn: &Turn, outcome: TurnOutcome) -> Next {
        let cursor = turn.end_key();
        if self.lagged {
            self.lagged = false;
            self.send(TurnEvent { cursor, body: TurnBody::Lagged }).await;
        }
        let begun = self.progress.has_begun();
        let (mut text, mut seam) = (String::new(), "");
        for step in &turn.steps {
            if let Some(content) = step.text().filter(|content| content.bytes() > 0) {
                text.push_str(seam);
                seam = SEAM;
                match self.sessions.text(content).await {
                    Ok(more) => text.push_str(&more),
                    Err(failure) => return self.refuse(ErrorBody::from(failure)).await,
                }
            }
            if begun {
                continue;
            }
            for frame in tool_frames::frames(turn.id, step.call, &step.tools) {
                let said = std::mem::take(&mut text);
                if !said.is_empty() {
                    self.send(TurnEvent { cursor, body: TurnBody::Text(said) }).await;
                }
                if let Some(body) = TurnBody::of_tool(frame.body) {
                    self.send(TurnEvent { cursor, body }).await;
                }
            }
        }
        if begun {
            self.send(TurnEvent { cursor, body: TurnBody::Reset { text } }).await;
        } else if !text.is_empty() {
            self.send(TurnEvent { cursor, body: TurnBody::Text(text) }).await;
        }
        self.send(TurnEvent { cursor, body: TurnBody::Usage(turn.usage) }).await;
        if let Some(error) = outcome.error() {
            self.send(TurnEvent { cursor, body: TurnBody::Error(error) }).await;
        }
        self.send(TurnEvent { cursor, body: TurnBody::Done(outcome) }).await;
        Next::Over
    }

    async fn ask(&mut self, owner: ProcessId) -> Next {
        let turn = self.progress.turn();
        match shared_frames(&self.sessions, owner, self.session, turn).await {
            Some(frames) => {
                let events = self.progress.recall(frames.to_vec());
                self.tell_all(events).await
            }
            None => Next::More,
        }
    }

    async fn refuse(&mut self, error: ErrorBody) -> Next {
        let cursor = super::client::start_of(self.progress.turn());
        let failure = clawnode_proto::llm::ModelFailure::new(
            clawnode_proto::llm::FailureClass::Lost,
            error.message.clone(),
        );
        self.send(TurnEvent { cursor, body: TurnBody::Error(error) }).await;
        let body = TurnBody::Done(TurnOutcome::Failed { failure });
        self.send(TurnEvent { cursor, body }).await;
        Next::Over
    }

    async fn send(&self, event: TurnEvent) {
        if self.tx.send(event).await.is_err() {
            debug!("a reader left before the end of its turn");
        }
    }
}

/// The key of the frame that says that a turn is not served. It only rings: why, and whether it is
/// still so, is in the journal. No call has such a frame, because attempts count from 1.
pub(in crate::session) fn refusal_key(turn: TurnId) -> FrameKey {
    FrameKey { index: FrameKey::ERROR, ..super::client::start_of(turn) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clawnode_cluster::SystemClock;
    use clawnode_local as local;
    use clawnode_proto::{
        Attempt, FrameBody,
        llm::{Sampling, StopReason, Text, Usage},
    };

    use super::*;
    use crate::session::{Step, StepEnd};

    fn turn(id: TurnId, text: &str) -> Turn {
        let end = StepEnd::Done {
            content: Text::from(text.to_owned()),
            stop: StopReason::EndTurn,
            usage: Usage::default(),
        };
        Turn {
            plan: None,
            judged: None,
            id,
            said: Vec::new(),
            steers: Vec::new(),
            joined: Vec::new(),
            system: None,
            sampling: Sampling::default(),
            trace: None,
            steps: vec![Step {
                call: CallId::derive(id, 0),
                attempt: Attempt(1),
                begun_ms: 0,
                end: Some(end),
                tools: Vec::new(),
            }],
            cancelled: false,
            more_steps: 0,
            clock: crate::session::turn::clock::TurnClock::default(),
            limit_reached: None,
            outcome: None,
            usage: Usage::default(),
            lost_attempts: 0,
        }
    }

    #[tokio::test]
    async fn a_reader_that_was_too_slow_is_still_told_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let clock: Arc<dyn clawnode_cluster::Clock> = Arc::new(SystemClock);
        let prefix = "cn".parse().unwrap();
        let options = local::LocalOptions::new(prefix, Arc::clone(&clock));
        let (substrate, _control) = local::open(dir.path(), options).unwrap();
        let id = TurnId::from_u128(7);
        let (tx, mut rx) = mpsc::channel(EVENTS_MAX);
        let mut follower = Follower {
            progress: Progress::new(id, None),
            sessions: Sessions::new(substrate, clock),
            session: EntityId::from_u128(1),
            tx,
            lagged: false,
            absences: 0,
            asked: Vec::new(),
            glance: Glance::default(),
        };
        let key =
            |index| FrameKey { turn: id, call: CallId::derive(id, 0), attempt: Attempt(1), index };
        let count = EVENTS_MAX + 10;
        let outcome = TurnOutcome::Completed { stop: StopReason::EndTurn };
        let mut frames: Vec<Frame> = (0..count)
            .map(|n| Frame {
                key: key(u32::try_from(n).unwrap()),
                body: FrameBody::Text { delta: "x".to_owned() },
            })
            .collect();
        let done = FrameBody::Done { outcome: outcome.clone(), text_bytes: count as u64 };
        frames.push(Frame { key: key(FrameKey::DONE), body: done });
        assert!(matches!(follower.hear(frames).await, Next::ReadJournal));
        let whole = "x".repeat(count);
        let turn = turn(id, &whole);
        let ((), bodies) = tokio::join!(
            async {
                assert!(matches!(follower.tell_end(&turn, outcome.clone()).await, Next::Over));
                drop(follower);
            },
            async {
                let mut bodies = Vec::new();
                while let Some(event) = rx.recv().await {
                    bodies.push(event.body);
                }
                bodies
            }
        );
        assert_eq!(
            bodies[EVENTS_MAX..],
            [
                TurnBody::Lagged,
                TurnBody::Reset { text: whole },
                TurnBody::Usage(Usage::default()),
                TurnBody::Done(outcome),
            ]
        );
    }
}
