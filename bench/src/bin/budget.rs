//! `budget::admit/holders=3`, `budget::turn` and `budget::cold`: what budgets cost.
//!
//! The first: calls of three processes reserve and settle under one account, whose machine and holders are
//! those of nodes, with no bus and no disk between them. The second, with `--turns`: turns of a node whose
//! calls are under three accounts beside those of a node without limits, one after the other on one core; with
//! `--new-users` every tenth turn begins an account of a user, else all are of one user, and slices are warm. The
//! third, with `--turns` too: each turn is the first one of a new user, so its call waits until their account is there and
//! has granted a slice; what that takes is the difference of the two nodes. Run with `cargo run --release -p
//! clawnode-bench --bin budget`.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use clap::{Parser, Subcommand};
use clawnode_bench::{
    Error, Load, Node, NodeSetup, Pin, Place, Report, Row, Storage, Table, load, model, percentile,
    serve_model,
};
use clawnode_budget::{
    Budget, BudgetJob,
    holder::{
        CallCost, CallNeeds, CallUsage, Holder, HolderInput, HolderOptions, HolderOutput, Need,
        Reservation,
    },
};
use clawnode_cluster::AppendAnswer;
use clawnode_kernel::{
    Activation, LoadedJournal, Machine, MachineInput, MachineOptions, MachineOutput, Now,
};
use clawnode_proto::{
    Incarnation, Position, ProcessId, Timestamp,
    budget::{
        AMOUNT_MOST, AccountKey, BudgetInput, BudgetLimit, BudgetUnit, LimitKey, LimitSource,
        WindowLength,
    },
};

/// What the environment says to the copy of this program that is on its core already.
const PINNED: &str = "CLAWNODE_BENCH_PINNED";
/// Admissions a second that one account is for.
const ADMISSIONS: f64 = 10_000.0;
/// How much longer a turn under three accounts may take than one under none.
const TURN_MOST: f64 = 1.03;
/// How much longer the first call of a cold account may take, in milliseconds: embedded, and on NATS.
const COLD_MOST_MS: (f64, f64) = (4.0, 8.0);
/// Runs before the first round are not counted.
const WARM_UP: Duration = Duration::from_millis(1_500);
/// The processes whose calls reserve.
const HOLDERS: u64 = 3;
/// Calls of a process that run at the same time.
const RUNNING: u64 = 50;
/// So many calls begin in a millisecond of the time that holders have.
const A_MILLISECOND: u64 = 20;
const USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
/// Limits that no run reaches: each call takes part in all that a limit does.
const LIMITED: &str = "\
[budgets.cluster]
usd_per_day = \"1000000\"
[budgets.agents.default]
tokens_per_day = 1_000_000_000_000
[budgets.users]
loops_per_hour = 1_000_000_000
[prices.\"*/*\"]
input = \"1\"
output = \"5\"
";
/// The same node, without a limit.
const UNLIMITED: &str = "[prices.\"*/*\"]\ninput = \"1\"\noutput = \"5\"\n";

/// Measures what budgets cost.
#[derive(Debug, Parser)]
struct Args {
    #[command(subcommand)]
    role: Option<Role>,
    /// Calls that reserve and settle, in each round
    #[arg(long, default_value_t = 300_000)]
    calls: u64,
    /// Turns of nodes, too
    #[arg(long)]
    turns: bool,
    /// Each session is of a new user, whose account begins with its first call: in every tenth turn
    #[arg(long)]
    new_users: bool,
    /// Rounds
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds of a round of turns
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// The core that everything shares
    #[arg(long, default_value_t = 1)]
    core: u16,
    /// Keep everything on this NATS server
    #[arg(long)]
    nats: Option<String>,
    #[command(flatten)]
    place: Place,
}

/// What the other processes of the bench do.
#[derive(Debug, Subcommand)]
enum Role {
    /// Be the scripted model
    Model {
        #[arg(long)]
        tokens: u32,
    },
}

/// An account, and the holders of processes.
struct World {
    account: Machine<Budget>,
    holders: Vec<Holder>,
    now: u64,
    position: u64,
    inputs: u64,
    /// For the account, in order.
    inbox: VecDeque<(Option<usize>, BudgetInput)>,
    granted: u64,
}

fn main() -> Result<ExitCode, Error> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let args = Args::parse();
    if args.role.is_none() && std::env::var_os(PINNED).is_none() {
        // The runtime counts cores when it starts: begin again on the one.
        let status = Command::new("taskset")
            .args(["-c", &args.core.to_string()])
            .arg(std::env::current_exe()?)
            .args(std::env::args_os().skip(1))
            .env(PINNED, "1")
            .status()?;
        return Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match &args.role {
            Some(Role::Model { tokens }) => serve_model(*tokens, 0).await,
            None => Box::pin(bench(&args)).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn bench(args: &Args) -> Result<(), Error> {
    let mut table = Table::default();
    table.add(admissions(args)?);
    if args.turns {
        for row in turns(args).await? {
            table.add(row);
        }
    }
    table.json()?;
    Ok(())
}

// === admissions ===

#[expect(clippy::cast_precision_loss, reason = "counts of calls are far below 2^52")]
fn admissions(args: &Args) -> Result<Row, Error> {
    let (mut best, mut inputs) = (Duration::MAX, 0);
    for _ in 0..args.rounds.max(1) {
        let mut world = World::new()?;
        let began = Instant::now();
        world.run(args.calls)?;
        best = best.min(began.elapsed());
        inputs = world.inputs;
    }
    let rate = args.calls as f64 / best.as_secs_f64();
    Ok(Row::new(format!("budget::admit/holders={HOLDERS}"))
        .figure("admissions_s", rate)
        .figure("us_per_admission", best.as_secs_f64() * 1e6 / args.calls as f64)
        .figure("inputs_per_1000", inputs as f64 * 1e3 / args.calls as f64)
        .at_least("admissions/s", rate, ADMISSIONS))
}

impl World {
    fn new() -> Result<Self, Error> {
        let options = MachineOptions { snapshot_every: 100_000, ..MachineOptions::default() };
        let me = Incarnation { process: ProcessId::from_u128(99), counter: 1 };
        let entity = AccountKey::Cluster.entity();
        let (account, _) = Machine::new(entity, me, Activation::Fresh, options, at(1));
        let holder = |number: u64| {
            Holder::new(ProcessId::from_u128(number.into()), HolderOptions::default())
        };
        let mut world = Self {
            account,
            holders: (1..=HOLDERS).map(holder).collect(),
            now: 1_000,
            position: 0,
            inputs: 0,
            inbox: VecDeque::new(),
            granted: 0,
        };
        world.account_takes(MachineInput::Loaded(LoadedJournal::default()))?;
        let limit =
            BudgetLimit { ask_at: 100, ..BudgetLimit::new(USD.unit, USD.window, AMOUNT_MOST) };
        let (source, limits) = (LimitSource::Configured, Some(vec![limit]));
        world.inbox.push_back((None, BudgetInput::Set { source, limits, decides: None }));
        world.delivers()?;
        Ok(world)
    }

    /// So many calls, one process after the other. Each settles when some others have begun.
    fn run(&mut self, calls: u64) -> Result<(), Error> {
        for number in 1..=calls {
            if number.is_multiple_of(A_MILLISECOND) {
                self.now += 1;
                for holder in 0..self.holders.len() {
                    self.holder_takes(holder, HolderInput::Tick)?;
                }
            }
            let holder = usize::try_from(number % HOLDERS)?;
            let cost = CallCost { fixed: 700 + number % 100, per_million: 15_000_000 };
            let need = Need { account: AccountKey::Cluster, limit: USD, cost, beside: 0 };
            let needs = CallNeeds { needs: vec![need], least_output: 256, most_output: 4_096 };
            self.holder_takes(holder, HolderInput::Reserve(Reservation(number), needs))?;
            if let Some(before) = number.checked_sub(RUNNING * HOLDERS).filter(|before| *before > 0)
            {
                let usage = CallUsage::Known { usd: 5_000, tokens: 900 };
                let settle = HolderInput::Settle(Reservation(before), usage);
                self.holder_takes(usize::try_from(before % HOLDERS)?, settle)?;
            }
        }
        // The last ones may wait for a slice.
        self.now += 1_000;
        for holder in 0..self.holders.len() {
            self.holder_takes(holder, HolderInput::Tick)?;
        }
        if self.granted == calls { Ok(()) } else { Err("a call was not granted".into()) }
    }

    fn holder_takes(&mut self, holder: usize, input: HolderInput) -> Result<(), Error> {
        let Some(machine) = self.holders.get_mut(holder) else { return Ok(()) };
        for out in machine.handle(Timestamp(self.now), input) {
            match out {
                HolderOutput::Send(_, body) => self.inbox.push_back((Some(holder), body)),
                HolderOutput::Granted(..) => self.granted += 1,
                HolderOutput::Waits(..) => {}
                HolderOutput::Refused(..) => return Err("a call was refused".into()),
            }
        }
        self.delivers()
    }

    /// The account takes what was sent to it.
    fn delivers(&mut self) -> Result<(), Error> {
        while let Some((from, body)) = self.inbox.pop_front() {
            self.inputs += 1;
            let name = format!("n{}", self.inputs).parse()?;
            let input = Budget::input(&AccountKey::Cluster, name, Timestamp(self.now), &body)?;
            self.account_takes(MachineInput::Deliver(vec![input]))?;
            if let Some(holder) = from {
                self.holder_takes(holder, HolderInput::Stored(AccountKey::Cluster, true))?;
            }
        }
        Ok(())
    }

    fn account_takes(&mut self, input: MachineInput<Budget>) -> Result<(), Error> {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for out in self.account.handle(at(self.now), input) {
                match out {
                    MachineOutput::Append { .. } => {
                        self.position += 1;
                        let stored = AppendAnswer::Stored(Position(self.position));
                        inputs.push_back(MachineInput::Answered(stored));
                    }
                    MachineOutput::Start(effect, job) => {
                        if let BudgetJob::Tell(process, standing) = job {
                            let to =
                                self.holders.iter().position(|holder| holder.process() == process);
                            let told = HolderInput::Told(standing);
                            to.map_or(Ok(()), |to| self.holder_takes(to, told))?;
                        }
                        inputs.push_back(MachineInput::Confirmed(effect));
                    }
                    MachineOutput::Archive { .. } => inputs.push_back(MachineInput::ArchiveFailed),
                    MachineOutput::Stop(end) => return Err(format!("{end:?}").into()),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn at(millis: u64) -> Now {
    Now { wall: Timestamp(millis), steady: Timestamp(millis) }
}

// === turns ===

/// A node, what its turns took, and the processor time of that.
struct Side {
    node: Node,
    reports: Vec<Report>,
    cpu: Duration,
}

/// Turns under three accounts beside turns under none: with warm slices, and each with a cold account.
async fn turns(args: &Args) -> Result<[Row; 2], Error> {
    let (binary, parent) = (args.place.binary()?, args.place.dir());
    let dir = tempfile::tempdir_in(parent)?;
    let (_model, model) = model(Pin(None), 16).await?;
    let mut sides = Vec::new();
    for (name, config) in [("limited", LIMITED), ("unlimited", UNLIMITED)] {
        let home: PathBuf = dir.path().join(name);
        std::fs::create_dir_all(&home)?;
        let node = node(args, &binary, &home, (&model, config)).await?;
        sides.push(Side { node, reports: Vec::new(), cpu: Duration::ZERO });
    }
    rounds(args, &mut sides, false).await?;
    let ((p50, cpu), (free_p50, free_cpu)) = both(&sides)?;
    let warm = Row::new(format!("budget::turn/accounts=3,new_users={}", args.new_users))
        .figure("p50_ms", p50)
        .figure("free_p50_ms", free_p50)
        .figure("ratio", p50 / free_p50)
        .figure("node_cpu_us_per_turn", cpu)
        .figure("free_cpu_us_per_turn", free_cpu)
        .at_most("p50 / free", p50 / free_p50, TURN_MOST)
        .at_most("cpu / free", cpu / free_cpu, TURN_MOST);
    rounds(args, &mut sides, true).await?;
    let ((p50, cpu), (free_p50, free_cpu)) = both(&sides)?;
    let most = if args.nats.is_some() { COLD_MOST_MS.1 } else { COLD_MOST_MS.0 };
    let cold = Row::new("budget::cold/accounts=3")
        .figure("p50_ms", p50)
        .figure("free_p50_ms", free_p50)
        .figure("more_ms", p50 - free_p50)
        .figure("node_cpu_us_per_turn", cpu)
        .figure("free_cpu_us_per_turn", free_cpu)
        .at_most("more ms", p50 - free_p50, most);
    Ok([warm, cold])
}

/// Rounds of turns at both nodes; the first one is not counted.
async fn rounds(args: &Args, sides: &mut [Side], is_cold: bool) -> Result<(), Error> {
    for side in sides.iter_mut() {
        (side.reports, side.cpu) = (Vec::new(), Duration::ZERO);
    }
    for round in 0..=args.rounds {
        for Side { node, reports, cpu } in sides.iter_mut() {
            let before = node.process().cpu().await?;
            let report = load(&plan(args, &node.addr, round, is_cold)).await?;
            if round > 0 {
                *cpu += node.process().cpu().await?.saturating_sub(before);
                reports.push(report);
            }
        }
    }
    Ok(())
}

/// p50 in milliseconds, and microseconds of processor time for a turn.
type Figures = (f64, f64);

/// The figures of the node with limits, and of the one without.
fn both(sides: &[Side]) -> Result<(Figures, Figures), Error> {
    let mut figures = sides.iter().map(|side| figures(&side.reports, side.cpu));
    Ok(figures.next().zip(figures.next()).ok_or("two nodes")?)
}

/// p50 in milliseconds, and microseconds of processor time for a turn.
#[expect(clippy::cast_precision_loss, reason = "counts of turns are far below 2^52")]
fn figures(reports: &[Report], cpu: Duration) -> Figures {
    let all = reports.iter().flat_map(|report| report.latencies.iter().copied());
    let mut all: Vec<Duration> = all.collect();
    all.sort_unstable();
    (percentile(&all, 500).as_secs_f64() * 1e3, cpu.as_secs_f64() * 1e6 / all.len() as f64)
}

async fn node(
    args: &Args,
    binary: &Path,
    dir: &Path,
    (model, config): (&str, &str),
) -> Result<Node, Error> {
    let storage = match &args.nats {
        Some(url) => Storage::Nats { url: url.clone() },
        None => Storage::Embedded,
    };
    let pin = Pin(None);
    Node::start(&NodeSetup { binary, dir, model, storage, config, pin, role: None }).await
}

/// The first round only warms up: it asks for the first slices.
fn plan(args: &Args, addr: &str, round: usize, is_cold: bool) -> Load {
    Load {
        addr: addr.to_owned(),
        concurrency: 1,
        turns_per_session: if is_cold { 1 } else { 10 },
        one_user: !is_cold && !args.new_users,
        time: if round == 0 { WARM_UP } else { Duration::from_secs(args.seconds) },
        turns: usize::MAX,
        run: format!("{}-{}{round}", std::process::id(), if is_cold { 'c' } else { 'r' }),
        ends_with: " 16".to_owned(),
    }
}
