//! Summaries of conversations that are larger than their windows: a compaction may fail in any way at any time, and no
//! request shows a summary that is not in the journal (COMP-1).

use clawnode_actors::{
    agent::AgentOptions,
    session::{Effect, Outcome, turn::prepare::CallJob},
};
use clawnode_proto::{
    Attempt, CallId, EntityId,
    llm::{StopReason, Text, Usage},
};
use rand::Rng;

use super::{
    JudgeViolation, Sim, any_machine::ActivationPlace, book::Checked, process::PlannedNote,
};

/// How a summary begins that a model is shown, and what ends the line before its text.
const LABEL: &str = "[A summary of the earlier conversation";
/// The window of models: a few turns fill it.
const WINDOW: u32 = 120;
/// Tokens of a reply.
const REPLY: u32 = 16;

/// Small windows, and a model that makes summaries.
pub(super) fn configure(options: &mut AgentOptions) {
    options.tools = Vec::new();
    options.context = None;
    options.window_tokens = Some(WINDOW);
    options.sampling.max_tokens = Some(REPLY);
    options.compact_model = "sim/summaries".parse().ok();
}

impl Sim {
    /// The call of a summary is made, and ends later.
    pub(super) fn summary_starts(
        &mut self,
        at: ActivationPlace,
        key: Effect,
        attempt: Attempt,
        job: &CallJob,
    ) {
        let ActivationPlace { process: to, entity, counter } = at;
        self.asked.insert((job.call, attempt), job.request.model.clone());
        self.runs(to, entity, counter, key, Some(attempt));
        let after = self.world.rng.random_range(10..self.plan.call_most);
        let ends = PlannedNote::CallEnds(entity, counter, job.call, attempt);
        self.world.later(to, after, ends);
    }

    /// How the call of a summary ends that does not fail: it is of no use now and then.
    pub(super) fn summary(&mut self, call: CallId, attempt: Attempt, usage: Usage) -> Outcome {
        let text = match self.world.rng.random_range(0..8) {
            0 => String::new(),
            1 => "x".repeat(9_000),
            _ => format!("summary {attempt} of {call}"),
        };
        let stop = if self.world.chance(0.1) { StopReason::MaxTokens } else { StopReason::EndTurn };
        Outcome::Done {
            attempt,
            content: Text::from(text),
            stop,
            usage,
            model: "sim".to_owned(),
            tool_uses: Vec::new(),
            blocks: None,
        }
    }

    /// COMP-1: a summary is shown that is in the journal, and turns are left out beside it only for want of room.
    pub(super) fn shows_stored_summary(&mut self, entity: EntityId, job: &CallJob) -> Checked {
        let first = job.request.messages.first().and_then(|message| message.content.inline());
        let shown = first.filter(|text| text.starts_with(LABEL));
        let Some((_, text)) = shown.and_then(|text| text.split_once('\n')) else { return Ok(()) };
        if self.ledger.book(entity).own.summaries.contains(text) {
            return Ok(());
        }
        let text = format!("`{}` shows a summary that was not stored: {text}", job.call);
        Err(JudgeViolation::new("COMP-1", text))
    }
}

#[cfg(test)]
mod tests {
    use clawnode_kernel::KernelBug;

    use crate::{RunFailure, RunReport, SimOptions, run};

    const SEEDS: u64 = 24;

    fn summarized(seed: u64, planted: KernelBug) -> Result<RunReport, Box<RunFailure>> {
        let trace = planted == KernelBug::None;
        run(&SimOptions { seed, planted, trace, summaries: true, ..SimOptions::default() })
    }

    #[test]
    fn sim_summaries() {
        let run =
            |seed| summarized(seed, KernelBug::None).unwrap_or_else(|failure| panic!("{failure}"));
        let runs: Vec<RunReport> = (0..SEEDS).map(run).collect();
        let summaries: usize = runs.iter().map(|run| run.summaries).sum();
        assert!(summaries as u64 > SEEDS / 2, "{summaries} summaries");
    }

    /// A compaction that drops its source before its summary is stored is found, and the seed is green without.
    #[test]
    fn finds_compacts_first() {
        let early = |seed| Some((seed, summarized(seed, KernelBug::CompactsFirst).err()?));
        let (seed, failure) = (0..SEEDS).find_map(early).unwrap();
        assert_eq!(failure.violation.name, "COMP-1", "{failure}");
        summarized(seed, KernelBug::None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
