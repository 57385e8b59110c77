//! `quarantine`: list, show, restore and delete sessions that are out of service.

use clap::Subcommand;
use clawnode_proto::{
    api::{ListParams, SessionParams, calls},
    view::{ParkedRow, QuarantineDone, QuarantineList, QuarantineRow, QuarantineView},
};
use serde::Serialize;

use super::{
    command_context::{CliContext, DataSource},
    entity_tables,
    output::{Output, Tone, count, cut, size, time},
    parked,
};
use crate::failure::{Exit, Failure};

/// Sessions that one question looks at: the most that a node takes.
const PAGE: u32 = 1_000;
/// Longest body of an input in a table; `--json` has it whole.
const BODY_CHARS: usize = 100;

/// What `quarantine --help` ends with.
const EXAMPLES: &str = "\
A session is quarantined when it makes the nodes that open it crash repeatedly, or when its
journal is damaged. Nothing is lost: inputs for it are parked.

Examples:
  clawnode quarantine list
  clawnode quarantine show default:web:site:ada
  clawnode quarantine replay default:web:site:ada
  clawnode quarantine replay --all --why 'without progress'
  clawnode quarantine drop default:web:site:ada --yes";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum QuarantineCommand {
    /// List the sessions that are out of service, with the reason
    List,
    /// Show a session that is out of service, with its parked and waiting inputs
    Show {
        /// The session: its key (`agent:channel:account:peer`) or its id
        session: String,
    },
    /// Put a session, or all, back in service, and process the parked inputs
    Replay {
        /// The session: its key (`agent:channel:account:peer`) or its id
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        session: Option<String>,
        /// All quarantined sessions
        #[arg(long)]
        all: bool,
        /// Only sessions whose reason contains this text
        #[arg(long, requires = "all", value_name = "TEXT")]
        why: Option<String>,
    },
    /// Delete a session, with its parked and waiting inputs
    Drop {
        /// The session: its key (`agent:channel:account:peer`) or its id
        session: String,
        /// Confirm the deletion
        #[arg(long)]
        yes: bool,
    },
}

/// `quarantine`.
pub(super) async fn run(command: QuarantineCommand, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    match command {
        QuarantineCommand::List => {
            let all = read_all(&context.source().await?).await?;
            out.document(&all, |all| table(out, &all.sessions))?;
        }
        QuarantineCommand::Show { session } => {
            let source = context.source().await?;
            let view = source.call(calls::QuarantineShow, &params(&session)).await?;
            out.document(&view, |view| human(out, view))?;
        }
        QuarantineCommand::Replay { session: Some(session), .. } => {
            let done = context.call(calls::QuarantineReplay, &params(&session)).await?;
            out.document(&done, restored)?;
        }
        QuarantineCommand::Replay { session: None, why, .. } => {
            return replay_all(&why.unwrap_or_default(), context).await;
        }
        QuarantineCommand::Drop { session, yes } => {
            if !yes {
                let what = format!(
                    "`{session}` was not deleted: the conversation and its parked inputs would be \
                     lost"
                );
                return Err(Failure::new(Exit::Usage, "not_confirmed", what).hint(
                    "add `--yes` to delete it; `clawnode quarantine show` shows what is parked",
                ));
            }
            let done = context.call(calls::QuarantineDrop, &params(&session)).await?;
            out.document(&done, |done| {
                format!("deleted {}, with {}", name(done), count(done.inputs, "input"))
            })?;
        }
    }
    Ok(Exit::Ok)
}

/// What became of all that were quarantined.
#[derive(Debug, Default, Serialize)]
struct Replayed {
    /// Those that are back in service.
    done: Vec<QuarantineDone>,
    /// Those that are not.
    failed: Vec<NotReplayed>,
}

/// One that could not be put back in service.
#[derive(Debug, Serialize)]
struct NotReplayed {
    session: String,
    error: String,
}

/// Puts all back in service that are quarantined for such a reason, one after the other.
async fn replay_all(why: &str, context: &CliContext) -> Result<Exit, Failure> {
    let source = context.source().await?;
    let mut all = Replayed::default();
    for row in read_all(&source).await?.sessions {
        if row.state != "quarantined" || !row.reason.contains(why) {
            continue;
        }
        let session = row.id.to_string();
        match source.call(calls::QuarantineReplay, &params(&session)).await {
            Ok(done) => all.done.push(done),
            Err(failure) => {
                let session = row.key.unwrap_or(session);
                all.failed.push(NotReplayed { session, error: failure.message.clone() });
            }
        }
    }
    context.out.document(&all, |all| {
        let mut lines: Vec<String> = all.done.iter().map(restored).collect();
        let failed = all.failed.iter();
        lines.extend(
            failed.map(|one| format!("{} stays out of service: {}", one.session, one.error)),
        );
        lines.push(format!(
            "back in service: {}; still out of service: {}",
            all.done.len(),
            all.failed.len()
        ));
        lines.join("\n")
    })?;
    Ok(if all.failed.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn restored(done: &QuarantineDone) -> String {
    format!("{} is back in service, with {}", name(done), count(done.inputs, "input"))
}

fn params(session: &str) -> SessionParams {
    SessionParams { session: session.to_owned() }
}

fn name(done: &QuarantineDone) -> String {
    done.key.clone().unwrap_or_else(|| done.id.to_string())
}

async fn read_all(source: &DataSource) -> Result<QuarantineList, Failure> {
    let mut all = QuarantineList::default();
    loop {
        let page = ListParams { cursor: all.next.take(), limit: Some(PAGE) };
        let page = source.call(calls::QuarantineList, &page).await?;
        all.sessions.extend(page.sessions);
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}

fn table(out: Output, sessions: &[QuarantineRow]) -> String {
    if sessions.is_empty() {
        return out.paint(Tone::Good, "every session is in service");
    }
    let others = entity_tables::has_others(sessions.iter().map(|session| session.kind));
    let mut head = vec!["session", "state", "since", "parked", "waiting", "why"];
    if others {
        head.splice(0..1, ["entity", "kind"]);
    }
    if out.wide {
        head.extend(["id", "events"]);
    }
    let row = |session: &QuarantineRow| {
        let mut row = vec![entity_tables::name(session.key.as_deref(), session.kind, session.id)];
        row.extend(others.then(|| entity_tables::text(session.kind)));
        row.extend([
            session.state.clone(),
            session.since.map_or_else(|| "-".to_owned(), time),
            session.parked.to_string(),
            session.waiting.to_string(),
            session.reason.clone(),
        ]);
        if out.wide {
            row.extend([session.id.to_string(), session.events.to_string()]);
        }
        row
    };
    out.table(&head, sessions.iter().map(row))
}

fn human(out: Output, view: &QuarantineView) -> String {
    let head = table(out, std::slice::from_ref(&view.session));
    let row = |parked: &ParkedRow| {
        let body = if parked.body.is_null() { String::new() } else { parked.body.to_string() };
        let body = cut(&body, BODY_CHARS);
        vec![parked::place(parked.at).to_owned(), time(parked.ts), size(parked.bytes), body]
    };
    let inputs = out.table(&["where", "sent", "size", "input"], view.inputs.iter().map(row));
    format!("{head}\n\n{inputs}")
}
