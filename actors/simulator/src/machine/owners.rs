//! What a machine tells other processes of its entity, and how it lets the entity go.

use clawnode_actors::session::SessionJob;
use clawnode_cluster::{AppendAnswer, StoreError};
use clawnode_kernel::{
    Activation, ActivationEnd, Core, MachineInput, MachineOutput, OwnerSays, Service,
};
use clawnode_proto::{
    Digest, Epoch, Input, Kind, Order, Position, Timestamp, TurnId, codec,
    kernel::{KernelEvent, Parked},
    session::{SessionInput, UserMessage},
};

use super::{
    bench::{Bench, input, key, message},
    scenarios::append,
};

fn order(order: Order) -> Input {
    Input::order(Kind::SESSION, key().entity(), Digest::of(b"now"), Timestamp(1), order)
}

/// The end of a turn that is not known any more.
fn stop() -> SessionInput {
    SessionInput::Cancel { turn: TurnId::from_u128(1) }
}

/// A session whose call runs.
fn busy() -> Bench {
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench
}

// === who asks ===

/// I4: an input is only acknowledged elsewhere if it might be acknowledged here.
#[test]
fn an_input_is_completed_for_others_once_it_is_no_anchor() {
    let (a, b) = (message("a", 10).id, message("b", 10));
    let mut bench = busy();
    assert_eq!(bench.machine.says(a), OwnerSays::Held, "it was delivered here");
    assert_eq!(bench.machine.says(b.id), OwnerSays::NotMine);
    bench.again(Activation::Recovery);
    assert_eq!(bench.machine.says(a), OwnerSays::Held, "it is what wakes the session");
    bench.again_for(Activation::Recovery, vec![b.clone()]);
    assert_eq!(bench.machine.says(a), OwnerSays::Completed, "another one does");
    assert_eq!(bench.machine.says(b.id), OwnerSays::Held);
}

/// I4: the newest is what wakes the session, and it is not in hand here.
#[test]
fn an_older_input_is_kept_where_nothing_newer_is_in_hand() {
    let mut bench = busy();
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    assert_eq!(bench.completed, [message("a", 10).id], "the newer one is in hand");
    bench.again_for(Activation::Recovery, vec![message("a", 10)]);
    assert_eq!(bench.started.len(), 1);
    assert!(bench.completed.is_empty(), "{:?}", bench.completed);
}

#[test]
fn only_a_later_claim_fences_an_owner() {
    let mut bench = busy();
    let epoch = bench.core().tail.epoch;
    bench.feed(MachineInput::FencedHint(epoch));
    assert!(bench.stopped.is_none(), "{:?}", bench.stopped);
    bench.feed(MachineInput::FencedHint(Epoch(epoch.0 + 1)));
    assert!(matches!(bench.stopped, Some(ActivationEnd::Fenced)), "{:?}", bench.stopped);
}

#[test]
fn a_rumour_fences_nobody_who_has_claimed_nothing() {
    let mut bench = busy();
    bench.replies("so", Vec::new());
    bench.published();
    let epoch = bench.core().tail.epoch;
    bench.again(Activation::Fresh);
    bench.feed(MachineInput::FencedHint(Epoch(epoch.0 + 1)));
    assert!(bench.stopped.is_none(), "{:?}", bench.stopped);
}

// === going ===

#[test]
fn one_that_is_handed_over_takes_nothing_more_and_stays_until_its_call_has_ended() {
    let mut bench = busy();
    bench.feed(MachineInput::Drain);
    // There is no room besides, which changes nothing.
    bench.feed(MachineInput::MakeRoom);
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    assert!(bench.stopped.is_none(), "{:?}", bench.stopped);
    bench.replies("so", Vec::new());
    // The end of its turn is published, and it goes.
    if let Some((call, _)) = bench.started.pop() {
        bench.feed(MachineInput::Confirmed(call));
    }
    assert!(matches!(bench.stopped, Some(ActivationEnd::Released)), "{:?}", bench.stopped);
    assert_eq!(bench.inputs("accepted"), [message("a", 10).id]);
    assert!(bench.core().released, "no process need ask this one for it");
}

#[test]
fn what_an_append_announced_is_not_begun_once_the_entity_is_given_up() {
    let mut bench = Bench::new();
    bench.slow = true;
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench.feed(MachineInput::GiveUp);
    bench.slow = false;
    bench.answer();
    assert!(bench.started.is_empty(), "{:?}", bench.started);
    assert!(matches!(bench.stopped, Some(ActivationEnd::Released)), "{:?}", bench.stopped);
    assert!(bench.core().released && bench.completed.is_empty(), "I4");
}

#[test]
fn one_that_waits_for_its_call_does_not_give_way_while_something_runs() {
    let mut bench = busy();
    bench.replies("so", Vec::new());
    let Some((told, _)) = bench.started.pop() else { panic!("nothing is to be published") };
    bench.paused = true;
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    bench.feed(MachineInput::MakeRoom);
    assert!(bench.stopped.is_none(), "its last end is being told: {:?}", bench.stopped);
    bench.feed(MachineInput::Confirmed(told));
    bench.feed(MachineInput::MakeRoom);
    assert!(matches!(bench.stopped, Some(ActivationEnd::GaveWay)), "{:?}", bench.stopped);
}

#[test]
fn one_that_nobody_uses_stays_for_its_time_and_goes() {
    let mut bench = busy();
    bench.replies("so", Vec::new());
    bench.published();
    bench.now.steady = Timestamp(bench.now.steady.0 + 59_999);
    bench.feed(MachineInput::Tick);
    assert!(bench.stopped.is_none(), "{:?}", bench.stopped);
    bench.now.steady = Timestamp(bench.now.steady.0 + 1);
    bench.feed(MachineInput::Tick);
    assert!(matches!(bench.stopped, Some(ActivationEnd::Passivated)), "{:?}", bench.stopped);
    assert!(bench.core().released);
}

// === a call that is not wanted any more ===

#[test]
fn a_call_is_given_up_once_and_only_if_its_turn_is_cancelled() {
    let mut bench = busy();
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    bench.feed(MachineInput::Tick);
    assert!(bench.aborted.is_empty(), "it is wanted");
    let turn = TurnId::from(message("a", 10).id);
    bench.feed(MachineInput::Deliver(vec![input("stop", &SessionInput::Cancel { turn })]));
    let [call] = bench.aborted[..] else { panic!("{:?}", bench.aborted) };
    let steer = SessionInput::Steer(UserMessage::text("and"));
    bench.feed(MachineInput::Deliver(vec![input("steer", &steer)]));
    assert_eq!(bench.aborted.len(), 1, "once");
    assert!(!bench.kinds(0).contains(&"turn_done"), "what it has said so far is heard first");
    let (running, _) = bench.started[0];
    assert_eq!(running, call);
    bench.feed(MachineInput::Gone(call));
    assert!(bench.kinds(0).contains(&"turn_done"), "{:?}", bench.kinds(0));
}

// === out of service ===

/// Another process may have claimed it since: what is gone for good goes after the claim is stored.
#[test]
fn nothing_is_erased_before_the_claim_is_stored() {
    let mut bench = busy();
    while !matches!(bench.core().service, Service::Quarantined { .. }) {
        bench.again(Activation::Died);
        assert!(bench.activations < 10, "{:?}", bench.core());
    }
    bench.slow = true;
    bench.again_for(Activation::Recovery, vec![order(Order::Bury)]);
    assert_eq!(bench.erased, 0);
    bench.slow = false;
    bench.answer();
    assert_eq!(bench.erased, 1);
    assert_eq!(bench.core().service, Service::Deleted);
}

/// Its process dies before anything but claims is stored, until it is out of service; then these come.
fn parks_unborn(bench: &mut Bench, inputs: Vec<Input>) {
    bench.slow = true;
    while !matches!(bench.core().service, Service::Quarantined { .. }) {
        bench.again_for(Activation::Died, inputs.clone());
        bench.answer();
        assert!(bench.activations < 10, "{:?}", bench.core());
    }
    bench.slow = false;
    bench.again_for(Activation::Recovery, inputs);
    assert_eq!(bench.core().key, None, "it was never born, or was deleted");
}

/// A session that was deleted, and one that never was.
fn unborn() -> [Bench; 2] {
    let mut deleted = busy();
    deleted.replies("so", Vec::new());
    deleted.published();
    deleted.feed(MachineInput::Deliver(vec![input("delete", &SessionInput::Delete)]));
    assert_eq!(deleted.core().service, Service::Deleted);
    [deleted, Bench::new()]
}

/// I4, E1: what was parked is acknowledged, so it is worked off once it is back in service.
#[test]
fn what_was_parked_before_a_birth_begins_once_it_is_restored() {
    for mut bench in unborn() {
        let (early, message) = (input("early", &stop()), message("b", 10));
        parks_unborn(&mut bench, vec![early.clone(), message.clone()]);
        assert_eq!(bench.inputs("parked"), [early.id, message.id]);
        bench.again_for(Activation::Recovery, vec![order(Order::Restore)]);
        assert_eq!(bench.core().key, Some(key().to_string()));
        let kinds = bench.kinds(0);
        assert_eq!(kinds.iter().filter(|kind| **kind == "born").count(), 1, "{kinds:?}");
        let [(_, SessionJob::Call(call))] = &bench.started[..] else {
            panic!("{:?}", bench.started)
        };
        assert_eq!(call.turn, TurnId::from(message.id));
    }
}

/// A newer build parked it, and reads it once this one has put the session back in service.
#[test]
fn what_only_a_newer_build_reads_is_born_when_it_is_restored() {
    for mut bench in unborn() {
        parks_unborn(&mut bench, vec![input("early", &stop())]);
        let mut unknown = message("b", 10);
        unknown.body = codec::encode(&serde_json::json!({ "type": "dream" })).unwrap().into();
        append(&mut bench, &KernelEvent::from(Parked { input: unknown }));
        bench.again_for(Activation::Recovery, vec![order(Order::Restore)]);
        assert!(matches!(bench.stopped, Some(ActivationEnd::TooNew(_))), "{:?}", bench.stopped);
        assert_eq!(bench.core().key, Some(key().to_string()));
    }
}

/// What came too late for the one before begins nothing.
#[test]
fn what_begins_nothing_gives_no_birth_when_it_is_restored() {
    for mut bench in unborn() {
        parks_unborn(&mut bench, vec![input("early", &stop())]);
        let restore = order(Order::Restore);
        bench.again_for(Activation::Recovery, vec![restore.clone()]);
        assert_eq!((bench.core().key, bench.core().service), (None, Service::Active));
        assert!(bench.started.is_empty(), "{:?}", bench.started);
        assert_eq!(bench.completed, [restore.id]);
    }
}

#[test]
fn a_journal_that_the_store_cannot_read_can_be_buried_and_nothing_else() {
    let unreadable = || MachineInput::Unreadable {
        detail: "a block is missing".to_owned(),
        position: Position(0),
    };
    let unread = |inputs: Vec<Input>| {
        let mut bench = Bench::new();
        bench.machine = Bench::machine(2, 1, Activation::Recovery, bench.now);
        bench.feed(MachineInput::Deliver(inputs));
        bench.feed(unreadable());
        bench
    };
    let bench = unread(vec![message("a", 10)]);
    let stopped = &bench.stopped;
    assert!(
        matches!(stopped, Some(ActivationEnd::Corrupt(why)) if why == "a block is missing"),
        "{stopped:?}"
    );
    assert!(bench.journal.is_empty() && bench.completed.is_empty(), "nothing may follow it");
    let bench = unread(vec![message("a", 10), order(Order::Bury)]);
    assert_eq!((bench.erased, bench.kinds(0)), (1, vec!["snapshot"]));
    assert!(bench.core().has(message("a", 10).id), "what waited goes with it");
    // One that was read before has damage behind it.
    let mut bench = busy();
    bench.feed(unreadable());
    assert!(matches!(bench.stopped, Some(ActivationEnd::Corrupt(_))), "{:?}", bench.stopped);
}

// === a store that is behind ===

/// A read may show the past, but not for ever.
#[test]
fn a_store_that_lost_what_it_acknowledged_is_told_apart_from_one_that_is_behind() {
    let back =
        |tail: u64| MachineInput::ReadBack { after_expected: Vec::new(), tail: Position(tail) };
    let waiting = || {
        let mut bench = busy();
        bench.slow = true;
        bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
        bench
    };
    let mut bench = waiting();
    let behind = bench.journal.len() as u64 - 1;
    for (after, is_over) in [(0, false), (59_999, false), (1, true)] {
        bench.now.steady = Timestamp(bench.now.steady.0 + after);
        bench.feed(back(behind));
        assert_eq!(
            matches!(bench.stopped, Some(ActivationEnd::Diverged(_))),
            is_over,
            "{:?}",
            bench.stopped
        );
    }
    // It is sent again as long as nothing is lost.
    let mut bench = waiting();
    for _ in 0..3 {
        bench.feed(back(behind + 1));
        bench.now.steady = Timestamp(bench.now.steady.0 + 60_000);
    }
    assert!(bench.stopped.is_none(), "{:?}", bench.stopped);
}

#[test]
fn what_is_sent_again_waits_longer_each_time() {
    let mut bench = busy();
    bench.slow = true;
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    for most in [50, 100, 200, 400, 800, 1_000, 1_000] {
        let unknown = StoreError::Unavailable { store: "journal", detail: "no answer".to_owned() };
        bench.feed(MachineInput::Answered(AppendAnswer::Unknown(unknown)));
        let Some(MachineOutput::Append { wait, .. }) = bench.appending.take() else {
            panic!("{:?}", bench.stopped)
        };
        assert_eq!(wait.as_millis(), most);
    }
}

// === what a damaged journal still tells ===

#[test]
fn a_damaged_journal_still_tells_whose_it_is_and_what_came() {
    let mut bench = busy();
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    // Nothing follows what is before it.
    bench.journal.reverse();
    let core = Core::salvaged(key().entity(), &bench.loaded());
    assert_eq!((core.key.clone(), core.kind), (Some(key().to_string()), Some(Kind::SESSION)));
    assert!(core.has(message("a", 10).id) && core.has(message("b", 10).id));
    // A snapshot replaces all before it.
    let mut bench = busy();
    bench.replies("so", Vec::new());
    bench.published();
    bench.feed(MachineInput::Deliver(vec![input("delete", &SessionInput::Delete)]));
    assert_eq!(bench.kinds(0), ["snapshot"]);
    let core = Core::salvaged(key().entity(), &bench.loaded());
    assert!(core.has(message("a", 10).id) && core.service == Service::Deleted);
}

/// A message that is repeated within a week is known, and so are the last thousand.
#[test]
fn an_input_is_known_again_for_a_week_at_least() {
    let week = 7 * 24 * 3_600_000;
    let stray = SessionInput::Continue { turn: TurnId::from_u128(1) };
    let deliver = |bench: &mut Bench, numbers: std::ops::Range<usize>| {
        for number in numbers {
            bench.feed(MachineInput::Deliver(vec![input(&format!("s{number}"), &stray)]));
        }
    };
    let a = message("a", 10).id;
    let mut bench = busy();
    bench.now.wall = Timestamp(1 + week);
    deliver(&mut bench, 0..1_100);
    assert!(bench.core().has(a), "it came a week ago");
    bench.now.wall = Timestamp(2 + week);
    deliver(&mut bench, 1_100..1_101);
    assert!(!bench.core().has(a));
    let mut bench = busy();
    bench.now.wall = Timestamp(2 + week);
    deliver(&mut bench, 0..1_023);
    assert!(bench.core().has(a), "it is one of the last");
    deliver(&mut bench, 1_023..1_024);
    assert!(!bench.core().has(a));
}
