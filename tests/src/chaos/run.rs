//! A run: scenario after scenario, judged and written down.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use super::{
    ChaosError,
    daemon::tool,
    disk::{self, Disk},
    evidence::Evidence,
    hosts::{self, HostKind},
    judge::{Breach, Verdict, judge},
    ledger::Ledger,
    load::Load,
    options::{Options, Profile},
    resume::{percentile, resumes},
    scenario::{Needs, Scenario},
    score::{Score, Scorecard},
    script::{Play, clock_of},
    stage::{Shape, Stage},
};

/// The library that makes a clock wrong, from Debian's `libfaketime`.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";
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
    for (scenario, kind) in plan(options, namespaces.is_none()) {
        let name = format!("{} on {}", scenario.as_str(), kind.as_str());
        let missing = missing(scenario, kind, options, &out, namespaces.as_deref());
        if let Some(why) = missing {
            say(&format!("{name}: left out: {why}"));
            card.scores.push(Score::left_out(scenario.as_str(), kind.as_str(), why));
            continue;
        }
        let score = one(scenario, kind, options, (seed, &out)).await;
        say(&told(&name, &score));
        card.scores.push(score);
        write(&card, &out)?;
    }
    if let Some(path) = ledger(options) {
        Ledger::add(&path, &card)?;
        say(&format!("added to {}", path.display()));
    }
    Ok(card)
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
        Needs::Clock => absent(
            Path::new(FAKETIME).is_file(),
            "`libfaketime` is missing: apt-get install libfaketime",
        ),
        Needs::OldBuild => absent(
            options.old_binary.as_ref().is_some_and(|path| path.is_file()),
            "no other build was named: --old-binary FILE",
        ),
    }
}

/// One scenario, from its stage to its score.
async fn one(
    scenario: Scenario,
    kind: HostKind,
    options: &Options,
    (seed, out): (u64, &Path),
) -> Score {
    let began = Instant::now();
    let dir = out.join(format!("{}-{}", scenario.as_str(), kind.as_str()));
    let mut score = Score {
        scenario: scenario.as_str().to_owned(),
        hosts: kind.as_str().to_owned(),
        seed,
        ..Score::default()
    };
    match Box::pin(stage(scenario, kind, options, (seed, &dir))).await {
        Ok(evidence) => fill(&mut score, scenario, &evidence),
        Err(error) => score.violations.push(format!("it could not go on: {error}")),
    }
    score.seconds = began.elapsed().as_secs();
    if score.is_good() && !options.keep {
        if let Err(error) = fs::remove_dir_all(&dir) {
            tracing::warn!(%error, dir = %dir.display(), "logs were left behind");
        }
    }
    score
}

async fn stage(
    scenario: Scenario,
    kind: HostKind,
    options: &Options,
    (seed, dir): (u64, &Path),
) -> Result<Evidence, ChaosError> {
    // What an earlier run left there is not this one's evidence.
    if dir.exists() {
        fs::remove_dir_all(dir).map_err(ChaosError::io(format!("empty `{}`", dir.display())))?;
    }
    let disk = match scenario.needs() {
        Needs::Disk => Some(Disk::mount(&dir.join("disk"))?),
        _ => None,
    };
    let mut shape = scenario.shape(kind, &dir.join("disk"));
    if scenario == Scenario::ClockJump {
        clocks(&mut shape, dir);
    }
    let mut stage = Stage::start(shape, dir).await?;
    let load = Load::start(&stage.entrance(), scenario.clients(), scenario == Scenario::Storm);
    let mut play = Play {
        stage: &mut stage,
        load: &load,
        random: ChaCha8Rng::seed_from_u64(mixed(seed, scenario.as_str())),
        iterations: scenario.iterations(options),
        disk: disk.as_ref(),
        other: options.old_binary.clone(),
        faults: Vec::new(),
        complaints: Vec::new(),
        excused: Vec::new(),
    };
    let played = play.play(scenario).await;
    let mut evidence = Evidence {
        faults: std::mem::take(&mut play.faults),
        complaints: std::mem::take(&mut play.complaints),
        excused: std::mem::take(&mut play.excused).into_iter().collect(),
        ..Evidence::default()
    };
    drop(play);
    if let Err(error) = played {
        // What was seen so far is judged all the same.
        evidence.complaints.push(format!("it could not go on: {error}"));
    }
    let transcripts = load.finish().await;
    stage.close(transcripts, evidence).await
}

/// Gives each worker a clock of its own.
fn clocks(shape: &mut Shape, dir: &Path) {
    for name in ["worker1", "worker2", "worker3"] {
        let clock = dir.join(clock_of(name)).display().to_string();
        for (variable, value) in [
            ("LD_PRELOAD", FAKETIME),
            ("FAKETIME_TIMESTAMP_FILE", clock.as_str()),
            ("FAKETIME_NO_CACHE", "1"),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ] {
            shape.vars.push((name, variable.to_owned(), value.to_owned()));
        }
    }
}

/// The judge's word, in numbers; and what this scenario must or must not have done.
fn fill(score: &mut Score, scenario: Scenario, evidence: &Evidence) {
    let verdict = judge(evidence);
    let Verdict { turns, remade_inflight_calls, takeovers, .. } = verdict;
    score.iterations = evidence.faults.len();
    (score.turns, score.takeovers) = (turns, takeovers);
    score.remade_inflight_calls = remade_inflight_calls;
    score.lost = verdict.count(Breach::Lost);
    score.duplicated = verdict.count(Breach::Duplicated);
    score.repeated_recorded_calls = verdict.count(Breach::Repeated);
    score.invariant_violations = verdict.count(Breach::Invariant);
    score.orphans = verdict.count(Breach::Orphan);
    score.fenced_writes = evidence.fenced;
    let waited = resumes(evidence);
    let ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    score.resumed = waited.len();
    score.resume_ms_p50 = percentile(&waited, 0.5).map(ms);
    score.resume_ms_p99 = percentile(&waited, 0.99).map(ms);
    score.violations = verdict.violations.into_iter().map(|one| one.what).collect();
    if scenario.robs_nobody() && takeovers > 0 {
        score.violations.push(format!("{takeovers} sessions were taken from living owners"));
    }
    if scenario.must_fence() && evidence.fenced == 0 {
        score.violations.push("nobody was fenced: this run proves nothing".to_owned());
    }
}

/// A schedule of its own for each scenario.
fn mixed(seed: u64, name: &str) -> u64 {
    // FNV-1a.
    name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ seed, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn told(name: &str, score: &Score) -> String {
    let verdict = if score.is_good() { "good" } else { "BAD" };
    let mut text = format!(
        "{name}: {verdict} in {} s: {} faults, {} turns, {} remade, {} takeovers, {} fenced, \
         resumed {} (p50 {:?} ms, p99 {:?} ms)",
        score.seconds,
        score.iterations,
        score.turns,
        score.remade_inflight_calls,
        score.takeovers,
        score.fenced_writes,
        score.resumed,
        score.resume_ms_p50.unwrap_or_default(),
        score.resume_ms_p99.unwrap_or_default(),
    );
    for one in &score.violations {
        text.push_str("\n  violation: ");
        text.push_str(one);
    }
    text
}

/// Where results go: beside the build, unless it was said.
fn out(options: &Options) -> Result<PathBuf, ChaosError> {
    let path = match &options.out {
        Some(path) => path.clone(),
        None => {
            let own = std::env::current_exe().map_err(ChaosError::io("find this program"))?;
            // target/debug/clawnode-chaos
            own.ancestors().nth(2).unwrap_or(Path::new(".")).join("chaos")
        }
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
