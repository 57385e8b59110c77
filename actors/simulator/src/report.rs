//! What is known of a run in which nothing was wrong.

use super::{CrashPoints, LimitChanges, RecallTally, RefusedCalls, SlotTally};

/// A run in which nothing was wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunReport {
    /// The hash of all that happened.
    pub hash: u64,
    /// Steps taken.
    pub steps: u64,
    /// Virtual time that passed, in milliseconds.
    pub millis: u64,
    /// Turns that ended.
    pub turns: usize,
    /// Model calls that the provider saw.
    pub calls: usize,
    /// Attempts that were begun.
    pub attempts: usize,
    /// Entities that are out of service.
    pub quarantined: usize,
    /// Jobs that ran.
    pub jobs: usize,
    /// Runs of them.
    pub runs: u32,
    /// Attempts at model calls that gave way.
    pub gave_way: usize,
    /// Summaries that took the place of turns.
    pub summaries: usize,
    /// What was recalled and learned.
    pub recalls: RecallTally,
    /// Turns whose reply never fitted its schema.
    pub misfits: usize,
    /// Calls that were made under budgets.
    pub budget_calls: usize,
    /// Calls that were ended for others.
    pub preempted: usize,
    /// What became of the slots of providers.
    pub slots: SlotTally,
    /// Calls that circuits did not let pass.
    pub not_sent: usize,
    /// Those of sessions among them.
    pub session_holds: usize,
    /// Calls under budgets that were not made.
    pub refused: RefusedCalls,
    /// The crash points of budgets that were come past.
    pub crash_points: CrashPoints,
    /// What people have changed of limits.
    pub limit_changes: LimitChanges,
    /// How often processes stopped an agent that exceeded a limit.
    pub agent_stops: usize,
    /// Turns that waited until it was resumed, and began.
    pub waited_for_agent: usize,
    /// Model calls that no person sees, as providers saw them.
    pub silent_calls: usize,
    /// Steps of plans that ran with outputs of earlier steps.
    pub templated: usize,
}
