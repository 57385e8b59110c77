//! What a runner needs, what it has in hand, and what happens to it.

use std::{
    fmt,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use clawnode_cluster::{AckHandle, Clock, Peek, Storage, membership::Members};
use clawnode_kernel::job_machine::{JobIn, Liveness};
use clawnode_proto::{Capability, ProcessId, job::Job};
use clawnode_tool::{Archive, Available};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

use crate::session::TraceLink;

/// How many other nodes should be given a job of this capability before this one, which has so many
/// of them in hand.
pub type JobRank = Arc<dyn Fn(&Capability, u32) -> u8 + Send + Sync>;

/// How a runner works.
#[derive(Clone, Debug)]
pub struct RunnerOptions {
    /// Jobs in hand for each capability (default 8): more uses the node better, and makes each
    /// slower.
    pub max_jobs: usize,
    /// How long jobs that run may go on when the node drains (default 30 s).
    pub drain_grace: Duration,
}

impl Default for RunnerOptions {
    fn default() -> Self {
        Self { max_jobs: 8, drain_grace: Duration::from_secs(30) }
    }
}

/// What a runner needs.
#[derive(Clone)]
pub struct RunnerContext {
    pub process: ProcessId,
    pub storage: Storage,
    /// For what is written down.
    pub clock: Arc<dyn Clock>,
    /// What runs tools here, and the capabilities whose jobs are taken.
    pub available: watch::Receiver<Available>,
    /// Who is there.
    pub peers: watch::Receiver<Members>,
    /// How it works.
    pub options: RunnerOptions,
    /// What is kept of its runs.
    pub archive: Archive,
    /// How often a runner was begun in this process.
    pub begun: Arc<AtomicU64>,
    /// Makes a run a part of the trace of the turn that asked for it.
    pub link: TraceLink,
    /// How good this node is for a job, beside the others.
    pub rank: JobRank,
}

impl fmt::Debug for RunnerContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerContext")
            .field("process", &self.process)
            .field("capabilities", &self.available.peek(|available| available.capabilities.clone()))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// What happens to a runner.
pub(super) enum RunnerMessage {
    /// A job came, with its place.
    Taken { job: Box<Job>, handle: Arc<dyn AckHandle>, place: OwnedSemaphorePermit },
    /// For the machine.
    In(JobIn),
}

/// What a runner has of one job.
pub(super) struct RunningJob {
    pub(super) handle: Arc<dyn AckHandle>,
    /// Given back with the job.
    pub(super) _place: OwnedSemaphorePermit,
    /// Stops its run.
    pub(super) stop: CancellationToken,
}

/// Who is there, as the membership sees it.
pub(super) struct RunnerPeers<'a> {
    pub(super) members: &'a Members,
    pub(super) shared: bool,
}

// === impl RunnerPeers ===

impl Liveness for RunnerPeers<'_> {
    fn is_dead(&self, process: ProcessId) -> bool {
        // If the storage is not shared, no other process can be alive.
        !self.shared || self.members.holds_dead(process)
    }
}
