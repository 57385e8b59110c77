//! What memories learn from turns, and when.

use clawnode_kernel::MachineInput;
use clawnode_proto::{
    SessionKey, TurnId,
    event::decode_record,
    hook::HookBlock,
    llm::FailureClass,
    session::{Plan, SessionInput, TurnOutcome, UserMessage},
    stateless::Once,
};

use super::super::{
    effect::Effect,
    prepare::{EmitJob, SessionJob},
    state::{SessionState, Turn},
};
use super::learning::{LearnJob, job};
use crate::{
    agent::{AgentMemory, AgentOptions, Grant},
    session::played::{PlayedActivation, key},
};

const NAMED: &str = "my name is Ada";

fn state(run: &PlayedActivation) -> SessionState {
    run.machine.settled().unwrap().state.clone()
}

/// The end of a turn that was sent last.
fn emitted(run: &mut PlayedActivation) -> (Effect, EmitJob) {
    let sent = run.started.iter().rposition(|(_, job)| matches!(job, SessionJob::Emit(_)));
    let (effect, SessionJob::Emit(job)) = run.started.remove(sent.unwrap()) else { panic!() };
    (effect, job)
}

/// The numbers of the events that took inputs.
fn accepted(run: &PlayedActivation) -> Vec<u64> {
    let events = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
    events.filter(|event| event.head.kind == "accepted").map(|event| event.head.n.0).collect()
}

fn said(learns: Option<&LearnJob>) -> Vec<(u64, &str)> {
    let said = learns.into_iter().flat_map(|learns| &learns.said);
    said.map(|said| (said.heard.event, said.text.inline().unwrap())).collect()
}

/// C23. The facts go with the end of the turn, so the kernel's rule holds for them (C12).
#[test]
fn c23_a_message_is_not_acknowledged_before_the_memory_was_told_what_it_says() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.says(NAMED);
    run.replies(&[]);
    let (_, first) = emitted(&mut run);
    assert_eq!(said(first.learns.as_ref()), [(accepted(&run)[0], NAMED)]);
    assert_eq!(run.completed, [], "the memory may not have it");

    // The process dies, and the next owner sends the same.
    let mut next = PlayedActivation::resumed(run);
    next.says(NAMED);
    let (effect, second) = emitted(&mut next);
    assert_eq!(second.learns, first.learns, "MEM-3");
    let points = |learns: &LearnJob| {
        let contents = clawnode_memory::extract::facts(NAMED);
        learns.points(&learns.said[0], contents).remove(0).source.unwrap()
    };
    let source = points(&second.learns.unwrap());
    assert_eq!((source.entity, source.event, source.part), (key().entity(), accepted(&next)[0], 0));
    assert_eq!(next.completed, []);
    next.feed(MachineInput::Confirmed(effect));
    assert_eq!(next.completed.len(), 1);

    // The next turn's append says so, and what was learned is not learned again.
    next.says("hi");
    let state = state(&next);
    assert!(state.closed[0].heard.is_empty() && state.unemitted.is_empty());
    assert_eq!(state.open[0].heard.len(), 1);
}

/// The next message waits already when a turn ends: its search may come before the end is sent.
#[test]
fn a_search_knows_what_the_turn_before_it_teaches_until_that_is_sent() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    let memory = Some(AgentMemory::default());
    run.grant = Grant::free(AgentOptions { memory, ..(*run.grant.options).clone() });
    run.says(NAMED);
    run.says("what is my name?");
    run.replies(&[]);
    let [first, second] = &run.asks[..] else { panic!("{:?}", run.asks) };
    assert_eq!(first.untaught, []);
    assert_eq!(said(second.untaught.first()), [(accepted(&run)[0], NAMED)]);
    run.replies(&[]);
    for _ in 0..2 {
        let (effect, _) = emitted(&mut run);
        run.feed(MachineInput::Confirmed(effect));
    }
    run.says("and now?");
    assert_eq!(run.asks[2].untaught, []);
}

#[test]
fn messages_that_join_a_turn_are_learned_with_it_and_late_ones_with_their_own() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.says("hi");
    let steer = |text: &str| SessionInput::Steer(UserMessage::text(text));
    run.hears("joins", &steer(NAMED));
    run.replies(&[]);
    run.replies(&[]);
    let (_, job) = emitted(&mut run);
    let [hi, joined] = accepted(&run)[..] else { panic!() };
    assert_eq!(said(job.learns.as_ref()), [(hi, "hi"), (joined, NAMED)]);

    run.says("and");
    let turn = state(&run).running().unwrap().id;
    run.hears("late", &steer("I live in Oslo"));
    run.hears("cancel", &SessionInput::Cancel { turn });
    run.fails(FailureClass::Cancelled);
    let (_, job) = emitted(&mut run);
    assert_eq!(job.learns, None, "it was withdrawn");
    run.replies(&[]);
    let (_, job) = emitted(&mut run);
    let late = accepted(&run)[3];
    assert_eq!(said(job.learns.as_ref()), [(late, "I live in Oslo")]);
}

#[test]
fn only_what_a_person_said_to_a_model_is_learned() {
    let mut run = PlayedActivation::new(&[], Vec::new());
    run.says(NAMED);
    run.replies(&[]);
    let state = state(&run);
    let learns = |change: fn(&mut SessionState, &mut Turn)| {
        let (mut state, mut turn) = (state.clone(), state.closed[0].clone());
        change(&mut state, &mut turn);
        job(&state, &turn).is_some()
    };
    assert!(learns(|_, _| {}));
    assert!(learns(|_, turn| turn.outcome = Some(TurnOutcome::StepLimit { limit: 1 })));
    assert!(!learns(|_, turn| turn.outcome = Some(TurnOutcome::Cancelled)));
    assert!(!learns(|_, turn| turn.outcome = None));
    assert!(!learns(|_, turn| {
        let block = HookBlock { hook: "h".parse().unwrap(), reason: String::new() };
        turn.outcome = Some(TurnOutcome::Blocked { block });
    }));
    assert!(!learns(|_, turn| turn.plan = Some(Plan { about: NAMED.to_owned(), steps: vec![] })));
    assert!(!learns(|_, turn| turn.steps.clear()), "no model was shown it");
    assert!(!learns(|_, turn| turn.said[0].1 = "".into()), "it only has attachments");
    assert!(!learns(|_, turn| turn.heard.clear()), "an earlier build began the turn");
    assert!(!learns(|_, turn| turn.heard[0].turn = TurnId::from_u128(9)));
    assert!(!learns(|state, _| state.doomed = true), "the session is deleted");
    let once = Once::Random(7).peer().unwrap();
    let once: SessionKey = format!("default:openai:default:{once}").parse().unwrap();
    let (mut state, turn) = (state.clone(), state.closed[0].clone());
    state.key = Some(once);
    assert_eq!(job(&state, &turn), None, "its peer is of one request");
}
