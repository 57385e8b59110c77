//! Jobs whose wait is over, and those of turns that have ended: what production decides, done to
//! the world.

use std::time::Duration;

use clawnode_actors::session::{
    Effect, Outcome,
    turn::{
        prepare::SettleJob,
        tool_jobs::{Closing, Settling, closing, settling},
    },
};
use clawnode_kernel::MachineInput;
use clawnode_proto::{
    Input, JobId, Position, ProcessId, hook::HookTrail, job::JobState, limits::JOB_CLOSED_TTL,
    subject::job_key,
};
use clawnode_sim::{StoreReply, StoreRequest};

use super::{
    JudgeViolation, Sim,
    any_machine::ActivationPlace,
    jobs::AGAIN,
    process::{PendingOp, PlannedNote},
};

/// How soon a job that a process runs is looked at again, in milliseconds.
const SETTLES: u64 = 2_000;

/// A post-turn effect under way: the end of a turn, feedback on one, or lessons of one. It is confirmed once nothing is left.
#[derive(Debug)]
pub(super) struct PostTurnWork {
    pub(super) at: ActivationPlace,
    pub(super) effect: Effect,
    /// Jobs of the turn that are not closed yet.
    pub(super) jobs: Vec<JobId>,
    /// What memories do not have yet.
    pub(super) for_memories: Vec<Input>,
}

/// What is written to the state key of a job, if it is still at `expected`.
#[derive(Clone, Copy)]
struct NewJobState<'a> {
    job: JobId,
    expected: Position,
    state: &'a JobState,
    ttl: Option<Duration>,
}

impl Sim {
    /// What the state key of a job says, and where.
    fn state_of(&self, job: JobId) -> Result<(Position, Option<JobState>), JudgeViolation> {
        let Some((_, entry)) = self.world.values(&job_key(job)).pop() else {
            return Ok((Position(0), None));
        };
        let state = JobState::from_bytes(&entry.value);
        let state = state.map_err(|error| JudgeViolation::new("X1", error.to_string()))?;
        Ok((entry.position, Some(state)))
    }

    fn set_state(&mut self, to: ProcessId, new: &NewJobState<'_>, op: PendingOp) {
        let NewJobState { job, expected, state, ttl } = *new;
        let Ok(bytes) = state.to_bytes() else { return };
        let set = StoreRequest::SetValue { key: job_key(job), expected, value: bytes.into(), ttl };
        let ticket = self.world.submit(to, set);
        self.expect(to, ticket, op);
    }

    /// A job whose time is over is brought to an end.
    pub(super) fn settles(
        &mut self,
        at: ActivationPlace,
        key: Effect,
        settle: Box<SettleJob>,
    ) -> Result<(), JudgeViolation> {
        let ActivationPlace { process: to, entity, counter } = at;
        let process = self.processes.get_mut(&to);
        if process.and_then(|process| process.actor(entity, counter)).is_none() {
            return Ok(());
        }
        let job = settle.job.id;
        let (expected, state) = self.state_of(job)?;
        let is_dead = |process: ProcessId| self.dead.contains(&process);
        match settling(&settle, state, Duration::from_millis(self.job_wait()), is_dead) {
            Settling::Wait { cancel } => {
                if let Some(process) = cancel {
                    self.world.send(process, PlannedNote::CancelJob(job));
                }
                self.world.later(to, SETTLES, PlannedNote::Settles(entity, counter, key, settle));
            }
            Settling::Set(state, end) => {
                let op = PendingOp::Settle(entity, counter, key, settle, end);
                self.set_state(to, &NewJobState { job, expected, state: &state, ttl: None }, op);
            }
            Settling::Ended(end) => {
                let outcome = Outcome::Tool(end, HookTrail::default());
                return self.feed(to, entity, counter, MachineInput::Ended(key, outcome));
            }
        }
        Ok(())
    }

    /// Jobs of a turn are closed, one after the other, and memories are sent what is theirs, before the effect is
    /// confirmed.
    pub(super) fn closes(
        &mut self,
        to: ProcessId,
        mut work: PostTurnWork,
    ) -> Result<(), JudgeViolation> {
        while let Some(job) = work.jobs.last().copied() {
            let (expected, state) = self.state_of(job)?;
            match closing(state.as_ref()) {
                Closing::Closed => {
                    work.jobs.pop();
                }
                Closing::Set { cancel } => {
                    if let Some(process) = cancel {
                        self.world.send(process, PlannedNote::CancelJob(job));
                    }
                    let (state, ttl) = (&JobState::Closed, Some(JOB_CLOSED_TTL));
                    let closed = NewJobState { job, expected, state, ttl };
                    self.set_state(to, &closed, PendingOp::Close(Box::new(work)));
                    return Ok(());
                }
            }
        }
        if let Some(input) = self.next_for_memory(to, &mut work) {
            let ticket = self.world.submit(to, input);
            self.expect(to, ticket, PendingOp::Close(Box::new(work)));
            return Ok(());
        }
        self.post_turn_ends(work.at, work.effect)
    }

    /// Whether a job was closed shows when it is looked at again. An inbox says that it has what it was sent.
    pub(super) fn closed(
        &mut self,
        to: ProcessId,
        mut work: Box<PostTurnWork>,
        reply: &StoreReply,
    ) {
        let wait = match reply {
            StoreReply::Changed(_) => 0,
            StoreReply::Put(_) => {
                self.memory_has(&mut work);
                0
            }
            _ => AGAIN,
        };
        self.world.later(to, wait, PlannedNote::Closes(work));
    }
}
