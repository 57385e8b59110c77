//! `journal`: the events of sessions, and whether their chains and invariants hold.

use clap::Subcommand;
use clawnode_proto::{
    api::{JournalShow, JournalVerify, calls},
    offline::{RepairView, ReplayRow, ReplayView},
    view::{EventView, VerifyRow},
};

use super::{
    command_context::{CliContext, DataSource},
    entity_tables,
    output::{Output, Tone, clean, cut, time},
};
use crate::{
    failure::{Exit, Failure},
    offline_commands,
};

/// Events of one page: the most that a node gives.
const PAGE: u32 = 1_000;
/// Longest body of an event in a table; `--full` and `--json` have it whole.
const BODY_CHARS: usize = 100;

/// Characters of the last event's hash that are shown to people.
const HEAD_CHARS: usize = 16;

/// What `journal --help` ends with.
const EXAMPLES: &str = "\
Examples:
  clawnode journal show default:cli:local:ada
  clawnode journal show default:cli:local:ada --full
  clawnode journal verify
  clawnode journal verify default:cli:local:ada
  clawnode journal replay                    with the node stopped or running
  clawnode journal repair                    with the node stopped: lists damage
  clawnode journal repair --yes              cuts it out; copy the directory first";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum JournalCommand {
    /// Show a session's events
    Show {
        /// The session: its key (`agent:channel:account:peer`) or its id
        session: String,
        /// Show each event's whole body
        #[arg(long)]
        full: bool,
    },
    /// Check hash chains and invariants; exit code 1 if one is broken
    Verify {
        /// Only this session
        session: Option<String>,
    },
    /// Replay recorded turns without a model, and compare the requests with the recorded ones
    Replay {
        /// Only this session
        session: Option<String>,
    },
    /// Find damage in the data directory, and cut it out; no node may run on it
    Repair {
        /// Cut the damage out; without this, only list it
        #[arg(long)]
        yes: bool,
    },
}

/// `journal`.
pub(super) async fn run(command: JournalCommand, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    match command {
        JournalCommand::Show { session, full } => {
            let journal = read_all(&context.source().await?, &session).await?;
            let most = if full { usize::MAX } else { BODY_CHARS };
            out.document(&journal, |journal| events(out, journal, most))?;
            Ok(Exit::Ok)
        }
        JournalCommand::Verify { session } => verify(context, session).await,
        JournalCommand::Replay { session } => replay(context, session).await,
        JournalCommand::Repair { yes } => repair(context, yes).await,
    }
}

/// A whole journal, page by page.
async fn read_all(source: &DataSource, session: &str) -> Result<Vec<EventView>, Failure> {
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let params = JournalShow { session: session.to_owned(), cursor, limit: Some(PAGE) };
        let page = source.call(calls::JournalShow, &params).await?;
        all.extend(page.events);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

/// One row an event, with at most so many characters of its body.
fn events(out: Output, events: &[EventView], most: usize) -> String {
    let row = |event: &EventView| {
        vec![
            event.n.to_string(),
            time(event.ts),
            event.epoch.to_string(),
            event.kind.clone(),
            event.incarnation.to_string(),
            cut(&event.body.to_string(), most),
        ]
    };
    out.table(&["n", "time", "epoch", "kind", "incarnation", "body"], events.iter().map(row))
}

async fn verify(context: &CliContext, session: Option<String>) -> Result<Exit, Failure> {
    let params = JournalVerify { session };
    let verdict = context.source().await?.call(calls::JournalVerify, &params).await?;
    let out = context.out;
    out.document(&verdict, |verdict| verified(out, &verdict.journals))?;
    Ok(if verdict.is_sound() { Exit::Ok } else { Exit::Failed })
}

fn verified(out: Output, journals: &[VerifyRow]) -> String {
    let others = entity_tables::has_others(journals.iter().map(|journal| journal.kind));
    let row = |verified: &VerifyRow| {
        let found = match &verified.problem {
            Some(problem) => clean(problem),
            None if verified.partial => "sound as far as this node knows the kind".to_owned(),
            None => "sound".to_owned(),
        };
        let head = verified.head.map(|head| head.to_string().chars().take(HEAD_CHARS).collect());
        let mut row =
            vec![entity_tables::name(verified.key.as_deref(), verified.kind, verified.id)];
        row.extend(others.then(|| entity_tables::text(verified.kind)));
        row.extend([verified.events.to_string(), head.unwrap_or_default(), found]);
        row
    };
    let mut head = vec!["session", "events", "head", "verdict"];
    if others {
        head.splice(0..1, ["entity", "kind"]);
    }
    out.table(&head, journals.iter().map(row))
}

async fn replay(context: &CliContext, session: Option<String>) -> Result<Exit, Failure> {
    // A replay reads the directory itself, also beside a running node: it needs nothing of it.
    let directory = offline_commands::open_read_only(&context.loaded.config).await?;
    let view: ReplayView = Box::pin(directory.replay(session.as_deref())).await?;
    let sound = view.sessions.iter().all(|row| row.problem.is_none());
    let out = context.out;
    out.document(&view, |view| {
        let row = |replayed: &ReplayRow| {
            let found = replayed.problem.clone().unwrap_or_else(|| "identical".to_owned());
            vec![replayed.session.clone(), replayed.requests.to_string(), found]
        };
        out.table(&["session", "requests", "verdict"], view.sessions.iter().map(row))
    })?;
    Ok(if sound { Exit::Ok } else { Exit::Failed })
}

async fn repair(context: &CliContext, yes: bool) -> Result<Exit, Failure> {
    // The lock of the directory tells whether a node runs on it. An address that a node left
    // behind may be another's by now.
    let view: RepairView = offline_commands::repair(&context.loaded.config, yes).await?;
    let out = context.out;
    out.document(&view, |view| {
        if view.findings.is_empty() {
            return out.paint(Tone::Good, "nothing is damaged");
        }
        view.findings.join("\n")
    })?;
    let pending = !view.applied && !view.findings.is_empty();
    if pending && !out.json {
        out.talk("nothing was changed; copy the directory, then add `--yes` to cut this out");
    }
    Ok(if pending { Exit::Failed } else { Exit::Ok })
}
