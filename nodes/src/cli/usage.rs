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
}

/// `usage`.
pub(super) async fn run(args: UsageArgs, context: &CliContext) -> Result<Exit, Failure> {
    let params = UsageParams { by: args.by, since: args.since };
    let view = context.call(calls::UsageShow, &params).await?;
    let out = context.out;
    out.document(&view, |view| table(out, view))?;
    Ok(Exit::Ok)
}

fn table(out: Output, view: &UsageView) -> String {
    if view.rows.is_empty() {
        return format!("no model calls are counted{}", behind(view));
    }
    let head = [view.by.as_str(), "calls", "failed", "lost", "input", "cached", "output", "wasted"];
    let rows = view.rows.iter().map(|row| cells(clean(&row.name), &row.calls));
    let total = (view.rows.len() > 1).then(|| cells("total".to_owned(), &view.total));
    format!("{}{}", out.table(&head, rows.chain(total)), behind(view))
}

fn cells(name: String, calls: &Calls) -> Vec<String> {
    let Calls { done, failed, lost, usage, wasted, .. } = calls;
    let numbers = [
        *done,
        *failed,
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
