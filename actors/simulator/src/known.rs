//! What the ledger knows of one call and one turn.

use std::collections::BTreeSet;

use clawnode_proto::{
    Attempt, Epoch, Incarnation, Timestamp, block::Blocks, session::TurnOutcome, timeout::TimeLevel,
};

use super::{JudgeViolation, effects::TURN_TIME};

/// What is known of one model call.
#[derive(Debug, Default)]
pub(super) struct KnownCall {
    /// Attempts that were begun, by whom.
    pub(super) begun: Vec<(Attempt, Incarnation, Epoch)>,
    pub(super) recorded: bool,
    /// What it said beside text and tool calls.
    pub(super) blocks: Option<Blocks>,
    /// Attempts that the provider has seen.
    pub(super) made: BTreeSet<Attempt>,
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
    /// Its last call measured its own time, by a clock that is never set.
    pub(super) late_call: bool,
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
            TurnOutcome::Completed { .. } | TurnOutcome::StepLimit { .. } => 1,
            // It may have said something before its time was over.
            TurnOutcome::TimedOut { .. } => self.replies.min(1),
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
