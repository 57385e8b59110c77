//! What `jobs` prints.

use clawnode_proto::archive::{ArchiveStats, JobList, JobRun, JobView, RESULT_NAME, RunEnd};
use serde_json::Value;

use super::output::{Output, clean, count, cut, size, span, time};

/// Characters of a call in a list.
const CALL_CHARS: usize = 40;

pub(super) fn table(out: Output, list: &JobList, is_filtered: bool) -> String {
    if list.jobs.is_empty() {
        return if is_filtered { "no job matches" } else { "there are no jobs" }.to_owned();
    }
    let mut head =
        vec!["job", "tool", "arguments", "state", "session", "node", "started", "duration"];
    head.extend(["log", "files"]);
    if out.wide {
        head.extend(["runs", "capability", "turn"]);
    }
    let row = |it: &JobView| {
        let run = it.runs.last();
        let of = |what: &dyn Fn(&JobRun) -> String| run.map_or_else(String::new, what);
        let mut row = vec![
            it.job.to_string(),
            it.tool.to_string(),
            cut(&arguments(it), if out.wide { usize::MAX } else { CALL_CHARS }),
            it.status.as_str().to_owned(),
            it.session.to_string(),
            of(&|run| run.node.to_string()),
            of(&|run| time(run.began)),
            of(&took),
            of(&|run| run.log.map_or_else(String::new, |log| size(log.bytes))),
            of(&|run| run.artifacts.len().to_string()),
        ];
        if out.wide {
            row.extend([it.runs.len().to_string(), it.capability.to_string(), it.turn.to_string()]);
        }
        row
    };
    let text = out.table(&head, list.jobs.iter().map(row));
    match &list.next {
        None => text,
        Some(next) => format!("{text}\n{} more: add `--cursor {next}`", list.more),
    }
}

/// What the call was: its command, or its arguments.
fn arguments(it: &JobView) -> String {
    let command = serde_json::from_str::<Value>(&it.arguments).ok();
    let command = command.as_ref().and_then(|it| it.get("command")?.as_str());
    command.unwrap_or(&it.arguments).to_owned()
}

fn took(run: &JobRun) -> String {
    let millis = |at: clawnode_proto::Timestamp| {
        u64::try_from(at.since(run.began).as_millis()).unwrap_or(u64::MAX)
    };
    run.ended.as_ref().map_or_else(String::new, |ended| span(millis(ended.at)))
}

pub(super) fn card(out: Output, it: &JobView) -> String {
    let mut lines = vec![
        format!("job         {}", it.job),
        format!("state       {}", it.status.as_str()),
        format!("tool        {}", it.tool),
        format!("arguments   {}", cut(&it.arguments, usize::MAX)),
        format!("capability  {}", it.capability),
        format!("session     {}", it.session),
        format!("turn        {}", it.turn),
        format!("call        {}", it.call),
    ];
    for run in &it.runs {
        let how = match run.ended.as_ref().map(|ended| &ended.how) {
            None => "not ended".to_owned(),
            Some(RunEnd::Done) => "done".to_owned(),
            Some(RunEnd::Failed { failure }) => format!("failed: {}", failure.as_str()),
            Some(RunEnd::Uncertain) => "uncertain: it may have had effects".to_owned(),
            Some(RunEnd::Interrupted) => "interrupted".to_owned(),
        };
        let (number, node, process) = (run.number, &run.node, run.process);
        lines.push(format!("run {number}       on {node} ({process}), {how}"));
        lines.push(format!("  started   {}", time(run.began)));
        if run.ended.is_some() {
            lines.push(format!("  duration  {}", took(run)));
        }
        if let Some(log) = &run.log {
            let cut = log.cut.map_or_else(String::new, |cut| {
                format!(", {} ({}) left out", count(cut.lines, "line"), size(cut.bytes))
            });
            lines.push(format!("  log       {}{cut}", count(log.lines, "line")));
        }
        lines.extend(run.lost.iter().map(|lost| format!("  not kept  {}", clean(lost))));
    }
    if it.runs.iter().any(|run| !run.artifacts.is_empty() || run.result.is_some()) {
        lines.push(files(out, it));
    }
    lines.join("\n")
}

pub(super) fn sums(out: Output, it: &ArchiveStats) -> String {
    let mut rows = vec![
        vec!["jobs".to_owned(), it.jobs.to_string()],
        vec!["runs".to_owned(), it.runs.to_string()],
        vec!["logs".to_owned(), size(it.log_bytes)],
        vec!["files".to_owned(), format!("{} ({})", it.artifacts, size(it.artifact_bytes))],
    ];
    if let Some(oldest) = it.oldest {
        rows.push(vec!["oldest".to_owned(), time(oldest)]);
    }
    let states = it.by_status.iter();
    rows.extend(states.map(|(state, jobs)| vec![state.as_str().to_owned(), jobs.to_string()]));
    rows.extend(it.by_tool.iter().map(|(tool, jobs)| vec![tool.to_string(), jobs.to_string()]));
    out.table(&["what", "kept"], rows)
}

pub(super) fn files(out: Output, view: &JobView) -> String {
    let of = |run: &JobRun| {
        let row =
            |name: &str, bytes: u64| vec![run.number.to_string(), name.to_owned(), size(bytes)];
        let result = run.result.iter().map(|it| row(RESULT_NAME, it.bytes));
        let made = run.artifacts.iter().map(|it| row(&it.name, it.bytes));
        result.chain(made).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = view.runs.iter().flat_map(of).collect();
    if rows.is_empty() {
        return format!("job {} has no files", view.job);
    }
    out.table(&["run", "name", "size"], rows)
}
