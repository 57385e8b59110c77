//! The gateway's handle to archived jobs: from the records, the blob store, and the process that
//! runs a job now.

use std::{cmp::Reverse, time::Duration};

use bytes::Bytes;
use clawnode_actors::session::Sessions;
use clawnode_cluster::{Peek, StoreError, membership::Members};
use clawnode_gateway::{CleanFilter, JobFilter, LogFilter};
use clawnode_proto::{
    Cursor, ErrorBody, ErrorChain, ErrorCode, JobId, ProcessId, Timestamp,
    api::Method,
    archive::{
        ArchiveStats, CleanJobs, CleanView, JobList, JobRecord, JobRun, JobStatus, JobView, LogCut,
        LogLine, LogPart, LogView, RESULT_NAME,
    },
    codec,
    cursor::Pair,
    limits::LOG_LINE_COST,
    node::{Heartbeat, NodeReply, NodeRequest, NodeRole},
};
use clawnode_tool::archive;
use tokio::sync::watch;
use tracing::debug;

use super::version_check::HeartbeatSource;

/// How long a process may take to return the output of a job, beside the wait that the request asks for.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// How long removing may take: jobs are removed in portions.
const CLEAN_WITHIN: Duration = Duration::from_mins(1);
/// The bytes of all lines of one answer, at most (1 MiB). An answer always has one line if there are any.
const ANSWER_BYTES: usize = 1 << 20;

/// The handle.
#[derive(Clone)]
pub struct ArchiveRequests {
    sessions: Sessions,
    members: watch::Receiver<Members>,
    heartbeat_source: HeartbeatSource,
}

/// A log as far as it is there.
#[derive(Default)]
struct ArchivedLog {
    lines: Vec<LogLine>,
    cut: Option<LogCut>,
    lost: Vec<String>,
    /// Whether the run has not ended.
    is_live: bool,
}

impl std::fmt::Debug for ArchiveRequests {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ArchiveRequests").finish_non_exhaustive()
    }
}

// === impl ArchiveRequests ===

impl ArchiveRequests {
    /// The archive of this node, whose heartbeats come from `heartbeat_source`.
    pub fn new(
        sessions: Sessions,
        members: watch::Receiver<Members>,
        heartbeat_source: HeartbeatSource,
    ) -> Self {
        Self { sessions, members, heartbeat_source }
    }

    /// Whether a process is gone, and with it all that it has not stored.
    fn is_gone(&self, process: ProcessId) -> bool {
        process != (self.heartbeat_source)().process
            && (!self.sessions.storage().shared
                || self.members.peek(|members| members.holds_dead(process)))
    }

    async fn record(&self, job: JobId) -> Result<JobRecord, ErrorBody> {
        let found =
            archive::record(self.sessions.storage(), job).await.map_err(|error| store(&error))?;
        found.ok_or_else(|| {
            ErrorBody::new(ErrorCode::NotFound, format!("no job `{job}` is kept")).hint(
                "`clawnode jobs list` shows the jobs that are kept; tool calls that run beside \
                 their session are not jobs",
            )
        })
    }

    async fn all(&self) -> Result<Vec<JobRecord>, ErrorBody> {
        archive::list(self.sessions.storage()).await.map_err(|error| store(&error))
    }

    /// Asks a process; `None` if it does not answer in time.
    async fn ask(
        &self,
        process: ProcessId,
        request: &NodeRequest,
        within: Duration,
    ) -> Option<NodeReply> {
        let bytes = Bytes::from(codec::encode(request).ok()?);
        let subject = self.sessions.storage().prefix.rpc(process);
        match self.sessions.storage().bus.request(subject, bytes, within).await {
            Ok(bytes) => codec::decode(&bytes).ok(),
            Err(failure) => {
                debug!(%process, %failure, "a process does not answer about a job");
                None
            }
        }
    }

    /// The output of a running run after a line. `None` if its process does not have it.
    async fn live(
        &self,
        job: JobId,
        run: &JobRun,
        after: u64,
        wait_ms: u32,
    ) -> Option<ArchivedLog> {
        let mut log = ArchivedLog { is_live: true, ..ArchivedLog::default() };
        let (mut after, mut wait_ms) = (after, wait_ms);
        loop {
            let within = ANSWER_WITHIN + Duration::from_millis(wait_ms.into());
            let request = NodeRequest::JobLog { job, after, wait_ms };
            let reply = self.ask(run.process, &request, within).await?;
            let NodeReply::JobLog { part: LogPart { run: number, lines, cut, more } } = reply
            else {
                return None;
            };
            // 0: it is so new that it does not know its own number.
            if number != 0 && number != run.number {
                return None;
            }
            log.cut = cut;
            after = lines.last().map_or(after, |line| line.n);
            log.lines.extend(lines);
            if !more {
                return Some(log);
            }
            wait_ms = 0;
        }
    }

    async fn stored(&self, run: &JobRun) -> Result<ArchivedLog, ErrorBody> {
        let mut log = ArchivedLog { lost: run.lost.clone(), ..ArchivedLog::default() };
        let Some(stored) = &run.log else { return Ok(log) };
        let loaded = archive::load_log(self.sessions.storage(), stored).await;
        match loaded.map_err(|error| store(&error))? {
            Some((lines, cut)) => (log.lines, log.cut) = (lines, cut),
            None => log.lost.push("its log: it has been removed".to_owned()),
        }
        Ok(log)
    }

    /// The log of a run, from wherever it is; the run as it is then.
    async fn read(
        &self,
        filter: &LogFilter,
    ) -> Result<(JobRecord, JobRun, ArchivedLog), ErrorBody> {
        // A run that ends between the two looks is found in the second.
        for look in 0..2 {
            let record = self.record(filter.job).await?;
            let run = run_of(&record, filter.run)?.clone();
            if run.ended.is_some() {
                let log = self.stored(&run).await?;
                return Ok((record, run, log));
            }
            if self.is_gone(run.process) {
                let what = format!("its log: it was lost with the process `{}`", run.process);
                return Ok((
                    record,
                    run,
                    ArchivedLog { lost: vec![what], ..ArchivedLog::default() },
                ));
            }
            let live = self.live(filter.job, &run, filter.after, filter.wait_ms).await;
            match live {
                Some(log) => return Ok((record, run, log)),
                None if look == 0 => {}
                None => {
                    return Ok((
                        record,
                        run,
                        ArchivedLog { is_live: true, ..ArchivedLog::default() },
                    ));
                }
            }
        }
        Err(ErrorBody::new(ErrorCode::Internal, "the log was not found in two searches"))
    }

    /// The processes that can remove jobs, this one first.
    fn cleaners(&self) -> Vec<ProcessId> {
        let own = (self.heartbeat_source)();
        let works = |one: &Heartbeat| one.roles.contains(&NodeRole::Worker) && !one.draining;
        self.members.peek(|members| {
            let others = members.alive.iter().filter(|one| one.process != own.process);
            let all = std::iter::once(&own).chain(others).filter(|one| works(one));
            all.map(|one| one.process).collect()
        })
    }

    /// Answers `jobs.list`.
    pub async fn list(&self, filter: &JobFilter) -> Result<JobList, ErrorBody> {
        let is_gone = |process| self.is_gone(process);
        let fits = |record: &JobRecord| {
            filter.session.is_none_or(|session| record.session.entity() == session)
                && filter.agent.as_ref().is_none_or(|agent| record.session.agent == *agent)
                && filter.tool.as_ref().is_none_or(|tool| record.tool == *tool)
                && filter.state.is_none_or(|state| record.status(is_gone) == state)
        };
        let mut found = self.all().await?;
        found.retain(fits);
        let (next, more) = page(&mut found, filter);
        let jobs = found.into_iter().map(|record| record.view(is_gone)).collect();
        Ok(JobList { jobs, next, more })
    }

    /// Answers `jobs.show`; `not_found` for one that is not kept.
    pub async fn show(&self, job: JobId) -> Result<JobView, ErrorBody> {
        Ok(self.record(job).await?.view(|process| self.is_gone(process)))
    }

    /// Answers `jobs.logs`.
    pub async fn log(&self, filter: &LogFilter) -> Result<LogView, ErrorBody> {
        let (record, run, log) = self.read(filter).await?;
        let ArchivedLog { lines, cut, lost, is_live } = log;
        let (lines, next, more) = select(lines, filter);
        Ok(LogView {
            job: record.job,
            run: run.number,
            runs: record.runs.last().map_or(run.number, |last| last.number),
            status: run.status(|process| self.is_gone(process)),
            lines,
            cut,
            next: Cursor::new(Method::JobsLogs, Pair(record.job, Pair(run.number, next))),
            over: !is_live && !more,
            lost,
        })
    }

    /// A whole file that a job made.
    pub async fn artifact(
        &self,
        job: JobId,
        run: Option<u32>,
        name: &str,
    ) -> Result<Bytes, ErrorBody> {
        let record = self.record(job).await?;
        if let Some(number) = run {
            run_of(&record, Some(number))?;
        }
        let runs =
            record.runs.iter().rev().filter(|job_run| run.is_none_or(|run| job_run.number == run));
        let found = runs.into_iter().find_map(|run| match name {
            RESULT_NAME => run.result.map(|result| (result.digest, result.bytes)),
            name => {
                let file = run.artifacts.iter().find(|artifact| artifact.name == name)?;
                Some((file.digest, file.bytes))
            }
        });
        let Some((digest, bytes)) = found else {
            let what = format!("job `{job}` has no artifact `{name}`");
            return Err(ErrorBody::new(ErrorCode::NotFound, what)
                .hint(format!("`clawnode jobs artifacts {job}` shows its artifacts")));
        };
        let blob =
            self.sessions.storage().blobs.get(digest).await.map_err(|error| store(&error))?;
        let gone = || {
            let what = format!("`{name}` of job `{job}` has been removed");
            ErrorBody::new(ErrorCode::NotFound, what)
        };
        Ok(archive::content_of(&blob.ok_or_else(gone)?, bytes))
    }

    /// Answers `jobs.clean`; returns once that is done.
    pub async fn clean(&self, filter: CleanFilter) -> Result<CleanView, ErrorBody> {
        let CleanFilter { older_than_ms, job, session } = filter;
        // If no age is given, a job that ended at this very moment is old enough.
        let before =
            Timestamp(self.sessions.now().0.saturating_add(1).saturating_sub(older_than_ms));
        let request = NodeRequest::CleanJobs { which: CleanJobs { before, job, session } };
        for process in self.cleaners() {
            if let Some(NodeReply::Cleaned { view }) =
                self.ask(process, &request, CLEAN_WITHIN).await
            {
                return Ok(view);
            }
        }
        Err(ErrorBody::new(ErrorCode::Unavailable, "no worker removes jobs from the archive now")
            .hint("see `clawnode status`, and try again"))
    }

    /// Answers `jobs.stats`.
    pub async fn stats(&self) -> Result<ArchiveStats, ErrorBody> {
        let mut stats = ArchiveStats::default();
        for record in self.all().await? {
            stats.jobs += 1;
            let how: JobStatus = record.status(|process| self.is_gone(process));
            *stats.by_status.entry(how).or_default() += 1;
            for run in &record.runs {
                stats.runs += 1;
                stats.log_bytes += run.log.map_or(0, |log| log.bytes);
                stats.artifacts += run.artifacts.len() as u64;
                stats.artifact_bytes +=
                    run.artifacts.iter().map(|artifact| artifact.bytes).sum::<u64>();
                stats.oldest = Some(stats.oldest.map_or(run.began, |oldest| oldest.min(run.began)));
            }
            *stats.by_tool.entry(record.tool).or_default() += 1;
        }
        Ok(stats)
    }
}

/// Keeps only the jobs of one page, the newest first. Returns the cursor of the next page, and how many
/// jobs are on later pages. A job that runs again moves to the front.
fn page(found: &mut Vec<JobRecord>, filter: &JobFilter) -> (Option<Cursor>, u64) {
    let place = |record: &JobRecord| {
        Pair(record.runs.last().map_or(Timestamp(0), |run| run.began).0, record.job)
    };
    found.retain(|record| filter.after.is_none_or(|after| place(record) < after));
    found.sort_by_key(|record| Reverse(place(record)));
    let more = found.len().saturating_sub(filter.limit) as u64;
    found.truncate(filter.limit);
    let last = found.last().filter(|_| more > 0);
    (last.map(|last| Cursor::new(Method::JobsList, place(last))), more)
}

fn run_of(record: &JobRecord, number: Option<u32>) -> Result<&JobRun, ErrorBody> {
    let found = match number {
        None => record.runs.last(),
        Some(number) => record.runs.iter().find(|run| run.number == number),
    };
    found.ok_or_else(|| {
        let known: Vec<String> = record.runs.iter().map(|run| run.number.to_string()).collect();
        let what = format!("job `{}` has no such run, or it is no longer kept", record.job);
        ErrorBody::new(ErrorCode::NotFound, what).hint(format!("known runs: {}", known.join(", ")))
    })
}

/// The lines that match, the number to continue from, and whether there are more.
fn select(mut lines: Vec<LogLine>, filter: &LogFilter) -> (Vec<LogLine>, u64, bool) {
    lines.retain(|line| line.n > filter.after);
    let last = lines.last().map_or(filter.after, |line| line.n);
    let search = filter.search.as_ref().map(|text| text.to_lowercase());
    lines.retain(|line| {
        filter.stream.is_none_or(|stream| line.stream == stream)
            && search.as_ref().is_none_or(|text| line.text.to_lowercase().contains(text))
    });
    if let Some(tail) = filter.tail {
        lines.drain(..lines.len().saturating_sub(tail));
    }
    let mut cost = 0;
    let fits = |line: &&LogLine| {
        cost += line.text.len() + LOG_LINE_COST;
        cost <= ANSWER_BYTES
    };
    let kept = lines.iter().take(filter.limit).take_while(fits).count().max(1);
    let more = lines.len() > kept;
    lines.truncate(kept);
    let next = if more { lines.last().map_or(last, |line| line.n) } else { last };
    (lines, next, more)
}

fn store(failure: &StoreError) -> ErrorBody {
    let message = format!("the archive cannot be read: {}", ErrorChain(failure));
    ErrorBody::new(ErrorCode::Unavailable, message).hint("see `clawnode status`, and try again")
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{CallId, TurnId, archive::LogStream};

    use super::*;

    fn filter() -> LogFilter {
        LogFilter {
            job: JobId::from_u128(1),
            run: None,
            after: 0,
            tail: None,
            search: None,
            stream: None,
            limit: 100,
            wait_ms: 0,
        }
    }

    fn lines() -> Vec<LogLine> {
        let line = |n| LogLine {
            n,
            at: Timestamp(n),
            stream: if n % 2 == 0 { LogStream::Stderr } else { LogStream::Stdout },
            text: format!("Line {n}"),
            goes_on: false,
        };
        (1..=20).map(line).collect()
    }

    fn chosen(filter: &LogFilter) -> (Vec<u64>, u64, bool) {
        let (lines, next, more) = select(lines(), filter);
        (lines.iter().map(|line| line.n).collect(), next, more)
    }

    #[test]
    fn lines_are_chosen_and_reading_goes_on_after_them() {
        let tail = LogFilter { tail: Some(2), ..filter() };
        assert_eq!(chosen(&tail), (vec![19, 20], 20, false));
        let search = LogFilter { search: Some("LINE 1".to_owned()), limit: 3, ..filter() };
        assert_eq!(chosen(&search), (vec![1, 10, 11], 11, true));
        let next = LogFilter { after: 11, ..search };
        assert_eq!(chosen(&next), (vec![12, 13, 14], 14, true));
        let errors = LogFilter { stream: Some(LogStream::Stderr), after: 15, ..filter() };
        assert_eq!(chosen(&errors), (vec![16, 18, 20], 20, false));
        let both = LogFilter { tail: Some(1), search: Some("line".to_owned()), ..errors };
        assert_eq!(chosen(&both), (vec![20], 20, false));
        // Nothing that fits is passed over for good.
        let none = LogFilter { search: Some("x".to_owned()), ..filter() };
        assert_eq!(chosen(&none), (vec![], 20, false));
        assert_eq!(chosen(&LogFilter { after: 20, ..filter() }), (vec![], 20, false));
    }

    fn record(n: u128, began: u64) -> JobRecord {
        let run = JobRun {
            number: 1,
            process: ProcessId::from_u128(1),
            node: "n".parse().unwrap(),
            began: Timestamp(began),
            ended: None,
            log: None,
            artifacts: Vec::new(),
            result: None,
            lost: Vec::new(),
        };
        JobRecord {
            job: JobId::from_u128(n),
            session: "default:cli:local:ada".parse().unwrap(),
            turn: TurnId::from_u128(1),
            call: CallId::from_u128(n),
            tool: "wait".parse().unwrap(),
            capability: "process".parse().unwrap(),
            arguments: String::new(),
            runs: vec![run],
        }
    }

    #[test]
    fn pages_have_each_job_once_while_jobs_come_and_go() {
        // Some began at the same moment.
        let mut kept: Vec<_> = (1..=20_u32).map(|n| record(n.into(), u64::from(n / 3))).collect();
        let mut shown = Vec::new();
        let mut filter = JobFilter { limit: 3, ..JobFilter::default() };
        for round in 0.. {
            let mut found = kept.clone();
            let (next, more) = page(&mut found, &filter);
            assert_eq!(next.is_some(), more > 0);
            shown.extend(found.iter().map(|record| record.job));
            let Some(next) = next else { break };
            filter.after = Some(next.read(Method::JobsList).unwrap());
            // A new one, one less of those that were shown, and one less of those that were not.
            let gone = [found[0].job, JobId::from_u128(1 + round)];
            kept.retain(|record| !gone.contains(&record.job));
            kept.push(record(100 + round, 1_000));
        }
        let mut once = shown.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), shown.len(), "nothing is shown twice: {shown:?}");
        let is_new = |job: &JobId| *job >= JobId::from_u128(100);
        assert!(!shown.iter().any(is_new), "they began after the first page: {shown:?}");
        let mut throughout = kept.iter().map(|record| record.job).filter(|job| !is_new(job));
        assert!(throughout.all(|job| shown.contains(&job)), "nothing is missed: {shown:?}");
    }

    #[test]
    fn an_answer_is_bounded_in_bytes_and_has_something() {
        let long = |n: usize| LogLine { text: "x".repeat(400_000), ..lines()[n].clone() };
        let (some, next, more) = select((0..20).map(long).collect(), &filter());
        assert_eq!((some.len(), next, more), (2, 2, true));
    }
}
