//! A run that failed, and how to replay it.

use std::fmt;

use super::violation::JudgeViolation;

/// A run in which an invariant did not hold.
#[derive(Clone, Debug)]
pub struct RunFailure {
    /// The seed that shows it.
    pub seed: u64,
    /// With so many sessions, if not with the seed's.
    pub sessions: Option<usize>,
    /// With so many counters.
    pub counters: usize,
    /// With so many memories.
    pub memories: usize,
    /// With so many accounts.
    pub budgets: usize,
    /// With sessions that learn and recall.
    pub recalls: bool,
    /// With sessions whose calls reserve.
    pub session_budgets: bool,
    /// With about so many calls under budgets.
    pub admissions: usize,
    /// What did not hold.
    pub violation: JudgeViolation,
    /// After how many steps.
    pub steps: u64,
    /// What happened last, if the trace was kept.
    pub tail: Vec<String>,
}

// === impl RunFailure ===

impl fmt::Display for RunFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.tail {
            writeln!(f, "{line}")?;
        }
        let Self {
            seed,
            sessions,
            counters,
            memories,
            recalls,
            budgets,
            session_budgets,
            admissions,
            violation: JudgeViolation { name, detail },
            steps,
            ..
        } = self;
        writeln!(f, "seed {seed} broke {name} after {steps} steps: {detail}")?;
        let mut with = sessions.map(|count| format!(" CLAWNODE_SESSIONS={count}"));
        if *counters > 0 {
            with = Some(format!("{} CLAWNODE_COUNTERS={counters}", with.unwrap_or_default()));
        }
        if *memories > 0 {
            with = Some(format!("{} CLAWNODE_MEMORIES={memories}", with.unwrap_or_default()));
        }
        if *recalls {
            with = Some(format!("{} CLAWNODE_RECALLS=1", with.unwrap_or_default()));
        }
        if *budgets > 0 {
            with = Some(format!("{} CLAWNODE_BUDGETS={budgets}", with.unwrap_or_default()));
        }
        if *session_budgets {
            with = Some(format!("{} CLAWNODE_SESSION_BUDGETS=1", with.unwrap_or_default()));
        }
        if *admissions > 0 {
            with = Some(format!("{} CLAWNODE_ADMISSIONS={admissions}", with.unwrap_or_default()));
        }
        let with = with.unwrap_or_default();
        write!(
            f,
            "replay: CLAWNODE_SEED={seed}{with} cargo nextest run -p clawnode-tests -E \
             'test(sim_replay)'"
        )
    }
}
