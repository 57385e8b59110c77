//! What a machine does with the call that its entity wants next.

use clawnode_actors::session::{Effect, Outcome, Session};
use clawnode_cluster::AppendAnswer;
use clawnode_kernel::{
    Activation, LoadedJournal, Machine, MachineInput, MachineOptions, MachineOutput, Now,
};
use clawnode_proto::{
    Attempt, Incarnation, Input, Kind, Position, ProcessId, SessionKey, Timestamp,
    event::decode_record,
    llm::{FailureClass, ModelFailure, Text, Usage},
    session::{SessionInput, UserMessage},
};

fn acquired(out: &[MachineOutput<Session>]) -> Option<Effect> {
    out.iter().find_map(|one| match one {
        MachineOutput::Acquire(key, _) => Some(*key),
        _ => None,
    })
}

/// A machine that has a message and asked for its call.
fn asked() -> (Machine<Session>, Now, Effect) {
    let key: SessionKey = "main:web:a:b".parse().unwrap();
    let message = UserMessage::text("hello");
    let input = SessionInput::UserMessage(message);
    let (id, now) = ("one".parse().unwrap(), Timestamp(1));
    let input = Input::new(Kind::SESSION, &key.to_string(), id, now, &input).unwrap();
    let now = Now { wall: now, steady: now };
    let me = Incarnation { process: ProcessId::from_u128(1), counter: 1 };
    let (mut machine, _) = Machine::<Session>::new(
        key.entity(),
        me,
        Activation::Fresh,
        MachineOptions::default(),
        now,
    );
    machine.handle(now, MachineInput::Loaded(LoadedJournal::default()));
    let call = acquired(&machine.handle(now, MachineInput::Deliver(vec![input]))).unwrap();
    (machine, now, call)
}

#[test]
fn a_call_that_may_not_be_made_ends_its_turn() {
    let (mut machine, now, call) = asked();
    machine.handle(now, MachineInput::Deferred(call));
    machine.handle(now, MachineInput::Answered(AppendAnswer::Stored(Position(1))));
    let failure =
        ModelFailure::new(FailureClass::NoAgent, "agent `main` is not configured".to_owned());
    let (partial, usage) = (Text::from(String::new()), Usage::default());
    let outcome = Outcome::Failed { attempt: Attempt(0), failure, partial, usage };
    let out = machine.handle(now, MachineInput::Refused(call, outcome));
    let [MachineOutput::Append { write, .. }] = &out[..] else { panic!("{out:?}") };
    let events = decode_record(&write.bytes).unwrap();
    let kinds: Vec<&str> = events.iter().map(|event| &*event.head.kind).collect();
    assert_eq!(kinds, ["turn_done", "settled"]);
}

#[test]
fn a_question_that_was_forgotten_is_asked_again_and_blocks_nothing_meanwhile() {
    let (mut machine, now, call) = asked();
    // The input is journaled, though its call was not answered.
    let out = machine.handle(now, MachineInput::Forgotten(call));
    assert!(matches!(out[..], [MachineOutput::Append { .. }]), "{out:?}");
    machine.handle(now, MachineInput::Answered(AppendAnswer::Stored(Position(1))));
    let out = machine.handle(now, MachineInput::Tick);
    assert_eq!(acquired(&out), Some(call), "{out:?}");
    assert_eq!(acquired(&machine.handle(now, MachineInput::Deferred(call))), None);
    // Who merely waits is not asked for again.
    assert_eq!(acquired(&machine.handle(now, MachineInput::Tick)), None);
}
