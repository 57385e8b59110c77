//! `parked`: inputs that were set aside whole.

use clap::{Args, Subcommand};
use clawnode_proto::{
    api::{ListParams, ParkedDrop, calls},
    view::{ParkedList, ParkedRow, ParkedWhere},
};

use super::{
    command_context::{CliContext, DataSource},
    entity_tables,
    output::{Output, Tone, size, time},
};
use crate::failure::{Exit, Failure};

/// Rows of one question: the most that a node takes.
const PAGE: u32 = 1_000;

/// What `parked --help` ends with.
const EXAMPLES: &str = "\
Parked inputs are those of quarantined sessions, and dead letters: stored messages that cannot be
read as inputs. `clawnode quarantine replay` processes the inputs of a session.

Examples:
  clawnode parked
  clawnode parked -o json | jq -r '.parked[].letter // empty'
  clawnode parked drop LETTER --yes";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ParkedArgs {
    #[command(subcommand)]
    command: Option<ParkedCommand>,
}

/// What to do with one.
#[derive(Debug, Subcommand)]
enum ParkedCommand {
    /// Delete a dead letter
    Drop {
        /// The letter's name, as listed
        letter: String,
        /// Confirm the deletion
        #[arg(long)]
        yes: bool,
    },
}

/// `parked`.
pub(super) async fn run(args: ParkedArgs, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    match args.command {
        None => {
            let all = read_all(&context.source().await?).await?;
            out.document(&all, |all| table(out, &all.parked))?;
        }
        Some(ParkedCommand::Drop { letter, yes: false }) => {
            let what = format!("`{letter}` was not deleted: this cannot be undone");
            return Err(
                Failure::new(Exit::Usage, "not_confirmed", what).hint("add `--yes` to delete it")
            );
        }
        Some(ParkedCommand::Drop { letter, yes: true }) => {
            let params = ParkedDrop { letter: letter.clone() };
            let answer = context.call(calls::ParkedDrop, &params).await?;
            out.document(&answer, |_| format!("deleted {letter}"))?;
        }
    }
    Ok(Exit::Ok)
}

async fn read_all(source: &DataSource) -> Result<ParkedList, Failure> {
    let mut all = ParkedList::default();
    loop {
        let page = ListParams { cursor: all.next.take(), limit: Some(PAGE) };
        let page = source.call(calls::ParkedList, &page).await?;
        all.parked.extend(page.parked);
        all.next = page.next;
        if all.next.is_none() {
            return Ok(all);
        }
    }
}

fn table(out: Output, parked: &[ParkedRow]) -> String {
    if parked.is_empty() {
        return out.paint(Tone::Good, "no inputs are parked");
    }
    let others = entity_tables::has_others(parked.iter().map(|parked| parked.kind));
    let mut head = vec!["session", "where", "sent", "size", "why", "letter"];
    if others {
        head.splice(0..1, ["entity", "kind"]);
    }
    if out.wide {
        head.extend(["input", "idempotency key"]);
    }
    let row = |parked: &ParkedRow| {
        let mut row = vec![entity_tables::name(parked.key.as_deref(), parked.kind, parked.session)];
        row.extend(others.then(|| entity_tables::text(parked.kind)));
        row.extend([
            place(parked.at).to_owned(),
            time(parked.ts),
            size(parked.bytes),
            parked.reason.clone(),
            parked.letter.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
        if out.wide {
            let dash = || "-".to_owned();
            row.push(parked.input.map_or_else(dash, |input| input.to_string()));
            row.push(parked.idempotency_key.as_ref().map_or_else(dash, ToString::to_string));
        }
        row
    };
    out.table(&head, parked.iter().map(row))
}

/// Where an input is, in words.
pub(super) const fn place(at: ParkedWhere) -> &'static str {
    match at {
        ParkedWhere::Journal => "journal",
        ParkedWhere::Inbox => "inbox",
        ParkedWhere::DeadLetter => "dead letter",
    }
}
