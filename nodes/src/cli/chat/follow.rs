//! A turn, from what is said to its end, over as many connections as that takes.

use std::time::Duration;

use clawnode_proto::{
    ErrorBody, ErrorCode, SessionKey,
    api::{ChatCancel, Method},
    turn::TurnBody,
};
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

use super::{
    Chat, Did, ReadLine, TerminalEvent, TurnResult,
    asked::AskedCalls,
    conversation::Conversation,
    keys::Key,
    lost_turns::{Patience, ask, given_up, is_over, sign},
};
use crate::{
    cli::{
        reconnection::{RECONNECT_FOR, backoff, lost_sight, lost_words},
        signals::StopRequest,
        turn::{ShownTurn, TurnStep, result_line},
    },
    client::{ClientError, ClientSocket, Incoming},
    failure::{Exit, Failure},
};

/// How often the sign turns that says that one waits.
const TICK: Duration = Duration::from_millis(100);

/// How following a turn on one connection went.
enum FollowEnd {
    Ended(TurnResult),
    /// To be tried again.
    Lost(ClientError),
}

/// What follows from what a person did during a turn.
pub(super) enum After {
    Nothing,
    Later,
    Leave,
    Lost(ClientError),
}

impl After {
    /// How it ends following, if it does.
    fn followed(self) -> Option<FollowEnd> {
        match self {
            Self::Nothing => None,
            Self::Later => Some(FollowEnd::Ended(TurnResult::Later)),
            Self::Leave => Some(FollowEnd::Ended(TurnResult::Left)),
            Self::Lost(error) => Some(FollowEnd::Lost(error)),
        }
    }
}

impl Chat<'_> {
    /// Takes a turn to its end.
    pub(super) async fn take_turn(&mut self, turn: &mut ShownTurn) -> Result<TurnResult, Failure> {
        let mut waits = backoff();
        let until = Instant::now() + RECONNECT_FOR;
        let mut patience = Patience::new(until);
        if let Some(desk) = &mut self.desk {
            desk.begin();
        }
        loop {
            let before = patience.until;
            let followed = self.follow(turn, &mut patience).await?;
            let lost = match followed {
                FollowEnd::Ended(said) => {
                    self.finish(turn)?;
                    return Ok(said);
                }
                FollowEnd::Lost(error) => error,
            };
            self.socket = None;
            if let (Some(desk), Some(tty)) = (&mut self.desk, self.person.tty())
                && desk.drop_question()?
            {
                tty.forget();
            }
            // One that was learnt, and asks for another token.
            if patience.again && lost.is_refused() && self.gateways.forget() {
                continue;
            }
            let stays = self.desk.is_some() && turn.accepted().is_some();
            if is_over(&lost, stays, Instant::now() >= patience.until) {
                self.finish(turn)?;
                return Ok(TurnResult::Lost(given_up(lost, turn)));
            }
            if patience.until != before {
                // This gateway told us something: it counts as a new loss.
                waits = backoff();
            }
            if waits.tries() == 0 {
                self.aside(&lost_words(self.gateways.current().url(), &lost))?;
            }
            if let Some(desk) = &mut self.desk {
                "looking for the node".clone_into(&mut desk.doing);
            }
            self.gateways.lost();
            patience.again = true;
            let wait = sleep(waits.next(&mut rand::rng()));
            if self.unless_left(&mut patience, wait).await?.is_none() {
                self.finish(turn)?;
                return Ok(TurnResult::Left);
            }
        }
    }

    /// Waits for something that the person may break off: then they leave.
    async fn unless_left<T>(
        &mut self,
        patience: &mut Patience,
        what: impl Future<Output = T>,
    ) -> Result<Option<T>, Failure> {
        let mut what = std::pin::pin!(what);
        let mut tick = ticks();
        loop {
            let at_tty = self.person.is_tty();
            let did = tokio::select! {
                done = &mut what => return Ok(Some(done)),
                _ = self.signals.next() => return Ok(None),
                _ = tick.tick(), if at_tty => {
                    self.tick()?;
                    continue;
                }
                did = self.person.next(), if at_tty => did,
            };
            match did {
                Did::Heard(TerminalEvent::Closed) => return Ok(None),
                Did::Heard(TerminalEvent::Key(Key::Interrupt)) => {
                    if std::mem::replace(&mut patience.interrupted, true) {
                        return Ok(None);
                    }
                    self.aside("the node does not answer; press Ctrl-C again to leave")?;
                }
                Did::Heard(heard) => self.common(heard)?,
                Did::Read(_) => {}
            }
        }
    }

    /// What a person may always do at a terminal.
    fn common(&mut self, heard: TerminalEvent) -> Result<(), Failure> {
        let (Some(desk), Some(tty)) = (&mut self.desk, self.person.tty()) else { return Ok(()) };
        match heard {
            TerminalEvent::Resized => {
                desk.screen.resize(tty.size())?;
                desk.draw_question()
            }
            TerminalEvent::Key(Key::Suspend) => {
                desk.screen.clear()?;
                tty.suspend()?;
                if desk.question.is_none() {
                    return Ok(());
                }
                // What was typed since then was typed to the shell's screen.
                tty.forget();
                desk.repeat_question()
            }
            TerminalEvent::Key(key) => {
                desk.keep(key);
                Ok(())
            }
            TerminalEvent::Closed => Ok(()),
        }
    }

    fn tick(&mut self) -> Result<(), Failure> {
        let (Some(desk), Some(tty)) = (&mut self.desk, self.person.tty()) else { return Ok(()) };
        // This process may have stood still, with keys on their way that were typed before the question was shown.
        if desk.is_about_to_ask() && tty.has_typed() {
            tty.forget();
            desk.put_off();
        }
        desk.tick()
    }

    /// Sends what is to be sent and takes frames, until the turn ends or the connection does.
    async fn follow(
        &mut self,
        turn: &mut ShownTurn,
        patience: &mut Patience,
    ) -> Result<FollowEnd, Failure> {
        let (method, params) = turn.request().map_err(|error| {
            Failure::new(Exit::Failed, "internal", format!("cannot write a request: {error}"))
        })?;
        let client = self.gateways.current().clone();
        let asking = ask(self.socket.take(), client.clone(), method, params);
        let (mut socket, request) = match self.unless_left(patience, asking).await? {
            Some(Ok(asked)) => asked,
            Some(Err(error)) => return Ok(FollowEnd::Lost(error)),
            None => return Ok(FollowEnd::Ended(TurnResult::Left)),
        };
        let (mut quiet, words) = (true, !self.out.json);
        let mut watch = std::pin::pin!(sign(client.clone(), quiet));
        let mut asked = AskedCalls::default();
        let mut tick = ticks();
        loop {
            let at_tty = self.person.is_tty();
            let incoming = tokio::select! {
                incoming = socket.next() => incoming,
                did = self.person.next(), if at_tty || asked.waits() => {
                    let after = self.did(did, turn, patience, &mut asked, &mut socket).await?;
                    if let Some(followed) = after.followed() {
                        return Ok(followed);
                    }
                    continue;
                }
                _ = tick.tick(), if at_tty => {
                    self.tick()?;
                    continue;
                }
                seen = &mut watch, if words => {
                    watch.set(sign(client.clone(), quiet));
                    self.seen(&seen, turn, patience)?;
                    continue;
                }
                stop = self.signals.next() => {
                    // The end of this process is not the end of the turn.
                    if stop == StopRequest::Terminate || patience.interrupted {
                        return Ok(FollowEnd::Ended(TurnResult::Left));
                    }
                    self.cancel(&mut socket, turn, patience).await?;
                    continue;
                }
            };
            let step = match self.step(turn, request, &mut asked, incoming, patience, &mut quiet)? {
                Ok(step) => step,
                Err(error) => return Ok(FollowEnd::Lost(error)),
            };
            match step {
                TurnStep::Ask(request) => {
                    if let Err(error) = asked.look(request, &mut socket).await {
                        return Ok(FollowEnd::Lost(error));
                    }
                }
                TurnStep::Completed => {
                    self.socket = Some((socket, Instant::now()));
                    return Ok(FollowEnd::Ended(TurnResult::Well));
                }
                TurnStep::Failed(error) => {
                    self.socket = Some((socket, Instant::now()));
                    return Ok(FollowEnd::Ended(self.failed(error, patience)));
                }
                TurnStep::Again => return Ok(FollowEnd::Lost(lost_sight())),
                step => self.shows(step, &mut asked)?,
            }
        }
    }

    /// How a turn failed. What the person at the terminal cancelled themselves is no error.
    fn failed(&self, error: ErrorBody, patience: &Patience) -> TurnResult {
        let theirs = patience.interrupted && error.code == ErrorCode::Cancelled;
        if theirs && self.desk.is_some() { TurnResult::Cancelled } else { TurnResult::Badly(error) }
    }

    /// What a step shows.
    fn shows(&mut self, step: TurnStep, asked: &mut AskedCalls) -> Result<(), Failure> {
        if let Some(desk) = &mut self.desk {
            match &step {
                TurnStep::Think(more) => return desk.think(more),
                TurnStep::Wait => {}
                _ => desk.thought_ends()?,
            }
        }
        match step {
            TurnStep::Show(text) => self.show(&text),
            TurnStep::Anew(text) => self.anew(&text),
            TurnStep::Tell(message) => self.aside(&format!("note: {message}")),
            TurnStep::Use(started) => {
                let Some(desk) = &mut self.desk else {
                    let (name, arguments) = (started.name, started.arguments);
                    return self.aside(&format!("note: asks for {name} {arguments}"));
                };
                desk.screen.end_reply()?;
                desk.call(started);
                Ok(())
            }
            TurnStep::Used(finished) => {
                if asked.ended(finished.id) {
                    self.elsewhere(asked)?;
                }
                let Some(desk) = &mut self.desk else {
                    let failed = finished.failure.is_some();
                    let how = if failed { "failed:" } else { "says" };
                    let (name, line) = (finished.name, result_line(&finished.content, failed));
                    return self.aside(&format!("note: {name} {how} {line}"));
                };
                desk.called(finished)
            }
            TurnStep::Usage(usage) => {
                if let Some(desk) = &mut self.desk {
                    desk.tokens += usage.input_tokens + usage.output_tokens;
                }
                Ok(())
            }
            // Only a person at a terminal is shown what the model thinks.
            TurnStep::Think(_)
            | TurnStep::Wait
            | TurnStep::Ask(_)
            | TurnStep::Completed
            | TurnStep::Failed(_)
            | TurnStep::Again => Ok(()),
        }
    }

    /// What a person does during a turn.
    async fn did(
        &mut self,
        did: Did,
        turn: &ShownTurn,
        patience: &mut Patience,
        asked: &mut AskedCalls,
        socket: &mut ClientSocket,
    ) -> Result<After, Failure> {
        match did {
            Did::Read(ReadLine::Line(line)) => {
                let before = asked.front().map(|approval| approval.action.call);
                if let Err(error) = asked.answer(&line, socket).await {
                    return Ok(After::Lost(error));
                }
                if before == asked.front().map(|approval| approval.action.call) {
                    self.question(asked);
                } else {
                    self.ask_by_lines(asked)?;
                }
            }
            Did::Read(ReadLine::Bad(failure)) => self.out.failure(&failure),
            Did::Read(ReadLine::End | ReadLine::Broken(_)) => asked.give_up(),
            Did::Heard(TerminalEvent::Closed) => return Ok(After::Leave),
            Did::Heard(TerminalEvent::Key(Key::Interrupt)) => {
                if patience.interrupted {
                    return Ok(After::Leave);
                }
                self.cancel(socket, turn, patience).await?;
            }
            Did::Heard(TerminalEvent::Key(key)) if self.is_asked() && key != Key::Suspend => {
                return self.answered(key, asked, socket).await;
            }
            Did::Heard(TerminalEvent::Key(key)) if self.allows(&key).await? => {}
            Did::Heard(heard) => self.common(heard)?,
        }
        Ok(After::Nothing)
    }

    /// What a message means for the turn.
    fn step(
        &mut self,
        turn: &mut ShownTurn,
        request: u64,
        asked: &mut AskedCalls,
        incoming: Result<Incoming, ClientError>,
        patience: &mut Patience,
        quiet: &mut bool,
    ) -> Result<Result<TurnStep, ClientError>, Failure> {
        Ok(Ok(match incoming {
            Ok(Incoming::Frame { id, event, data }) if id == request => {
                // That it is stored says nothing of who serves it.
                let accepted = matches!(event.body, TurnBody::Accepted(_));
                *quiet &= accepted;
                // Only what moves the turn on counts: a node that refuses is not there again.
                if event.cursor.is_some() {
                    self.found(patience)?;
                }
                if self.out.json {
                    self.out.json_line(&json!({ "event": event.body.name(), "data": data }))?;
                }
                let with_allow = self.with_allow(&event.body);
                let step = turn.take(event);
                let step = with_allow.unwrap_or(step);
                if accepted {
                    self.accepted(turn);
                }
                step
            }
            // Id 0: what is refused before it is read as a request.
            Ok(Incoming::Answer { id, result: Err(error) }) if id == request || id == 0 => {
                TurnStep::Failed(error)
            }
            Ok(Incoming::Answer { id, result: Err(error) }) if asked.is_answer(id) => {
                TurnStep::Tell(error.message)
            }
            Ok(Incoming::Answer { id, result }) => {
                // Else the answer to a cancel, or to a decision.
                if let Some(looked) = asked.looked(id) {
                    self.ask_about(&looked, result, asked)?;
                }
                TurnStep::Wait
            }
            // Frames of an earlier request.
            Ok(_) => TurnStep::Wait,
            Err(error) => return Ok(Err(error)),
        }))
    }

    /// The session is known from now on.
    fn accepted(&mut self, turn: &ShownTurn) {
        let key = turn.accepted().and_then(|accepted| accepted.session.parse::<SessionKey>().ok());
        let Some(key) = key else { return };
        self.last.write(&key);
        if let Conversation::New { .. } = self.conversation {
            self.conversation = Conversation::Known(key);
        }
    }

    /// Asks the node to end the turn. If that cannot be sent, the connection is lost, and following
    /// the turn notices.
    async fn cancel(
        &mut self,
        socket: &mut ClientSocket,
        turn: &ShownTurn,
        patience: &mut Patience,
    ) -> Result<(), Failure> {
        patience.interrupted = true;
        if let Some(desk) = &mut self.desk {
            desk.question = None;
            "cancelling".clone_into(&mut desk.doing);
        }
        let Some(accepted) = turn.accepted() else {
            return self.aside("the message is not stored yet; press Ctrl-C again to leave");
        };
        self.aside("cancelling; press Ctrl-C again to leave")?;
        let (session, turn) = (accepted.session.clone(), accepted.turn.to_string());
        let params = ChatCancel { session, turn };
        if let Err(error) = socket.send(Method::ChatCancel, json!(params)).await {
            tracing::debug!(%error, "the cancel request was not sent");
        }
        Ok(())
    }

    /// Whether the reply is shown as it comes.
    const fn is_live(&self) -> bool {
        self.interactive && !self.out.json
    }

    fn show(&mut self, text: &str) -> Result<(), Failure> {
        if !self.is_live() || text.is_empty() {
            return Ok(());
        }
        if let Some(desk) = &mut self.desk {
            desk.heard = Instant::now();
            return desk.screen.reply(text);
        }
        self.midline = !text.ends_with('\n');
        self.out.reply(text)
    }

    fn anew(&mut self, text: &str) -> Result<(), Failure> {
        if !self.is_live() {
            return Ok(());
        }
        self.aside("note: the reply starts again")?;
        self.show(text)
    }

    /// Ends the reply's line; for a script, prints the reply.
    fn finish(&mut self, turn: &mut ShownTurn) -> Result<(), Failure> {
        if let TurnStep::Anew(text) = turn.rest() {
            self.anew(&text)?;
        }
        if let Some(desk) = &mut self.desk {
            desk.question = None;
            desk.screen.clear()?;
            desk.thought_ends()?;
            return desk.screen.end_reply();
        }
        match (self.out.json || turn.text().is_empty(), self.interactive) {
            (true, _) => Ok(()),
            (false, true) => self.end_line(),
            (false, false) => self.out.reply(&format!("{}\n", turn.text())),
        }
    }
}

/// When the sign turns.
fn ticks() -> Interval {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}
