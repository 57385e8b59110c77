//! Who should own what: rendezvous hashing of partitions over processes.
//!
//! After Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates" (1998): each
//! process scores each partition, and the highest score is rank 0. When a process comes or goes,
//! only its own partitions move. A process that is busier than others lowers its rank by up to
//! [`RANK_MAX`]. Two processes may then pull at the same rank, which is harmless. Placement serves
//! speed and load only; the journal keeps it safe.

use clawnode_proto::{Partition, ProcessId};

use crate::inbox::RANK_MAX;

/// A worker that takes work, as its heartbeat says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seat {
    pub process: ProcessId,
    /// By how many ranks it lowers itself.
    pub shed: u8,
}

/// The share of one process in each partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement(Vec<PartitionShare>);

/// The share of one process in one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PartitionShare {
    /// The rank at which it pulls, if it pulls.
    pulls_at: Option<u8>,
    /// Whether it is served before all others.
    first: bool,
}

// === impl Placement ===

impl Placement {
    /// The share of `me` among these workers.
    pub fn of(partitions: u16, me: ProcessId, seats: &[Seat]) -> Self {
        Self((0..partitions).map(|partition| standing(Partition(partition), me, seats)).collect())
    }

    /// The share of a process that has no others.
    pub fn alone(partitions: u16) -> Self {
        Self(vec![PartitionShare { pulls_at: Some(0), first: true }; usize::from(partitions)])
    }

    /// The share of a process that takes nothing.
    pub fn nowhere(partitions: u16) -> Self {
        Self(vec![PartitionShare { pulls_at: None, first: false }; usize::from(partitions)])
    }

    /// The rank at which it pulls a partition, if it pulls it.
    pub fn pulls_at(&self, partition: Partition) -> Option<u8> {
        self.0.get(usize::from(partition.0)).and_then(|standing| standing.pulls_at)
    }

    /// The partitions of which it is served before all others.
    pub fn firsts(&self) -> impl Iterator<Item = Partition> {
        let numbered = (0..).map(Partition).zip(&self.0);
        numbered.filter(|(_, standing)| standing.first).map(|(partition, _)| partition)
    }
}

/// The rank of `me` among `live` for a partition: 0 serves it first. A process that is not among
/// them ranks after all.
pub fn rank(partition: Partition, me: ProcessId, live: &[ProcessId]) -> usize {
    let mine = (score(partition, me), me);
    live.iter()
        .filter(|other| **other != me)
        .filter(|other| (score(partition, **other), **other) > mine)
        .count()
}

/// The process that ranks first for a partition among `live`, however busy it is; none if there is none.
pub fn first(partition: Partition, live: &[ProcessId]) -> Option<ProcessId> {
    live.iter().copied().max_by_key(|process| (score(partition, *process), *process))
}

/// Who pulls a partition and at which rank, the first in front.
pub fn serving(partition: Partition, seats: &[Seat]) -> Vec<(u8, ProcessId)> {
    let mut order: Vec<(u64, &Seat)> =
        seats.iter().map(|seat| (score(partition, seat.process), seat)).collect();
    order.sort_unstable_by_key(|(score, seat)| std::cmp::Reverse((*score, seat.process)));
    let least = seats.iter().map(|seat| seat.shed).min().unwrap_or_default();
    // Only processes that pull can be first; among equals, the one that is first without shedding.
    let pulling = order.iter().zip(0..=RANK_MAX).map(|((_, seat), rank)| {
        ((rank + (seat.shed - least).min(RANK_MAX)).min(RANK_MAX), seat.process)
    });
    let mut pulling: Vec<_> = pulling.collect();
    pulling.sort_by_key(|(pulls_at, _)| *pulls_at);
    pulling
}

fn standing(partition: Partition, me: ProcessId, seats: &[Seat]) -> PartitionShare {
    let pulling = serving(partition, seats);
    let mine = pulling.iter().find(|(_, process)| *process == me);
    PartitionShare {
        pulls_at: mine.map(|(pulls_at, _)| *pulls_at),
        first: pulling.first().is_some_and(|(_, process)| *process == me),
    }
}

fn score(partition: Partition, process: ProcessId) -> u64 {
    let mut hasher = blake3::Hasher::new();
    hasher.update(&partition.0.to_be_bytes());
    hasher.update(&process.as_u128().to_be_bytes());
    let mut out = [0; 8];
    hasher.finalize_xof().fill(&mut out);
    u64::from_be_bytes(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARTITIONS: u16 = 32;

    fn seats(ranks: &[(u128, u8)]) -> Vec<Seat> {
        ranks
            .iter()
            .map(|&(process, shed)| Seat { process: ProcessId::from_u128(process), shed })
            .collect()
    }

    /// The shares of all, in the order of `seats`.
    fn all(seats: &[Seat]) -> Vec<Placement> {
        seats.iter().map(|seat| Placement::of(PARTITIONS, seat.process, seats)).collect()
    }

    proptest! {
        #[test]
        fn ranks_are_a_permutation_and_a_loss_moves_only_what_was_lost(
            ids in proptest::collection::btree_set(any::<u128>(), 2..8), partition: u16
        ) {
            let live: Vec<_> = ids.into_iter().map(ProcessId::from_u128).collect();
            let partition = Partition(partition);
            let mut ranks: Vec<_> = live.iter().map(|process| rank(partition, *process, &live)).collect();
            let first = ranks.iter().position(|rank| *rank == 0).unwrap();
            prop_assert_eq!(super::first(partition, &live), Some(live[first]));
            ranks.sort_unstable();
            prop_assert_eq!(ranks, (0..live.len()).collect::<Vec<_>>());
            for lost in (0..live.len()).filter(|lost| *lost != first) {
                let mut rest = live.clone();
                rest.remove(lost);
                prop_assert_eq!(rank(partition, live[first], &rest), 0);
            }
        }

        #[test]
        fn one_is_first_and_four_pull_whatever_they_shed(
            ranks in proptest::collection::btree_map(any::<u128>(), 0..=RANK_MAX, 1..8)
        ) {
            let seats = seats(&ranks.into_iter().collect::<Vec<_>>());
            let placed = all(&seats);
            for partition in (0..PARTITIONS).map(Partition) {
                let firsts = placed.iter().filter(|placement| placement.firsts().any(|one| one == partition));
                prop_assert_eq!(firsts.count(), 1);
                let pulling: Vec<_> =
                    placed.iter().filter_map(|placement| placement.pulls_at(partition)).collect();
                prop_assert_eq!(pulling.len(), seats.len().min(4));
                prop_assert!(pulling.iter().all(|rank| *rank <= RANK_MAX));
                let first = placed.iter().find(|placement| placement.firsts().any(|one| one == partition));
                prop_assert_eq!(
                    first.and_then(|placement| placement.pulls_at(partition)), pulling.iter().min().copied()
                );
            }
        }

        #[test]
        fn who_comes_takes_only_for_itself_and_who_sheds_gives_only_its_own(
            ids in proptest::collection::btree_set(any::<u128>(), 2..8), newcomer: u128
        ) {
            let old: Vec<(u128, u8)> = ids.iter().map(|id| (*id, 0)).collect();
            let before = all(&seats(&old));
            let mut grown = old.clone();
            grown.push((newcomer, 0));
            let mut shedding = old.clone();
            shedding[0].1 = RANK_MAX;
            let (grown, shedding) = (all(&seats(&grown)), all(&seats(&shedding)));
            for (at, before) in before.iter().enumerate() {
                let had: Vec<_> = before.firsts().collect();
                prop_assert!(grown[at].firsts().all(|one| had.contains(&one)));
                if at > 0 {
                    let has: Vec<_> = shedding[at].firsts().collect();
                    prop_assert!(had.iter().all(|one| has.contains(one)));
                }
            }
        }
    }

    #[test]
    fn where_all_stand_back_nobody_does() {
        let (calm, busy) = ([(1, 0), (2, 0), (3, 1)], [(1, 2), (2, 2), (3, 3)]);
        assert_eq!(all(&seats(&calm)), all(&seats(&busy)));
    }

    #[test]
    fn who_is_not_among_them_takes_nothing() {
        let me = ProcessId::from_u128(9);
        assert_eq!(Placement::of(8, me, &seats(&[(1, 0)])), Placement::nowhere(8));
        assert_eq!(Placement::of(8, me, &seats(&[(9, 0)])), Placement::alone(8));
    }
}
