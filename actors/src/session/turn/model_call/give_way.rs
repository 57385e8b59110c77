//! Attempts at a model call that end before their call does: another model is asked, a shorter request is
//! sent, or the turn waits for a provider (`wait_for_provider` says whether and how long). Pure.
//!
//! Invariants
//! - GIVE-1 between two waits for providers, a call gives way at most as often as there are models in its
//!   chain, and three times more; beside that, it gives way to more urgent calls at most 8 times in
//!   all. An attempt that gave way has no outcome, and none begins while its turn waits.

use std::{borrow::Cow, time::Duration};

use clawnode_kernel::Violation;
#[cfg(feature = "test-util")]
use clawnode_proto::llm::Text;
use clawnode_proto::{
    Attempt, CallId, Frame, FrameBody, FrameKey, TimerId, Timestamp,
    frame::Notice,
    llm::{FailureClass, ModelFailure, ModelRef, PromptTooLong, Usage},
    session::{ModelGaveWay, Profile},
};
use serde::{Deserialize, Serialize};

#[cfg(feature = "test-util")]
use super::super::state::StepEnd;
use super::super::{
    context::measured_tokens::Measured,
    context::model_input::assemble,
    state::{SessionState, Step, Turn},
    state_parts::settled_cost::AttemptBill,
    tools::tool_frames::ToolFrames,
};
use super::wait_for_provider::{ProviderWait, WaitsSoFar};

/// How often a call may give way beside once for each model of its chain.
const SPARE: usize = 3;
/// How often a call is ended for a more urgent one. Then it runs to its end: it is paid for again each time, and
/// its turn would never end while more urgent ones keep coming.
const YIELDS_MOST: usize = 8;
/// The place of the notices of a wait among the frames of the attempt before: after all that it said.
const WAIT_INDEX: u32 = 1 << 30;

/// How the attempts at a call gave way so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GaveWay {
    /// Those attempts, in order.
    pub attempts: Vec<EndedAttempt>,
    /// Of these, the first one since the last wait.
    round: usize,
    /// How often the turn has waited for this call.
    waits: u32,
    /// When the first wait began.
    since: Option<Timestamp>,
    /// The wait under way.
    wait: Option<ProviderWait>,
}

/// An attempt that ended, and its call did not.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndedAttempt {
    pub attempt: Attempt,
    /// The model that was asked.
    pub model: ModelRef,
    /// What it used.
    pub usage: Usage,
    /// Why it ended.
    pub why: ModelFailure,
}

/// How much a model really reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealWindow {
    pub model: ModelRef,
    /// Tokens of a request and its reply together.
    pub tokens: u32,
}

/// What follows from an attempt that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) enum AfterFailure {
    /// The call has failed.
    CallFails,
    /// The next attempt follows, after so many milliseconds.
    GivesWay { wait_ms: u32 },
}

/// What people read of a model that did not answer.
const fn trouble(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Unreachable => "cannot be reached",
        FailureClass::Timeout => "is too slow",
        FailureClass::RateLimited => "refuses further calls for now",
        FailureClass::Overloaded => "is overloaded",
        FailureClass::BrokenStream => "broke off its reply",
        _ => "does not answer",
    }
}

// === impl GaveWay ===

impl GaveWay {
    /// How a call gave way, if it did.
    pub(in crate::session::turn) fn of(step: Option<&Step>) -> Cow<'_, Self> {
        let gave_way = step.and_then(|step| step.gave_way.as_deref());
        gave_way.map_or_else(|| Cow::Owned(Self::default()), Cow::Borrowed)
    }

    /// The attempts since the last wait that say something about their models.
    fn round(&self) -> impl Iterator<Item = &EndedAttempt> + Clone {
        let round = self.attempts.get(self.round..).unwrap_or_default();
        round.iter().filter(|attempt| attempt.why.class != FailureClass::Preempted)
    }

    /// How often it was ended for a more urgent call.
    fn yields(&self) -> usize {
        self.attempts.iter().filter(|attempt| attempt.why.class == FailureClass::Preempted).count()
    }

    /// GIVE-1: whether it gives way once more for such a reason, where so many models may answer.
    fn has_room(&self, why: FailureClass, models: usize) -> bool {
        if why == FailureClass::Preempted {
            self.yields() < YIELDS_MOST
        } else {
            self.round().count() < models + SPARE
        }
    }

    /// The model that is to be asked next: the first one that was not asked in vain since the last wait.
    pub(in crate::session::turn) fn next<'a>(
        &self,
        mut chain: impl Iterator<Item = &'a ModelRef>,
    ) -> Option<&'a ModelRef> {
        let in_vain = |model: &ModelRef| {
            self.round().any(|attempt| attempt.model == *model && attempt.why.too_long.is_none())
        };
        chain.find(|model| !in_vain(model))
    }

    /// How long the turn waits now that all of its models have failed, if it does.
    fn wait_ms(&self, last: &ModelFailure, now: Timestamp, most: u32) -> Option<u32> {
        let failures = self.round().map(|attempt| &attempt.why).chain([last]);
        WaitsSoFar { count: self.waits, since: self.since }.wait_ms(failures, now, most)
    }

    /// What all of its attempts used.
    fn usage(&self) -> Usage {
        self.attempts.iter().fold(Usage::default(), |sum, attempt| sum.plus(attempt.usage))
    }
}

// === impl Step ===

impl Step {
    /// Whether this attempt has ended without an outcome.
    pub(crate) fn has_given_way(&self, attempt: Attempt) -> bool {
        let last = self.gave_way.as_ref().and_then(|gave_way| gave_way.attempts.last());
        last.is_some_and(|failed| failed.attempt == attempt)
    }

    /// Whether its last attempt was ended for a more urgent call, and the next one has not begun.
    pub(in crate::session) fn waits_after_yielding(&self) -> bool {
        let last = self.gave_way.as_ref().and_then(|gave_way| gave_way.attempts.last());
        let last = last.filter(|attempt| self.end.is_none() && attempt.attempt == self.attempt);
        last.is_some_and(|attempt| attempt.why.class == FailureClass::Preempted)
    }

    /// How many of its attempts gave way.
    pub(in crate::session) fn given_way(&self) -> u32 {
        let attempts = self.gave_way.as_ref().map_or(0, |gave_way| gave_way.attempts.len());
        u32::try_from(attempts).unwrap_or(u32::MAX)
    }

    /// What those used.
    pub(in crate::session) fn used_in_vain(&self) -> Usage {
        self.gave_way.as_ref().map(|gave_way| gave_way.usage()).unwrap_or_default()
    }

    /// Its turn's wait for a provider.
    pub fn waits_for_provider(&self) -> Option<ProviderWait> {
        self.gave_way.as_ref().filter(|_| self.end.is_none())?.wait
    }

    /// A timer has come; whether it ended the wait for a provider.
    fn goes_on(&mut self, timer: TimerId) -> bool {
        let Some(gave_way) = &mut self.gave_way else { return false };
        let is_over = |wait: &mut ProviderWait| TimerId::of_outage(self.call, wait.number) == timer;
        gave_way.wait.take_if(is_over).is_some()
    }

    /// GIVE-1 for an attempt that begins.
    pub(in crate::session) fn may_go_on(&self) -> Result<(), Violation> {
        match self.waits_for_provider() {
            Some(_) => {
                Err(Violation(format!("`{}` begins while its turn waits (GIVE-1)", self.call)))
            }
            None => Ok(()),
        }
    }

    /// Takes the journal's word that an attempt gave way.
    fn give_way(
        &mut self,
        event: &ModelGaveWay,
        models: usize,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let wrong = |why: &str| {
            Err(Violation(format!("attempt {} at `{}` gave way, {why}", event.attempt, event.call)))
        };
        if self.end.is_some() || self.has_given_way(event.attempt) {
            return wrong("but had ended (I3, SES-1)");
        }
        if self.attempt != event.attempt {
            return wrong(&format!("but attempt {} is under way (SES-1)", self.attempt));
        }
        let Some(model) = self.model.clone() else { return wrong("but asked no model") };
        let gave_way = self.gave_way.get_or_insert_default();
        if !gave_way.has_room(event.why.class, models) {
            return wrong("and has done so too often (GIVE-1)");
        }
        #[cfg(feature = "test-util")]
        if clawnode_kernel::KernelBug::GivesUpAtOnce.is_in_folds()
            || (clawnode_kernel::KernelBug::DropsPreempted.is_in_folds()
                && event.why.class == FailureClass::Preempted)
        {
            let (failure, partial) = (event.why.clone(), Text::from(""));
            self.end = Some(StepEnd::Failed { failure, partial, usage: event.usage });
            return Ok(());
        }
        let (attempt, usage, why) = (event.attempt, event.usage, event.why.clone());
        gave_way.attempts.push(EndedAttempt { attempt, model, usage, why });
        if event.wait_ms > 0 {
            gave_way.round = gave_way.attempts.len();
            gave_way.waits += 1;
            gave_way.since.get_or_insert(now);
            let until = now.plus(Duration::from_millis(u64::from(event.wait_ms)));
            let (number, wait_ms) = (gave_way.waits, event.wait_ms);
            gave_way.wait = Some(ProviderWait { number, wait_ms, until });
        }
        Ok(())
    }
}

// === impl Turn ===

impl Turn {
    /// Whether its next attempt may be ended for a more urgent call.
    pub(in crate::session) fn may_yield(&self, call: CallId) -> bool {
        let step = self.steps.iter().find(|step| step.call == call);
        GaveWay::of(step).yields() < YIELDS_MOST
    }

    /// What clients get before the next attempt: why the last one gave way.
    pub(in crate::session) fn notice(&self, call: CallId, next: &ModelRef) -> Option<Notice> {
        let step = self.steps.iter().find(|step| step.call == call)?;
        let gave_way = step.gave_way.as_ref()?;
        let last = gave_way.attempts.last().filter(|attempt| attempt.attempt == step.attempt)?;
        let EndedAttempt { model, why, .. } = last;
        let (name, message) = match &why.too_long {
            Some(PromptTooLong { window: Some(window), .. }) => {
                ("prompt_too_long", format!("`{model}` reads at most {window} tokens"))
            }
            Some(_) => ("prompt_too_long", format!("the conversation is too long for `{model}`")),
            None if why.class == FailureClass::Preempted => {
                ("preempted", format!("{}; `{next}` is asked again now", why.message))
            }
            None if model == next => ("retrying", format!("`{model}` is asked again")),
            None => {
                let trouble = trouble(why.class);
                ("model_gave_way", format!("`{model}` {trouble}; `{next}` is asked now"))
            }
        };
        Some(Notice { name: name.to_owned(), message })
    }

    /// The wait for a provider of its last call.
    pub fn waits_for_provider(&self) -> Option<(CallId, ProviderWait)> {
        let step = self.steps.last().filter(|_| self.outcome.is_none())?;
        Some((step.call, step.waits_for_provider()?))
    }

    /// The timer of that wait, which may still be set once the turn has ended.
    pub(in crate::session) fn outage_timer(&self) -> Option<TimerId> {
        let step = self.steps.last()?;
        Some(TimerId::of_outage(step.call, step.waits_for_provider()?.number))
    }

    /// A timer has come; whether it ends its wait for a provider.
    pub(in crate::session) fn provider_is_asked_again(&mut self, timer: TimerId) -> bool {
        self.steps.last_mut().is_some_and(|step| step.goes_on(timer))
    }

    /// What clients get when it begins to wait: what was said so far is void, and why it waits.
    pub(in crate::session) fn wait_frames(&self) -> Option<ToolFrames> {
        let step = self.steps.last()?;
        let last = step.gave_way.as_ref()?.attempts.last()?;
        let seconds = step.waits_for_provider()?.wait_ms.div_ceil(1_000);
        let why = &last.why.message;
        let message = format!("{why}; the turn waits, and asks again in {seconds} s");
        let (turn, call, attempt) = (self.id, step.call, last.attempt);
        let notice = Notice { name: "provider_down".to_owned(), message };
        let bodies = [FrameBody::Reset { whole: false }, FrameBody::Notice(notice)];
        let key = |at| FrameKey { turn, call, attempt, index: WAIT_INDEX + at };
        let frames = (0..).zip(bodies).map(|(at, body)| Frame { key: key(at), body }).collect();
        Some(ToolFrames { turn, call, begins: false, frames })
    }
}

// === impl SessionState ===

impl SessionState {
    /// An attempt at a call of the running turn has ended, and the call has not.
    pub(in crate::session) fn gave_way(
        &mut self,
        event: &ModelGaveWay,
        now: Timestamp,
    ) -> Result<(), Violation> {
        let models = self.profile.as_ref().map_or(1, Profile::models);
        let steps = self.open.front_mut().map(|turn| &mut turn.steps);
        let step = steps.into_iter().flatten().find(|step| step.call == event.call);
        let Some(step) = step else {
            return Err(Violation(format!("`{}` was not begun (I3, SES-1)", event.call)));
        };
        step.give_way(event, models, now)?;
        if let Some(held) = step.held.take() {
            let bill = AttemptBill::of(&event.usage, Some(&event.why));
            step.spent = step.spent.plus(held.spent(bill, &event.usage));
        }
        let (estimate, model) = (step.estimate.take(), step.model.clone());
        if let (Some(size), Some(estimate), Some(model)) = (event.why.too_long, estimate, model) {
            self.learn(&model, estimate, size);
        }
        Ok(())
    }

    /// A provider found a request too long that seemed to have so many tokens.
    fn learn(&mut self, model: &ModelRef, estimate: u64, size: PromptTooLong) {
        let known =
            self.profile.as_ref().map_or(u64::MAX, |profile| u64::from(profile.window_tokens));
        let known = self.real_window(model).map_or(known, |real| known.min(real.into()));
        // A provider that says nothing takes less than that.
        let window = size.window.unwrap_or(estimate - estimate / 4).min(known);
        let tokens = u32::try_from(window).unwrap_or(u32::MAX);
        self.windows.retain(|window| window.model != *model);
        self.windows.push(RealWindow { model: model.clone(), tokens });
        // What it does not count has more tokens than it takes, by much if it seemed to fit.
        let more = size.window.map_or(estimate, |window| estimate.max(window + window / 4));
        let measured = Measured::of(model, estimate, size.request.unwrap_or(more));
        self.measured = measured.or_else(|| self.measured.take());
    }

    /// How much a model reads by its provider's word, if it ever found a request too long.
    pub(in crate::session) fn real_window(&self, model: &ModelRef) -> Option<u32> {
        self.windows.iter().find(|window| window.model == *model).map(|window| window.tokens)
    }

    /// What follows from an attempt of the running turn that failed so.
    pub(in crate::session) fn after_failure(
        &self,
        turn: &Turn,
        step: &Step,
        why: &ModelFailure,
    ) -> AfterFailure {
        let (Some(profile), Some(model)) = (&self.profile, &step.model) else {
            return AfterFailure::CallFails;
        };
        if turn.cancelled || self.timed_out().is_some() {
            return AfterFailure::CallFails;
        }
        let gave_way = GaveWay::of(Some(step));
        if !gave_way.has_room(why.class, profile.models()) {
            return AfterFailure::CallFails;
        }
        let at_once = AfterFailure::GivesWay { wait_ms: 0 };
        if why.class == FailureClass::Preempted {
            return at_once;
        }
        if let Some(size) = why.too_long {
            let is_first = gave_way.attempts.iter().all(|attempt| attempt.why.too_long.is_none());
            let helps = is_first && self.is_shorter(profile, turn, step, size);
            return if helps { at_once } else { AfterFailure::CallFails };
        }
        if !why.class.gives_way() {
            return AfterFailure::CallFails;
        }
        let others = profile.chain.iter().filter(|other| *other != model);
        if gave_way.next(others).is_some() {
            return at_once;
        }
        match gave_way.wait_ms(why, turn.clock.seen(), profile.outage_ms) {
            Some(wait_ms) => AfterFailure::GivesWay { wait_ms },
            None => AfterFailure::CallFails,
        }
    }

    /// Whether the next request leaves out more turns, or shows more calls of this one as entries of the ledger, once it
    /// is known that this request is too long.
    fn is_shorter(&self, profile: &Profile, turn: &Turn, step: &Step, size: PromptTooLong) -> bool {
        let Some(estimate) = step.estimate else { return false };
        let mut after = self.clone();
        after.learn(&profile.model, estimate, size);
        let after = assemble(&after, profile, turn);
        after.closes_upto > turn.closes_upto
            || after.dropped_turns > assemble(self, profile, turn).dropped_turns
    }
}

#[cfg(test)]
mod tests {
    use clawnode_kernel::{Entity, EntityKind as _};
    use clawnode_proto::{
        Digest,
        block::{Block, Blocks},
        event::decode_record,
        llm::{Sampling, StopReason, Text},
        session::{ModelBegun, ModelFailed, SessionEvent, SessionInput, TurnOutcome, UserMessage},
    };

    use super::*;
    use crate::{
        agent::Grant,
        llm::{Wire, profile::ProviderPlace},
        session::{
            Effect, Session, SessionJob,
            played::{PlayedActivation, key},
            turn::prepare::{CallJob, TimeJob},
        },
    };

    /// A session whose agent may ask these models besides `sim/model`, and waits so long.
    fn with(fallback: &[&str], outage: Duration) -> PlayedActivation {
        let mut run = PlayedActivation::new(&[], Vec::new());
        chained(&mut run, fallback, outage);
        run
    }

    fn chained(run: &mut PlayedActivation, fallback: &[&str], outage: Duration) {
        let mut options = (*run.grant.options).clone();
        options.fallback = fallback.iter().map(|name| name.parse().unwrap()).collect();
        options.outage = outage;
        run.grant = Grant::free(options);
    }

    const HOUR: Duration = Duration::from_hours(1);

    fn call(run: &PlayedActivation) -> &CallJob {
        match run.started.last() {
            Some((_, SessionJob::Call(job))) => job,
            other => panic!("{other:?}"),
        }
    }

    /// The model that is asked now, and which attempt that is.
    fn asked(run: &PlayedActivation) -> (String, u32) {
        (call(run).request.model.to_string(), call(run).attempt.0)
    }

    fn waits(run: &PlayedActivation) -> (&Effect, &TimeJob) {
        match run.started.last() {
            Some((effect @ Effect::Outage { .. }, SessionJob::Time(job))) => (effect, job),
            other => panic!("{other:?}"),
        }
    }

    /// The wait that is under way is over.
    fn wakes(run: &mut PlayedActivation) {
        let (_, job) = waits(run);
        let (timer, due) = (job.timer, job.due);
        run.now.wall = run.now.wall.max(due);
        run.hears(&timer.to_string(), &SessionInput::TimerFired { timer });
    }

    fn outcome(run: &PlayedActivation) -> TurnOutcome {
        let state = &run.machine.settled().unwrap().state;
        state.closed.last().and_then(|turn| turn.outcome.clone()).unwrap()
    }

    fn kinds(run: &PlayedActivation, kind: &str) -> usize {
        run.appends.concat().iter().filter(|event_kind| **event_kind == kind).count()
    }

    fn used(output_tokens: u64) -> Usage {
        Usage { output_tokens, ..Usage::default() }
    }

    #[test]
    fn the_next_model_of_the_chain_answers_and_keeps_its_turn() {
        let mut run = with(&["b/two", "c/three"], HOUR);
        run.says("hi");
        assert_eq!(asked(&run), ("sim/model".to_owned(), 1));
        assert!(call(&run).has_other && call(&run).notice.is_none());
        run.fails_as(ModelFailure::new(FailureClass::Overloaded, "busy"), used(5));
        assert_eq!(asked(&run), ("b/two".to_owned(), 2));
        assert_eq!(
            call(&run).notice.as_ref().unwrap().message,
            "`sim/model` is overloaded; `b/two` is asked now"
        );
        run.fails(FailureClass::BrokenStream);
        assert_eq!(asked(&run), ("c/three".to_owned(), 3));
        assert!(!call(&run).has_other);
        run.replies_for(used(7), &[("look", r#"{"at":1}"#)]);
        let Some((key, SessionJob::Tool(_))) = run.started.pop() else { panic!("no tool") };
        let end = clawnode_proto::session::ToolEnd::Known {
            outcome: clawnode_proto::tool::ToolOutcome::done("seen"),
        };
        let outcome =
            crate::session::Outcome::Tool(end, clawnode_proto::hook::HookTrail::default());
        run.feed(clawnode_kernel::MachineInput::Ended(key, outcome));
        assert_eq!(
            asked(&run),
            ("c/three".to_owned(), 1),
            "the turn keeps the model that answered"
        );
        run.replies(&[]);
        let state = &run.machine.settled().unwrap().state;
        assert_eq!(state.usage.output_tokens, 12, "what was in vain is used too");
        assert_eq!(state.closed[0].lost_attempts, 0, "the end of all of them is known");
        let Some((_, SessionJob::Emit(job))) = run.started.last() else { panic!("not told") };
        let told: Vec<(u32, String)> =
            job.calls.iter().map(|call| (call.attempt.0, call.model.to_string())).collect();
        let call_of = |attempt, model: &str| (attempt, model.to_owned());
        assert_eq!(
            told[..3],
            [call_of(1, "sim/model"), call_of(2, "b/two"), call_of(3, "c/three")]
        );
        run.says("again");
        assert_eq!(asked(&run), ("sim/model".to_owned(), 1), "the next turn begins with the first");
    }

    /// GIVE-1 for calls that are ended for more urgent ones: the same model is asked, no bound of other reasons is
    /// used up, and after some times it is not ended again.
    #[test]
    fn give_1_a_call_that_was_ended_for_another_is_made_again_with_its_model() {
        let mut run = with(&["b/two"], HOUR);
        run.says("hi");
        run.fails(FailureClass::Overloaded);
        for attempt in 2..10 {
            assert_eq!(asked(&run), ("b/two".to_owned(), attempt));
            assert!(call(&run).may_yield);
            run.fails_as(ModelFailure::new(FailureClass::Preempted, "Preempted"), used(1));
            let notice = call(&run).notice.as_ref().unwrap();
            assert_eq!(notice.message, "Preempted; `b/two` is asked again now");
        }
        assert!(!call(&run).may_yield, "it has given way often enough");
        assert_eq!(asked(&run), ("b/two".to_owned(), 10));
        // What other attempts in vain lead to is as if it had not been ended.
        run.fails(FailureClass::BrokenStream);
        assert_eq!(waits(&run).1.due, Timestamp(10_001));
        wakes(&mut run);
        run.replies(&[]);
        assert!(matches!(outcome(&run), TurnOutcome::Completed { .. }));
        assert_eq!(run.machine.settled().unwrap().state.usage.output_tokens, 8);
    }

    /// TIME-1: what a call waits to be made again is no time of its turn.
    #[test]
    fn time_1_the_wait_after_it_was_ended_for_another_is_no_time_of_the_turn() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        let mut options = (*run.grant.options).clone();
        options.time.global_ms = 60_000;
        run.grant = Grant::free(options);
        run.says("hi");
        run.defers();
        run.fails(FailureClass::Preempted);
        run.now.wall = run.now.wall.plus(Duration::from_mins(10));
        run.grants();
        assert_eq!(asked(&run).1, 2);
        run.replies(&[]);
        assert!(matches!(outcome(&run), TurnOutcome::Completed { .. }));
    }

    #[test]
    fn what_is_wrong_with_the_request_or_the_key_ends_the_turn() {
        for class in [FailureClass::Rejected, FailureClass::Unauthorized, FailureClass::Lost] {
            let mut run = with(&["b/two"], HOUR);
            run.says("hi");
            run.fails(class);
            assert!(
                matches!(outcome(&run), TurnOutcome::Failed { failure } if failure.class == class)
            );
            assert_eq!(kinds(&run, "model_gave_way"), 0);
        }
    }

    /// A model that does not take a setting of the message is as if it were not there.
    #[test]
    fn a_model_that_does_not_take_a_setting_of_the_turn_is_not_asked_in_it() {
        let with_wires = |fallback: &[&str]| {
            let mut run = with(fallback, HOUR);
            let wires = [("sim", Wire::Openai), ("b", Wire::Anthropic), ("c", Wire::Gemini)];
            let place =
                |(name, wire): (&str, Wire)| (name.to_owned(), ProviderPlace::new(wire, None));
            let mut options = (*run.grant.options).clone();
            options.profiles = options.profiles.with_providers(wires.map(place).into());
            run.grant = Grant::free(options);
            run
        };
        let seeded = || {
            let sampling = Sampling { seed: Some(7), ..Sampling::default() };
            SessionInput::UserMessage(UserMessage { sampling, ..UserMessage::text("seeded") })
        };
        let mut run = with_wires(&["b/two", "c/three"]);
        run.hears("seeded", &seeded());
        assert_eq!(asked(&run), ("sim/model".to_owned(), 1));
        run.fails(FailureClass::Overloaded);
        assert_eq!(asked(&run), ("c/three".to_owned(), 2), "Anthropic's API has no seed");
        assert!(!call(&run).has_other);
        run.replies(&[]);
        run.says("without a seed");
        run.fails(FailureClass::Overloaded);
        assert_eq!(asked(&run), ("b/two".to_owned(), 2), "the next turn may ask it");
        run.replies(&[]);
        assert_eq!(replayed(&run), 4);
        // No other model takes it: the turn waits for the first one, wherever it is.
        let mut run = with_wires(&["b/two"]);
        run.hears("seeded", &seeded());
        assert!(!call(&run).has_other);
        run.fails(FailureClass::Overloaded);
        assert_eq!(waits(&run).1.due, Timestamp(10_001));
        let grant = run.grant.clone();
        let mut run = PlayedActivation::new(&[], run.journal.clone());
        run.grant = grant;
        wakes(&mut run);
        assert_eq!(asked(&run), ("sim/model".to_owned(), 2));
        run.replies(&[]);
        assert!(matches!(outcome(&run), TurnOutcome::Completed { .. }));
        assert_eq!(replayed(&run), 2);
    }

    #[test]
    fn without_another_model_and_without_a_wait_a_failure_ends_the_turn_as_before() {
        for (class, outage) in [
            (FailureClass::Unreachable, Duration::ZERO),
            // It may have been paid for, and would be again.
            (FailureClass::Timeout, HOUR),
            (FailureClass::BrokenStream, HOUR),
        ] {
            let mut run = with(&[], outage);
            run.says("hi");
            run.fails(class);
            assert!(matches!(outcome(&run), TurnOutcome::Failed { .. }), "{class:?}");
            let events = run.appends.concat();
            assert!(events.ends_with(&["model_failed", "turn_done", "settled"]), "{events:?}");
        }
    }

    /// The wait outlives its process, and ends by itself.
    #[test]
    fn a_turn_waits_for_its_providers_and_goes_on_wherever_it_is() {
        let mut run = with(&["b/two"], HOUR);
        run.says("hi");
        run.fails(FailureClass::Unreachable);
        run.fails(FailureClass::Timeout);
        let (_, job) = waits(&run);
        assert_eq!(job.due, Timestamp(10_001));
        let told: Vec<_> = run.told.iter().map(|frame| &frame.body).collect();
        let [FrameBody::Reset { whole: false }, FrameBody::Notice(notice)] = told[..] else {
            panic!("{told:?}")
        };
        assert_eq!(notice.name, "provider_down");
        let first = run.told.clone();
        // Another owner sets the timer again, and tells the same.
        let mut run = PlayedActivation::new(&[], run.journal.clone());
        chained(&mut run, &["b/two"], HOUR);
        assert_eq!((waits(&run).1.due, &run.told), (Timestamp(10_001), &first));
        assert_eq!(run.machine.settled().unwrap().state.running().unwrap().lost(), 0);
        wakes(&mut run);
        assert_eq!(asked(&run), ("sim/model".to_owned(), 3));
        run.fails(FailureClass::RateLimited);
        assert_eq!(asked(&run), ("b/two".to_owned(), 4));
        run.replies(&[]);
        assert!(matches!(outcome(&run), TurnOutcome::Completed { stop: StopReason::EndTurn }));
        assert_eq!(replayed(&run), 4);
    }

    #[test]
    fn an_outage_that_is_too_long_ends_the_turn() {
        let mut run = with(&[], HOUR);
        run.says("hi");
        let mut due = Vec::new();
        for _ in 0..40 {
            run.fails(FailureClass::Unreachable);
            if run.machine.settled().unwrap().state.running().is_none() {
                break;
            }
            due.push(waits(&run).1.due.0 / 1_000);
            wakes(&mut run);
        }
        assert_eq!(due[..6], [10, 30, 70, 150, 310, 610]);
        assert_eq!(due.last(), Some(&3_600), "an hour, and not longer");
        assert!(matches!(outcome(&run), TurnOutcome::Failed { failure }
            if failure.class == FailureClass::Unreachable));
        assert_eq!(kinds(&run, "model_failed"), 1, "the call has one outcome");
        assert_eq!(replayed(&run), due.len() + 1);
    }

    #[test]
    fn what_providers_ask_for_is_waited_for_unless_it_is_too_long() {
        let asks = |seconds: u64| ModelFailure {
            retry_after_ms: Some(seconds * 1_000),
            ..ModelFailure::new(FailureClass::RateLimited, "slow down")
        };
        let mut run = with(&["b/two"], HOUR);
        run.says("hi");
        run.fails_as(asks(1_800), Usage::default());
        run.fails_as(asks(90), Usage::default());
        assert_eq!(waits(&run).1.due, Timestamp(90_001), "the first that is there again");
        let mut run = with(&[], HOUR);
        run.says("hi");
        run.fails_as(asks(86_400), Usage::default());
        assert!(matches!(outcome(&run), TurnOutcome::Failed { .. }), "no turn waits in vain");
    }

    #[test]
    fn a_turn_that_waits_is_cancelled_at_once() {
        let mut run = with(&[], HOUR);
        run.says("hi");
        run.fails(FailureClass::Overloaded);
        let timer = waits(&run).1.timer;
        let turn = run.machine.settled().unwrap().state.running().unwrap().id;
        run.hears("cancel", &SessionInput::Cancel { turn });
        assert_eq!(outcome(&run), TurnOutcome::Cancelled);
        let Some((_, SessionJob::Emit(job))) = run.started.last() else { panic!("not told") };
        assert_eq!(job.timers, [timer], "its timer is taken back");
    }

    /// The time of a turn stops while no provider is there.
    #[test]
    fn time_1_a_wait_for_providers_is_no_time_of_the_turn() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        let mut options = (*run.grant.options).clone();
        options.time.global_ms = 60_000;
        run.grant = Grant::free(options);
        run.says("hi");
        for _ in 0..4 {
            run.fails(FailureClass::Overloaded);
            wakes(&mut run);
        }
        assert!(run.now.wall.0 > 60_000);
        run.replies(&[]);
        assert!(matches!(outcome(&run), TurnOutcome::Completed { .. }));
    }

    /// A call that fails once its turn's time is over ends the turn by its time: no other model is asked for want of
    /// it, and that is what people have to read.
    #[test]
    fn time_1_a_call_that_fails_when_the_time_is_over_ends_its_turn_by_time() {
        for class in [FailureClass::Unreachable, FailureClass::Timeout, FailureClass::Preempted] {
            let mut run = PlayedActivation::new(&[], Vec::new());
            let mut options = (*run.grant.options).clone();
            options.fallback = vec!["b/two".parse().unwrap(), "c/three".parse().unwrap()];
            options.time.global_ms = 60_000;
            run.grant = Grant::free(options);
            run.says("hi");
            run.defers();
            run.fails(FailureClass::Overloaded);
            run.now.wall = run.now.wall.plus(Duration::from_mins(10));
            run.grants();
            assert_eq!(asked(&run), ("b/two".to_owned(), 2));
            run.fails(class);
            let outcome = outcome(&run);
            assert!(matches!(outcome, TurnOutcome::TimedOut { .. }), "{class:?}: {outcome:?}");
        }
    }

    /// LLM-3 for a model that answers instead.
    #[test]
    fn llm_3_a_fallback_is_not_shown_what_the_other_model_thought() {
        let mut run = with(&["b/two"], HOUR);
        run.says("hi");
        let model: ModelRef = "sim/model".parse().unwrap();
        let thought = Block::Thinking { text: "hm".into(), signature: Some("s".into()) };
        let list = vec![thought, Block::Text { bytes: 2 }, Block::ToolUse {}];
        let blocks = Some(Blocks { model, list });
        // No tool takes that, so the model is asked again.
        run.replies_with(Usage::default(), &[("look", "{}")], blocks);
        assert!(call(&run).request.messages.iter().any(|message| message.blocks.is_some()));
        run.fails(FailureClass::Overloaded);
        assert_eq!(asked(&run), ("b/two".to_owned(), 2));
        assert!(
            call(&run).request.messages.iter().all(|message| message.blocks.is_none()),
            "LLM-3"
        );
        assert!(call(&run).request.withheld_thoughts, "people can read it");
        run.replies(&[]);
        assert_eq!(replayed(&run), 3);
    }

    /// A session with some turns, in a window that seems large enough.
    fn with_turns(count: usize) -> PlayedActivation {
        let mut run = with(&[], HOUR);
        for turn in 0..count {
            let message = UserMessage::text("x".repeat(3_000));
            run.hears(&format!("m{turn}"), &SessionInput::UserMessage(message));
            run.replies(&[]);
        }
        run.says("now");
        run
    }

    fn too_long(window: Option<u64>, request: Option<u64>) -> ModelFailure {
        let too_long = Some(PromptTooLong { window, request });
        ModelFailure { too_long, ..ModelFailure::new(FailureClass::Rejected, "too long") }
    }

    #[test]
    fn a_request_that_is_too_long_is_sent_again_without_the_oldest_turns() {
        for size in [(Some(6_000), Some(9_000)), (Some(6_000), None), (None, None)] {
            let mut run = with_turns(8);
            assert_eq!(call(&run).request.dropped_turns, 0);
            run.fails_as(too_long(size.0, size.1), Usage::default());
            let (dropped, kept) = (call(&run).request.dropped_turns, call(&run).request.estimate());
            assert!(dropped > 0 && dropped < 8, "{size:?}: {dropped}");
            assert!(kept < 6_000, "{size:?}: {kept}");
            assert_eq!(call(&run).notice.as_ref().unwrap().name, "prompt_too_long");
            run.replies(&[]);
            // It stays in mind.
            run.says("next");
            assert!(call(&run).request.dropped_turns >= dropped, "{size:?}");
            run.replies(&[]);
            assert_eq!(replayed(&run), 11);
        }
    }

    #[test]
    fn a_request_that_gets_no_shorter_is_not_sent_again() {
        let mut run = with(&["b/two"], HOUR);
        run.says("all alone");
        run.fails_as(too_long(Some(100), Some(200)), Usage::default());
        assert!(matches!(outcome(&run), TurnOutcome::Failed { .. }), "nothing can go");
        let mut run = with_turns(8);
        run.fails_as(too_long(Some(6_000), Some(9_000)), Usage::default());
        run.fails_as(too_long(Some(3_000), Some(5_000)), Usage::default());
        assert!(matches!(outcome(&run), TurnOutcome::Failed { .. }), "once a call");
    }

    /// Compares what models were shown with what the journal gives; how many calls there were.
    fn replayed(run: &PlayedActivation) -> usize {
        let mut entity = Entity::<Session>::unborn(key().entity());
        let mut calls = 0;
        for sealed in run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap()) {
            let event = sealed.event::<SessionEvent>().unwrap();
            if let Some(found) = event.and_then(|event| Session::replay(&entity.state, &event)) {
                found.unwrap();
                calls += 1;
            }
            entity.apply(&sealed).unwrap();
        }
        calls
    }

    /// What no owner writes is refused.
    #[test]
    fn give_1_an_attempt_gives_way_once_and_a_call_only_so_often() {
        let mut run = with(&[], HOUR);
        run.says("hi");
        let mut state = run.machine.settled().unwrap().state.clone();
        let record = run.journal.last().unwrap();
        let head = decode_record(&record.bytes).unwrap().pop().unwrap().head;
        let (turn, call) = (state.open[0].id, state.open[0].steps[0].call);
        let why = ModelFailure::new(FailureClass::Overloaded, "busy");
        let gave_way = |attempt, wait_ms| {
            let (attempt, usage, why) = (Attempt(attempt), Usage::default(), why.clone());
            SessionEvent::from(ModelGaveWay { call, attempt, why, usage, wait_ms })
        };
        let begun = |attempt| {
            let (attempt, request) = (Attempt(attempt), Digest::ZERO);
            let (dropped_turns, estimate) = (0, None);
            SessionEvent::from(ModelBegun {
                turn,
                call,
                attempt,
                request,
                dropped_turns,
                closes_upto: None,
                estimate,
                route: None,
            })
        };
        let failed = SessionEvent::from(ModelFailed {
            call,
            attempt: Attempt(1),
            failure: why.clone(),
            partial: Text::from(""),
            usage: Usage::default(),
        });
        assert!(state.clone().fold(&head, &gave_way(2, 0)).is_err(), "it was not begun");
        state.fold(&head, &gave_way(1, 0)).unwrap();
        assert!(state.clone().fold(&head, &gave_way(1, 0)).is_err(), "twice");
        assert!(state.clone().fold(&head, &failed).is_err(), "it has no outcome");
        for attempt in 2..=4 {
            state.fold(&head, &begun(attempt)).unwrap();
            state.fold(&head, &gave_way(attempt, 0)).unwrap();
        }
        state.fold(&head, &begun(5)).unwrap();
        assert!(state.clone().fold(&head, &gave_way(5, 0)).is_err(), "GIVE-1");
        let profile =
            Profile { chain: vec!["a/a".parse().unwrap(); 2], ..(*run.grant.profile).clone() };
        state.profile = Some(profile);
        state.fold(&head, &gave_way(5, 10)).unwrap();
        assert!(state.clone().fold(&head, &begun(6)).is_err(), "its turn waits");
        assert!(state.open[0].provider_is_asked_again(TimerId::of_outage(call, 1)));
        state.fold(&head, &begun(6)).unwrap();
        state.fold(&head, &gave_way(6, 0)).unwrap();
        assert!(!state.open[0].provider_is_asked_again(TimerId::of_outage(call, 1)));
    }
}
