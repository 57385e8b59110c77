//! Who talks, to whom, and what the chat has at hand.

use std::{io::IsTerminal, path::PathBuf};

use clap::Args;
use clawnode_proto::{AgentName, ErrorBody, lane::Lane};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    choices,
    conversation::{self, Conversation},
    desk::ChatTerminal,
    history::Last,
    lines::{InputLines, ReadLine},
    terminal_style::{self, TerminalStyle},
    tty::{TerminalEvent, Tty},
};
use crate::{
    cli::{
        command_context::CliContext,
        output::Output,
        signals::{EndSignals, StopRequest},
    },
    client::{ClientSocket, Gateways},
    config::{paths, schema_source::SchemaSource},
    failure::{Exit, Failure},
};

/// Examples of `chat`.
const EXAMPLES: &str = "\
A chat begins a new conversation. If a turn of an earlier one has not ended, the chat continues
that conversation, and says so. `/help` lists commands; Ctrl-C cancels the running turn, and
Ctrl-D leaves. Conversations are sessions `AGENT:cli:local:USER~TIME`.

Examples:
  clawnode chat
  clawnode chat --continue                   continue the last conversation
  clawnode chat --session default:cli:local:ada
  clawnode chat --agent ops
  clawnode chat --lane background            its model calls let others go first
  clawnode chat --schema person.json         each reply is JSON that fits the schema
  printf 'one\\ntwo\\n' | clawnode chat      one turn per line; exit code 1 if one failed
  clawnode chat --url https://node.example --token-file token
  clawnode chat --url https://a.example,https://b.example    uses one if the other is lost";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(in crate::cli) struct ChatArgs {
    /// Talk to this agent; bindings are ignored
    #[arg(long, value_name = "NAME", conflicts_with = "session")]
    pub agent: Option<AgentName>,
    /// Want each reply to be JSON that fits the JSON Schema in this file
    #[arg(long, value_name = "FILE")]
    pub schema: Option<PathBuf>,
    /// Let the model calls of others go first (`background`), or not (`interactive`; default: the agent's lane)
    #[arg(long, value_name = "LANE")]
    pub lane: Option<String>,
    #[command(flatten)]
    pub which: Which,
}

/// Which conversation.
#[derive(Clone, Debug, Default, Args)]
pub(in crate::cli) struct Which {
    /// Continue the last conversation
    #[arg(long = "continue", conflicts_with = "session")]
    pub last: bool,
    /// Continue this session: `agent:channel:account:peer`, or its id; it need not exist yet
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
}

/// What a chat wants of each turn.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct ChatWishes {
    /// The agent; bindings are ignored.
    pub agent: Option<AgentName>,
    /// What each reply has to fit.
    pub schema: Option<Value>,
    /// The lane, instead of the agent's.
    pub lane: Option<Lane>,
}

impl Which {
    /// Whether one is named.
    pub(in crate::cli) const fn is_given(&self) -> bool {
        self.last || self.session.is_some()
    }
}

/// `chat`.
pub(in crate::cli) async fn run(args: ChatArgs, context: &CliContext) -> Result<Exit, Failure> {
    let schema = args.schema.map(schema_of).transpose()?;
    let lane = args.lane.map(|lane| choices::lane(&lane)).transpose()?;
    let wishes = ChatWishes { agent: args.agent, schema, lane };
    let mut gateways = context.gateways()?;
    gateways.reach().await?;
    gateways.found();
    talk(context, gateways, args.which, wishes).await
}

/// The JSON Schema in a file.
fn schema_of(file: PathBuf) -> Result<Value, Failure> {
    let shown = file.display().to_string();
    let wrong = |what: String| {
        Failure::new(Exit::Failed, "invalid_params", format!("`--schema {shown}`: {what}"))
            .hint("name a file with a JSON Schema")
    };
    let schema = SchemaSource::File(file).read().map_err(wrong)?;
    serde_json::from_str(&schema.schema).map_err(|error| wrong(error.to_string()))
}

/// Whether a person edits lines at a terminal that can do that.
pub(in crate::cli) fn is_at_terminal(context: &CliContext) -> bool {
    let dumb = context.loaded.env().get("TERM").is_none_or(|term| term == "dumb");
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal() && !dumb && !context.out.json
}

/// Talks until the input ends.
pub(in crate::cli) async fn talk(
    context: &CliContext,
    gateways: Gateways,
    which: Which,
    wishes: ChatWishes,
) -> Result<Exit, Failure> {
    let ChatWishes { agent, schema, lane } = wishes;
    let env = context.loaded.env();
    let user = conversation::user(env);
    let (person, desk) = if is_at_terminal(context) {
        let tty = Tty::open().map_err(|error| {
            Failure::new(Exit::Failed, "terminal", format!("cannot use the terminal: {error}"))
                .hint("run `TERM=dumb clawnode chat`, which works without it")
        })?;
        let desk = ChatTerminal::new(context.out, TerminalStyle::of(env), tty.size(), env);
        (Person::Tty(Box::new(tty)), Some(Box::new(desk)))
    } else {
        (Person::Lines(InputLines::open()), None)
    };
    let mut chat = Chat {
        context,
        out: context.out,
        gateways,
        socket: None,
        signals: EndSignals::take()?,
        person,
        conversation: Conversation::begin(&user, agent.clone()),
        last: Last::new(paths::state_dir(env)),
        user,
        agent,
        schema,
        lane,
        interactive: std::io::stdin().is_terminal(),
        midline: false,
        leaves: false,
        desk,
    };
    let ended = Box::pin(chat.run(which)).await;
    if let Some((socket, _)) = chat.socket.take() {
        socket.close().await;
    }
    ended
}

/// Who talks.
pub(super) enum Person {
    Lines(InputLines),
    Tty(Box<Tty>),
}

/// What they do.
pub(super) enum Did {
    Read(ReadLine),
    Heard(TerminalEvent),
}

/// What all parts of a chat share while it runs.
pub(super) struct Chat<'a> {
    pub context: &'a CliContext,
    pub out: Output,
    pub gateways: Gateways,
    /// The connection of the turn before, and when it was last used.
    pub socket: Option<(ClientSocket, Instant)>,
    pub signals: EndSignals,
    pub person: Person,
    /// The user's name, as session keys have it.
    pub user: String,
    /// The agent that was asked for.
    pub agent: Option<AgentName>,
    /// What each reply has to fit.
    pub schema: Option<Value>,
    /// The lane that the person chose for their turns.
    pub lane: Option<Lane>,
    pub conversation: Conversation,
    /// What is remembered of the last one.
    pub last: Last,
    /// Whether a person types.
    pub interactive: bool,
    /// Whether a part of a reply is at the end of the terminal's last line.
    pub midline: bool,
    /// Whether this process was asked to end while a command ran.
    pub leaves: bool,
    /// What a person at a terminal has before them.
    pub desk: Option<Box<ChatTerminal>>,
}

/// How a turn went.
pub(super) enum TurnResult {
    Well,
    Badly(ErrorBody),
    /// The person cancelled it.
    Cancelled,
    /// A call of it waits, and the person decides later.
    Later,
    /// No gateway was found to go on at.
    Lost(Failure),
    /// The person left in the middle.
    Left,
}

// === impl Person ===

impl Person {
    /// The next thing that they do. Safe to drop in the middle where it is a terminal.
    pub(super) async fn next(&mut self) -> Did {
        match self {
            Self::Lines(lines) => Did::Read(lines.next().await),
            Self::Tty(tty) => Did::Heard(tty.next().await),
        }
    }

    pub(super) const fn is_tty(&self) -> bool {
        matches!(self, Self::Tty(_))
    }

    pub(super) fn tty(&mut self) -> Option<&mut Tty> {
        match self {
            Self::Lines(_) => None,
            Self::Tty(tty) => Some(tty),
        }
    }
}

// === impl Chat ===

impl Chat<'_> {
    async fn run(&mut self, which: Which) -> Result<Exit, Failure> {
        if self.desk.is_some() { self.with_person(which).await } else { self.scripted(which).await }
    }

    /// Does what asks the node and reads no keys; Ctrl-C breaks it off.
    pub(super) async fn or_break<T>(
        &mut self,
        what: impl AsyncFnOnce(&mut Self) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (mut signals, mut terminated) = (EndSignals::take()?, false);
        if let Some(tty) = self.person.tty() {
            tty.signals(true);
        }
        let done = tokio::select! {
            done = what(self) => Some(done),
            stop = signals.next() => {
                terminated = stop == StopRequest::Terminate;
                None
            }
        };
        if let Some(tty) = self.person.tty() {
            tty.signals(false);
        }
        if let Some(done) = done {
            return done;
        }
        // What was meant for this is not meant for what comes next.
        self.signals.forget_interrupts();
        if terminated {
            self.leaves = true;
        }
        Err(Failure::new(Exit::Failed, "interrupted", "the request was interrupted"))
    }

    /// Says how things go, on a line of its own.
    pub(super) fn aside(&mut self, text: &str) -> Result<(), Failure> {
        if let Some(desk) = &mut self.desk {
            return desk.screen.say(terminal_style::TextRole::Aside, text);
        }
        self.end_line()?;
        if self.out.json {
            self.out.talk(&json!({ "event": "note", "message": text }).to_string());
        } else {
            self.out.aside(text);
        }
        Ok(())
    }

    /// Says what failed.
    pub(super) fn failure(&mut self, failure: &Failure) -> Result<(), Failure> {
        let Some(desk) = &mut self.desk else {
            self.out.failure(failure);
            return Ok(());
        };
        desk.screen.say(terminal_style::TextRole::Bad, &format!("error: {}", failure.message))?;
        match &failure.hint {
            Some(hint) => {
                desk.screen.say(terminal_style::TextRole::Aside, &format!("hint: {hint}"))
            }
            None => Ok(()),
        }
    }

    pub(super) fn end_line(&mut self) -> Result<(), Failure> {
        if std::mem::take(&mut self.midline) { self.out.reply("\n") } else { Ok(()) }
    }
}
