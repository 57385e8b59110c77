//! `jobs`: the records, logs and files of tool calls that any node with the capability ran.

use std::{path::PathBuf, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, Subcommand, ValueEnum};
use clawnode_proto::{
    Cursor,
    api::{JobArtifact, JobLogs, JobParams, JobsClean, JobsList, Nothing, calls},
    archive::{CleanView, JobStatus, JobView, LogCut, LogLine, LogStream, LogView},
};

use super::{
    command_context::CliContext,
    id_prefix,
    job_tables::{card, files, sums, table},
    output::{Output, clean, count, size, time},
    reconnection::Link,
};
use crate::{
    config::units::parse_duration,
    failure::{Exit, Failure},
};

/// How long one question waits for a line, in milliseconds.
const WAIT_MS: u32 = 10_000;
/// Lines or jobs of one answer.
const PAGE: u32 = 1_000;

/// What `jobs --help` ends with.
const EXAMPLES: &str = "\
A job is a tool call that any node with the capability may run, such as a command or a call of an
MCP server. Its output and the files that it leaves in CLAWNODE_ARTIFACTS are kept for
`tools.keep_jobs`; its result is in its session. If the node of a run dies, only the record
remains. Logs may contain secrets that a tool printed. The first characters of an id are enough.

Examples:
  clawnode jobs list --state failed
  clawnode jobs show JOB
  clawnode jobs logs JOB --follow
  clawnode jobs logs JOB --stream stderr --search error --tail 20
  clawnode jobs artifacts JOB report.html --to report.html
  clawnode jobs clean --older-than 1d
  clawnode jobs stats";

#[derive(Debug, Subcommand)]
#[command(after_help = EXAMPLES)]
pub(super) enum JobsCommand {
    /// List jobs, the newest first
    List(JobsListArgs),
    /// Show a job and its runs
    Show {
        /// The job's id or its call's id, or the first characters
        job: String,
    },
    /// Print the output of a job
    Logs(LogsArgs),
    /// List the files that a job made, or fetch one of them
    Artifacts(ArtifactsArgs),
    /// Remove records, logs and files of jobs; running jobs stay
    Clean(CleanArgs),
    /// Show how many jobs are kept, and their size
    Stats,
}

#[derive(Debug, Args)]
pub(super) struct JobsListArgs {
    /// Only jobs of this session, by key or id
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
    /// Only jobs of this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<String>,
    /// Only jobs of this tool
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// Only jobs in this state
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<JobStateArg>,
    /// At most this many
    #[arg(long, short = 'n', default_value_t = 100, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=1_000))]
    limit: u32,
    /// Continue where an earlier list ended
    #[arg(long, value_name = "CURSOR", allow_hyphen_values = true)]
    cursor: Option<Cursor>,
}

/// `jobs logs`.
#[derive(Debug, Args)]
pub(super) struct LogsArgs {
    /// The job's id or its call's id, or the first characters
    job: String,
    /// Follow the output until the job has ended
    #[arg(long, short)]
    follow: bool,
    /// Print only this many of the last lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    tail: Option<u32>,
    /// Only lines with this text, in upper or lower case
    #[arg(long, value_name = "TEXT")]
    search: Option<String>,
    /// Only this stream
    #[arg(long, value_enum, value_name = "STREAM")]
    stream: Option<LogStreamArg>,
    /// The number of the run [default: the last one]
    #[arg(long, value_name = "N")]
    run: Option<u32>,
}

/// `jobs artifacts`.
#[derive(Debug, Args)]
pub(super) struct ArtifactsArgs {
    /// The job's id or its call's id, or the first characters
    job: String,
    /// The name of the file to fetch, as listed
    name: Option<String>,
    /// Write to this file, not to standard output
    #[arg(long, value_name = "FILE", requires = "name")]
    to: Option<PathBuf>,
    /// The number of the run [default: the last one that made the file]
    #[arg(long, value_name = "N")]
    run: Option<u32>,
}

/// `jobs clean`.
#[derive(Debug, Args)]
pub(super) struct CleanArgs {
    /// Only jobs that ended longer ago than this: `7d`, `12h`
    #[arg(long, value_name = "TIME", value_parser = parse_duration, required_unless_present_any = ["job", "session"])]
    older_than: Option<Duration>,
    /// Only this job
    #[arg(long, value_name = "JOB")]
    job: Option<String>,
    /// Only jobs of this session, by key or id
    #[arg(long, value_name = "SESSION")]
    session: Option<String>,
}

/// How a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum JobStateArg {
    // It runs.
    Running,
    // It did what was asked.
    Done,
    // It did not.
    Failed,
    // Its effect is unknown.
    Uncertain,
    // What ran it stopped before it had ended.
    Interrupted,
    // The process that ran it is gone, and what it said with it.
    Lost,
}

/// Where something was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogStreamArg {
    // What it says.
    Stdout,
    // Its own messages, and its errors.
    Stderr,
}

/// `jobs`.
pub(super) async fn run(command: JobsCommand, context: &CliContext) -> Result<Exit, Failure> {
    let out = context.out;
    match command {
        JobsCommand::List(args) => {
            list(args, context).await?;
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
            let stats = context.call(calls::JobsStats, &Nothing {}).await?;
            out.document(&stats, |stats| sums(out, stats))?;
        }
    }
    Ok(Exit::Ok)
}

async fn list(args: JobsListArgs, context: &CliContext) -> Result<(), Failure> {
    let JobsListArgs { session, agent, tool, state, limit, cursor } = args;
    let state = state.map(JobStatus::from);
    let params = JobsList { cursor, limit: Some(limit), session, agent, tool, state };
    let list = context.call(calls::JobsList, &params).await?;
    let page = JobsList { session: None, agent: None, tool: None, state: None, ..params.clone() };
    context.out.document(&list, |list| table(context.out, list, params != page))
}

/// All jobs, page by page.
async fn read_all(context: &CliContext) -> Result<Vec<JobView>, Failure> {
    let client = context.client().await?;
    let (mut all, mut cursor) = (Vec::new(), None);
    loop {
        let page = JobsList { cursor, limit: Some(PAGE), ..JobsList::default() };
        let page = client.call(calls::JobsList, &page).await?;
        all.extend(page.jobs);
        cursor = page.next;
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

/// The id of the job that is meant.
async fn whole(context: &CliContext, job: String) -> Result<String, Failure> {
    if !id_prefix::is_short(&job) {
        return Ok(job);
    }
    let jobs = read_all(context).await?;
    if let Some(id) = id_prefix::find(&job, jobs.iter().map(|job| job.job.to_string()))? {
        return Ok(id);
    }
    let found = id_prefix::find(&job, jobs.iter().map(|job| job.call.to_string()))?;
    found.ok_or_else(|| id_prefix::none("job", &job, "jobs list"))
}

async fn show(context: &CliContext, job: String) -> Result<JobView, Failure> {
    let job = whole(context, job).await?;
    context.call(calls::JobsShow, &JobParams { job }).await
}

/// Removes portion by portion.
async fn remove(args: CleanArgs, context: &CliContext) -> Result<CleanView, Failure> {
    let millis = |age: Duration| u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
    let job = match args.job {
        Some(job) => Some(whole(context, job).await?),
        None => None,
    };
    let params =
        JobsClean { older_than_ms: args.older_than.map(millis), job, session: args.session };
    let mut all = CleanView::default();
    loop {
        let view = context.call(calls::JobsClean, &params).await?;
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
async fn logs(args: LogsArgs, context: &CliContext) -> Result<(), Failure> {
    let job = whole(context, args.job).await?;
    let mut link = Link::at(context.out, context.reached().await?);
    let mut params = JobLogs {
        job,
        run: args.run,
        cursor: None,
        tail: args.tail,
        search: args.search,
        stream: args.stream.map(LogStream::from),
        limit: args.tail.is_none().then_some(PAGE),
        wait_ms: None,
    };
    let mut printed = Printed::default();
    loop {
        let view = link.call(calls::JobsLogs, |_| params.clone()).await?;
        printed.print(context.out, &view)?;
        let is_all = view.over || view.lines.is_empty() || params.tail.is_some();
        if !args.follow && is_all {
            return Ok(());
        }
        params = JobLogs {
            run: Some(view.run),
            cursor: Some(view.next),
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
            params = JobLogs { run: Some(next), cursor: None, ..params };
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
                out.aside(&format!("{} of further output was not kept", size(bytes)));
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
            out.aside(&format!("{lines} ({bytes}) left out here"));
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

async fn artifacts(args: ArtifactsArgs, context: &CliContext) -> Result<(), Failure> {
    let out = context.out;
    let Some(name) = args.name else {
        let view = show(context, args.job).await?;
        return out.document(&view, |view| files(out, view));
    };
    let job = whole(context, args.job).await?;
    let mut params = JobArtifact { job, name, run: args.run, offset: 0 };
    let mut whole = Vec::new();
    loop {
        let part = context.call(calls::JobsArtifact, &params).await?;
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

impl From<JobStateArg> for JobStatus {
    fn from(state: JobStateArg) -> Self {
        match state {
            JobStateArg::Running => Self::Running,
            JobStateArg::Done => Self::Done,
            JobStateArg::Failed => Self::Failed,
            JobStateArg::Uncertain => Self::Uncertain,
            JobStateArg::Interrupted => Self::Interrupted,
            JobStateArg::Lost => Self::Lost,
        }
    }
}

impl From<LogStreamArg> for LogStream {
    fn from(stream: LogStreamArg) -> Self {
        match stream {
            LogStreamArg::Stdout => Self::Stdout,
            LogStreamArg::Stderr => Self::Stderr,
        }
    }
}
