//! What calls share and of which there is only so much: the places of an agent, or the slots of a provider. It
//! decides which call gets one next; `preemption` decides which one is ended for another. Pure, with no clock: the caller
//! says how large the pool is, and how much each call has said.
//!
//! Invariants
//! - LANE-1 nothing of a lower lane is granted while a higher one waits. Only a call of the background is ended for
//!   another, never one that has said more than 1,000 tokens, and not more at a time than urgent calls wait.
//! - FAIR-1 over any 1,000 grants of a lane, no agent with calls waiting has less than half of its share (see
//!   `fair_queue`).

use std::collections::BTreeMap;

use clawnode_proto::{AgentName, lane::Lane};

use super::fair_queue::FairQueue;
pub use super::fair_queue::PoolTicket;

/// Who asks.
#[derive(Clone, Debug)]
pub struct PoolRequest {
    /// On behalf of which agent.
    pub agent: AgentName,
    /// That agent's weight.
    pub weight: u32,
    /// The lane of the turn.
    pub lane: Lane,
}

/// A pool: who has something of it, and who waits.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    last: u64,
    pub(super) running: BTreeMap<PoolTicket, PoolHolder>,
    pub(super) lanes: BTreeMap<Lane, FairQueue>,
}

/// A call that has something of a pool.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolHolder {
    pub(super) lane: Lane,
    /// It has to end for another.
    pub(super) is_ending: bool,
}

// === impl Pool ===

impl Pool {
    /// How many have something of it.
    pub fn running(&self) -> u32 {
        u32::try_from(self.running.len()).unwrap_or(u32::MAX)
    }

    /// How many wait.
    pub fn waiting(&self) -> usize {
        self.lanes.values().map(FairQueue::len).sum()
    }

    fn ticket(&mut self) -> PoolTicket {
        self.last += 1;
        PoolTicket(self.last)
    }

    fn begin(&mut self, ticket: PoolTicket, lane: Lane) {
        self.running.insert(ticket, PoolHolder { lane, is_ending: false });
    }

    /// Takes something of it at once, if there is room among `size` and no call waits.
    pub fn take(&mut self, size: u32, lane: Lane) -> Option<PoolTicket> {
        (self.running() < size && self.waiting() == 0).then(|| {
            let ticket = self.ticket();
            self.begin(ticket, lane);
            ticket
        })
    }

    /// Waits from now on.
    pub fn wait(&mut self, request: &PoolRequest) -> PoolTicket {
        let ticket = self.ticket();
        let PoolRequest { agent, weight, lane } = request;
        self.lanes.entry(*lane).or_default().push(agent, *weight, ticket);
        ticket
    }

    /// The call that has something of it from now on, if there is room among `size` and one waits.
    pub fn next(&mut self, size: u32) -> Option<(PoolTicket, Lane)> {
        if self.running() >= size {
            return None;
        }
        // LANE-1: the lanes are in order.
        let (lane, queue) = self.lanes.iter_mut().find(|(_, queue)| queue.len() > 0)?;
        let (lane, ticket) = (*lane, queue.pop()?);
        self.begin(ticket, lane);
        Some((ticket, lane))
    }

    /// A call waits no more, or gives back what it has.
    pub fn leave(&mut self, ticket: PoolTicket) {
        if self.running.remove(&ticket).is_none() {
            self.lanes.values_mut().any(|queue| queue.remove(ticket));
        }
    }

    /// A call that had to end for another goes on: its wait has just ended.
    pub fn stays(&mut self, ticket: PoolTicket) {
        if let Some(holder) = self.running.get_mut(&ticket) {
            holder.is_ending = false;
        }
    }
}
