//! Who is asked, who is served when, and what becomes of deliveries: one partition, step by step.

use std::{collections::BTreeSet, time::Duration};

use bytes::Bytes;
use clawnode_proto::{
    Digest, EntityId, Input, InputId, Kind, Order, Position, ProcessId, Timestamp,
    limits::ACK_PROGRESS,
    session::{SessionInput, UserMessage},
};

use super::{
    Arrived, AskId, Gone, HandleId, LastWriter, Partition, PartitionInput, PartitionOutput,
    dispatch::{LOOK_AGAIN, PUT_OFF},
};
use crate::{Activation, MissingCapability, OwnerSays, machine::PreviousOwner};

const NOW: Timestamp = Timestamp(0);
const OWNER: ProcessId = ProcessId::from_u128(2);

fn input(number: u64) -> Input {
    let name = format!("k{number}").parse().unwrap();
    let message = SessionInput::UserMessage(UserMessage::text("hello".to_owned()));
    Input::new(Kind::SESSION, "main:web:a:b", name, NOW, &message).unwrap()
}

fn entity() -> EntityId {
    input(0).entity
}

fn partition(shared: bool) -> Partition {
    Partition::new(ProcessId::from_u128(1), shared, NOW)
}

fn deliver(partition: &mut Partition, number: u64, redelivered: bool) -> Vec<PartitionOutput> {
    let (entity, position, handle) = (entity(), Position(number), HandleId(number));
    let foremost = None;
    partition
        .handle(NOW, PartitionInput::Delivered { entity, position, handle, redelivered, foremost })
}

/// The answer to the read that is under way.
fn read(partition: &mut Partition, waiting: Vec<(Position, Arrived)>) -> Vec<PartitionOutput> {
    let after = partition.slots.get(&entity()).map_or(Position(0), |slot| slot.read_after);
    partition.handle(NOW, PartitionInput::Inbox(entity(), after, waiting))
}

fn inbox(partition: &mut Partition, numbers: &[u64]) -> Vec<PartitionOutput> {
    read(partition, numbers.iter().map(|n| (Position(*n), Arrived::Input(input(*n)))).collect())
}

fn tail(partition: &mut Partition, process: ProcessId) -> Vec<PartitionOutput> {
    let last = LastWriter { process, released: false };
    partition.handle(NOW, PartitionInput::Tail(entity(), Some(last)))
}

fn says(partition: &mut Partition, says: OwnerSays) -> Vec<PartitionOutput> {
    partition.handle(NOW, PartitionInput::OwnerSaid(entity(), says))
}

fn completed(partition: &mut Partition, number: u64) -> Vec<PartitionOutput> {
    partition.handle(NOW, PartitionInput::Completed(entity(), input(number).id))
}

fn gone(partition: &mut Partition, at: u64, why: Gone) -> Vec<PartitionOutput> {
    partition.handle(Timestamp(at), PartitionInput::Gone(entity(), why))
}

fn tick(partition: &mut Partition, at: u64) -> Vec<PartitionOutput> {
    partition.handle(Timestamp(at), PartitionInput::Tick)
}

fn reads(after: u64) -> PartitionOutput {
    PartitionOutput::ReadInbox(entity(), Position(after))
}

fn asks(number: u64) -> PartitionOutput {
    PartitionOutput::AskOwner(OWNER, entity(), input(number).id)
}

/// How the entity is activated, and with what.
fn activated(out: &[PartitionOutput]) -> (Activation, PreviousOwner, Vec<Input>) {
    let [
        PartitionOutput::Activate(_, Kind::SESSION, how, previous),
        PartitionOutput::Deliver(_, inputs),
        ..,
    ] = out
    else {
        panic!("{out:?}")
    };
    (*how, *previous, inputs.clone())
}

/// A partition whose entity is active, with one input in hand.
fn active() -> Partition {
    let mut partition = partition(false);
    deliver(&mut partition, 1, false);
    activated(&inbox(&mut partition, &[1]));
    partition
}

// === the last writer ===

/// A partition that asks the entity's last writer about these inputs.
fn asking(numbers: &[u64]) -> Partition {
    let mut partition = partition(true);
    deliver(&mut partition, 1, false);
    assert_eq!(inbox(&mut partition, numbers), [PartitionOutput::ReadTail(entity())]);
    assert_eq!(tail(&mut partition, OWNER), [asks(1)]);
    partition
}

#[test]
fn who_is_silent_is_asked_twice_before_its_entity_is_claimed() {
    let mut partition = asking(&[1]);
    assert_eq!(says(&mut partition, OwnerSays::Silent), [asks(1)]);
    let out = says(&mut partition, OwnerSays::Silent);
    let previous = PreviousOwner::Of(Some(OWNER));
    assert_eq!(activated(&out), (Activation::Recovery, previous, vec![input(1)]));
    assert_eq!(says(&mut partition, OwnerSays::Held), [], "its answer is no longer needed");
}

#[test]
fn what_is_not_its_last_writers_any_more_is_claimed_at_once() {
    let mut partition = asking(&[1]);
    let out = says(&mut partition, OwnerSays::NotMine);
    assert_eq!(activated(&out).0, Activation::Recovery);
}

#[test]
fn what_its_last_writer_has_is_left_to_it() {
    let mut partition = asking(&[1]);
    assert_eq!(says(&mut partition, OwnerSays::Held), [PartitionOutput::Forget(HandleId(1))]);
    assert_eq!(partition.entities(), 0);
}

#[test]
fn what_its_last_writer_has_done_is_acknowledged_and_the_next_is_asked_about() {
    let mut partition = asking(&[1, 2]);
    assert_eq!(says(&mut partition, OwnerSays::Silent), [asks(1)]);
    let out = says(&mut partition, OwnerSays::Completed);
    assert_eq!(out, [PartitionOutput::Ack(HandleId(1)), asks(2)]);
    // It is alive: its silence counts from the start.
    assert_eq!(says(&mut partition, OwnerSays::Silent), [asks(2)]);
    let out = says(&mut partition, OwnerSays::Silent);
    assert_eq!(activated(&out).2, [input(2)], "what is done is not handed on");
    let mut partition = asking(&[1]);
    let out = says(&mut partition, OwnerSays::Completed);
    assert_eq!(out, [PartitionOutput::Ack(HandleId(1))]);
    assert_eq!(partition.entities(), 0);
}

#[test]
fn nobody_waits_for_the_answer_of_the_dead() {
    let dead = |process| PartitionInput::Dead(BTreeSet::from([process]));
    let mut partition = asking(&[1]);
    assert_eq!(partition.handle(NOW, dead(ProcessId::from_u128(3))), []);
    activated(&partition.handle(NOW, dead(OWNER)));
    // Nor is it asked in the first place.
    let mut partition = self::partition(true);
    partition.handle(NOW, dead(OWNER));
    deliver(&mut partition, 1, false);
    inbox(&mut partition, &[1]);
    activated(&tail(&mut partition, OWNER));
}

#[test]
fn a_process_does_not_ask_itself() {
    let mut partition = partition(true);
    deliver(&mut partition, 1, false);
    inbox(&mut partition, &[1]);
    activated(&tail(&mut partition, ProcessId::from_u128(1)));
    // A tail that comes late changes nothing.
    assert_eq!(tail(&mut partition, OWNER), []);
}

// === others ask and ring ===

#[test]
fn what_is_not_served_here_yet_is_not_answered_for() {
    let mut partition = partition(false);
    deliver(&mut partition, 1, false);
    let ask = PartitionInput::Asked(AskId(7), entity(), input(1).id, Some(OWNER));
    assert_eq!(partition.handle(NOW, ask), [PartitionOutput::AnswerNotMine(AskId(7))]);
}

#[test]
fn who_is_rung_for_what_it_has_goes_on_sooner() {
    let rung = || PartitionInput::Rung(AskId(7), entity(), input(1).id);
    let answer = || PartitionOutput::AnswerRung(AskId(7));
    // Its actor is asked.
    let mut partition = active();
    let asked = PartitionOutput::AskActor(AskId(7), entity(), input(1).id);
    assert_eq!(partition.handle(NOW, rung()), [asked, reads(1)]);
    // The process that is asked has just given it up.
    let mut partition = asking(&[1]);
    let out = partition.handle(NOW, rung());
    assert_eq!(out, [PartitionOutput::ReadTail(entity()), answer()]);
    // It need not wait any longer.
    let mut partition = active();
    gone(&mut partition, 0, Gone::Lost);
    assert_eq!(partition.handle(NOW, rung()), [reads(0), answer()]);
    // It is being read already.
    assert_eq!(partition.handle(NOW, rung()), [answer()]);
    let out = inbox(&mut partition, &[1]);
    assert_eq!(activated(&out).0, Activation::Recovery);
    assert_eq!(out.len(), 2, "it is not read once more: {out:?}");
}

// === going ===

#[test]
fn an_idle_entity_is_forgotten_unless_something_waits_for_it() {
    let mut partition = active();
    completed(&mut partition, 1);
    assert_eq!(gone(&mut partition, 0, Gone::Idle), []);
    assert_eq!(partition.entities(), 0);
    // It is in hand.
    let mut partition = active();
    assert_eq!(gone(&mut partition, 0, Gone::Idle), [reads(0)]);
    // It may be about to be read.
    let mut partition = active();
    completed(&mut partition, 1);
    partition.handle(NOW, PartitionInput::Scanned(vec![entity()]));
    assert_eq!(gone(&mut partition, 0, Gone::Idle), [reads(0)]);
    // It could not be read.
    let mut partition = active();
    completed(&mut partition, 1);
    partition.handle(NOW, PartitionInput::Scanned(vec![entity()]));
    partition.handle(NOW, PartitionInput::ReadFailed(entity()));
    assert_eq!(gone(&mut partition, 0, Gone::Idle), [reads(0)]);
    // Its acknowledgement was lost.
    let mut partition = active();
    completed(&mut partition, 1);
    assert_eq!(deliver(&mut partition, 1, true), [], "it was read");
    assert_eq!(gone(&mut partition, 0, Gone::Idle), [reads(0)]);
}

#[test]
fn how_its_actor_ended_is_told_to_the_next_one() {
    for (why, how) in [(Gone::Died, Activation::Died), (Gone::Lost, Activation::Recovery)] {
        let mut partition = active();
        gone(&mut partition, 0, why);
        assert_eq!(tick(&mut partition, 100), [reads(0)]);
        assert_eq!(activated(&inbox(&mut partition, &[1])).0, how);
        // Once.
        gone(&mut partition, 100, Gone::Lost);
        assert_eq!(tick(&mut partition, 300), [reads(0)]);
        assert_eq!(activated(&inbox(&mut partition, &[1])).0, Activation::Recovery);
    }
}

#[test]
fn what_is_lost_again_and_again_waits_longer_each_time() {
    let mut partition = active();
    let mut at = 0;
    for wait in [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000] {
        gone(&mut partition, at, Gone::Lost);
        assert!(!tick(&mut partition, at + wait - 1).contains(&reads(0)), "{wait}");
        assert!(tick(&mut partition, at + wait).contains(&reads(0)), "{wait}");
        activated(&inbox(&mut partition, &[1]));
        at += wait;
    }
    // An input that is done resets the wait.
    completed(&mut partition, 1);
    gone(&mut partition, at, Gone::Lost);
    assert!(tick(&mut partition, at + 100).contains(&reads(0)));
}

#[test]
fn what_cannot_be_read_waits_longer_each_time() {
    let mut partition = partition(false);
    deliver(&mut partition, 1, false);
    let mut at = 0;
    for wait in [100, 200, 400, 800, 1_600, 2_000, 2_000] {
        partition.handle(Timestamp(at), PartitionInput::ReadFailed(entity()));
        assert!(!tick(&mut partition, at + wait - 1).contains(&reads(0)), "{wait}");
        assert!(tick(&mut partition, at + wait).contains(&reads(0)), "{wait}");
        at += wait;
    }
}

#[test]
fn how_long_inputs_stay_away_says_why_their_entity_went() {
    for (why, wait) in [
        (Gone::Released, Duration::ZERO),
        (Gone::GaveWay, Duration::from_secs(30)),
        (Gone::Unservable, PUT_OFF),
    ] {
        let mut partition = active();
        let out = gone(&mut partition, 0, why);
        let next = PartitionOutput::RingNext(entity(), input(1).id);
        assert_eq!(out.contains(&next), why == Gone::Released, "{out:?}");
        assert_eq!(out.last(), Some(&PartitionOutput::Nak(HandleId(1), wait)));
        assert_eq!(partition.entities(), 0);
    }
}

#[test]
fn who_stands_back_takes_nothing_new_and_gives_back_what_is_not_active() {
    let nak = |number| PartitionOutput::Nak(HandleId(number), Duration::ZERO);
    let mut partition = partition(true);
    deliver(&mut partition, 1, false);
    assert_eq!(partition.handle(NOW, PartitionInput::Cordon(true)), [nak(1)]);
    assert_eq!((partition.entities(), partition.handles()), (0, 0));
    assert_eq!(partition.handle(NOW, PartitionInput::Scanned(vec![entity()])), []);
    assert_eq!(deliver(&mut partition, 1, false), [nak(1)]);
    // An active entity stays, and is served.
    let mut partition = active();
    assert_eq!(partition.handle(NOW, PartitionInput::Cordon(true)), []);
    assert_eq!(deliver(&mut partition, 2, false), [reads(1)]);
    assert_eq!((partition.entities(), partition.handles()), (1, 2));
    assert_eq!(partition.look(9), [(entity(), "active")]);
    assert_eq!(partition.look(0), []);
}

// === time ===

#[test]
fn what_is_in_hand_is_kept_alive_and_what_was_not_read_is_looked_for() {
    let late = u64::try_from(ACK_PROGRESS.as_millis()).unwrap();
    let alive = || PartitionOutput::Progress(HandleId(1));
    let mut partition = active();
    assert_eq!(tick(&mut partition, late - 1), []);
    assert_eq!(tick(&mut partition, late), [alive()], "it is in hand");
    assert_eq!(tick(&mut partition, late + 1), []);
    // Its acknowledgement was lost: no read has shown it again.
    completed(&mut partition, 1);
    deliver(&mut partition, 1, true);
    assert_eq!(tick(&mut partition, 2 * late - 1), []);
    assert_eq!(tick(&mut partition, 2 * late), [alive(), reads(0)]);
}

// === what a read shows ===

#[test]
fn who_has_been_redelivered_is_recovered() {
    for (redelivered, how) in [(false, Activation::Fresh), (true, Activation::Recovery)] {
        let mut partition = partition(false);
        deliver(&mut partition, 1, redelivered);
        let out = inbox(&mut partition, &[1]);
        assert_eq!(activated(&out), (how, PreviousOwner::OfAnyone, vec![input(1)]));
    }
}

#[test]
fn what_rang_and_is_not_there_comes_again_later() {
    let mut partition = partition(true);
    deliver(&mut partition, 1, false);
    assert_eq!(inbox(&mut partition, &[]), [PartitionOutput::Nak(HandleId(1), LOOK_AGAIN)]);
    assert_eq!(partition.entities(), 0);
    // It has rung since: the read may be too old.
    deliver(&mut partition, 1, false);
    deliver(&mut partition, 2, false);
    assert_eq!(inbox(&mut partition, &[]), [reads(0)]);
    assert_eq!(inbox(&mut partition, &[1, 2]), [PartitionOutput::ReadTail(entity())]);
    // What is there does not wait for another read.
    let mut partition = self::partition(true);
    deliver(&mut partition, 1, false);
    deliver(&mut partition, 2, false);
    let out = inbox(&mut partition, &[1]);
    assert_eq!(out, [PartitionOutput::ReadTail(entity()), reads(1)]);
}

#[test]
fn what_is_in_hand_or_done_is_not_handed_on_again() {
    let mut partition = partition(false);
    partition.handle(NOW, PartitionInput::Scanned(vec![entity()]));
    activated(&inbox(&mut partition, &[1]));
    // It was found by a scan, so there is no delivery to acknowledge yet.
    assert_eq!(completed(&mut partition, 1), []);
    partition.handle(NOW, PartitionInput::Scanned(vec![entity()]));
    let out = inbox(&mut partition, &[1, 2]);
    assert_eq!(out, [PartitionOutput::Deliver(entity(), vec![input(2)])]);
    let second = Position(1);
    partition.slots.get_mut(&entity()).unwrap().seen = second;
    deliver(&mut partition, 2, false);
    assert_eq!(inbox(&mut partition, &[2]), [], "it is in hand");
    assert_eq!(deliver(&mut partition, 1, true), [PartitionOutput::Ack(HandleId(1))]);
}

fn unreadable(position: u64) -> (Position, Arrived) {
    let bytes = Bytes::from_static(b"?");
    (Position(position), Arrived::Unreadable { bytes, reason: "no input".to_owned() })
}

#[test]
fn an_entity_stays_while_something_of_it_is_put_aside() {
    let aside = |n| PartitionInput::Aside(entity(), Position(n), true);
    let mut partition = partition(false);
    deliver(&mut partition, 1, false);
    let out = read(&mut partition, vec![unreadable(1), unreadable(2)]);
    assert_eq!(out.len(), 2, "{out:?}");
    deliver(&mut partition, 2, false);
    let out = partition.handle(NOW, aside(1));
    assert_eq!(out, [PartitionOutput::Ack(HandleId(1))]);
    assert_eq!(partition.entities(), 1);
    let out = partition.handle(NOW, aside(2));
    assert_eq!(out, [PartitionOutput::Ack(HandleId(2))]);
    assert_eq!(partition.entities(), 0);
    // An active entity has an actor, which ends first.
    let mut partition = active();
    completed(&mut partition, 1);
    deliver(&mut partition, 2, false);
    read(&mut partition, vec![unreadable(2)]);
    let out = partition.handle(NOW, aside(2));
    assert_eq!(out, [PartitionOutput::Ack(HandleId(2))]);
    assert_eq!(partition.look(1), [(entity(), "active")]);
}

/// Who gives an order may not have been able to read of which kind the entity is.
#[test]
fn an_order_says_the_kind_only_if_nothing_else_does() {
    let other = Kind::of("other");
    let order = |n| {
        let order = Input::order(other, entity(), Digest::ZERO, NOW, Order::Bury);
        (Position(n), Arrived::Input(order))
    };
    let message = |n| (Position(n), Arrived::Input(input(n)));
    for (waiting, kind) in [
        (vec![order(1)], other),
        (vec![order(1), message(2)], Kind::SESSION),
        (vec![message(1), order(2)], Kind::SESSION),
    ] {
        let mut partition = partition(false);
        deliver(&mut partition, 1, false);
        let out = read(&mut partition, waiting);
        let [PartitionOutput::Activate(_, found, ..), PartitionOutput::Deliver(..)] = &out[..]
        else {
            panic!("{out:?}")
        };
        assert_eq!(*found, kind);
    }
}

#[test]
fn what_is_known_to_be_anothers_stays_known() {
    let mut partition = partition(true);
    let needs = MissingCapability::Input(9);
    let entities = [1, 2, 3].map(|n| EntityId::derive(Kind::SESSION, &format!("main:web:a:{n}")));
    for entity in entities {
        partition.handle(NOW, PartitionInput::TooNew(entity, needs.clone()));
    }
    for entity in entities {
        let rung = PartitionInput::Rung(AskId(1), entity, InputId::from_u128(1));
        assert_eq!(partition.handle(NOW, rung), [PartitionOutput::AnswerNotMine(AskId(1))]);
    }
}
