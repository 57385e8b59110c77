//! Jobs as a work queue: what waits, who asked for it, who was given it, and until when.
//!
//! Unlike inputs, jobs are delivered only to a process that asks ([`World::pull_job`]), one each
//! time. The faults of requests apply to putting and answering them, those of deliveries to
//! delivering them: a delivery may be lost (the pull is then asked for again, as clients do) or come
//! twice. A put that lands long after its asker gave up may find its job done and gone, and makes it
//! wait again.

use std::collections::{BTreeMap, VecDeque};

use clawnode_proto::{
    Capability, JobId, Position, ProcessId, Timestamp, job::Job, limits::JOB_AGE_MAX,
};

use super::{
    request::{Happening, JobDelivered, JobToken, StoreChange, StoreReply, StoreRequest},
    sync::Unsynced,
    world::{World, WorldEvent},
};

#[derive(Debug)]
struct SimWaitingJob {
    job: Job,
    /// Not delivered again before.
    due: u64,
    deliveries: u32,
    /// When it is too old for the queue.
    old: u64,
}

/// All jobs, in stream order.
#[derive(Debug, Default)]
pub(super) struct SimJobQueue {
    all: BTreeMap<Position, SimWaitingJob>,
    places: BTreeMap<(Capability, JobId), Position>,
    /// Who asked for a job, in this order, once for each that they asked for.
    pulls: BTreeMap<Capability, VecDeque<ProcessId>>,
    last: u64,
}

// === impl SimJobQueue ===

impl SimJobQueue {
    /// Stores a job, if it does not wait already.
    fn put(&mut self, at: u64, job: Job) -> Option<Position> {
        let place = (job.capability.clone(), job.id);
        if self.places.contains_key(&place) {
            return None;
        }
        self.last += 1;
        let position = Position(self.last);
        self.places.insert(place, position);
        let old = Timestamp(at).plus(JOB_AGE_MAX).0;
        self.all.insert(position, SimWaitingJob { job, due: at, deliveries: 0, old });
        Some(position)
    }

    /// Removes a job, if it still waits.
    pub(super) fn remove(&mut self, position: Position) -> Option<Job> {
        let SimWaitingJob { job, .. } = self.all.remove(&position)?;
        self.places.remove(&(job.capability.clone(), job.id));
        Some(job)
    }

    /// Forgets what a process asked for.
    pub(super) fn forget(&mut self, process: ProcessId) {
        for pulls in self.pulls.values_mut() {
            pulls.retain(|one| *one != process);
        }
    }

    fn pull(&mut self, process: ProcessId, capability: &Capability) {
        self.pulls.entry(capability.clone()).or_default().push_back(process);
    }

    /// The first job of a capability that can be delivered now.
    fn ready(&self, capability: &Capability, now: u64) -> Option<Position> {
        let is_ready = |one: &SimWaitingJob| one.job.capability == *capability && one.due <= now;
        self.all.iter().find(|(_, one)| is_ready(one)).map(|(position, _)| *position)
    }
}

// === impl World ===

impl<D> World<D> {
    /// The process asks for one more job of a capability.
    pub fn pull_job(&mut self, process: ProcessId, capability: &Capability) {
        self.jobs.pull(process, capability);
        if let Some(position) = self.jobs.ready(capability, self.now().0) {
            self.schedule.plan(0, WorldEvent::WakeJob(position));
        }
    }

    /// The process wants no more than so many jobs of a capability; what is on its way comes.
    pub fn pull_jobs_at_most(&mut self, process: ProcessId, capability: &Capability, most: usize) {
        if let Some(pulls) = self.jobs.pulls.get_mut(capability) {
            let mut left = most;
            pulls.retain(|one| {
                let stays = *one != process || left > 0;
                left -= usize::from(*one == process && stays);
                stays
            });
        }
    }

    /// The jobs that really wait now.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.jobs.all.values().map(|one| &one.job)
    }

    pub(super) fn serve_jobs(&mut self, request: StoreRequest) -> StoreReply {
        match request {
            StoreRequest::PutJob(job) => {
                let id = job.id;
                if let Some(position) = self.jobs.put(self.now().0, *job) {
                    self.changes.push(StoreChange::JobPut(id));
                    self.sync_later(Unsynced::Job(position));
                    self.schedule.plan(1, WorldEvent::WakeJob(position));
                }
            }
            StoreRequest::AckJob(JobToken(position)) => self.remove_job(position),
            StoreRequest::ProgressJob(JobToken(position)) => {
                let due = self.now().plus(self.ack_wait).0;
                if let Some(waiting) = self.jobs.all.get_mut(&position) {
                    waiting.due = due;
                }
            }
            StoreRequest::NakJob(JobToken(position), wait) => {
                let due = self.now().plus(wait).0;
                if let Some(waiting) = self.jobs.all.get_mut(&position) {
                    waiting.due = due;
                    self.schedule.plan_at(due, WorldEvent::WakeJob(position));
                }
            }
            StoreRequest::JobWaits(capability, job) => {
                return StoreReply::Is(self.jobs.places.contains_key(&(capability, job)));
            }
            StoreRequest::Jobs => return StoreReply::Jobs(self.jobs().cloned().collect()),
            // The others are served elsewhere.
            _ => return StoreReply::Failed,
        }
        StoreReply::Done
    }

    fn remove_job(&mut self, position: Position) {
        if let Some(job) = self.jobs.remove(position) {
            self.changes.push(StoreChange::JobRemoved(job.id));
        }
    }

    /// Who asked first of those who are there, once less from now on.
    fn next_pull(&mut self, capability: &Capability) -> Option<ProcessId> {
        let pulls = self.jobs.pulls.get(capability)?;
        let at = pulls.iter().position(|process| self.serves(*process))?;
        self.jobs.pulls.get_mut(capability)?.remove(at)
    }

    fn is_asked_for(&self, capability: &Capability) -> bool {
        self.jobs.pulls.get(capability).is_some_and(|pulls| !pulls.is_empty())
    }

    pub(super) fn wake_job(&mut self, position: Position) {
        let now = self.now().0;
        let due = self.now().plus(self.ack_wait).0;
        let Some(waiting) = self.jobs.all.get(&position) else { return };
        if waiting.old < now && !self.bugs.keeps_old_jobs {
            self.remove_job(position);
            return;
        }
        if waiting.due > now {
            self.schedule.plan_at(waiting.due, WorldEvent::WakeJob(position));
            return;
        }
        let capability = waiting.job.capability.clone();
        let Some(to) = self.next_pull(&capability) else {
            // Without a request for it, the job waits for one, or goes on.
            if self.is_asked_for(&capability) {
                self.schedule.plan(1_000, WorldEvent::WakeJob(position));
            }
            return;
        };
        let Some(waiting) = self.jobs.all.get_mut(&position) else { return };
        waiting.due = due;
        let redelivered = waiting.deliveries > 0;
        waiting.deliveries += 1;
        let job = Box::new(waiting.job.clone());
        let delivered = JobDelivered { job, token: JobToken(position), redelivered };
        self.schedule.plan_at(due, WorldEvent::WakeJob(position));
        let faults = self.faults;
        if self.chance(faults.lost_delivery) {
            self.pull_job(to, &capability);
        } else {
            let (after, happening) = (self.delay(), Happening::Job(delivered.clone()));
            self.schedule.plan(after, WorldEvent::Happen(to, happening));
        }
        if self.chance(faults.delivered_twice) {
            let others = self.jobs.pulls.get(&capability);
            let other = others.and_then(|all| all.front()).copied().unwrap_or(to);
            let after = self.delay();
            let delivered = JobDelivered { redelivered: true, ..delivered };
            self.schedule.plan(after, WorldEvent::Happen(other, Happening::Job(delivered)));
        }
        if self.bugs.forget_on_delivery {
            self.remove_job(position);
        }
        // More may be ready for others who asked.
        if self.is_asked_for(&capability)
            && let Some(next) = self.jobs.ready(&capability, now)
        {
            self.schedule.plan(0, WorldEvent::WakeJob(next));
        }
    }
}
