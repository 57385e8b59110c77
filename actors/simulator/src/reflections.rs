//! Models that look back at turns: people ask for it at any time, and the reply is of no use now and then. The memory of a
//! peer has each lesson once (MEM-3, judged by [`recall`](super::recall)), and no call is sent without a hold (BUD-1).

use clawnode_actors::session::{Effect, Outcome, turn::learning::LessonsJob};
use clawnode_kernel::KernelBug;
use clawnode_proto::{
    Attempt, CallId,
    llm::{StopReason, Text, Usage},
};
use rand::Rng;

use super::{
    JudgeViolation, Sim,
    any_machine::ActivationPlace,
    book::Checked,
    recall::{lessons::of_owner, told::LESSON},
    settle::PostTurnWork,
};

impl Sim {
    /// How the call ends that does not fail.
    pub(super) fn reflection(&mut self, call: CallId, attempt: Attempt, usage: Usage) -> Outcome {
        let lesson = |part: u32| format!(r#""{LESSON}{part} of {call}.{attempt}""#);
        let text = match self.world.rng.random_range(0..6) {
            0 => "It went well.".to_owned(),
            1 => r#"{"rating":9,"lessons":[]}"#.to_owned(),
            2 => r#"{"rating":1,"lessons":[]}"#.to_owned(),
            3 => format!(r#"{{"rating":5,"lessons":[{}]}}"#, lesson(0)),
            _ => format!(r#"{{"rating":3,"lessons":[{},{}]}}"#, lesson(0), lesson(1)),
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

    /// C23: the memory has the lessons before that is confirmed.
    pub(super) fn sends_lessons(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        job: &LessonsJob,
    ) -> Checked {
        let found = job.lessons(self.now(at.process).wall);
        let found = found.map_err(|error| JudgeViolation::new("X1", error.to_string()))?;
        let by_owner = self.planted == KernelBug::ReflectsByOwner;
        let input = found.filter(|_| self.recall.is_some());
        let input = input.map(|input| if by_owner { of_owner(at.process, input) } else { input });
        let (jobs, for_memories) = (Vec::new(), input.into_iter().collect());
        self.follows_turn(PostTurnWork { at, effect, jobs, for_memories });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clawnode_kernel::KernelBug;

    use crate::{RunFailure, RunReport, SimOptions, run};

    const SEEDS: u64 = 30;

    fn reflected(seed: u64, planted: KernelBug) -> Result<RunReport, Box<RunFailure>> {
        let (recalls, reflections) = (true, true);
        let trace = planted == KernelBug::None;
        run(&SimOptions { seed, planted, trace, recalls, reflections, ..SimOptions::default() })
    }

    /// Calls of sessions reserve, and models look back.
    fn paid(seed: u64, planted: KernelBug) -> Result<RunReport, Box<RunFailure>> {
        let with = SimOptions { budgets: 1, session_budgets: true, ..SimOptions::default() };
        run(&SimOptions { seed, planted, reflections: true, recalls: true, ..with })
    }

    #[test]
    fn sim_reflections() {
        let run =
            |seed| reflected(seed, KernelBug::None).unwrap_or_else(|failure| panic!("{failure}"));
        let lessons: usize = (0..SEEDS).map(|seed| run(seed).recalls.lessons).sum();
        assert!(lessons as u64 > SEEDS, "{lessons} lessons");
    }

    /// MEM-3: lessons that come again under other names are found, and the seed is green without.
    #[test]
    fn finds_lessons_that_are_told_twice() {
        let twice = |seed| Some((seed, reflected(seed, KernelBug::ReflectsByOwner).err()?));
        let (seed, failure) = (0..SEEDS).find_map(twice).unwrap();
        assert_eq!(failure.violation.name, "MEM-3", "{failure}");
        reflected(seed, KernelBug::None).unwrap_or_else(|failure| panic!("{failure}"));
    }

    /// BUD-1: the call of a reflection that is sent without a hold is found, and the seed is green without.
    #[test]
    fn finds_a_reflection_that_reserves_nothing() {
        let unheld = |seed| Some((seed, paid(seed, KernelBug::ReflectionUnheld).err()?));
        let (seed, failure) = (0..SEEDS).find_map(unheld).unwrap();
        assert_eq!(failure.violation.name, "BUD-1", "{failure}");
        paid(seed, KernelBug::None).unwrap_or_else(|failure| panic!("{failure}"));
    }
}
