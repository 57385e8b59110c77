//! `usage`: the model calls, tokens and cost of days, agents, users or models; each call; and the audit of a day.

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use clawnode_proto::{
    Cursor,
    api::calls,
    llm::Usage,
    money::MicroUsd,
    usage::{
        AuditRow, CallEnd, Calls, UsageAudit, UsageAuditParams, UsageBy, UsageCall, UsageCalls,
        UsageCallsParams, UsageParams, UsageView,
    },
};

use super::{
    command_context::CliContext,
    output::{Output, clean, count, span, time},
};
use crate::failure::{Exit, Failure};

/// What `usage --help` ends with.
const EXAMPLES: &str = "\
The first worker of the cluster counts model calls from the journals, some seconds after they end.
Days are in UTC; usage is kept for 100 of them. `~` is before numbers of which some are estimates,
because a provider did not report them. The cost is that of calls for which a limit held; `+` is
behind it if there were others, whose price is not recorded.

Examples:
  clawnode usage
  clawnode usage --by agent --since 7d
  clawnode usage --by user --since 2026-11-01 --json
  clawnode usage --calls --since 1d
  clawnode usage audit 2026-11-25";

/// Rows of one page of calls.
const PAGE: u32 = 1_000;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_help = EXAMPLES)]
pub(super) struct UsageArgs {
    #[command(subcommand)]
    command: Option<UsageCommand>,
    /// Add up by day, agent, user or model
    #[arg(long, default_value_t, value_name = "day|agent|user|model")]
    by: UsageBy,
    /// Only from the day of this time on: `7d` (seven days ago) or `2026-11-23`
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print rows separated by commas, for spreadsheets
    #[arg(long)]
    csv: bool,
    /// Show each call, the newest first
    #[arg(long, conflicts_with = "by")]
    calls: bool,
    /// With `--calls`: at most this many
    #[arg(long, default_value_t = 100, value_name = "N", requires = "calls")]
    limit: u32,
    /// With `--calls`: continue where an earlier list ended
    #[arg(long, value_name = "CURSOR", requires = "calls", allow_hyphen_values = true)]
    cursor: Option<Cursor>,
}

/// What else there is of usage.
#[derive(Debug, Subcommand)]
enum UsageCommand {
    /// Count a day again from the journals, and compare
    Audit {
        /// The day, in UTC: `2026-11-25`
        day: String,
    },
}

/// What the columns are called after the first one.
pub(super) const COLUMNS: [&str; 9] =
    ["calls", "failed", "gave way", "lost", "input", "cached", "output", "wasted", "cost"];
/// What rows for spreadsheets have beside these.
const CSV_COLUMNS: [&str; 2] = ["unpriced", "estimated"];
/// What the columns of calls are called.
const CALL_COLUMNS: [&str; 11] = [
    "time", "session", "agent", "user", "model", "input", "cached", "output", "cost", "attempt",
    "end",
];
/// What rows of calls for spreadsheets have beside these.
const CALL_CSV_COLUMNS: [&str; 2] = ["wasted", "estimated"];

/// `usage`.
pub(super) async fn run(args: UsageArgs, context: &CliContext) -> Result<Exit, Failure> {
    if let Some(UsageCommand::Audit { day }) = args.command {
        return audit(day, context).await;
    }
    if args.calls {
        return each(args, context).await;
    }
    let params = UsageParams { by: args.by, since: args.since };
    let view = context.call(calls::UsageShow, &params).await?;
    let out = context.out;
    out.document(&view, |view| if args.csv { csv(view) } else { table(out, view) })?;
    Ok(Exit::Ok)
}

async fn each(args: UsageArgs, context: &CliContext) -> Result<Exit, Failure> {
    let mut all = UsageCalls { next: args.cursor, ..UsageCalls::default() };
    let mut left = args.limit.max(1);
    loop {
        let (since, cursor) = (args.since.clone(), all.next.take());
        let params = UsageCallsParams { since, cursor, limit: Some(left.min(PAGE)) };
        let page = context.call(calls::UsageCalls, &params).await?;
        left = left.saturating_sub(u32::try_from(page.calls.len()).unwrap_or(u32::MAX));
        all.calls.extend(page.calls);
        all.partial |= page.partial;
        all.next = page.next;
        if left == 0 || all.next.is_none() {
            break;
        }
    }
    let out = context.out;
    out.document(&all, |all| if args.csv { calls_csv(&all.calls) } else { call_table(out, all) })?;
    if !out.json {
        if let Some(next) = &all.next {
            out.talk(&format!("more with `--cursor {next}`"));
        }
        if all.partial {
            out.talk("some calls are missing: there are too many sessions, or one cannot be read");
        }
    }
    Ok(Exit::Ok)
}

async fn audit(day: String, context: &CliContext) -> Result<Exit, Failure> {
    let view = context.call(calls::UsageAudit, &UsageAuditParams { day }).await?;
    let out = context.out;
    out.document(&view, |view| audited(out, view))?;
    Ok(if view.differences.is_empty() { Exit::Ok } else { Exit::Failed })
}

fn table(out: Output, view: &UsageView) -> String {
    if view.rows.is_empty() {
        return format!("no model calls are counted{}", behind(view));
    }
    let head: Vec<&str> = std::iter::once(view.by.as_str()).chain(COLUMNS).collect();
    let rows = view.rows.iter().map(|row| cells(clean(&row.name), &row.calls));
    let total = (view.rows.len() > 1).then(|| cells("total".to_owned(), &view.total));
    format!("{}{}{}", out.table(&head, rows.chain(total)), unpriced(&view.total), behind(view))
}

pub(super) fn cells(name: String, calls: &Calls) -> Vec<String> {
    let Calls { done, failed, lost, usage, wasted, gave_way, .. } = calls;
    let [input, cached, output] = tokens(usage);
    let in_vain = wasted.input_tokens.saturating_add(wasted.output_tokens);
    let counts = [*done, *failed, *gave_way, *lost].map(|number| number.to_string());
    let more = [input, cached, output, about(wasted.estimated, in_vain), cost(calls)];
    std::iter::once(name).chain(counts).chain(more).collect()
}

/// What was read, what of it came from a cache, and what was written.
fn tokens(usage: &Usage) -> [String; 3] {
    [
        about(usage.estimated, usage.input_tokens),
        usage.cache_read_tokens.to_string(),
        about(usage.estimated, usage.output_tokens),
    ]
}

fn about(estimated: bool, tokens: u64) -> String {
    format!("{}{tokens}", if estimated { "~" } else { "" })
}

fn cost(calls: &Calls) -> String {
    match (calls.cost, calls.unpriced) {
        (MicroUsd(0), 1..) => "-".to_owned(),
        (cost, 0) => format!("${cost}"),
        (cost, _) => format!("${cost}+"),
    }
}

pub(super) fn unpriced(total: &Calls) -> String {
    match total.unpriced {
        0 => String::new(),
        calls => format!(
            "\n{} without a recorded price, because no limit held for them",
            count(calls, "attempt")
        ),
    }
}

fn behind(view: &UsageView) -> String {
    if view.behind_ms == 0 {
        return String::new();
    }
    format!("\ncalls of the last {} are not all counted yet", span(view.behind_ms))
}

fn call_table(out: Output, all: &UsageCalls) -> String {
    if all.calls.is_empty() {
        return "no model calls".to_owned();
    }
    out.table(&CALL_COLUMNS, all.calls.iter().map(call_cells))
}

fn call_cells(call: &UsageCall) -> Vec<String> {
    let [input, cached, output] = tokens(&call.usage);
    let end = ended(call.end);
    vec![
        time(call.at),
        call.session.to_string(),
        call.agent.to_string(),
        clean(&call.user),
        clean(&call.model.to_string()),
        input,
        cached,
        output,
        call.cost.map_or_else(|| "-".to_owned(), |cost| format!("${cost}")),
        call.attempt.to_string(),
        if call.wasted { format!("{end}, wasted") } else { end.to_owned() },
    ]
}

const fn ended(end: CallEnd) -> &'static str {
    match end {
        CallEnd::Done => "done",
        CallEnd::Failed => "failed",
        CallEnd::GaveWay => "gave way",
        CallEnd::Lost => "lost",
    }
}

fn audited(out: Output, view: &UsageAudit) -> String {
    let UsageAudit { day, counted, journaled, differences, unproven, .. } = view;
    let mut text = if differences.is_empty() {
        let calls = [journaled.done, journaled.failed, journaled.gave_way, journaled.lost];
        let calls = calls.into_iter().fold(0_u64, u64::saturating_add);
        let cost = journaled.cost;
        format!("{day}: {} and ${cost} in the journals, as counted", count(calls, "attempt"))
    } else {
        let head = ["agent", "user", "model", "answered", "what", "counted", "journals"];
        let rows = differences.iter().flat_map(different);
        let (counted, journaled) = (counted.cost, journaled.cost);
        format!(
            "{}\n{day}: ${counted} counted, ${journaled} in the journals",
            out.table(&head, rows)
        )
    };
    if !unproven.is_empty() {
        let _written = write!(
            text,
            "\n{} with more than the journals have: the journals of {} deleted on this day or later are gone",
            count(u64::try_from(unproven.len()).unwrap_or(u64::MAX), "row"),
            count(view.deleted, "session")
        );
    }
    if view.unreadable > 0 {
        let journals = count(view.unreadable, "journal");
        let _written =
            write!(text, "\n{journals} cannot be read whole; see `clawnode journal verify`");
    }
    text
}

/// A line for each number that differs.
fn different(row: &AuditRow) -> Vec<Vec<String>> {
    let (counted, journaled) = (numbers(&row.counted), numbers(&row.journaled));
    let differ = counted.into_iter().zip(journaled).filter(|(one, other)| one != other);
    let names =
        || [row.agent.as_str(), &row.user, &row.model, &row.answered].map(clean).into_iter();
    differ
        .map(|((what, one), (_, other))| names().chain([what.to_owned(), one, other]).collect())
        .collect()
}

fn numbers(calls: &Calls) -> [(&'static str, String); 14] {
    let Calls { done, failed, lost, usage, wasted, gave_way, cost, unpriced } = calls;
    [
        ("calls", done.to_string()),
        ("failed", failed.to_string()),
        ("gave way", gave_way.to_string()),
        ("lost", lost.to_string()),
        ("input", about(usage.estimated, usage.input_tokens)),
        ("output", about(usage.estimated, usage.output_tokens)),
        ("cache read", usage.cache_read_tokens.to_string()),
        ("cache write", usage.cache_write_tokens.to_string()),
        ("reasoning", usage.reasoning_tokens.to_string()),
        ("wasted input", about(wasted.estimated, wasted.input_tokens)),
        ("wasted output", about(wasted.estimated, wasted.output_tokens)),
        (
            "wasted cache",
            wasted.cache_read_tokens.saturating_add(wasted.cache_write_tokens).to_string(),
        ),
        ("cost", format!("${cost}")),
        ("unpriced", unpriced.to_string()),
    ]
}

/// The rows without their total, as RFC 4180 has it.
fn csv(view: &UsageView) -> String {
    let head: Vec<&str> =
        std::iter::once(view.by.as_str()).chain(COLUMNS).chain(CSV_COLUMNS).collect();
    let rows = view.rows.iter().map(|row| {
        let calls = &row.calls;
        // Numbers alone, as a spreadsheet adds them up; what they are worth has columns of its own.
        let plain = |usage: Usage| Usage { estimated: false, ..usage };
        let (usage, wasted) = (plain(calls.usage), plain(calls.wasted));
        let shown = Calls { usage, wasted, unpriced: 0, ..*calls };
        let mut line = cells(row.name.clone(), &shown);
        line.pop();
        let estimated = if calls.usage.estimated || calls.wasted.estimated { "yes" } else { "no" };
        line.extend([calls.cost.to_string(), calls.unpriced.to_string(), estimated.to_owned()]);
        line
    });
    csv_lines(&head, rows)
}

/// Calls as RFC 4180 has them. A cost that is not recorded is an empty cell: it is not nothing.
fn calls_csv(calls: &[UsageCall]) -> String {
    let head: Vec<&str> = CALL_COLUMNS.into_iter().chain(CALL_CSV_COLUMNS).collect();
    let rows = calls.iter().map(|call| {
        let Usage { input_tokens, output_tokens, cache_read_tokens, estimated, .. } = call.usage;
        let wasted = if call.wasted { input_tokens.saturating_add(output_tokens) } else { 0 };
        vec![
            time(call.at),
            call.session.to_string(),
            call.agent.to_string(),
            call.user.clone(),
            call.model.to_string(),
            input_tokens.to_string(),
            cache_read_tokens.to_string(),
            output_tokens.to_string(),
            call.cost.map(|cost| cost.to_string()).unwrap_or_default(),
            call.attempt.to_string(),
            ended(call.end).to_owned(),
            wasted.to_string(),
            if estimated { "yes" } else { "no" }.to_owned(),
        ]
    });
    csv_lines(&head, rows)
}

fn csv_lines(head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let head = head.iter().map(|name| name.replace(' ', "_")).collect();
    let line =
        |cells: Vec<String>| cells.iter().map(|cell| quoted(cell)).collect::<Vec<_>>().join(",");
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
    use clawnode_proto::{Attempt, CallId, EntityId, Kind, Timestamp, TurnId, usage::UsageRow};

    use super::*;

    #[test]
    fn rows_say_which_attempts_gave_way() {
        let calls = Calls {
            done: 7,
            gave_way: 2,
            usage: Usage { input_tokens: 90, ..Usage::default() },
            wasted: Usage { input_tokens: 5, output_tokens: 1, ..Usage::default() },
            cost: MicroUsd(1_250_000),
            ..Calls::default()
        };
        let row = |name: &str| UsageRow { name: name.to_owned(), calls };
        let rows = vec![row("web:site:ada, \"a\""), row("=1+1"), row("-")];
        let view = UsageView { by: UsageBy::User, rows, ..UsageView::default() };
        let head =
            "user,calls,failed,gave_way,lost,input,cached,output,wasted,cost,unpriced,estimated\n";
        let rest = "7,0,2,0,90,0,0,6,1.25,0,no";
        let expected = format!("{head}\"web:site:ada, \"\"a\"\"\",{rest}\n'=1+1,{rest}\n-,{rest}");
        assert_eq!(csv(&view), expected);
    }

    #[test]
    fn calls_for_spreadsheets_are_numbers_alone() {
        let usage = Usage {
            input_tokens: 90,
            output_tokens: 6,
            cache_read_tokens: 40,
            estimated: true,
            ..Usage::default()
        };
        let call = |end, cost| UsageCall {
            at: Timestamp(0),
            session: EntityId::derive(Kind::SESSION, "a:b:c:d"),
            turn: None,
            call: CallId::derive(TurnId::from_u128(1), 0),
            attempt: Attempt(2),
            agent: "default".parse().unwrap(),
            user: "=1+1".to_owned(),
            model: "p/m".parse().unwrap(),
            answered: "m-1".to_owned(),
            end,
            usage,
            cost,
            wasted: end != CallEnd::Done,
        };
        let calls = [call(CallEnd::Done, Some(MicroUsd(1_250_000))), call(CallEnd::GaveWay, None)];
        let head =
            "time,session,agent,user,model,input,cached,output,cost,attempt,end,wasted,estimated";
        let begin = format!("1970-01-01T00:00:00Z,{},default,'=1+1,p/m,90,40,6,", calls[0].session);
        let expected = format!("{head}\n{begin}1.25,2,done,0,yes\n{begin},2,gave way,96,yes");
        assert_eq!(calls_csv(&calls), expected);
        // The table is for people.
        let [done, gave_way] = calls.map(|call| call_cells(&call).split_off(7));
        assert_eq!(done, ["~6", "$1.25", "2", "done"]);
        assert_eq!(gave_way, ["~6", "-", "2", "gave way, wasted"]);
    }

    #[test]
    fn what_is_estimated_or_has_no_price_shows() {
        let shown = |calls: Calls| cells("n".to_owned(), &calls).split_off(5);
        let used = Usage { input_tokens: 9, output_tokens: 2, ..Usage::default() };
        let priced = Calls { done: 1, usage: used, cost: MicroUsd(70), ..Calls::default() };
        assert_eq!(shown(priced), ["9", "0", "2", "0", "$0.00007"]);
        let estimated = Usage { estimated: true, ..used };
        let calls = Calls { usage: estimated, unpriced: 1, ..priced };
        assert_eq!(shown(calls), ["~9", "0", "~2", "0", "$0.00007+"]);
        assert_eq!(shown(Calls { cost: MicroUsd(0), ..calls })[4], "-", "not nothing");
        assert_eq!(shown(Calls { cost: MicroUsd(0), unpriced: 0, ..calls })[4], "$0.00");
    }

    #[test]
    fn an_audit_names_each_number_that_differs() {
        let counted = Calls { done: 2, cost: MicroUsd(5), ..Calls::default() };
        let journaled = Calls { cost: MicroUsd(6), ..counted };
        let row = AuditRow {
            agent: "default".parse().unwrap(),
            user: "cli:local:ada".to_owned(),
            model: "p/m".to_owned(),
            answered: "m-1".to_owned(),
            counted,
            journaled,
        };
        let line = ["default", "cli:local:ada", "p/m", "m-1", "cost", "$0.000005", "$0.000006"];
        assert_eq!(different(&row), [line.map(str::to_owned).to_vec()]);
    }
}
