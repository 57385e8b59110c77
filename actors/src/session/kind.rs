//! What follows from a session's state: its decisions.

use std::sync::Arc;

use clawnode_proto::{
    AgentName, Attempt, CallId, Head, Input, Kind, TurnId, codec,
    limits::PENDING_INPUTS,
    llm::{ModelFailure, StopReason, Text, Usage},
    session::{
        ModelBegun, ModelDone, ModelFailed, Profile, Reply, SessionEvent, SessionInput, Settled,
        ToolDone, ToolEnd, ToolUncertain, TurnDone, TurnOutcome,
    },
    tool::ToolUse,
};

use super::{
    context::assemble,
    prepare::{CallJob, SessionJob, emission, results_before, tool_job},
    state::{SEAM, SessionState, Step, StepEnd, Turn},
    tools::{self, Asked, Next},
};
use crate::{
    agent::Permit,
    durable::{EffectClass, EntityKind, Violation},
};

/// The session entity kind.
#[derive(Debug)]
pub struct Session;

/// What must be under way for a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A model call.
    Call {
        /// Whose configuration and place it needs.
        agent: AgentName,
        /// Of which turn.
        turn: TurnId,
        /// Which.
        call: CallId,
    },
    /// A tool call that runs beside the session.
    Tool {
        /// Which.
        call: CallId,
    },
    /// A tool call that another node may run.
    Publish {
        /// Which.
        call: CallId,
    },
    /// A tool call whose time is over.
    Settle {
        /// Which.
        call: CallId,
    },
    /// A turn's post-turn effects.
    Emit {
        /// Which turn.
        turn: TurnId,
    },
}

/// What makes a session's effect idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallKey {
    /// A model or tool call.
    Call(CallId),
    /// The job of a tool call.
    Publish(CallId),
    /// A turn's post-turn effects.
    Emit(TurnId),
}

/// The right to make calls now, and the configuration to make them with.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The agent's configuration.
    pub profile: Profile,
    /// Gives the place back when the call's job is dropped.
    pub permit: Arc<Permit>,
}

/// How a model call ended.
#[derive(Debug)]
pub enum Outcome {
    /// Well.
    Done {
        /// Which try.
        attempt: Attempt,
        /// What the model said.
        content: Text,
        /// Why it stopped.
        stop: StopReason,
        /// What it used.
        usage: Usage,
        /// The model's name as the provider reports it.
        model: String,
        /// The tools that it asks for.
        tool_uses: Vec<ToolUse>,
    },
    /// Of a tool.
    Tool(ToolEnd),
    /// Badly.
    Failed {
        /// Which try.
        attempt: Attempt,
        /// How.
        failure: ModelFailure,
        /// What was said so far.
        partial: Text,
        /// What it used, as far as the provider said.
        usage: Usage,
    },
}

impl EntityKind for Session {
    const KIND: Kind = Kind::Session;
    type State = SessionState;
    type Event = SessionEvent;
    type Effect = Effect;
    type Key = CallKey;
    type Grant = Grant;
    type Job = SessionJob;
    type Outcome = Outcome;

    fn born(state: &mut SessionState, key: &str) -> Result<(), Violation> {
        let key = key.parse().map_err(|error| Violation(format!("not a session: {error}")))?;
        state.key = Some(key);
        Ok(())
    }

    fn fold(state: &mut SessionState, head: &Head, event: &SessionEvent) -> Result<(), Violation> {
        state.fold(head, event)
    }

    fn accept(state: &mut SessionState, _: &Head, input: &Input) -> Result<(), Violation> {
        state.accept(input)
    }

    fn emitted(state: &mut SessionState, turn: TurnId) {
        state.unemitted.retain(|one| *one != turn);
    }

    fn deleted(state: &mut SessionState) {
        *state = SessionState::default();
    }

    fn slim(state: &mut SessionState) {
        state.slim();
    }

    fn doomed(state: &SessionState) -> bool {
        state.doomed
    }

    fn understands(input: &Input) -> bool {
        input.order.is_some() || codec::decode::<SessionInput>(&input.body).is_ok()
    }

    fn admits(state: &SessionState, input: &Input) -> bool {
        let bounded = matches!(
            codec::decode(&input.body),
            Ok(SessionInput::UserMessage(_) | SessionInput::Steer(_))
        );
        !bounded || state.open.len() < PENDING_INPUTS
    }

    fn advance(state: &SessionState) -> Vec<SessionEvent> {
        // A cancelled turn that waits ends at once, whatever runs before it.
        let waiting = state.open.iter().skip(1).find(|turn| turn.cancelled);
        if let Some(turn) = waiting {
            return end(turn, TurnOutcome::Cancelled);
        }
        let Some(turn) = state.running() else { return Vec::new() };
        let last = turn.steps.last();
        match last.and_then(|step| step.end.as_ref()) {
            _ if turn.cancelled => end(turn, TurnOutcome::Cancelled),
            None => Vec::new(),
            Some(StepEnd::Failed { failure, .. }) => {
                end(turn, TurnOutcome::Failed { failure: failure.clone() })
            }
            Some(StepEnd::Done { stop, .. }) => after(state, turn, stop),
        }
    }

    fn decide(state: &SessionState) -> Vec<Effect> {
        let mut effects: Vec<Effect> =
            state.unemitted.iter().map(|turn| Effect::Emit { turn: *turn }).collect();
        if let Some(turn) = state.running()
            && let Some(key) = &state.key
            && !turn.cancelled
        {
            let next =
                || CallId::derive(turn.id, u32::try_from(turn.steps.len()).unwrap_or(u32::MAX));
            let model = |call| Effect::Call { agent: key.agent.clone(), turn: turn.id, call };
            match turn.steps.last() {
                Some(Step { call, end: None, .. }) => effects.push(model(*call)),
                Some(step) if step.tools.iter().any(|tool| tool.end.is_none()) => {
                    let open = step.tools.iter().filter(|tool| tool.is_open());
                    effects.extend(open.map(|tool| match &tool.asked {
                        Some(Asked { capability: Some(_), .. }) if tool.overdue => {
                            Effect::Settle { call: tool.call }
                        }
                        Some(Asked { capability: Some(_), .. }) => {
                            Effect::Publish { call: tool.call }
                        }
                        _ => Effect::Tool { call: tool.call },
                    }));
                }
                Some(_) | None => effects.push(model(next())),
            }
        }
        effects
    }

    fn key(effect: &Effect) -> CallKey {
        match effect {
            Effect::Call { call, .. } | Effect::Tool { call } | Effect::Settle { call } => {
                CallKey::Call(*call)
            }
            Effect::Publish { call } => CallKey::Publish(*call),
            Effect::Emit { turn } => CallKey::Emit(*turn),
        }
    }

    fn class(effect: &Effect) -> EffectClass {
        match effect {
            Effect::Call { .. } => EffectClass::Call,
            Effect::Tool { .. } | Effect::Settle { .. } => EffectClass::Run,
            Effect::Publish { .. } => EffectClass::Publish,
            Effect::Emit { turn } => EffectClass::Emit(*turn),
        }
    }

    fn begin(
        state: &SessionState,
        effect: &Effect,
        grant: &Grant,
    ) -> Option<(Vec<SessionEvent>, SessionJob)> {
        let Effect::Call { turn, call, .. } = effect else { return None };
        let call = *call;
        let turn = state.turn(*turn)?;
        let mut events = Vec::new();
        if state.profile.as_ref() != Some(&grant.profile) {
            events.push(SessionEvent::from(grant.profile.clone()));
        }
        let attempt = turn
            .steps
            .iter()
            .find(|step| step.call == call)
            .map_or(Attempt(1), |step| step.attempt.next());
        let request = assemble(state, &grant.profile, turn);
        events.push(SessionEvent::from(ModelBegun {
            turn: turn.id,
            call,
            attempt,
            request: request.digest(),
            dropped_turns: request.dropped_turns,
        }));
        let permit = Arc::clone(&grant.permit);
        let trace = turn.trace.clone();
        let results = results_before(turn, call);
        let before = turn.steps.iter().take_while(|step| step.call != call);
        let said = before.filter_map(Step::text).any(|text| text.bytes() > 0);
        let seam = if said { SEAM } else { "" };
        let turn = turn.id;
        let job = CallJob { turn, call, attempt, request, trace, permit, results, seam };
        Some((events, SessionJob::Call(job)))
    }

    fn prepare(state: &SessionState, effect: &Effect) -> Option<SessionJob> {
        match effect {
            Effect::Tool { call } | Effect::Publish { call } | Effect::Settle { call } => {
                tool_job(state, effect, *call)
            }
            Effect::Emit { turn } => Some(emission(state, *turn)),
            Effect::Call { .. } => None,
        }
    }

    fn refuse(state: &SessionState, key: &CallKey, outcome: Outcome) -> Vec<SessionEvent> {
        let wanted = Self::decide(state).iter().any(|effect| Self::key(effect) == *key);
        match (state.running(), outcome) {
            (Some(turn), Outcome::Failed { failure, .. }) if wanted => {
                end(turn, TurnOutcome::Failed { failure })
            }
            _ => Vec::new(),
        }
    }

    fn conclude(state: &SessionState, key: &CallKey, outcome: Outcome) -> Vec<SessionEvent> {
        let CallKey::Call(call) = *key else { return Vec::new() };
        let Some(turn) = state.running() else { return Vec::new() };
        if let Outcome::Tool(end) = outcome {
            let mut tools = turn.steps.iter().flat_map(|step| &step.tools);
            if !tools.any(|tool| tool.call == call && tool.is_open()) {
                return Vec::new();
            }
            return vec![match end {
                ToolEnd::Known { outcome } => {
                    ToolDone { turn: turn.id, call, outcome: Some(outcome) }.into()
                }
                ToolEnd::Uncertain { detail } => {
                    ToolUncertain { turn: turn.id, call, detail: Some(detail) }.into()
                }
            }];
        }
        if !turn.steps.iter().any(|step| step.call == call && step.end.is_none()) {
            return Vec::new();
        }
        let event = match outcome {
            Outcome::Done { attempt, content, stop, usage, model, tool_uses } => {
                ModelDone { call, attempt, content, stop, usage, model, tool_uses }.into()
            }
            Outcome::Tool(_) => return Vec::new(),
            Outcome::Failed { attempt, failure, partial, usage } => {
                ModelFailed { call, attempt, failure, partial, usage }.into()
            }
        };
        vec![event]
    }
}

/// What follows a reply: the turn's end, its tools, or the next call.
fn after(state: &SessionState, turn: &Turn, why: &StopReason) -> Vec<SessionEvent> {
    let (Some(profile), Some(step)) = (&state.profile, turn.steps.last()) else {
        return Vec::new();
    };
    if step.tools.is_empty() && turn.steers.is_empty() {
        return end(turn, TurnOutcome::Completed { stop: why.clone() });
    }
    match tools::next(profile, turn, step) {
        Next::Record(events) => return events,
        Next::End(outcome) => return end(turn, outcome),
        Next::Nothing => {}
    }
    let limit = profile.step_limit;
    let ready = step.tools.iter().all(|tool| tool.end.is_some());
    if ready && turn.steps.len() as u64 >= u64::from(limit) {
        return end(turn, TurnOutcome::StepLimit { limit });
    }
    Vec::new()
}

/// A turn's last events: its reply if it has one, its end, and what it used.
fn end(turn: &Turn, outcome: TurnOutcome) -> Vec<SessionEvent> {
    let mut events = Vec::new();
    let last_done =
        turn.steps.iter().rev().find(|step| matches!(step.end, Some(StepEnd::Done { .. })));
    if let Some(step) = last_done
        && matches!(outcome, TurnOutcome::Completed { .. } | TurnOutcome::StepLimit { .. })
    {
        events.push(Reply { turn: turn.id, call: step.call }.into());
    }
    events.push(TurnDone { turn: turn.id, outcome }.into());
    events
        .push(Settled { turn: turn.id, usage: turn.reported(), lost_attempts: turn.lost() }.into());
    events
}
