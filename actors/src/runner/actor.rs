//! The loop of a runner: what happens to it is given to the job machine; what the machine says is done.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use clawnode_cluster::{Peek, PeekSeen};
use clawnode_kernel::job_machine::{JobIn, JobMachine, JobOut};
use clawnode_proto::{Capability, JobId};
use tokio::{
    sync::{Semaphore, mpsc},
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval_at},
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};
use tracing::{debug, error, warn};

use super::{
    job_run,
    state::{RunnerContext, RunnerMessage, RunnerPeers, RunningJob},
    take::{self, CapabilitySlots},
};

/// How often a runner sends progress for the jobs that it holds: four times before the queue on NATS
/// would deliver them again.
const PROGRESS: Duration = Duration::from_secs(1);

/// How long what a broken runner had is left alone, so that its runs have ended.
const GIVEN_BACK: Duration = Duration::from_millis(200);

/// How long jobs may take to end once they are cancelled because the node drains (20 s): an MCP server may take
/// almost as long. What is left then does not end, or its end cannot be stored. It is as if the process had died.
const CUT_WITHIN: Duration = Duration::from_secs(20);

pub(super) struct RunnerTask {
    context: RunnerContext,
    machine: JobMachine,
    hands: HashMap<JobId, RunningJob>,
    tasks: JoinSet<()>,
    takers: HashMap<Capability, AbortOnDropHandle<()>>,
    notes: mpsc::Sender<RunnerMessage>,
}

// === impl RunnerTask ===

impl RunnerTask {
    /// One that has nothing in hand, whose runs are numbered from `runs` on.
    pub(super) fn new(
        context: RunnerContext,
        runs: u64,
        notes: mpsc::Sender<RunnerMessage>,
    ) -> Self {
        Self {
            machine: JobMachine::new(context.process, runs),
            context,
            hands: HashMap::new(),
            tasks: JoinSet::new(),
            takers: HashMap::new(),
            notes,
        }
    }

    /// Runs until `drain` is cancelled and it has nothing in hand, or what it has does not end; cancels `drained`
    /// however it ends.
    pub(super) async fn run(
        mut self,
        mut inbound: mpsc::Receiver<RunnerMessage>,
        drain: CancellationToken,
        drained: CancellationToken,
    ) {
        let _drained = drained.drop_guard();
        let mut available = self.context.available.clone();
        available.mark_changed();
        let mut progress = interval_at(Instant::now() + PROGRESS, PROGRESS);
        progress.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut give_up, mut is_cut): (Option<Instant>, bool) = (None, false);
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
                    let capabilities = available.peek_seen(|available| available.capabilities.clone());
                    self.take_jobs(&capabilities);
                }
                () = drain.cancelled(), if give_up.is_none() => {
                    self.takers.clear();
                    give_up = Some(Instant::now() + self.context.options.drain_grace);
                }
                () = until(give_up), if !is_cut => {
                    self.hands.values().for_each(|hand| hand.stop.cancel());
                    is_cut = true;
                    give_up = Some(Instant::now() + CUT_WITHIN);
                }
                () = until(give_up), if is_cut => {
                    let jobs = self.hands.len();
                    warn!(jobs, "jobs are left: they do not end, or their ends cannot be stored");
                    return;
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
            let places = CapabilitySlots {
                capability: capability.clone(),
                free: Arc::new(Semaphore::new(all)),
                all,
                rank: Arc::clone(&self.context.rank),
                peers: self.context.peers.clone(),
            };
            let (jobs, notes) = (Arc::clone(&self.context.storage.jobs), self.notes.clone());
            let taking = tokio::spawn(take::take(jobs, places, notes));
            self.takers.insert(capability.clone(), AbortOnDropHandle::new(taking));
        }
    }

    fn note(&mut self, note: RunnerMessage) {
        match note {
            RunnerMessage::Taken { job, handle, place } => {
                let id = job.id;
                if let Some(hand) = self.hands.get_mut(&id) {
                    hand.handle = handle;
                    return;
                }
                let stop = CancellationToken::new();
                self.hands.insert(id, RunningJob { handle, _place: place, stop });
                self.step(JobIn::Delivered(job));
            }
            RunnerMessage::In(input) => self.step(input),
        }
    }

    fn step(&mut self, input: JobIn) {
        let now = self.context.clock.now();
        let (machine, shared) = (&mut self.machine, self.context.storage.shared);
        let outs = self.context.peers.peek(|members| {
            let peers = RunnerPeers { members, shared };
            machine.handle(now, input, &peers)
        });
        for out in outs {
            self.perform(out);
        }
    }

    fn perform(&mut self, out: JobOut) {
        let work = job_run::RunnerWork::new(&self.context, &self.notes);
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

    /// Reports progress on all jobs in hand.
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

impl Drop for RunnerTask {
    /// A runner that breaks and starts again must not wait until its jobs are delivered again.
    fn drop(&mut self) {
        // Their runs end with it, before they are delivered to another runner.
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
