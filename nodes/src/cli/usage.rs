//! `usage`: the model calls and tokens of days, agents, users or models.

use clap::Args;
use clawnode_proto::{
    api::calls,
    usage::{Calls, UsageBy, UsageParams, UsageView},
};

use super::{
    context::CliContext,
    output::{Output, clean, span},
};
use crate::failure::{Exit, Failure};

/// `usage`.
#[derive(Debug, Args)]
pub(super) struct UsageArgs {
    /// Add up by day, agent, user or model
    #[arg(long, default_value_t, value_name = "day|agent|user|model")]
    by: UsageBy,
    /// Only from the day of this time on: `7d` (seven days ago) or `2026-11-23`
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print rows separated by commas, for spreadsheets
    #[arg(long)]
    csv: bool,
}

/// What the columns are called after the first one.
const COLUMNS: [&str; 8] =
    ["calls", "failed", "gave way", "lost", "input", "cached", "output", "wasted"];

/// `usage`.
pub(super) async fn run(args: UsageArgs, context: &CliContext) -> Result<Exit, Failure> {
    let params = UsageParams { by: args.by, since: args.since };
    let view = context.call(calls::UsageShow, &params).await?;
    let out = context.out;
    out.document(&view, |view| if args.csv { csv(view) } else { table(out, view) })?;
    Ok(Exit::Ok)
}

fn table(out: Output, view: &UsageView) -> String {
    if view.rows.is_empty() {
        return format!("no model calls are counted{}", behind(view));
    }
    let head: Vec<&str> = std::iter::once(view.by.as_str()).chain(COLUMNS).collect();
    let rows = view.rows.iter().map(|row| cells(clean(&row.name), &row.calls));
    let total = (view.rows.len() > 1).then(|| cells("total".to_owned(), &view.total));
    format!("{}{}", out.table(&head, rows.chain(total)), behind(view))
}

fn cells(name: String, calls: &Calls) -> Vec<String> {
    let Calls { done, failed, lost, usage, wasted, gave_way } = calls;
    let numbers = [
        *done,
        *failed,
        *gave_way,
        *lost,
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.output_tokens,
        wasted.input_tokens.saturating_add(wasted.output_tokens),
    ];
    std::iter::once(name).chain(numbers.map(|number| number.to_string())).collect()
}

fn behind(view: &UsageView) -> String {
    if view.behind_ms == 0 {
        return String::new();
    }
    format!("\ncalls of the last {} are not all counted yet", span(view.behind_ms))
}

/// The rows without their total, as RFC 4180 has it.
fn csv(view: &UsageView) -> String {
    let columns = COLUMNS.map(|name| name.replace(' ', "_"));
    let head = std::iter::once(view.by.as_str().to_owned()).chain(columns).collect();
    let rows = view.rows.iter().map(|row| cells(row.name.clone(), &row.calls));
    let line = |cells: Vec<String>| cells.iter().map(|it| quoted(it)).collect::<Vec<_>>().join(",");
    std::iter::once(head).chain(rows).map(line).collect::<Vec<_>>().join("\n")
}

/// A cell of a spreadsheet, which takes it for no formula.
fn quoted(cell: &str) -> String {
    let guard =
        if cell.starts_with(['=', '+', '-', '@', '\t']) && cell.len() > 1 { "'" } else { "" };
    let cell = format!("{guard}{}", clean(cell));
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{llm::Usage, usage::UsageRow};

    use super::*;

    #[test]
    fn rows_say_which_attempts_gave_way() {
        let calls = Calls {
            done: 7,
            gave_way: 2,
            usage: Usage { input_tokens: 90, ..Usage::default() },
            wasted: Usage { input_tokens: 5, output_tokens: 1, ..Usage::default() },
            ..Calls::default()
        };
        let row = |name: &str| UsageRow { name: name.to_owned(), calls };
        let rows = vec![row("web:site:ada, \"a\""), row("=1+1"), row("-")];
        let view = UsageView { by: UsageBy::User, rows, ..UsageView::default() };
        let expected = "user,calls,failed,gave_way,lost,input,cached,output,wasted\n\
            \"web:site:ada, \"\"a\"\"\",7,0,2,0,90,0,0,6\n'=1+1,7,0,2,0,90,0,0,6\n-,7,0,2,0,90,0,0,6";
        assert_eq!(csv(&view), expected);
    }
}
