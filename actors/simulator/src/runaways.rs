//! Agents that exceed a limit: each process counts with the counters of production, stops the agent at once, and
//! tells the others in heartbeats that may be lost. The pause is stored for all, until an operator resumes the
//! agent.
//!
//! AGT-2 is judged where the provider and the tools are: nothing of the agent begins in a process that knows of
//! the pause, and a process begins no more turns than the limit since the agent was resumed last.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_actors::session::{Effect, Outcome, turn::prepare::CallJob};
use clawnode_guard::runaway::{AgentCounters, HeardCounts};
use clawnode_kernel::{KernelBug, MachineInput};
use clawnode_proto::{
    AgentName, Attempt, CallId, ProcessId, TurnId,
    agents::{AgentCounts, AgentLimit, AgentLimits, ExceededLimit},
    hook::HookTrail,
    llm::{FailureClass, ModelFailure, Text, Usage},
    session::ToolEnd,
    tool::{ToolFailure, ToolOutcome},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    FATE, JudgeViolation, Sim, any_machine::ActivationPlace, places::WantedPlace, plan::SeedPlan,
    process::PlannedNote,
};

/// Between two heartbeats of a process, in milliseconds.
const BEAT_EVERY: u64 = 1_000;
/// How soon a pause is stored, and how soon another process reads what is stored, at most, in milliseconds.
const STORED_MOST: u64 = 1_500;
const READ_MOST: u64 = 600;
/// How long an operator needs to resume the agent, at most, in milliseconds.
const RESUMED_MOST: u64 = 8_000;

/// What all processes know of the agent.
#[derive(Debug, Default)]
pub(super) struct Runaways {
    processes: BTreeMap<ProcessId, ProcessRunaways>,
    /// Whether the agent is paused, and how often that has changed.
    stored: (u64, bool),
    /// How often it was stopped, in all processes.
    pub(super) stops: usize,
    /// How often it was resumed.
    pub(super) resumed: usize,
    /// Turns that came while it was paused where they came, and began later.
    pub(super) waited: usize,
    waiting: BTreeSet<TurnId>,
}

/// What one process knows.
#[derive(Debug, Default)]
struct ProcessRunaways {
    counters: AgentCounters,
    /// It has stopped the agent.
    is_stopped: bool,
    /// The last stored change that it read.
    read: u64,
    /// Turns that were counted and whose model was not asked yet.
    counted: BTreeSet<TurnId>,
    /// Turns whose model was asked here first since the agent was resumed, and how many may be.
    begun: u64,
    most: u64,
}

/// The limits of a seed's agent.
pub(super) fn limits(seed: u64) -> AgentLimits {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x0a9e_7b0a_0000_0d5e);
    AgentLimits {
        turns_per_hour: Some(rng.random_range(2..5)),
        tool_calls_per_minute: rng.random_bool(0.5).then(|| rng.random_range(1..3)),
        egress_bytes_per_day: None,
    }
}

fn agent() -> Option<AgentName> {
    "default".parse().ok()
}

fn stopped(attempt: Attempt) -> Outcome {
    let failure = ModelFailure::new(FailureClass::Stopped, "the agent exceeded a limit");
    Outcome::Failed { attempt, failure, partial: Text::from(""), usage: Usage::default() }
}

impl SeedPlan {
    /// More turns than the limits of the agent allow.
    pub(super) fn runs_away(&mut self) {
        self.runaways = Some(limits(self.seed));
        // An agent would not stay paused for days.
        self.pause = None;
        self.sessions = self.sessions.max(3);
        self.inputs = self.inputs.max(4);
        self.asks_tools = self.asks_tools.max(0.4);
    }
}

// === impl Runaways ===

impl Runaways {
    fn is_stopped(&self, process: ProcessId) -> bool {
        self.processes.get(&process).is_some_and(|process| process.is_stopped)
    }

    fn add(&mut self, process: ProcessId, limit: AgentLimit, now: u64) -> bool {
        let runaways = self.processes.get_mut(&process);
        let Some((runaways, agent)) = runaways.zip(agent()) else { return true };
        runaways.counters.add(&agent, limit, 1, now).is_ok()
    }
}

// === impl Sim ===

impl Sim {
    /// A process begins: it reads what is stored before it takes work.
    pub(super) fn begin_runaways(&mut self, process: ProcessId) {
        let Some((limits, agent)) = self.plan.runaways.zip(agent()) else { return };
        let (read, is_stopped) = self.runaways.stored;
        let most = limits.turns_per_hour.unwrap_or(u64::MAX);
        let mut runaways = ProcessRunaways { is_stopped, read, most, ..ProcessRunaways::default() };
        runaways.counters.limit(&agent, limits);
        self.runaways.processes.insert(process, runaways);
        self.plan_beat(process);
    }

    fn plan_beat(&mut self, process: ProcessId) {
        let after = self.world.rng.random_range(BEAT_EVERY / 2..BEAT_EVERY);
        let beats = PlannedNote::own("says what it has counted".to_owned(), move |sim| {
            sim.plan_beat(process);
            sim.beats(process);
            Ok(())
        });
        self.world.later(process, after, beats);
    }

    fn beats(&mut self, process: ProcessId) {
        let Some(runaways) = self.runaways.processes.get(&process) else { return };
        let told = runaways.counters.told();
        let others = self.processes.keys().copied().filter(|other| *other != process);
        for other in others.collect::<Vec<_>>() {
            let told = told.clone();
            let hears = PlannedNote::own(self.about(|| format!("hears {told:?}")), move |sim| {
                sim.hears_counts(other, process, &told);
                Ok(())
            });
            self.world.send(other, hears);
        }
    }

    fn hears_counts(&mut self, to: ProcessId, sender: ProcessId, told: &[AgentCounts]) {
        let now = self.world.now().0;
        let Some(runaways) = self.runaways.processes.get_mut(&to) else { return };
        let HeardCounts { exceeded, stopped } = runaways.counters.hear(sender, told, now);
        if !stopped.is_empty() {
            self.plan_pause(to);
        }
        if !exceeded.is_empty() {
            self.stops_agent(to);
        }
    }

    /// A process stops the agent: what runs ends, and the pause is stored for all.
    fn stops_agent(&mut self, process: ProcessId) {
        if !self.stops_here(process) {
            return;
        }
        self.runaways.stops += 1;
        let exceeded = self.plan.runaways.and_then(|limits| {
            let (limit, allowed) = (AgentLimit::TurnsPerHour, limits.turns_per_hour?);
            Some(ExceededLimit { limit, allowed })
        });
        let runaways = self.runaways.processes.get_mut(&process);
        if let Some(((runaways, agent), exceeded)) = runaways.zip(agent()).zip(exceeded) {
            runaways.counters.stop(&agent, exceeded);
        }
        self.plan_pause(process);
    }

    /// Says whether the agent was not stopped here before.
    fn stops_here(&mut self, process: ProcessId) -> bool {
        let Some(runaways) = self.runaways.processes.get_mut(&process) else { return false };
        if std::mem::replace(&mut runaways.is_stopped, true) {
            return false;
        }
        self.remark(process, || "stops the agent".to_owned());
        let actors = self.processes.get(&process).into_iter().flat_map(|process| &process.actors);
        let running = actors.flat_map(|(entity, actor)| {
            let effects = actor.running.iter();
            effects.map(|(effect, attempt)| (*entity, actor.counter, *effect, *attempt))
        });
        for (entity, counter, effect, attempt) in running.collect::<Vec<_>>() {
            let at = ActivationPlace { process, entity, counter };
            if let (Effect::Call { .. }, Some(attempt)) = (effect, attempt) {
                let after = self.world.rng.random_range(1..50);
                let ends = PlannedNote::own("a call is stopped".to_owned(), move |sim| {
                    sim.ends_if_it_runs(at, effect, attempt, stopped(attempt))
                });
                self.world.later(process, after, ends);
            }
        }
        true
    }

    /// A process that knows that the agent was stopped stores that, if it lives so long.
    fn plan_pause(&mut self, process: ProcessId) {
        let after = self.world.rng.random_range(1..STORED_MOST);
        let stores = PlannedNote::own("the pause is stored".to_owned(), |sim| {
            if !sim.runaways.stored.1 {
                sim.stores_pause(true);
                let after = sim.world.rng.random_range(1_000..RESUMED_MOST);
                let resumes = PlannedNote::own("the agent is resumed".to_owned(), |sim| {
                    sim.runaways.resumed += 1;
                    sim.stores_pause(false);
                    Ok(())
                });
                sim.world.later(FATE, after, resumes);
            }
            Ok(())
        });
        self.world.later(process, after, stores);
    }

    /// What is stored changes; each process reads it soon.
    fn stores_pause(&mut self, is_paused: bool) {
        self.runaways.stored = (self.runaways.stored.0 + 1, is_paused);
        let version = self.runaways.stored.0;
        for process in self.processes.keys().copied().collect::<Vec<_>>() {
            let after = self.world.rng.random_range(1..READ_MOST);
            let about = self.about(|| format!("reads that the agent is paused: {is_paused}"));
            let reads = PlannedNote::own(about, move |sim| {
                sim.reads_pause(process, version, is_paused);
                Ok(())
            });
            self.world.later(process, after, reads);
        }
    }

    fn reads_pause(&mut self, process: ProcessId, version: u64, is_paused: bool) {
        let most = self.plan.runaways.and_then(|limits| limits.turns_per_hour).unwrap_or(u64::MAX);
        let runaways = self.runaways.processes.get_mut(&process);
        let Some((runaways, agent)) =
            runaways.zip(agent()).filter(|(runaways, _)| runaways.read < version)
        else {
            return;
        };
        runaways.read = version;
        runaways.counters.stored(&agent);
        if is_paused {
            self.stops_here(process);
        } else if std::mem::take(&mut runaways.is_stopped) {
            runaways.counters.resume(&agent);
            // What was counted before may still begin.
            let before = u64::try_from(runaways.counted.len()).unwrap_or(u64::MAX);
            (runaways.begun, runaways.most) = (0, most.saturating_add(before));
        }
    }

    /// Whether a call of a turn may get its place now. One of a new turn asks again later; another one ends.
    pub(super) fn may_have_place(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        wants: &WantedPlace,
    ) -> bool {
        if self.plan.runaways.is_none() {
            return true;
        }
        let ActivationPlace { process, entity, counter } = at;
        let WantedPlace { turn, is_new, .. } = *wants;
        let ignores = self.planted == KernelBug::BeginsWhilePaused;
        let mut is_stopped = self.runaways.is_stopped(process) && !ignores;
        let has_begun = self.ledger.book(entity).own.turns.get(&turn);
        let has_begun = has_begun.is_some_and(|turn| turn.begun.is_some());
        if is_stopped && has_begun {
            // Its call may not have been sent.
            if !effect.is_beside() {
                self.judge.refused(entity, turn);
            }
            let refused = MachineInput::Refused(effect, stopped(Attempt(0)));
            self.world.mail(process, entity.as_u128(), PlannedNote::Feed(entity, counter, refused));
            return false;
        }
        if is_new && !is_stopped {
            let now = self.world.now().0;
            if !self.runaways.add(process, AgentLimit::TurnsPerHour, now) {
                self.stops_agent(process);
                is_stopped = !ignores;
            } else if let Some(runaways) = self.runaways.processes.get_mut(&process) {
                runaways.counted.insert(turn);
            }
        }
        if is_stopped {
            self.runaways.waiting.insert(turn);
            let again = PlannedNote::Feed(entity, counter, MachineInput::Forgotten(effect));
            self.world.mail(process, entity.as_u128(), again);
        }
        !is_stopped
    }

    /// A call is about to be sent: whether the process lets it, and whether it may.
    pub(super) fn may_be_sent(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        job: &CallJob,
    ) -> Result<bool, JudgeViolation> {
        let ActivationPlace { process, entity, counter } = at;
        if self.plan.runaways.is_none() {
            return Ok(true);
        }
        let is_stopped = self.runaways.is_stopped(process);
        if is_stopped && self.planted != KernelBug::BeginsWhilePaused {
            // It ends before a model sees its turn, perhaps.
            if !effect.is_beside() {
                self.judge.refused(entity, job.turn);
            }
            self.session_call_released(at, effect)?;
            self.runs(process, entity, counter, effect, Some(job.attempt));
            let (after, attempt) = (self.world.rng.random_range(1..20), job.attempt);
            let ends = PlannedNote::own("a call is not sent".to_owned(), move |sim| {
                // What it had reserved was dropped with it.
                sim.holds_end_for(process)?;
                sim.ends_if_it_runs(at, effect, attempt, stopped(attempt))
            });
            self.world.later(process, after, ends);
            return Ok(false);
        }
        if is_stopped {
            let text = format!("`{}` begins by `{process}`, which knows of the pause", job.call);
            return Err(JudgeViolation::new("AGT-2", text));
        }
        if self.runaways.waiting.remove(&job.turn) {
            self.runaways.waited += 1;
        }
        let Some(runaways) = self.runaways.processes.get_mut(&process) else { return Ok(true) };
        runaways.begun += u64::from(runaways.counted.remove(&job.turn));
        if runaways.begun > runaways.most {
            let text =
                format!("{} turns begin in `{process}`, of {}", runaways.begun, runaways.most);
            return Err(JudgeViolation::new("AGT-2", text));
        }
        Ok(true)
    }

    /// Whether a tool may run here now: a call over the limit ends, and stops the agent.
    pub(super) fn may_run(&mut self, at: ActivationPlace, call: CallId) -> bool {
        if self.plan.runaways.is_none() {
            return true;
        }
        let ActivationPlace { process: to, entity, counter } = at;
        let now = self.world.now().0;
        let mut is_stopped = self.runaways.is_stopped(to);
        if !is_stopped && !self.runaways.add(to, AgentLimit::ToolCallsPerMinute, now) {
            self.stops_agent(to);
            is_stopped = true;
        }
        if is_stopped {
            let outcome = ToolOutcome::failed(ToolFailure::Cancelled, "its agent is stopped");
            let outcome = Outcome::Tool(ToolEnd::Known { outcome }, HookTrail::default());
            let ends = PlannedNote::own(format!("{call} does not run"), move |sim| {
                let key = Effect::Tool { call };
                let process = sim.processes.get_mut(&to);
                let actor = process.and_then(|process| process.actor(entity, counter));
                if actor.is_none_or(|actor| !actor.running.contains_key(&key)) {
                    return Ok(());
                }
                sim.feed(to, entity, counter, MachineInput::Ended(key, outcome))
            });
            let after = self.world.rng.random_range(1..20);
            self.world.later(to, after, ends);
        }
        !is_stopped
    }
}

#[cfg(test)]
mod tests {
    use clawnode_kernel::KernelBug;

    use crate::{RunFailure, RunReport, SimOptions, run};

    const SEEDS: u64 = 40;

    fn ran(seed: u64, planted: KernelBug) -> Result<RunReport, Box<RunFailure>> {
        let trace = planted == KernelBug::None;
        run(&SimOptions { seed, planted, trace, runaways: true, ..SimOptions::default() })
    }

    /// AGT-2, MSG-3: an agent over its limit is paused in every process, whatever befalls the world; nothing of it
    /// begins where that is known, what came meanwhile begins once it is resumed, and every turn ends.
    #[test]
    fn agt_2_an_agent_over_its_limit_stops_and_goes_on_when_it_is_resumed() {
        let (mut stops, mut waited) = (0, 0);
        for seed in 0..SEEDS {
            let report = ran(seed, KernelBug::None).unwrap_or_else(|failure| panic!("{failure}"));
            stops += report.agent_stops;
            waited += report.waited_for_agent;
        }
        assert!(stops > 60, "agents were stopped {stops} times");
        assert!(waited > 60, "{waited} turns waited for them");
    }

    #[test]
    fn agt_2_finds_what_begins_while_its_agent_is_paused() {
        let found = (0..SEEDS).find_map(|seed| ran(seed, KernelBug::BeginsWhilePaused).err());
        assert_eq!(found.expect("it was not found").violation.name, "AGT-2");
    }
}
