//! Jobs on their way to the queue: as production gives them away, over the world's stores.

use clawnode_actors::session::{
    Effect,
    turn::{prepare::PublishJob, tool_jobs::GiveStep},
};
use clawnode_kernel::{KernelBug, MachineInput};
use clawnode_proto::{EntityId, Incarnation, Position, ProcessId, TimerId, job::Job};
use clawnode_sim::{StoreReply, StoreRequest};

use super::{
    JudgeViolation, Sim,
    any_machine::ActivationPlace,
    jobs::AGAIN,
    process::{PendingOp, PlannedNote},
};

/// A job that its owner gives away.
#[derive(Debug)]
pub(super) struct Giving {
    pub(super) entity: EntityId,
    pub(super) counter: u64,
    pub(super) key: Effect,
    pub(super) job: Box<Job>,
    /// When this try began, in milliseconds.
    pub(super) since: u64,
}

impl Sim {
    /// An owner gives a tool call away.
    pub(super) fn publish(
        &mut self,
        at: ActivationPlace,
        key: Effect,
        publish: &PublishJob,
    ) -> Result<(), JudgeViolation> {
        let ActivationPlace { process: to, entity, counter } = at;
        self.runs(to, entity, counter, key, None);
        let (job, since) = (Box::new(publish.job.clone()), self.world.now().0);
        self.give(to, Giving { entity, counter, key, job, since }, publish.again)
    }

    /// Stores a job; one that may have been stored before is looked for first.
    fn give(&mut self, to: ProcessId, giving: Giving, again: bool) -> Result<(), JudgeViolation> {
        let again = again && self.planted != KernelBug::GivesBlindly;
        self.give_step(to, giving, GiveStep::first(again))
    }

    fn give_step(
        &mut self,
        to: ProcessId,
        giving: Giving,
        step: GiveStep,
    ) -> Result<(), JudgeViolation> {
        let request = match step {
            GiveStep::Waits => StoreRequest::JobWaits(giving.job.capability.clone(), giving.job.id),
            GiveStep::Result => StoreRequest::Inbox(giving.entity, Position(0)),
            GiveStep::Put => {
                let by = Incarnation { process: to, counter: giving.counter };
                self.judge.gives(giving.entity, by, giving.job.call, giving.since)?;
                StoreRequest::PutJob(giving.job.clone())
            }
        };
        let ticket = self.world.submit(to, request);
        self.expect(to, ticket, PendingOp::Give(giving, step));
        Ok(())
    }

    /// The answer to that.
    pub(super) fn given(
        &mut self,
        to: ProcessId,
        giving: Giving,
        step: GiveStep,
        reply: &StoreReply,
    ) -> Result<(), JudgeViolation> {
        if !self.is_giving(to, &giving) {
            return Ok(());
        }
        let found = match (step, reply) {
            (GiveStep::Waits, StoreReply::Is(waits)) => *waits,
            (GiveStep::Result, StoreReply::Waiting(all)) => {
                GiveStep::has_result(&giving.job, all.iter().map(|(_, input)| input.id))
            }
            (GiveStep::Put, StoreReply::Done) => true,
            _ => {
                self.world.later(to, AGAIN, PlannedNote::GiveAgain(Box::new(giving)));
                return Ok(());
            }
        };
        if let Some(next) = step.after(found) {
            return self.give_step(to, giving, next);
        }
        self.timer(&giving.job.session, TimerId::from(giving.job.call), self.job_wait());
        self.feed(to, giving.entity, giving.counter, MachineInput::Confirmed(giving.key))
    }

    /// A job that could not be given away is given again.
    pub(super) fn give_again(
        &mut self,
        to: ProcessId,
        giving: Giving,
    ) -> Result<(), JudgeViolation> {
        if !self.is_giving(to, &giving) {
            return Ok(());
        }
        let since = self.world.now().0;
        self.give(to, Giving { since, ..giving }, true)
    }

    /// Whether it is still to be given away.
    fn is_giving(&mut self, to: ProcessId, giving: &Giving) -> bool {
        let process = self.processes.get_mut(&to);
        let actor = process.and_then(|process| process.actor(giving.entity, giving.counter));
        actor.is_some_and(|actor| actor.running.contains_key(&giving.key))
    }
}
