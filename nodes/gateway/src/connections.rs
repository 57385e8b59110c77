//! Who may hold a connection: a bounded number in all, of which those that have not shown the token
//! yet have a small part. When that part is full, a new connection takes the place of an old one:
//! the oldest of the peer that has most of them. So half-open connections keep out neither clients
//! that have shown the token nor those that are about to.
//!
//! Invariant: `unauthenticated.len() + authenticated <= connections`, because each slot holds a permit.

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv6Addr},
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

/// All connections of a gateway. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    room: Arc<Semaphore>,
    limits: Limits,
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Clone, Copy, Debug)]
struct Limits {
    all: usize,
    unauthenticated: usize,
}

#[derive(Debug, Default)]
struct OpenConnections {
    /// The number of the next connection.
    next: u64,
    /// Those that have not shown the token, by number: the oldest first.
    unauthenticated: BTreeMap<u64, Unauthenticated>,
    authenticated: usize,
    /// Connections that were closed to make room.
    evicted: u64,
}

#[derive(Debug)]
struct Unauthenticated {
    peer: CountedPeer,
    evicted: CancellationToken,
}

/// Whom connections are counted for: an address, or the network of a host with IPv6 (64 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct CountedPeer(IpAddr);

/// The place of one connection; dropping it gives the place back.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    number: u64,
    open: Arc<Mutex<OpenConnections>>,
    limits: Limits,
    evicted: CancellationToken,
    _permit: OwnedSemaphorePermit,
}

// === impl Connections ===

impl Connections {
    /// So many in all, and so many of them before they have shown the token.
    pub(super) fn new(all: NonZeroUsize, unauthenticated: NonZeroUsize) -> Self {
        let all = all.get();
        // However few there are, most places are for clients that show the token.
        let unauthenticated = unauthenticated.get().min((all / 4).max(1));
        Self {
            room: Arc::new(Semaphore::new(all)),
            limits: Limits { all, unauthenticated },
            open: Arc::default(),
        }
    }

    /// Waits until one more may be accepted.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.room).acquire_owned().await.ok()
    }

    /// A place for the connection of this peer, which has shown nothing yet.
    pub(super) fn enter(&self, peer: IpAddr, permit: OwnedSemaphorePermit) -> ConnectionSlot {
        let mut open = lock(&self.open);
        if open.unauthenticated.len() >= self.limits.unauthenticated {
            open.evict();
        }
        let number = open.next;
        open.next += 1;
        let evicted = CancellationToken::new();
        let entry = Unauthenticated { peer: CountedPeer::of(peer), evicted: evicted.clone() };
        open.unauthenticated.insert(number, entry);
        let limits = self.limits;
        ConnectionSlot { number, open: Arc::clone(&self.open), limits, evicted, _permit: permit }
    }

    /// How many are open.
    pub(super) fn count(&self) -> usize {
        let open = lock(&self.open);
        open.unauthenticated.len() + open.authenticated
    }

    /// How many were closed to make room.
    pub(super) fn evicted(&self) -> u64 {
        lock(&self.open).evicted
    }
}

// === impl OpenConnections ===

impl OpenConnections {
    /// Closes the oldest connection of the peer that has most of those without a token.
    fn evict(&mut self) {
        let mut counts: HashMap<CountedPeer, usize> = HashMap::new();
        for slot in self.unauthenticated.values() {
            *counts.entry(slot.peer).or_default() += 1;
        }
        let most = counts.values().copied().max();
        let oldest = self
            .unauthenticated
            .iter()
            .find(|(_, slot)| counts.get(&slot.peer).copied() == most)
            .map(|(number, _)| *number);
        if let Some(gone) = oldest.and_then(|number| self.unauthenticated.remove(&number)) {
            self.evicted += 1;
            gone.evicted.cancel();
        }
    }
}

// === impl ConnectionSlot ===

impl ConnectionSlot {
    /// The connection has shown the token: it is never closed to make room from now on. `false` if
    /// there is no more room for such connections, or if it has been closed already.
    pub(super) fn authenticated(&self) -> bool {
        let mut open = lock(&self.open);
        if !open.unauthenticated.contains_key(&self.number) {
            return !self.evicted.is_cancelled();
        }
        if open.authenticated + self.limits.unauthenticated >= self.limits.all.max(2) {
            return false;
        }
        open.unauthenticated.remove(&self.number);
        open.authenticated += 1;
        true
    }

    /// Ends when the connection has to make room.
    pub(super) fn evicted(&self) -> &CancellationToken {
        &self.evicted
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        let was_waiting = open.unauthenticated.remove(&self.number).is_some();
        if !was_waiting && !self.evicted.is_cancelled() {
            open.authenticated -= 1;
        }
    }
}

// === impl CountedPeer ===

impl CountedPeer {
    fn of(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(address) if !address.is_loopback() => {
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)))
            }
            address => address,
        })
    }
}

fn lock(open: &Mutex<OpenConnections>) -> MutexGuard<'_, OpenConnections> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn of(all: usize, unauthenticated: usize) -> Connections {
        let most = |count| NonZeroUsize::new(count).unwrap();
        Connections::new(most(all), most(unauthenticated))
    }

    fn enter(connections: &Connections, host: u8) -> Option<ConnectionSlot> {
        let permit = Arc::clone(&connections.room).try_acquire_owned().ok()?;
        Some(connections.enter(Ipv4Addr::new(10, 0, 0, host).into(), permit))
    }

    #[test]
    fn a_full_house_loses_the_oldest_of_who_has_most() {
        let connections = of(16, 3);
        let first = enter(&connections, 1).unwrap();
        let flood: Vec<ConnectionSlot> = (0..5).map(|_| enter(&connections, 2).unwrap()).collect();
        assert!(
            !first.evicted().is_cancelled(),
            "another peer's flood costs no other peer a place"
        );
        let gone: Vec<bool> = flood.iter().map(|slot| slot.evicted().is_cancelled()).collect();
        assert_eq!(gone, [true, true, true, false, false]);
        assert_eq!(connections.evicted(), 3);
    }

    #[test]
    fn who_has_shown_the_token_is_not_closed() {
        let connections = of(16, 2);
        let known = enter(&connections, 1).unwrap();
        assert!(known.authenticated());
        let _flood: Vec<ConnectionSlot> =
            (0..10).map(|_| enter(&connections, 1).unwrap()).collect();
        assert!(!known.evicted().is_cancelled() && known.authenticated());
    }

    #[test]
    fn most_places_are_for_who_has_shown_the_token() {
        for (all, unauthenticated) in [(512, 512), (32, 32), (8, 4), (4, 4)] {
            let connections = of(all, unauthenticated);
            let known: Vec<ConnectionSlot> = (0..all * 3 / 4)
                .map(|_| {
                    let slot = enter(&connections, 1).unwrap();
                    assert!(slot.authenticated(), "{all}");
                    slot
                })
                .collect();
            assert!(!enter(&connections, 1).unwrap().authenticated(), "{all}");
            drop(known);
        }
    }

    #[test]
    fn an_ipv6_network_is_one_peer() {
        let a: IpAddr = "2001:db8::1".parse().unwrap();
        let b: IpAddr = "2001:db8::2".parse().unwrap();
        let c: IpAddr = "2001:db8:0:1::1".parse().unwrap();
        let mapped: IpAddr = "::ffff:10.0.0.1".parse().unwrap();
        assert_eq!(CountedPeer::of(a), CountedPeer::of(b));
        assert_ne!(CountedPeer::of(a), CountedPeer::of(c));
        assert_eq!(CountedPeer::of(mapped), CountedPeer::of("10.0.0.1".parse().unwrap()));
    }

    proptest! {
        #[test]
        fn no_sequence_breaks_the_bounds(
            all in 2_usize..12,
            unauthenticated in 1_usize..12,
            steps in prop::collection::vec((0_u8..3, 0_u8..4, any::<prop::sample::Index>()), 0..120),
        ) {
            let connections = of(all, unauthenticated);
            let mut slots: Vec<ConnectionSlot> = Vec::new();
            for (step, host, which) in steps {
                match step {
                    0 => {
                        slots.retain(|slot| !slot.evicted().is_cancelled());
                        if let Some(slot) = enter(&connections, host) {
                            prop_assert!(!slot.evicted().is_cancelled(), "the newest has a place");
                            slots.push(slot);
                        }
                    }
                    1 if !slots.is_empty() => {
                        let at = which.index(slots.len());
                        let was_closed = slots[at].evicted().is_cancelled();
                        prop_assert!(!(was_closed && slots[at].authenticated()));
                    }
                    _ if !slots.is_empty() => drop(slots.swap_remove(which.index(slots.len()))),
                    _ => {}
                }
                let open = lock(&connections.open);
                prop_assert!(open.unauthenticated.len() <= connections.limits.unauthenticated);
                prop_assert!(open.unauthenticated.len() + open.authenticated <= all);
                // Whatever holds the other places, a new client always gets in.
                prop_assert!(open.authenticated + connections.limits.unauthenticated <= all.max(2));
            }
            slots.clear();
            prop_assert_eq!(connections.count(), 0);
        }
    }
}
