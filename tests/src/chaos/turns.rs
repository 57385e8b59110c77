//! Whose turn it is: which scenarios play at the same time.

use std::collections::VecDeque;

use super::{hosts::HostKind, scenario::Scenario};

/// A scenario and its place in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Planned {
    /// Its row in the scorecard.
    pub(super) at: usize,
    pub(super) scenario: Scenario,
    /// What its hosts are made of.
    pub(super) kind: HostKind,
}

/// The scenarios that have not begun, in the order of the plan.
#[derive(Debug)]
pub(super) struct Turns {
    waiting: VecDeque<Planned>,
    /// Scenarios that may play at the same time.
    together: usize,
    playing: usize,
    /// Whether the scenario that plays has the machine to itself.
    is_alone: bool,
}

// === impl Turns ===

impl Turns {
    pub(super) fn new(
        plan: impl IntoIterator<Item = (Scenario, HostKind)>,
        together: usize,
    ) -> Self {
        let plan = plan.into_iter().enumerate();
        let waiting = plan.map(|(at, (scenario, kind))| Planned { at, scenario, kind }).collect();
        Self { waiting, together: together.max(1), playing: 0, is_alone: false }
    }

    /// The next one that may begin now. Beside another one, that is the first which does not need the
    /// machine to itself.
    pub(super) fn begin(&mut self) -> Option<Planned> {
        if self.is_alone || self.playing >= self.together {
            return None;
        }
        let is_beside_another = self.playing > 0;
        let may_begin = |one: &Planned| !(is_beside_another && one.scenario.is_alone());
        let at = self.waiting.iter().position(may_begin)?;
        let next = self.waiting.remove(at)?;
        self.playing += 1;
        self.is_alone = next.scenario.is_alone();
        Some(next)
    }

    /// One that had begun does not play any more.
    pub(super) fn end(&mut self) {
        self.playing = self.playing.saturating_sub(1);
        self.is_alone = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays a plan, in which the one that began first ends first; who played when one began.
    fn played(plan: &[Scenario], together: usize) -> Vec<Vec<usize>> {
        let plan = plan.iter().map(|&scenario| (scenario, HostKind::Loopback));
        let mut turns = Turns::new(plan, together);
        let (mut playing, mut seen) = (VecDeque::new(), Vec::new());
        loop {
            while let Some(one) = turns.begin() {
                playing.push_back(one.at);
                seen.push(playing.iter().copied().collect());
            }
            if playing.pop_front().is_none() {
                return seen;
            }
            turns.end();
        }
    }

    #[test]
    fn one_that_measures_is_alone_and_the_others_fill_the_gaps() {
        let plan = [Scenario::Freeze, Scenario::WorkerKill, Scenario::Poison, Scenario::WorkerDeaf];
        assert_eq!(played(&plan, 2), [vec![0], vec![0, 2], vec![2, 3], vec![1]]);
        assert_eq!(played(&plan, 1), [[0], [1], [2], [3]], "in their order");
        let plan = [Scenario::WorkerKill, Scenario::Poison, Scenario::DockerStop];
        assert_eq!(played(&plan, 2), [[0], [1], [2]]);
        let plan = [Scenario::Poison; 5];
        assert_eq!(played(&plan, 3).iter().map(Vec::len).max(), Some(3));
    }
}
