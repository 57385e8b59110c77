//! A run: the scenarios are played, judged and written down.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::atomic::AtomicUsize,
    time::Duration,
};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::{
    task::{JoinError, JoinSet},
    time::Instant,
};

use super::{
    ChaosError, budget,
    daemon::tool,
    disk::{self, Disk},
    engine::{self, Containers},
    errands::Errands,
    evidence::Evidence,
    hosts::{self, HostKind},
    judge::{Breach, Verdict, judge},
    ledger::Ledger,
    load::Load,
    options::{Options, Profile},
    outage,
    resume::{percentile, resumes},
    scenario::{Needs, Scenario},
    scorecard::{Score, Scorecard},
    script::{Play, clock_of},
    stage::{Shape, Stage},
    turns::{Planned, Turns},
    wait::PATIENCE,
};

/// The library that makes a clock wrong, from Debian's `libfaketime`; its folder is the machine's.
const FAKETIME: [&str; 2] = [
    "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "/usr/lib/aarch64-linux-gnu/faketime/libfaketimeMT.so.1",
];
/// Stages that are cleared while the next one plays.
const CLOSING_MAX: usize = 4;
/// How long clients may still wait once a scenario could not continue.
const AFTER_FAILURE: Duration = Duration::from_secs(10);
/// Milliseconds by which events are early whose writer's clock jumped by an hour.
const HALF_AN_HOUR: u64 = 30 * 60 * 1_000;
/// The ledger of the long runs.
const LEDGER: &str = "bench/reliability.json";

/// Runs what the options say. Progress goes to `say`.
pub async fn run(options: &Options, mut say: impl FnMut(&str)) -> Result<Scorecard, ChaosError> {
    hosts::sweep();
    disk::sweep();
    let seed = options.seed.unwrap_or_else(|| u64::from(rand::random::<u32>()));
    let out = out(options)?;
    let namespaces = hosts::no_namespaces();
    let mut card = Scorecard {
        commit: commit(),
        profile: options.profile.as_str().to_owned(),
        seed,
        scores: Vec::new(),
    };
    say(&format!("commit {}, seed {seed}, results in {}", card.commit, out.display()));
    let mut turns = Turns::new(plan(options, namespaces.is_none()), options.together());
    // The scripts; all else of a stage has tasks and processes of its own.
    let mut playing = FuturesUnordered::new();
    // A stage is cleared while the next ones play: that is mostly waiting for redeliveries.
    let mut closing: JoinSet<(usize, Score)> = JoinSet::new();
    let mut scores: BTreeMap<usize, Score> = BTreeMap::new();
    loop {
        while closing.len() <= CLOSING_MAX
            && let Some(Planned { at, scenario, kind }) = turns.begin()
        {
            if let Some(why) = missing(scenario, kind, options, &out, namespaces.as_deref()) {
                let score = Score::left_out(scenario.as_str(), kind.as_str(), why);
                take(Ok((at, score)), &mut scores, &mut say);
                turns.end();
                continue;
            }
            let out = &out;
            playing.push(async move { (at, play(scenario, kind, options, (seed, out)).await) });
        }
        tokio::select! {
            Some((at, played)) = playing.next() => {
                turns.end();
                closing.spawn(async move { (at, played.judged().await) });
            }
            Some(score) = closing.join_next() => take(score, &mut scores, &mut say),
            else => break,
        }
    }
    card.scores = scores.into_values().collect();
    write(&card, &out)?;
    if let Some(path) = ledger(options) {
        Ledger::add(&path, &card)?;
        say(&format!("added to {}", path.display()));
    }
    Ok(card)
}

/// Takes the score of a scenario that has ended.
fn take(
    ended: Result<(usize, Score), JoinError>,
    scores: &mut BTreeMap<usize, Score>,
    say: &mut impl FnMut(&str),
) {
    let (at, score) = ended.unwrap_or_else(|error| {
        // Its panic is a defect of this program; it must not pass for a good run.
        let mut score = Score::left_out("unknown", "-", "this program failed in it".to_owned());
        score.violations.push(format!("a scenario could not be played or judged: {error}"));
        (usize::MAX - scores.len(), score)
    });
    say(&score.told());
    scores.insert(at, score);
}

/// What is run, on which hosts.
fn plan(options: &Options, namespaces: bool) -> Vec<(Scenario, HostKind)> {
    let named = !options.scenarios.is_empty();
    let all = if named { options.scenarios.as_slice() } else { Scenario::ALL };
    let mut plan = Vec::new();
    for &scenario in all {
        if scenario.needs() == Needs::Asking && !named && options.kills.is_none() {
            continue;
        }
        let usual = if namespaces { HostKind::Namespaces } else { HostKind::Loopback };
        let kind = match scenario.needs() {
            Needs::Network => HostKind::Namespaces,
            _ => options.hosts.unwrap_or(usual),
        };
        plan.push((scenario, kind));
        // The same on one host, where nothing is between the processes.
        let both = scenario == Scenario::WorkerKill && !named && options.hosts.is_none();
        if both && kind == HostKind::Namespaces {
            plan.push((scenario, HostKind::Loopback));
        }
    }
    plan
}

/// Why a scenario cannot be run; `None` if it can.
fn missing(
    scenario: Scenario,
    kind: HostKind,
    options: &Options,
    out: &Path,
    namespaces: Option<&str>,
) -> Option<String> {
    if kind == HostKind::Namespaces
        && let Some(why) = namespaces
    {
        return Some(why.to_owned());
    }
    let absent = |there: bool, why: &str| (!there).then(|| why.to_owned());
    match scenario.needs() {
        Needs::Any | Needs::Network | Needs::Asking => None,
        Needs::Disk => disk::no_disk(out),
        Needs::Tracer => {
            absent(tool("strace").is_some(), "`strace` is missing: apt-get install strace")
        }
        Needs::Clock => {
            absent(faketime().is_some(), "`libfaketime` is missing: apt-get install libfaketime")
        }
        Needs::Docker => engine::no_engine(),
        Needs::OldBuild => absent(
            options.old_binary.as_ref().is_some_and(|path| path.is_file()),
            "no other build was named: --old-binary FILE",
        ),
    }
}

/// A scenario that was played, before its stage is cleared.
struct Played {
    scenario: Scenario,
    score: Score,
    dir: PathBuf,
    /// The stage, what its clients saw, and what was done; or why there is none.
    rest: Result<(Stage, Evidence), ChaosError>,
    disk: Option<Disk>,
    began: Instant,
    keep: bool,
}

// === impl Played ===

impl Played {
    /// Waits until all work is done, stops everything, and judges.
    async fn judged(self) -> Score {
        let Self { scenario, mut score, dir, rest, disk, began, keep } = self;
        let closed = match rest {
            Ok((stage, evidence)) => Box::pin(stage.close(evidence)).await,
            Err(error) => Err(error),
        };
        match closed {
            Ok(evidence) => fill(&mut score, scenario, &evidence),
            Err(error) => score.violations.push(format!("it could not continue: {error}")),
        }
        drop(disk);
        score.seconds = began.elapsed().as_secs();
        if score.is_good()
            && !keep
            && let Err(error) = fs::remove_dir_all(&dir)
        {
            tracing::warn!(%error, dir = %dir.display(), "logs were left behind");
        }
        score
    }
}

/// Plays one scenario on a stage of its own.
async fn play(
    scenario: Scenario,
    kind: HostKind,
    options: &Options,
    (seed, out): (u64, &Path),
) -> Played {
    let dir = out.join(format!("{}-{}", scenario.as_str(), kind.as_str()));
    let score = Score {
        scenario: scenario.as_str().to_owned(),
        hosts: kind.as_str().to_owned(),
        seed,
        ..Score::default()
    };
    let (began, keep) = (Instant::now(), options.keep);
    let mut disk = None;
    let rest = Box::pin(on_stage(scenario, kind, options, (seed, &dir), &mut disk)).await;
    Played { scenario, score, dir, rest, disk, began, keep }
}

async fn on_stage(
    scenario: Scenario,
    kind: HostKind,
    options: &Options,
    (seed, dir): (u64, &Path),
    disk: &mut Option<Disk>,
) -> Result<(Stage, Evidence), ChaosError> {
    // What an earlier run left there is not this one's evidence.
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(ChaosError::io(format!("empty `{}`", dir.display())))?;
    }
    if scenario.needs() == Needs::Disk {
        *disk = Some(Disk::mount(&dir.join("disk"))?);
    }
    let mut shape = scenario.shape(kind, &dir.join("disk"));
    if scenario.needs() == Needs::Clock {
        clocks(&mut shape, dir)?;
    }
    let containers = match scenario.needs() {
        Needs::Docker => Some(Containers::start(dir).await?),
        _ => None,
    };
    let mut stage = Stage::start(shape, dir, containers).await?;
    let load = Load::start(&stage.entrance(), scenario.crowd());
    let errands = Errands::start(&stage.entrance(), scenario.errands());
    let mut play = Play {
        stage: &mut stage,
        load: &load,
        errands: &errands,
        random: ChaCha8Rng::seed_from_u64(mixed(seed, scenario.as_str())),
        iterations: scenario.iterations(options),
        disk: disk.as_ref(),
        other: options.old_binary.clone(),
        fenced_before: 0,
        faults: Vec::new(),
        complaints: Vec::new(),
        excused: Vec::new(),
        stranded: AtomicUsize::new(0),
    };
    let played = play.play(scenario).await;
    let mut evidence = Evidence {
        fenced_before: play.fenced_before,
        faults: std::mem::take(&mut play.faults),
        complaints: std::mem::take(&mut play.complaints),
        excused: std::mem::take(&mut play.excused).into_iter().collect(),
        ..Evidence::default()
    };
    drop(play);
    let mut patience = PATIENCE;
    if let Err(error) = played {
        // The evidence so far is judged all the same.
        evidence.complaints.push(format!("it could not continue: {error}"));
        patience = AFTER_FAILURE;
    }
    ((evidence.transcripts, evidence.followed), evidence.errands) =
        tokio::join!(load.finish(patience), errands.finish(patience));
    Ok((stage, evidence))
}

fn faketime() -> Option<&'static str> {
    FAKETIME.into_iter().find(|path| Path::new(path).is_file())
}

/// Gives each node a clock of its own.
fn clocks(shape: &mut Shape, dir: &Path) -> Result<(), ChaosError> {
    fs::create_dir_all(dir).map_err(ChaosError::io(format!("make `{}`", dir.display())))?;
    for name in ["gateway1", "gateway2", "worker1", "worker2", "worker3"] {
        let clock = dir.join(clock_of(name));
        fs::write(&clock, "+0").map_err(ChaosError::io("set a clock"))?;
        let clock = clock.display().to_string();
        for (variable, value) in [
            ("LD_PRELOAD", faketime().unwrap_or_default()),
            ("FAKETIME_TIMESTAMP_FILE", clock.as_str()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ] {
            shape.vars.push((name, variable.to_owned(), value.to_owned()));
        }
    }
    Ok(())
}

/// The judge's word, in numbers; and what this scenario must or must not have done.
fn fill(score: &mut Score, scenario: Scenario, evidence: &Evidence) {
    let verdict = judge(evidence);
    let Verdict { turns, remade_inflight_calls, takeovers, robberies, .. } = verdict;
    score.iterations = evidence.faults.len();
    (score.turns, score.takeovers, score.robbed_owners) = (turns, takeovers, robberies);
    score.remade_inflight_calls = remade_inflight_calls;
    score.lost = verdict.count(Breach::Lost);
    score.duplicated = verdict.count(Breach::Duplicated);
    score.repeated_recorded_calls = verdict.count(Breach::Repeated);
    score.invariant_violations = verdict.count(Breach::Invariant);
    score.orphans = verdict.count(Breach::Orphan);
    score.fenced_writes = evidence.fenced;
    let all = evidence.transcripts.iter().chain(&evidence.followed);
    score.refusals = all.map(|one| one.refusals.len()).sum();
    let waited = resumes(evidence);
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    score.resumed = waited.len();
    score.resume_ms_p50 = percentile(&waited, 0.5).map(ms);
    score.resume_ms_p99 = percentile(&waited, 0.99).map(ms);
    let account = &verdict.account;
    (score.tool_calls, score.uncertain) = (account.calls, account.uncertain);
    (score.effects_again, score.approvals) = (account.again, account.approvals);
    score.plans = account.plans;
    let hit_no_run = match scenario {
        Scenario::RunnerKill => account.uncertain + account.again == 0,
        Scenario::DockerStop => account.uncertain + account.interrupted == 0,
        _ => false,
    };
    score.violations = verdict.violations.into_iter().map(|one| one.what).collect();
    score.measure(scenario.targets());
    if scenario == Scenario::ClockJump && evidence.has_jumped(HALF_AN_HOUR) {
        score.violations.push("the time of a session jumped with a worker's clock".to_owned());
    }
    if hit_no_run {
        score.violations.push("no fault hit a run of a tool: this run proves nothing".to_owned());
    }
    if scenario == Scenario::ProviderOutage
        && let Some(why) = outage::proves_nothing(evidence)
    {
        score.violations.push(format!("{why}: this run proves nothing"));
    }
    if scenario.has_budget() {
        score.violations.extend(budget::over_the_limit(evidence));
        let nothing = budget::proves_nothing(evidence);
        score.violations.extend(nothing.map(|why| format!("{why}: this run proves nothing")));
    }
    if scenario.must_fence() && evidence.fenced == 0 {
        score.violations.push("no owner was fenced: this run proves nothing".to_owned());
    }
}

/// A schedule of its own for each scenario.
fn mixed(seed: u64, name: &str) -> u64 {
    // FNV-1a.
    name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Where results go: beside the build, unless it was said.
fn out(options: &Options) -> Result<PathBuf, ChaosError> {
    let path = if let Some(path) = &options.out {
        path.clone()
    } else {
        let own = std::env::current_exe().map_err(ChaosError::io("find this program"))?;
        // target/debug/clawnode-chaos
        own.ancestors().nth(2).unwrap_or(Path::new(".")).join("chaos")
    };
    fs::create_dir_all(&path).map_err(ChaosError::io(format!("make `{}`", path.display())))?;
    path.canonicalize().map_err(ChaosError::io(format!("find `{}`", path.display())))
}

fn write(card: &Scorecard, out: &Path) -> Result<(), ChaosError> {
    let json = serde_json::to_string_pretty(card)
        .map_err(|error| ChaosError::Missing(format!("no scorecard: {error}")))?;
    for (name, text) in [("scorecard.json", json + "\n"), ("scorecard.md", card.markdown())] {
        let path = out.join(name);
        fs::write(&path, text).map_err(ChaosError::io(format!("write `{}`", path.display())))?;
    }
    Ok(())
}

fn ledger(options: &Options) -> Option<PathBuf> {
    let usual = || (options.profile == Profile::Long).then(|| PathBuf::from(LEDGER));
    options.ledger.clone().or_else(usual)
}

/// The commit that is checked out here, with a mark if something was changed since.
fn commit() -> String {
    let git = |args: &[&str]| {
        let done = Command::new("git").args(args).output().ok()?;
        done.status.success().then(|| String::from_utf8_lossy(&done.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changed) if changed.is_empty() => commit,
        _ => commit + "+",
    }
}
