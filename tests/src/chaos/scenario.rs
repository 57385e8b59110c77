//! The scenarios: their names, what each runs on, and how often it injects its fault.

use std::path::Path;

use super::{
    hosts::HostKind,
    load::Crowd,
    options::{Options, Profile},
    stage::Shape,
};

macro_rules! scenarios {
    ($( $(#[doc = $doc:literal])* $variant:ident = $name:literal, $needs:ident, $short:literal, $long:literal; )*) => {
        /// One way in which things go wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Scenario {
            $( $(#[doc = $doc])* $variant, )*
        }

        impl Scenario {
            /// All of them, in the order in which they run.
            pub const ALL: &'static [Self] = &[$( Self::$variant, )*];

            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $name, )* }
            }

            /// What it does, for people.
            pub const fn about(self) -> &'static str {
                match self { $( Self::$variant => concat!($( $doc, )*), )* }
            }

            /// The hosts that it needs.
            pub const fn needs(self) -> Needs {
                match self { $( Self::$variant => Needs::$needs, )* }
            }

            const fn short(self) -> usize {
                match self { $( Self::$variant => $short, )* }
            }

            const fn long(self) -> usize {
                match self { $( Self::$variant => $long, )* }
            }
        }
    };
}

/// The hosts that a scenario needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Any,
    /// Hosts with addresses of their own, to be cut off.
    Network,
    /// A disk of its own: a file system that is mounted, which takes root.
    Disk,
    /// A tracer that makes its disk slow.
    Tracer,
    /// A library that makes its clock wrong.
    Clock,
    /// A second build of the node.
    OldBuild,
    /// A Docker engine of its own, which takes root.
    Docker,
    /// To be asked for by name, with `--kills`.
    Asking,
}

scenarios! {
    /// A worker is killed in mid-turn.
    WorkerKill = "worker-kill", Any, 2, 20;
    /// A worker is killed while it runs a tool's job.
    RunnerKill = "runner-kill", Any, 3, 20;
    /// The Docker engine, or every container, is killed while commands run in them.
    DockerStop = "docker-stop", Docker, 2, 10;
    /// A gateway is killed; its clients resume at the other.
    GatewayKill = "gateway-kill", Any, 3, 20;
    /// The only NATS server is killed, and started again on what it stored.
    BusRestart = "nats-restart", Any, 2, 20;
    /// The leader of the journals' stream, one of three servers, is killed.
    LeaderKill = "nats-leader-kill", Any, 1, 15;
    /// An owner is stopped until others have taken over, then continues.
    Freeze = "freeze-owner", Any, 1, 10;
    /// A worker is cut off from the bus, both ways, until others took over; then healed.
    WorkerPartition = "worker-partition", Network, 1, 10;
    /// A worker hears the bus, but is not heard.
    WorkerMute = "worker-mute", Network, 1, 10;
    /// A worker is heard by the bus, but hears nothing.
    WorkerDeaf = "worker-deaf", Network, 1, 10;
    /// A gateway is cut off from the bus; its clients resume at the other.
    GatewayPartition = "gateway-partition", Network, 1, 10;
    /// A gateway hears the bus, but is not heard.
    GatewayMute = "gateway-mute", Network, 1, 10;
    /// A gateway is heard by the bus, but hears nothing.
    GatewayDeaf = "gateway-deaf", Network, 1, 10;
    /// A worker's host vanishes: the bus keeps connections that are never closed.
    HalfOpen = "half-open", Network, 1, 10;
    /// Every node is stopped and started in turn, under load.
    RollingRestart = "rolling-restart", Any, 1, 10;
    /// Every node is replaced by another build in turn, and back.
    RollingUpgrade = "rolling-upgrade", OldBuild, 1, 10;
    /// Every sync of the bus's disk takes a fifth of a second, and then a worker is killed.
    SlowDisk = "slow-disk", Tracer, 1, 10;
    /// The bus's disk fills up, and has room again.
    FullDisk = "full-disk", Disk, 1, 10;
    /// The disk of a node alone fills up, and has room again.
    FullDiskAlone = "full-disk-alone", Disk, 1, 10;
    /// A gateway with 500 clients is killed; all of them come to the other at once.
    Storm = "reconnect-storm", Any, 1, 10;
    /// A message kills every worker that takes it.
    Poison = "poison", Any, 1, 10;
    /// A worker's clock jumps by an hour and back by a day, then the worker is killed.
    ClockJump = "clock-jump", Clock, 1, 10;
    /// A chain's first provider goes down in mid-answer and comes back; then both of its providers do.
    ProviderOutage = "provider-outage", Any, 1, 10;
    /// Under a limit in money, the worker that owns its account is killed.
    BudgetOwnerKill = "budget-owner-kill", Any, 2, 20;
    /// A worker that has reserved under a limit is stopped until the window is over, then continues.
    HolderFreeze = "holder-freeze", Clock, 1, 10;
    /// Workers, gateways and the NATS server are killed at random.
    RandomKills = "random-kills", Asking, 0, 0;
}

/// What a poisonous message has in it.
pub(super) const POISON: &str = "a drop of poison";

// === impl Scenario ===

impl Scenario {
    /// The scenario of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|one| one.as_str() == name)
    }

    /// How many faults it does.
    pub fn iterations(self, options: &Options) -> usize {
        let usual = match options.profile {
            Profile::Short => self.short(),
            Profile::Long => self.long(),
        };
        let kills = if self == Self::RandomKills { options.kills } else { None };
        kills.or(options.iterations).unwrap_or(usual)
    }

    /// Who takes part.
    pub const fn crowd(self) -> Crowd {
        let usual = Crowd { talkers: 8, followers: 0, at_one_gateway: false };
        match self {
            Self::Storm => Crowd { talkers: 20, followers: 480, at_one_gateway: true },
            // Few enough that no circuit of the second provider opens, which would make turns wait longer.
            Self::SlowDisk | Self::FullDiskAlone | Self::ProviderOutage => {
                Crowd { talkers: 4, ..usual }
            }
            _ => usual,
        }
    }

    /// Clients with errands: tools, approvals and plans; and commands in containers.
    pub const fn errands(self) -> (usize, usize) {
        match self {
            Self::RunnerKill => (6, 0),
            Self::DockerStop => (3, 3),
            // Tools alone: rounds of them move to the other provider too.
            Self::ProviderOutage => (1, 0),
            // Readers alone; messages that are to be refused; and times that end turns and calls.
            Self::Storm
            | Self::FullDisk
            | Self::FullDiskAlone
            | Self::ClockJump
            | Self::HolderFreeze => (0, 0),
            _ => (3, 0),
        }
    }

    /// The milliseconds within which half of the turns, and all but one of a hundred, must
    /// continue; and whether a living owner may lose its session in mid-turn.
    pub(super) const fn targets(self) -> (Option<u64>, Option<u64>, bool) {
        match self {
            Self::WorkerKill | Self::BudgetOwnerKill | Self::RandomKills => {
                (Some(1_000), Some(3_000), true)
            }
            Self::Freeze
            | Self::HolderFreeze
            | Self::WorkerPartition
            | Self::WorkerMute
            | Self::WorkerDeaf => (None, Some(10_000), true),
            Self::GatewayKill | Self::Storm => (None, Some(2_000), true),
            Self::LeaderKill => (None, None, false),
            _ => (None, None, true),
        }
    }

    /// Whether no other one plays beside it: it measures times in which the speed of the machine
    /// shows, brings the machine to its limit, or has a Docker engine.
    pub(super) const fn is_alone(self) -> bool {
        matches!(
            self,
            Self::WorkerKill
                | Self::GatewayKill
                | Self::Storm
                | Self::BudgetOwnerKill
                | Self::ProviderOutage
                | Self::DockerStop
                | Self::RandomKills
        )
    }

    /// Whether it proves nothing unless an owner was fenced.
    pub const fn must_fence(self) -> bool {
        matches!(
            self,
            Self::Freeze
                | Self::HolderFreeze
                | Self::WorkerPartition
                | Self::WorkerMute
                | Self::WorkerDeaf
        )
    }

    /// Whether a limit in money holds for all calls.
    pub(super) const fn has_budget(self) -> bool {
        matches!(self, Self::BudgetOwnerKill | Self::HolderFreeze)
    }

    /// What it runs on; `disk` is a small one of its own, if it needs one.
    pub fn shape(self, kind: HostKind, disk: &Path) -> Shape {
        let mut shape = Shape {
            kind,
            servers: 1,
            gateways: 2,
            workers: 3,
            providers: 1,
            tokens: 16,
            delay_ms: 50,
            budget: self.has_budget(),
            // Where clocks jump, the days of events are not those of this program.
            audited: self == Self::BudgetOwnerKill,
            store: None,
            vars: Vec::new(),
            program: None,
        };
        match self {
            Self::LeaderKill => (shape.servers, shape.workers) = (3, 2),
            Self::Storm => (shape.tokens, shape.delay_ms) = (10, 400),
            Self::ProviderOutage => (shape.providers, shape.tokens) = (2, 8),
            Self::FullDisk => shape.store = Some(disk.to_owned()),
            Self::FullDiskAlone => {
                shape.store = Some(disk.to_owned());
                shape.servers = 0;
            }
            Self::Poison => {
                let poison = format!("poison:{POISON}");
                shape.vars.push(("worker", "CLAWNODE_TEST_KILL".to_owned(), poison));
            }
            _ => {}
        }
        shape
    }
}
