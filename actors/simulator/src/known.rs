//! What the ledger knows of one call and one turn.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    Attempt, CallId, Epoch, Incarnation, Timestamp,
    block::Blocks,
    llm::{FailureClass, ModelRef},
    session::{ModelGaveWay, TurnOutcome},
    timeout::{TimeLevel, TurnTime},
};

use super::JudgeViolation;

/// Short enough that some turns and steps do not get by with it.
pub(super) const TURN_TIME: TurnTime = TurnTime { global_ms: 90_000, step_ms: 25_000 };
/// How often a call may be ended for others.
const YIELDS_MOST: usize = 8;

/// What is known of one model call.
#[derive(Debug, Default)]
pub(super) struct KnownCall {
    /// Attempts that were begun, by whom.
    pub(super) begun: Vec<(Attempt, Incarnation, Epoch)>,
    pub(super) recorded: bool,
    /// Whether it failed while others of its models could be asked.
    pub(super) failed_early: bool,
    /// What it said beside text and tool calls.
    pub(super) blocks: Option<Blocks>,
    /// Attempts that the provider has seen.
    pub(super) made: BTreeSet<Attempt>,
    /// The models that attempts asked, by the configuration that was journaled before.
    pub(super) asked: BTreeMap<Attempt, ModelRef>,
    /// Attempts that gave way, and for how long the turn then waited.
    pub(super) gave_way: BTreeMap<Attempt, u32>,
    /// Of these, those that were ended for other calls.
    yielded: BTreeSet<Attempt>,
}

/// What is known of one turn.
#[derive(Debug, Default)]
pub(super) struct KnownTurn {
    pub(super) outcome: Option<TurnOutcome>,
    pub(super) replies: u32,
    pub(super) settled: u32,
    pub(super) emitted: bool,
    /// When its first call was begun.
    pub(super) begun: Option<Timestamp>,
    /// Steps of its plan that were begun.
    pub(super) planned: u32,
    /// Its last call.
    pub(super) last_call: Option<CallId>,
    /// Its last call measured its own time, by a clock that is never set.
    pub(super) late_call: bool,
}

impl KnownCall {
    /// The attempt after which its turn waited last.
    fn waited(&self) -> Option<Attempt> {
        self.gave_way.iter().rev().find(|(_, wait_ms)| **wait_ms > 0).map(|(attempt, _)| *attempt)
    }

    /// GIVE-1: an attempt gives way.
    pub(super) fn gives_way(
        &mut self,
        gave_way: &ModelGaveWay,
        chain: &[ModelRef],
    ) -> Result<(), JudgeViolation> {
        let wrong = |what: &str| {
            let text =
                format!("attempt {} at `{}` gives way {what}", gave_way.attempt, gave_way.call);
            Err(JudgeViolation::new("GIVE-1", text))
        };
        if self.recorded || self.begun.iter().all(|(attempt, ..)| *attempt != gave_way.attempt) {
            return wrong("and does not run");
        }
        let waited = self.waited();
        let of_models = self.gave_way.keys().filter(|attempt| !self.yielded.contains(attempt));
        let since = of_models.filter(|attempt| Some(**attempt) > waited).count();
        let is_too_often = if gave_way.why.class == FailureClass::Preempted {
            self.yielded.insert(gave_way.attempt);
            self.yielded.len() > YIELDS_MOST
        } else {
            since >= chain.len().max(1) + 3
        };
        if is_too_often {
            return wrong("too often");
        }
        match self.gave_way.insert(gave_way.attempt, gave_way.wait_ms) {
            Some(_) => wrong("twice"),
            None => Ok(()),
        }
    }

    /// Whether every model of its chain was asked since its turn waited last.
    pub(super) fn was_asked_of_all(&self, chain: &[ModelRef]) -> bool {
        let waited = self.waited();
        let round = self.asked.iter().filter(|(attempt, _)| Some(**attempt) > waited);
        chain.iter().all(|model| round.clone().any(|(_, asked)| asked == model))
    }
}

impl KnownTurn {
    /// PLAN-1: a step of its plan begins, the next one.
    pub(super) fn step(&mut self, step: u32, now: Timestamp) -> Result<(), JudgeViolation> {
        self.begun.get_or_insert(now);
        if step != self.planned {
            let text = format!("step {step} of a plan begins after {} others", self.planned);
            return Err(JudgeViolation::new("PLAN-1", text));
        }
        self.planned += 1;
        Ok(())
    }

    /// How many replies it has to have.
    pub(super) fn replies_due(&self, outcome: &TurnOutcome) -> u32 {
        match outcome {
            _ if self.planned > 0 => 0,
            TurnOutcome::Completed { .. }
            | TurnOutcome::StepLimit { .. }
            | TurnOutcome::SchemaFailed { .. } => 1,
            // It may have said something before its time was over, or its money.
            TurnOutcome::TimedOut { .. } | TurnOutcome::Bankrupt { .. } => self.replies.min(1),
            _ => 0,
        }
    }

    /// TIME-1: no turn ends by its time before that.
    pub(super) fn in_time(
        &self,
        outcome: &TurnOutcome,
        now: Timestamp,
    ) -> Result<(), JudgeViolation> {
        let TurnOutcome::TimedOut { level, .. } = outcome else { return Ok(()) };
        let least = match level {
            TimeLevel::Global => TURN_TIME.global_ms,
            TimeLevel::Command | TimeLevel::Provider | TimeLevel::Step => 0,
        };
        let had = self.begun.map_or(0, |begun| now.0.saturating_sub(begun.0));
        if had < u64::from(least) && !self.late_call {
            let text = format!("a turn of {least} ms ended by its time after {had} ms");
            return Err(JudgeViolation::new("TIME-1", text));
        }
        Ok(())
    }
}
