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
    let row = |view: &JobView| {
        let run = view.runs.last();
        let of_run = |what: &dyn Fn(&JobRun) -> String| run.map_or_else(String::new, what);
        let mut row = vec![
            view.job.to_string(),
            view.tool.to_string(),
            cut(&arguments(view), if out.wide { usize::MAX } else { CALL_CHARS }),
            view.status.as_str().to_owned(),
            view.session.to_string(),
            of_run(&|run| run.node.to_string()),
            of_run(&|run| time(run.began)),
            of_run(&took),
            of_run(&|run| run.log.map_or_else(String::new, |log| size(log.bytes))),
            of_run(&|run| run.artifacts.len().to_string()),
        ];
        if out.wide {
            row.extend([
                view.runs.len().to_string(),
                view.capability.to_string(),
                view.turn.to_string(),
            ]);
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
fn arguments(view: &JobView) -> String {
    let command = serde_json::from_str::<Value>(&view.arguments).ok();
    let command = command.as_ref().and_then(|command| command.get("command")?.as_str());
    command.unwrap_or(&view.arguments).to_owned()
}

fn took(run: &JobRun) -> String {
    let millis = |at: clawnode_proto::Timestamp| {
        u64::try_from(at.since(run.began).as_millis()).unwrap_or(u64::MAX)
    };
    run.ended.as_ref().map_or_else(String::new, |ended| span(millis(ended.at)))
}

pub(super) fn card(out: Output, view: &JobView) -> String {
    let mut lines = vec![
        format!("job         {}", view.job),
        format!("state       {}", view.status.as_str()),
        format!("tool        {}", view.tool),
        format!("arguments   {}", cut(&view.arguments, usize::MAX)),
        format!("capability  {}", view.capability),
        format!("session     {}", view.session),
        format!("turn        {}", view.turn),
        format!("call        {}", view.call),
    ];
    for run in &view.runs {
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
    if view.runs.iter().any(|run| !run.artifacts.is_empty() || run.result.is_some()) {
        lines.push(files(out, view));
    }
    lines.join("\n")
}

pub(super) fn sums(out: Output, archive: &ArchiveStats) -> String {
    let mut rows = vec![
        vec!["jobs".to_owned(), archive.jobs.to_string()],
        vec!["runs".to_owned(), archive.runs.to_string()],
        vec!["logs".to_owned(), size(archive.log_bytes)],
        vec![
            "files".to_owned(),
            format!("{} ({})", archive.artifacts, size(archive.artifact_bytes)),
        ],
    ];
    if let Some(oldest) = archive.oldest {
        rows.push(vec!["oldest".to_owned(), time(oldest)]);
    }
    let states = archive.by_status.iter();
    rows.extend(states.map(|(state, jobs)| vec![state.as_str().to_owned(), jobs.to_string()]));
    rows.extend(
        archive.by_tool.iter().map(|(tool, jobs)| vec![tool.to_string(), jobs.to_string()]),
    );
    out.table(&["what", "kept"], rows)
}

pub(super) fn files(out: Output, view: &JobView) -> String {
    let rows_of = |run: &JobRun| {
        let row =
            |name: &str, bytes: u64| vec![run.number.to_string(), name.to_owned(), size(bytes)];
        let result = run.result.iter().map(|result| row(RESULT_NAME, result.bytes));
        let made = run.artifacts.iter().map(|artifact| row(&artifact.name, artifact.bytes));
        result.chain(made).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = view.runs.iter().flat_map(rows_of).collect();
    if rows.is_empty() {
        return format!("job {} has no files", view.job);
    }
    out.table(&["run", "name", "size"], rows)
}
