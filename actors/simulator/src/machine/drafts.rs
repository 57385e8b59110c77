//! How a machine divides what it writes into appends, in which order, and when it writes snapshots.

use clawnode_kernel::{Activation, Core, Machine, MachineInput, MachineOptions};
use clawnode_proto::{Digest, Incarnation, ProcessId, event::decode_record, limits::APPEND_EVENTS};

use super::bench::{Bench, KIB, key, message};

/// How many inputs each append brings.
fn accepted(bench: &Bench) -> Vec<usize> {
    let count = |from: usize| bench.kinds(from).iter().filter(|kind| **kind == "accepted").count();
    let after: Vec<usize> = (0..=bench.journal.len()).map(count).collect();
    after.windows(2).map(|two| two[0] - two[1]).collect()
}

#[test]
fn inputs_that_come_together_are_stored_together_within_the_limits() {
    for (sizes, appends) in [
        (vec![10; 20], vec![20]),
        (vec![100 * KIB, 100 * KIB], vec![2]),
        (vec![200 * KIB, 200 * KIB], vec![1, 1]),
        (vec![300 * KIB, 300 * KIB, 10], vec![1, 1, 1]),
    ] {
        let mut bench = Bench::new();
        let inputs = sizes.iter().zip(0..).map(|(size, n)| message(&format!("m{n}"), *size));
        bench.feed(MachineInput::Deliver(inputs.collect()));
        assert_eq!(accepted(&bench), appends, "{sizes:?}");
    }
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver((0..50).map(|n| message(&format!("a{n}"), 10)).collect()));
    bench.feed(MachineInput::Deliver((0..50).map(|n| message(&format!("b{n}"), 10)).collect()));
    for record in &bench.journal {
        let events = decode_record(&record.bytes).unwrap().len();
        assert!(events <= APPEND_EVENTS + 2, "{events} in one append");
    }
}

/// The end of a turn is published once: the journal says so before the next input.
#[test]
fn what_is_confirmed_is_stored_with_whatever_comes_next() {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench.replies("so", Vec::new());
    bench.published();
    let before = bench.journal.len();
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    assert_eq!(bench.kinds(before)[..2], ["emitted", "accepted"]);
}

/// Another process may own it: a snapshot replaces what that one may be reading.
#[test]
fn a_snapshot_waits_until_something_is_claimed() {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench.replies("so", Vec::new());
    bench.published();
    bench.feed(MachineInput::MakeRoom);
    let (records, me) = (bench.journal.len(), ProcessId::from_u128(2));
    let options = MachineOptions { snapshot_every: 1, ..MachineOptions::default() };
    let me = Incarnation { process: me, counter: 1 };
    bench.machine = Machine::new(key().entity(), me, Activation::Fresh, options, bench.now).0;
    bench.load();
    bench.feed(MachineInput::Tick);
    assert_eq!(bench.journal.len(), records, "{:?}", bench.kinds(0));
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    assert!(bench.journal.len() < records, "{:?}", bench.kinds(0));
}

/// As large as what a session has heard: the state that a snapshot stores.
#[test]
fn a_snapshot_in_a_blob_is_only_taken_as_it_was_stored() {
    let mut bench = snapshotted(300 * KIB);
    let loaded = bench.loaded();
    assert!(Core::of(key().entity(), &loaded, &|_| true).is_ok());
    let state = loaded.snapshot.unwrap();
    let at = state.windows(9).position(|window| window == b"xxxxxxxxx").unwrap();
    let (digest, mut damaged) = (Digest::of(&state), state.to_vec());
    damaged[at] = b'y';
    bench.blobs.insert(digest, damaged.into());
    assert!(Core::of(key().entity(), &bench.loaded(), &|_| true).is_err());
}

/// One that is loaded again goes on counting where it was.
#[test]
fn a_snapshot_is_due_once_the_journal_has_grown_as_large_as_its_state() {
    let mut bench = snapshotted(100 * KIB);
    // Less than the state, together; then more.
    for (name, kinds) in [("b", 1), ("c", 1), ("d", 0)] {
        again(&mut bench);
        bench.feed(MachineInput::Deliver(vec![message(name, 40 * KIB)]));
        rest(&mut bench);
        let others = bench.kinds(0).iter().filter(|kind| **kind == "accepted").count();
        assert_eq!(others.min(1), kinds, "{name}: {:?}", bench.kinds(0));
    }
}

/// Its call ends, the end of its turn is published, and it leaves memory.
fn rest(bench: &mut Bench) {
    bench.replies("so", Vec::new());
    bench.published();
    bench.feed(MachineInput::Tick);
    bench.feed(MachineInput::MakeRoom);
}

/// The same process takes it again; snapshots need only a few events.
fn again(bench: &mut Bench) {
    bench.activations += 1;
    let me = Incarnation { process: ProcessId::from_u128(2), counter: bench.activations };
    let options = MachineOptions { snapshot_every: 5, ..MachineOptions::default() };
    bench.stopped = None;
    bench.machine = Machine::new(key().entity(), me, Activation::Fresh, options, bench.now).0;
    bench.load();
}

/// A session that has heard so much, in a snapshot.
fn snapshotted(size: usize) -> Bench {
    let mut bench = Bench::new();
    again(&mut bench);
    bench.feed(MachineInput::Deliver(vec![message("a", size)]));
    rest(&mut bench);
    assert_eq!(bench.kinds(0)[0], "snapshot");
    bench
}
