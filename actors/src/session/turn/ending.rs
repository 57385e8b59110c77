//! What follows a reply or a planned step, and how a turn ends. Pure.

use clawnode_proto::{
    llm::{StopReason, Usage},
    session::{Reply, SessionEvent, Settled, StepLimitReached, TurnDone, TurnOutcome},
};

use super::{
    plan,
    state::{SessionState, Step, StepEnd, Turn},
    tools::{self, NextCalls},
};

/// What follows a reply: the turn's end, its tools, or the next call.
pub(in crate::session) fn after(
    state: &SessionState,
    turn: &Turn,
    why: &StopReason,
    over: Option<TurnOutcome>,
) -> Vec<SessionEvent> {
    let (Some(session), Some(profile), Some(step)) =
        (&state.key, &state.profile, turn.steps.last())
    else {
        return Vec::new();
    };
    if step.tools.is_empty() && turn.steers.is_empty() {
        return end(turn, TurnOutcome::Completed { stop: why.clone() });
    }
    if let Some(over) = over {
        // The results of its tools that have just come are a part of what it has so far.
        let brought = tools::brought(profile, turn, step);
        return if brought.is_empty() { end(turn, over) } else { brought };
    }
    match tools::next(session, profile, turn, step, state.step_over()) {
        NextCalls::Record(events) => return events,
        NextCalls::End(outcome) => return end(turn, outcome),
        NextCalls::Nothing => {}
    }
    if let Some(plan) = &turn.plan {
        return plan::over(turn, plan).map_or_else(Vec::new, |outcome| end(turn, outcome));
    }
    let limit = profile.step_limit.saturating_add(turn.more_steps);
    let ready = step.tools.iter().all(|tool| tool.end.is_some());
    if !ready || (turn.steps.len() as u64) < u64::from(limit) {
        return Vec::new();
    }
    match turn.limit_reached {
        None if profile.step_wait_ms > 0 => {
            vec![StepLimitReached { turn: turn.id, limit }.into()]
        }
        Some(reached) if !reached.overdue => Vec::new(),
        None | Some(_) => end(turn, TurnOutcome::StepLimit { limit }),
    }
}

/// A turn's last events: its reply if it has one, its end, and what it used.
pub(in crate::session) fn end(turn: &Turn, outcome: TurnOutcome) -> Vec<SessionEvent> {
    let mut events = Vec::new();
    let last_done =
        turn.steps.iter().rev().find(|step| matches!(step.end, Some(StepEnd::Done { .. })));
    // A plan's steps say nothing.
    if let Some(step) = last_done.filter(|_| turn.plan.is_none())
        && matches!(
            outcome,
            TurnOutcome::Completed { .. }
                | TurnOutcome::StepLimit { .. }
                | TurnOutcome::TimedOut { .. }
        )
    {
        events.push(Reply { turn: turn.id, call: step.call }.into());
    }
    events.push(TurnDone { turn: turn.id, outcome }.into());
    events
        .push(Settled { turn: turn.id, usage: turn.reported(), lost_attempts: turn.lost() }.into());
    events
}

// === impl Turn ===

impl Turn {
    /// Reported usage of all calls that have an outcome, and of attempts that gave way.
    pub fn reported(&self) -> Usage {
        self.reported_since(0)
    }

    /// The same without so many of the first ones.
    pub fn reported_since(&self, first: usize) -> Usage {
        self.steps.iter().skip(first).fold(Usage::default(), |sum, step| {
            let sum = sum.plus(step.used_in_vain());
            match &step.end {
                Some(StepEnd::Done { usage, .. } | StepEnd::Failed { usage, .. }) => {
                    sum.plus(*usage)
                }
                None => sum,
            }
        })
    }

    /// Attempts whose end is unknown.
    pub fn lost(&self) -> u32 {
        let known = |step: &Step| step.given_way() + u32::from(step.end.is_some());
        self.steps.iter().map(|step| step.attempt.0.saturating_sub(known(step))).sum()
    }
}
