//! Sizes, order, room, what kills its process, parking and deletion, each from the machine's inputs.

use bytes::Bytes;
use clawnode_actors::session::Session;
use clawnode_cluster::Record;
use clawnode_kernel::{
    Activation, ActivationEnd, Entity, MachineInput, MissingCapability, PreviousOwner, Service,
    core::SnapshotBody,
    newer::{self, Future},
};
use clawnode_proto::{
    Digest, Grammar, Input, InputId, Kind, Order, Position, Timestamp, TurnId, codec,
    kernel::{Accepted, CLAIM, KernelEvent, Parked, SNAPSHOT, Snapshot, SnapshotState},
    session::SessionInput,
    tool::ToolUse,
};

use super::bench::{Bench, KIB, Tries, input, key, message};

/// A session that was taken out of service and has no owner now.
fn quarantined() -> Bench {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("first", 10)]));
    while !matches!(bench.core().service, Service::Quarantined { .. }) {
        bench.again(Activation::Died);
    }
    bench
}

// === order and sizes ===

#[test]
fn what_is_small_does_not_overtake_what_is_large() {
    let mut bench = Bench::new();
    let inputs = [message("a", 200 * KIB), message("b", 100 * KIB), message("c", 10)];
    let ids: Vec<InputId> = inputs.iter().map(|one| one.id).collect();
    bench.feed(MachineInput::Deliver(inputs.to_vec()));
    assert_eq!(bench.inputs("accepted"), ids);
}

#[test]
fn a_reply_and_an_input_that_do_not_fit_together_go_into_two_appends() {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench.slow = true;
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    // While that is being stored, much more comes than one append takes.
    let large = message("c", 250 * KIB);
    let arguments = format!("{{\"x\":\"{}\"}}", "y".repeat(100 * KIB));
    let ask = ToolUse { id: "1".to_owned(), name: "none".to_owned(), arguments };
    bench.feed(MachineInput::Deliver(vec![large.clone()]));
    bench.replies(&"z".repeat(200 * KIB), vec![ask]);
    let before = bench.journal.len();
    bench.slow = false;
    bench.answer();
    assert!(bench.stopped.is_none(), "{:?}", bench.stopped);
    assert_eq!(bench.journal.len(), before + 3, "{:?}", bench.kinds(before));
    assert!(bench.inputs("accepted").contains(&large.id));
    let kinds = bench.kinds(before);
    assert_eq!(kinds.iter().filter(|kind| **kind == "model_done").count(), 1, "{kinds:?}");
    // What followed from the reply was begun, after all of it was stored.
    assert_eq!(bench.started.len(), 1);
    let entity = Entity::<Session>::of(key().entity(), &bench.loaded()).unwrap();
    assert_eq!(entity.state.open.len(), 3);
}

#[test]
fn nothing_starts_before_the_last_part_of_a_draft_is_stored() {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench.slow = true;
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    bench.feed(MachineInput::Deliver(vec![message("c", 250 * KIB)]));
    let arguments = format!("{{\"x\":\"{}\"}}", "y".repeat(100 * KIB));
    let ask = ToolUse { id: "1".to_owned(), name: "none".to_owned(), arguments };
    bench.replies(&"z".repeat(200 * KIB), vec![ask]);
    bench.answer();
    // The first part is on its way, and stored.
    bench.answer();
    assert!(bench.appending.is_some(), "there is a second part");
    assert!(bench.started.is_empty(), "I8");
    assert!(bench.machine.settled().is_none(), "I5");
    // It is lost to another owner: nothing of it may be seen.
    bench.appending = None;
    bench.journal.push(Record { position: Position(99), bytes: Bytes::new() });
    bench.feed(MachineInput::ReadBack {
        after_expected: bench.journal[4..].to_vec(),
        tail: Position(99),
    });
    assert!(bench.started.is_empty(), "I8");
}

// === room ===

#[test]
fn one_at_rest_makes_room_at_once_and_one_that_works_does_not() {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench.feed(MachineInput::MakeRoom);
    assert!(bench.stopped.is_none(), "its call runs");
    bench.replies("so", Vec::new());
    let Some((call, _)) = bench.started.pop() else { panic!("its end is published") };
    bench.feed(MachineInput::Confirmed(call));
    assert!(bench.stopped.is_none(), "it was used since");
    bench.feed(MachineInput::MakeRoom);
    assert!(matches!(bench.stopped, Some(ActivationEnd::Passivated)), "{:?}", bench.stopped);
}

#[test]
fn one_that_only_waits_gives_way_with_what_waits() {
    let mut bench = Bench::new();
    bench.paused = true;
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench.feed(MachineInput::Tick);
    assert!(bench.stopped.is_none(), "there is room");
    bench.feed(MachineInput::MakeRoom);
    assert!(matches!(bench.stopped, Some(ActivationEnd::GaveWay)), "{:?}", bench.stopped);
    assert!(bench.core().released, "no process need ask this one for it");
    assert!(bench.completed.is_empty(), "I4");
    // It comes again, and goes on.
    bench.paused = false;
    bench.again_for(Activation::Fresh, vec![message("a", 10)]);
    assert_eq!(bench.started.len(), 1);
    assert_eq!(bench.core().service, Service::Active);
}

// === out of service ===

#[test]
fn whatever_comes_for_one_out_of_service_is_parked_before_it_is_acknowledged() {
    let mut bench = quarantined();
    let (large, small) = (message("large", 300 * KIB), message("small", 10));
    bench.again_for(Activation::Recovery, vec![large.clone()]);
    assert_eq!(bench.completed, [large.id]);
    // The large one is delivered again, together with a new one.
    bench.again_for(Activation::Recovery, vec![large.clone(), small.clone()]);
    assert_eq!(bench.inputs("parked"), [large.id, small.id]);
    assert_eq!(bench.completed.len(), 2, "{:?}", bench.completed);
    assert!(matches!(bench.stopped, Some(ActivationEnd::Quarantined(_))), "{:?}", bench.stopped);
}

// === what kills its process ===

/// One that dies while it is folded: the claim is the last that its process does.
fn dies_in_the_fold(bench: &mut Bench) {
    bench.slow = true;
    bench.again(Activation::Recovery);
    bench.slow = false;
    if let Some(append) = bench.appending.take() {
        bench.store(append);
    }
}

#[test]
fn one_that_kills_its_process_is_taken_out_of_service_after_five_deaths() {
    let mut bench = Bench::new();
    bench.slow = true;
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    let append = bench.appending.take().unwrap();
    bench.store(append);
    for deaths in 2..=5 {
        dies_in_the_fold(&mut bench);
        assert_eq!(bench.core().claims_without_progress, deaths);
        assert_eq!(bench.core().service, Service::Active);
    }
    bench.again(Activation::Recovery);
    assert!(matches!(bench.core().service, Service::Quarantined { .. }));
    assert_eq!(bench.kinds(0).iter().filter(|kind| **kind == CLAIM).count(), 6);
    assert!(bench.started.is_empty());
}

#[test]
fn one_that_always_panics_is_taken_out_of_service_as_well() {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    for deaths in 1..=4 {
        bench.again(Activation::Died);
        assert_eq!(bench.core().claims_without_progress, 1 + deaths);
    }
    bench.again(Activation::Died);
    assert!(matches!(bench.core().service, Service::Quarantined { .. }));
}

#[test]
fn one_whose_process_dies_of_something_else_stays_in_service() {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    for life in 2..=20 {
        // It runs, and was not in hand, when its process is killed.
        bench.again(Activation::Recovery);
        assert_eq!(bench.started.len(), 1, "life {life}");
        assert!(bench.core().claims_without_progress <= 3, "life {life}");
    }
    assert_eq!(bench.core().service, Service::Active);
    bench.replies("so", Vec::new());
    assert_eq!(bench.core().claims_without_progress, 0);
    // Now and then it is in hand by chance. That is not five times in a row.
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    for life in 0..12 {
        bench.noted = life == 5 || life == 9;
        bench.again(Activation::Recovery);
    }
    assert_eq!(bench.core().service, Service::Active);
    // From then on it is what kills.
    for _ in 0..5 {
        bench.noted = true;
        bench.again(Activation::Recovery);
    }
    assert!(matches!(bench.core().service, Service::Quarantined { .. }));
}

#[test]
fn what_can_do_nothing_is_not_claimed_again_and_again() {
    let mut bench = Bench::new();
    bench.paused = true;
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    for _ in 0..20 {
        bench.again_for(Activation::Recovery, vec![message("a", 10)]);
        assert!(bench.stopped.is_none() && bench.started.is_empty());
    }
    let claims = bench.kinds(0).iter().filter(|kind| **kind == CLAIM).count();
    assert!(claims <= 3, "{claims} claims to do nothing");
    assert!(bench.completed.is_empty(), "I4");
    // It goes on when it may, and the claim that rides along is not counted.
    bench.paused = false;
    bench.again_for(Activation::Recovery, vec![message("a", 10)]);
    assert_eq!(bench.started.len(), 1);
    assert_eq!(bench.core().claims_without_progress, 3);
    bench.replies("so", Vec::new());
    assert_eq!(bench.core().claims_without_progress, 0);
}

#[test]
fn one_that_waits_to_be_tried_writes_nothing_and_can_be_given_back() {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench.again(Activation::Recovery);
    bench.tries = Tries::Later;
    let before = bench.journal.len();
    bench.again_for(Activation::Recovery, vec![message("a", 10)]);
    bench.feed(MachineInput::Tick);
    assert_eq!(bench.journal.len(), before);
    bench.feed(MachineInput::Drain);
    assert!(matches!(bench.stopped, Some(ActivationEnd::Released)), "{:?}", bench.stopped);
    assert_eq!(bench.journal.len(), before);
}

// === deletion ===

/// A session that was deleted.
fn deleted() -> Bench {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench.replies("so", Vec::new());
    let Some((call, _)) = bench.started.pop() else { panic!("its end is published") };
    bench.feed(MachineInput::Confirmed(call));
    bench.feed(MachineInput::Deliver(vec![input("delete", &SessionInput::Delete)]));
    assert_eq!(bench.core().service, Service::Deleted);
    assert_eq!(bench.kinds(0), ["snapshot"]);
    bench
}

#[test]
fn what_comes_late_brings_no_deleted_session_back() {
    for again in [false, true] {
        let mut bench = deleted();
        if again {
            bench.again(Activation::Fresh);
        }
        let turn = TurnId::from(message("a", 10).id);
        let late = input("late", &SessionInput::Cancel { turn });
        bench.feed(MachineInput::Deliver(vec![late.clone()]));
        let kinds = bench.kinds(1);
        assert!(!kinds.contains(&"born") && !kinds.contains(&"accepted"), "{kinds:?}");
        let core = bench.core();
        assert_eq!((core.service.clone(), core.key.clone()), (Service::Deleted, None));
        assert!(core.has(late.id), "I4");
        assert_eq!(bench.completed.last(), Some(&late.id));
        // A message does.
        bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
        assert_eq!(bench.core().key, Some(key().to_string()));
        assert_eq!(bench.started.len(), 1);
    }
}

#[test]
fn nothing_begins_with_what_is_no_message() {
    let mut bench = Bench::new();
    let turn = TurnId::from(message("a", 10).id);
    bench.feed(MachineInput::Deliver(vec![input("stray", &SessionInput::Cancel { turn })]));
    assert_eq!(bench.kinds(0), [CLAIM, "deleted"]);
    assert_eq!(bench.completed.len(), 1);
}

#[test]
fn one_with_very_many_inputs_can_be_deleted_and_knows_them_all_afterwards() {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    let turn = TurnId::from(message("a", 10).id);
    let many = 15_000;
    let stray = |n: usize| input(&format!("s{n}"), &SessionInput::Continue { turn });
    for from in (0..many).step_by(50) {
        bench.feed(MachineInput::Deliver((from..from + 50).map(stray).collect()));
    }
    bench.replies("so", Vec::new());
    let Some((call, _)) = bench.started.pop() else { panic!("its end is published") };
    bench.feed(MachineInput::Confirmed(call));
    bench.feed(MachineInput::Deliver(vec![input("delete", &SessionInput::Delete)]));
    assert!(bench.stopped.is_none(), "{:?}", bench.stopped);
    assert_eq!(bench.erased, 1);
    assert_eq!(bench.kinds(0), ["snapshot"]);
    let core = bench.core();
    assert_eq!(core.service, Service::Deleted);
    assert!((0..many).step_by(1_000).all(|n| core.has(stray(n).id)));
    // Out of service, it can be deleted as well.
    let order =
        Input::order(Kind::SESSION, key().entity(), Digest::of(b"now"), Timestamp(1), Order::Bury);
    bench.again(Activation::Fresh);
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    while !matches!(bench.core().service, Service::Quarantined { .. }) {
        bench.again(Activation::Died);
    }
    bench.again_for(Activation::Recovery, vec![order]);
    assert_eq!(bench.core().service, Service::Deleted);
    assert!(bench.core().has(stray(0).id));
}

// === what a newer build wrote ===

/// A session at rest.
fn rested() -> Bench {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench.replies("b", Vec::new());
    bench
}

/// Its owner writes one more event.
pub(super) fn append(bench: &mut Bench, event: &impl Grammar) {
    let bytes = newer::record(key().entity(), &bench.core(), event).unwrap();
    let position = bench.journal.last().unwrap().position.next();
    bench.journal.push(Record { position, bytes });
}

fn with(kind: &'static str, body: &impl serde::Serialize) -> Bench {
    let mut bench = rested();
    append(&mut bench, &Future(kind, codec::encode(body).unwrap()));
    bench
}

#[test]
fn what_a_newer_build_wrote_is_left_to_one_that_reads_it() {
    for kind in ["model_done", "turn_done", "accepted", CLAIM, "quarantined"] {
        for how in [Activation::Fresh, Activation::Recovery] {
            let mut bench = with(kind, &"dreams");
            let before = bench.journal.len();
            bench.again_for(how, vec![message("c", 10)]);
            let needs = MissingCapability::Newer(kind.to_owned());
            assert!(
                matches!(&bench.stopped, Some(ActivationEnd::TooNew(version)) if *version == needs),
                "{kind}: {:?}",
                bench.stopped
            );
            assert_eq!(bench.journal.len(), before, "{kind}: nothing is appended");
            assert!(bench.completed.is_empty() && bench.started.is_empty());
        }
    }
}

#[test]
fn what_no_living_build_reads_can_be_buried_and_nothing_else() {
    let order =
        Input::order(Kind::SESSION, key().entity(), Digest::of(b"now"), Timestamp(1), Order::Bury);
    for kind in ["model_done", "quarantined"] {
        let mut bench = with(kind, &"dreams");
        let before = bench.journal.len();
        bench.again_for(Activation::Orphan, vec![message("c", 10)]);
        assert!(
            matches!(bench.stopped, Some(ActivationEnd::TooNew(_))),
            "{kind}: {:?}",
            bench.stopped
        );
        // Not where another process may read it.
        bench.again_for(Activation::Recovery, vec![message("c", 10), order.clone()]);
        assert!(
            matches!(bench.stopped, Some(ActivationEnd::TooNew(_))),
            "{kind}: {:?}",
            bench.stopped
        );
        assert_eq!(bench.journal.len(), before, "{kind}: nothing is appended");
        // Nor where another process has claimed it since.
        bench.previous_owner = PreviousOwner::Of(None);
        bench.again_for(Activation::Orphan, vec![order.clone()]);
        assert!(
            matches!(bench.stopped, Some(ActivationEnd::Fenced)),
            "{kind}: {:?}",
            bench.stopped
        );
        assert_eq!(bench.journal.len(), before, "{kind}: nothing is appended");
        bench.previous_owner = PreviousOwner::OfAnyone;
        bench.again_for(Activation::Orphan, vec![message("c", 10), order.clone()]);
        assert_eq!((bench.erased, bench.kinds(0)), (1, vec!["snapshot"]), "{kind}");
        assert_eq!(bench.core().service, Service::Deleted, "{kind}");
        assert!(bench.core().has(order.id) && bench.core().has(message("c", 10).id), "{kind}");
    }
}

#[test]
fn a_suspect_that_no_living_build_reads_can_be_buried() {
    let order =
        Input::order(Kind::SESSION, key().entity(), Digest::of(b"now"), Timestamp(1), Order::Bury);
    let mut bench = rested();
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    bench.again(Activation::Died);
    bench.again(Activation::Died);
    append(&mut bench, &Future("model_done", codec::encode(&"dreams").unwrap()));
    assert!(bench.core().claims_without_progress > 0, "it is a suspect");
    bench.again_for(Activation::Orphan, vec![order.clone()]);
    assert_eq!(bench.core().service, Service::Deleted, "{:?}", bench.stopped);
    assert!(bench.core().has(order.id));
}

#[test]
fn a_body_that_does_not_decode_and_has_another_hash_is_damage() {
    let mut bench = with("model_done", &serde_json::json!({ "type": "dreamed" }));
    let last = bench.journal.pop().unwrap();
    let mut bytes = last.bytes.to_vec();
    let at = bytes.windows(7).position(|window| window == b"dreamed").unwrap();
    bytes[at] = b'D';
    bench.journal.push(Record { bytes: bytes.into(), ..last });
    bench.again_for(Activation::Fresh, vec![message("c", 10)]);
    assert!(!matches!(bench.stopped, Some(ActivationEnd::TooNew(_))), "{:?}", bench.stopped);
    assert!(bench.started.is_empty());
}

#[test]
fn a_snapshot_with_a_state_of_a_newer_build_is_left_to_one_that_reads_it() {
    for how in [Activation::Fresh, Activation::Recovery] {
        let mut bench = rested();
        let core = bench.core();
        let (tail, kind) = (core.tail, codec::encode(&"dreams").unwrap().into());
        let body = codec::encode(&SnapshotBody { core, kind, needs: Vec::new() }).unwrap();
        let state = SnapshotState::Inline { bytes: body.into() };
        let positions = Vec::new();
        let snapshot = Snapshot { tail, archive: None, state, superseded: None, positions };
        append(&mut bench, &KernelEvent::from(snapshot));
        bench.journal.drain(..bench.journal.len() - 1);
        bench.again_for(how, vec![message("c", 10)]);
        let needs = MissingCapability::Newer(SNAPSHOT.to_owned());
        let stopped = &bench.stopped;
        assert!(
            matches!(stopped, Some(ActivationEnd::TooNew(version)) if *version == needs),
            "{stopped:?}"
        );
        assert_eq!(bench.journal.len(), 1, "nothing is appended");
    }
}

#[test]
fn an_input_that_a_newer_build_accepted_is_left_to_one_that_understands_it() {
    for how in [Activation::Fresh, Activation::Recovery] {
        let mut bench = rested();
        let mut unknown = message("b", 10);
        unknown.body = codec::encode(&serde_json::json!({ "type": "dream" })).unwrap().into();
        append(&mut bench, &KernelEvent::from(Accepted { input: unknown }));
        let before = bench.journal.len();
        bench.again_for(how, vec![message("c", 10)]);
        let (stopped, needs) = (&bench.stopped, MissingCapability::Newer("accepted".to_owned()));
        assert!(
            matches!(stopped, Some(ActivationEnd::TooNew(version)) if *version == needs),
            "{stopped:?}"
        );
        assert_eq!(bench.journal.len(), before, "nothing is appended");
    }
}

#[test]
fn a_parked_input_of_a_newer_build_is_not_left_out_when_it_is_restored() {
    let mut bench = quarantined();
    let mut unknown = message("b", 10);
    unknown.body = codec::encode(&serde_json::json!({ "type": "dream" })).unwrap().into();
    append(&mut bench, &KernelEvent::from(Parked { input: unknown }));
    let now = Timestamp(1);
    let order =
        Input::order(Kind::SESSION, key().entity(), Digest::of(b"now"), now, Order::Restore);
    bench.again_for(Activation::Fresh, vec![order]);
    let (stopped, needs) = (&bench.stopped, MissingCapability::Newer("restored".to_owned()));
    assert!(
        matches!(stopped, Some(ActivationEnd::TooNew(version)) if *version == needs),
        "{stopped:?}"
    );
}
