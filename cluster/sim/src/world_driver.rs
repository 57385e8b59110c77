//! The world behind the simulated handles: it keeps up with the runtime's time.
//!
//! A task steps the world to the present whenever something in it is due. A caller waits for the
//! world's answer; the world itself sets the latest time for it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use clawnode_cluster::{Clock, StoreError};
use clawnode_local::Watchers;
use clawnode_proto::{Capability, Partition, ProcessId, Timestamp};
use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{Delivered, Happening, JobDelivered, RequestTicket, StoreReply, StoreRequest, World};

/// A world whose processes are driven from outside.
pub(super) type Stores = World<std::convert::Infallible>;

/// The world's time: it goes on with the runtime's.
#[derive(Clone, Copy, Debug)]
pub struct SimClock {
    began: Instant,
    at: Timestamp,
}

impl SimClock {
    pub(super) fn new(at: Timestamp) -> Self {
        Self { began: Instant::now(), at }
    }

    fn instant(self, at: Timestamp) -> Instant {
        self.began + at.since(self.at)
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        self.at.plus(self.began.elapsed())
    }
}

/// A world, and who waits for something of it.
#[derive(Debug)]
pub(super) struct WorldDriver {
    pub(super) clock: SimClock,
    pub(super) partitions: u16,
    state: Mutex<WorldDriverState>,
    pub(super) watchers: Watchers,
    /// Rings when something was asked, or all is over.
    bell: Arc<Notify>,
    /// One for each partition: rings when something arrived.
    arrivals: Vec<Notify>,
}

#[derive(Debug)]
pub(super) struct WorldDriverState {
    pub(super) world: Stores,
    /// The process that has the handles now, if any.
    process: Option<ProcessId>,
    processes: u128,
    asked: BTreeMap<RequestTicket, oneshot::Sender<StoreReply>>,
    arrived: BTreeMap<Partition, VecDeque<(Timestamp, Delivered)>>,
    waiting: BTreeMap<Partition, usize>,
    jobs: BTreeMap<Capability, JobLine>,
}

/// Who waits for jobs of a capability, and what came.
#[derive(Debug, Default)]
struct JobLine {
    arrived: VecDeque<(Timestamp, JobDelivered)>,
    waiting: usize,
    bell: Arc<Notify>,
}

/// One process's access.
#[derive(Clone, Debug)]
pub(super) struct WorldClient {
    pub(super) shared: Arc<WorldDriver>,
    process: ProcessId,
}

/// A place in the line for deliveries of a partition; dropping it leaves the line.
pub(super) struct PullPlace<'a> {
    client: &'a WorldClient,
    partition: Partition,
}

/// A place in the line for jobs of a capability; dropping it leaves the line.
pub(super) struct JobPlace<'a> {
    client: &'a WorldClient,
    capability: &'a Capability,
    bell: Arc<Notify>,
}

/// Steps the world until its last handle is dropped.
async fn drive(shared: Weak<WorldDriver>, bell: Arc<Notify>) {
    loop {
        let next = {
            let Some(shared) = shared.upgrade() else { return };
            let mut state = shared.lock();
            shared.catch_up(&mut state);
            state.world.next_at().map(|at| shared.clock.instant(at))
        };
        match next {
            Some(at) => tokio::select! {
                () = tokio::time::sleep_until(at) => {}
                () = bell.notified() => {}
            },
            None => bell.notified().await,
        }
    }
}

// === impl WorldDriver ===

impl WorldDriver {
    /// Must be called within a runtime.
    pub(super) fn start(world: Stores, partitions: u16) -> Arc<Self> {
        let bell = Arc::new(Notify::new());
        let shared = Arc::new(Self {
            clock: SimClock::new(world.now()),
            partitions,
            state: Mutex::new(WorldDriverState {
                world,
                process: None,
                processes: 0,
                asked: BTreeMap::new(),
                arrived: BTreeMap::new(),
                waiting: BTreeMap::new(),
                jobs: BTreeMap::new(),
            }),
            watchers: Watchers::default(),
            bell: Arc::clone(&bell),
            arrivals: (0..partitions).map(|_| Notify::new()).collect(),
        });
        tokio::spawn(drive(Arc::downgrade(&shared), bell));
        shared
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, WorldDriverState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Steps the world to the present, and hands out what happened.
    fn catch_up(&self, state: &mut WorldDriverState) {
        while let Some((_, happening)) = state.world.step_until(self.clock.now()) {
            match happening {
                Happening::Answer(ticket, reply) => {
                    // The caller may be gone.
                    if let Some(asker) = state.asked.remove(&ticket) {
                        drop(asker.send(reply));
                    }
                }
                Happening::Delivery(delivered) => {
                    let partition = delivered.entity.partition(self.partitions);
                    let now = state.world.now();
                    state.arrived.entry(partition).or_default().push_back((now, delivered));
                    self.ring(partition);
                }
                Happening::Job(delivered) => {
                    let now = state.world.now();
                    let line = state.jobs.entry(delivered.job.capability.clone()).or_default();
                    line.arrived.push_back((now, delivered));
                    line.bell.notify_one();
                }
                Happening::Own(never) => match never {},
            }
        }
        for (key, entry) in state.world.value_changes() {
            self.watchers.tell(&key, entry.as_ref());
        }
    }

    fn ring(&self, partition: Partition) {
        if let Some(bell) = self.arrivals.get(usize::from(partition.0)) {
            bell.notify_one();
        }
    }

    /// The handles' process is gone, as if it had died.
    fn leave(state: &mut WorldDriverState) {
        if let Some(process) = state.process.take() {
            state.world.kill(process);
        }
        for (partition, _) in std::mem::take(&mut state.waiting) {
            state.world.pull_at_most(partition, 0);
        }
        state.asked.clear();
        state.arrived.clear();
        // What the process asked for is forgotten with it.
        for (_, line) in std::mem::take(&mut state.jobs) {
            line.bell.notify_waiters();
            line.bell.notify_one();
        }
    }
}

impl Drop for WorldDriver {
    fn drop(&mut self) {
        self.bell.notify_one();
    }
}

// === impl WorldClient ===

impl WorldClient {
    /// A new process takes the handles; the one before it is gone.
    pub(super) fn enter(shared: &Arc<WorldDriver>) -> Self {
        let mut state = shared.lock();
        shared.catch_up(&mut state);
        WorldDriver::leave(&mut state);
        state.processes += 1;
        let process = ProcessId::from_u128(state.processes);
        state.process = Some(process);
        state.world.start(process, true);
        Self { shared: Arc::clone(shared), process }
    }

    /// This process ends.
    pub(super) fn close(&self) {
        let mut state = self.shared.lock();
        if state.process == Some(self.process) {
            WorldDriver::leave(&mut state);
            self.shared.watchers.close();
            self.shared.arrivals.iter().for_each(Notify::notify_waiters);
        }
    }

    /// The state at present, unless this process has ended.
    pub(super) fn present(
        &self,
        store: &'static str,
    ) -> Result<MutexGuard<'_, WorldDriverState>, StoreError> {
        let mut state = self.shared.lock();
        if state.process != Some(self.process) {
            let detail = "the process ended".to_owned();
            return Err(StoreError::Closed { store, detail });
        }
        self.shared.catch_up(&mut state);
        Ok(state)
    }

    /// Asks the stores.
    pub(super) async fn ask(
        &self,
        store: &'static str,
        request: StoreRequest,
    ) -> Result<StoreReply, StoreError> {
        let (asker, answer) = oneshot::channel();
        {
            let mut state = self.present(store)?;
            let ticket = state.world.submit(self.process, request);
            state.asked.insert(ticket, asker);
        }
        self.shared.bell.notify_one();
        match answer.await {
            Ok(StoreReply::Failed) => {
                let detail = "no answer, or one that proves nothing".to_owned();
                Err(StoreError::Unavailable { store, detail })
            }
            Ok(reply) => Ok(reply),
            Err(_gone) => {
                let detail = "the process ended".to_owned();
                Err(StoreError::Closed { store, detail })
            }
        }
    }

    /// The next delivery of a partition.
    pub(super) async fn next(
        &self,
        store: &'static str,
        partition: Partition,
    ) -> Result<Delivered, StoreError> {
        let _place = self.line_up(store, partition)?;
        let Some(bell) = self.shared.arrivals.get(usize::from(partition.0)) else {
            let detail = format!("partition {partition}, of {} in all", self.shared.partitions);
            return Err(StoreError::Refused { store, detail });
        };
        loop {
            let rung = bell.notified();
            if let Some(delivered) = self.take(store, partition)? {
                return Ok(delivered);
            }
            rung.await;
        }
    }

    fn line_up(
        &self,
        store: &'static str,
        partition: Partition,
    ) -> Result<PullPlace<'_>, StoreError> {
        let mut state = self.present(store)?;
        *state.waiting.entry(partition).or_default() += 1;
        state.world.pull(partition);
        self.shared.bell.notify_one();
        Ok(PullPlace { client: self, partition })
    }

    /// What arrived first, unless it arrived so long ago that it comes again.
    fn take(
        &self,
        store: &'static str,
        partition: Partition,
    ) -> Result<Option<Delivered>, StoreError> {
        let mut state = self.present(store)?;
        let (now, most) = (state.world.now(), state.world.ack_wait);
        let Some(arrived) = state.arrived.get_mut(&partition) else { return Ok(None) };
        let mut found = None;
        let mut outdated = 0;
        while let Some((at, delivered)) = arrived.pop_front() {
            if now.since(at) < most {
                found = Some(delivered);
                break;
            }
            outdated += 1;
        }
        if !arrived.is_empty() {
            self.shared.ring(partition);
        }
        for _ in 0..outdated {
            state.world.pull(partition);
        }
        Ok(found)
    }
}

impl WorldClient {
    /// The next job of a capability.
    pub(super) async fn next_job(
        &self,
        store: &'static str,
        capability: &Capability,
    ) -> Result<JobDelivered, StoreError> {
        let place = self.line_up_for_jobs(store, capability)?;
        loop {
            let rung = place.bell.notified();
            if let Some(delivered) = self.take_job(store, capability)? {
                return Ok(delivered);
            }
            rung.await;
        }
    }

    fn line_up_for_jobs<'a>(
        &'a self,
        store: &'static str,
        capability: &'a Capability,
    ) -> Result<JobPlace<'a>, StoreError> {
        let mut state = self.present(store)?;
        let line = state.jobs.entry(capability.clone()).or_default();
        line.waiting += 1;
        let bell = Arc::clone(&line.bell);
        state.world.pull_job(self.process, capability);
        self.shared.bell.notify_one();
        Ok(JobPlace { client: self, capability, bell })
    }

    /// What arrived first, unless it arrived so long ago that it comes again.
    fn take_job(
        &self,
        store: &'static str,
        capability: &Capability,
    ) -> Result<Option<JobDelivered>, StoreError> {
        let mut state = self.present(store)?;
        let (now, most) = (state.world.now(), state.world.ack_wait);
        let Some(line) = state.jobs.get_mut(capability) else { return Ok(None) };
        let mut outdated = 0;
        let mut found = None;
        while let Some((at, delivered)) = line.arrived.pop_front() {
            if now.since(at) < most {
                found = Some(delivered);
                break;
            }
            outdated += 1;
        }
        if !line.arrived.is_empty() {
            line.bell.notify_one();
        }
        for _ in 0..outdated {
            state.world.pull_job(self.process, capability);
        }
        Ok(found)
    }
}

impl Drop for JobPlace<'_> {
    fn drop(&mut self) {
        let mut state = self.client.shared.lock();
        if state.process != Some(self.client.process) {
            return;
        }
        let Some(line) = state.jobs.get_mut(self.capability) else { return };
        line.waiting = line.waiting.saturating_sub(1);
        let most = line.waiting;
        state.world.pull_jobs_at_most(self.client.process, self.capability, most);
    }
}

impl Drop for PullPlace<'_> {
    fn drop(&mut self) {
        let mut state = self.client.shared.lock();
        if state.process != Some(self.client.process) {
            return;
        }
        let waiting = state.waiting.entry(self.partition).or_default();
        *waiting = waiting.saturating_sub(1);
        let most = *waiting;
        state.world.pull_at_most(self.partition, most);
    }
}

/// The world answered another question.
pub(super) fn stray(store: &'static str, reply: &StoreReply) -> StoreError {
    StoreError::Refused { store, detail: format!("an answer to something else: {reply:?}") }
}
