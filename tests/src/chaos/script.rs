//! The scripts: what each scenario does to its stage, at times that its seed decides.

use std::{fs, ops::Range, path::PathBuf, sync::atomic::AtomicUsize, time::Duration};

use clawnode_cluster::{Clock, SystemClock};
use clawnode_proto::{session::TurnOutcome, view::StatusView};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;
use tokio::time::Instant;

use super::{
    ChaosError,
    client::{Client, Told},
    disk::Disk,
    errands::Errands,
    evidence::{Fault, Hits},
    hosts::Cut,
    load::{Board, Load},
    nodes::Role,
    scenario::{POISON, Scenario},
    stage::{JOURNAL, Stage},
    transcript::Transcript,
    wait::{PATIENCE, eventually, pass},
};

/// When the next fault comes, in milliseconds.
const CALM: Range<u64> = 200..1_200;
/// How long a disk is full.
const A_WHILE: Duration = Duration::from_secs(4);
/// Messages to a full disk of which one must be refused.
const REFUSED_BY: usize = 20;
/// Messages, the last ones, whose sessions a lost worker may own: some of each client.
const RECENT: usize = 24;
/// Deaths of the workers after which a poisonous message must be out of service.
const DEATHS_MAX: usize = 40;

/// A scenario in progress.
#[derive(Debug)]
pub(super) struct Play<'a> {
    pub stage: &'a mut Stage,
    pub load: &'a Load,
    pub errands: &'a Errands,
    /// What its schedule follows from.
    pub random: ChaCha8Rng,
    /// How many faults it does.
    pub iterations: usize,
    /// The disk of its own, if it has one.
    pub disk: Option<&'a Disk>,
    /// The other build, if there is one.
    pub other: Option<PathBuf>,
    /// Owners that were fenced before the first fault.
    pub fenced_before: u64,
    /// What was done.
    pub faults: Vec<Fault>,
    /// What the scenario itself holds to be wrong.
    pub complaints: Vec<String>,
    /// Sessions that it poisoned.
    pub excused: Vec<String>,
    /// How often a dead worker was found with a part of the account.
    pub stranded: AtomicUsize,
}

// === impl Play ===

impl Play<'_> {
    /// Plays it to the end.
    pub(super) async fn play(&mut self, scenario: Scenario) -> Result<(), ChaosError> {
        for _ in 0..self.iterations {
            self.round(scenario).await?;
            self.calm().await;
            if self.faults.is_empty() {
                self.fenced_before = self.stage.fenced();
            }
            match scenario {
                Scenario::WorkerKill => {
                    let place = self.owner().await?;
                    self.kill_at(place).await?;
                }
                Scenario::RunnerKill => self.runner_kill().await?,
                Scenario::DockerStop => self.docker_stop().await?,
                Scenario::SlowDisk => self.slow_disk().await?,
                Scenario::GatewayKill => self.kill(Role::Gateway).await?,
                // The first is where the crowd is.
                Scenario::Storm => self.kill_at(0).await?,
                Scenario::BusRestart => self.bus_restart().await?,
                Scenario::LeaderKill => self.leader_kill().await?,
                Scenario::Freeze => self.freeze().await?,
                Scenario::WorkerPartition => self.partition(Role::Worker, Cut::Both).await?,
                Scenario::WorkerMute => self.partition(Role::Worker, Cut::Speech).await?,
                Scenario::WorkerDeaf => self.partition(Role::Worker, Cut::Hearing).await?,
                Scenario::GatewayPartition => self.partition(Role::Gateway, Cut::Both).await?,
                Scenario::GatewayMute => self.partition(Role::Gateway, Cut::Speech).await?,
                Scenario::GatewayDeaf => self.partition(Role::Gateway, Cut::Hearing).await?,
                Scenario::HalfOpen => self.half_open().await?,
                Scenario::RollingRestart => self.roll().await?,
                Scenario::RollingUpgrade => self.upgrade().await?,
                Scenario::FullDisk | Scenario::FullDiskAlone => self.full_disk().await?,
                Scenario::Poison => self.poison().await?,
                Scenario::ClockJump => self.clock_jump().await?,
                Scenario::ProviderOutage => self.provider_outage().await?,
                Scenario::BudgetOwnerKill => self.budget_owner_kill().await?,
                Scenario::HolderFreeze => self.holder_freeze().await?,
                Scenario::RandomKills => self.random_kill().await?,
            }
        }
        // A crowd has shown by its settling that it is served again.
        if scenario != Scenario::Storm {
            self.round(scenario).await?;
        }
        if scenario == Scenario::BudgetOwnerKill { self.all_reconciled().await } else { Ok(()) }
    }

    /// Every client has another turn, or more.
    async fn round(&self, scenario: Scenario) -> Result<(), ChaosError> {
        match scenario {
            Scenario::BudgetOwnerKill => self.with_operator(self.load.round()).await,
            _ => self.load.round().await,
        }
    }

    pub(super) async fn calm(&mut self) {
        let wait = self.random.random_range(CALM);
        pass(Duration::from_millis(wait)).await;
    }

    /// One of the nodes with this role.
    fn pick(&mut self, role: Role) -> Result<usize, ChaosError> {
        let places = self.stage.of(role);
        let at = self.random.random_range(0..places.len().max(1));
        places.get(at).copied().ok_or_else(|| ChaosError::Missing(format!("no {role:?} here")))
    }

    pub(super) fn fault(&mut self, what: impl Into<String>, hits: Hits) -> Instant {
        let (at, what) = (Instant::now(), what.into());
        tracing::info!(what, "fault");
        self.faults.push(Fault { at, wall: SystemClock.now(), what, hits });
        at
    }

    /// A fault that hits one node.
    pub(super) fn fault_at(&mut self, place: usize, what: &str) -> Instant {
        let node = &self.stage.nodes[place];
        let hits = match node.role {
            Role::Gateway => Hits::Clients,
            Role::Worker => Hits::Owners(node.process().into_iter().collect()),
            Role::Alone => Hits::Everyone,
        };
        let what = format!("{what} {}", node.name);
        self.fault(what, hits)
    }

    async fn kill(&mut self, role: Role) -> Result<(), ChaosError> {
        let place = self.pick(role)?;
        self.kill_at(place).await
    }

    pub(super) async fn kill_at(&mut self, place: usize) -> Result<(), ChaosError> {
        let at = self.fault_at(place, "kill -9 of");
        self.stage.nodes[place].kill().await?;
        self.load.settled(at).await?;
        self.stage.nodes[place].start().await
    }

    /// Kills a worker while it runs a tool's job, whichever process has the job's session.
    async fn runner_kill(&mut self) -> Result<(), ChaosError> {
        let number = self.random.random_range(0..1_000_usize);
        let stage = &self.stage;
        let place = eventually("a run of a tool", PATIENCE, async || {
            let running = stage.counter.under_way();
            let at = number.checked_rem(running.len()).unwrap_or(0);
            let place = running.get(at).and_then(|name| stage.place_named(name));
            place.ok_or_else(|| format!("{running:?} run"))
        })
        .await?;
        self.kill_at(place).await?;
        self.errands.round().await
    }

    /// Kills every container; or the engine, and what it ran, as if its host had ended.
    async fn docker_stop(&mut self) -> Result<(), ChaosError> {
        let is_engine = self.faults.len() % 2 == 1;
        let what = if is_engine { "kill -9 of the engine" } else { "kill of every container" };
        self.errands.round().await?;
        let missing = || ChaosError::Missing("this stage has no containers".to_owned());
        if is_engine {
            let at = self.fault(what, Hits::Nothing);
            self.stage.containers.as_mut().ok_or_else(missing)?.kill().await?;
            self.calm().await;
            self.stage.containers.as_mut().ok_or_else(missing)?.restart().await?;
            self.load.settled(at).await?;
        } else {
            let killed = self.stage.containers.as_ref().ok_or_else(missing)?.kill_all().await?;
            self.fault(format!("{what} ({killed})"), Hits::Nothing);
        }
        self.errands.round().await
    }

    async fn bus_restart(&mut self) -> Result<(), ChaosError> {
        let at = self.fault("kill -9 of the NATS server", Hits::Everyone);
        self.stage.bus()?.kill(0).await?;
        self.calm().await;
        self.stage.bus()?.restart(0).await?;
        self.load.settled(at).await
    }

    async fn leader_kill(&mut self) -> Result<(), ChaosError> {
        let leader = self.stage.bus()?.leader_of(JOURNAL).await?;
        let at = self.fault(format!("kill -9 of leader nats{}", leader + 1), Hits::Everyone);
        self.stage.bus()?.kill(leader).await?;
        self.load.settled(at).await?;
        self.stage.bus()?.restart(leader).await
    }

    /// Waits until an owner that came back has found itself fenced.
    pub(super) async fn fenced(&mut self, before: u64) -> Result<(), ChaosError> {
        let stage = &self.stage;
        eventually("that an owner which came back is fenced", PATIENCE, async || {
            let now = stage.fenced();
            if now > before { Ok(()) } else { Err(format!("{now} times in all logs")) }
        })
        .await
    }

    /// A worker that owns a turn which is under way. The schedule gives one number, however long it
    /// takes to find a turn.
    pub(super) async fn owner(&mut self) -> Result<usize, ChaosError> {
        let number = self.random.random_range(0..1_000_usize);
        let (stage, board) = (&self.stage, self.load.board());
        eventually("a turn under way", PATIENCE, async || {
            let speaking = board.speaking();
            let at = number.checked_rem(speaking.len()).unwrap_or(0);
            let Some(session) = speaking.get(at) else { return Err("silence".to_owned()) };
            let owner = stage.owner(session).await.map_err(|error| error.to_string())?;
            let place = owner.and_then(|owner| stage.place_of(owner));
            place.ok_or_else(|| format!("{owner:?} is not here"))
        })
        .await
    }

    /// The sessions of this worker that were spoken with last.
    pub(super) async fn sessions_of(&self, place: usize) -> Result<Vec<String>, ChaosError> {
        let mut sessions = Vec::new();
        for session in self.load.board().recent(RECENT) {
            let owner = self.stage.owner(&session).await?;
            if owner.and_then(|owner| self.stage.place_of(owner)) == Some(place) {
                sessions.push(session);
            }
        }
        Ok(sessions)
    }

    /// Waits until what was under way has come to an end, and one of these sessions of a worker that
    /// is lost belongs to another. The first does not imply the second: a worker that hears nothing
    /// still ends a turn whose last append it can say.
    pub(super) async fn taken_over(
        &self,
        place: usize,
        sessions: &[String],
        since: Instant,
    ) -> Result<(), ChaosError> {
        self.load.settled(since).await?;
        eventually("a takeover from a worker that is lost", PATIENCE, async || {
            for session in sessions {
                let owner = self.stage.owner(session).await.map_err(|error| error.to_string())?;
                if owner.and_then(|owner| self.stage.place_of(owner)) != Some(place) {
                    return Ok(());
                }
            }
            Err(format!("{sessions:?} are all its own"))
        })
        .await
    }

    async fn freeze(&mut self) -> Result<(), ChaosError> {
        let place = self.owner().await?;
        let before = self.stage.fenced();
        let sessions = self.sessions_of(place).await?;
        let at = self.fault_at(place, "SIGSTOP of");
        self.stage.nodes[place].signal(Signal::STOP)?;
        let settled = self.taken_over(place, &sessions, at).await;
        // Also when nothing settled: what is left must be able to stop.
        self.stage.nodes[place].signal(Signal::CONT)?;
        settled?;
        self.fenced(before).await
    }

    async fn partition(&mut self, role: Role, cut: Cut) -> Result<(), ChaosError> {
        let place = match role {
            Role::Worker => self.owner().await?,
            _ => self.pick(role)?,
        };
        let before = self.stage.fenced();
        let bus = self.stage.bus()?.addresses();
        let sessions =
            if role == Role::Worker { self.sessions_of(place).await? } else { Vec::new() };
        let at = self.fault_at(place, "cut off");
        let host = self.stage.nodes[place].host.clone();
        self.stage.network.cut(&host, &bus, cut)?;
        let settled = match role {
            Role::Worker => self.taken_over(place, &sessions, at).await,
            _ => self.load.settled(at).await,
        };
        self.stage.network.heal(&host)?;
        settled?;
        if role == Role::Worker { self.fenced(before).await } else { Ok(()) }
    }

    async fn half_open(&mut self) -> Result<(), ChaosError> {
        let place = self.owner().await?;
        let mut all = self.stage.bus()?.addresses();
        all.push(self.stage.network.own());
        let at = self.fault_at(place, "vanishing of the host of");
        let host = self.stage.nodes[place].host.clone();
        self.stage.network.cut(&host, &all, Cut::Both)?;
        self.stage.nodes[place].kill().await?;
        let settled = self.load.settled(at).await;
        self.stage.network.heal(&host)?;
        settled?;
        self.stage.nodes[place].start().await
    }

    /// Stops and starts a node in good order.
    async fn turn_over(&mut self, place: usize) -> Result<(), ChaosError> {
        self.fault_at(place, "stop of");
        let name = self.stage.nodes[place].name.clone();
        self.complaints.extend(self.stage.nodes[place].stop().await?.complaint(&name));
        self.stage.nodes[place].start().await?;
        self.load.round().await
    }

    async fn roll(&mut self) -> Result<(), ChaosError> {
        for place in 0..self.stage.nodes.len() {
            self.turn_over(place).await?;
            self.calm().await;
        }
        Ok(())
    }

    async fn upgrade(&mut self) -> Result<(), ChaosError> {
        let Some(other) = self.other.clone() else {
            return Err(ChaosError::Missing("there is no other build".to_owned()));
        };
        for place in 0..self.stage.nodes.len() {
            let own = std::mem::replace(&mut self.stage.nodes[place].program, other.clone());
            self.turn_over(place).await?;
            self.calm().await;
            // Every other one goes back at once, so that both builds serve side by side.
            if place % 2 == 1 {
                self.stage.nodes[place].program = own;
                self.turn_over(place).await?;
            }
        }
        Ok(())
    }

    async fn slow_disk(&mut self) -> Result<(), ChaosError> {
        let at = self.fault("the bus's disk is slow", Hits::Everyone);
        let mut tracer = self.stage.bus()?.slow(0).await?;
        self.load.settled(at).await?;
        self.load.round().await?;
        self.kill(Role::Worker).await?;
        // On SIGTERM, it detaches from the server first.
        tracer.signal(Signal::TERM)?;
        tracer.exit(PATIENCE).await.map(drop)
    }

    async fn full_disk(&mut self) -> Result<(), ChaosError> {
        let Some(disk) = self.disk else {
            return Err(ChaosError::Missing("there is no disk to fill".to_owned()));
        };
        self.fault("the disk is full", Hits::Everyone);
        disk.fill()?;
        pass(A_WHILE).await;
        // A node alone takes nothing new; of the bus, who waits for it may only be slow.
        let alone = self.stage.bus.is_none();
        let refused = if alone { self.refused().await } else { Ok(()) };
        disk.free()?;
        refused?;
        let at = Instant::now();
        // As a service manager would: what ended is started again. NATS stops keeping streams
        // when its disk is full, until it is started again.
        if self.stage.bus.is_some() {
            let bus = self.stage.bus()?;
            for server in 0..bus.count() {
                bus.kill(server).await?;
                bus.restart(server).await?;
            }
        }
        let revived = self.stage.revive().await?;
        tracing::info!(?revived, "the disk has room again");
        self.load.settled(at).await
    }

    /// Sends messages, each to a session of its own, until one is refused. What was set aside for
    /// the log lasts for a while, and what is accepted then waits for room.
    async fn refused(&mut self) -> Result<(), ChaosError> {
        for number in 0..REFUSED_BY {
            let one = Transcript::new(&format!("late{number}"), "any room?", Instant::now());
            self.excused.push(one.session());
            let board = Board::default();
            let told = Told::new(&board, board.add(one));
            let mut client = Client::new(self.stage.entrance(), 0);
            client.turn(&told, Instant::now() + Duration::from_secs(1)).await;
            if board.all().iter().any(|one| !one.refusals.is_empty()) {
                return Ok(());
            }
        }
        Err(ChaosError::Late("a refusal for want of room".to_owned()))
    }

    /// Sends a message that kills its workers, and starts them again until it is out of service.
    async fn poison(&mut self) -> Result<(), ChaosError> {
        let peer = format!("poisoned{}", self.excused.len());
        let victim = Transcript::new(&peer, POISON, Instant::now());
        self.excused.push(victim.session());
        let session = victim.session();
        let board = Board::default();
        let index = board.add(victim);
        let entrance = self.stage.entrance();
        let owners = self.stage.nodes.iter().filter_map(super::nodes::Slot::process).collect();
        let at = self.fault("a poisonous message", Hits::Owners(owners));
        let task = tokio::spawn(async move {
            let mut client = Client::new(entrance, 0);
            client.turn(&Told::new(&board, index), Instant::now() + PATIENCE).await;
            board.all()
        });
        let mut deaths = 0;
        while !task.is_finished() && deaths < DEATHS_MAX {
            deaths += self.stage.revive().await?.len();
            pass(Duration::from_millis(100)).await;
        }
        task.abort();
        // Its client got an error, and its session is out of service, with all that was sent to it.
        let heard = task.await.unwrap_or_default();
        let outcome = heard.first().and_then(Transcript::outcome);
        let state =
            self.stage.gateway().await?.history(&session).await.map(|history| history.state);
        if matches!(outcome, Some(TurnOutcome::Completed { .. }))
            || !state.as_ref().is_ok_and(|state| state == "quarantined")
        {
            self.complaints.push(format!(
                "after {deaths} deaths a poisoned session is {state:?}, and its turn ended \
                 {outcome:?} (C16)"
            ));
        }
        self.stage.revive().await?;
        tracing::info!(deaths, "the poison is out of service");
        self.load.settled(at).await
    }

    async fn clock_jump(&mut self) -> Result<(), ChaosError> {
        let place = self.owner().await?;
        let clock = self.stage.dir.join(clock_of(&self.stage.nodes[place].name));
        for jump in ["+3600", "-86400"] {
            self.fault(format!("a clock jumps to {jump} s"), Hits::Nothing);
            fs::write(&clock, jump).map_err(ChaosError::io("set a clock"))?;
            self.warned_of_clock().await?;
            self.load.round().await?;
        }
        self.kill_at(place).await?;
        fs::write(&clock, "+0").map_err(ChaosError::io("set a clock"))
    }

    /// Waits until `status` says that a node's clock differs from the others'.
    async fn warned_of_clock(&self) -> Result<(), ChaosError> {
        eventually("a warning of a clock that differs", PATIENCE, async || {
            let gateway = self.stage.gateway().await.map_err(|error| error.to_string())?;
            let status = gateway.call::<StatusView>("status", serde_json::json!({})).await;
            let status = status.map_err(|error| error.to_string())?;
            let names: Vec<String> = status.warnings.into_iter().map(|one| one.name).collect();
            let warned = names.iter().any(|name| name == "nodes.clock_differs");
            if warned { Ok(()) } else { Err(format!("{names:?}")) }
        })
        .await
    }

    async fn random_kill(&mut self) -> Result<(), ChaosError> {
        match self.random.random_range(0..10) {
            0 => self.bus_restart().await,
            1 | 2 => self.kill(Role::Gateway).await,
            _ => self.kill(Role::Worker).await,
        }
    }
}

/// The file with a node's clock, in the stage's folder.
pub(super) fn clock_of(node: &str) -> String {
    format!("{node}.clock")
}
