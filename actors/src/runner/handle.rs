//! What reaches a runner.

use std::sync::atomic::Ordering;

use clawnode_kernel::job_machine::JobIn;
use clawnode_proto::JobId;
use clawnode_tool::Archive;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::{
    actor::RunnerTask,
    state::{RunnerContext, RunnerMessage},
};

/// What may happen to a runner before it takes notice; a sender of more waits.
const NOTES_MAX: usize = 1_024;

/// Runs of one runner, in bits: no process begins as many.
const RUNS_BITS: u32 = 40;

/// The handle of a runner.
#[derive(Clone, Debug)]
pub struct JobRunner {
    notes: mpsc::WeakSender<RunnerMessage>,
    drain: CancellationToken,
    drained: CancellationToken,
    archive: Archive,
}

// === impl JobRunner ===

impl JobRunner {
    /// A runner and its handle. The future runs until it is drained; to start it again, call this
    /// again.
    pub fn new(context: RunnerContext) -> (Self, impl Future<Output = ()> + Send) {
        let (notes, inbound) = mpsc::channel(NOTES_MAX);
        let (drain, drained) = (CancellationToken::new(), CancellationToken::new());
        let archive = context.archive.clone();
        let switch_gate = Self { notes: notes.downgrade(), drain, drained, archive };
        let runs = context.begun.fetch_add(1, Ordering::Relaxed) << RUNS_BITS;
        let (drain, drained) = (switch_gate.drain.clone(), switch_gate.drained.clone());
        let runner = RunnerTask::new(context, runs, notes);
        (switch_gate, runner.run(inbound, drain, drained))
    }

    /// The job shall not run on here; no effect unless it does.
    pub fn cancel(&self, job: JobId) {
        if let Some(notes) = self.notes.upgrade()
            && notes.try_send(RunnerMessage::In(JobIn::Cancel(job))).is_err()
        {
            debug!(%job, "the job runner has stopped, or has too much to do");
        }
    }

    /// What is kept of its runs.
    pub const fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Whether it takes nothing more.
    pub fn is_draining(&self) -> bool {
        self.drain.is_cancelled()
    }

    /// Takes nothing more; what runs may end, for a while; returns once nothing is in hand, or 20 s after what is
    /// in hand was cancelled.
    pub async fn drain(&self) {
        self.drain.cancel();
        self.drained.cancelled().await;
    }
}
