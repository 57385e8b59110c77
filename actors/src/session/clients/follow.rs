//! Following a turn: frames as they come, the journal where they do not.
//!
//! [`Progress`] is the pure part. The loop around it listens, asks the owner for what was missed,
//! and reads the journal when frames stay away: frames are never the only path.

use std::time::Duration;

use clawnode_cluster::{BusEvent, Subscription};
use clawnode_kernel::Service;
use clawnode_proto::{
    CallId, EntityId, ErrorBody, ErrorCode, Frame, FrameBody, FrameKey, ProcessId, TurnId, codec,
    frame::{ApprovalRequest, FrameBatch},
    session::TurnOutcome,
    turn::{TurnBody, TurnEvent},
};
use futures_util::{StreamExt, stream::BoxStream};
use tokio::{sync::mpsc, time::Instant};
use tracing::debug;

use super::{
    follow_from::{FollowFrom, WaitingForClient},
    progress::{Progress, in_json},
    reply_parts::RecordedPart,
    reset::reset_to,
    send_error::SendError,
    sessions::Sessions,
    shared_reads::{Glance, SessionLookup, shared_frames},
};
use crate::session::turn::{
    state::{SEAM, Step, Turn},
    tools::tool_calls::ToolCall,
    tools::tool_frames,
};

/// Events that wait for their reader: a few times what it takes at once. A reader that has stopped
/// makes its own follower wait; what the session's one subscription drops meanwhile is
/// caught up on like all that was missed. Who must not wait lets go and follows again from its cursor.
const EVENTS_MAX: usize = 64;
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
pub(in crate::session) struct FollowRequest {
    pub(in crate::session) sessions: Sessions,
    pub(in crate::session) session: EntityId,
    pub(in crate::session) turn: TurnId,
    pub(in crate::session) after: Option<FrameKey>,
    /// What the reader has seen, if it brought results of tools.
    pub(in crate::session) from: Option<FollowFrom>,
    pub(in crate::session) frames: Subscription,
    /// Nothing of the turn can have been missed.
    pub(in crate::session) fresh: bool,
}

/// Why following goes on or not.
enum FollowStep {
    More,
    /// Ended as far as frames say, but something was missed: only the journal has the whole.
    ReadJournal,
    Over,
}

// === the loop ===

/// Follows until the turn's end or until its reader has gone.
pub(in crate::session) fn follow(request: FollowRequest) -> BoxStream<'static, TurnEvent> {
    let (tx, rx) = mpsc::channel(EVENTS_MAX);
    // Detached: it ends with its turn, or as soon as its reader is gone.
    drop(tokio::spawn(async move {
        let mut follower = TurnFollower {
            progress: match &request.from {
                Some(from) => Progress::from(from),
                None => Progress::new(request.turn, request.after),
            },
            sessions: request.sessions,
            session: request.session,
            tx,
            absences: 0,
            asked: request.from.iter().flat_map(|from| from.asked.clone()).collect(),
            seam: seam_of(request.from.as_ref()),
            from: request.from,
            glance: Glance::default(),
        };
        follower.run(request.frames, request.fresh).await;
    }));
    let events =
        futures_util::stream::unfold(rx, |mut rx| async move { Some((rx.recv().await?, rx)) });
    // Readers that take what is ready at once find the end with the last event, and look again.
    events.fuse().boxed()
}

/// Bytes between what a reader has seen and the text that follows it.
fn seam_of(from: Option<&FollowFrom>) -> usize {
    from.filter(|from| from.text_bytes > 0).map_or(0, |_| SEAM.len())
}

struct TurnFollower {
    progress: Progress,
    sessions: Sessions,
    session: EntityId,
    tx: mpsc::Sender<TurnEvent>,
    /// Looks in a row that found the turn neither in the journal nor on its way there.
    absences: u32,
    /// Calls that the reader knows to wait for a person, or for itself.
    asked: Vec<CallId>,
    /// What the reader has seen, if it brought results of tools: events begin after that.
    from: Option<FollowFrom>,
    /// Bytes of the separator between that and the next text.
    seam: usize,
    glance: Glance,
}

impl TurnFollower {
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
                            FollowStep::More
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
            let reads = matches!(next, FollowStep::ReadJournal);
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
    async fn look_again(&mut self) -> FollowStep {
        let turn = self.progress.turn();
        if self.glance.runs(&self.sessions, self.session, turn).await {
            return FollowStep::More;
        }
        self.catch_up(false).await
    }

    async fn is_over(&mut self, next: FollowStep) -> bool {
        match next {
            FollowStep::More => false,
            // `Done` follows the append: the journal has the end, or the next silence finds it.
            FollowStep::ReadJournal => matches!(self.catch_up(false).await, FollowStep::Over),
            FollowStep::Over => true,
        }
    }

    /// Takes what was heard. What is missing before it is asked of the owner first, once: what the
    /// owner does not have either, the end makes good.
    async fn hear(&mut self, mut frames: Vec<Frame>) -> FollowStep {
        // A reader that has seen frames of a call would take a refusal for an old one.
        let (heard, rings) = (frames.len(), refusal_key(self.progress.turn()));
        frames.retain(|one| one.key != rings);
        let refused = frames.len() < heard;
        if self.progress.misses_before(&frames) {
            let caught = self.catch_up(true).await;
            if !matches!(caught, FollowStep::More) {
                return caught;
            }
        }
        let events = frames.into_iter().flat_map(|frame| self.progress.take(frame)).collect();
        match self.tell_all(events).await {
            FollowStep::More if refused => FollowStep::ReadJournal,
            next => next,
        }
    }

    async fn tell_all(&mut self, events: Vec<TurnEvent>) -> FollowStep {
        for event in events {
            let over = matches!(event.body, TurnBody::Done(_));
            if over && self.progress.has_holes() {
                return FollowStep::ReadJournal;
            }
            self.tell(event).await;
            if over {
                return FollowStep::Over;
            }
        }
        FollowStep::More
    }

    /// Tells an event, but nothing twice that the reader is asked for.
    async fn tell(&mut self, mut event: TurnEvent) {
        let asked: Vec<CallId> = match &event.body {
            TurnBody::ApprovalRequest(approval) => vec![approval.id],
            TurnBody::ClientCalls(calls) => calls.calls.iter().map(|call| call.id).collect(),
            _ => Vec::new(),
        };
        if asked.iter().any(|call| self.asked.contains(call)) {
            return;
        }
        self.asked.extend(asked);
        match &mut event.body {
            TurnBody::Text(text) if self.seam > 0 => {
                let cut = self.seam.min(text.len());
                self.seam -= cut;
                text.drain(..cut);
            }
            TurnBody::Reset(reset) if reset.text.is_empty() => {
                self.seam = seam_of(self.from.as_ref());
            }
            _ => {}
        }
        self.send(event).await;
    }

    /// Reads the journal: a turn that has ended is sent to its end; of one that runs, the owner
    /// may still have what was missed.
    async fn catch_up(&mut self, ask: bool) -> FollowStep {
        let Some(SessionLookup { nothing_waits, entity }) =
            SessionLookup::shared(&self.sessions, self.session).await
        else {
            debug!("reading a session was interrupted");
            return FollowStep::More;
        };
        let entity = match entity {
            Ok(entity) => entity,
            Err(Some(damage)) => return self.refuse(damage).await,
            // It cannot be read now.
            Err(None) => return FollowStep::More,
        };
        let own = self.progress.turn();
        let earlier = self.sessions.earlier_turn(&entity, own, nothing_waits).await;
        let turn = earlier.as_ref().or_else(|| entity.state.turn(own));
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
        let tools = turn.steps.iter().flat_map(|step| &step.tools);
        let asked = tools.filter(|tool| tool.is_asked_about());
        let requests: Vec<_> = asked.filter_map(ToolCall::request).collect();
        let waits = turn.wait_frames();
        let called = WaitingForClient::of(turn, self.from.as_ref());
        let owner = entity.core.incarnation;
        // A reader may make what follows wait; the session is not kept in memory meanwhile.
        drop(entity);
        if ask
            && let Some(owner) = owner
            && let over @ (FollowStep::ReadJournal | FollowStep::Over) =
                self.ask(owner.process).await
        {
            return over;
        }
        // The owner that began to wait may have left memory, too.
        let frames = waits.into_iter().flat_map(|told| told.frames);
        let events: Vec<_> = frames.flat_map(|frame| self.progress.take(frame)).collect();
        if let over @ (FollowStep::ReadJournal | FollowStep::Over) = self.tell_all(events).await {
            return over;
        }
        self.tell_asked(requests).await;
        match called {
            Some(called) => self.tell_called(called).await,
            None => FollowStep::More,
        }
    }

    /// Sends what a client is asked to run, and all that was said before it, if it was not sent: the owner that asked
    /// may be gone, with the frames that said so.
    async fn tell_called(&mut self, waiting: WaitingForClient) -> FollowStep {
        if waiting.calls.calls.iter().any(|call| self.asked.contains(&call.id)) {
            return FollowStep::More;
        }
        let (cursor, begun) = (waiting.seen.cursor, self.has_told());
        let waits = waiting.steps.last().map(|step| step.call);
        let text = match self.tell_steps(&waiting.steps, waits, cursor, begun).await {
            Ok(text) => text,
            Err(failure) => return self.refuse(ErrorBody::from(failure)).await,
        };
        self.tell_rest(cursor, text, begun).await;
        self.send(TurnEvent::at(cursor, TurnBody::Usage(waiting.usage))).await;
        self.tell(TurnEvent::at(cursor, TurnBody::ClientCalls(waiting.calls))).await;
        self.progress = Progress::from(&waiting.seen);
        FollowStep::More
    }

    /// Tells what these steps said and what is recorded of their tools, up to what the client is asked for
    /// by the step that waits for it. Returns the text that is left: all of it, if the reader has begun.
    async fn tell_steps(
        &self,
        steps: &[Step],
        waits: Option<CallId>,
        cursor: FrameKey,
        begun: bool,
    ) -> Result<String, SendError> {
        let (mut text, mut seam) = (String::new(), "");
        for step in steps {
            let mut between = seam;
            for part in self.sessions.parts(step).await? {
                match part {
                    RecordedPart::Said(more) => {
                        text.push_str(std::mem::take(&mut between));
                        text.push_str(&more);
                        seam = SEAM;
                    }
                    RecordedPart::Thought(thought) if !begun => {
                        self.send_text(cursor, &mut text).await;
                        self.send(TurnEvent::at(cursor, TurnBody::Thought(thought))).await;
                    }
                    RecordedPart::Thought(_) => {}
                }
            }
            if begun {
                continue;
            }
            // All of it belongs to the cursor here.
            for frame in tool_frames::frames(cursor.turn, cursor.call, &step.tools) {
                let asks = matches!(frame.body, FrameBody::ClientCalls(_));
                if asks && waits == Some(step.call) {
                    break;
                }
                self.send_text(cursor, &mut text).await;
                if let Some(body) = TurnBody::of_frame(frame.body) {
                    self.send(TurnEvent::at(cursor, body)).await;
                }
            }
        }
        Ok(text)
    }

    /// Tells the text that is left: in place of all that was shown, if the reader has begun.
    async fn tell_rest(&self, cursor: FrameKey, mut text: String, begun: bool) {
        if begun {
            self.send(reset_to(cursor, text)).await;
        } else {
            self.send_text(cursor, &mut text).await;
        }
    }

    /// Whether the reader may have been shown anything since it came.
    fn has_told(&self) -> bool {
        match &self.from {
            Some(from) => self.progress.at() != Some(from.cursor),
            None => self.progress.has_begun(),
        }
    }

    /// Sends what waits for a person, if it was not sent: the session that asked may have left memory, with
    /// the frames that said so.
    async fn tell_asked(&mut self, requests: Vec<ApprovalRequest>) {
        let cursor = self.progress.at();
        let cursor = cursor.unwrap_or_else(|| super::sessions::start_of(self.progress.turn()));
        for request in requests {
            self.tell(TurnEvent::at(cursor, TurnBody::ApprovalRequest(request))).await;
        }
    }

    /// The journal does not know the turn. It will, while inputs wait; otherwise it was deleted, or
    /// never was. One look proves nothing, because a read may be old.
    async fn absent(&mut self, nothing_waits: bool) -> FollowStep {
        self.absences = if nothing_waits { self.absences + 1 } else { 0 };
        if self.absences < ABSENCES_MAX {
            return FollowStep::More;
        }
        let message = format!("session `{}` has no turn `{}`", self.session, self.progress.turn());
        let error = ErrorBody::new(ErrorCode::NotFound, message)
            .hint("it was deleted or never existed; `clawnode sessions show` lists the turns");
        self.refuse(error).await
    }

    async fn tell_end(&mut self, turn: &Turn, outcome: TurnOutcome) -> FollowStep {
        let cursor = turn.end_key();
        let begun = self.has_told();
        let before = self.from.as_ref().map_or(0, |from| from.steps);
        let steps = turn.steps.get(before..).unwrap_or_default();
        let text = match self.tell_steps(steps, None, cursor, begun).await {
            Ok(text) => text,
            Err(failure) => return self.refuse(ErrorBody::from(failure)).await,
        };
        self.tell_rest(cursor, text, begun).await;
        let usage = if before == 0 { turn.usage } else { turn.reported_since(before) };
        self.send(TurnEvent::at(cursor, TurnBody::Usage(usage))).await;
        if let Some(error) = outcome.error() {
            self.send(TurnEvent::at(cursor, TurnBody::Error(error))).await;
        }
        let structured = turn.structured.as_deref().and_then(in_json);
        self.send(TurnEvent::done_with(cursor, outcome, structured)).await;
        FollowStep::Over
    }

    async fn ask(&mut self, owner: ProcessId) -> FollowStep {
        let turn = self.progress.turn();
        match shared_frames(&self.sessions, owner, self.session, turn).await {
            Some(frames) => {
                let events = self.progress.recall(frames.to_vec());
                self.tell_all(events).await
            }
            None => FollowStep::More,
        }
    }

    async fn refuse(&mut self, error: ErrorBody) -> FollowStep {
        let cursor = super::sessions::start_of(self.progress.turn());
        let failure = clawnode_proto::llm::ModelFailure::new(
            clawnode_proto::llm::FailureClass::Lost,
            error.message.clone(),
        );
        self.send(TurnEvent::at(cursor, TurnBody::Error(error))).await;
        self.send(TurnEvent::done(cursor, TurnOutcome::Failed { failure })).await;
        FollowStep::Over
    }

    /// Sends this text, if there is any.
    async fn send_text(&self, cursor: FrameKey, text: &mut String) {
        let text = std::mem::take(text);
        if !text.is_empty() {
            self.send(TurnEvent::at(cursor, TurnBody::Text(text))).await;
        }
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
    FrameKey { index: FrameKey::ERROR, ..super::sessions::start_of(turn) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use clawnode_cluster::{AppendAnswer, SystemClock, Write, bus::SUBSCRIPTION_CAPACITY};
    use clawnode_local as local;
    use clawnode_proto::{
        Attempt, Position,
        llm::{StopReason, Usage},
        turn::ReplyReset,
    };

    use super::*;
    use crate::session::played::{PlayedActivation, key};

    /// A turn whose frames a test publishes and whose records it stores.
    struct Scene {
        _dir: tempfile::TempDir,
        sessions: Sessions,
        run: PlayedActivation,
        stored: Vec<Position>,
        turn: TurnId,
    }

    fn session() -> EntityId {
        key().entity()
    }

    impl Scene {
        async fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let clock: Arc<dyn clawnode_cluster::Clock> = Arc::new(SystemClock);
            let options = local::LocalOptions::new("cn".parse().unwrap(), Arc::clone(&clock));
            let (storage, _control) = local::open(dir.path(), options).unwrap();
            let mut run = PlayedActivation::new(&[], Vec::new());
            run.says("hello");
            let turn = run.machine.settled().unwrap().state.running().unwrap().id;
            let sessions = Sessions::new(storage, clock);
            let mut scene = Self { _dir: dir, sessions, run, stored: Vec::new(), turn };
            scene.store().await;
            scene
        }

        /// Stores what the session has journaled.
        async fn store(&mut self) {
            for record in &self.run.journal[self.stored.len()..] {
                let write = Write { bytes: record.bytes.clone(), rollup: false };
                let expected = self.stored.last().copied().unwrap_or_default();
                let journal = &self.sessions.storage().journal;
                let answer = journal.append(session(), expected, write).await;
                let AppendAnswer::Stored(position) = answer else { panic!("{answer:?}") };
                self.stored.push(position);
            }
        }

        async fn follow(&self) -> BoxStream<'static, TurnEvent> {
            let (sessions, session, turn) = (self.sessions.clone(), session(), self.turn);
            let ears = Arc::clone(&sessions.shared.ears);
            let frames = ears.listen(sessions.storage(), session).await.unwrap();
            follow(FollowRequest {
                sessions,
                session,
                turn,
                after: None,
                from: None,
                frames,
                fresh: true,
            })
        }

        async fn publish(&self, index: u32, body: FrameBody) {
            let call = CallId::derive(self.turn, 0);
            let key = FrameKey { turn: self.turn, call, attempt: Attempt(1), index };
            let frames = FrameBatch { frames: vec![Frame { key, body }] };
            let storage = self.sessions.storage();
            let subject = storage.prefix.frames(session());
            let payload = Bytes::from(codec::encode(&frames).unwrap());
            storage.bus.publish(subject, None, payload).await.unwrap();
        }

        /// Publishes so many texts, then ends the turn in its journal and on the bus.
        async fn tell(&mut self, texts: usize) {
            for index in 0..texts {
                let delta = "x".to_owned();
                self.publish(u32::try_from(index).unwrap(), FrameBody::Text { delta }).await;
                tokio::task::yield_now().await;
            }
            self.run.replies(&[]);
            self.store().await;
            let outcome = TurnOutcome::Completed { stop: StopReason::EndTurn };
            let done = FrameBody::Done { outcome, text_bytes: texts as u64, structured: None };
            self.publish(FrameKey::DONE, done).await;
        }
    }

    /// GATE-3: the follower waits for its reader; it neither leaves out nor keeps.
    #[tokio::test]
    async fn a_reader_that_pauses_misses_nothing() {
        let mut scene = Scene::new().await;
        let events = scene.follow().await;
        let texts = 4 * EVENTS_MAX;
        scene.tell(texts).await;
        let bodies: Vec<TurnBody> = events.map(|event| event.body).collect().await;
        let (done, said) = bodies.split_last().unwrap();
        assert!(matches!(done, TurnBody::Done(end) if end.outcome.is_some()), "{done:?}");
        assert_eq!(said, vec![TurnBody::Text("x".to_owned()); texts]);
    }

    /// GATE-3: what is more than the subscription keeps is not kept for one reader either. The
    /// journal makes good what it missed.
    #[tokio::test]
    async fn a_reader_that_stands_still_is_shown_the_whole_at_the_end() {
        let mut scene = Scene::new().await;
        let events = scene.follow().await;
        let texts = 4 * SUBSCRIPTION_CAPACITY;
        scene.tell(texts).await;
        let bodies: Vec<TurnBody> = events.map(|event| event.body).collect().await;
        let (said, end) = bodies.split_at(bodies.len() - 3);
        assert!((EVENTS_MAX..texts).contains(&said.len()), "{}", said.len());
        assert!(said.iter().all(|body| *body == TurnBody::Text("x".to_owned())));
        assert_eq!(end[0], TurnBody::Reset(ReplyReset { text: "so".to_owned() }));
        assert_eq!(end[1], TurnBody::Usage(Usage::default()));
        assert!(matches!(&end[2], TurnBody::Done(end) if end.outcome.is_some()), "{:?}", end[2]);
    }

    /// What a reader sees until its turn waits for it, or ends.
    async fn told(mut events: BoxStream<'static, TurnEvent>) -> (String, Vec<&'static str>) {
        let (mut text, mut names) = (String::new(), Vec::new());
        while let Some(event) = events.next().await {
            match event.body {
                TurnBody::Text(more) => text.push_str(&more),
                TurnBody::Reset(reset) => text = reset.text,
                TurnBody::Usage(_) => names.push("usage"),
                TurnBody::ClientCalls(_) => {
                    names.push("calls");
                    break;
                }
                TurnBody::Done(_) => names.push("done"),
                _ => {}
            }
        }
        (text, names)
    }

    /// The owner that asked for tools of the client is gone, with all frames: the journal alone says what the
    /// client is to run, and what follows its results.
    #[tokio::test]
    async fn a_client_that_runs_tools_is_told_each_part_of_the_turn_once() {
        use clawnode_proto::{
            client_tool::{ClientResult, ClientResults, ClientTool},
            llm::Sampling,
            session::{SessionInput, UserMessage},
        };

        let mut scene = Scene::new().await;
        scene.run.replies(&[]);
        let (name, input_schema) = ("mine".parse().unwrap(), r#"{"type":"object"}"#.to_owned());
        let mine = ClientTool { name, description: String::new(), input_schema };
        let message = UserMessage { tools: vec![mine], ..UserMessage::text("go") };
        scene.run.hears("go", &SessionInput::UserMessage(message));
        scene.run.replies(&[("mine", "{}")]);
        scene.store().await;
        let state = scene.run.machine.settled().unwrap().state.clone();
        let turn = state.running().unwrap();
        let call = turn.steps[0].tools[0].call;
        let first = scene.sessions.follow(session(), Some(turn.id), None).await.unwrap();
        assert_eq!(told(first.events).await, ("so".to_owned(), vec!["usage", "calls"]));

        let results = |content: &str| ClientResults {
            metadata: std::collections::BTreeMap::new(),
            turn: turn.id,
            results: vec![ClientResult::done(call, content)],
            system: None,
            sampling: Sampling::default(),
            tools: Vec::new(),
        };
        let sent = scene.sessions.bring(session(), results("seen"), None).await.unwrap();
        assert_eq!(sent.turn, turn.id);
        scene.run.hears("brings", &SessionInput::ClientResults(results("seen")));
        scene.run.replies(&[]);
        scene.store().await;
        // A reader gets neither earlier text again nor what separates it from the new text.
        let expected = ("so".to_owned(), vec!["usage", "done"]);
        assert_eq!(told(sent.events).await, expected);
        let again = scene.sessions.bring(session(), results("seen"), None).await.unwrap();
        assert_eq!(told(again.events).await, expected);
        let other = scene.sessions.bring(session(), results("other"), None).await.unwrap_err();
        assert!(matches!(other, SendError::LateResults(_)), "{other:?}");
        let stray = ClientResult::done(CallId::from_u128(1), "x");
        let stray = ClientResults { results: vec![stray], ..results("x") };
        let stray = scene.sessions.bring(session(), stray, None).await.unwrap_err();
        assert!(matches!(stray, SendError::Results(_)), "{stray:?}");
    }
}
