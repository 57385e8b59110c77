//! `ledger`: what the agent of a session wrote down while it worked.

use clap::Subcommand;
use clawnode_proto::{
    api::calls,
    ledger::{EntryType, LedgerRow, LedgerShow, LedgerView},
};

use super::{
    command_context::CliContext,
    output::{Output, clean, cut, exact, time},
};
use crate::failure::{Exit, Failure};

/// Longest text of an entry in a table; `--full` and `--json` have it whole.
const TEXT_CHARS: usize = 100;

/// What `ledger --help` ends with.
const EXAMPLES: &str = "\
An agent writes entries if it has the tool `ledger_append`. Their types are plan, finding, decision,
step, error and note.

Examples:
  clawnode ledger show default:cli:local:ada
  clawnode ledger show default:cli:local:ada --type finding --full
  clawnode ledger show default:cli:local:ada --last 20 --before 400 --json";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum LedgerCommand {
    /// Show the newest entries of a session's work ledger, the oldest of them first
    Show {
        /// The session: its key (`agent:channel:account:peer`) or its id
        session: String,
        /// Only entries of this type
        #[arg(long = "type", value_name = "TYPE")]
        entry: Option<EntryType>,
        /// Only so many of the newest entries
        #[arg(long, short = 'n', value_name = "N", default_value_t = 100,
              value_parser = clap::value_parser!(u32).range(1..=1_000))]
        last: u32,
        /// Only entries before the one of this number
        #[arg(long, value_name = "NUMBER")]
        before: Option<u64>,
        /// Show the whole text of each entry
        #[arg(long)]
        full: bool,
    },
}

/// `ledger`.
pub(super) async fn run(command: LedgerCommand, context: &CliContext) -> Result<Exit, Failure> {
    let LedgerCommand::Show { session, entry, last, before, full } = command;
    let params = LedgerShow { session, entry, last: Some(last), before };
    let view = context.source().await?.call(calls::LedgerShow, &params).await?;
    let out = context.out;
    out.document(&view, |view| if full { whole(view) } else { table(out, view) })?;
    Ok(Exit::Ok)
}

fn head(view: &LedgerView) -> String {
    let LedgerView { session, total, entries } = view;
    if entries.is_empty() {
        return format!(
            "{}: none of {total} entries; an agent writes them with the tool `ledger_append`",
            exact(session)
        );
    }
    format!("{}: {} of {total} entries", exact(session), entries.len())
}

fn table(out: Output, view: &LedgerView) -> String {
    if view.entries.is_empty() {
        return head(view);
    }
    let row = |row: &LedgerRow| {
        vec![
            row.number.to_string(),
            time(row.at),
            row.entry.as_str().to_owned(),
            cut(&row.text, TEXT_CHARS),
        ]
    };
    let table = out.table(&["number", "time", "type", "text"], view.entries.iter().map(row));
    format!("{}\n\n{table}", head(view))
}

fn whole(view: &LedgerView) -> String {
    let entry = |row: &LedgerRow| {
        let LedgerRow { number, entry, text, turn, call, at } = row;
        let head = format!("{number} {} {} ({turn}, {call})", entry.as_str(), time(*at));
        format!("\n\n{head}\n{}", clean(text))
    };
    let entries: String = view.entries.iter().map(entry).collect();
    format!("{}{entries}", head(view))
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{CallId, Timestamp, TurnId};

    use super::*;
    use crate::config::Env;

    #[test]
    fn a_ledger_without_entries_has_no_table_and_says_who_writes_them() {
        let view = LedgerView { session: "s".to_owned(), total: 0, entries: Vec::new() };
        let shown = table(Output::new(false, false, &Env::default()), &view);
        assert!(shown.starts_with("s: none of 0 entries; an agent"), "{shown}");
        assert_eq!(shown, whole(&view));
    }

    #[test]
    fn a_text_is_shown_whole_and_without_what_a_terminal_would_obey() {
        let (turn, call) = (TurnId::from_u128(1), CallId::from_u128(2));
        let text = "red: \u{1b}[31m\nblue".to_owned();
        let entry = EntryType::Finding;
        let row = LedgerRow { number: 7, entry, text, turn, call, at: Timestamp(0) };
        let view = LedgerView { session: "s".to_owned(), total: 9, entries: vec![row] };
        let shown = whole(&view);
        assert!(shown.starts_with("s: 1 of 9 entries\n"), "{shown}");
        assert!(shown.contains("\n7 finding "), "{shown}");
        assert!(shown.contains("\\u{1b}[31m\nblue"), "{shown}");
    }
}
