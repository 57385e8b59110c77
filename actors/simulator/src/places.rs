//! The places of each process's agent, and which calls have them or wait.

use std::{
    collections::BTreeMap,
    sync::{Arc, Weak},
};

use clawnode_actors::{
    agent::{
        Permit,
        pool::{Pool, PoolTicket},
    },
    session::Effect,
};
use clawnode_proto::{AgentName, Attempt, EntityId, ProcessId, TurnId, lane::Lane};

/// Places of one process: few enough that calls wait.
pub(super) const PLACES: u32 = 1;
/// Milliseconds in which a model says a token: the longest calls say more than may be ended.
const MS_PER_TOKEN: u64 = 10;

/// A call, by its activation.
pub(super) type SimCallKey = (EntityId, u64, Effect);

/// What a call asks its agent for.
#[derive(Debug)]
pub(super) struct WantedPlace {
    pub(super) turn: TurnId,
    /// Whether it is the first call of its turn.
    pub(super) is_new: bool,
    pub(super) agent: AgentName,
    pub(super) lane: Lane,
}

/// The places of all processes.
#[derive(Debug, Default)]
pub(super) struct SimLanes {
    /// Whether calls need a place at all.
    pub(super) is_on: bool,
    /// How many calls were ended for others.
    pub(super) ended: usize,
    pub(super) places: BTreeMap<ProcessId, SimPlaces>,
}

/// The places of one process. A permit that is nowhere any more has given its place back.
#[derive(Debug, Default)]
pub(super) struct SimPlaces {
    pub(super) pool: Pool,
    pub(super) waiting: BTreeMap<PoolTicket, (SimCallKey, Lane)>,
    pub(super) held: BTreeMap<PoolTicket, Weak<Permit>>,
    pub(super) running: BTreeMap<SimCallKey, RunningSimCall>,
}

/// A model call under way.
#[derive(Debug)]
pub(super) struct RunningSimCall {
    pub(super) permit: Arc<Permit>,
    pub(super) attempt: Attempt,
    pub(super) since: u64,
    pub(super) may_yield: bool,
}

// === impl SimLanes ===

impl SimLanes {
    /// With no places in use; none is needed unless `is_on`.
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }
}

// === impl SimPlaces ===

impl SimPlaces {
    /// What the call with this place has said, in tokens, if it may be ended.
    pub(super) fn said(&self, ticket: PoolTicket, now: u64) -> Option<u64> {
        let (_, call) = self.call(ticket)?;
        call.may_yield.then(|| now.saturating_sub(call.since) / MS_PER_TOKEN)
    }

    pub(super) fn call(&self, ticket: PoolTicket) -> Option<(&SimCallKey, &RunningSimCall)> {
        let permit = self.held.get(&ticket)?.upgrade()?;
        self.running.iter().find(|(_, call)| Arc::ptr_eq(&call.permit, &permit))
    }
}
