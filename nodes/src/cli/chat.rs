//! The terminal chat: a turn a line, typed by a person or read from a script.
//!
//! A person sees the reply as it is written; Ctrl-C cancels the running turn, a second one leaves.
//! A script gets each reply whole, once its turn has ended, so that a reply that had to begin anew
//! is printed once.

use std::time::Duration;

use clap::Args;
use clawnode_proto::{
    AgentName, ErrorBody,
    api::{ChatCancel, ChatSend, Method, SendMode},
    view::StatusView,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{
    asked::{Asked, Shown, shown},
    context::Context,
    link::{RECONNECT_FOR, backoff, found_words, lost_sight, lost_words},
    output::Output,
    signals::{Signals, Stop},
    terminal::Lines,
    turn::{Step, Turn},
};
use crate::{
    client::{ApprovalRequest, Client, ClientError, Event, Gateways, Incoming, Socket},
    config::Env,
    failure::{Exit, Failure},
};

/// How long a connection is kept between two turns. Nobody answers pings meanwhile, so the gateway
/// would close it soon after.
const IDLE_MOST: Duration = Duration::from_secs(20);
/// How long nothing of a turn is heard before it is asked whether anybody serves it.
const QUIET: Duration = Duration::from_secs(3);
/// Longest name of a peer that is made of the user's name.
const PEER_CHARS: usize = 64;

/// Examples of `chat`.
const EXAMPLES: &str = "\
The session is `AGENT:cli:local:USER`, so the next chat goes on where this one ended. Ctrl-C cancels
the running turn; a second one leaves.

Examples:
  clawnode chat
  clawnode chat --agent ops
  printf 'one\\ntwo\\n' | clawnode chat      a turn a line; exit code 1 if one failed
  clawnode chat --url https://node.example --token-file token
  clawnode chat --url https://a.example,https://b.example    goes on at one if the other is lost";

/// `chat`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ChatArgs {
    /// Talk to this agent, past the bindings
    #[arg(long, value_name = "NAME")]
    pub agent: Option<AgentName>,
}

/// `chat`.
pub(super) async fn run(args: ChatArgs, context: &Context) -> Result<Exit, Failure> {
    let mut gateways = context.gateways()?;
    gateways.reach().await?;
    gateways.found();
    talk(context, gateways, args.agent).await
}

/// Talks until the input ends.
pub(super) async fn talk(
    context: &Context,
    gateways: Gateways,
    agent: Option<AgentName>,
) -> Result<Exit, Failure> {
    let lines = Lines::open();
    let signals = Signals::take()?;
    let peer = peer(context.loaded.env());
    let interactive = lines.interactive;
    let mut chat = Chat {
        out: context.out,
        gateways,
        socket: None,
        signals,
        lines,
        agent,
        peer,
        interactive,
        midline: false,
    };
    let url = chat.gateways.current().url();
    context.out.talk(&if context.out.json {
        json!({ "event": "ready", "url": url }).to_string()
    } else {
        format!("ready {url}")
    });
    let mut all_well = true;
    loop {
        if interactive {
            context.out.prompt();
        }
        let line = tokio::select! {
            line = chat.lines.next() => line?,
            _ = chat.signals.next() => None,
        };
        let Some(line) = line else { break };
        match chat.say(line).await? {
            Said::Well => {}
            Said::Badly(error) => {
                all_well = false;
                context.out.failure(&error.into());
            }
            Said::Left => {
                all_well = false;
                break;
            }
        }
    }
    if let Some((socket, _)) = chat.socket.take() {
        socket.close().await;
    }
    // A person has seen what failed.
    Ok(if all_well || interactive { Exit::Ok } else { Exit::Failed })
}

/// The other side of the chat: the user's name, as far as a session key may hold it.
fn peer(env: &Env) -> String {
    let name = env.get("USER").or_else(|| env.get("LOGNAME")).unwrap_or_default();
    let safe = |c: char| if c.is_ascii_alphanumeric() || "-_.".contains(c) { c } else { '_' };
    let peer: String = name.chars().take(PEER_CHARS).map(safe).collect();
    if peer.is_empty() { "user".to_owned() } else { peer }
}

struct Chat {
    out: Output,
    gateways: Gateways,
    socket: Option<(Socket, Instant)>,
    signals: Signals,
    lines: Lines,
    agent: Option<AgentName>,
    peer: String,
    interactive: bool,
    /// Whether a part of a reply stands at the end of the terminal's last line.
    midline: bool,
}

/// How a turn went.
enum Said {
    Well,
    Badly(ErrorBody),
    /// The person left in the middle.
    Left,
}

/// How following a turn on one connection went.
enum Followed {
    Ended(Said),
    /// To be tried again.
    Lost(ClientError),
}

/// What keeps a turn that has lost its gateway going.
struct Patience {
    /// When to give up.
    until: Instant,
    interrupted: bool,
    /// Whether the gateway before this connection was lost.
    again: bool,
    /// Whether the person was told that nobody serves the turn.
    waits: bool,
}

impl Chat {
    /// One turn, over as many connections as it takes.
    async fn say(&mut self, content: String) -> Result<Said, Failure> {
        let mut turn = Turn::new(ChatSend {
            channel: "cli".to_owned(),
            account: "local".to_owned(),
            peer: self.peer.clone(),
            content,
            guild: None,
            team: None,
            agent: self.agent.as_ref().map(ToString::to_string),
            idempotency_key: Some(ulid::Ulid::generate().to_string()),
            mode: SendMode::Turn,
        });
        let mut waits = backoff();
        let until = Instant::now() + RECONNECT_FOR;
        let mut patience = Patience { until, interrupted: false, again: false, waits: false };
        loop {
            let before = patience.until;
            let followed = self.follow(&mut turn, &mut patience).await?;
            let lost = match followed {
                Followed::Ended(said) => {
                    self.finish(&mut turn)?;
                    return Ok(said);
                }
                Followed::Lost(error) => error,
            };
            self.socket = None;
            // One that was learnt, and asks for another token.
            if patience.again && lost.is_refused() && self.gateways.forget() {
                continue;
            }
            if !(lost.is_lost() || lost.is_passing()) || Instant::now() >= patience.until {
                self.finish(&mut turn)?;
                return Err(lost.into());
            }
            if patience.until != before {
                // This gateway told us something: it counts as a new loss.
                waits = backoff();
            }
            if waits.tries() == 0 {
                self.aside(&lost_words(self.gateways.current().url(), &lost))?;
            }
            self.gateways.lost();
            patience.again = true;
            let wait = waits.next(&mut rand::rng());
            tokio::select! {
                () = sleep(wait) => {}
                _ = self.signals.next() => return Ok(Said::Left),
            }
        }
    }

    /// Sends a request, on the connection of the turn before if that is fresh.
    async fn ask(&mut self, method: Method, params: Value) -> Result<(Socket, u64), ClientError> {
        let mut socket = match self.socket.take() {
            Some((socket, used)) if used.elapsed() < IDLE_MOST => socket,
            _ => Socket::open(self.gateways.current()).await?,
        };
        let request = socket.send(method, params).await?;
        Ok((socket, request))
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
        let (mut socket, request) = match self.ask(method, params).await {
            Ok(asked) => asked,
            Err(error) => return Ok(Followed::Lost(error)),
        };
        let client = self.gateways.current().clone();
        let mut headless = std::pin::pin!(headless(&client));
        let mut quiet = !self.out.json;
        let mut asked = Asked::default();
        loop {
            let incoming = tokio::select! {
                incoming = socket.next() => incoming,
                line = self.lines.next(), if asked.waits() => {
                    let Some(line) = line? else {
                        asked.give_up();
                        continue;
                    };
                    if let Err(error) = asked.answer(&line, &mut socket).await {
                        return Ok(Followed::Lost(error));
                    }
                    self.question(&asked);
                    continue;
                }
                nobody = &mut headless, if quiet => {
                    quiet = false;
                    let stored = turn.accepted().is_some();
                    if nobody && stored && !std::mem::replace(&mut patience.waits, true) {
                        self.aside("no worker is alive; your message is stored and waits")?;
                    }
                    continue;
                }
                stop = self.signals.next() => {
                    // The end of this process is not the end of the turn.
                    if stop == Stop::Terminate || patience.interrupted {
                        return Ok(Followed::Ended(Said::Left));
                    }
                    patience.interrupted = true;
                    cancel(&mut socket, turn, self.out).await;
                    continue;
                }
            };
            let step =
                match self.step(turn, (request, &mut asked), incoming, patience, &mut quiet)? {
                    Ok(step) => step,
                    Err(error) => return Ok(Followed::Lost(error)),
                };
            match step {
                Step::Wait => {}
                Step::Show(text) => self.show(&text)?,
                Step::Anew(text) => self.anew(&text)?,
                Step::Ask(it) => {
                    if let Err(error) = asked.look(it, &mut socket).await {
                        return Ok(Followed::Lost(error));
                    }
                }
                Step::Tell(message) => self.aside(&format!("note: {message}"))?,
                Step::Completed => {
                    self.socket = Some((socket, Instant::now()));
                    return Ok(Followed::Ended(Said::Well));
                }
                Step::Failed(error) => {
                    self.socket = Some((socket, Instant::now()));
                    return Ok(Followed::Ended(Said::Badly(error)));
                }
                Step::Again => return Ok(Followed::Lost(lost_sight())),
            }
        }
    }

    /// What a message means for the turn.
    fn step(
        &mut self,
        turn: &mut Turn,
        (request, asked): (u64, &mut Asked),
        incoming: Result<Incoming, ClientError>,
        patience: &mut Patience,
        quiet: &mut bool,
    ) -> Result<Result<Step, ClientError>, Failure> {
        Ok(Ok(match incoming {
            Ok(Incoming::Frame { id, event, cursor, data }) if id == request => {
                // That it is stored says nothing of who serves it.
                *quiet &= matches!(event, Event::Accepted(_));
                // Only what moves the turn on counts: a node that refuses is not there again.
                if cursor.is_some() {
                    patience.until = Instant::now() + RECONNECT_FOR;
                    if std::mem::take(&mut patience.again) {
                        self.gateways.found();
                        self.aside(&found_words(self.gateways.current().url()))?;
                    }
                }
                if self.out.json {
                    self.out.json_line(&json!({ "event": event.name(), "data": data }))?;
                }
                turn.take(event, cursor)
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

    /// Shows what a tool call would do. A person at the terminal who was shown all of it is asked
    /// here; a script is told how somebody can decide.
    fn ask_about(
        &mut self,
        it: &ApprovalRequest,
        answer: Result<Value, ErrorBody>,
        asked: &mut Asked,
    ) -> Result<(), Failure> {
        match shown(it, answer) {
            Shown::Whole(whole, card) => {
                self.aside(&card)?;
                if self.interactive && !self.out.json {
                    asked.wait_for(*whole);
                    self.question(asked);
                    return Ok(());
                }
                let how = format!("decide with `clawnode approvals approve {}`, or `deny`", it.id);
                self.aside(&how)
            }
            Shown::Part(card) => self.aside(&card),
        }
    }

    fn question(&self, asked: &Asked) {
        if let Some(question) = asked.question() {
            self.out.talk(&question);
        }
    }

    /// Whether the reply is shown as it comes.
    const fn is_live(&self) -> bool {
        self.interactive && !self.out.json
    }

    fn show(&mut self, text: &str) -> Result<(), Failure> {
        if !self.is_live() || text.is_empty() {
            return Ok(());
        }
        self.midline = !text.ends_with('\n');
        self.out.reply(text)
    }

    fn anew(&mut self, text: &str) -> Result<(), Failure> {
        if !self.is_live() {
            return Ok(());
        }
        self.aside("note: the reply begins anew")?;
        self.show(text)
    }

    /// Says how things go, on a line of its own.
    fn aside(&mut self, text: &str) -> Result<(), Failure> {
        self.end_line()?;
        self.out.aside(text);
        Ok(())
    }

    fn end_line(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.midline) { self.out.reply("\n") } else { Ok(()) }
    }

    /// Ends the reply's line; for a script, prints the reply.
    fn finish(&mut self, turn: &mut Turn) -> Result<(), Failure> {
        if let Step::Anew(text) = turn.rest() {
            self.anew(&text)?;
        }
        match (self.out.json || turn.text().is_empty(), self.interactive) {
            (true, _) => Ok(()),
            (false, true) => self.end_line(),
            (false, false) => self.out.reply(&format!("{}\n", turn.text())),
        }
    }
}

/// Whether nobody is there who could serve a turn, once it has been quiet for a while.
async fn headless(client: &Client) -> bool {
    sleep(QUIET).await;
    match client.call(Method::Status, json!({})).await.map(serde_json::from_value::<StatusView>) {
        Ok(Ok(status)) => status.warnings.iter().any(|it| it.name == "nodes.no_worker"),
        Ok(Err(_)) | Err(_) => false,
    }
}

/// Asks the node to end the turn. If that cannot be sent, the connection is lost, and following
/// the turn notices.
async fn cancel(socket: &mut Socket, turn: &Turn, out: Output) {
    let Some(accepted) = turn.accepted() else {
        out.talk("the message is not stored yet; Ctrl-C again leaves");
        return;
    };
    out.talk("cancelling; Ctrl-C again leaves");
    let params = ChatCancel { session: accepted.session.clone(), turn: accepted.turn.to_string() };
    if let Err(error) = socket.send(Method::ChatCancel, json!(params)).await {
        tracing::debug!(%error, "the cancel was not sent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_part_of_a_session_key() {
        for (user, expected) in
            [("ada", "ada"), ("", "user"), ("a:b c\n", "a_b_c_"), ("jos\u{e9}", "jos_")]
        {
            let peer = peer(&Env::from([("USER", user)]));
            assert_eq!(peer, expected);
            assert!(peer.parse::<clawnode_proto::id::KeyPart>().is_ok());
        }
        assert_eq!(peer(&Env::default()), "user");
    }
}
