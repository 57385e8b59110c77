//! Reflection: a model looks back at a turn that has ended, for the memory of the person. It rates the turn and writes lessons, or it
//! finds facts in what the person said. Pure.
//!
//! It is asked to rate a turn of 5 or more tool calls, if that is configured, or if a person asks for it, and for the facts of each
//! turn with a reply, if that is configured. The call reserves and settles like each model call, in lane Background, and begins only
//! while no turn is open. Its end, the rating and the lessons or the facts are one event (`reflected`), so a crash leaves all of them
//! or nothing.
//!
//! - It never delays a person: a message that comes meanwhile ends the call, and the turn begins once that is known. So a
//!   session has one model call at a time.
//! - A reflection that fails for any reason changes nothing else. It is made again only if a crash interrupts it, once.
//! - C23: lessons and facts are sent to the memory under the same key until `Emitted` is folded. MEM-3: their source is `reflected`.

use std::sync::Arc;

#[cfg(feature = "test-util")]
use clawnode_kernel::KernelBug;
use clawnode_kernel::{Begun, Violation};
use clawnode_proto::{
    Attempt, TurnId,
    lane::Lane,
    limits::REFLECTION_TIME,
    llm::{FailureClass, ModelFailure, Usage},
    memory::MemoryLayer,
    session::{Profile, Reflected, ReflectionBegun, ReflectionFailed, SessionEvent},
    timeout::{TimeLevel, TimeLimit},
};

use super::super::{
    compaction::compaction_call::{why_refused, window_of},
    context::model_input::Assembled,
    effect::{Effect, Outcome, Want},
    model_call::first_model::Routed,
    model_call::reservation_size::{self, BudgetVerdict, NextCall},
    prepare::{CallJob, EffectJob, SessionJob},
    state::{SessionState, Turn},
    state_parts::compaction_state::CompactionAsked,
    state_parts::reflection_state::{ReflectionAim, WantedReflection},
};
use super::{fact_request, reflection_request};
use crate::agent::Grant;

/// The part of the window of its model that a request may fill, in percent: it is only estimated.
const ROOM_PERCENT: u64 = 80;
/// Tokens of a reply at most, so that a model with thoughts has room for them.
const OUTPUT_MOST: u32 = 2_048;
/// Tokens of a reply below which no model is asked, if a budget allows no more: it would be paid and cut.
const OUTPUT_LEAST: u32 = 512;
/// How often a model is asked whose call a crash interrupts. Then there are no lessons.
const ATTEMPTS_MOST: u32 = 2;

/// What people read of a reflection that a message ended.
const MESSAGE_FIRST: &str = "a message came first";

/// The effect that is due while the session has nothing else to do.
pub(in crate::session::turn) fn effect(state: &SessionState) -> Option<Effect> {
    let reflections = &state.reflections;
    let may_begin = state.open.is_empty() && !state.doomed && !reflections.is_behind();
    #[cfg(feature = "test-util")]
    let may_begin = may_begin || outstays(state);
    let next = reflections.next().filter(|_| may_begin)?;
    Some(Effect::Reflect { turn: next.turn, call: next.call() })
}

/// A planted bug: a message does not end the call.
#[cfg(feature = "test-util")]
fn outstays(state: &SessionState) -> bool {
    KernelBug::ReflectionOutstays.is_in_folds() && state.reflections.open.is_some()
}

/// Whether a call has to end before a turn goes on.
pub(in crate::session::turn) fn is_in_the_way(state: &SessionState) -> bool {
    let is_busy = !state.open.is_empty() || state.doomed;
    is_busy && state.reflections.open.is_some()
}

/// The end of a call that is in the way, if it has said nothing of its own end.
pub(in crate::session::turn) fn interrupted(state: &SessionState) -> Option<SessionEvent> {
    #[cfg(feature = "test-util")]
    if outstays(state) {
        return None;
    }
    let next = state.reflections.next().filter(|_| is_in_the_way(state))?;
    let failure = ModelFailure::new(FailureClass::Cancelled, MESSAGE_FIRST);
    Some(failed(next, Attempt(0), failure, Usage::default()))
}

/// The turn that is looked back at, with the call in the place of its own ones: limits of a turn hold for the call alone.
fn alone(state: &SessionState, id: TurnId) -> Option<Turn> {
    let turn = state.turn(id)?;
    let compaction = state.reflections.open.clone();
    Some(Turn { steps: Vec::new(), compaction, held: None, ..turn.clone() })
}

/// The next attempt to look back, or why none is made.
fn next(state: &SessionState, alone: &Turn, grant: &Grant) -> Result<NextCall, String> {
    let wanted = state.reflections.next().ok_or("it is not wanted any more")?;
    let turn = state.turn(wanted.turn).ok_or("later turns have taken its place")?;
    let profile = state.profile.as_ref().ok_or("the session has no configuration")?;
    let options = &grant.options;
    may_look_back(wanted, grant)?;
    if reservation_size::asks_hooks(&grant.profile) {
        return Err(
            "hooks judge the model calls of its agent, and this one is not for them".to_owned()
        );
    }
    let begun = state.reflections.open.as_deref();
    let is_over = begun.is_some_and(|begun| begun.attempt.0 >= ATTEMPTS_MOST);
    #[cfg(feature = "test-util")]
    let is_over = is_over && !KernelBug::ReflectsOnAndOn.is_in_folds();
    if is_over {
        return Err(format!("{ATTEMPTS_MOST} attempts at it were interrupted"));
    }
    let model = options.compact_model.as_ref().unwrap_or(&options.model);
    let window_tokens = window_of(options, model);
    let asked = begun.and_then(|begun| begun.asked.clone()).unwrap_or_else(|| {
        let max_tokens = OUTPUT_MOST.min(window_tokens / 4);
        CompactionAsked { upto: turn.id, model: model.clone(), max_tokens }
    });
    let request = request(wanted.aim, turn, &asked);
    let room = u64::from(window_tokens.saturating_sub(asked.max_tokens));
    if request.estimate() > room.saturating_mul(ROOM_PERCENT) / 100 {
        return Err("the window of its model is too small".to_owned());
    }
    let profile = Profile {
        model: asked.model.clone(),
        system: request.system.clone().into(),
        tools: Vec::new(),
        window_tokens,
        limits: grant.profile.limits,
        ..profile.clone()
    };
    let call = wanted.call();
    Ok(NextCall {
        call,
        attempt: reservation_size::attempt(alone, call),
        routed: Routed { first: asked.model, taken: None },
        profile: Arc::new(profile),
        request,
        waits_for_hooks: false,
        leaves: Vec::new(),
    })
}

/// Whether the agent, as it is configured now, still has a memory for this.
fn may_look_back(wanted: WantedReflection, grant: &Grant) -> Result<(), String> {
    let memory = grant.options.memory.as_ref();
    let has = |layer: MemoryLayer| memory.is_some_and(|memory| memory.layers.contains(&layer));
    match wanted.aim {
        ReflectionAim::Rating if !has(MemoryLayer::Procedural) => {
            Err("its agent has no memory with the layer `procedural`".to_owned())
        }
        ReflectionAim::Rating if wanted.id == wanted.turn && !grant.profile.reflects => {
            Err("`reflect` has changed".to_owned())
        }
        ReflectionAim::Facts if !has(MemoryLayer::Semantic) && !has(MemoryLayer::Social) => {
            Err("its agent has no memory with the layers `semantic` or `social`".to_owned())
        }
        ReflectionAim::Facts if !grant.profile.extracts => Err("`extract` has changed".to_owned()),
        ReflectionAim::Rating | ReflectionAim::Facts => Ok(()),
    }
}

/// What a model is asked.
fn request(aim: ReflectionAim, turn: &Turn, asked: &CompactionAsked) -> Assembled {
    match aim {
        ReflectionAim::Rating => reflection_request::request(turn, asked),
        ReflectionAim::Facts => fact_request::request(turn, asked),
    }
}

/// What the call needs before it may begin.
pub(in crate::session::turn) fn want(
    state: &SessionState,
    effect: &Effect,
    granted: Option<&Grant>,
) -> Option<Want> {
    let Effect::Reflect { turn, call } = *effect else { return None };
    let Some(grant) = granted else {
        let agent = state.key.as_ref()?.agent.clone();
        let lane = Some(Lane::Background);
        return Some(Want::Place { agent, turn, call, is_new: false, lane });
    };
    let alone = alone(state, turn)?;
    if !reservation_size::may_want(state, &alone, call, grant) {
        return None;
    }
    reservation_size::want(state, &alone, &next(state, &alone, grant).ok()?, grant)
}

/// The events before the call, and the call; or why it is not made.
pub(in crate::session::turn) fn begin(
    state: &SessionState,
    effect: &Effect,
    grant: &Grant,
) -> Option<Begun<SessionEvent, EffectJob>> {
    let Effect::Reflect { turn, .. } = *effect else { return None };
    let (wanted, alone) = (state.reflections.next()?, alone(state, turn)?);
    let next = match next(state, &alone, grant) {
        Ok(next) => next,
        Err(why) => return Some((vec![not_made(wanted, why)], None)),
    };
    let held = match reservation_size::verdict(state, &alone, &next, grant) {
        BudgetVerdict::Free => None,
        BudgetVerdict::Held(terms) => Some(reservation_size::held(&terms, grant)),
        BudgetVerdict::Refused(outcome) => {
            return Some((vec![not_made(wanted, why_refused(outcome))], None));
        }
    };
    let NextCall { call, attempt, profile, request, .. } = next;
    let least = request.sampling.max_tokens.unwrap_or(OUTPUT_MOST).min(OUTPUT_LEAST);
    if held.as_ref().is_some_and(|held| held.max_output < u64::from(least)) {
        // Its hold goes back with the grant.
        let why = "the budget has no room for a whole reply".to_owned();
        return Some((vec![not_made(wanted, why)], None));
    }
    let request = reservation_size::capped(request, held.as_ref().map(|held| held.max_output));
    let paid = held.as_ref().map(|held| reservation_size::bill(held, grant));
    let begun = SessionEvent::from(ReflectionBegun {
        turn,
        call,
        attempt,
        model: request.model.clone(),
        request: request.digest(),
        max_tokens: request.sampling.max_tokens.unwrap_or(OUTPUT_MOST),
    });
    let events = held.map(SessionEvent::from).into_iter().chain([begun]).collect();
    let job = CallJob {
        limit: Some(limit()),
        agent: profile.agent.clone(),
        turn,
        call,
        attempt,
        request,
        permit: Arc::clone(&grant.permit),
        seam: "",
        corrects: false,
        is_silent: true,
        notice: None,
        has_other: false,
        weight: grant.options.weight,
        may_yield: true,
        paid,
    };
    let trace = alone.trace;
    Some((events, Some(EffectJob { told: None, trace, job: SessionJob::Call(job) })))
}

fn limit() -> TimeLimit {
    let ms = u32::try_from(REFLECTION_TIME.as_millis()).unwrap_or(u32::MAX);
    let set_in = "the limit of a reflection".to_owned();
    TimeLimit { level: TimeLevel::Step, ms, left_ms: ms, set_in }
}

// === how it ends ===

/// No call is made.
fn not_made(wanted: WantedReflection, why: String) -> SessionEvent {
    failed(wanted, Attempt(0), ModelFailure::new(FailureClass::Rejected, why), Usage::default())
}

fn failed(
    wanted: WantedReflection,
    attempt: Attempt,
    failure: ModelFailure,
    usage: Usage,
) -> SessionEvent {
    let (turn, call) = (wanted.turn, wanted.call());
    ReflectionFailed { turn, call, attempt, failure, usage }.into()
}

/// What follows if the call gets no place, or not what it may cost.
pub(in crate::session::turn) fn refuse(
    state: &SessionState,
    effect: &Effect,
    outcome: Outcome,
) -> Vec<SessionEvent> {
    let next = state.reflections.next().filter(|_| self::effect(state).as_ref() == Some(effect));
    let Some(wanted) = next else { return Vec::new() };
    match outcome {
        Outcome::Failed { failure, .. } => vec![not_made(wanted, failure.message)],
        Outcome::Refused(outcome) => vec![not_made(wanted, why_refused(outcome))],
        _ => Vec::new(),
    }
}

/// What follows from the end of the call.
pub(in crate::session::turn) fn conclude(
    state: &SessionState,
    effect: &Effect,
    outcome: Outcome,
) -> Vec<SessionEvent> {
    let Effect::Reflect { turn, call } = *effect else { return Vec::new() };
    let next = state.reflections.next().filter(|next| (next.turn, next.call()) == (turn, call));
    let asked = state.reflections.open.as_deref().and_then(|open| open.asked.as_ref());
    let Some((wanted, asked)) = next.zip(asked) else { return Vec::new() };
    let (attempt, usage, found) = match outcome {
        Outcome::Done { attempt, content, stop, usage, tool_uses, .. } => {
            let has_tools = !tool_uses.is_empty();
            let found = match wanted.aim {
                ReflectionAim::Rating => reflection_request::read(&content, &stop, has_tools)
                    .map(|found| (Some(found.rating), found.lessons, Vec::new())),
                ReflectionAim::Facts => {
                    fact_request::read(state.turn(turn), &content, &stop, has_tools)
                        .map(|facts| (None, Vec::new(), facts))
                }
            };
            (attempt, usage, found)
        }
        Outcome::Failed { attempt, mut failure, usage, .. } => {
            if failure.class == FailureClass::Cancelled && is_in_the_way(state) {
                MESSAGE_FIRST.clone_into(&mut failure.message);
            }
            return vec![failed(wanted, attempt, failure, usage)];
        }
        _ => return Vec::new(),
    };
    let event = match found {
        Ok((rating, lessons, facts)) => {
            let by = asked.model.clone();
            Reflected { turn, call, attempt, rating, lessons, facts, by, usage }.into()
        }
        Err(why) => {
            // What was answered is billed, whatever it is worth.
            let failure = ModelFailure::new(FailureClass::BrokenStream, why);
            failed(wanted, attempt, failure, usage)
        }
    };
    vec![event]
}

/// Compares what a model was asked with what the journal gives.
pub(in crate::session::turn) fn replay(
    state: &SessionState,
    begun: &ReflectionBegun,
) -> Result<(), Violation> {
    let ReflectionBegun { turn, call, model, max_tokens, .. } = begun;
    let aim = ReflectionAim::of(*turn, *call);
    let asked = CompactionAsked { upto: *turn, model: model.clone(), max_tokens: *max_tokens };
    let known = state.turn(*turn).map(|turn| request(aim, turn, &asked).digest());
    if known == Some(begun.request) {
        return Ok(());
    }
    let text = format!("the request of `{call}` differs from what the journal gives");
    Err(Violation(text))
}
