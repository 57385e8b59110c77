//! What a session's effects do: a modelled provider, and the end of a turn told to the world.

use std::time::Duration;

use clawnode_actors::{
    agent::{AgentOptions, Grant},
    session::{Effect, Outcome, Session, SessionJob, turn::prepare::CallJob},
};
use clawnode_kernel::{KernelBug, MachineInput};
use clawnode_proto::{
    Attempt, CallId, EntityId, Incarnation, ProcessId,
    context::{ContextMode, ContextRules, ContextSettings},
    job::Job,
    llm::{FailureClass, ModelFailure, StopReason, Text, Usage},
    timeout::{TimeLevel, TimeLimit, TurnTime},
};
use rand::Rng;

use super::{
    JudgeViolation, Sim,
    any_machine::ActivationPlace,
    book::Checked,
    budgets::priced,
    judge::ShownCall,
    known::TURN_TIME,
    models::ModelPlan,
    places::WantedPlace,
    plan::{Poison, SeedPlan},
    process::PlannedNote,
    recall::stores::agent_memory,
    schemas,
    settle::PostTurnWork,
    summaries,
    thoughts::thoughts,
    tools::specs,
};

/// The cap on output of calls that reserve: what is left of an account is enough for several.
const OUTPUT_MOST: u32 = 1_000;

/// The time of a step, where sessions are patient.
const STEP_LONG: u32 = 70_000;

impl Sim {
    /// The agent's answer: at once, or later.
    pub(super) fn acquire(&mut self, at: ActivationPlace, key: Effect, wants: &WantedPlace) {
        let ActivationPlace { process: to, entity, counter } = at;
        let turn = wants.turn;
        let since_start = self.world.now().0.saturating_sub(self.started);
        let Some(grant) = grant(&self.plan, since_start) else { return };
        let grant = Grant { accounts: self.accounts_view(), process: to, ..grant };
        if self.world.chance(0.02) {
            // Its agent is not configured any more.
            if !key.is_beside() {
                self.judge.refused(entity, turn);
            }
            let (attempt, partial, usage) = (Attempt(0), Text::from(""), Usage::default());
            let failure = failure(FailureClass::NoAgent, "no agent");
            let outcome = Outcome::Failed { attempt, failure, partial, usage };
            let after = self.world.rng.random_range(10..3_000);
            self.world.mail(
                to,
                entity.as_u128(),
                PlannedNote::Feed(entity, counter, MachineInput::Deferred(key)),
            );
            self.world.later(
                to,
                after,
                PlannedNote::Feed(entity, counter, MachineInput::Refused(key, outcome)),
            );
            return;
        }
        if !self.may_have_place(at, key, wants) {
            return;
        }
        if self.lanes.is_on {
            return self.needs_place(at, key, wants, grant);
        }
        let granted = PlannedNote::Feed(entity, counter, MachineInput::Granted(key, grant));
        if self.world.chance(0.1) {
            let after = self.world.rng.random_range(10..3_000);
            self.world.mail(
                to,
                entity.as_u128(),
                PlannedNote::Feed(entity, counter, MachineInput::Deferred(key)),
            );
            self.world.later(to, after, granted);
        } else {
            self.world.mail(to, entity.as_u128(), granted);
        }
    }

    pub(super) fn start(
        &mut self,
        at: ActivationPlace,
        key: Effect,
        job: &SessionJob,
    ) -> Result<(), JudgeViolation> {
        let ActivationPlace { process: to, entity, counter } = at;
        let process = self.processes.get_mut(&to);
        let fenced = process
            .and_then(|process| process.actor(entity, counter))
            .is_some_and(|actor| actor.fenced);
        if fenced {
            let text = format!("`{key:?}` of `{entity}` starts, and another process has it by now");
            return Err(JudgeViolation::new("F1", text));
        }
        match job {
            SessionJob::Call(job) => return self.start_call(at, key, job),
            SessionJob::Judge(job) => self.judged(at, key, job),
            SessionJob::Tool(job) => {
                self.is_as_judged(at, job.call, &job.arguments)?;
                self.judge.is_filled(entity, job.call, &job.arguments)?;
                self.judge.runs_here(job.call)?;
                self.tool_starts(to, entity, counter, job.call)?;
                self.judge.runs(job.call, &job.tool, || job.would.digest().ok())?;
            }
            SessionJob::Publish(job) => {
                let Job { call, arguments, .. } = &job.job;
                self.is_as_judged(at, *call, arguments)?;
                self.judge.is_filled(entity, *call, arguments)?;
                self.judge.runs_here(*call)?;
                self.publish(at, key, job)?;
            }
            SessionJob::Ask(job) => {
                self.judge.is_asked_about(entity, &job.approval.action)?;
                self.asked(at, key, job)?;
            }
            SessionJob::AskClient(job) => {
                self.asked_client(at, key, job);
            }
            SessionJob::AskSteps(job) => self.asked_for_steps(at, key, job),
            SessionJob::Time(job) => self.timed(at, key, job),
            SessionJob::Settle(job) => {
                self.runs(to, entity, counter, key, None);
                self.settles(at, key, job.clone())?;
            }
            SessionJob::Emit(job) => {
                let turn = job.done.turn;
                self.ledger.emitting(entity, turn, &job.outcome)?;
                self.judge.ends(entity, turn, &job.outcome)?;
                self.circuits.ends(turn, &job.outcome)?;
                self.reads_end(entity, turn);
                let (jobs, for_memories) = (job.jobs.clone(), self.lessons(at, job));
                self.follows_turn(PostTurnWork { at, effect: key, jobs, for_memories });
            }
            SessionJob::Rate(ratings) => self.rates(at, key, ratings)?,
            SessionJob::Teach(job) => self.sends_lessons(at, key, job)?,
        }
        Ok(())
    }

    fn start_call(
        &mut self,
        at: ActivationPlace,
        key: Effect,
        job: &CallJob,
    ) -> Result<(), JudgeViolation> {
        let ActivationPlace { process: to, entity, counter } = at;
        let (call, attempt) = (job.call, job.attempt);
        self.remark(to, || format!("calls {call} attempt {attempt}"));
        let by = Incarnation { process: to, counter };
        if self.processes.get(&to).is_some_and(|process| process.gave_up) {
            let text = format!("`{call}` is made after all calls were given up");
            return Err(JudgeViolation::new("G1", text));
        }
        if !self.may_be_sent(at, key, job)? {
            return Ok(());
        }
        self.session_call_starts(at, key, job)?;
        self.ledger.calling(entity, by, call, attempt)?;
        if job.is_silent {
            if let Effect::Reflect { .. } = key {
                self.silent_starts(at, job)?;
            }
            self.summary_starts(at, key, attempt, job);
            return Ok(());
        }
        self.is_alone(at, call)?;
        self.shows_stored_summary(entity, job)?;
        self.shows_recalled(at, job)?;
        self.ledger.shows(entity, by, call, job.request.digest())?;
        let (messages, cut) = (&job.request.messages[..], job.request.dropped_turns > 0);
        let model = &job.request.model;
        self.ledger.thinks(entity, job)?;
        self.asked.insert((call, attempt), model.clone());
        let schema = job.request.response_schema.as_ref();
        if schema.is_some() {
            self.structured.insert(call);
        }
        let shown = ShownCall { turn: job.turn, call, messages, schema, cut };
        self.judge.calls(entity, by, &shown)?;
        self.last_call.insert(entity, (call, attempt));
        self.runs(to, entity, counter, key, Some(attempt));
        if self.lanes.is_on {
            self.holds_place(at, key, job);
        }
        if let Some(failure) = self.refused_by_circuit(at, key, job)? {
            let (partial, usage) = (Text::from(""), Usage::default());
            let outcome = Outcome::Failed { attempt, failure, partial, usage };
            self.world.later(to, 1, Self::breaks_off(at, key, outcome));
            return Ok(());
        }
        if self.plan.poison == Some(Poison::Calls) && self.poisoned == Some(entity) {
            self.actor_dies(to, entity);
            return Ok(());
        }
        let after = self.world.rng.random_range(10..self.plan.call_most);
        match job.limit.as_ref().filter(|limit| u64::from(limit.left_ms) <= after) {
            Some(limit) => self.too_long(at, key, attempt, limit),
            None => {
                self.world.later(to, after, PlannedNote::CallEnds(entity, counter, call, attempt));
            }
        }
        Ok(())
    }

    /// A call that takes longer than its turn or step may: its time ends it.
    fn too_long(&mut self, at: ActivationPlace, key: Effect, attempt: Attempt, limit: &TimeLimit) {
        let class = match limit.level {
            TimeLevel::Global => FailureClass::GlobalTime,
            TimeLevel::Command | TimeLevel::Provider | TimeLevel::Step => FailureClass::StepTime,
        };
        let failure = failure(class, "out of time");
        let (partial, usage) = (Text::from("so far"), Usage::default());
        let outcome = Outcome::Failed { attempt, failure, partial, usage };
        let after = u64::from(limit.left_ms).max(1);
        let note = if self.lanes.is_on {
            // It may have ended for another call before that.
            let ends = move |sim: &mut Self| sim.ends_if_it_runs(at, key, attempt, outcome);
            PlannedNote::own("the time of a call is over".to_owned(), ends)
        } else {
            Self::breaks_off(at, key, outcome)
        };
        self.world.later(at.process, after, note);
    }

    /// A call is broken off: nothing says what it has used.
    fn breaks_off(at: ActivationPlace, key: Effect, outcome: Outcome) -> PlannedNote {
        PlannedNote::own(format!("{key:?} of {} is broken off", at.entity), move |sim| {
            let outcome = sim.billed(at, key, outcome)?;
            sim.feed_as::<Session>(at, MachineInput::Ended(key, outcome))
        })
    }

    /// The outcome of a call that failed, with what it used if it had reserved something.
    pub(super) fn billed(
        &mut self,
        at: ActivationPlace,
        key: Effect,
        mut outcome: Outcome,
    ) -> Result<Outcome, JudgeViolation> {
        if let Outcome::Failed { failure, usage, .. } = &mut outcome
            && let Some(used) = self.session_call_ends(at, key, Some(failure))?
        {
            *usage = used;
        }
        Ok(outcome)
    }

    pub(super) fn runs(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        counter: u64,
        key: Effect,
        attempt: Option<Attempt>,
    ) {
        let process = self.processes.get_mut(&to);
        if let Some(actor) = process.and_then(|process| process.actor(entity, counter)) {
            actor.running.insert(key, attempt);
        }
    }

    pub(super) fn abort(&mut self, to: ProcessId, entity: EntityId, counter: u64, key: Effect) {
        let process = self.processes.get_mut(&to);
        let Some(actor) = process.and_then(|process| process.actor(entity, counter)) else {
            return;
        };
        let note = match actor.running.remove(&key) {
            Some(Some(attempt)) => {
                let failure = failure(FailureClass::Cancelled, "cancelled");
                let partial = Text::from("half a");
                let usage = Usage::default();
                let outcome = Outcome::Failed { attempt, failure, partial, usage };
                Self::breaks_off(ActivationPlace { process: to, entity, counter }, key, outcome)
            }
            Some(None) | None => PlannedNote::Feed(entity, counter, MachineInput::Gone(key)),
        };
        let after = self.world.rng.random_range(1..50);
        self.world.later(to, after, note);
    }

    pub(super) fn call_ends(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        counter: u64,
        call: CallId,
        attempt: Attempt,
    ) -> Result<(), JudgeViolation> {
        let fails = self.world.chance(self.plan.call_fails);
        let tool_uses = self.tool_uses();
        let Some(process) = self.processes.get_mut(&to) else { return Ok(()) };
        let Some(actor) = process.actor(entity, counter) else { return Ok(()) };
        let ends = |effect: &Effect| match effect {
            Effect::Call { call: other, .. }
            | Effect::Compact { call: other, .. }
            | Effect::Reflect { call: other, .. } => *other == call,
            _ => false,
        };
        let mut running = actor.running.iter().filter(|(_, tries)| **tries == Some(attempt));
        let Some(key) = running.find_map(|(effect, _)| ends(effect).then_some(*effect)) else {
            return Ok(());
        };
        let at = ActivationPlace { process: to, entity, counter };
        self.silent_ends(at, key)?;
        let asked = self.asked.get(&(call, attempt)).cloned();
        let since_start = self.world.now().0.saturating_sub(self.started);
        let is_down =
            asked.as_ref().is_some_and(|asked| self.plan.models.is_down(asked, since_start));
        let failure = match (fails, is_down) {
            (_, true) => Some(self.plan.models.down()),
            (true, false) => Some(ModelPlan::failure(call, attempt)),
            (false, false) => None,
        };
        self.circuit_learns(to, call, attempt, failure.as_ref());
        let usage = self.session_call_ends(at, key, failure.as_ref())?;
        let usage =
            usage.unwrap_or(Usage { input_tokens: 7, output_tokens: 3, ..Usage::default() });
        let outcome = if let Some(failure) = failure {
            Outcome::Failed { attempt, failure, partial: Text::from("ha"), usage }
        } else if matches!(key, Effect::Compact { .. }) {
            self.summary(call, attempt, usage)
        } else if matches!(key, Effect::Reflect { .. }) {
            self.silent_reply(call, attempt, usage)
        } else {
            let content = if self.structured.contains(&call) && tool_uses.is_empty() {
                Text::from(schemas::reply(call, attempt))
            } else {
                Text::from(format!("answer {}", attempt.0))
            };
            let (bytes, uses) = (content.bytes(), tool_uses.len());
            let blocks = asked.and_then(|asked| thoughts(call, attempt, asked, bytes, uses));
            let model = "sim".to_owned();
            let stop = if tool_uses.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
            Outcome::Done { attempt, content, stop, usage, model, tool_uses, blocks }
        };
        self.feed(to, entity, counter, MachineInput::Ended(key, outcome))
    }

    /// A post-turn effect begins; some have to be tried again.
    pub(super) fn follows_turn(&mut self, work: PostTurnWork) {
        let ActivationPlace { process: to, entity, counter } = work.at;
        self.runs(to, entity, counter, work.effect, None);
        let after = if self.world.chance(self.plan.emit_fails) {
            self.world.rng.random_range(100..6_000)
        } else {
            self.world.rng.random_range(1..20)
        };
        self.world.later(to, after, PlannedNote::Closes(Box::new(work)));
    }

    /// All of a post-turn effect has happened.
    pub(super) fn post_turn_ends(&mut self, at: ActivationPlace, effect: Effect) -> Checked {
        let process = self.processes.get_mut(&at.process);
        if process.and_then(|process| process.actor(at.entity, at.counter)).is_none() {
            return Ok(());
        }
        match effect {
            Effect::Emit { turn } => {
                self.ledger.emitted(at.entity, turn);
                self.judge.told(self.world.now().0, turn);
            }
            Effect::Rate { feedback } => self.ledger.sent(at.entity, feedback),
            Effect::Teach { call } => self.ledger.taught(at.entity, call),
            _ => {}
        }
        self.feed_as::<Session>(at, MachineInput::Confirmed(effect))
    }

    /// A planted bug: what ran for the entity before is made again, whatever the journal says.
    pub(super) fn recall_if_planted(
        &mut self,
        to: ProcessId,
        entity: EntityId,
        counter: u64,
    ) -> Result<(), JudgeViolation> {
        if self.planted != KernelBug::RecallAfterOutcome {
            return Ok(());
        }
        let Some((call, attempt)) = self.last_call.get(&entity).copied() else { return Ok(()) };
        self.ledger.calling(entity, Incarnation { process: to, counter }, call, attempt)
    }
}

/// What an agent's calls are granted at this time, in milliseconds since the beginning.
pub(super) fn grant(plan: &SeedPlan, since_start: u64) -> Option<Grant> {
    let mut options = AgentOptions::new("default".parse().ok()?, ModelPlan::first()?);
    options.fallback = plan.models.fallback();
    options.outage = plan.models.outage;
    options.tools = specs();
    options.hooks.clone_from(&plan.hooks);
    options.policy.approval_wait_ms = plan.approval_wait;
    options.context = plan.kept_turns.map(|_few| ContextSettings {
        rules: if plan.seed.is_multiple_of(2) { ContextRules::V3 } else { ContextRules::V2 },
        mode: ContextMode::Auto,
        tokens: 5_000,
        recent_turns: 1,
    });
    let has_memory = plan.recalls || plan.silent.has_some();
    options.memory = has_memory.then(|| plan.silent.configures(agent_memory(), since_start));
    if plan.summaries {
        summaries::configure(&mut options);
    }
    options.step_limit = 5;
    options.step_wait = Duration::from_mins(5);
    let step_ms = if plan.patient { STEP_LONG } else { TURN_TIME.step_ms };
    options.time = TurnTime { step_ms, ..TURN_TIME };
    if plan.budgets.sessions {
        options.profiles = priced(since_start);
        options.sampling.max_tokens.get_or_insert(OUTPUT_MOST);
    }
    Some(Grant::free(options))
}

fn failure(class: FailureClass, message: &str) -> ModelFailure {
    ModelFailure::new(class, message.to_owned())
}
