//! Records runs: one archive for each process that runs jobs.
//!
//! Each run has a task of its own, which outlives the run until what there is of it is stored; at
//! most [`RECORDED`] at a time, a run beyond that is not recorded.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clawnode_cluster::{Clock, Peek, Storage, membership::Members};
use clawnode_proto::{
    JobId, NodeName, ProcessId, Timestamp,
    archive::{
        Artifact, CleanJobs, CleanView, Ended, JobRun, LogPart, RunEnd, StoredLog, StoredResult,
    },
    job::Job,
    llm::Text,
    node::NodeRole,
    session::ToolEnd,
    tool::EffectClass,
};
use futures_util::future::BoxFuture;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch},
    time::{MissedTickBehavior, interval, sleep, timeout},
};
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::{
    archive_cleaning::{self, remove},
    artifacts::ArchivedFiles,
    kept_output::RunLines,
    sink::{RunSink, SharedSink},
    store::{self, Put},
};

/// Runs that are recorded at a time: with the bounds of one, at most 64 MiB of logs.
const RECORDED: usize = 64;
/// How long a process that ends waits for what is being stored.
const SETTLE: Duration = Duration::from_secs(10);
/// How long what a run has made may take to be collected after it has ended.
const COLLECTED: Duration = Duration::from_secs(20);
/// How long a run goes on before it is listed (100 ms): most are over by then, and are written down
/// once.
const LISTED_AFTER: Duration = Duration::from_millis(100);
/// How long after its end such a run is written down (20 ms): no caller waits for that, and a sync
/// of its own would delay the result, which has a waiting caller.
const LINGER: Duration = Duration::from_millis(20);
/// How often records that are too old are removed.
const SWEEP_EVERY: Duration = Duration::from_mins(30);
/// How long a request for lines may wait for them.
const WAIT_MOST: Duration = Duration::from_secs(10);

/// How the archive works.
#[derive(Clone, Copy, Debug)]
pub struct ArchiveOptions {
    /// How long a job is kept after its last run (default 7 days); nothing is recorded if that is
    /// zero.
    pub keep: Duration,
}

/// What an archive needs.
#[derive(Clone, Debug)]
pub struct ArchiveContext {
    pub process: ProcessId,
    pub node: NodeName,
    /// The handles.
    pub storage: Storage,
    /// For what is written down.
    pub clock: Arc<dyn Clock>,
    /// The members of the cluster.
    pub peers: watch::Receiver<Members>,
    /// How it works.
    pub options: ArchiveOptions,
}

/// What is kept of the jobs of this process. Cheap to clone.
#[derive(Clone)]
pub struct Archive(Arc<Inner>);

struct Inner {
    context: ArchiveContext,
    live: Mutex<HashMap<JobId, Arc<SharedSink>>>,
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// A run that is recorded; one that is dropped was interrupted.
#[derive(Debug, Default)]
pub struct Recording {
    sink: RunSink,
    end: Option<oneshot::Sender<RecordedEnd>>,
}

type RecordedEnd = (RunEnd, Option<StoredResult>);

impl Default for ArchiveOptions {
    fn default() -> Self {
        Self { keep: Duration::from_hours(7 * 24) }
    }
}

// === impl Archive ===

impl Archive {
    /// An archive with nothing in hand.
    pub fn new(context: ArchiveContext) -> Self {
        let places = Arc::new(Semaphore::new(RECORDED));
        Self(Arc::new(Inner { context, live: Mutex::default(), places, tasks: TaskTracker::new() }))
    }

    /// Records a run that begins now.
    pub fn begin(&self, job: &Job) -> Recording {
        let inner = &self.0;
        if inner.context.options.keep.is_zero() {
            return Recording::default();
        }
        let Ok(place) = Arc::clone(&inner.places).try_acquire_owned() else {
            warn!(job = %job.id, "{RECORDED} runs are recorded or stored now; this one is not");
            return Recording::default();
        };
        let (sink, shared) = RunSink::new(Arc::clone(&inner.context.clock));
        let (end, ended) = oneshot::channel();
        inner.live().insert(job.id, Arc::clone(&shared));
        let run = JobRun {
            number: 0,
            process: inner.context.process,
            node: inner.context.node.clone(),
            began: inner.context.clock.now(),
            ended: None,
            log: None,
            artifacts: Vec::new(),
            result: None,
            lost: Vec::new(),
        };
        let recording = Arc::clone(inner).record(job.clone(), run, shared, ended, place);
        // Detached: it ends by itself, and `settle` waits for it.
        drop(inner.tasks.spawn(recording));
        Recording { sink, end: Some(end) }
    }

    /// What a job that runs here has said after a line, as far as it is still here; if there is
    /// nothing yet, waits for it.
    pub async fn said(&self, job: JobId, after: u64, wait: Duration) -> Option<LogPart> {
        let shared = self.0.live().get(&job).map(Arc::clone)?;
        Some(shared.part(after, wait.min(WAIT_MOST)).await)
    }

    /// Removes jobs from the archive; `None`, with a warning, if the store does not answer.
    pub async fn clean(&self, which: &CleanJobs) -> Option<CleanView> {
        let ArchiveContext { storage, clock, .. } = &self.0.context;
        match archive_cleaning::clean(storage, which, clock.now()).await {
            Ok(view) => Some(view),
            Err(failure) => {
                warn!(%failure, "jobs cannot be removed from the archive now");
                None
            }
        }
    }

    /// Removes what is too old, again and again; ends never.
    pub fn keep(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut rounds = interval(SWEEP_EVERY);
            rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let ArchiveContext { clock, options, .. } = &self.0.context;
            loop {
                rounds.tick().await;
                let Some(before) = clock.now().0.checked_sub(milliseconds(options.keep)) else {
                    continue;
                };
                let which = CleanJobs { before: Timestamp(before), job: None, session: None };
                while self.0.is_sweeper()
                    && let Some(view) = self.clean(&which).await
                    && view.jobs > 0
                {
                    info!(
                        jobs = view.jobs,
                        bytes = view.bytes,
                        "old jobs are removed from the archive"
                    );
                }
            }
        })
    }

    /// Returns once what there is to be stored is, or cannot be in time.
    pub async fn settle(&self) {
        let tasks = &self.0.tasks;
        tasks.close();
        if timeout(SETTLE, tasks.wait()).await.is_err() {
            warn!(runs = tasks.len(), "logs of runs cannot be stored in time; they are lost");
        }
        tasks.reopen();
    }
}

impl fmt::Debug for Archive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive").field("recorded", &self.0.tasks.len()).finish_non_exhaustive()
    }
}

// === impl Inner ===

impl Inner {
    fn live(&self) -> MutexGuard<'_, HashMap<JobId, Arc<SharedSink>>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process is the one of the cluster's workers that looks for what is too old.
    fn is_sweeper(&self) -> bool {
        let me = self.context.process;
        let works = |roles: &[NodeRole]| roles.contains(&NodeRole::Worker);
        let older = |members: &Members| {
            members.alive.iter().any(|one| works(&one.roles) && one.process < me)
        };
        !self.context.peers.peek(older)
    }

    /// How long a record stays if it is not removed: well after it should have been, so that its
    /// blobs go with it.
    fn ttl(&self) -> Duration {
        self.context.options.keep * 2 + Duration::from_hours(24)
    }

    async fn record(
        self: Arc<Self>,
        job: Job,
        mut run: JobRun,
        shared: Arc<SharedSink>,
        mut ended: oneshot::Receiver<RecordedEnd>,
        _place: OwnedSemaphorePermit,
    ) {
        let (soon, linger) = match job.class {
            // A call that may happen only once is recorded at once, whatever happens to this
            // process.
            EffectClass::Once => (Duration::ZERO, Duration::ZERO),
            EffectClass::Safe | EffectClass::Idempotent | EffectClass::Check => {
                (LISTED_AFTER, LINGER)
            }
        };
        let (told, linger) = if let Ok(told) = timeout(soon, &mut ended).await {
            (told, linger)
        } else {
            self.put(&job, &mut run, &shared).await;
            (ended.await, Duration::ZERO)
        };
        let (how, result) = told.unwrap_or((RunEnd::Interrupted, None));
        shared.end();
        run.ended = Some(Ended { at: self.context.clock.now(), how });
        run.result = result;
        sleep(linger).await;
        self.store(&job, &mut run, &shared).await;
        self.put(&job, &mut run, &shared).await;
        let mut live = self.live();
        // Another run of the job may have begun.
        if live.get(&job.id).is_some_and(|sink| Arc::ptr_eq(sink, &shared)) {
            live.remove(&job.id);
        }
    }

    /// Stores what the run has said and made.
    async fn store(&self, job: &Job, run: &mut JobRun, shared: &SharedSink) {
        let storage = &self.context.storage;
        let ArchivedFiles { files, left_out } = shared.collected(COLLECTED).await;
        run.lost.extend(left_out.iter().map(|what| format!("of its files: {what}")));
        for (name, content) in files {
            let bytes = content.len() as u64;
            let packed = store::packed(job.id, run, &content);
            match store::put_blob(storage, packed).await {
                Ok(digest) => run.artifacts.push(Artifact { name, digest, bytes }),
                Err(failure) => {
                    warn!(job = %job.id, %failure, "a file of a run is lost");
                    run.lost.push(format!("of its files: {name}: {failure}"));
                }
            }
        }
        let (content, lines, cut) = {
            let said: MutexGuard<'_, RunLines> = shared.lines();
            let (content, lines) = store::written(job.id, run, said.kept());
            (content, lines, said.cut())
        };
        if lines > 0 || cut.is_some() {
            let bytes = content.len() as u64;
            match store::put_blob(storage, content).await {
                Ok(digest) => run.log = Some(StoredLog { digest, bytes, lines, cut }),
                Err(failure) => {
                    warn!(job = %job.id, %failure, "the log of a run is lost");
                    run.lost.push(format!("its log: {failure}"));
                }
            }
        }
    }

    async fn put(&self, job: &Job, run: &mut JobRun, shared: &SharedSink) {
        let storage = &self.context.storage;
        let gone = match store::put_run(storage, job, run, self.ttl()).await {
            Ok(Put::There { number, gone }) => {
                run.number = number;
                shared.is_run(number);
                gone
            }
            Ok(Put::Removed) => vec![run.clone()],
            Err(failure) => {
                warn!(job = %job.id, %failure, "a run is not in the archive");
                // Nothing names what it has stored.
                vec![run.clone()]
            }
        };
        for run in &gone {
            if let Err(failure) = remove(storage, run, &mut CleanView::default()).await {
                debug!(job = %job.id, %failure, "cannot remove what a run left");
            }
        }
    }
}

// === impl Recording ===

impl Recording {
    /// The sink for the run's output.
    pub fn sink(&self) -> RunSink {
        self.sink.clone()
    }

    /// The run has ended so.
    pub fn end(mut self, end: &ToolEnd) {
        let Some(tell) = self.end.take() else { return };
        let (how, result) = match end {
            ToolEnd::Uncertain { .. } => (RunEnd::Uncertain, None),
            ToolEnd::Known { outcome } => {
                let how =
                    outcome.failure.map_or(RunEnd::Done, |failure| RunEnd::Failed { failure });
                let result = match outcome.content {
                    Text::Blob { digest, bytes } => Some(StoredResult { digest, bytes }),
                    Text::Inline { .. } => None,
                };
                (how, result)
            }
        };
        if tell.send((how, result)).is_err() {
            debug!("a run ended after its record");
        }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
