//! Who comes next of those that wait in one lane: a fair share for each agent by its weight, and first come,
//! first served among the calls of one agent. Pure.
//!
//! This is start-time fair queueing (Goyal, Vin and Cheng, 1996): an agent's next call has a start time in a
//! time that does not pass by itself, the call with the earliest start is served, and a call of an agent
//! with weight `w` moves that agent's next start by `1/w`. An agent that begins to wait starts at the present,
//! so it neither owns what it left unused nor owes what others took meanwhile. Invariant FAIR-1: over any 1,000
//! grants of a lane, no agent with calls waiting has less than half of its share.

use std::collections::{BTreeMap, VecDeque};

use clawnode_proto::AgentName;

/// By how much a call of an agent with weight 1 moves its agent's next start.
const STEP: u64 = 1 << 20;

/// The largest weight of an agent: the parts of a step stay large against their rounding.
pub const WEIGHT_MAX: u32 = 1_000;

/// A call that waits for a pool, or has something of it: a number of that pool, in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PoolTicket(pub(super) u64);

/// The calls that wait in one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct FairQueue {
    /// The start of the call that was served last.
    now: u64,
    agents: BTreeMap<AgentName, AgentShare>,
    len: usize,
}

/// The calls of one agent.
#[derive(Clone, Debug, Default)]
struct AgentShare {
    /// When its next call starts.
    start: u64,
    weight: u32,
    /// In the order in which they came, which is that of the tickets.
    calls: VecDeque<PoolTicket>,
}

// === impl FairQueue ===

impl FairQueue {
    /// How many wait.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// A call waits from now on.
    pub(super) fn push(&mut self, agent: &AgentName, weight: u32, ticket: PoolTicket) {
        let now = self.now;
        let share = self.agents.entry(agent.clone()).or_default();
        if share.calls.is_empty() {
            share.start = share.start.max(now);
        }
        share.weight = weight.clamp(1, WEIGHT_MAX);
        share.calls.push_back(ticket);
        self.len += 1;
    }

    /// Takes the call that comes next.
    pub(super) fn pop(&mut self) -> Option<PoolTicket> {
        let waiting = self.agents.iter_mut().filter(|(_, share)| !share.calls.is_empty());
        // Of two with one start, the one that has waited longer.
        let (_, share) =
            waiting.min_by_key(|(_, share)| (share.start, share.calls.front().copied()))?;
        let ticket = share.calls.pop_front()?;
        self.now = share.start;
        share.start = share.start.saturating_add(STEP / u64::from(share.weight.max(1)));
        self.len = self.len.saturating_sub(1);
        self.forget();
        Some(ticket)
    }

    /// A call waits no more.
    pub(super) fn remove(&mut self, ticket: PoolTicket) -> bool {
        for share in self.agents.values_mut() {
            if let Ok(at) = share.calls.binary_search(&ticket) {
                share.calls.remove(at);
                self.len = self.len.saturating_sub(1);
                self.forget();
                return true;
            }
        }
        false
    }

    /// Forgets agents that neither wait nor owe: what is kept has an end.
    fn forget(&mut self) {
        if self.len == 0 {
            *self = Self::default();
        } else {
            let now = self.now;
            self.agents.retain(|_, share| !share.calls.is_empty() || share.start > now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(agent: &str) -> AgentName {
        agent.parse().unwrap()
    }

    fn served(queue: &mut FairQueue, firsts: &[u64]) -> Vec<usize> {
        let mut counts = vec![0; firsts.len()];
        for _ in 0..10 {
            let ticket = queue.pop().unwrap();
            let agent = firsts.iter().rposition(|first| ticket.0 >= *first).unwrap();
            counts[agent] += 1;
        }
        counts
    }

    /// FAIR-1 in its simplest form.
    #[test]
    fn agents_are_served_by_their_weights_and_each_in_its_own_order() {
        let mut queue = FairQueue::default();
        for call in 0..20 {
            queue.push(&name("a"), 1, PoolTicket(call));
        }
        for call in 100..120 {
            queue.push(&name("b"), 4, PoolTicket(call));
        }
        assert_eq!(served(&mut queue, &[0, 100]), [2, 8]);
        let mut last = (0, 100);
        while let Some(PoolTicket(call)) = queue.pop() {
            let before = if call < 100 { &mut last.0 } else { &mut last.1 };
            assert!(call >= *before, "first come, first served");
            *before = call;
        }
        assert_eq!(queue.len(), 0);
    }

    /// An agent that was silent does not starve the others afterwards.
    #[test]
    fn an_agent_that_comes_late_starts_at_the_present() {
        let mut queue = FairQueue::default();
        for call in 0..60 {
            queue.push(&name("a"), 1, PoolTicket(call));
        }
        for _ in 0..40 {
            queue.pop().unwrap();
        }
        for call in 100..120 {
            queue.push(&name("b"), 1, PoolTicket(call));
        }
        assert_eq!(served(&mut queue, &[0, 100]), [5, 5]);
    }

    #[test]
    fn a_call_that_leaves_is_not_served_and_nothing_is_kept_of_agents_that_are_gone() {
        let mut queue = FairQueue::default();
        for (call, agent) in (0..).zip(["a", "b", "c"]) {
            queue.push(&name(agent), 1, PoolTicket(call));
        }
        assert!(queue.remove(PoolTicket(1)));
        assert!(!queue.remove(PoolTicket(1)), "it has left");
        assert_eq!((queue.pop(), queue.pop()), (Some(PoolTicket(0)), Some(PoolTicket(2))));
        assert_eq!((queue.pop(), queue.agents.len()), (None, 0));
    }
}
