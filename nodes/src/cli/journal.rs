//! `journal`: what has happened, event by event, and whether it holds.

use clap::Subcommand;
use clawnode_proto::{
    api::{Method, SessionParams},
    view::{EventView, VerifyView},
};
use serde_json::json;

use super::{
    context::{Context, Door},
    offline::{RepairView, ReplayView},
    output::{Output, Tone, clean, time},
};
use crate::{
    failure::{Exit, Failure},
    keeping,
};

/// Events of one page: the most that a node gives.
const PAGE: usize = 1_000;
/// Longest body of an event in a table; `--json` has it whole.
const BODY_CHARS: usize = 100;

/// Characters of the last event's hash that are shown to people.
const HEAD_CHARS: usize = 16;

/// `journal`.
#[derive(Debug, Subcommand)]
pub(super) enum JournalCommand {
    /// Show a session's events
    Show {
        /// The session: `agent:channel:account:peer`, or its id
        session: String,
    },
    /// Check hash chains and invariants; exit code 1 if one does not hold
    Verify {
        /// Only this session
        session: Option<String>,
    },
    /// Play recorded turns again without a model, and compare what it would be shown
    Replay {
        /// Only this session
        session: Option<String>,
    },
    /// Look for damage in the data directory, where no node may run, and cut it out
    Repair {
        /// Do it; without this, only say what would be done
        #[arg(long)]
        yes: bool,
    },
}

/// `journal`.
pub(super) async fn run(command: JournalCommand, context: &Context) -> Result<Exit, Failure> {
    let out = context.out;
    match command {
        JournalCommand::Show { session } => {
            let journal = read_all(&context.door().await?, &session).await?;
            out.document(&journal, |journal| events(out, journal))?;
            Ok(Exit::Ok)
        }
        JournalCommand::Verify { session } => verify(context, session).await,
        JournalCommand::Replay { session } => replay(context, session).await,
        JournalCommand::Repair { yes } => repair(context, yes).await,
    }
}

/// A whole journal, page by page.
async fn read_all(door: &Door, session: &str) -> Result<Vec<EventView>, Failure> {
    let mut all: Vec<EventView> = Vec::new();
    loop {
        let after = all.last().map(|event| event.n);
        let params = json!({ "session": session, "after": after, "limit": PAGE });
        let page: Vec<EventView> = door.call(Method::JournalShow, params).await?;
        let full = page.len() == PAGE;
        all.extend(page);
        if !full {
            return Ok(all);
        }
    }
}

fn events(out: Output, events: &[EventView]) -> String {
    let row = |it: &EventView| {
        let mut body: String = it.body.to_string();
        if let Some((cut, _)) = body.char_indices().nth(BODY_CHARS) {
            body.truncate(cut);
            body.push('…');
        }
        vec![
            it.n.to_string(),
            time(it.ts),
            it.epoch.to_string(),
            it.kind.clone(),
            it.incarnation.to_string(),
            clean(&body),
        ]
    };
    out.table(&["n", "time", "epoch", "kind", "incarnation", "body"], events.iter().map(row))
}

async fn verify(context: &Context, session: Option<String>) -> Result<Exit, Failure> {
    let params = session.map_or_else(|| json!({}), |session| json!(SessionParams { session }));
    let verdict: VerifyView = context.door().await?.call(Method::JournalVerify, params).await?;
    let out = context.out;
    out.document(&verdict, |verdict| {
        let row = |it: &clawnode_proto::view::VerifyRow| {
            let found = match &it.problem {
                Some(problem) => clean(problem),
                None => "sound".to_owned(),
            };
            let head = it.head.map(|head| head.to_string().chars().take(HEAD_CHARS).collect());
            vec![
                it.key.clone().unwrap_or_else(|| it.id.to_string()),
                it.events.to_string(),
                head.unwrap_or_default(),
                found,
            ]
        };
        out.table(&["session", "events", "head", "verdict"], verdict.journals.iter().map(row))
    })?;
    Ok(if verdict.is_sound() { Exit::Ok } else { Exit::Failed })
}

async fn replay(context: &Context, session: Option<String>) -> Result<Exit, Failure> {
    // A replay reads the directory itself, also beside a running node: it needs nothing of it.
    let directory = keeping::open_read_only(&context.loaded.config).await?;
    let view: ReplayView = directory.replay(session.as_deref()).await?;
    let sound = view.sessions.iter().all(|row| row.problem.is_none());
    let out = context.out;
    out.document(&view, |view| {
        let row = |it: &super::offline::ReplayRow| {
            let found = it.problem.clone().unwrap_or_else(|| "the same".to_owned());
            vec![it.session.clone(), it.requests.to_string(), found]
        };
        out.table(&["session", "requests", "verdict"], view.sessions.iter().map(row))
    })?;
    Ok(if sound { Exit::Ok } else { Exit::Failed })
}

async fn repair(context: &Context, yes: bool) -> Result<Exit, Failure> {
    // The lock of the directory tells whether a node runs on it. An address that a node left
    // behind may be another's by now.
    let view: RepairView = keeping::repair(&context.loaded.config, yes).await?;
    let out = context.out;
    out.document(&view, |view| {
        if view.findings.is_empty() {
            return out.paint(Tone::Good, "nothing is damaged");
        }
        view.findings.join("\n")
    })?;
    let pending = !view.applied && !view.findings.is_empty();
    if pending && !out.json {
        out.talk("nothing was changed; `--yes` does it (take a copy of the directory first)");
    }
    Ok(if pending { Exit::Failed } else { Exit::Ok })
}
