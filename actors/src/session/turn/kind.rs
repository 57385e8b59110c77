//! What follows from a session's state: its decisions.

use std::sync::Arc;

use clawnode_kernel::{Begun, EffectKind, EntityKind, Violation};
use clawnode_proto::{
    CallId, Digest, Head, Input, Kind, Seq, TurnId,
    after_deletion::BegunAgain,
    codec,
    limits::PENDING_INPUTS,
    llm::FailureClass,
    session::{
        ModelBegun, ModelDone, ModelFailed, ModelGaveWay, ModelHooked, Profile, SessionEvent,
        SessionInput, ToolDone, ToolEnd, ToolUncertain, TurnOutcome,
    },
    skill::SkillsActivated,
    tool::ToolUse,
};
use serde_json::Value;

use super::{
    compaction::compaction_call,
    effect::{Effect, Outcome, Want, WantedPrompt},
    ending::{after, end},
    hooks,
    memory::recall_for_turn,
    model_call::give_way::AfterFailure,
    model_call::next_call::{MadeCall, left_out, made_or_next, next_call},
    model_call::reservation_size::{self, BudgetVerdict, NextCall},
    model_call::wait_for_provider::ProviderWait,
    plan,
    prepare::{CallJob, EffectJob, SessionJob, judge_model_job},
    recorded,
    reflection::reflection_call,
    state::{SEAM, SessionState, Step, StepEnd, Turn},
    tools::tool_calls::BegunToolCall,
    tools::tool_frames::ToolFrames,
};
use crate::agent::Grant;

/// The session entity kind.
#[derive(Debug)]
pub struct Session;

impl EntityKind for Session {
    const KIND: Kind = Kind::SESSION;
    const IS_REPLAYED: bool = true;
    type State = SessionState;
    type Event = SessionEvent;
    type Effect = Effect;
    type Want = Want;
    type Grant = Grant;
    type Made = MadeCall;
    type Job = EffectJob;
    type Outcome = Outcome;

    fn born(state: &mut SessionState, key: &str) -> Result<(), Violation> {
        let key = key.parse().map_err(|error| Violation(format!("not a session: {error}")))?;
        state.key = Some(key);
        state.due_summary.forget();
        Ok(())
    }

    fn begun_again(deletion: Seq) -> Option<SessionEvent> {
        #[cfg(feature = "test-util")]
        if clawnode_kernel::KernelBug::GivesIdsAgain.is_in_folds() {
            return None;
        }
        Some(BegunAgain { after: deletion }.into())
    }

    fn fold(state: &mut SessionState, head: &Head, event: &SessionEvent) -> Result<(), Violation> {
        state.due_summary.forget();
        state.fold(head, event)
    }

    fn accept(state: &mut SessionState, head: &Head, input: &Input) -> Result<(), Violation> {
        state.due_summary.forget();
        state.accept(head, input)
    }

    fn emitted(state: &mut SessionState, turn: TurnId) {
        state.due_summary.forget();
        state.unemitted.retain(|one| *one != turn);
        state.feedback.is_sent(turn);
        state.reflections.is_sent(turn);
        let told = state.closed.iter_mut().rev().find(|one| one.id == turn);
        let Some(turn) = told else { return };
        turn.heard = Vec::new();
        for step in &mut turn.steps {
            (step.model, step.gave_way) = (None, None);
        }
        if let Some(compaction) = &mut turn.compaction {
            compaction.asked = None;
            compaction.end.iter_mut().for_each(|end| end.why = None);
        }
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

    fn begins(input: &Input) -> bool {
        matches!(
            codec::decode(&input.body),
            Ok(SessionInput::UserMessage(_) | SessionInput::Steer(_) | SessionInput::Execute(_))
        )
    }

    fn admits(state: &SessionState, input: &Input) -> bool {
        !Self::begins(input) || state.open.len() < PENDING_INPUTS
    }

    fn advance(state: &SessionState) -> Vec<SessionEvent> {
        if let Some(given) = state.next_feedback() {
            return vec![given.into()];
        }
        if let Some(interrupted) = reflection_call::interrupted(state) {
            return vec![interrupted];
        }
        // A cancelled turn that waits ends at once, whatever runs before it.
        let waiting = state.open.iter().skip(1).find(|turn| turn.cancelled);
        if let Some(turn) = waiting {
            return end(turn, TurnOutcome::Cancelled);
        }
        let Some(turn) = state.running() else { return Vec::new() };
        if let Some(block) = turn.blocked()
            && !turn.cancelled
        {
            return end(turn, TurnOutcome::Blocked { block: block.clone() });
        }
        if let Some(outcome) = turn.left_by_client(state.open.len() > 1)
            && !turn.cancelled
        {
            return end(turn, outcome);
        }
        let last = turn.steps.last();
        let over = state.timed_out();
        match (last.and_then(|step| step.end.as_ref()), over) {
            _ if turn.cancelled => end(turn, TurnOutcome::Cancelled),
            (None, None) => Vec::new(),
            (None, Some(over)) => end(turn, over),
            // With time left, the call would be made again, or another model asked.
            (Some(StepEnd::Failed { failure, .. }), Some(over))
                if failure.class.gives_way()
                    || matches!(
                        failure.class,
                        FailureClass::Cancelled | FailureClass::Preempted
                    ) =>
            {
                end(turn, over)
            }
            (Some(StepEnd::Failed { failure, .. }), _) => end(turn, failure.clone().into()),
            (Some(StepEnd::Done { stop, .. }), over) => after(state, turn, stop, over),
        }
    }

    fn decide(state: &SessionState) -> Vec<Effect> {
        let mut effects: Vec<Effect> =
            state.unemitted.iter().map(|turn| Effect::Emit { turn: *turn }).collect();
        effects.extend(state.feedback.unsent().map(|feedback| Effect::Rate { feedback }));
        effects.extend(state.reflections.unsent().map(|call| Effect::Teach { call }));
        effects.extend(reflection_call::effect(state));
        if let Some(turn) = state.running()
            && state.key.is_some()
            && !reflection_call::is_in_the_way(state)
            && !turn.cancelled
            && state.timed_out().is_none()
        {
            let next = || turn.call_at(turn.steps.len());
            let model = |call| Effect::Call { turn: turn.id, call };
            match turn.steps.last() {
                Some(step @ Step { call, end: None, .. }) => {
                    effects.push(match step.waits_for_provider() {
                        Some(ProviderWait { number, until, .. }) => {
                            Effect::Outage { call: *call, number, until }
                        }
                        None => model(*call),
                    });
                }
                _ if turn.limit_reached.is_some() => {
                    let limit = turn.limit_reached.map_or(0, |reached| reached.limit);
                    effects.push(Effect::AskSteps { turn: turn.id, limit });
                }
                Some(step) if step.tools.iter().any(|tool| tool.end.is_none()) => {
                    effects.extend(hooks::effects(state, step));
                    let asked = step.tools.iter().filter(|tool| tool.is_asked_about());
                    effects.extend(asked.map(|tool| Effect::Ask { call: tool.call }));
                    if turn.with_client().is_some() {
                        effects.push(Effect::AskClient { call: step.call });
                    }
                    let open = step.tools.iter();
                    let open = open.filter(|tool| tool.is_open() && !tool.is_of_client());
                    effects.extend(timer(state, turn, step));
                    effects.extend(open.map(|tool| match &tool.asked {
                        Some(BegunToolCall { capability: Some(_), .. }) if tool.overdue => {
                            Effect::Settle { call: tool.call, late: tool.late.is_some() }
                        }
                        Some(BegunToolCall { capability: Some(_), .. }) => {
                            Effect::Publish { call: tool.call }
                        }
                        _ => Effect::Tool { call: tool.call },
                    }));
                }
                Some(_) | None => {
                    let summary = compaction_call::effect(state, turn);
                    effects.push(summary.unwrap_or_else(|| model(next())));
                }
            }
        }
        effects
    }

    fn class(effect: &Effect) -> EffectKind {
        effect.class()
    }

    fn want(
        state: &SessionState,
        effect: &Effect,
        granted: Option<&Grant>,
        made: &mut Option<MadeCall>,
    ) -> Option<Want> {
        let Effect::Call { turn, call } = *effect else {
            let summary = compaction_call::want(state, effect, granted);
            return summary.or_else(|| reflection_call::want(state, effect, granted));
        };
        match granted {
            None => {
                let agent = state.key.as_ref()?.agent.clone();
                let open = state.turn(turn);
                let has_none = |turn: &Turn| {
                    turn.steps.is_empty() && turn.judged.is_none() && turn.compaction.is_none()
                };
                let is_first = |turn: &Turn| call == turn.call_at(0) && has_none(turn);
                let is_new = open.is_some_and(is_first);
                let lane = open.and_then(|turn| turn.lane);
                Some(Want::Place { agent, turn, call, is_new, lane })
            }
            Some(grant) => {
                let open = state.turn(turn)?;
                let left_out = |recalled| left_out(state, open, call, grant, recalled);
                if let Some(ask) = recall_for_turn::ask(state, open, call, grant, left_out) {
                    let (grant, ask) = (Box::new(grant.clone()), Box::new(ask));
                    return Some(Want::Recall { turn, grant, ask });
                }
                let begun = state.turn(turn)?.begun_with(grant);
                let turn = &*begun;
                if let Some(want) = unplaced(state, turn, call, grant) {
                    return Some(want);
                }
                if !reservation_size::may_want(state, turn, call, grant) {
                    return None;
                }
                let (routed, profile) = reservation_size::asked(state, turn, call, grant);
                let next = next_call(state, turn, call, routed, profile);
                // Hooks judge it first.
                let want = if next.waits_for_hooks {
                    None
                } else {
                    reservation_size::want(state, turn, &next, grant)
                };
                *made = Some(MadeCall::of(next, grant));
                want
            }
        }
    }

    fn begin(
        state: &SessionState,
        effect: &Effect,
        grant: &Grant,
        made: Option<MadeCall>,
    ) -> Option<Begun<SessionEvent, EffectJob>> {
        let Effect::Call { turn, call } = *effect else {
            let summary = compaction_call::begin(state, effect, grant);
            return summary.or_else(|| reflection_call::begin(state, effect, grant));
        };
        let begun = state.turn(turn)?.begun_with(grant);
        let turn = &*begun;
        let (routed, profile) = reservation_size::asked(state, turn, call, grant);
        let mut events = opening(state, turn, &profile);
        if let Some(plan) = &turn.plan {
            events.push(plan::begin(turn, plan, call)?);
            return Some((events, None));
        }
        let next = made_or_next(state, turn, call, routed, profile, grant, made);
        if next.waits_for_hooks {
            let by = hooks::of_model(&next.profile);
            let job = judge_model_job(state, turn, call, next.request, by, &grant.permit)?;
            return Some((events, Some(job)));
        }
        let held = match reservation_size::verdict(state, turn, &next, grant) {
            BudgetVerdict::Free => None,
            BudgetVerdict::Held(terms) => Some(reservation_size::held(&terms, grant)),
            BudgetVerdict::Refused(outcome) => {
                events.extend(end(turn, outcome));
                return Some((events, None));
            }
        };
        let NextCall { attempt, routed, profile, request, .. } = next;
        let request = reservation_size::capped(request, held.as_ref().map(|held| held.max_output));
        let paid = held.as_ref().map(|held| reservation_size::bill(held, grant));
        events.extend(held.map(SessionEvent::from));
        events.push(SessionEvent::from(ModelBegun {
            turn: turn.id,
            call,
            attempt,
            request: request.digest(),
            dropped_turns: request.dropped_turns,
            closes_upto: request.closes_upto,
            estimate: Some(request.estimate()),
            route: routed.taken,
        }));
        let (told, trace) = (ToolFrames::before(turn, call), turn.trace.clone());
        let before = turn.steps.iter().take_while(|step| step.call != call);
        let said = before.filter_map(Step::shown).any(|text| text.bytes() > 0);
        let seam = if said { SEAM } else { "" };
        let notice =
            turn.notice(call, &profile.model).or_else(|| compaction_call::notice(turn, call));
        let has_other = turn.has_other(call, &profile);
        let (weight, may_yield) = (grant.options.weight, turn.may_yield(call));
        let corrects = turn.corrects(call);
        let (turn, agent) = (turn.id, profile.agent.clone());
        let job = CallJob {
            limit: state.left_for(call, profile.time, agent.as_str()),
            agent,
            turn,
            call,
            attempt,
            request,
            permit: Arc::clone(&grant.permit),
            seam,
            corrects,
            is_silent: false,
            notice,
            has_other,
            weight,
            may_yield,
            paid,
        };
        Some((events, Some(EffectJob { told, trace, job: SessionJob::Call(job) })))
    }

    fn prepare(state: &SessionState, effect: &Effect, again: bool) -> Option<EffectJob> {
        effect.prepare(state, again)
    }

    fn refuse(state: &SessionState, effect: &Effect, outcome: Outcome) -> Vec<SessionEvent> {
        if let Effect::Compact { .. } = effect {
            return compaction_call::refuse(state, effect, outcome);
        }
        if let Effect::Reflect { .. } = effect {
            return reflection_call::refuse(state, effect, outcome);
        }
        let wanted = Self::decide(state).contains(effect);
        match (state.running(), outcome) {
            (Some(turn), Outcome::Failed { failure, .. }) if wanted => end(turn, failure.into()),
            (Some(turn), Outcome::Refused(outcome)) if wanted => end(turn, outcome),
            _ => Vec::new(),
        }
    }

    fn conclude(state: &SessionState, effect: &Effect, outcome: Outcome) -> Vec<SessionEvent> {
        if let Effect::Reflect { .. } = effect {
            return reflection_call::conclude(state, effect, outcome);
        }
        let Some(turn) = state.running() else { return Vec::new() };
        let call = match *effect {
            Effect::Judge { call, .. } => return hooks::conclude(turn, call, outcome),
            Effect::Compact { .. } => return compaction_call::conclude(turn, outcome),
            Effect::Call { call, .. } | Effect::Tool { call } | Effect::Settle { call, .. } => call,
            Effect::Publish { .. }
            | Effect::Ask { .. }
            | Effect::AskClient { .. }
            | Effect::AskSteps { .. }
            | Effect::Time { .. }
            | Effect::Outage { .. }
            | Effect::Emit { .. }
            | Effect::Rate { .. }
            | Effect::Reflect { .. }
            | Effect::Teach { .. } => return Vec::new(),
        };
        if let Outcome::Tool(end, hooks) = outcome {
            let mut tools = turn.steps.iter().flat_map(|step| &step.tools);
            if !tools.any(|tool| tool.call == call && tool.is_open()) {
                return Vec::new();
            }
            return vec![match end {
                ToolEnd::Known { outcome } => {
                    ToolDone { turn: turn.id, call, outcome: Some(outcome), hooks }.into()
                }
                ToolEnd::Uncertain { detail } => {
                    ToolUncertain { turn: turn.id, call, detail: Some(detail) }.into()
                }
            }];
        }
        if let Outcome::ModelJudged { request, patches, trail } = outcome {
            let is_over = turn.steps.iter().any(|step| step.call == call && step.end.is_some());
            let hooked = ModelHooked { turn: turn.id, call, request, patches, trail };
            return if is_over { Vec::new() } else { vec![hooked.into()] };
        }
        let is_open = |step: &&Step| step.call == call && step.end.is_none();
        let Some(step) = turn.steps.iter().find(is_open) else { return Vec::new() };
        let event = match outcome {
            Outcome::Done { attempt, content, stop, usage, model, tool_uses, blocks } => {
                let tool_uses = tool_uses.into_iter().map(ToolUse::canonical).collect();
                ModelDone { call, attempt, content, stop, usage, model, tool_uses, blocks }.into()
            }
            Outcome::Tool(..)
            | Outcome::ModelJudged { .. }
            | Outcome::ToolJudged { .. }
            | Outcome::ResultJudged { .. }
            | Outcome::Refused(_) => return Vec::new(),
            Outcome::Failed { attempt, failure, partial, usage } => {
                match state.after_failure(turn, step, &failure) {
                    AfterFailure::GivesWay { wait_ms } => {
                        ModelGaveWay { call, attempt, why: failure, usage, wait_ms }.into()
                    }
                    AfterFailure::CallFails => {
                        ModelFailed { call, attempt, failure, partial, usage }.into()
                    }
                }
            }
        };
        vec![event]
    }

    fn view(input: &Input) -> Value {
        recorded::view(input)
    }

    fn blobs_of_input(input: &Input) -> Vec<Digest> {
        recorded::blobs_of_input(input)
    }

    fn blobs_of_event(event: &SessionEvent) -> Vec<Digest> {
        recorded::blobs_of_event(event)
    }

    fn replay(state: &SessionState, event: &SessionEvent) -> Option<Result<(), Violation>> {
        recorded::replay(state, event)
    }
}

/// A long system prompt that the next attempt at a call shows, if it is not known yet where the session has it.
fn unplaced(state: &SessionState, turn: &Turn, call: CallId, grant: &Grant) -> Option<Want> {
    if !grant.has_long_prompt() {
        return None;
    }
    let (_, profile) = reservation_size::asked(state, turn, call, grant);
    let text = grant.unplaced(&profile)?;
    let is_journaled = |before: &Profile| before.system.inline() == text;
    if !turn.steps.is_empty() && state.profile.as_ref().is_some_and(is_journaled) {
        // The store refused it before, or an earlier build wrote it: the turn keeps its configuration.
        return None;
    }
    let text = text.to_owned();
    let known = state.profile.as_ref().and_then(|before| before.system.blob());
    Some(Want::Prompt(Box::new(WantedPrompt { turn: turn.id, grant: grant.clone(), text, known })))
}

/// What precedes a call: a configuration that is new, the skills that its turn begins with, and what it is reminded of.
fn opening(state: &SessionState, turn: &Turn, profile: &Profile) -> Vec<SessionEvent> {
    let is_new = state.profile.as_ref() != Some(profile);
    let configured = is_new.then(|| SessionEvent::from(profile.clone()));
    let known = state.turn(turn.id).map_or(0, |known| known.skills.len());
    let activated = (turn.skills.len() > known).then(|| {
        let skills = turn.skills.clone();
        SkillsActivated { turn: turn.id, skills }.into()
    });
    let knows_recalled = state.turn(turn.id).is_some_and(|known| known.recalled.is_some());
    let recalled = turn.recalled.as_deref().filter(|_| !knows_recalled);
    #[cfg(feature = "test-util")]
    let recalled = recalled.filter(|_| !clawnode_kernel::KernelBug::ShowsUnjournaled.is_in_folds());
    let recalled = recalled.cloned().map(SessionEvent::from);
    configured.into_iter().chain(activated).chain(recalled).collect()
}

/// The timer that ends the running turn or step, while jobs of it may outlast its session's stay in
/// memory, or hang where they run: all else that runs ends by itself.
fn timer(state: &SessionState, turn: &Turn, step: &Step) -> Option<Effect> {
    step.tools.iter().find(|tool| tool.is_open() && tool.late.is_none() && tool.job().is_some())?;
    let (fired, due) = turn.timer(state.profile.as_ref()?.time)?;
    Some(Effect::Time { turn: turn.id, fired, due })
}
