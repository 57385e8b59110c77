//! What a runner does in the world for one job; each tells the runner how it went.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::{Backoff, BucketError, Clock, Peek, Storage};
use clawnode_kernel::job_machine::{JobIn, Probe};
use clawnode_proto::{
    JobId, Position,
    job::{Job, JobState},
    json,
    session::ToolEnd,
    subject::job_key,
    tool::{ToolFailure, ToolOutcome},
};
use clawnode_tool::{Archive, Available, RunSink, ShownMedia, ToolRun};
use serde_json::{Map, Value};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, error, info_span, warn};

use super::state::{RunnerContext, RunnerMessage};
use crate::session::{Awaited, TraceLink, stored_outcome, stored_with_media};

/// The first and the longest wait before a store that failed is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// What the work of a runner needs.
pub(super) struct RunnerWork {
    storage: Storage,
    available: watch::Receiver<Available>,
    clock: Arc<dyn Clock>,
    notes: mpsc::Sender<RunnerMessage>,
    archive: Archive,
    link: TraceLink,
}

// === impl RunnerWork ===

impl RunnerWork {
    pub(super) fn new(context: &RunnerContext, notes: &mpsc::Sender<RunnerMessage>) -> Self {
        Self {
            storage: context.storage.clone(),
            available: context.available.clone(),
            clock: Arc::clone(&context.clock),
            notes: notes.clone(),
            archive: context.archive.clone(),
            link: Arc::clone(&context.link),
        }
    }

    async fn tell(&self, input: JobIn) {
        // The receiver is gone only if the runner is, and all its jobs with it.
        if self.notes.send(RunnerMessage::In(input)).await.is_err() {
            tracing::debug!("a job runner stopped before its work");
        }
    }

    pub(super) async fn read(self, job: JobId, wait: Duration) {
        // A sleep of nothing lasts until the timer's next millisecond.
        if !wait.is_zero() {
            tokio::time::sleep(wait).await;
        }
        let input = match self.storage.bucket.get(&job_key(job)).await {
            Ok(None) => JobIn::Read(job, None),
            Ok(Some(entry)) => match JobState::from_bytes(&entry.value) {
                Ok(state) => JobIn::Read(job, Some((entry.position, state))),
                Err(failure) => {
                    error!(%job, %failure, "the state of a job is not readable");
                    JobIn::Unknown(job)
                }
            },
            Err(failure) => {
                warn!(%job, %failure, "the state of a job cannot be read now");
                JobIn::Unknown(job)
            }
        };
        self.tell(input).await;
    }

    pub(super) async fn set(self, job: JobId, expected: Position, state: JobState) {
        let input = match state.to_bytes() {
            Ok(bytes) => {
                let key = job_key(job);
                match self.storage.bucket.put(&key, expected, bytes.into(), None).await {
                    Ok(position) => JobIn::Stored(job, position),
                    Err(BucketError::Conflict { .. }) => JobIn::Conflict(job),
                    Err(BucketError::Store(failure)) => {
                        warn!(%job, %failure, "it is unknown whether the state of a job was set");
                        JobIn::Unknown(job)
                    }
                }
            }
            Err(failure) => {
                error!(%job, %failure, "the state of a job cannot be written");
                JobIn::Unknown(job)
            }
        };
        self.tell(input).await;
    }

    pub(super) async fn run(self, job: Box<Job>, stop: CancellationToken) {
        let recording = self.archive.begin(&job);
        let span = info_span!("job.run", job = %job.id, tool = %job.tool, session = %job.session);
        if let Some(trace) = &job.traceparent {
            (self.link)(&span, trace);
        }
        let shown = ShownMedia::kept();
        let end = async {
            let Some(arguments) = json::read_object(&job.arguments) else {
                let why = "the arguments are not a JSON object";
                let outcome = ToolOutcome::failed(ToolFailure::Invalid, why);
                return ToolEnd::Known { outcome };
            };
            let available = Available::having(&self.available, &job.tool, &stop).await;
            let Available { toolbox, capabilities, .. } = available;
            if let Some(decided) = job.action
                && let Err(outcome) = toolbox.is_decided(job.action(None), decided)
            {
                return ToolEnd::Known { outcome };
            }
            let run = ToolRun { shown: shown.clone(), ..run_of(&job, arguments, recording.sink()) };
            toolbox.end_calling(run, job.callbacks.clone(), capabilities, stop).await
        }
        .instrument(span)
        .await;
        let end = match end {
            ToolEnd::Known { outcome } => {
                let session = job.session.entity();
                let shown = shown.take();
                let outcome = stored_with_media(&self.storage, session, outcome, shown).await;
                ToolEnd::Known { outcome }
            }
            uncertain @ ToolEnd::Uncertain { .. } => uncertain,
        };
        recording.end(&end);
        let input = match end {
            ToolEnd::Known { outcome } => JobIn::Ended(job.id, outcome),
            // It is unknown, as after a probe that found nothing out.
            ToolEnd::Uncertain { detail } => JobIn::Probed(job.id, Probe::Unclear(detail)),
        };
        self.tell(input).await;
    }

    pub(super) async fn watch(self, job: JobId, after: Duration) {
        tokio::time::sleep(after).await;
        self.tell(JobIn::Lasts(job)).await;
    }

    pub(super) async fn probe(self, job: Box<Job>) {
        let toolbox = self.available.peek(|available| available.toolbox.clone());
        let decided =
            job.action.map_or(Ok(()), |action| toolbox.is_decided(job.action(None), action));
        let probe = match (decided, json::read_object(&job.arguments)) {
            (Ok(()), Some(arguments)) => {
                toolbox.probe(run_of(&job, arguments, RunSink::default())).await
            }
            // Another probe might tell of something else.
            (Err(_refused), _) => Probe::Unclear(
                "its probe could not be asked: the tool's settings on this node differ".to_owned(),
            ),
            (_, None) => Probe::Unclear("its arguments are not readable".to_owned()),
        };
        let probe = match probe {
            Probe::Happened(outcome) => {
                let session = job.session.entity();
                Probe::Happened(stored_outcome(&self.storage, session, outcome).await)
            }
            other => other,
        };
        self.tell(JobIn::Probed(job.id, probe)).await;
    }

    pub(super) async fn send(self, job: Box<Job>, end: ToolEnd) {
        let input = match Awaited::from(&*job).result(end, self.clock.now()) {
            Ok(input) => input,
            Err(failure) => {
                error!(job = %job.id, %failure, "the result of a job cannot be written");
                return;
            }
        };
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        while let Err(failure) = self.storage.inbox.put(&input).await {
            warn!(job = %job.id, %failure, "the result of a job cannot be stored; trying again");
            let wait = backoff.next(&mut rand::rng());
            tokio::time::sleep(wait).await;
        }
        self.tell(JobIn::Sent(job.id)).await;
    }
}

fn run_of(job: &Job, arguments: Map<String, Value>, sink: RunSink) -> ToolRun {
    ToolRun {
        call: job.call,
        agent: job.session.agent.clone(),
        tool: job.tool.clone(),
        arguments,
        idempotency_key: job.id.to_string(),
        timeout: match &job.limit {
            Some(limit) => limit.left(),
            None => Duration::from_millis(u64::from(job.timeout_ms)),
        },
        limit: job.limit.clone(),
        sink,
        shown: ShownMedia::default(),
    }
}
