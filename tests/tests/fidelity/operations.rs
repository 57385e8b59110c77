//! What is done to a store.

use std::{fmt::Debug, time::Duration};

use clawnode_proto::Partition;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Few, because each costs a consumer on NATS.
pub(crate) const PARTITIONS: u16 = 4;
/// Where all inputs of all sequences wait.
pub(crate) const PARTITION: Partition = Partition(0);
/// Longer than a test: what is in hand stays there until it is answered.
pub(crate) const ACK_WAIT: Duration = Duration::from_mins(5);
/// Long enough that reaching it means a defect, not a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
/// Journals, inboxes and keys of one sequence.
pub(crate) const EACH: usize = 2;
/// Operations of one sequence.
const STEPS: u32 = 65;
/// Worlds that are tried for one sequence at most.
pub(crate) const TRIES: usize = 5_000;
/// Seeds that are tried for one concurrent pair: both orders come up.
pub(crate) const SEEDS_PAIR: u64 = 16;
/// The same if one or both may be lost: both orders with every loss of either come up.
pub(crate) const SEEDS_LOSSY_PAIR: u64 = 128;

/// Where a writer believes the last record is, as far as it knows.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expect {
    Nothing,
    Last,
    BeforeLast,
    BeyondLast,
}

/// One operation. A pair of concurrent writes has labels `label` and `label + 1`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Append {
        journal: usize,
        expect: Expect,
        rollup: bool,
        label: u32,
    },
    AppendPair {
        journal: usize,
        expect: [Expect; 2],
        rollup: bool,
        label: u32,
    },
    Read {
        journal: usize,
        after: Expect,
    },
    Tail {
        journal: usize,
    },
    Put {
        inbox: usize,
        label: u32,
    },
    ReadInbox {
        inbox: usize,
    },
    Pending {
        inbox: usize,
    },
    /// Everything that can be delivered now.
    Deliver,
    /// One of the deliveries in hand, if there is one.
    Ack {
        pick: usize,
    },
    Nak {
        pick: usize,
    },
    Set {
        key: usize,
        expect: Expect,
        label: u32,
    },
    SetPair {
        key: usize,
        expect: [Expect; 2],
        label: u32,
    },
    Remove {
        key: usize,
        expect: Expect,
    },
    Get {
        key: usize,
    },
    List,
    /// One of a few jobs, which may wait already.
    PutJob {
        job: usize,
    },
    /// All jobs that wait.
    Jobs,
    /// Every job that can be delivered now.
    DeliverJobs,
    /// One of the deliveries in hand, if there is one.
    AckJob {
        pick: usize,
    },
    NakJob {
        pick: usize,
    },
}

pub(crate) fn expect(rng: &mut impl Rng) -> Expect {
    match rng.random_range(0..10) {
        0 => Expect::Nothing,
        1 => Expect::BeforeLast,
        2 => Expect::BeyondLast,
        _ => Expect::Last,
    }
}

pub(crate) fn operations(seed: u64) -> Vec<Op> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let operation = |step: u32| {
        let (one, label, rollup) = (rng.random_range(0..EACH), 2 * step, rng.random_bool(0.2));
        let (pick, first, second) = (rng.random_range(0..8), expect(&mut rng), expect(&mut rng));
        match rng.random_range(0..36) {
            0..=4 => Op::Append { journal: one, expect: first, rollup, label },
            5..=7 => Op::AppendPair { journal: one, expect: [first, second], rollup, label },
            8..=9 => Op::Read { journal: one, after: Expect::Nothing },
            10 => Op::Read { journal: one, after: first },
            11 => Op::Tail { journal: one },
            12..=14 => Op::Put { inbox: one, label },
            15 => Op::ReadInbox { inbox: one },
            16 => Op::Pending { inbox: one },
            17 => Op::Deliver,
            18..=19 => Op::Ack { pick },
            20 => Op::Nak { pick },
            21..=22 => Op::Set { key: one, expect: first, label },
            23 => Op::SetPair { key: one, expect: [first, second], label },
            24 => Op::Remove { key: one, expect: first },
            25..=26 => Op::Get { key: one },
            27 => Op::List,
            28..=30 => Op::PutJob { job: pick },
            31 => Op::Jobs,
            32 => Op::DeliverJobs,
            33..=34 => Op::AckJob { pick },
            _ => Op::NakJob { pick },
        }
    };
    (0..STEPS).map(operation).collect()
}
