//! The simulator: the second thin driver of the kernel's machines, with no runtime.
//!
//! Several processes run the partition and entity machines for sessions over one seeded
//! [`World`]. The seed decides everything: who sends what when, which faults there are, and in
//! which order things happen. After every step the simulator folds the durable journals that the step touched again, and
//! checks their invariants: nothing else can have changed. In the end faults
//! stop, all comes to rest, and every accepted input of every session must have come to its end.
//!
//! What is checked, by name: I1 to I5 and I8 of the kernel (see [`clawnode_kernel`]); S1 what was
//! answered survives a power cut; C6 one provider call per begun attempt, one attempt per owner;
//! C7 a recorded call is never made again; D1 an input is journaled once, as long as its kind remembers
//! inputs; E1 every accepted input comes to its end; E2 every turn ends once, with its reply once; E3 every turn's end is shown;
//! HOOK-1 nothing that a hook decided takes effect unjournaled; HOOK-2 what is sent and run is what
//! a hook has judged;
//! FIT-1 a reply that has to fit a schema ends its turn well only if it fits, and badly only after two
//! corrections;
//! GIVE-1 a call gives way only so often, no attempt begins while its turn waits, and no turn fails that
//! another model of its chain could have served, or whose call was ended for another one; LANE-1 no place goes to
//! a lower lane while a higher one waits; FAIR-1 over any 1,000 slots of a lane, no agent that waits has less than half of
//! its share; LLM-3 no model is shown the thoughts of another;
//! C9 and JOB-4 a tool is not run after its outcome, and one that may run once runs once;
//! REFL-1 and REFL-2 hold for model calls that no person sees (see [`silent`]); PLAN-2 for steps with outputs of others;
//! G1 no call starts after a drain gave calls up; F1 a process that has read that another has the
//! entity starts nothing; OUT-1 nothing is out of service but what kills its actor, is damaged, or was in
//! hand at three deaths; R1 no acknowledgement handle is leaked; X1 no activation ends
//! in a defect. I7 is true by construction: no event carries a frame.
//!
//! SUM-1 a counter adds each input once. MEM-3 one source gives one point; MEM-4 what is masked is not shown; C27 a purge
//! leaves no archive. MEM-1, MEM-2 and MEM-4 hold for recalls, and MEM-3 for what is learned (see [`recall`]). I6, BUD-2, BUD-3 and BUD-4: no limit of a budget is passed,
//! whatever is lost with a process, and accounts know what providers billed (see [`budgets`]).
//!
//! All that is checked with the kernel's own fold, which may be wrong itself. So there is a judge
//! that knows nothing of it, only what was seen from outside: MSG-1 to MSG-4, APR-1, OWN-1 (see
//! [`judge`]).

#![forbid(unsafe_code)]

mod any_machine;
mod book;
mod budgets;
mod chaos;
mod circuits;
mod client_tools;
mod clients;
mod counters;
mod effects;
mod failure;
#[cfg(test)]
mod few_turns;
mod give;
mod hooks;
mod jobs;
pub mod journals;
mod judge;
mod kinds;
mod known;
mod lanes;
mod ledger;
#[cfg(test)]
mod machine;
mod memories;
mod models;
mod operator;
mod ops;
mod pause;
mod people;
mod places;
mod plan;
mod probation;
mod process;
mod purges;
mod questions;
mod recall;
mod reflections;
mod report;
mod runaways;
mod scale;
mod schemas;
mod sessions;
mod settle;
mod silent;
mod sizes;
mod slots;
mod steps;
mod summaries;
mod templates;
mod thoughts;
mod tools;
mod trace;
mod violation;

use std::collections::{BTreeMap, BTreeSet};

use clawnode_budget::holder::Reservation;
use clawnode_kernel::{KernelBug, fewer_kept_turns};
use clawnode_proto::{Attempt, CallId, EntityId, Kind, ProcessId, llm::ModelRef};
use clawnode_sim::{Bugs, Happening, RequestTicket, StoreChange, World};

use self::{
    budgets::{Bills, BudgetTally, SessionHolds},
    circuits::SimCircuits,
    clients::SimClient,
    jobs::ToolEffects,
    judge::OutsideJudge,
    kinds::KINDS,
    ledger::Ledger,
    places::SimLanes,
    plan::SeedPlan,
    process::{PendingOp, PlannedNote, SimProcess},
    recall::{judge::RecallJudge, stores::RecallWorld},
    runaways::Runaways,
    silent::SilentCalls,
    slots::SimSlots,
    templates::TemplatedCalls,
    trace::RunTrace,
};
pub use self::{
    budgets::{CrashPoints, LimitChanges, RefusedCalls},
    failure::RunFailure,
    recall::{feedback_judge::FeedbackTally, judge::RecallTally},
    report::RunReport,
    slots::SlotTally,
    violation::JudgeViolation,
};

/// Where clients' answers go.
const CLIENTS: ProcessId = ProcessId::from_u128(1);
/// Where what befalls the world is planned.
const FATE: ProcessId = ProcessId::from_u128(2);
/// Steps after which a world that is still busy is not taken to come to rest.
const STEPS_MAX: u64 = 400_000;

/// What to simulate.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct SimOptions {
    /// Decides everything.
    pub seed: u64,
    /// A bug that should be found.
    pub planted: KernelBug,
    /// Whether to keep the trace, to show its end.
    pub trace: bool,
    /// So many sessions with skewed keys on many nodes, whatever the seed says.
    pub sessions: Option<usize>,
    /// Whether agents have hooks.
    pub hooks: bool,
    /// Whether messages are of any size.
    pub large: bool,
    /// So many counters beside the sessions: a second kind of entities.
    pub counters: usize,
    /// So many memories beside the sessions.
    pub memories: usize,
    /// Whether people say facts of themselves, and turns are reminded of them by a store that lags, lies and vanishes.
    pub recalls: bool,
    /// Whether replies to most messages have to fit a schema.
    pub schemas: bool,
    /// So many accounts, and a holder in each process.
    pub budgets: usize,
    /// Whether messages are of two lanes, and processes have fewer places than calls.
    pub lanes: bool,
    /// Whether agents with weights share the slots of providers.
    pub slots: bool,
    /// Whether processes have circuits, and a provider is down for ten minutes.
    pub circuits: bool,
    /// Whether the calls of sessions reserve, too.
    pub session_budgets: bool,
    /// Whether processes die soon after calls of sessions have reserved.
    pub dies_holding: bool,
    /// Whether people change limits while calls run, and have to allow more.
    pub limits_change: bool,
    /// Whether the agent has limits that it exceeds.
    pub runaways: bool,
    /// Whether the states of sessions keep their last few turns only.
    pub few_turns: bool,
    /// Whether models have small windows, and one of them makes summaries.
    pub summaries: bool,
    /// Whether people have models look back at turns.
    pub reflections: bool,
    /// Whether the journal of the first session is damaged, and most messages come again.
    pub damages: bool,
    /// Whether processes die while models look back at turns and just after, and people delete these sessions.
    pub dies_reflecting: bool,
    /// About so many synthetic calls under budgets; as many as come by themselves if it is 0.
    pub admissions: usize,
}

/// A world with its processes and clients.
#[derive(Debug)]
struct Sim {
    plan: SeedPlan,
    planted: KernelBug,
    world: World<PlannedNote>,
    processes: BTreeMap<ProcessId, SimProcess>,
    dead: BTreeSet<ProcessId>,
    clients: Vec<SimClient>,
    ledger: Ledger,
    judge: OutsideJudge,
    effects: ToolEffects,
    bills: Bills,
    /// The places of agents, if calls need any.
    lanes: SimLanes,
    slots: SimSlots,
    circuits: SimCircuits,
    session_holds: SessionHolds,
    runaways: Runaways,
    silent: SilentCalls,
    templates: TemplatedCalls,
    /// What is searched, if turns recall.
    recall: Option<RecallWorld>,
    budget_tally: BudgetTally,
    /// The tokens that calls under budgets send.
    call_inputs: BTreeMap<Reservation, u64>,
    client_ops: BTreeMap<RequestTicket, PendingOp>,
    /// Who wrote each journal last.
    last_writer: BTreeMap<EntityId, ProcessId>,
    /// The last model call of each entity.
    last_call: BTreeMap<EntityId, (CallId, Attempt)>,
    /// The model that each attempt asks.
    asked: BTreeMap<(CallId, Attempt), ModelRef>,
    /// Calls whose reply has to fit a schema.
    structured: BTreeSet<CallId>,
    /// Which entities are noted as in hand, and by whom.
    in_hand: BTreeMap<EntityId, ProcessId>,
    /// Whose calls kill its actor, if the plan says so.
    poisoned: Option<EntityId>,
    /// Whose journal is damaged.
    damaged: Option<EntityId>,
    started: u64,
    calm: bool,
    over: bool,
    hash: u64,
    steps: u64,
    trace: Option<RunTrace>,
}

/// Runs one seed.
pub fn run(options: &SimOptions) -> Result<RunReport, Box<RunFailure>> {
    let mut sim = Sim::new(options);
    let _planted = options.planted.in_folds();
    let _few = sim.plan.kept_turns.map(fewer_kept_turns::keep_few);
    match sim.run() {
        Ok(()) => {
            let (turns, calls, attempts) = sim.ledger.tally();
            let quarantined = sim.ledger.quarantined();
            let (hash, steps) = (sim.hash, sim.steps);
            let millis = sim.world.now().0 - sim.started;
            let (jobs, runs) = sim.effects.tally();
            let gave_way = sim.ledger.gave_way();
            let misfits = sim.ledger.misfits();
            let budget_calls = sim.bills.made();
            let session_holds = sim.session_holds.granted();
            let recall = sim.recall.as_ref();
            let recalls = recall.map(RecallWorld::tally).unwrap_or_default();
            Ok(RunReport {
                hash,
                steps,
                millis,
                turns,
                calls,
                attempts,
                quarantined,
                jobs,
                runs,
                gave_way,
                summaries: sim.ledger.summaries(),
                recalls,
                misfits,
                budget_calls,
                preempted: sim.lanes.ended,
                slots: sim.slots.tally,
                not_sent: sim.circuits.refused,
                session_holds,
                refused: sim.budget_tally.refused,
                crash_points: sim.crash_points(),
                limit_changes: sim.bills.changes,
                agent_stops: sim.runaways.stops,
                waited_for_agent: sim.runaways.waited,
                silent_calls: sim.silent.made(),
                templated: sim.judge.templated(),
            })
        }
        Err(violation) => {
            let tail = sim.trace.map(|trace| trace.tail(&violation.detail)).unwrap_or_default();
            let SimOptions { seed, sessions, counters, budgets, session_budgets, .. } = *options;
            let SimOptions { memories, recalls, admissions, .. } = *options;
            Err(Box::new(RunFailure {
                seed,
                sessions,
                counters,
                memories,
                recalls,
                budgets,
                session_budgets,
                admissions,
                violation,
                steps: sim.steps,
                tail,
            }))
        }
    }
}

// === impl Sim ===

impl Sim {
    fn new(options: &SimOptions) -> Self {
        let mut plan = SeedPlan::with(options);
        if options.hooks {
            plan.hooks = hooks::hooks();
        }
        let mut ledger = Ledger::default();
        for row in &KINDS {
            let entities = (row.entities)(&plan).into_iter();
            entities.for_each(|entity| ledger.keep(entity, (row.book)(entity)));
        }
        let bugs = Bugs {
            acknowledge_before_sync: options.planted == KernelBug::AcknowledgeBeforeSync,
            no_fencing: options.planted == KernelBug::NoFencing,
            forget_on_delivery: options.planted == KernelBug::ForgetOnDelivery,
            keeps_old_jobs: plan.pause.is_some_and(|pause| pause.keeps_old_jobs),
        };
        let world = World::new(options.seed, plan.partitions, plan.local, bugs);
        let started = world.now().0;
        let clients = KINDS.iter().flat_map(|row| (row.clients)(&plan, started));
        let clients: Vec<SimClient> = clients.collect();
        let templates =
            if plan.templates { TemplatedCalls::of(&clients) } else { TemplatedCalls::default() };
        Self {
            clients,
            planted: options.planted,
            world,
            processes: BTreeMap::new(),
            dead: BTreeSet::new(),
            ledger,
            judge: OutsideJudge::new(plan.approval_wait, tools::changing(), &tools::specs()),
            effects: ToolEffects::default(),
            bills: Bills::new(&plan),
            session_holds: SessionHolds::default(),
            runaways: Runaways::default(),
            silent: SilentCalls::default(),
            templates,
            recall: Self::recall_world(&plan),
            budget_tally: BudgetTally::default(),
            lanes: SimLanes::new(plan.lanes),
            slots: SimSlots::new(options),
            circuits: SimCircuits::new(options.circuits),
            call_inputs: BTreeMap::new(),
            client_ops: BTreeMap::new(),
            last_writer: BTreeMap::new(),
            last_call: BTreeMap::new(),
            asked: BTreeMap::new(),
            structured: BTreeSet::new(),
            in_hand: BTreeMap::new(),
            poisoned: None,
            damaged: None,
            started: 0,
            calm: false,
            over: false,
            hash: 0xcbf2_9ce4_8422_2325,
            steps: 0,
            trace: options.trace.then(RunTrace::default),
            plan,
        }
    }

    fn recall_world(plan: &SeedPlan) -> Option<RecallWorld> {
        let keeps_turns = plan.kept_turns.is_none();
        let judge = RecallJudge::new(plan.sessions, clients::session_key, keeps_turns);
        plan.recalls.then(|| RecallWorld::new(judge, !plan.seed.is_multiple_of(2)).ok()).flatten()
    }

    fn run(&mut self) -> Result<(), JudgeViolation> {
        if self.plan.recalls && self.recall.is_none() {
            return Err(JudgeViolation::new("X1", "searches have no runtime".to_owned()));
        }
        self.begin();
        let steps_most = self.plan.steps_most();
        while !self.over {
            let Some((to, happening)) = self.world.step() else { break };
            self.steps += 1;
            if self.steps > steps_most {
                let text = self.ledger.unfinished().unwrap_or_else(|| "it is busy".to_owned());
                return Err(JudgeViolation::new("E1", format!("{steps_most} steps, and {text}")));
            }
            self.note(to, &happening);
            self.check()?;
            self.happens_to(to, happening)?;
            self.check()?;
        }
        self.ledger.at_the_end()?;
        self.budgets_at_the_end()?;
        let serves = |entity| self.ledger.serves(entity);
        self.recall.iter().try_for_each(|recall| recall.judge.at_the_end(serves))?;
        self.judge.at_the_end(serves)
    }

    fn happens_to(
        &mut self,
        to: ProcessId,
        happening: Happening<PlannedNote>,
    ) -> Result<(), JudgeViolation> {
        match happening {
            Happening::Answer(ticket, reply) => self.answered(to, ticket, reply)?,
            Happening::Delivery(delivered) => self.delivered(to, delivered)?,
            Happening::Own(note) => self.noted(to, note)?,
            Happening::Job(delivered) => self.job_delivered(to, delivered)?,
        }
        if self.lanes.is_on {
            self.moves_up(to)?;
        }
        // An activation that is gone may have had the last share in a hold, and no call may come after it.
        self.holds_end_for(to)
    }

    /// Everything that changed in the stores goes through the ledger.
    fn check(&mut self) -> Result<(), JudgeViolation> {
        for change in self.world.changes() {
            self.mix(&change);
            self.warn_the_fenced(&change);
            let world = &self.world;
            let stored = || ops::stored(world, &change);
            self.ledger.change(&change, stored, |digest| ops::archived(world, digest))?;
            self.bills.change(&change)?;
            self.silent_change(&change)?;
            if let StoreChange::Appended { entity, rollup: true, .. } = change
                && self.ledger.is_deleted(entity)
            {
                self.bills.loses(entity);
            }
            if let Some(recall) = &mut self.recall {
                recall.judge.change(&change)?;
                if let StoreChange::Appended { entity, rollup: true, .. } = change
                    && self.ledger.is_deleted(entity)
                {
                    recall.judge.loses(entity);
                }
            }
            if self.is_of_other_kind(&change) {
                continue;
            }
            self.judge.change(self.world.now().0, &change)?;
            if let StoreChange::Appended { entity, rollup: true, .. } = change
                && self.ledger.is_deleted(entity)
            {
                self.judge.deleted(entity)?;
            }
        }
        for entity in self.world.misread() {
            self.judge.misreads(self.world.now().0, entity);
        }
        Ok(())
    }

    /// The judge knows sessions; what other kinds add up to, their books judge.
    fn is_of_other_kind(&self, change: &StoreChange) -> bool {
        match change {
            StoreChange::Appended { entity, .. }
            | StoreChange::Put(entity, _)
            | StoreChange::Removed(entity, _) => self.ledger.kind_of(*entity) != Kind::SESSION,
            StoreChange::JobPut(_) | StoreChange::JobRemoved(_) => false,
        }
    }
}
