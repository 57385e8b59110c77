//! What follows from a session's state: its decisions.

use std::sync::Arc;

use clawnode_proto::{
    AgentName, Attempt, CallId, FrameKey, Head, Input, Kind, Traceparent, TurnId, codec,
    limits::PENDING_INPUTS,
    llm::{ModelFailure, StopReason, Text, Usage},
    session::{
        ModelBegun, ModelDone, ModelFailed, Profile, Reply, SessionEvent, SessionInput, Settled,
        TurnDone, TurnOutcome,
    },
};

use super::{
    context::{Assembled, assemble},
    state::{SessionState, Step, StepEnd, Turn},
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
    /// A turn's post-turn effects.
    Emit {
        /// Which turn.
        turn: TurnId,
    },
}

/// What makes a session's effect idempotent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CallKey {
    /// A model call.
    Call(CallId),
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

/// All that running an effect takes.
#[derive(Debug)]
pub enum SessionJob {
    /// Make a model call.
    Call(CallJob),
    /// Tell the world that a turn has ended.
    Emit(EmitJob),
}

/// All that a model call takes.
#[derive(Debug)]
pub struct CallJob {
    /// Of which turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// Which try at it.
    pub attempt: Attempt,
    /// What to ask.
    pub request: Assembled,
    /// The trace that the turn belongs to.
    pub trace: Option<Traceparent>,
    /// Held while the call runs.
    pub permit: Arc<Permit>,
}

/// All that telling the world takes.
#[derive(Debug)]
pub struct EmitJob {
    /// The turn's last frame.
    pub done: FrameKey,
    /// How it ended.
    pub outcome: TurnOutcome,
    /// What it used.
    pub usage: Usage,
    /// Bytes of text that its calls said in all.
    pub text_bytes: u64,
    /// Its calls and their attempts, for usage records.
    pub calls: Vec<(CallId, Attempt, Usage)>,
    /// The agent and model, for usage records.
    pub profile: Option<Profile>,
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
    },
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
        let last = turn.steps.last().and_then(|step| step.end.as_ref());
        let limit = state.profile.as_ref().map_or(u32::MAX, |profile| profile.step_limit);
        match last {
            _ if turn.cancelled => end(turn, TurnOutcome::Cancelled),
            Some(StepEnd::Failed { failure, .. }) => {
                end(turn, TurnOutcome::Failed { failure: failure.clone() })
            }
            Some(StepEnd::Done { stop, .. }) if turn.steers.is_empty() => {
                end(turn, TurnOutcome::Completed { stop: stop.clone() })
            }
            Some(StepEnd::Done { .. }) if turn.steps.len() as u64 >= u64::from(limit) => {
                end(turn, TurnOutcome::StepLimit { limit })
            }
            Some(StepEnd::Done { .. }) | None => Vec::new(),
        }
    }

    fn decide(state: &SessionState) -> Vec<Effect> {
        let mut effects: Vec<Effect> =
            state.unemitted.iter().map(|turn| Effect::Emit { turn: *turn }).collect();
        if let Some(turn) = state.running()
            && let Some(key) = &state.key
            && !turn.cancelled
        {
            let call = match turn.steps.last() {
                Some(Step { call, end: None, .. }) => *call,
                _ => CallId::derive(turn.id, u32::try_from(turn.steps.len()).unwrap_or(u32::MAX)),
            };
            effects.push(Effect::Call { agent: key.agent.clone(), turn: turn.id, call });
        }
        effects
    }

    fn key(effect: &Effect) -> CallKey {
        match effect {
            Effect::Call { call, .. } => CallKey::Call(*call),
            Effect::Emit { turn } => CallKey::Emit(*turn),
        }
    }

    fn class(effect: &Effect) -> EffectClass {
        match effect {
            Effect::Call { .. } => EffectClass::Call,
            Effect::Emit { turn } => EffectClass::Emit(*turn),
        }
    }

    fn begin(
        state: &SessionState,
        effect: &Effect,
        grant: &Grant,
    ) -> (Vec<SessionEvent>, SessionJob) {
        let mut events = Vec::new();
        if state.profile.as_ref() != Some(&grant.profile) {
            events.push(SessionEvent::from(grant.profile.clone()));
        }
        let (Effect::Call { turn: id, .. } | Effect::Emit { turn: id }) = effect;
        let Some(turn) = state.turn(*id) else {
            return (Vec::new(), Self::emit(state, effect));
        };
        let call = match effect {
            Effect::Call { call, .. } => *call,
            Effect::Emit { .. } => return (Vec::new(), Self::emit(state, effect)),
        };
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
        let job = CallJob { turn: turn.id, call, attempt, request, trace, permit };
        (events, SessionJob::Call(job))
    }

    fn emit(state: &SessionState, effect: &Effect) -> SessionJob {
        let (Effect::Call { turn: id, .. } | Effect::Emit { turn: id }) = effect;
        let turn = state.turn(*id);
        let steps = turn.map_or(&[][..], |turn| &turn.steps);
        let last = steps.last();
        SessionJob::Emit(EmitJob {
            done: FrameKey {
                turn: *id,
                call: last.map_or_else(|| CallId::derive(*id, 0), |step| step.call),
                attempt: last.map_or(Attempt(0), |step| step.attempt),
                index: FrameKey::DONE,
            },
            outcome: turn.and_then(|turn| turn.outcome.clone()).unwrap_or(TurnOutcome::Cancelled),
            usage: turn.map_or_else(Usage::default, |turn| turn.usage),
            text_bytes: turn.map_or(0, Turn::text_bytes),
            calls: steps
                .iter()
                .filter_map(|step| match &step.end {
                    Some(StepEnd::Done { usage, .. } | StepEnd::Failed { usage, .. }) => {
                        Some((step.call, step.attempt, *usage))
                    }
                    None => None,
                })
                .collect(),
            profile: state.profile.clone(),
        })
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
        let open = state.running().is_some_and(|turn| {
            turn.steps.iter().any(|step| step.call == call && step.end.is_none())
        });
        if !open {
            return Vec::new();
        }
        let event = match outcome {
            Outcome::Done { attempt, content, stop, usage, model } => {
                ModelDone { call, attempt, content, stop, usage, model }.into()
            }
            Outcome::Failed { attempt, failure, partial, usage } => {
                ModelFailed { call, attempt, failure, partial, usage }.into()
            }
        };
        vec![event]
    }
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
