//! Who should own what: rendezvous hashing of partitions over processes.
//!
//! After Thaler and Ravishankar, "Using Name-Based Mappings to Increase Hit Rates" (1998): each
//! process scores each partition, the highest score is rank 0. When a process comes or goes, only
//! its own partitions move. Placement is about speed and load; safety is the journal's.

use clawnode_proto::{Partition, ProcessId};

/// The rank of `me` among `live` for a partition: 0 serves it first. A process that is not among
/// them ranks behind all.
pub fn rank(partition: Partition, me: ProcessId, live: &[ProcessId]) -> usize {
    let mine = score(partition, me);
    live.iter()
        .filter(|other| **other != me)
        .filter(|other| (score(partition, **other), **other) > (mine, me))
        .count()
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

    proptest! {
        #[test]
        fn ranks_are_a_permutation_and_a_loss_moves_only_what_was_lost(
            ids in proptest::collection::btree_set(any::<u128>(), 2..8), partition: u16
        ) {
            let live: Vec<_> = ids.into_iter().map(ProcessId::from_u128).collect();
            let partition = Partition(partition);
            let mut ranks: Vec<_> = live.iter().map(|it| rank(partition, *it, &live)).collect();
            let first = ranks.iter().position(|rank| *rank == 0).unwrap();
            ranks.sort_unstable();
            prop_assert_eq!(ranks, (0..live.len()).collect::<Vec<_>>());
            for lost in (0..live.len()).filter(|lost| *lost != first) {
                let mut rest = live.clone();
                rest.remove(lost);
                prop_assert_eq!(rank(partition, live[first], &rest), 0);
            }
        }
    }
}
