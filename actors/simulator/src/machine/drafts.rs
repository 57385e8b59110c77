//! How a machine cuts what it writes, and in which order it stands there.

use clawnode_kernel::{Activation, Machine, MachineInput, MachineOptions};
use clawnode_proto::{Incarnation, ProcessId, event::decode_record, limits::APPEND_EVENTS};

use super::bench::{Bench, KIB, key, message};

/// How many inputs each append brings.
fn accepted(bench: &Bench) -> Vec<usize> {
    let count = |from: usize| bench.kinds(from).iter().filter(|it| **it == "accepted").count();
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

/// What was told at the end of a turn is told once: that it was stands before what comes next.
#[test]
fn what_is_confirmed_is_stored_with_whatever_comes_next() {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench.replies("so", Vec::new());
    let Some((call, _)) = bench.started.pop() else { panic!("its end is told") };
    bench.feed(MachineInput::Confirmed(call));
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
    let Some((call, _)) = bench.started.pop() else { panic!("its end is told") };
    bench.feed(MachineInput::Confirmed(call));
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
