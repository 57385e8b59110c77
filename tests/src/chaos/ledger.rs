//! The ledger: what all long runs found so far, with commits and seeds, and its page for people.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};

use super::{
    ChaosError,
    scorecard::{Score, Scorecard, push, table},
};

/// All runs, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Each with its commit and seed.
    pub runs: Vec<Scorecard>,
}

/// What is known of one scenario.
#[derive(Debug, Default)]
struct Total {
    score: Score,
    runs: usize,
    commits: Vec<String>,
    seeds: Vec<u64>,
}

// === impl Ledger ===

impl Ledger {
    /// Reads the ledger at `path`, adds a run, and writes both it and `RELIABILITY.md` beside it.
    pub fn add(path: &Path, card: &Scorecard) -> Result<(), ChaosError> {
        let broken = |error: serde_json::Error| {
            ChaosError::Missing(format!("the ledger `{}`: {error}", path.display()))
        };
        let mut ledger: Self = match fs::read_to_string(path) {
            Ok(text) => serde_json::from_str(&text).map_err(broken)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Self::default(),
            Err(error) => return Err(ChaosError::io("read the ledger")(error)),
        };
        ledger.runs.push(card.clone());
        let json = serde_json::to_string_pretty(&ledger).map_err(broken)?;
        let page = path.with_file_name("RELIABILITY.md");
        for (path, text) in [(path, json + "\n"), (page.as_path(), ledger.markdown())] {
            // Beside it first, so that no end of this process leaves half a ledger.
            let half = path.with_extension("half");
            fs::write(&half, text)
                .and_then(|()| fs::rename(&half, path))
                .map_err(ChaosError::io(format!("write `{}`", path.display())))?;
        }
        Ok(())
    }

    /// For people.
    pub fn markdown(&self) -> String {
        let totals = self.totals();
        let mut out = "# Reliability\n\nWritten by `clawnode verify --chaos --long` from \
                       `reliability.json`, where each run is with its commit, seed and \
                       evidence. Counts are sums over all runs; times are the worst of them.\n\n"
            .to_owned();
        let scores: Vec<Score> = totals.values().map(|total| total.score.clone()).collect();
        out.push_str(&table(&scores));
        out.push_str("\n| scenario | hosts | runs | commits | seeds |\n|---|---|---|---|---|\n");
        for ((scenario, hosts), total) in &totals {
            let commits = match total.commits.as_slice() {
                [] => "-".to_owned(),
                [one] => format!("`{one}`"),
                [first, .., last] => format!("`{first}` to `{last}`"),
            };
            let seeds: Vec<String> = total.seeds.iter().map(u64::to_string).collect();
            let (runs, seeds) = (total.runs, seeds.join(", "));
            push(
                &mut out,
                format_args!("| {scenario} | {hosts} | {runs} | {commits} | {seeds} |\n"),
            );
        }
        out
    }

    fn totals(&self) -> BTreeMap<(String, String), Total> {
        let mut totals: BTreeMap<(String, String), Total> = BTreeMap::new();
        for run in &self.runs {
            for score in run.scores.iter().filter(|score| score.left_out.is_none()) {
                let key = (score.scenario.clone(), score.hosts.clone());
                totals.entry(key).or_default().add(&run.commit, score);
            }
        }
        totals
    }
}

// === impl Total ===

impl Total {
    fn add(&mut self, commit: &str, one: &Score) {
        let sum = &mut self.score;
        sum.scenario.clone_from(&one.scenario);
        sum.hosts.clone_from(&one.hosts);
        sum.iterations += one.iterations;
        sum.turns += one.turns;
        sum.lost += one.lost;
        sum.duplicated += one.duplicated;
        sum.repeated_recorded_calls += one.repeated_recorded_calls;
        sum.remade_inflight_calls += one.remade_inflight_calls;
        sum.invariant_violations += one.invariant_violations;
        sum.takeovers += one.takeovers;
        sum.robbed_owners += one.robbed_owners;
        sum.fenced_writes += one.fenced_writes;
        sum.tool_calls += one.tool_calls;
        sum.uncertain += one.uncertain;
        sum.effects_again += one.effects_again;
        sum.approvals += one.approvals;
        sum.plans += one.plans;
        sum.refusals += one.refusals;
        sum.resumed += one.resumed;
        sum.resume_ms_p50 = sum.resume_ms_p50.max(one.resume_ms_p50);
        sum.resume_ms_p99 = sum.resume_ms_p99.max(one.resume_ms_p99);
        sum.orphans += one.orphans;
        sum.seconds += one.seconds;
        sum.violations.extend(one.violations.iter().cloned());
        self.runs += 1;
        self.seeds.push(one.seed);
        if self.commits.last().is_none_or(|last| last != commit) {
            self.commits.push(commit.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn card(commit: &str, seed: u64, lost: usize) -> Scorecard {
        let score = Score {
            scenario: "worker-kill".to_owned(),
            hosts: "loopback".to_owned(),
            seed,
            iterations: 3,
            lost,
            resume_ms_p99: Some(seed * 100),
            ..Score::default()
        };
        let left = Score::left_out("half-open", "namespaces", "no root".to_owned());
        let (commit, profile) = (commit.to_owned(), "long".to_owned());
        Scorecard { commit, profile, seed, scores: vec![score, left] }
    }

    #[test]
    fn runs_accumulate_with_their_commits_and_seeds() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("reliability.json");
        for (commit, seed, lost) in [("aaa", 7, 0), ("aaa", 9, 1), ("bbb", 8, 0)] {
            Ledger::add(&path, &card(commit, seed, lost)).unwrap();
        }
        let ledger: Ledger = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        assert_eq!(ledger.runs.len(), 3);
        let page = fs::read_to_string(dir.path().join("RELIABILITY.md")).unwrap();
        assert!(
            page.contains("| worker-kill | loopback | 3 | `aaa` to `bbb` | 7, 9, 8 |"),
            "{page}"
        );
        assert!(page.contains("| worker-kill | loopback | 9 | 0 | 1 | 0 |"), "{page}");
        assert!(page.contains("| 900 |"), "the worst time: {page}");
        assert!(!page.contains("half-open"), "what was not run is not counted: {page}");
    }
}
