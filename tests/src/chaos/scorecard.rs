//! The scorecard: one row a scenario, as JSON for machines and Markdown for people.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// Violations of one scenario that are printed.
const SHOWN_MAX: usize = 20;

/// The result of one scenario.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Score {
    pub scenario: String,
    /// `loopback` or `namespaces`.
    pub hosts: String,
    /// Replays its schedule.
    pub seed: u64,
    /// Faults that were done.
    pub iterations: usize,
    /// Turns that ended well.
    pub turns: usize,
    /// Accepted and not there, or never heard by its client.
    pub lost: usize,
    /// There twice, or heard twice.
    pub duplicated: usize,
    /// Calls whose outcome was recorded, made again.
    pub repeated_recorded_calls: usize,
    /// Calls in flight when their process was lost, made again.
    pub remade_inflight_calls: usize,
    /// Invariants that did not hold.
    pub invariant_violations: usize,
    /// Sessions taken over, since the first fault, from a process that had not given them up.
    pub takeovers: usize,
    /// Those taken in mid-turn from a process to which nothing was done.
    pub robbed_owners: usize,
    /// Owners that found themselves fenced: an append of theirs bounced, or was kept from being sent.
    pub fenced_writes: u64,
    /// Calls of tools: jobs beside the chats, steps of plans, and what a person approved.
    #[serde(default)]
    pub tool_calls: usize,
    /// Those of class `once` of which it is unknown whether they happened.
    #[serde(default)]
    pub uncertain: usize,
    /// Those of other classes that had their effect more than once.
    #[serde(default)]
    pub effects_again: usize,
    /// Calls that a person approved.
    #[serde(default)]
    pub approvals: usize,
    /// Plans that ran to their end.
    #[serde(default)]
    pub plans: usize,
    /// How often a gateway refused a request, and was asked again.
    #[serde(default)]
    pub refusals: usize,
    /// Turns that a fault kept waiting.
    pub resumed: usize,
    /// Milliseconds from a fault to the next token at the client.
    pub resume_ms_p50: Option<u64>,
    /// The same, for the slowest of a hundred.
    pub resume_ms_p99: Option<u64>,
    /// Processes, inputs and turns left at the end.
    pub orphans: usize,
    /// How long it took.
    pub seconds: u64,
    /// All that must not be, with the evidence.
    pub violations: Vec<String>,
    /// Figures that were slower, or cost more, than intended: reported, and no violation, because
    /// they also depend on the machine.
    #[serde(default)]
    pub missed: Vec<String>,
    /// Why it was not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<String>,
}

/// One run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scorecard {
    /// The commit that was built, as far as git says.
    pub commit: String,
    /// `short` or `long`.
    pub profile: String,
    /// The seed that all schedules follow from.
    pub seed: u64,
    /// One row a scenario.
    pub scores: Vec<Score>,
}

// === impl Score ===

impl Score {
    /// Of a scenario that cannot be run here.
    pub fn left_out(scenario: &str, hosts: &str, why: String) -> Self {
        let (scenario, hosts) = (scenario.to_owned(), hosts.to_owned());
        Self { scenario, hosts, left_out: Some(why), ..Self::default() }
    }

    /// Whether everything held.
    pub fn is_good(&self) -> bool {
        self.violations.is_empty()
    }

    /// Compares with what is meant to be.
    pub(super) fn measure(&mut self, (p50, p99, robs): (Option<u64>, Option<u64>, bool)) {
        for (name, found, wanted) in
            [("p50", self.resume_ms_p50, p50), ("p99", self.resume_ms_p99, p99)]
        {
            if let (Some(found), Some(wanted)) = (found, wanted)
                && found >= wanted
            {
                self.missed.push(format!("{name} {found} ms, target < {wanted} ms"));
            }
        }
        if self.robbed_owners > 0 && !robs {
            self.missed.push(format!("{} owners robbed, target 0", self.robbed_owners));
        }
    }

    /// As many violations as people read; the scorecard's JSON has all of them.
    fn worst(&self) -> Vec<String> {
        let mut shown: Vec<String> = self.violations.iter().take(SHOWN_MAX).cloned().collect();
        let more = self.violations.len() - shown.len();
        if more > 0 {
            shown.push(format!("and {more} more, in scorecard.json"));
        }
        shown
    }

    /// The score in one line, and a line for each violation.
    pub fn told(&self) -> String {
        let name = format!("{} on {}", self.scenario, self.hosts);
        let mut text = match &self.left_out {
            Some(why) => format!("{name}: left out: {why}"),
            None => format!(
                "{name}: {} in {} s: {} faults, {} turns, {} remade, {} takeovers ({} robbed), \
                 {} fenced, {} calls of tools ({} uncertain, {} again, {} approved, {} plans), \
                 {} refusals, {} resumed in {} ms (p50), {} ms (p99)",
                if self.is_good() { "good" } else { "BAD" },
                self.seconds,
                self.iterations,
                self.turns,
                self.remade_inflight_calls,
                self.takeovers,
                self.robbed_owners,
                self.fenced_writes,
                self.tool_calls,
                self.uncertain,
                self.effects_again,
                self.approvals,
                self.plans,
                self.refusals,
                self.resumed,
                self.resume_ms_p50.unwrap_or_default(),
                self.resume_ms_p99.unwrap_or_default(),
            ),
        };
        for one in self.worst() {
            text.push_str("\n  violation: ");
            text.push_str(&one);
        }
        text
    }
}

// === impl Scorecard ===

impl Scorecard {
    /// Whether everything held.
    pub fn is_good(&self) -> bool {
        self.scores.iter().all(Score::is_good)
    }

    /// For people.
    pub fn markdown(&self) -> String {
        let mut out = format!(
            "# Scorecard\n\nCommit `{}`, profile `{}`, seed {}.\n\n{}",
            self.commit,
            self.profile,
            self.seed,
            table(&self.scores)
        );
        if self.scores.iter().any(|score| !score.missed.is_empty()) {
            out.push_str("\n## Targets missed\n\n");
        }
        for score in self.scores.iter().filter(|score| !score.missed.is_empty()) {
            let (name, missed) = (&score.scenario, score.missed.join("; "));
            push(&mut out, format_args!("- {name} on {}: {missed}\n", score.hosts));
        }
        let bad = self.scores.iter().filter(|score| !score.is_good());
        for score in bad {
            push(&mut out, format_args!("\n## Violations in {}\n\n", score.scenario));
            for one in score.worst() {
                push(&mut out, format_args!("- {one}\n"));
            }
        }
        out
    }
}

/// The table of these scores.
pub fn table(scores: &[Score]) -> String {
    let mut out = "| scenario | hosts | faults | turns | lost | duplicated | repeated | remade | \
                   takeovers | robbed | fenced | tool calls | uncertain | again | resumed | p50 ms | p99 ms | orphans | s | \
                   verdict |\n"
        .to_owned();
    out.push_str(
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for score in scores {
        if let Some(why) = &score.left_out {
            let blanks = "| ".repeat(17);
            push(
                &mut out,
                format_args!(
                    "| {} | {} {blanks}| left out: {why} |\n",
                    score.scenario, score.hosts
                ),
            );
            continue;
        }
        let ms = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |ms| ms.to_string());
        let verdict = match score.violations.len() {
            0 => "good".to_owned(),
            count => format!("**{count} violations**"),
        };
        let cells = [
            score.scenario.clone(),
            score.hosts.clone(),
            score.iterations.to_string(),
            score.turns.to_string(),
            score.lost.to_string(),
            score.duplicated.to_string(),
            score.repeated_recorded_calls.to_string(),
            score.remade_inflight_calls.to_string(),
            score.takeovers.to_string(),
            score.robbed_owners.to_string(),
            score.fenced_writes.to_string(),
            score.tool_calls.to_string(),
            score.uncertain.to_string(),
            score.effects_again.to_string(),
            score.resumed.to_string(),
            ms(score.resume_ms_p50),
            ms(score.resume_ms_p99),
            score.orphans.to_string(),
            score.seconds.to_string(),
            verdict,
        ];
        push(&mut out, format_args!("| {} |\n", cells.join(" | ")));
    }
    out
}

/// Writing to a string cannot fail.
pub(super) fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    if out.write_fmt(text).is_err() {
        tracing::error!("a text could not be written");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_names_violations_and_missed_targets_apart() {
        let mut slow = Score {
            scenario: "slow".to_owned(),
            resume_ms_p50: Some(900),
            resume_ms_p99: Some(3_000),
            robbed_owners: 1,
            ..Score::default()
        };
        slow.measure((Some(1_000), Some(3_000), false));
        assert_eq!(slow.missed, ["p99 3000 ms, target < 3000 ms", "1 owners robbed, target 0"]);
        let mut bad = Score { scenario: "bad".to_owned(), ..Score::default() };
        bad.violations = (0..30).map(|n| format!("violation {n}")).collect();
        let mut card = Scorecard { scores: vec![slow], ..Scorecard::default() };
        assert!(card.is_good(), "what depends on the machine is no violation");
        card.scores.push(bad);
        assert!(!card.is_good());
        let text = card.markdown();
        assert!(text.contains("- slow on : p99 3000 ms"), "{text}");
        assert!(text.contains("violation 19\n- and 10 more"), "{text}");
    }
}
