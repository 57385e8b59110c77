//! What the journal says of summaries, taken into a session's state.

use clawnode_kernel::Violation;
use clawnode_proto::{
    Attempt, CallId, TurnId,
    llm::{ModelFailure, ModelRef, Usage},
    session::{Compacted, CompactionBegun, CompactionFailed},
};

use super::super::{
    state::SessionState,
    state_parts::compaction_state::{Compaction, CompactionAsked, HistorySummary},
};

impl SessionState {
    /// How many of the oldest turns a summary is about.
    pub(in crate::session::turn) fn summarized(&self) -> u32 {
        self.summary.as_ref().map_or(0, |summary| summary.turns)
    }

    /// An attempt at a summary begins.
    pub(in crate::session::turn) fn compaction_begun(
        &mut self,
        begun: &CompactionBegun,
    ) -> Result<(), Violation> {
        let CompactionBegun { turn, call, attempt, upto, .. } = *begun;
        let (model, max_tokens) = (begun.model.clone(), begun.max_tokens);
        let Some(running) = self.open.front_mut().filter(|one| one.id == turn) else {
            return Err(Violation(format!("`{turn}` is not the running turn (SES-2)")));
        };
        if !running.steps.is_empty() || running.plan.is_some() {
            return Err(Violation(format!("`{call}` begins after calls of its turn (COMP-1)")));
        }
        let held = running.held.take();
        if held.as_ref().is_some_and(|held| (held.call, held.attempt) != (call, attempt)) {
            return Err(Violation(format!("what is reserved is not for `{call}` (BUD-1)")));
        }
        let compaction = running.compaction.get_or_insert_with(|| Box::new(Compaction::new(call)));
        if compaction.call != call {
            return Err(Violation(format!("`{call}` has ended and was begun again (I3)")));
        }
        let asked = CompactionAsked { upto, model, max_tokens };
        compaction.begins(attempt, held.as_deref(), asked)?;
        #[cfg(feature = "test-util")]
        if clawnode_kernel::KernelBug::CompactsFirst.is_in_folds() {
            let by = begun.model.clone();
            return self.summarize(upto, "a summary will follow".to_owned(), by);
        }
        Ok(())
    }

    /// A summary takes the place of turns.
    pub(in crate::session::turn) fn compacted(
        &mut self,
        compacted: &Compacted,
    ) -> Result<(), Violation> {
        if compacted.attempt == Attempt(0) {
            return Err(Violation(format!(
                "`{}` was not made, and gives no summary",
                compacted.call
            )));
        }
        let known = self.compaction_ended(
            compacted.turn,
            compacted.call,
            compacted.attempt,
            compacted.usage,
            None,
        )?;
        if known.is_none_or(|asked| asked.upto != compacted.upto) {
            return Err(Violation(format!(
                "`{}` was not asked for such a summary",
                compacted.call
            )));
        }
        self.summarize(compacted.upto, compacted.text.clone(), compacted.by.clone())
    }

    /// There is no summary.
    pub(in crate::session::turn) fn compaction_failed(
        &mut self,
        failed: &CompactionFailed,
    ) -> Result<(), Violation> {
        self.compaction_ended(
            failed.turn,
            failed.call,
            failed.attempt,
            failed.usage,
            Some(&failed.failure),
        )
        .map(|_| ())
    }

    /// What was asked by the attempt that ends so.
    fn compaction_ended(
        &mut self,
        turn: TurnId,
        call: CallId,
        attempt: Attempt,
        usage: Usage,
        failure: Option<&ModelFailure>,
    ) -> Result<Option<CompactionAsked>, Violation> {
        let Some(running) = self.open.front_mut().filter(|one| one.id == turn) else {
            return Err(Violation(format!("`{turn}` is not the running turn (SES-2)")));
        };
        let compaction = running.compaction.get_or_insert_with(|| Box::new(Compaction::new(call)));
        if compaction.call != call {
            return Err(Violation(format!("`{call}` has two outcomes (I3)")));
        }
        compaction.ends(attempt, usage, failure)?;
        Ok(compaction.asked.clone())
    }

    pub(super) fn summarize(
        &mut self,
        upto: TurnId,
        text: String,
        by: ModelRef,
    ) -> Result<(), Violation> {
        let Some(at) = self.closed.iter().position(|one| one.id == upto) else {
            return Err(Violation(format!("a summary up to `{upto}`, which is not there")));
        };
        let here = at.saturating_add(1).saturating_add(usize::from(!self.seed.is_empty()));
        let turns = u32::try_from(self.earlier.left_out().saturating_add(here));
        let turns = turns.unwrap_or(u32::MAX);
        // Requests do not begin any more with what a provider counted.
        self.prefix = None;
        self.summary = Some(Box::new(HistorySummary { upto, turns, text, by }));
        Ok(())
    }
}
