//! The runner: what happens to it, given to the job machine; what the machine says, done.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clawnode_cluster::{AckHandle, Clock, Peek, PeekSeen, Substrate, membership::Members};
use clawnode_kernel::jobs::{JobIn, JobMachine, JobOut, Liveness};
use clawnode_proto::{Capability, JobId, ProcessId, job::Job};
use clawnode_tool::{Archive, Available};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{debug, error};

use super::{
    take::{self, JobRank, Places},
    work,
};
use crate::session::TraceLink;

/// What may happen to a runner before it takes notice; whoever has more to tell waits.
const NOTES_MAX: usize = 1_024;

/// How often a runner sends progress for the jobs that it holds: four times before the queue on NATS
/// would deliver them again.
const PROGRESS: Duration = Duration::from_secs(1);

/// How long what a broken runner had is left alone, so that its runs have ended.
const GIVEN_BACK: Duration = Duration::from_millis(200);

/// Runs of one runner, in bits: no process begins as many.
const RUNS_BITS: u32 = 40;

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
    /// This process.
    pub process: ProcessId,
    /// The doors.
    pub substrate: Substrate,
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
            .field("capabilities", &self.available.peek(|it| it.capabilities.clone()))
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

/// The only door to a runner.
#[derive(Clone, Debug)]
pub struct JobRunner {
    notes: mpsc::WeakSender<Note>,
    drain: CancellationToken,
    drained: CancellationToken,
    archive: Archive,
}

/// What happens to a runner.
pub(super) enum Note {
    /// A job came, with its place.
    Taken { job: Box<Job>, handle: Arc<dyn AckHandle>, place: OwnedSemaphorePermit },
    /// For the machine.
    In(JobIn),
}

/// What a runner has of one job.
struct InHand {
    handle: Arc<dyn AckHandle>,
    /// Given back with the job.
    _place: OwnedSemaphorePermit,
    /// Stops its run.
    stop: CancellationToken,
}

struct Runner {
    context: RunnerContext,
    machine: JobMachine,
    hands: HashMap<JobId, InHand>,
    tasks: JoinSet<()>,
    takers: HashMap<Capability, AbortOnDropHandle<()>>,
    notes: mpsc::Sender<Note>,
}

/// Who is there, as the membership sees it.
struct Peers<'a> {
    members: &'a Members,
    shared: bool,
}

// === impl Peers ===

impl Liveness for Peers<'_> {
    fn is_dead(&self, process: ProcessId) -> bool {
        // Nobody else can be alive on ground that is not shared.
        !self.shared || self.members.holds_dead(process)
    }
}

// === impl JobRunner ===

impl JobRunner {
    /// A runner and the door to it. The future runs until it is drained; it is started again by
    /// calling this anew.
    pub fn new(context: RunnerContext) -> (Self, impl Future<Output = ()> + Send) {
        let (notes, inbound) = mpsc::channel(NOTES_MAX);
        let (drain, drained) = (CancellationToken::new(), CancellationToken::new());
        let archive = context.archive.clone();
        let door = Self { notes: notes.downgrade(), drain, drained, archive };
        let runs = context.begun.fetch_add(1, Ordering::Relaxed) << RUNS_BITS;
        let runner = Runner {
            machine: JobMachine::new(context.process, runs),
            context,
            hands: HashMap::new(),
            tasks: JoinSet::new(),
            takers: HashMap::new(),
            notes,
        };
        (door.clone(), runner.run(inbound, door))
    }

    /// The job shall not run on here; no effect unless it does.
    pub fn cancel(&self, job: JobId) {
        if let Some(notes) = self.notes.upgrade()
            && notes.try_send(Note::In(JobIn::Cancel(job))).is_err()
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

    /// Takes nothing more; what runs may end, for a while; returns once nothing is in hand.
    pub async fn drain(&self) {
        self.drain.cancel();
        self.drained.cancelled().await;
    }
}

// === impl Runner ===

impl Runner {
    async fn run(mut self, mut inbound: mpsc::Receiver<Note>, door: JobRunner) {
        let _drained = door.drained.clone().drop_guard();
        let mut available = self.context.available.clone();
        available.mark_changed();
        let mut progress = interval_at(Instant::now() + PROGRESS, PROGRESS);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut give_up: Option<Instant> = None;
        loop {
            if give_up.is_some() && self.hands.is_empty() {
                self.context.archive.settle().await;
                return;
            }
            tokio::select! {
                biased;
                Some(note) = inbound.recv() => self.note(note),
                Some(ended) = self.tasks.join_next() => {
                    if let Err(failure) = ended {
                        // Its job would be in hand for ever. All is given up and begun again.
                        error!(%failure, "a part of the job runner failed; it starts again");
                        return;
                    }
                }
                _ = progress.tick() => self.progress(),
                Ok(()) = available.changed(), if give_up.is_none() => {
                    let capabilities = available.peek_seen(|it| it.capabilities.clone());
                    self.take_jobs(&capabilities);
                }
                () = door.drain.cancelled(), if give_up.is_none() => {
                    self.takers.clear();
                    give_up = Some(Instant::now() + self.context.options.drain_grace);
                }
                () = until(give_up) => {
                    self.hands.values().for_each(|hand| hand.stop.cancel());
                    give_up = Some(Instant::now() + self.context.options.drain_grace);
                }
            }
        }
    }

    /// Takes the jobs of these capabilities from now on, and of no others.
    fn take_jobs(&mut self, capabilities: &BTreeSet<Capability>) {
        self.takers.retain(|capability, _| capabilities.contains(capability));
        for capability in capabilities {
            if self.takers.contains_key(capability) {
                continue;
            }
            let all = self.context.options.max_jobs.max(1);
            let places = Places {
                capability: capability.clone(),
                free: Arc::new(Semaphore::new(all)),
                all,
                rank: Arc::clone(&self.context.rank),
                peers: self.context.peers.clone(),
            };
            let (jobs, notes) = (Arc::clone(&self.context.substrate.jobs), self.notes.clone());
            let taking = tokio::spawn(take::take(jobs, places, notes));
            self.takers.insert(capability.clone(), AbortOnDropHandle::new(taking));
        }
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Taken { job, handle, place } => {
                let id = job.id;
                if let Some(hand) = self.hands.get_mut(&id) {
                    hand.handle = handle;
                    return;
                }
                let stop = CancellationToken::new();
                self.hands.insert(id, InHand { handle, _place: place, stop });
                self.step(JobIn::Delivered(job));
            }
            Note::In(input) => self.step(input),
        }
    }

    fn step(&mut self, input: JobIn) {
        let now = self.context.clock.now();
        let (machine, shared) = (&mut self.machine, self.context.substrate.shared);
        let outs = self.context.peers.peek(|members| {
            let peers = Peers { members, shared };
            machine.handle(now, input, &peers)
        });
        for out in outs {
            self.perform(out);
        }
    }

    fn perform(&mut self, out: JobOut) {
        let work = work::Work::new(&self.context, &self.notes);
        match out {
            JobOut::Read { job, wait } => drop(self.tasks.spawn(work.read(job, wait))),
            JobOut::Set { job, expected, state } => {
                drop(self.tasks.spawn(work.set(job, expected, state)));
            }
            JobOut::Run(job) => {
                let stop = self.hands.get(&job.id).map(|hand| hand.stop.clone());
                drop(self.tasks.spawn(work.run(job, stop.unwrap_or_default())));
            }
            JobOut::Watch { job, after } => drop(self.tasks.spawn(work.watch(job, after))),
            JobOut::Probe(job) => drop(self.tasks.spawn(work.probe(job))),
            JobOut::Abort(job) => {
                if let Some(hand) = self.hands.get(&job) {
                    hand.stop.cancel();
                }
            }
            JobOut::Send(job, end) => drop(self.tasks.spawn(work.send(job, end))),
            JobOut::Acknowledge(job) => {
                if let Some(hand) = self.hands.remove(&job) {
                    self.tasks.spawn(async move {
                        if let Err(failure) = hand.handle.ack().await {
                            // It is delivered again, found done, and acknowledged then.
                            debug!(%job, %failure, "a job could not be acknowledged");
                        }
                    });
                }
            }
            JobOut::GiveBack { job, delay } => {
                if let Some(hand) = self.hands.remove(&job) {
                    self.tasks.spawn(async move {
                        if let Err(failure) = hand.handle.nak(delay).await {
                            debug!(%job, %failure, "a job could not be given back");
                        }
                    });
                }
            }
        }
    }

    /// Says of all jobs in hand that somebody is at them.
    fn progress(&mut self) {
        let handles: Vec<_> = self.hands.values().map(|hand| Arc::clone(&hand.handle)).collect();
        self.tasks.spawn(async move {
            for handle in handles {
                if let Err(failure) = handle.progress().await {
                    debug!(%failure, "cannot report the progress of a job");
                }
            }
        });
    }
}

impl Drop for Runner {
    /// A runner that breaks, and that starts again, must not wait for redelivery of what it had.
    fn drop(&mut self) {
        // Their runs end with it, before anybody is delivered them.
        self.tasks.abort_all();
        let handles: Vec<_> = self.hands.drain().map(|(_, hand)| hand.handle).collect();
        if let (false, Ok(runtime)) = (handles.is_empty(), tokio::runtime::Handle::try_current()) {
            runtime.spawn(async move {
                for handle in handles {
                    if let Err(failure) = handle.nak(GIVEN_BACK).await {
                        debug!(%failure, "a job could not be given back; it is delivered again");
                    }
                }
            });
        }
    }
}

async fn until(when: Option<Instant>) {
    match when {
        Some(when) => tokio::time::sleep_until(when).await,
        None => std::future::pending().await,
    }
}
