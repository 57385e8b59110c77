//! What a seed decides before anything happens.

use std::time::Duration;

use clawnode_kernel::{KernelBug, MachineOptions};
use clawnode_proto::{Order, agents::AgentLimits, hook::HookSpec};
use clawnode_sim::Faults;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    SimOptions, models::ModelPlan, pause::Pause, scale::Scale, silent::SilentPlan, sizes::Sizes,
    templates,
};

/// How many turns the states of sessions keep that keep few.
const KEPT_TURNS: usize = 2;
/// Inputs of such a session at least.
const INPUTS_MANY: usize = 8;
/// How often clients say the same again, and where messages are to come again after a deletion.
pub(super) const SAYS_AGAIN: f64 = 0.15;
const SAYS_AGAIN_OFTEN: f64 = 0.8;

/// How likely each thing is, once something befalls the world.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weights {
    pub(super) kill: u32,
    pub(super) freeze: u32,
    pub(super) actor: u32,
    pub(super) drain: u32,
    pub(super) outage: u32,
    pub(super) skew: u32,
    pub(super) rumour: u32,
}

/// What kills an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Poison {
    /// To start a call.
    Calls,
    /// To fold the journal, once there is something in it.
    Fold,
}

/// What may be spent, and by whom.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a decision of its own")]
pub(super) struct BudgetPlan {
    /// How many accounts there are; each process has a holder if there are any.
    pub(super) accounts: usize,
    /// Whether the calls of sessions reserve.
    pub(super) sessions: bool,
    /// About so many synthetic calls, if there are to be very many.
    pub(super) admissions: usize,
    /// Whether some calls cost more than they have reserved.
    pub(super) exceeds: bool,
    /// Whether processes give back what they have once no call will come.
    pub(super) leaves: bool,
    /// Whether processes die soon after calls of sessions have reserved.
    pub(super) dies_holding: bool,
    /// Whether people change limits while calls run.
    pub(super) limits_change: bool,
}

/// What a seed decides.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a decision of its own")]
pub(super) struct SeedPlan {
    pub(super) seed: u64,
    /// One process whose store syncs in groups, and loses the rest in a power cut.
    pub(super) local: bool,
    pub(super) partitions: u16,
    pub(super) processes: usize,
    pub(super) sessions: usize,
    /// How many counters there are besides.
    pub(super) counters: usize,
    /// How many memories there are besides.
    pub(super) memories: usize,
    /// What may be spent.
    pub(super) budgets: BudgetPlan,
    /// Inputs of each session at least.
    pub(super) inputs: usize,
    /// How often a client says the same again.
    pub(super) says_again: f64,
    /// How much later a client says the same again at most, in milliseconds.
    pub(super) again_most: u64,
    /// How long inputs and faults go on, in milliseconds.
    pub(super) busy: u64,
    pub(super) faults: Faults,
    pub(super) weights: Weights,
    /// Between two things that befall the world, in milliseconds on average.
    pub(super) fate_every: u64,
    pub(super) machine: MachineOptions,
    /// Clocks are wrong by at most this, in milliseconds.
    pub(super) skew: u64,
    /// Model calls take at most this, in milliseconds.
    pub(super) call_most: u64,
    /// How often a model call fails.
    pub(super) call_fails: f64,
    /// How often a reply asks for tools.
    pub(super) asks_tools: f64,
    /// How often an emission has to be told again.
    pub(super) emit_fails: f64,
    /// What of the first session kills its actor.
    pub(super) poison: Option<Poison>,
    /// What an operator does about sessions that are quarantined.
    pub(super) operator: Option<Order>,
    /// A bit of the first session's journal is flipped; the operator buries it.
    pub(super) damage: bool,
    /// Not every process can run every job.
    pub(super) scarce: bool,
    /// Jobs are waited for until what a dead process had in hand comes again.
    pub(super) patient: bool,
    /// How often a job hangs until it is called off.
    pub(super) hangs: f64,
    /// When nothing happens for days, if it does.
    pub(super) pause: Option<Pause>,
    /// How large messages are.
    pub(super) sizes: Sizes,
    /// How long people have to decide about a tool call, in milliseconds.
    pub(super) approval_wait: u64,
    /// The models of agents, and when their providers are down.
    pub(super) models: ModelPlan,
    /// The hooks of agents.
    pub(super) hooks: Vec<HookSpec>,
    /// Whether replies to most messages have to fit a schema.
    pub(super) schemas: bool,
    /// Whether messages are of two lanes, and processes have fewer places than calls.
    pub(super) lanes: bool,
    /// The limits of the agent, if it has some.
    pub(super) runaways: Option<AgentLimits>,
    /// How many turns the states of sessions keep, if only the last ones.
    pub(super) kept_turns: Option<usize>,
    /// Whether models have small windows, and one of them makes summaries.
    pub(super) summaries: bool,
    /// Whether people say facts of themselves, and turns are reminded of them.
    pub(super) recalls: bool,
    /// Whether people have models look back at turns.
    pub(super) reflections: bool,
    /// Which model calls there are that no person sees.
    pub(super) silent: SilentPlan,
    /// Whether plans refer to the outputs of their steps.
    pub(super) templates: bool,
    /// What is different with very many sessions, if there are.
    pub(super) scale: Option<Scale>,
}

// === impl BudgetPlan ===

impl BudgetPlan {
    pub(super) fn of(options: &SimOptions) -> Self {
        let SimOptions { seed, budgets: accounts, session_budgets: sessions, admissions, .. } =
            *options;
        let SimOptions { dies_holding, limits_change, .. } = *options;
        let exceeds = accounts > 0 && admissions == 0 && seed % 5 == 3;
        let leaves = seed % 8 != 1;
        Self { accounts, sessions, admissions, exceeds, leaves, dies_holding, limits_change }
    }
}

// === impl SeedPlan ===

impl SeedPlan {
    /// Whether there is much to work off once all is calm.
    pub(super) const fn is_long(&self) -> bool {
        self.scale.is_some() || self.inputs > 20 || self.runaways.is_some()
    }

    /// Whether an operator handles entities that are out of service.
    pub(super) const fn is_operated(&self) -> bool {
        self.damage || self.operator.is_some()
    }

    /// What is to happen with these options.
    pub(super) fn with(options: &SimOptions) -> Self {
        let mut plan = match options.sessions {
            Some(sessions) => Self::scale(options.seed, sessions, options.planted),
            None => Self::of(options.seed, options.planted),
        };
        if options.large {
            plan.large();
        }
        plan.counters = options.counters;
        plan.memories = options.memories;
        plan.schemas = options.schemas;
        plan.budgets = BudgetPlan::of(options);
        if options.few_turns {
            plan.few_turns();
        }
        if options.damages {
            (plan.damage, plan.says_again) = (true, SAYS_AGAIN_OFTEN);
        }
        if options.summaries {
            plan.summarizes();
        }
        if options.recalls {
            plan.recalls();
        }
        plan.reflections = options.reflections;
        plan.silent = SilentPlan::of(options);
        plan.templates = templates::are_in(options);
        plan.lanes = options.lanes;
        if plan.memories > 0 {
            // Sessions take most of the time, and others have them.
            (plan.sessions, plan.inputs) = (plan.sessions.min(1), plan.inputs.min(4));
        }
        if plan.lanes {
            plan.sessions = plan.sessions.max(4);
        }
        if options.circuits {
            plan.loses_provider();
        }
        if options.runaways {
            plan.runs_away();
        }
        if plan.budgets.accounts > 0 {
            plan.spends();
        }
        plan
    }

    pub(super) fn of(seed: u64, planted: KernelBug) -> Self {
        // Another stream than the world's, so that planning does not shift what happens.
        let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0x005e_ed0f_a91a_7000);
        let local = rng.random_bool(0.25);
        let faults = if local { Faults::local(&mut rng) } else { Faults::network(&mut rng) };
        let storm = rng.random_bool(0.15);
        let fates = if storm { 300..2_000 } else { 2_000..20_000 };
        let mut weight = |most: u32| {
            if storm {
                most
            } else if rng.random_bool(0.6) {
                rng.random_range(0..=most)
            } else {
                0
            }
        };
        let weights = Weights {
            kill: weight(4),
            freeze: if local { 0 } else { weight(4) },
            actor: weight(2),
            drain: if local { 0 } else { weight(2) },
            outage: if local { 0 } else { weight(2) },
            skew: weight(2),
            rumour: if local { 0 } else { weight(2) },
        };
        let mut plan = Self {
            seed,
            local,
            partitions: rng.random_range(1..=2),
            processes: if local { 1 } else { rng.random_range(1..=4) },
            sessions: rng.random_range(1..=2),
            counters: 0,
            memories: 0,
            budgets: BudgetPlan::default(),
            inputs: rng.random_range(2..=6),
            says_again: SAYS_AGAIN,
            again_most: 30_000,
            busy: rng.random_range(10_000..60_000),
            faults,
            weights,
            fate_every: rng.random_range(fates),
            machine: machine(&mut rng, planted),
            skew: if rng.random_bool(0.5) { rng.random_range(0..600_000) } else { 0 },
            call_most: rng.random_range(20..15_000),
            call_fails: rng.random_range(0.0..0.3),
            asks_tools: rng.random_range(0.0..0.6),
            emit_fails: rng.random_range(0.0..0.3),
            poison: rng.random_bool(0.04).then_some(Poison::Calls),
            operator: operator(&mut rng),
            damage: rng.random_bool(0.03),
            patient: false,
            hangs: 0.0,
            pause: None,
            sizes: Sizes::Small,
            approval_wait: rng.random_range(8_000..60_000),
            scarce: rng.random_bool(0.2),
            models: ModelPlan::default(),
            hooks: Vec::new(),
            schemas: false,
            lanes: false,
            runaways: None,
            kept_turns: None,
            summaries: false,
            recalls: false,
            reflections: false,
            silent: SilentPlan::default(),
            templates: false,
            scale: None,
        };
        plan.unusual(&mut rng);
        plan
    }

    /// Messages of any size, much of them at once.
    pub(super) fn large(&mut self) {
        self.sizes = Sizes::Any;
        self.inputs = self.inputs.min(6) + 2;
        self.busy = self.busy.min(20_000);
    }

    /// Calls reserve. Days without anything would end all windows that anything is known of. Most of these worlds
    /// are small: a call costs many steps, and many seeds find more than long ones.
    pub(super) fn spends(&mut self) {
        self.pause = None;
        if self.scale.is_some() || self.seed.is_multiple_of(8) {
            return;
        }
        self.busy = self.busy.min(20_000);
        if !self.summaries {
            self.inputs = self.inputs.min(3);
        }
        if !self.budgets.sessions && !self.lanes {
            (self.sessions, self.inputs) = (1, 1);
        }
    }

    /// Sessions whose states keep few turns, with enough turns that most leave.
    pub(super) fn few_turns(&mut self) {
        self.kept_turns = Some(KEPT_TURNS);
        self.inputs = self.inputs.max(INPUTS_MANY);
    }

    /// Conversations that are larger than their windows, without tools.
    pub(super) fn summarizes(&mut self) {
        self.summaries = true;
        self.asks_tools = 0.0;
        self.sessions = 1;
        self.inputs = self.inputs.max(INPUTS_MANY);
    }

    /// Sessions that learn and recall. Every third of them keeps few turns, so that what it said before is searched, too.
    pub(super) fn recalls(&mut self) {
        self.recalls = true;
        self.pause = None;
        self.inputs = self.inputs.min(6);
        if self.seed.is_multiple_of(3) {
            self.few_turns();
        }
    }

    /// What few seeds have.
    fn unusual(&mut self, rng: &mut ChaCha8Rng) {
        self.models = ModelPlan::of(self.seed, self.busy);
        if self.poison.is_some() && rng.random_bool(0.4) {
            self.poison = Some(Poison::Fold);
        }
        if rng.random_bool(0.015) {
            // A user who talks a lot, and comes back to it.
            self.sessions = 1;
            self.inputs = rng.random_range(40..70);
            self.busy = rng.random_range(200_000..400_000);
            self.again_most = 300_000;
            // Quick enough to be done with all of it soon.
            self.call_most = rng.random_range(20..600);
            self.asks_tools = rng.random_range(0.0..0.1);
            self.approval_wait = rng.random_range(2_000..8_000);
        }
        self.patient = rng.random_bool(0.4);
        if rng.random_bool(0.15) {
            self.hangs = rng.random_range(0.1..0.5);
            // They end by time, and event time does not move until the slowest clock is there.
            self.skew = self.skew.min(20_000);
            self.weights.skew = 0;
        }
        if rng.random_bool(0.05) && self.poison.is_none() && !self.damage {
            self.pause = Some(Pause::of(rng, self.busy));
            self.scarce = true;
            self.asks_tools = rng.random_range(0.3..0.6);
        }
    }
}

/// What the operator does about sessions that are set aside.
fn operator(rng: &mut ChaCha8Rng) -> Option<Order> {
    match rng.random_range(0..4) {
        0 => None,
        1 => Some(Order::Bury),
        _ => Some(Order::Restore),
    }
}

/// How activations work, which differs from seed to seed.
fn machine(rng: &mut ChaCha8Rng, planted: KernelBug) -> MachineOptions {
    MachineOptions {
        hides: &[],
        passivate_after: Duration::from_secs(rng.random_range(2..=40)),
        snapshot_every: rng.random_range(6..=60),
        planted,
    }
}
