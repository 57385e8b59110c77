//! What follows a reply or a planned step, and how a turn ends. Pure.

use clawnode_proto::{
    Attempt, CallId, FrameKey,
    llm::{ModelRef, StopReason, Usage},
    session::{Reply, SessionEvent, Settled, StepLimitReached, TurnDone, TurnOutcome},
};

use super::{
    model_call::give_way::EndedAttempt,
    model_call::reply_schema::{JudgedReply, judge},
    plan,
    state::{SessionState, Step, StepEnd, Turn},
    state_parts::settled_cost::Spent,
    tools::tool_calls::{self, NextCalls},
};

/// A call of a turn that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmittedCall {
    pub call: CallId,
    /// The last try at it.
    pub attempt: Attempt,
    /// The model that was asked, whatever is configured since.
    pub model: ModelRef,
    /// What it used.
    pub usage: Usage,
}

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
    if step.tools.is_empty() && turn.steers.is_empty() && step.refused.is_none() {
        return match judge(profile, turn, step, why) {
            JudgedReply::Good(structured) => {
                let outcome = TurnOutcome::Completed { stop: why.clone() };
                end_with(turn, outcome, structured)
            }
            JudgedReply::Refused(refused) => match over {
                Some(over) => end(turn, over),
                None => vec![refused.into()],
            },
            JudgedReply::Failed(outcome) => end(turn, outcome),
        };
    }
    if let Some(over) = over {
        // The results of its tools that have just come belong to what it has so far.
        let brought = tool_calls::brought(profile, turn, step);
        return if brought.is_empty() { end(turn, over) } else { brought };
    }
    if let Some(unfilled) = plan::unfilled(turn) {
        return vec![unfilled];
    }
    match tool_calls::next(state, session, profile, turn, step) {
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
    end_with(turn, outcome, None)
}

/// The same, with its reply as JSON.
fn end_with(turn: &Turn, outcome: TurnOutcome, structured: Option<String>) -> Vec<SessionEvent> {
    let mut events = Vec::new();
    let is_said =
        |step: &&Step| step.refused.is_none() && matches!(step.end, Some(StepEnd::Done { .. }));
    let last_done = turn.steps.iter().rev().find(is_said);
    // A plan's steps say nothing.
    if let Some(step) = last_done.filter(|_| turn.plan.is_none())
        && matches!(
            outcome,
            TurnOutcome::Completed { .. }
                | TurnOutcome::SchemaFailed { .. }
                | TurnOutcome::StepLimit { .. }
                | TurnOutcome::TimedOut { .. }
                | TurnOutcome::Bankrupt { .. }
        )
    {
        events.push(Reply { turn: turn.id, call: step.call, structured }.into());
    }
    events.push(TurnDone { turn: turn.id, outcome }.into());
    let (usage, lost_attempts, cost) = (turn.reported(), turn.lost(), turn.spending().cost());
    events.push(Settled { turn: turn.id, usage, lost_attempts, cost }.into());
    events
}

/// The attempts of a call that ended, for usage records.
pub(super) fn emitted(state: &SessionState, step: &Step) -> Vec<EmittedCall> {
    let call = step.call;
    let gave_way = step.gave_way.iter().flat_map(|gave_way| &gave_way.attempts).map(|attempt| {
        let EndedAttempt { attempt, ref model, usage, .. } = *attempt;
        EmittedCall { call, attempt, model: model.clone(), usage }
    });
    // An earlier build did not keep the model.
    let model = step.model.as_ref().or(state.profile.as_ref().map(|profile| &profile.model));
    let last = match &step.end {
        Some(StepEnd::Done { usage, .. } | StepEnd::Failed { usage, .. }) => model.map(|model| {
            EmittedCall { call, attempt: step.attempt, model: model.clone(), usage: *usage }
        }),
        None => None,
    };
    gave_way.chain(last).collect()
}

/// The call of a turn that made a summary, for usage records.
pub(super) fn emitted_summary(turn: &Turn) -> Option<EmittedCall> {
    let compaction = turn.compaction.as_deref()?;
    let end = compaction.end.as_ref().filter(|end| end.attempt != Attempt(0))?;
    let asked = compaction.asked.as_ref()?;
    let (call, attempt, model) = (compaction.call, end.attempt, asked.model.clone());
    Some(EmittedCall { call, attempt, model, usage: end.usage })
}

// === impl Turn ===

impl Turn {
    /// The key of its last frame: after all that its last call said, and what its tools did.
    pub fn end_key(&self) -> FrameKey {
        let turn = self.id;
        let (call, attempt) = match self.steps.last() {
            // Not attempt 0: an error with that key only rings (see `refusal_key`).
            None => (self.call_at(0), Attempt(1)),
            Some(step) if step.tools.is_empty() => (step.call, step.attempt),
            Some(step) => (self.after.tools(step.call), Attempt(1)),
        };
        FrameKey { turn, call, attempt, index: FrameKey::DONE }
    }

    /// Reported usage of all calls that have an outcome, and of attempts that gave way.
    pub fn reported(&self) -> Usage {
        let summary = self.compaction.as_ref().map(|compaction| compaction.usage());
        self.reported_since(0).plus(summary.unwrap_or_default())
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

    /// What its attempts have spent, as far as a limit held: those without a known end all that they had
    /// reserved.
    pub(in crate::session) fn spending(&self) -> Spent {
        let summary =
            self.compaction.as_ref().map(|compaction| compaction.spending()).unwrap_or_default();
        self.steps.iter().fold(summary, |sum, step| {
            let open = step.held.as_ref().map(|held| held.most());
            sum.plus(step.spent).plus(open.unwrap_or_default())
        })
    }

    /// Attempts whose end is unknown.
    pub fn lost(&self) -> u32 {
        let known = |step: &Step| step.given_way() + u32::from(step.end.is_some());
        let steps = self.steps.iter().map(|step| step.attempt.0.saturating_sub(known(step)));
        steps.chain(self.compaction.iter().map(|compaction| compaction.lost())).sum()
    }
}
