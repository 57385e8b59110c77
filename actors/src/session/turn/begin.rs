//! How turns and their calls begin. Pure.

use clawnode_kernel::Violation;
use clawnode_proto::{
    CallId, TimerId, Traceparent, TurnId,
    after_deletion::{AfterDeletion, BegunAgain},
    llm::Usage,
    session::{KeptChoice, UserMessage},
};

use super::{
    clock::TurnClock,
    memory::turn_feedback::TurnFeedback,
    state::{SessionState, Turn},
    tools::client_tools::ClientOffer,
};

// === impl SessionState ===

impl SessionState {
    /// It was deleted before, and what follows has other ids.
    pub(super) fn begun_again(&mut self, again: BegunAgain) -> Result<(), Violation> {
        let after = AfterDeletion::of(again.after);
        let is_new = self.after.is_none() && self.open.is_empty() && self.closed.is_empty();
        if !is_new || after.is_none() {
            return Err(Violation("a session begins again that has begun (SES-2)".to_owned()));
        }
        self.after = after;
        Ok(())
    }

    /// A message begins a turn, after those that are open.
    pub(in crate::session) fn begin_turn(
        &mut self,
        id: TurnId,
        message: UserMessage,
        trace: Option<Traceparent>,
    ) {
        self.kept.take(&message);
        if self.seed.is_empty() && self.closed.is_empty() && self.open.is_empty() {
            self.seed = message.history;
        }
        let mut sampling = message.sampling;
        sampling.reasoning = sampling.reasoning.or(self.kept.reasoning);
        let is_kept = message.model.is_none() || message.keep.contains(&KeptChoice::Model);
        let mut turn = Turn {
            id,
            after: self.after,
            said: Vec::new(),
            attached: Vec::new(),
            steers: Vec::new(),
            joined: Vec::new(),
            heard: Vec::new(),
            system: message.system,
            sampling,
            model: message.model.or_else(|| self.kept.model.clone()),
            model_is_kept: is_kept && self.kept.model.is_some(),
            offer: ClientOffer::new(message.tools, 0),
            response_schema: message.response_schema,
            metadata: Vec::new(),
            lane: message.lane,
            trace,
            steps: Vec::new(),
            nudges: Vec::new(),
            closes_upto: None,
            compaction: None,
            plan: None,
            skills: Vec::new(),
            recalled: None,
            feedback: TurnFeedback::default(),
            judged: None,
            held: None,
            cancelled: self.doomed,
            more_steps: 0,
            limit_reached: None,
            clock: TurnClock::default(),
            outcome: None,
            structured: None,
            usage: Usage::default(),
            lost_attempts: 0,
        };
        turn.label(None, message.metadata);
        turn.hear(0, message.content, message.attachments);
        self.open.push_back(turn);
    }
}

// === impl Turn ===

impl Turn {
    /// The model call at this place of it, from 0.
    pub fn call_at(&self, step: usize) -> CallId {
        self.after.call(self.id, u32::try_from(step).unwrap_or(u32::MAX))
    }

    /// What the ids of its timers follow from: its id, unless its session was deleted before.
    pub(in crate::session) fn timers(&self) -> TurnId {
        self.after.timers(self.id)
    }

    /// The timer that ends its wait for more than so many steps.
    pub(super) fn steps_timer(&self, limit: u32) -> TimerId {
        TimerId::of_steps(self.timers(), limit)
    }

    /// Whether its next call is a new one, and not another attempt.
    pub(super) fn begins_call(&self) -> bool {
        self.steps.last().is_none_or(|step| step.end.is_some())
    }
}
