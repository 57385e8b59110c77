//! A turn, from what is said to its end, over as many connections as that takes.

use std::time::Duration;

use clawnode_proto::{
    ErrorBody, ErrorCode, SessionKey,
    api::{ChatCancel, Method},
    turn::TurnBody,
};
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep};

use super::{
    Chat, Did, Heard, Read, Said,
    asked::Asked,
    conversation::Conversation,
    keys::Key,
    patience::{Patience, given_up, is_over, sign},
};
use crate::{
    cli::{
        link::{RECONNECT_FOR, backoff, lost_sight, lost_words},
        signals::StopRequest,
        turn::{Step, Turn, result_line},
    },
    client::{Client, ClientError, Incoming, Socket},
    failure::{Exit, Failure},
};

/// How long a connection is kept between two turns. Nobody answers pings meanwhile, so the gateway
/// would close it soon after.
const IDLE_MOST: Duration = Duration::from_secs(20);
/// How often the sign turns that says that one waits.
const TICK: Duration = Duration::from_millis(100);

/// How following a turn on one connection went.
enum Followed {
    Ended(Said),
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
    fn followed(self) -> Option<Followed> {
        match self {
            Self::Nothing => None,
            Self::Later => Some(Followed::Ended(Said::Later)),
            Self::Leave => Some(Followed::Ended(Said::Left)),
            Self::Lost(error) => Some(Followed::Lost(error)),
        }
    }
}

impl Chat<'_> {
    /// Takes a turn to its end.
    pub(super) async fn take_turn(&mut self, turn: &mut Turn) -> Result<Said, Failure> {
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
                Followed::Ended(said) => {
                    self.finish(turn)?;
                    return Ok(said);
                }
                Followed::Lost(error) => error,
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
                return Ok(Said::Lost(given_up(lost, turn)));
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
                return Ok(Said::Left);
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
                Did::Heard(Heard::Closed) => return Ok(None),
                Did::Heard(Heard::Key(Key::Interrupt)) => {
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
    fn common(&mut self, heard: Heard) -> Result<(), Failure> {
        let (Some(desk), Some(tty)) = (&mut self.desk, self.person.tty()) else { return Ok(()) };
        match heard {
            Heard::Resized => {
                desk.screen.resize(tty.size())?;
                desk.draw_question()
            }
            Heard::Key(Key::Suspend) => {
                desk.screen.clear()?;
                tty.suspend()?;
                if desk.question.is_none() {
                    return Ok(());
                }
                // What was typed since then was typed to the shell's screen.
                tty.forget();
                desk.ask_anew()
            }
            Heard::Key(key) => {
                desk.keep(key);
                Ok(())
            }
            Heard::Closed => Ok(()),
        }
    }

    fn tick(&mut self) -> Result<(), Failure> {
        let (Some(desk), Some(tty)) = (&mut self.desk, self.person.tty()) else { return Ok(()) };
        // This process may have stood still, with keys on their way that nobody saw a question for.
        if desk.is_about_to_ask() && tty.has_typed() {
            tty.forget();
            desk.put_off();
        }
        desk.tick()
    }

    /// Sends what is to be sent and takes frames, until the turn ends or the connection does.
    async fn follow(
        &mut self,
        turn: &mut Turn,
        patience: &mut Patience,
    ) -> Result<Followed, Failure> {
        let (method, params) = turn.request().map_err(|error| {
            Failure::new(Exit::Failed, "internal", format!("cannot write a request: {error}"))
        })?;
        let client = self.gateways.current().clone();
        let asking = ask(self.socket.take(), client.clone(), method, params);
        let (mut socket, request) = match self.unless_left(patience, asking).await? {
            Some(Ok(asked)) => asked,
            Some(Err(error)) => return Ok(Followed::Lost(error)),
            None => return Ok(Followed::Ended(Said::Left)),
        };
        let (mut quiet, words) = (true, !self.out.json);
        let mut watch = std::pin::pin!(sign(client.clone(), quiet));
        let mut asked = Asked::default();
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
                        return Ok(Followed::Ended(Said::Left));
                    }
                    self.cancel(&mut socket, turn, patience).await?;
                    continue;
                }
            };
            let step = match self.step(turn, request, &mut asked, incoming, patience, &mut quiet)? {
                Ok(step) => step,
                Err(error) => return Ok(Followed::Lost(error)),
            };
            match step {
                Step::Ask(it) => {
                    if let Err(error) = asked.look(it, &mut socket).await {
                        return Ok(Followed::Lost(error));
                    }
                }
                Step::Completed => {
                    self.socket = Some((socket, Instant::now()));
                    return Ok(Followed::Ended(Said::Well));
                }
                Step::Failed(error) => {
                    self.socket = Some((socket, Instant::now()));
                    return Ok(Followed::Ended(self.failed(error, patience)));
                }
                Step::Again => return Ok(Followed::Lost(lost_sight())),
                step => self.shows(step, &mut asked)?,
            }
        }
    }

    /// How a turn failed. What the person at the terminal cancelled themselves is no error.
    fn failed(&self, error: ErrorBody, patience: &Patience) -> Said {
        let theirs = patience.interrupted && error.code == ErrorCode::Cancelled;
        if theirs && self.desk.is_some() { Said::Cancelled } else { Said::Badly(error) }
    }

    /// What a step shows.
    fn shows(&mut self, step: Step, asked: &mut Asked) -> Result<(), Failure> {
        match step {
            Step::Show(text) => self.show(&text),
            Step::Anew(text) => self.anew(&text),
            Step::Tell(message) => self.aside(&format!("note: {message}")),
            Step::Use(started) => {
                let Some(desk) = &mut self.desk else {
                    let (name, arguments) = (started.name, started.arguments);
                    return self.aside(&format!("note: asks for {name} {arguments}"));
                };
                desk.screen.end_reply()?;
                desk.call(started);
                Ok(())
            }
            Step::Used(finished) => {
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
            Step::Usage(usage) => {
                if let Some(desk) = &mut self.desk {
                    desk.tokens += usage.input_tokens + usage.output_tokens;
                }
                Ok(())
            }
            Step::Wait | Step::Ask(_) | Step::Completed | Step::Failed(_) | Step::Again => Ok(()),
        }
    }

    /// What a person does during a turn.
    async fn did(
        &mut self,
        did: Did,
        turn: &Turn,
        patience: &mut Patience,
        asked: &mut Asked,
        socket: &mut Socket,
    ) -> Result<After, Failure> {
        match did {
            Did::Read(Read::Line(line)) => {
                let before = asked.front().map(|it| it.action.call);
                if let Err(error) = asked.answer(&line, socket).await {
                    return Ok(After::Lost(error));
                }
                if before == asked.front().map(|it| it.action.call) {
                    self.question(asked);
                } else {
                    self.ask_by_lines(asked)?;
                }
            }
            Did::Read(Read::Bad(failure)) => self.out.failure(&failure),
            Did::Read(Read::End | Read::Broken(_)) => asked.give_up(),
            Did::Heard(Heard::Closed) => return Ok(After::Leave),
            Did::Heard(Heard::Key(Key::Interrupt)) => {
                if patience.interrupted {
                    return Ok(After::Leave);
                }
                self.cancel(socket, turn, patience).await?;
            }
            Did::Heard(Heard::Key(key)) if self.is_asked() && key != Key::Suspend => {
                return self.answered(key, asked, socket).await;
            }
            Did::Heard(heard) => self.common(heard)?,
        }
        Ok(After::Nothing)
    }

    /// What a message means for the turn.
    fn step(
        &mut self,
        turn: &mut Turn,
        request: u64,
        asked: &mut Asked,
        incoming: Result<Incoming, ClientError>,
        patience: &mut Patience,
        quiet: &mut bool,
    ) -> Result<Result<Step, ClientError>, Failure> {
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
                let step = turn.take(event);
                if accepted {
                    self.accepted(turn);
                }
                step
            }
            // Id 0: what is refused before it is read as a request.
            Ok(Incoming::Answer { id, result: Err(error) }) if id == request || id == 0 => {
                Step::Failed(error)
            }
            Ok(Incoming::Answer { id, result: Err(error) }) if asked.is_answer(id) => {
                Step::Tell(error.message)
            }
            Ok(Incoming::Answer { id, result }) => {
                // Else the answer to a cancel, or to a decision.
                if let Some(it) = asked.looked(id) {
                    self.ask_about(&it, result, asked)?;
                }
                Step::Wait
            }
            // Frames of an earlier request.
            Ok(_) => Step::Wait,
            Err(error) => return Ok(Err(error)),
        }))
    }

    /// The session is known from now on.
    fn accepted(&mut self, turn: &Turn) {
        let key = turn.accepted().and_then(|it| it.session.parse::<SessionKey>().ok());
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
        socket: &mut Socket,
        turn: &Turn,
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
    fn finish(&mut self, turn: &mut Turn) -> Result<(), Failure> {
        if let Step::Anew(text) = turn.rest() {
            self.anew(&text)?;
        }
        if let Some(desk) = &mut self.desk {
            desk.question = None;
            desk.screen.clear()?;
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

/// Sends a request, on the connection of the turn before if that is fresh.
async fn ask(
    before: Option<(Socket, Instant)>,
    client: Client,
    method: Method,
    params: Value,
) -> Result<(Socket, u64), ClientError> {
    let mut socket = match before {
        Some((socket, used)) if used.elapsed() < IDLE_MOST => socket,
        _ => Socket::open(&client).await?,
    };
    let request = socket.send(method, params).await?;
    Ok((socket, request))
}
