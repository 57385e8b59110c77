//! Steering: a message joins the running turn instead of waiting for its end. Pure.
//!
//! It waits for the turn's next call, which shows it to the model. One that comes before a turn has begun a call, or that
//! no call of the turn shows any more, is a turn of its own (MSG-3). Nothing joins a plan.

#[cfg(feature = "test-util")]
use clawnode_kernel::KernelBug;
use clawnode_proto::{Traceparent, TurnId, session::UserMessage};

use super::{
    memory::unlearned_messages::taken,
    state::{SessionState, Turn},
};

impl SessionState {
    /// A message joins the turn that runs, or begins one.
    pub(super) fn steer(&mut self, id: TurnId, message: UserMessage, trace: Option<Traceparent>) {
        match self.open.front_mut() {
            Some(turn) if turn.plan.is_none() && !turn.steps.is_empty() && !turn.cancelled => {
                turn.joined.push(id);
                turn.steers.push((id, message));
            }
            _ => self.begin_turn(id, message, trace),
        }
    }

    /// What wanted to join a turn that ends, and came too late, is a turn of its own.
    pub(super) fn begin_late_steers(&mut self, turn: &mut Turn) {
        let late = std::mem::take(&mut turn.steers);
        #[cfg(feature = "test-util")]
        let late = if KernelBug::LateSteersDropped.is_in_folds() { Vec::new() } else { late };
        for (late, message) in late.into_iter().rev() {
            turn.joined.retain(|joined| *joined != late);
            self.begin_turn(late, message, turn.trace.clone());
            if let Some(mut last) = self.open.pop_back() {
                last.heard = taken(&mut turn.heard, late);
                self.open.push_front(last);
            }
        }
    }
}

impl Turn {
    /// What waits and joins its next call. One that is made again shows what it showed the first time.
    pub(super) fn joining(&self) -> &[(TurnId, UserMessage)] {
        if self.begins_call() { &self.steers } else { &[] }
    }

    /// A call begins that shows what has joined.
    pub(super) fn hear_steers(&mut self, step: u32) {
        for (_, steer) in std::mem::take(&mut self.steers) {
            self.hear(step, steer.content, steer.attachments);
        }
    }
}
