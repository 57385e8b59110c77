//! Models that look back at turns: people ask for it at any time, and the reply is of no use now and then. The memory of a
//! peer has each lesson once (MEM-3, judged by [`recall`](super::recall)), and no call is sent without a hold (BUD-1).

use clawnode_actors::session::{Effect, turn::memory::learning::LessonsJob};
use clawnode_kernel::KernelBug;

use super::{
    JudgeViolation, Sim, any_machine::ActivationPlace, book::Checked, recall::lessons::of_owner,
    settle::PostTurnWork,
};

impl Sim {
    /// C23: the memory has the lessons before that is confirmed.
    pub(super) fn sends_lessons(
        &mut self,
        at: ActivationPlace,
        effect: Effect,
        job: &LessonsJob,
    ) -> Checked {
        let found = job.lessons(self.now(at.process).wall);
        let found = found.map_err(|error| JudgeViolation::new("X1", error.to_string()))?;
        if found.is_some() {
            self.silent_teaches(at, job.ended.call)?;
        }
        let by_owner = match self.planted {
            KernelBug::ReflectsByOwner => true,
            KernelBug::FactsByOwner => !job.ended.facts.is_empty(),
            _ => false,
        };
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

    const SEEDS: u64 = 40;

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
        println!("{lessons} lessons in {SEEDS} seeds");
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
