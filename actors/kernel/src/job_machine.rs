//! The job-runner machine: all jobs that one process has in hand, sans I/O.
//!
//! [`JobMachine::handle`] takes what happened and returns what to do; the driver of
//! `clawnode_actors::runner` and the simulator are two thin drivers of it. A job's state key is the only
//! truth, and it changes by compare-and-set alone. A run begins only after its `started` is stored,
//! and its result leaves only after its `done` is.
//!
//! A job of class `safe` changes nothing, so it does not matter how often it ran. If its state key
//! says nothing, it runs at once, and the first result that is stored counts. Only a run that lasts
//! is written down: then the session that waits for it can see who runs it, and stop it.
//!
//! Supervised by: the node. Messages come from: the queue of each capability, the state keys, and
//! the runs. On crash: what ran here is `started` by a process that is gone, and the runner that
//! gets the job next decides by its effect class.
//!
//! Invariants
//! - JOB-1 only class `safe` runs without a stored `started` of this very run.
//! - JOB-2 a job has at most one run at a time in one process.
//! - JOB-3 no result leaves before a terminal state is stored, but of a `safe` run without a state, and
//!   no acknowledgement before that result is; but one that is too old and has no state is acknowledged
//!   without any, for the timer of its wait has told its session, or will.
//! - JOB-4 a job of class `once` is never run again.
//! - JOB-5 a job that is older than it may be is never begun: by then its state key may be forgotten.

use std::{collections::BTreeMap, time::Duration};

use clawnode_proto::{
    JobId, Position, ProcessId, Timestamp,
    job::{Job, JobState},
    session::ToolEnd,
    tool::{EffectClass, ToolFailure, ToolOutcome},
};

#[cfg(feature = "test-util")]
use super::KernelBug;
pub use super::job_io::{JobIn, JobOut, Liveness, Probe};

/// How soon a job is read again that another process runs, if that process is not held dead. Most
/// processes know of a death within a second.
const RUNS_ELSEWHERE: Duration = Duration::from_secs(2);
/// The first wait before a state that could not be read or set is read again; doubles up to
/// [`AGAIN_MOST`].
const AGAIN_FIRST: Duration = Duration::from_millis(100);
/// How long a run of class `safe` goes on before it is written down.
const LASTS: Duration = Duration::from_millis(100);
/// The longest wait before a state is read again.
const AGAIN_MOST: Duration = Duration::from_secs(5);

/// How far a job is.
#[derive(Clone, Debug, PartialEq)]
enum JobPhase {
    /// This state is being set, and may or may not be.
    Setting { expected: Position, state: JobState, then: AfterStore },
    /// It is too old to be begun, or runs without a state; that is being read.
    Reading,
    /// It runs without a state.
    Unwritten,
    /// It has run for a while, and this state is being set meanwhile.
    Writing { state: JobState },
    /// It runs, or is about to be probed; its `started` is at this position.
    Running { at: Position },
    /// Its result is on its way to the inbox.
    Sending,
}

/// What follows once a state is stored.
#[derive(Clone, Debug, PartialEq)]
enum AfterStore {
    Run,
    Probe,
    Send(ToolEnd),
}

/// One job in hand.
#[derive(Debug)]
struct JobInHand {
    job: Box<Job>,
    phase: JobPhase,
    tries: u32,
    cancelled: bool,
}

/// All jobs that one process has in hand.
#[derive(Debug)]
pub struct JobMachine {
    me: ProcessId,
    runs: u64,
    slots: BTreeMap<JobId, JobInHand>,
    #[cfg(feature = "test-util")]
    planted: KernelBug,
}

// === impl JobPhase ===

impl JobPhase {
    const fn runs(&self) -> bool {
        matches!(self, Self::Unwritten | Self::Writing { .. } | Self::Running { .. })
    }
}

// === impl JobMachine ===

impl JobMachine {
    /// Of a process that has nothing in hand, and began fewer than `runs` runs before: a run of an
    /// earlier machine of the same process is not this one's own.
    pub fn new(me: ProcessId, runs: u64) -> Self {
        Self {
            me,
            runs,
            slots: BTreeMap::new(),
            #[cfg(feature = "test-util")]
            planted: KernelBug::None,
        }
    }

    /// The same with a planted bug.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn planted(mut self, planted: KernelBug) -> Self {
        self.planted = planted;
        self
    }

    /// Jobs in hand.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> {
        self.slots.keys().copied()
    }

    /// Jobs that run.
    pub fn running(&self) -> usize {
        self.slots.values().filter(|slot| slot.phase.runs()).count()
    }

    /// Takes one thing that happened; returns what to do, in order. `now` is only written down.
    pub fn handle(&mut self, now: Timestamp, input: JobIn, alive: &impl Liveness) -> Vec<JobOut> {
        #[cfg(feature = "test-util")]
        let now = if self.planted == KernelBug::OldJobsRun { Timestamp(0) } else { now };
        match input {
            JobIn::Delivered(job) => self.delivered(now, job),
            JobIn::Read(job, state) => self.read(now, job, state, alive),
            JobIn::Unknown(job) => self.unknown(job),
            JobIn::Stored(job, position) => self.stored(now, job, position),
            JobIn::Conflict(job) => self.again(job, Duration::ZERO),
            JobIn::Lasts(job) => self.lasts(now, job),
            JobIn::Ended(job, outcome) => self.ended(job, outcome),
            JobIn::Probed(job, probe) => self.probed(now, job, probe),
            JobIn::Sent(job) => self.sent(job),
            JobIn::Cancel(job) => self.cancel(job),
        }
    }

    fn delivered(&mut self, now: Timestamp, job: Box<Job>) -> Vec<JobOut> {
        let id = job.id;
        if self.slots.contains_key(&id) {
            // JOB-2: it is in hand, and its handle was replaced.
            return Vec::new();
        }
        if job.is_too_old(now) || job.class == EffectClass::Safe {
            let phase = JobPhase::Reading;
            self.slots.insert(id, JobInHand { job, phase, tries: 0, cancelled: false });
            return self.again(id, Duration::ZERO);
        }
        // Nearly always no process has begun it. The fence fails if one has, and only then a read
        // finds out which.
        let (expected, state) = (Position(0), self.started(now, 1));
        let phase = JobPhase::Setting { expected, state, then: AfterStore::Run };
        self.slots.insert(id, JobInHand { job, phase, tries: 0, cancelled: false });
        self.start(id)
    }

    fn read(
        &mut self,
        now: Timestamp,
        id: JobId,
        found: Option<(Position, JobState)>,
        alive: &impl Liveness,
    ) -> Vec<JobOut> {
        let Some(slot) = self.slots.get_mut(&id) else { return Vec::new() };
        let (expected, state, then) = match slot.phase.clone() {
            JobPhase::Setting { expected, state, then } => (expected, state, then),
            JobPhase::Reading => return self.read_first(now, id, found, alive),
            JobPhase::Writing { state } => return self.read_of_running(id, state, found),
            JobPhase::Unwritten | JobPhase::Running { .. } | JobPhase::Sending => {
                return Vec::new();
            }
        };
        match found {
            // Own, because this memory knows the run; or a word that anyone would write.
            Some((position, found)) if found == state => self.set(now, id, position, then),
            Some((position, found)) if position > expected => {
                self.judge(now, id, position, found, alive)
            }
            // A read may be old, and what was sent may still arrive: the same again.
            Some(_) | None => vec![JobOut::Set { job: id, expected, state }],
        }
    }

    fn read_first(
        &mut self,
        now: Timestamp,
        id: JobId,
        found: Option<(Position, JobState)>,
        alive: &impl Liveness,
    ) -> Vec<JobOut> {
        if let Some((position, found)) = found {
            return self.judge(now, id, position, found, alive);
        }
        let Some(slot) = self.slots.get_mut(&id) else { return Vec::new() };
        if slot.job.is_too_old(now) {
            // No process began it, or its state was closed and is forgotten (JOB-5).
            self.slots.remove(&id);
            return vec![JobOut::Acknowledge(id)];
        }
        if slot.cancelled {
            return self.send(id, ToolEnd::Known { outcome: cancelled_before() });
        }
        slot.tries = 0;
        slot.phase = JobPhase::Unwritten;
        vec![JobOut::Run(slot.job.clone()), JobOut::Watch { job: id, after: LASTS }]
    }

    /// A run without a state is written down, if it still goes on.
    fn lasts(&mut self, now: Timestamp, id: JobId) -> Vec<JobOut> {
        let state = self.started(now, 1);
        match self.slots.get_mut(&id) {
            Some(slot) if slot.phase == JobPhase::Unwritten => {
                slot.phase = JobPhase::Writing { state: state.clone() };
                vec![JobOut::Set { job: id, expected: Position(0), state }]
            }
            _ => Vec::new(),
        }
    }

    /// What is found while the state of a run is being set that goes on.
    fn read_of_running(
        &mut self,
        id: JobId,
        state: JobState,
        found: Option<(Position, JobState)>,
    ) -> Vec<JobOut> {
        let Some(slot) = self.slots.get_mut(&id) else { return Vec::new() };
        match found {
            None => vec![JobOut::Set { job: id, expected: Position(0), state }],
            Some((at, found)) if found == state => {
                slot.phase = JobPhase::Running { at };
                Vec::new()
            }
            // Another process runs it as well, which does no harm, or its session does not wait any
            // more.
            Some((_, found)) => {
                slot.phase = JobPhase::Unwritten;
                let over = matches!(found, JobState::Revoked | JobState::Closed);
                if over { vec![JobOut::Abort(id)] } else { Vec::new() }
            }
        }
    }

    /// Decides what a state means that another process has set.
    fn judge(
        &mut self,
        now: Timestamp,
        id: JobId,
        position: Position,
        state: JobState,
        alive: &impl Liveness,
    ) -> Vec<JobOut> {
        let Some(slot) = self.slots.get_mut(&id) else { return Vec::new() };
        match state {
            JobState::Started { process, .. } if process != self.me && !alive.is_dead(process) => {
                self.slots.remove(&id);
                vec![JobOut::GiveBack { job: id, delay: RUNS_ELSEWHERE }]
            }
            JobState::Started { process, attempt, .. } => {
                let class = slot.job.class;
                #[cfg(feature = "test-util")]
                let class = match self.planted {
                    KernelBug::RunOnceAgain => EffectClass::Safe,
                    KernelBug::ProbesNothing if class == EffectClass::Check => EffectClass::Safe,
                    _ => class,
                };
                match class {
                    EffectClass::Safe | EffectClass::Idempotent if slot.job.is_too_old(now) => {
                        self.settle(id, position, JobState::Done { outcome: too_old() })
                    }
                    EffectClass::Safe | EffectClass::Idempotent => {
                        self.begin(now, id, position, attempt + 1, AfterStore::Run)
                    }
                    EffectClass::Check => {
                        self.begin(now, id, position, attempt + 1, AfterStore::Probe)
                    }
                    EffectClass::Once => {
                        let detail = format!("the process that ran it, `{process}`, died");
                        self.settle(id, position, JobState::Uncertain { detail })
                    }
                }
            }
            JobState::Done { outcome } => self.send(id, ToolEnd::Known { outcome }),
            JobState::Uncertain { detail } => self.send(id, ToolEnd::Uncertain { detail }),
            JobState::Revoked => {
                let why = "it was called off before it began";
                let outcome = ToolOutcome::failed(ToolFailure::Cancelled, why);
                self.send(id, ToolEnd::Known { outcome })
            }
            JobState::Closed => {
                self.slots.remove(&id);
                vec![JobOut::Acknowledge(id)]
            }
        }
    }

    fn begin(
        &mut self,
        now: Timestamp,
        id: JobId,
        expected: Position,
        attempt: u32,
        then: AfterStore,
    ) -> Vec<JobOut> {
        let state = self.started(now, attempt);
        let Some(slot) = self.slots.get_mut(&id) else { return Vec::new() };
        slot.phase = JobPhase::Setting { expected, state, then };
        self.start(id)
    }

    /// The state of a run that begins now, which no other run has.
    fn started(&mut self, now: Timestamp, attempt: u32) -> JobState {
        self.runs += 1;
        JobState::Started { process: self.me, run: self.runs, attempt, at: now }
    }

    /// Sets the state of a run that is about to begin.
    fn start(&self, id: JobId) -> Vec<JobOut> {
        let Some(slot) = self.slots.get(&id) else { return Vec::new() };
        let JobPhase::Setting { expected, state, .. } = slot.phase.clone() else {
            return Vec::new();
        };
        let set = JobOut::Set { job: id, expected, state };
        #[cfg(feature = "test-util")]
        if self.planted == KernelBug::RunBeforeStarted {
            return vec![set, JobOut::Run(slot.job.clone())];
        }
        vec![set]
    }

    /// Sets a terminal state, whose news then go to the session.
    fn settle(&mut self, id: JobId, expected: Position, state: JobState) -> Vec<JobOut> {
        let end = match &state {
            JobState::Done { outcome } => ToolEnd::Known { outcome: outcome.clone() },
            JobState::Uncertain { detail } => ToolEnd::Uncertain { detail: detail.clone() },
            JobState::Started { .. } | JobState::Revoked | JobState::Closed => return Vec::new(),
        };
        let Some(slot) = self.slots.get_mut(&id) else { return Vec::new() };
        slot.phase =
            JobPhase::Setting { expected, state: state.clone(), then: AfterStore::Send(end) };
        vec![JobOut::Set { job: id, expected, state }]
    }

    fn stored(&mut self, now: Timestamp, id: JobId, position: Position) -> Vec<JobOut> {
        match self.slots.get(&id).map(|slot| slot.phase.clone()) {
            Some(JobPhase::Setting { then, .. }) => self.set(now, id, position, then),
            Some(JobPhase::Writing { .. }) => {
                if let Some(slot) = self.slots.get_mut(&id) {
                    slot.phase = JobPhase::Running { at: position };
                }
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    /// A state of this process is stored.
    fn set(
        &mut self,
        now: Timestamp,
        id: JobId,
        position: Position,
        then: AfterStore,
    ) -> Vec<JobOut> {
        let Some(slot) = self.slots.get_mut(&id) else { return Vec::new() };
        slot.tries = 0;
        match then {
            AfterStore::Send(end) => self.send(id, end),
            AfterStore::Run if slot.cancelled => {
                // JOB-1 holds the other way round too: what is cancelled now has not run.
                self.settle(id, position, JobState::Done { outcome: cancelled_before() })
            }
            // It took as long to store that.
            AfterStore::Run if slot.job.is_too_old(now) => {
                self.settle(id, position, JobState::Done { outcome: too_old() })
            }
            AfterStore::Run => {
                slot.phase = JobPhase::Running { at: position };
                #[cfg(feature = "test-util")]
                if self.planted == KernelBug::RunBeforeStarted {
                    return Vec::new();
                }
                vec![JobOut::Run(slot.job.clone())]
            }
            AfterStore::Probe => {
                slot.phase = JobPhase::Running { at: position };
                vec![JobOut::Probe(slot.job.clone())]
            }
        }
    }

    fn ended(&mut self, id: JobId, outcome: ToolOutcome) -> Vec<JobOut> {
        match self.slots.get(&id).map(|slot| slot.phase.clone()) {
            Some(JobPhase::Running { at }) => self.settle(id, at, JobState::Done { outcome }),
            Some(JobPhase::Unwritten | JobPhase::Writing { .. }) => {
                self.send(id, ToolEnd::Known { outcome })
            }
            _ => Vec::new(),
        }
    }

    fn probed(&mut self, now: Timestamp, id: JobId, probe: Probe) -> Vec<JobOut> {
        let Some(slot) = self.slots.get(&id) else { return Vec::new() };
        let at = match (&slot.phase, &probe) {
            (JobPhase::Running { at }, _) => *at,
            (JobPhase::Unwritten | JobPhase::Writing { .. }, Probe::Unclear(detail)) => {
                return self.send(id, ToolEnd::Uncertain { detail: detail.clone() });
            }
            _ => return Vec::new(),
        };
        match probe {
            Probe::Happened(outcome) => self.settle(id, at, JobState::Done { outcome }),
            Probe::Absent if slot.cancelled => {
                self.settle(id, at, JobState::Done { outcome: cancelled_before() })
            }
            Probe::Absent if slot.job.is_too_old(now) => {
                self.settle(id, at, JobState::Done { outcome: too_old() })
            }
            Probe::Absent => vec![JobOut::Run(slot.job.clone())],
            Probe::Unclear(detail) => self.settle(id, at, JobState::Uncertain { detail }),
        }
    }

    fn send(&mut self, id: JobId, end: ToolEnd) -> Vec<JobOut> {
        let Some(slot) = self.slots.get_mut(&id) else { return Vec::new() };
        slot.phase = JobPhase::Sending;
        vec![JobOut::Send(slot.job.clone(), end)]
    }

    fn sent(&mut self, id: JobId) -> Vec<JobOut> {
        match self.slots.get(&id).map(|slot| &slot.phase) {
            Some(JobPhase::Sending) => {
                self.slots.remove(&id);
                vec![JobOut::Acknowledge(id)]
            }
            _ => Vec::new(),
        }
    }

    fn cancel(&mut self, id: JobId) -> Vec<JobOut> {
        let Some(slot) = self.slots.get_mut(&id) else { return Vec::new() };
        slot.cancelled = true;
        if slot.phase.runs() { vec![JobOut::Abort(id)] } else { Vec::new() }
    }

    fn unknown(&mut self, id: JobId) -> Vec<JobOut> {
        let Some(slot) = self.slots.get_mut(&id) else { return Vec::new() };
        let wait = AGAIN_FIRST.saturating_mul(1 << slot.tries.min(10)).min(AGAIN_MOST);
        slot.tries = slot.tries.saturating_add(1);
        self.again(id, wait)
    }

    fn again(&mut self, job: JobId, wait: Duration) -> Vec<JobOut> {
        match self.slots.get(&job).map(|slot| &slot.phase) {
            Some(JobPhase::Setting { .. } | JobPhase::Reading | JobPhase::Writing { .. }) => {
                vec![JobOut::Read { job, wait }]
            }
            _ => Vec::new(),
        }
    }
}

/// What is said of a job that was cancelled before its run began.
fn cancelled_before() -> ToolOutcome {
    ToolOutcome::failed(ToolFailure::Cancelled, "it was cancelled before it began")
}

/// The outcome of a job that no process may begin any more.
fn too_old() -> ToolOutcome {
    ToolOutcome::failed(ToolFailure::Unavailable, "no node could begin it in time")
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{CallId, EventId, TurnId};
    use proptest::prelude::*;

    use super::*;

    struct Dead(Vec<ProcessId>);

    impl Liveness for Dead {
        fn is_dead(&self, process: ProcessId) -> bool {
            self.0.contains(&process)
        }
    }

    const ME: ProcessId = ProcessId::from_u128(1);
    const OTHER: ProcessId = ProcessId::from_u128(2);
    const NOW: Timestamp = Timestamp(9);

    fn job(class: EffectClass) -> Box<Job> {
        Box::new(Job {
            id: JobId::from_u128(7),
            capability: "docker".parse().unwrap(),
            session: "main:cli:local:ada".parse().unwrap(),
            turn: TurnId::from_u128(1),
            call: CallId::from_u128(7),
            nonce: EventId::from_u128(1),
            tool: "shell".parse().unwrap(),
            arguments: "{}".to_owned(),
            class,
            timeout_ms: 1_000,
            limit: None,
            action: None,
            callbacks: None,
            traceparent: None,
            not_after: None,
        })
    }

    fn started(process: ProcessId, run: u64) -> JobState {
        JobState::Started { process, run, attempt: 1, at: NOW }
    }

    fn done() -> ToolOutcome {
        ToolOutcome::done("did")
    }

    /// A machine that runs the job, whose `started` is at position 1.
    fn running(class: EffectClass) -> JobMachine {
        let (mut machine, none_dead) = (JobMachine::new(ME, 0), Dead(Vec::new()));
        let job = job(class);
        let id = job.id;
        let set = machine.handle(NOW, JobIn::Delivered(job.clone()), &none_dead);
        let state = started(ME, 1);
        assert_eq!(set, [JobOut::Set { job: id, expected: Position(0), state }]);
        let run = machine.handle(NOW, JobIn::Stored(id, Position(1)), &none_dead);
        assert_eq!(run, [JobOut::Run(job)]);
        machine
    }

    #[test]
    fn job_2_a_job_in_hand_that_is_delivered_again_is_not_run_again() {
        let mut machine = running(EffectClass::Idempotent);
        let again = JobIn::Delivered(job(EffectClass::Idempotent));
        assert_eq!(machine.handle(NOW, again, &Dead(Vec::new())), []);
        assert_eq!(machine.running(), 1);
    }

    #[test]
    fn job_3_a_result_leaves_once_it_is_stored_and_is_acknowledged_once_it_is_there() {
        let (mut machine, none_dead) = (running(EffectClass::Once), Dead(Vec::new()));
        let id = JobId::from_u128(7);
        let set = machine.handle(NOW, JobIn::Ended(id, done()), &none_dead);
        let state = JobState::Done { outcome: done() };
        let expected = Position(1);
        assert_eq!(set, [JobOut::Set { job: id, expected, state: state.clone() }]);
        // Whether it is stored is unknown; it is, as a read shows.
        let read = machine.handle(NOW, JobIn::Unknown(id), &none_dead);
        assert!(matches!(read[..], [JobOut::Read { .. }]), "{read:?}");
        let same =
            machine.handle(NOW, JobIn::Read(id, Some((expected, started(ME, 1)))), &none_dead);
        assert_eq!(same, [JobOut::Set { job: id, expected, state: state.clone() }], "an old read");
        let send = machine.handle(NOW, JobIn::Read(id, Some((Position(2), state))), &none_dead);
        let end = ToolEnd::Known { outcome: done() };
        assert_eq!(send, [JobOut::Send(job(EffectClass::Once), end)]);
        assert_eq!(machine.handle(NOW, JobIn::Sent(id), &none_dead), [JobOut::Acknowledge(id)]);
    }

    /// A machine that runs the job, which is `safe`, without a state.
    fn unwritten() -> JobMachine {
        let (mut machine, none_dead) = (JobMachine::new(ME, 0), Dead(Vec::new()));
        let (id, job) = (JobId::from_u128(7), job(EffectClass::Safe));
        let read = machine.handle(NOW, JobIn::Delivered(job.clone()), &none_dead);
        assert_eq!(read, [JobOut::Read { job: id, wait: Duration::ZERO }]);
        let run = machine.handle(NOW, JobIn::Read(id, None), &none_dead);
        assert_eq!(run, [JobOut::Run(job), JobOut::Watch { job: id, after: LASTS }]);
        machine
    }

    fn sends(outcome: ToolOutcome) -> [JobOut; 1] {
        [JobOut::Send(job(EffectClass::Safe), ToolEnd::Known { outcome })]
    }

    #[test]
    fn what_changes_nothing_and_takes_no_time_is_not_written_down() {
        let (mut machine, none_dead) = (unwritten(), Dead(Vec::new()));
        let id = JobId::from_u128(7);
        assert_eq!(machine.running(), 1);
        assert_eq!(machine.handle(NOW, JobIn::Ended(id, done()), &none_dead), sends(done()));
        assert_eq!(machine.handle(NOW, JobIn::Lasts(id), &none_dead), []);
        assert_eq!(machine.handle(NOW, JobIn::Sent(id), &none_dead), [JobOut::Acknowledge(id)]);
        assert_eq!(machine.handle(NOW, JobIn::Lasts(id), &none_dead), []);
    }

    #[test]
    fn what_changes_nothing_and_lasts_is_written_down() {
        let (mut machine, none_dead) = (unwritten(), Dead(Vec::new()));
        let (id, state) = (JobId::from_u128(7), started(ME, 1));
        let set = machine.handle(NOW, JobIn::Lasts(id), &none_dead);
        assert_eq!(set, [JobOut::Set { job: id, expected: Position(0), state: state.clone() }]);
        // Whether it is stored is unknown; it is, as a read shows.
        let read = machine.handle(NOW, JobIn::Unknown(id), &none_dead);
        assert!(matches!(read[..], [JobOut::Read { .. }]), "{read:?}");
        let found = JobIn::Read(id, Some((Position(1), state)));
        assert_eq!(machine.handle(NOW, found, &none_dead), []);
        let set = machine.handle(NOW, JobIn::Ended(id, done()), &none_dead);
        let state = JobState::Done { outcome: done() };
        assert_eq!(set, [JobOut::Set { job: id, expected: Position(1), state }]);
    }

    #[test]
    fn what_ends_while_it_is_written_down_does_not_wait() {
        let (mut machine, none_dead) = (unwritten(), Dead(Vec::new()));
        let id = JobId::from_u128(7);
        machine.handle(NOW, JobIn::Lasts(id), &none_dead);
        assert_eq!(machine.handle(NOW, JobIn::Ended(id, done()), &none_dead), sends(done()));
        for late in [JobIn::Stored(id, Position(1)), JobIn::Conflict(id), JobIn::Unknown(id)] {
            assert_eq!(machine.handle(NOW, late, &none_dead), []);
        }
        assert_eq!(machine.handle(NOW, JobIn::Sent(id), &none_dead), [JobOut::Acknowledge(id)]);
    }

    /// The session does not wait for it any more, or another process runs it as well.
    #[test]
    fn what_another_process_wrote_of_a_run_that_lasts_decides_whether_it_goes_on() {
        let (id, none_dead) = (JobId::from_u128(7), Dead(Vec::new()));
        for (state, stops) in [
            (JobState::Closed, true),
            (JobState::Revoked, true),
            (started(OTHER, 1), false),
            (JobState::Done { outcome: ToolOutcome::done("theirs") }, false),
        ] {
            let mut machine = unwritten();
            machine.handle(NOW, JobIn::Lasts(id), &none_dead);
            let read = machine.handle(NOW, JobIn::Conflict(id), &none_dead);
            assert_eq!(read, [JobOut::Read { job: id, wait: Duration::ZERO }]);
            let found = JobIn::Read(id, Some((Position(4), state.clone())));
            let stop = machine.handle(NOW, found, &none_dead);
            assert_eq!(stop == [JobOut::Abort(id)], stops, "{state:?}: {stop:?}");
            assert_eq!(machine.handle(NOW, JobIn::Ended(id, done()), &none_dead), sends(done()));
        }
    }

    #[test]
    fn a_job_without_a_waiting_session_is_not_begun_although_it_changes_nothing() {
        let (id, none_dead) = (JobId::from_u128(7), Dead(Vec::new()));
        let found = |state, cancel: bool| {
            let mut machine = JobMachine::new(ME, 0);
            machine.handle(NOW, JobIn::Delivered(job(EffectClass::Safe)), &none_dead);
            if cancel {
                machine.handle(NOW, JobIn::Cancel(id), &none_dead);
            }
            machine.handle(NOW, JobIn::Read(id, state), &none_dead)
        };
        let at = |state| Some((Position(4), state));
        assert_eq!(found(at(JobState::Closed), false), [JobOut::Acknowledge(id)]);
        assert!(matches!(found(at(JobState::Revoked), false)[..], [JobOut::Send(..)]));
        assert_eq!(found(None, true), sends(cancelled_before()));
    }

    /// What a job that another process began means, by its class and by who is held dead.
    #[test]
    fn who_began_it_and_what_it_is_decide_what_follows() {
        let id = JobId::from_u128(7);
        let found = |class, dead: Vec<ProcessId>| {
            let mut machine = JobMachine::new(ME, 0);
            machine.handle(NOW, JobIn::Delivered(job(class)), &Dead(Vec::new()));
            let read = JobIn::Read(id, Some((Position(4), started(OTHER, 3))));
            machine.handle(NOW, read, &Dead(dead))
        };
        let alive = found(EffectClass::Safe, Vec::new());
        assert_eq!(alive, [JobOut::GiveBack { job: id, delay: RUNS_ELSEWHERE }]);
        for class in [EffectClass::Safe, EffectClass::Idempotent, EffectClass::Check] {
            // The number of the run that was refused is not used again.
            let run = if class == EffectClass::Safe { 1 } else { 2 };
            let state = JobState::Started { process: ME, run, attempt: 2, at: NOW };
            let expected = Position(4);
            assert_eq!(found(class, vec![OTHER]), [JobOut::Set { job: id, expected, state }]);
        }
        let once = found(EffectClass::Once, vec![OTHER]);
        let [JobOut::Set { state: JobState::Uncertain { detail }, .. }] = &once[..] else {
            panic!("{once:?}")
        };
        assert!(detail.contains(&OTHER.to_string()), "{detail}");
    }

    /// JOB-5: what is too old is not begun, whatever its state key says or no longer says.
    #[test]
    fn job_5_what_is_too_old_is_never_begun() {
        let id = JobId::from_u128(7);
        let old = |class| Box::new(Job { not_after: Some(Timestamp(8)), ..*job(class) });
        let found = |class, state: Option<JobState>| {
            let (mut machine, dead) = (JobMachine::new(ME, 0), Dead(vec![OTHER]));
            let read = machine.handle(NOW, JobIn::Delivered(old(class)), &dead);
            assert_eq!(read, [JobOut::Read { job: id, wait: Duration::ZERO }]);
            let state = state.map(|state| (Position(4), state));
            machine.handle(NOW, JobIn::Read(id, state), &dead)
        };
        for class in
            [EffectClass::Safe, EffectClass::Idempotent, EffectClass::Check, EffectClass::Once]
        {
            assert_eq!(found(class, None), [JobOut::Acknowledge(id)]);
            assert_eq!(found(class, Some(JobState::Closed)), [JobOut::Acknowledge(id)]);
            let end = ToolEnd::Known { outcome: done() };
            let sent = found(class, Some(JobState::Done { outcome: done() }));
            assert_eq!(sent, [JobOut::Send(old(class), end)]);
            // Its runner died.
            let [JobOut::Set { state, expected: Position(4), .. }] =
                &found(class, Some(started(OTHER, 1)))[..]
            else {
                panic!("{class:?}")
            };
            match (class, state) {
                (EffectClass::Once, JobState::Uncertain { .. })
                | (EffectClass::Safe | EffectClass::Idempotent, JobState::Done { .. })
                // It is found out what happened, but not begun.
                | (EffectClass::Check, JobState::Started { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// JOB-5: also if it became too old while its `started` was stored, or while it was probed.
    #[test]
    fn job_5_what_has_become_too_old_meanwhile_is_not_begun() {
        let (id, dead) = (JobId::from_u128(7), Dead(vec![OTHER]));
        let aging = |class| Box::new(Job { not_after: Some(NOW), ..*job(class) });
        let later = Timestamp(NOW.0 + 1);
        let mut machine = JobMachine::new(ME, 0);
        machine.handle(NOW, JobIn::Delivered(aging(EffectClass::Once)), &dead);
        let out = machine.handle(later, JobIn::Stored(id, Position(1)), &dead);
        assert!(matches!(out[..], [JobOut::Set { state: JobState::Done { .. }, .. }]), "{out:?}");
        let mut machine = JobMachine::new(ME, 0);
        machine.handle(NOW, JobIn::Delivered(aging(EffectClass::Check)), &dead);
        machine.handle(NOW, JobIn::Read(id, Some((Position(1), started(OTHER, 1)))), &dead);
        let probes = machine.handle(NOW, JobIn::Stored(id, Position(2)), &dead);
        assert_eq!(probes, [JobOut::Probe(aging(EffectClass::Check))]);
        let out = machine.handle(later, JobIn::Probed(id, Probe::Absent), &dead);
        assert!(matches!(out[..], [JobOut::Set { state: JobState::Done { .. }, .. }]), "{out:?}");
    }

    /// The finding of a probe decides. If the job happened, its outcome is sent. If it did not, it
    /// runs, unless it was cancelled. If that cannot be known, it ends as uncertain.
    #[test]
    fn a_probe_decides_what_becomes_of_a_dead_runners_job() {
        let (id, dead) = (JobId::from_u128(7), Dead(vec![OTHER]));
        let probed = |cancel: bool, probe| {
            let mut machine = JobMachine::new(ME, 0);
            machine.handle(NOW, JobIn::Delivered(job(EffectClass::Check)), &dead);
            machine.handle(NOW, JobIn::Read(id, Some((Position(1), started(OTHER, 1)))), &dead);
            if cancel {
                machine.handle(NOW, JobIn::Cancel(id), &dead);
            }
            let probes = machine.handle(NOW, JobIn::Stored(id, Position(2)), &dead);
            assert_eq!(probes, [JobOut::Probe(job(EffectClass::Check))], "cancelled: {cancel}");
            machine.handle(NOW, JobIn::Probed(id, probe), &dead)
        };
        let set = |state| [JobOut::Set { job: id, expected: Position(2), state }];
        for cancel in [false, true] {
            let happened = probed(cancel, Probe::Happened(done()));
            assert_eq!(happened, set(JobState::Done { outcome: done() }));
            let detail = || "no answer".to_owned();
            let unclear = probed(cancel, Probe::Unclear(detail()));
            assert_eq!(unclear, set(JobState::Uncertain { detail: detail() }));
        }
        assert_eq!(probed(false, Probe::Absent), [JobOut::Run(job(EffectClass::Check))]);
        let outcome = cancelled_before();
        assert_eq!(probed(true, Probe::Absent), set(JobState::Done { outcome }));
    }

    fn anything(class: EffectClass) -> impl Strategy<Value = JobIn> {
        let id = JobId::from_u128(7);
        let state = prop_oneof![
            Just(None),
            (1..4_u64, 1..3_u64).prop_map(|(at, run)| Some((Position(at), started(ME, run)))),
            (1..4_u64).prop_map(|at| Some((Position(at), started(OTHER, 1)))),
            (1..6_u64).prop_map(|at| Some((Position(at), JobState::Done { outcome: done() }))),
            Just(Some((Position(5), JobState::Closed))),
        ];
        prop_oneof![
            Just(()).prop_map(move |()| JobIn::Delivered(job(class))),
            Just(()).prop_map(move |()| JobIn::Lasts(id)),
            state.prop_map(move |state| JobIn::Read(id, state)),
            Just(()).prop_map(move |()| JobIn::Unknown(id)),
            (1..6_u64).prop_map(move |at| JobIn::Stored(id, Position(at))),
            Just(()).prop_map(move |()| JobIn::Conflict(id)),
            Just(()).prop_map(move |()| JobIn::Ended(id, done())),
            Just(()).prop_map(move |()| JobIn::Sent(id)),
            Just(()).prop_map(move |()| JobIn::Cancel(id)),
        ]
    }

    proptest! {
        /// JOB-1, JOB-3: whatever happens in whatever order, a run follows a `started` that was set,
        /// a result follows a terminal state, an acknowledgement follows a result or `closed`. Of
        /// class `safe`, a run follows a read that found nothing, and its end is a result.
        #[test]
        fn what_leaves_is_always_preceded_by_what_is_stored(
            (class, inputs) in prop_oneof![
                Just(EffectClass::Safe), Just(EffectClass::Idempotent), Just(EffectClass::Once),
            ]
            .prop_flat_map(|class| (Just(class), prop::collection::vec(anything(class), 0..40))),
        ) {
            let mut machine = JobMachine::new(ME, 0);
            let (mut sets, mut sends, mut closed) = (0_u32, 0_u32, false);
            for input in inputs {
                let safe = class == EffectClass::Safe;
                let absent = safe && matches!(&input, JobIn::Read(_, None));
                let ended = safe && matches!(&input, JobIn::Ended(..));
                closed |= matches!(&input, JobIn::Read(_, Some((_, JobState::Closed))));
                let terminal = matches!(
                    &input, JobIn::Read(_, Some((_, state))) if !matches!(state, JobState::Started { .. })
                );
                for out in machine.handle(NOW, input, &Dead(vec![OTHER])) {
                    match out {
                        JobOut::Set { .. } => sets += 1,
                        JobOut::Run(_) => prop_assert!(sets > 0 || absent, "JOB-1"),
                        JobOut::Send(..) => {
                            prop_assert!(sets > 0 || terminal || ended || absent, "JOB-3");
                            sends += 1;
                        }
                        JobOut::Acknowledge(_) => prop_assert!(sends > 0 || closed, "JOB-3"),
                        _ => {}
                    }
                }
            }
        }
    }
}
