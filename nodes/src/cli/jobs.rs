//! `jobs`: what is kept of tool calls that any node with the capability ran.

use std::{path::PathBuf, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, Subcommand, ValueEnum};
use clawnode_proto::{
    api::Method,
    archive::{
        ArchiveStats, ArtifactView, CleanView, JobArtifact, JobList, JobLogs, JobParams, JobRun,
        JobStatus, JobView, JobsClean, JobsList, LogCut, LogLine, LogStream, LogView, RESULT_NAME,
        RunEnd,
    },
};
use serde_json::json;

use super::{
    context::Context,
    link::Link,
    output::{Output, clean, count, size, span, time},
};
use crate::{
    config::units::parse_duration,
    failure::{Exit, Failure},
};

/// How long one question waits for a line, in milliseconds.
const WAIT_MS: u32 = 10_000;
/// Lines of one answer.
const PAGE: u32 = 1_000;

/// What `jobs --help` ends with.
const EXAMPLES: &str = "\
A job is a tool call that any node with the capability may run: a command, a call of an MCP server.
What it says and the files that it leaves in CLAWNODE_ARTIFACTS are kept for `tools.keep_jobs`; its
result is in its session. Of a run whose node died only the record is left. Logs may hold what a
tool printed, whatever that is.

Examples:
  clawnode jobs list --state failed
  clawnode jobs logs JOB --follow
  clawnode jobs logs JOB --stream stderr --search error --tail 20
  clawnode jobs artifacts JOB report.html --to report.html
  clawnode jobs clean --older-than 1d";

/// `jobs`.
#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum JobsCommand {
    /// List the jobs that are kept, the newest first
    List(ListArgs),
    /// Show what is kept of one
    Show {
        /// Its id, as the list has it, or that of its call
        job: String,
    },
    /// Print what one has said
    Logs(LogsArgs),
    /// List the files that one has made, or fetch one of them
    Artifacts(ArtifactsArgs),
    /// Remove what is kept of jobs; those that run stay
    Clean(CleanArgs),
    /// Show how much is kept
    Stats,
}

/// `jobs list`.
#[derive(Debug, Args)]
pub(super) struct ListArgs {
    /// Only those of this session, by key or id
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Only those of this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Only those of this tool
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// Only those in this state
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<State>,
    /// At most this many
    #[arg(long, short = 'n', default_value_t = 100, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
}

/// `jobs logs`.
#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    /// Its id, as the list has it, or that of its call
    job: String,
    /// Go on until it has ended
    #[arg(long, short)]
    follow: bool,
    /// Begin with the last lines that fit, so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    tail: Option<u32>,
    /// Only lines with this text, in upper or lower case
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only what was said there
    #[arg(long, value_enum, value_name = "STREAM")]
    stream: Option<Stream>,
    /// Of this run, not of the last one
    #[arg(long, value_name = "N")]
    run: Option<u32>,
}

/// `jobs artifacts`.
#[derive(Debug, Args)]
pub(super) struct ArtifactsArgs {
    /// Its id, as the list has it, or that of its call
    job: String,
    /// The file to fetch, as the list has it
    name: Option<String>,
    /// Write it there, not to standard output
    #[arg(long, value_name = "FILE", requires = "name")]
    to: Option<PathBuf>,
    /// Of this run, not of the last one that made it
    #[arg(long, value_name = "N")]
    run: Option<u32>,
}

/// `jobs clean`.
#[derive(Debug, Args)]
pub(super) struct CleanArgs {
    /// Only those that ended longer ago than this: `7d`, `12h`
    #[arg(long, value_name = "TIME", value_parser = parse_duration, required_unless_present_any = ["job", "session"])]
    older_than: Option<Duration>,
    /// Only this one
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Only those of this session, by key or id
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
}

/// How a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum State {
    // It runs.
    Running,
    // It did what was asked.
    Done,
    // It did not.
    Failed,
    // Nobody knows what it has done.
    Uncertain,
    // What ran it stopped before it had ended.
    Interrupted,
    // The process that ran it is gone, and what it said with it.
    Lost,
}

/// Where something was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Stream {
    // What it says.
    Stdout,
    // What it says of itself, and of what went wrong.
    Stderr,
}

/// `jobs`.
pub(super) async fn run(command: JobsCommand, context: &Context) -> Result<Exit, Failure> {
    let out = context.out;
    match command {
        JobsCommand::List(args) => {
            let params = JobsList {
                session: args.session,
                agent: args.agent,
                tool: args.tool,
                state: args.state.map(JobStatus::from),
                limit: Some(args.limit),
            };
            let list: JobList = context.call(Method::JobsList, json!(params)).await?;
            out.document(&list, |list| table(out, list))?;
        }
        JobsCommand::Show { job } => {
            let view = show(context, job).await?;
            out.document(&view, |view| card(out, view))?;
        }
        JobsCommand::Logs(args) => logs(args, context).await?,
        JobsCommand::Artifacts(args) => artifacts(args, context).await?,
        JobsCommand::Clean(args) => {
            let view = remove(args, context).await?;
            out.document(&view, |view| {
                let (jobs, bytes) = (count(view.jobs, "job"), size(view.bytes));
                format!("removed {jobs}, {bytes} of logs and files")
            })?;
        }
        JobsCommand::Stats => {
            let stats: ArchiveStats = context.call(Method::JobsStats, json!({})).await?;
            out.document(&stats, |stats| sums(out, stats))?;
        }
    }
    Ok(Exit::Ok)
}

async fn show(context: &Context, job: String) -> Result<JobView, Failure> {
    context.call(Method::JobsShow, json!(JobParams { job })).await
}

/// Removes portion by portion.
async fn remove(args: CleanArgs, context: &Context) -> Result<CleanView, Failure> {
    let millis = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let params = JobsClean {
        older_than_ms: args.older_than.map(millis),
        job: args.job,
        session: args.session,
    };
    let mut all = CleanView::default();
    loop {
        let view: CleanView = context.call(Method::JobsClean, json!(params)).await?;
        all.jobs += view.jobs;
        all.blobs += view.blobs;
        all.bytes += view.bytes;
        if view.more == 0 || view.jobs == 0 {
            return Ok(CleanView { more: view.more, ..all });
        }
    }
}

// === logs ===

/// What has been printed of a log.
#[derive(Debug, Default)]
struct Printed {
    last: u64,
    told_cut: u64,
    told_lost: bool,
}

/// With `--json` one line of the log a line, so that a program can follow as well.
async fn logs(args: LogsArgs, context: &Context) -> Result<(), Failure> {
    let mut link = Link::at(context.out, context.reached().await?);
    let mut params = JobLogs {
        job: args.job,
        run: args.run,
        after: None,
        tail: args.tail,
        search: args.search,
        stream: args.stream.map(LogStream::from),
        limit: args.tail.is_none().then_some(PAGE),
        wait_ms: None,
    };
    let mut printed = Printed::default();
    loop {
        let view: LogView = link.call(Method::JobsLogs, |_| json!(params)).await?;
        printed.print(context.out, &view)?;
        let is_all = view.over || view.lines.is_empty() || params.tail.is_some();
        if !args.follow && is_all {
            return Ok(());
        }
        params = JobLogs {
            run: Some(view.run),
            after: Some(view.next),
            tail: None,
            limit: Some(PAGE),
            wait_ms: args.follow.then_some(WAIT_MS),
            ..params
        };
        if view.over {
            if args.run.is_some() || view.runs <= view.run {
                return Ok(());
            }
            let next = view.run + 1;
            context.out.aside(&format!("run {next} of the job"));
            params = JobLogs { run: Some(next), after: None, ..params };
            printed = Printed::default();
        }
    }
}

impl Printed {
    fn print(&mut self, out: Output, view: &LogView) -> Result<(), Failure> {
        for line in &view.lines {
            self.gap(out, view.cut.as_ref(), line.n);
            self.last = line.n;
            if out.json {
                out.json_line(line)?;
            } else {
                out.write(&told(out, line))?;
            }
        }
        if view.over && !self.told_lost {
            self.told_lost = true;
            if let Some(LogCut { unheard: bytes @ 1.., .. }) = view.cut {
                out.aside(&format!("{} more were said and are not kept", size(bytes)));
            }
            for lost in &view.lost {
                out.aside(&format!("not kept: {}", clean(lost)));
            }
        }
        Ok(())
    }

    /// Tells what is missing before line `n`.
    fn gap(&mut self, out: Output, cut: Option<&LogCut>, n: u64) {
        let Some(cut) = cut.filter(|cut| cut.lines > 0) else { return };
        if self.told_cut == 0 && self.last <= cut.after && n > cut.after + cut.lines {
            self.told_cut = cut.lines;
            let (lines, bytes) = (count(cut.lines, "line"), size(cut.bytes));
            out.aside(&format!("{lines} ({bytes}) are left out here"));
        }
    }
}

/// A line as it was said; on wide screens with when and where.
fn told(out: Output, line: &LogLine) -> String {
    let end = if line.goes_on && !out.wide { "" } else { "\n" };
    let text = clean(&line.text);
    if out.wide {
        return format!("{} {} {text}{end}", time(line.at), line.stream.as_str());
    }
    format!("{text}{end}")
}

// === artifacts ===

async fn artifacts(args: ArtifactsArgs, context: &Context) -> Result<(), Failure> {
    let out = context.out;
    let Some(name) = args.name else {
        let view = show(context, args.job).await?;
        return out.document(&view, |view| files(out, view));
    };
    let mut params = JobArtifact { job: args.job, name, run: args.run, offset: 0 };
    let mut whole = Vec::new();
    loop {
        let part: ArtifactView = context.call(Method::JobsArtifact, json!(params)).await?;
        let bytes = STANDARD.decode(&part.content).map_err(|error| {
            let what = format!("the answer is not base64: {error}");
            Failure::new(Exit::Failed, "protocol", what)
        })?;
        whole.extend(bytes);
        match part.next {
            Some(next) if next > params.offset => params.offset = next,
            _ => break,
        }
    }
    let Some(to) = args.to else { return out.bytes(&whole) };
    std::fs::write(&to, &whole).map_err(|error| {
        let what = format!("cannot write `{}`: {error}", to.display());
        Failure::new(Exit::Failed, "output", what).hint("name another file with `--to`")
    })?;
    out.aside(&format!("{} written to `{}`", size(whole.len() as u64), to.display()));
    Ok(())
}

fn files(out: Output, view: &JobView) -> String {
    let of = |run: &JobRun| {
        let row =
            |name: &str, bytes: u64| vec![run.number.to_string(), name.to_owned(), size(bytes)];
        let result = run.result.iter().map(|it| row(RESULT_NAME, it.bytes));
        let made = run.artifacts.iter().map(|it| row(&it.name, it.bytes));
        result.chain(made).collect::<Vec<_>>()
    };
    let rows: Vec<Vec<String>> = view.runs.iter().flat_map(of).collect();
    if rows.is_empty() {
        return format!("nothing is kept that job {} has made", view.job);
    }
    out.table(&["run", "name", "size"], rows)
}

// === tables ===

fn table(out: Output, list: &JobList) -> String {
    if list.jobs.is_empty() {
        return "no such job is kept".to_owned();
    }
    let mut head = vec!["job", "tool", "state", "session", "node", "began", "took", "log", "files"];
    if out.wide {
        head.extend(["runs", "capability", "turn"]);
    }
    let row = |it: &JobView| {
        let run = it.runs.last();
        let of = |what: &dyn Fn(&JobRun) -> String| run.map_or_else(String::new, what);
        let mut row = vec![
            it.job.to_string(),
            it.tool.to_string(),
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
    match list.more {
        0 => text,
        more => format!("{text}\n{more} more; see `--limit`"),
    }
}

fn took(run: &JobRun) -> String {
    let millis = |at: clawnode_proto::Timestamp| {
        u64::try_from(at.since(run.began).as_millis()).unwrap_or(u64::MAX)
    };
    run.ended.as_ref().map_or_else(String::new, |ended| span(millis(ended.at)))
}

fn card(out: Output, it: &JobView) -> String {
    let mut lines = vec![
        format!("job         {}", it.job),
        format!("state       {}", it.status.as_str()),
        format!("tool        {}", it.tool),
        format!("capability  {}", it.capability),
        format!("session     {}", it.session),
        format!("turn        {}", it.turn),
        format!("call        {}", it.call),
    ];
    for run in &it.runs {
        let how = match run.ended.as_ref().map(|ended| &ended.how) {
            None => "has no end".to_owned(),
            Some(RunEnd::Done) => "done".to_owned(),
            Some(RunEnd::Failed { failure }) => format!("failed: {}", failure.as_str()),
            Some(RunEnd::Uncertain) => "nobody knows what it has done".to_owned(),
            Some(RunEnd::Interrupted) => "interrupted".to_owned(),
        };
        let (number, node, process) = (run.number, &run.node, run.process);
        lines.push(format!("run {number}       on {node} ({process}), {how}"));
        lines.push(format!("  began     {}", time(run.began)));
        if run.ended.is_some() {
            lines.push(format!("  took      {}", took(run)));
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

fn sums(out: Output, it: &ArchiveStats) -> String {
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

impl From<State> for JobStatus {
    fn from(state: State) -> Self {
        match state {
            State::Running => Self::Running,
            State::Done => Self::Done,
            State::Failed => Self::Failed,
            State::Uncertain => Self::Uncertain,
            State::Interrupted => Self::Interrupted,
            State::Lost => Self::Lost,
        }
    }
}

impl From<Stream> for LogStream {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Stdout => Self::Stdout,
            Stream::Stderr => Self::Stderr,
        }
    }
}
