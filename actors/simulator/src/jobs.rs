//! Jobs in the simulated world: each process runs the job machine over the world's queue and its
//! state keys; the independent count of effects judges.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_kernel::job_machine::{JobIn, JobMachine, JobOut, Liveness, Probe};
use clawnode_proto::{
    Capability, IdempotencyKey, Input, JobId, Kind, ProcessId,
    job::{Job, JobState},
    policy::Action,
    session::{SessionInput, ToolEnd, ToolResult},
    subject::job_key,
    tool::{EffectClass, ToolFailure, ToolOutcome},
};
use clawnode_sim::{JobDelivered, JobToken, StoreReply, StoreRequest};
use rand::Rng;

use super::{
    JudgeViolation, Sim,
    process::{PendingOp, PlannedNote},
};

/// How long a job hangs unless it is cancelled: longer than any session waits for it.
const HANGS: u64 = 30 * 60 * 1_000;

/// How soon a store that failed is asked again, in milliseconds.
pub(super) const AGAIN: u64 = 300;

/// How long a tool call waits until a process takes it, in milliseconds.
const JOB_WAIT: u64 = 20_000;
/// The same, where sessions are patient: longer than a delivery may go without an answer.
const JOB_WAIT_LONG: u64 = 60_000;

/// What a process has of jobs.
#[derive(Debug)]
pub(super) struct JobHands {
    machine: JobMachine,
    tokens: BTreeMap<JobId, JobToken>,
    /// Runs that go on, and what they run.
    runs: BTreeMap<JobId, SimJobRun>,
}

#[derive(Debug)]
struct SimJobRun {
    number: u64,
    job: Box<Job>,
    /// It still has to happen.
    due: bool,
    /// It was aborted.
    aborted: bool,
}

/// What really happened.
#[derive(Debug, Default)]
pub(super) struct ToolEffects(BTreeMap<JobId, (EffectClass, u32)>);

/// Who is held dead.
struct Dead<'a>(&'a BTreeSet<ProcessId>);

impl Liveness for Dead<'_> {
    fn is_dead(&self, process: ProcessId) -> bool {
        self.0.contains(&process)
    }
}

// === impl JobHands ===

impl JobHands {
    pub(super) fn new(machine: JobMachine) -> Self {
        Self { machine, tokens: BTreeMap::new(), runs: BTreeMap::new() }
    }
}

// === impl ToolEffects ===

impl ToolEffects {
    /// A run has its effect.
    fn happens(&mut self, job: &Job) -> Result<(), JudgeViolation> {
        let (_, times) = self.0.entry(job.id).or_insert((job.class, 0));
        *times += 1;
        if job.class == EffectClass::Once && *times > 1 {
            let text = format!("`{}` may run once, and ran {times} times", job.id);
            return Err(JudgeViolation::new("JOB-4", text));
        }
        Ok(())
    }

    /// How many jobs ran, and how many runs there were.
    pub(super) fn tally(&self) -> (usize, u32) {
        (self.0.len(), self.0.values().map(|(_, times)| times).sum())
    }
}

/// What a job does.
fn action_of(job: &Job) -> Action {
    Action {
        session: job.session.clone(),
        turn: job.turn,
        call: job.call,
        tool: job.tool.clone(),
        pin: None,
        capability: Some(job.capability.clone()),
        class: job.class,
        timeout_ms: job.timeout_ms,
        arguments: job.arguments.clone(),
    }
}

/// What all processes of the simulation can run.
pub(super) fn capability() -> Option<Capability> {
    "sim".parse().ok()
}

/// What only some of them can, in some seeds.
pub(super) fn scarce() -> Option<Capability> {
    "sim.scarce".parse().ok()
}

// === impl Sim ===

impl Sim {
    pub(super) const fn job_wait(&self) -> u64 {
        if self.plan.patient { JOB_WAIT_LONG } else { JOB_WAIT }
    }

    /// A process asks for jobs: not all can run all of them.
    pub(super) fn pull_jobs(&mut self, process: ProcessId) {
        let has = self.may_be_scarce();
        let all = [capability(), scarce().filter(|_| has)];
        for capability in all.into_iter().flatten() {
            self.world.pull_job(process, &capability);
        }
    }

    pub(super) fn job_delivered(
        &mut self,
        to: ProcessId,
        delivered: JobDelivered,
    ) -> Result<(), JudgeViolation> {
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        if process.draining {
            self.world.submit(to, StoreRequest::NakJob(delivered.token, std::time::Duration::ZERO));
            return Ok(());
        }
        process.jobs.tokens.insert(delivered.job.id, delivered.token);
        self.world.pull_job(to, &delivered.job.capability);
        self.job_step(to, JobIn::Delivered(delivered.job))
    }

    pub(super) fn job_step(&mut self, to: ProcessId, input: JobIn) -> Result<(), JudgeViolation> {
        let now = self.now(to).wall;
        let dead = self.dead.clone();
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        let outs = process.jobs.machine.handle(now, input, &Dead(&dead));
        outs.into_iter().try_for_each(|out| self.perform_job(to, out))
    }

    fn perform_job(&mut self, to: ProcessId, out: JobOut) -> Result<(), JudgeViolation> {
        match out {
            JobOut::Read { job, wait } => {
                let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                self.world.later(to, wait, PlannedNote::ReadJob(job));
            }
            JobOut::Set { job, expected, state } => {
                self.remark(to, || format!("sets {job} to {}", state.name()));
                let Ok(bytes) = state.to_bytes() else { return Ok(()) };
                let (key, value, ttl) = (job_key(job), bytes.into(), None);
                let ticket =
                    self.world.submit(to, StoreRequest::SetValue { key, expected, value, ttl });
                self.expect(to, ticket, PendingOp::JobSet(job));
            }
            JobOut::Run(job) => {
                self.remark(to, || format!("runs {}", job.id));
                let written = !self.world.values(&job_key(job.id)).is_empty();
                if !written && job.class != EffectClass::Safe {
                    let text = format!("`{}` runs, and its state is not stored", job.id);
                    return Err(JudgeViolation::new("JOB-1", text));
                }
                return self.run_job(to, job);
            }
            JobOut::Watch { job, after } => {
                let after = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
                self.world.later(to, after, PlannedNote::JobLasts(job));
            }
            JobOut::Probe(job) => {
                let after = self.world.rng.random_range(1..500);
                self.world.later(to, after, PlannedNote::Probes(job));
            }
            JobOut::Abort(job) => {
                let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
                if let Some(run) = process.jobs.runs.get_mut(&job) {
                    run.aborted = true;
                    let ends = PlannedNote::JobEnds(job, run.number);
                    self.world.later(to, 1, ends);
                }
            }
            JobOut::Send(job, end) => self.send_result(to, *job, end),
            JobOut::Acknowledge(job) => self.answer_job(to, job, StoreRequest::AckJob),
            JobOut::GiveBack { job, delay } => {
                self.answer_job(to, job, |token| StoreRequest::NakJob(token, delay));
            }
        }
        Ok(())
    }

    /// Runs a job: it happens when it begins or, if that can be found out, perhaps when it ends.
    fn run_job(&mut self, to: ProcessId, job: Box<Job>) -> Result<(), JudgeViolation> {
        self.judge.runs(job.call, &job.tool, || action_of(&job).digest().ok())?;
        self.judge.begins(self.world.now().0, job.call)?;
        self.judge.is_filled(job.session.entity(), job.call, &job.arguments)?;
        let due = job.class == EffectClass::Check && self.world.chance(0.5);
        if !due {
            self.happens(to, &job)?;
        }
        let hangs = !self.calm && self.world.chance(self.plan.hangs);
        let after = if hangs { HANGS } else { self.world.rng.random_range(1..self.plan.call_most) };
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        let (number, id) = (process.number(), job.id);
        process.jobs.runs.insert(id, SimJobRun { number, job, due, aborted: false });
        self.world.later(to, after, PlannedNote::JobEnds(id, number));
        Ok(())
    }

    fn happens(&mut self, to: ProcessId, job: &Job) -> Result<(), JudgeViolation> {
        self.remark(to, || format!("does {}", job.id));
        self.effects.happens(job)?;
        self.judge.does(to, job.call)
    }

    /// A probe of the simulation sees what really happened, or nothing.
    pub(super) fn probes(&mut self, to: ProcessId, job: &Job) -> Result<(), JudgeViolation> {
        let probe = if self.world.chance(0.2) {
            Probe::Unclear("no answer".to_owned())
        } else if self.effects.0.contains_key(&job.id) {
            Probe::Happened(self.tool_said(job.call, "did"))
        } else {
            Probe::Absent
        };
        self.remark(to, || format!("probes {}: {probe:?}", job.id));
        self.job_step(to, JobIn::Probed(job.id, probe))
    }

    fn answer_job(
        &mut self,
        to: ProcessId,
        job: JobId,
        request: impl FnOnce(JobToken) -> StoreRequest,
    ) {
        let Some(process) = self.processes.get_mut(&to) else { return };
        if let Some(token) = process.jobs.tokens.remove(&job) {
            self.world.submit(to, request(token));
        }
    }

    pub(super) fn send_result(&mut self, to: ProcessId, job: Job, end: ToolEnd) {
        let result = SessionInput::ToolResult(ToolResult {
            call: job.call,
            nonce: job.nonce,
            end: end.clone(),
        });
        let (key, session) = (IdempotencyKey::of_job(job.id), job.session.to_string());
        let now = self.now(to).wall;
        let Ok(input) = Input::new(Kind::SESSION, &session, key, now, &result) else { return };
        let ticket = self.world.submit(to, StoreRequest::Put(input));
        self.expect(to, ticket, PendingOp::JobSent(Box::new(job), end));
    }

    pub(super) fn read_job(&mut self, to: ProcessId, job: JobId) {
        let ticket = self.world.submit(to, StoreRequest::Value(job_key(job)));
        self.expect(to, ticket, PendingOp::JobState(job));
    }

    pub(super) fn job_state(
        &mut self,
        to: ProcessId,
        job: JobId,
        reply: StoreReply,
    ) -> Result<(), JudgeViolation> {
        let input = match reply {
            StoreReply::Value(entry) => {
                let state = entry.map(|entry| {
                    let state = JobState::from_bytes(&entry.value);
                    state.map(|state| (entry.position, state))
                });
                match state.transpose() {
                    Ok(state) => JobIn::Read(job, state),
                    Err(error) => return Err(JudgeViolation::new("X1", error.to_string())),
                }
            }
            _ => JobIn::Unknown(job),
        };
        self.job_step(to, input)
    }

    pub(super) fn job_set(
        &mut self,
        to: ProcessId,
        job: JobId,
        reply: &StoreReply,
    ) -> Result<(), JudgeViolation> {
        let input = match reply {
            StoreReply::Changed(Some(position)) => JobIn::Stored(job, *position),
            StoreReply::Changed(None) => JobIn::Conflict(job),
            _ => JobIn::Unknown(job),
        };
        self.job_step(to, input)
    }

    pub(super) fn job_sent(
        &mut self,
        to: ProcessId,
        job: Box<Job>,
        end: ToolEnd,
        reply: &StoreReply,
    ) -> Result<(), JudgeViolation> {
        if matches!(reply, StoreReply::Put(_)) {
            return self.job_step(to, JobIn::Sent(job.id));
        }
        self.world.later(to, AGAIN, PlannedNote::SendAgain(job, end));
        Ok(())
    }

    pub(super) fn job_ends(
        &mut self,
        to: ProcessId,
        job: JobId,
        run: u64,
    ) -> Result<(), JudgeViolation> {
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        let Some(job_run) = process.jobs.runs.remove(&job) else { return Ok(()) };
        if job_run.number != run {
            process.jobs.runs.insert(job, job_run);
            return Ok(());
        }
        if job_run.due && job_run.aborted {
            let outcome = ToolOutcome::failed(ToolFailure::Cancelled, "it had to stop");
            return self.job_step(to, JobIn::Ended(job, outcome));
        }
        if job_run.due {
            self.happens(to, &job_run.job)?;
        }
        let said = self.tool_said(job_run.job.call, "did");
        self.job_step(to, JobIn::Ended(job, said))
    }

    /// Reports progress on all jobs in hand.
    pub(super) fn job_progress(&mut self, to: ProcessId) {
        let Some(process) = self.processes.get(&to) else { return };
        let tokens: Vec<JobToken> = process.jobs.tokens.values().copied().collect();
        for token in tokens {
            self.world.submit(to, StoreRequest::ProgressJob(token));
        }
    }
}
