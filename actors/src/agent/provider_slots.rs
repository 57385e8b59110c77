//! The slots of providers: how many model calls this process makes of one provider at a time.
//!
//! A call takes its slot when it is sent, and not together with its place: which provider answers is only known
//! once routes and the chain of models have chosen, and hooks and a reservation of money come before the
//! request too. So a call that waits for a slot has its place, and what it reserved, and its time counts as the
//! turn's. Those that wait are bounded by the places of the agents. The pools are independent of each other and
//! of the agents' places: no decision needs two of them, so each has a lock of its own.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use clawnode_proto::lane::Lane;
use tokio::sync::oneshot;

use super::{
    fair_queue::PoolTicket,
    pool::{Pool, PoolRequest},
    preemption::{Yielding, YieldingCalls, preempt},
};

/// Under this name, calls that no turn makes have a share of the slots, as an agent has one.
const OUTSIDE: &str = "embeddings";

/// The slots of all providers of a process. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ProviderSlots(Arc<Mutex<BTreeMap<String, SlotPool>>>);

/// The slots of one provider.
#[derive(Debug, Default)]
struct SlotPool {
    size: u32,
    pool: Pool,
    waiting: BTreeMap<PoolTicket, oneshot::Sender<()>>,
    yielding: YieldingCalls,
}

/// A slot, or the wait for one. Dropping it gives back either.
#[derive(Debug)]
pub struct Slot {
    slots: ProviderSlots,
    provider: String,
    ticket: PoolTicket,
}

/// The answer to a request for a slot.
pub(crate) struct SlotAnswer {
    slot: Slot,
    /// Absent if there was one at once.
    comes: Option<oneshot::Receiver<()>>,
}

// === impl ProviderSlots ===

impl ProviderSlots {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, SlotPool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for one of the `size` slots of a provider. `yielding` is the call, if it may be ended for another.
    pub(crate) fn ask(
        &self,
        provider: &str,
        size: u32,
        request: &PoolRequest,
        yielding: Option<&Arc<Yielding>>,
    ) -> SlotAnswer {
        let mut pools = self.lock();
        let provider_slots = pools.entry(provider.to_owned()).or_default();
        provider_slots.size = size.max(1);
        let (ticket, comes) =
            if let Some(ticket) = provider_slots.pool.take(provider_slots.size, request.lane) {
                (ticket, None)
            } else {
                let ticket = provider_slots.pool.wait(request);
                let (tell, comes) = oneshot::channel();
                provider_slots.waiting.insert(ticket, tell);
                (ticket, Some(comes))
            };
        if let Some(yielding) = yielding {
            provider_slots.yielding.insert(ticket, Arc::clone(yielding));
        }
        provider_slots.serve();
        let slot = Slot { slots: self.clone(), provider: provider.to_owned(), ticket };
        SlotAnswer { slot, comes }
    }

    /// Takes one of the `size` slots of a provider for a call that no turn makes, or waits for it. A person or a
    /// program waits for such a call. Nothing if the name under which those calls have their share is none.
    pub async fn take(&self, provider: &str, size: u32) -> Option<Slot> {
        let (agent, weight) = (OUTSIDE.parse().ok()?, 1);
        let request = PoolRequest { agent, weight, lane: Lane::Interactive };
        Some(self.ask(provider, size, &request, None).slot().await)
    }

    /// How many calls wait for a slot of this provider.
    pub fn waiting(&self, provider: &str) -> u32 {
        let pools = self.lock();
        let waiting = pools.get(provider).map_or(0, |slots| slots.pool.waiting());
        u32::try_from(waiting).unwrap_or(u32::MAX)
    }

    fn leave(&self, provider: &str, ticket: PoolTicket) {
        let mut pools = self.lock();
        let Some(slots) = pools.get_mut(provider) else { return };
        slots.pool.leave(ticket);
        slots.waiting.remove(&ticket);
        slots.yielding.remove(&ticket);
        slots.serve();
        if slots.pool.running() == 0 && slots.pool.waiting() == 0 {
            pools.remove(provider);
        }
    }
}

// === impl SlotPool ===

impl SlotPool {
    /// Gives away what is free, and has calls end for those that still wait.
    fn serve(&mut self) {
        while let Some((ticket, _)) = self.pool.next(self.size) {
            // One that does not listen any more gives its slot back as it is dropped.
            let _is_told =
                self.waiting.remove(&ticket).is_some_and(|sender| sender.send(()).is_ok());
        }
        preempt(&mut self.pool, self.size, &self.yielding);
    }
}

// === impl SlotAnswer ===

impl SlotAnswer {
    /// Whether there is none yet.
    pub(crate) const fn waits(&self) -> bool {
        self.comes.is_some()
    }

    /// The slot, once there is one.
    pub(crate) async fn slot(self) -> Slot {
        if let Some(comes) = self.comes {
            // The sender lives in the pool until the slot is given.
            let _is_given = comes.await.is_ok();
        }
        self.slot
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.leave(&self.provider, self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn request(agent: &str, lane: Lane) -> PoolRequest {
        PoolRequest { agent: agent.parse().unwrap(), weight: 1, lane }
    }

    #[tokio::test]
    async fn a_provider_has_so_many_slots_and_they_are_given_on_when_a_call_ends_or_stops_waiting()
    {
        let slots = ProviderSlots::default();
        let ask = |lane| slots.ask("lab", 2, &request("ada", lane), None);
        let (first, second) = (ask(Lane::Interactive), ask(Lane::Background));
        assert!(!first.waits() && !second.waits());
        let other = slots.ask("other", 2, &request("ada", Lane::Interactive), None);
        assert!(!other.waits(), "each provider has its own");
        let (given_up, later) = (ask(Lane::Interactive), ask(Lane::Interactive));
        assert_eq!(slots.waiting("lab"), 2);
        let mut later = Box::pin(later.slot());
        assert!(later.as_mut().now_or_never().is_none());
        drop(given_up);
        assert_eq!(slots.waiting("lab"), 1);
        drop(first);
        let third = later.await;
        assert_eq!(slots.waiting("lab"), 0);
        assert!(ask(Lane::Interactive).waits(), "a wait that is dropped takes nothing");
        assert_eq!(slots.waiting("lab"), 0);
        drop((second, third, other));
        assert!(slots.lock().is_empty(), "a pool that is not in use is not kept");
    }

    /// LANE-1 for slots.
    #[tokio::test]
    async fn a_slot_of_the_background_is_given_up_for_a_call_that_somebody_waits_for() {
        let slots = ProviderSlots::default();
        let calls: Vec<Arc<Yielding>> = (0..3).map(|_| Arc::default()).collect();
        let ask = |call: usize| {
            slots.ask("lab", 2, &request("ada", Lane::Background), Some(&calls[call]))
        };
        let (first, second, third) = (ask(0), ask(1), ask(2));
        assert!(third.waits());
        calls[0].says(400);
        calls[1].says(200);
        calls[2].says(0);
        let urgent = slots.ask("lab", 2, &request("bob", Lane::Interactive), None);
        calls[1].ended().await;
        assert!(calls[0].ended().now_or_never().is_none(), "one is enough");
        assert!(calls[2].ended().now_or_never().is_none(), "it has no slot");
        drop(second);
        urgent.slot().await;
        drop((first, third));
    }
}
