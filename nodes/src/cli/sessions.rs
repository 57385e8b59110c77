//! `sessions`: list, show, explain, follow, export and delete conversations.

use std::{io::Write, path::PathBuf, time::Duration};

use clap::Subcommand;
use clawnode_proto::{
    TurnId,
    api::{ChatContinue, SessionParams, calls},
    view::{ContinuedView, HistoryView, TurnView},
};
use serde_json::json;
use tokio::time::sleep;

use super::{
    command_context::{CliContext, DataSource},
    history,
    output::{count, exact},
    reconnection::{Link, lost_sight},
    session_context::{self, ContextArgs},
    session_list::{self, SessionsListArgs},
    turn::{ShownTurn, TurnStep},
};
use crate::{
    client::{ClientError, ClientSocket, Incoming},
    failure::{Exit, Failure},
};

/// How often `tail --follow` asks whether a new turn has begun.
const FOLLOW_EVERY: Duration = Duration::from_secs(1);

/// What `sessions --help` ends with.
const EXAMPLES: &str = "\
SESSION is a key (`agent:channel:account:peer`) or an id, as `list` shows them.

Examples:
  clawnode sessions list --since 2h
  clawnode sessions list --agent ops --state running --json
  clawnode sessions show default:cli:local:ada
  clawnode sessions context default:cli:local:ada
  clawnode sessions context default:cli:local:ada --at 12.1 --diff 11
  clawnode sessions tail default:cli:local:ada --follow
  clawnode sessions continue default:cli:local:ada
  clawnode sessions export default:cli:local:ada --file ada.json
  clawnode sessions delete default:cli:local:ada --yes";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum SessionsCommand {
    /// List sessions, the newest first
    List(SessionsListArgs),
    /// Show the messages of a session
    Show {
        /// The session: its key (`agent:channel:account:peer`) or its id
        session: String,
    },
    /// Show what the model was shown by one call, part by part, and what was left out
    Context(ContextArgs),
    /// Show the last turns of a session, and follow new ones
    Tail {
        /// The session: its key (`agent:channel:account:peer`) or its id
        session: String,
        /// Show this many of the last turns first
        #[arg(long, short = 'n', default_value_t = 3, value_name = "N")]
        turns: usize,
        /// Follow new turns until Ctrl-C
        #[arg(long, short)]
        follow: bool,
    },
    /// Give more steps to a turn that has used all its steps
    Continue {
        /// The session: its key (`agent:channel:account:peer`) or its id
        session: String,
    },
    /// Write all data of a session as JSON
    Export {
        /// The session: its key (`agent:channel:account:peer`) or its id
        session: String,
        /// Write to this file, not to standard output; the file must not exist
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Delete a session, its personal data and what memories learned from it
    Delete {
        /// The session: its key (`agent:channel:account:peer`) or its id
        session: String,
        /// Confirm the deletion
        #[arg(long)]
        yes: bool,
    },
}

/// `sessions`.
pub(super) async fn run(command: SessionsCommand, context: &CliContext) -> Result<Exit, Failure> {
    match command {
        SessionsCommand::List(args) => session_list::run(context, args).await,
        SessionsCommand::Show { session } => {
            let history = whole(&context.source().await?, &session).await?;
            context.out.document(&history, |history| history::human(history, usize::MAX))?;
            Ok(Exit::Ok)
        }
        SessionsCommand::Context(args) => session_context::run(args, context).await,
        SessionsCommand::Tail { session, turns, follow } => {
            tail(context, &session, turns, follow).await
        }
        SessionsCommand::Continue { session } => {
            let params = ChatContinue { session, turn: None };
            let view = context.call(calls::ChatContinue, &params).await?;
            let words = |view: &ContinuedView| {
                format!("{} has {}", view.turn, count(u64::from(view.steps), "more step"))
            };
            context.out.document(&view, words)?;
            Ok(Exit::Ok)
        }
        SessionsCommand::Export { session, file } => export(context, &session, file).await,
        SessionsCommand::Delete { session, yes } => delete(context, &session, yes).await,
    }
}

async fn whole(source: &DataSource, session: &str) -> Result<HistoryView, Failure> {
    history::read_all(session, async |page| source.call(calls::SessionsHistory, &page).await).await
}

fn params(session: &str) -> SessionParams {
    SessionParams { session: session.to_owned() }
}

async fn tail(
    context: &CliContext,
    session: &str,
    turns: usize,
    follow: bool,
) -> Result<Exit, Failure> {
    let source = context.source().await?;
    let history = whole(&source, session).await?;
    let from = history.turns.len().saturating_sub(turns);
    let last = HistoryView { turns: history.turns.into_iter().skip(from).collect(), ..history };
    context.out.document(&last, |last| history::human(last, turns))?;
    if !follow {
        return Ok(Exit::Ok);
    }
    if matches!(source, DataSource::Directory(_)) {
        return Err(Failure::new(
            Exit::Unreachable,
            "not_running",
            "cannot follow: no node is running",
        )
        .hint("start one with `clawnode up`"));
    }
    let mut link = Link::new(context)?;
    // Turns that have ended were shown whole; one that still runs is followed from its beginning.
    let mut seen =
        last.turns.iter().rev().find(|turn| turn.outcome.is_some()).map(|turn| turn.turn);
    loop {
        let history = link.history(session).await?;
        for turn in after(&history.turns, seen) {
            follow_turn(&mut link, session, turn).await?;
            seen = Some(turn.turn);
        }
        sleep(FOLLOW_EVERY).await;
    }
}

/// The turns after `seen`; all, if it is not among them.
fn after(turns: &[TurnView], seen: Option<TurnId>) -> &[TurnView] {
    let at = turns.iter().position(|turn| Some(turn.turn) == seen);
    turns.get(at.map_or(0, |at| at + 1)..).unwrap_or_default()
}

/// Prints a turn as it goes, until it ends, over as many connections as it takes.
async fn follow_turn(link: &mut Link, session: &str, view: &TurnView) -> Result<(), Failure> {
    let out = link.out;
    if !out.json {
        // What tools have answered so far comes with the reply.
        for (who, said) in history::messages(view).filter(|(who, _)| *who != "assistant") {
            if said.tool_replies.is_empty() {
                out.line(&format!("\n{}", history::message(who, said)))?;
            }
        }
        out.write("assistant: ")?;
    }
    let mut turn = ShownTurn::begun(session.to_owned(), view.turn);
    loop {
        match follow_on(link, &mut turn, view.turn).await? {
            None => {
                if let (TurnStep::Anew(text), false) = (turn.rest(), out.json) {
                    out.reply(&format!("\n{text}"))?;
                }
                return if out.json { Ok(()) } else { out.line("") };
            }
            Some(lost) => link.lost(lost).await?,
        }
    }
}

/// Follows a turn on one connection; how that was lost, if the turn has not ended.
async fn follow_on(
    link: &mut Link,
    turn: &mut ShownTurn,
    id: TurnId,
) -> Result<Option<ClientError>, Failure> {
    let out = link.out;
    let (method, params) = turn.request().map_err(|error| {
        Failure::new(Exit::Failed, "internal", format!("cannot write a request: {error}"))
    })?;
    let mut socket = match ClientSocket::open(link.gateways.current()).await {
        Ok(socket) => socket,
        Err(error) => return Ok(Some(error)),
    };
    let request = match socket.send(method, params).await {
        Ok(request) => request,
        Err(error) => return Ok(Some(error)),
    };
    loop {
        let step = match socket.next().await {
            Ok(Incoming::Frame { id: frame_of, event, data }) if frame_of == request => {
                if event.cursor.is_some() {
                    link.found();
                }
                if out.json {
                    out.json_line(
                        &json!({ "turn": id, "event": event.body.name(), "data": data }),
                    )?;
                }
                turn.take(event)
            }
            Ok(Incoming::Answer { result: Err(error), .. }) => return Err(error.into()),
            Ok(_) => TurnStep::Wait,
            Err(error) => return Ok(Some(error)),
        };
        match step {
            TurnStep::Show(text) if !out.json => out.reply(&text)?,
            TurnStep::Anew(text) if !out.json => out.reply(&format!("\n{text}"))?,
            TurnStep::Failed(error) if !out.json => {
                out.talk(&format!("\n[{}]", error.message));
                return Ok(None);
            }
            TurnStep::Completed | TurnStep::Failed(_) => {
                socket.close().await;
                return Ok(None);
            }
            TurnStep::Ask(request) if !out.json => {
                let cut = if request.truncated { " (cut)" } else { "" };
                let (tool, what, call) =
                    (exact(&request.name), exact(&request.arguments), request.id);
                out.talk(&format!(
                    "\n[waits for a person: {tool} {what}{cut}; see \
                     `clawnode approvals show {call}`, then `approve` or `deny` it]"
                ));
            }
            TurnStep::Again => {
                return Ok(Some(lost_sight()));
            }
            TurnStep::Wait
            | TurnStep::Tell(_)
            | TurnStep::Think(_)
            | TurnStep::Use(_)
            | TurnStep::Used(_)
            | TurnStep::Usage(_)
            | TurnStep::Ask(_)
            | TurnStep::Show(_)
            | TurnStep::Anew(_) => {}
        }
    }
}

async fn export(
    context: &CliContext,
    session: &str,
    file: Option<PathBuf>,
) -> Result<Exit, Failure> {
    let everything = context.source().await?.call(calls::SessionsExport, &params(session)).await?;
    let Some(path) = file else {
        context.out.document(&everything, |everything| format!("{everything:#}"))?;
        return Ok(Exit::Ok);
    };
    // `create_new`: an export never replaces a file.
    let written = std::fs::File::create_new(&path).and_then(|mut file| {
        file.write_all(format!("{everything:#}\n").as_bytes())?;
        file.sync_all()
    });
    match written {
        Ok(()) => Ok(Exit::Ok),
        Err(error) => {
            let what = format!("cannot write `{}`: {error}", path.display());
            Err(Failure::new(Exit::Failed, "local_file", what).hint("name another file"))
        }
    }
}

async fn delete(context: &CliContext, session: &str, yes: bool) -> Result<Exit, Failure> {
    if !yes {
        let what = format!(
            "`{session}` was not deleted: its messages, and what memories learned from it, would be lost"
        );
        return Err(Failure::new(Exit::Usage, "not_confirmed", what)
            .hint("add `--yes` to delete it; `clawnode sessions export` writes a copy"));
    }
    let answer = context.call(calls::SessionsDelete, &params(session)).await?;
    // Memories hear of it once it is deleted, so the answer has no number.
    context.out.document(&answer, |_| {
        format!("deleted {session}; memories forget what they learned from it, also shared ones")
    })?;
    Ok(Exit::Ok)
}
