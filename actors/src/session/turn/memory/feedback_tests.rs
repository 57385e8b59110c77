//! Feedback, as a session takes and records it, and what it sends memories.

use clawnode_kernel::MachineInput;
use clawnode_proto::{
    EventId, Head, InputId, MemoryPointId, Seq, TurnId,
    event::decode_record,
    feedback::{FeedbackGiven, FeedbackInput, Thumb},
    limits::FEEDBACK_OF_TURN,
    memory_point::PointsRating,
    session::{SessionEvent, SessionInput},
};

use super::super::effect::Effect;
use super::{
    recall_tests::{point, replayed, run, state, tea},
    turn_feedback::MemoryRating,
};
use crate::session::{
    SessionJob,
    played::{PlayedActivation, key},
    turn::memory::recall_for_turn::RecallFinds,
};

/// What is sent last, with its effect.
fn sent(run: &mut PlayedActivation) -> (Effect, Vec<MemoryRating>) {
    let at = run.started.iter().rposition(|(_, job)| matches!(job, SessionJob::Rate(_)));
    let (effect, SessionJob::Rate(ratings)) = run.started.remove(at.unwrap()) else { panic!() };
    (effect, ratings)
}

/// A turn ends that was shown this, and its end is published.
fn turn(run: &mut PlayedActivation, text: &str, finds: RecallFinds) -> TurnId {
    run.recalls = vec![finds];
    run.says(text);
    run.replies(&[]);
    let at = run.started.iter().rposition(|(_, job)| matches!(job, SessionJob::Emit(_)));
    let (effect, _) = run.started.remove(at.unwrap());
    run.feed(MachineInput::Confirmed(effect));
    state(run).closed.last().unwrap().id
}

fn gives(run: &mut PlayedActivation, name: &str, turn: TurnId, thumb: Thumb, comment: &str) {
    let comment = (!comment.is_empty()).then(|| comment.to_owned());
    run.hears(name, &SessionInput::Feedback(FeedbackInput { turn, thumb, comment }));
}

/// All feedback in the journal.
fn given(run: &PlayedActivation) -> Vec<FeedbackGiven> {
    let sealed = run.journal.iter().flat_map(|record| decode_record(&record.bytes).unwrap());
    let events = sealed.filter_map(|event| event.event::<SessionEvent>().unwrap());
    let given = events.filter_map(|event| match event {
        SessionEvent::FeedbackGiven(given) => Some(given),
        _ => None,
    });
    given.collect()
}

/// C23: memories are sent feedback again until it is known that they have it.
#[test]
fn c23_feedback_is_not_acknowledged_before_memories_have_it() {
    let mut run = run(&[]);
    let turn = turn(&mut run, "When is tea?", tea());
    let acknowledged = run.completed.len();
    gives(&mut run, "good", turn, Thumb::Up, "");
    assert_eq!(run.completed.len(), acknowledged, "the memory may not have it");
    let (_, first) = sent(&mut run);
    let [MemoryRating { memory, rating }] = &first[..] else { panic!("{first:?}") };
    let tea = point("main/peer/web:a:b", "").document.id;
    let tea = MemoryPointId::derive(tea.entity, tea.event, tea.part);
    assert_eq!(memory.to_string(), "main/peer/web:a:b");
    let PointsRating { session, turn: rated, step, points, .. } = rating.clone();
    assert_eq!((session, rated, step, points), (key().entity(), turn, 1, vec![tea]));

    // The process dies, and the next owner sends the same.
    let mut next = PlayedActivation::resumed(run);
    next.hears("stray", &SessionInput::Continue { turn });
    let (effect, second) = sent(&mut next);
    assert_eq!(second, first);
    assert!(!next.completed.contains(&rating.feedback));
    next.feed(MachineInput::Confirmed(effect));
    // It dies again: no append says yet that the memory has it.
    let mut again = PlayedActivation::resumed(next);
    again.hears("another", &SessionInput::Continue { turn });
    let (effect, third) = sent(&mut again);
    assert_eq!(third, first);
    again.feed(MachineInput::Confirmed(effect));
    again.says("hi");
    assert!(state(&again).feedback.is_none(), "the next append says so");
    assert_eq!((given(&again).len(), given(&again)[0].feedback), (1, rating.feedback));
    replayed(&again);
}

#[test]
fn the_last_feedback_of_a_turn_counts_and_the_same_one_changes_nothing() {
    let mut run = run(&[]);
    let turn = turn(&mut run, "When is tea?", tea());
    gives(&mut run, "1", turn, Thumb::Up, "");
    gives(&mut run, "2", turn, Thumb::Up, "");
    gives(&mut run, "3", turn, Thumb::Down, "wrong");
    gives(&mut run, "4", turn, Thumb::Down, "wrong");
    gives(&mut run, "5", turn, Thumb::Down, "quite wrong");
    let seen: Vec<_> = given(&run).into_iter().map(|one| (one.step, one.moves.len())).collect();
    assert_eq!(seen, [(1, 1), (-2, 1), (0, 0)], "a comment alone moves nothing");
    for number in 0..2 * FEEDBACK_OF_TURN {
        let thumb = if number % 2 == 0 { Thumb::Up } else { Thumb::Down };
        gives(&mut run, &format!("more {number}"), turn, thumb, "");
    }
    let all = given(&run);
    assert_eq!(all.len(), usize::try_from(FEEDBACK_OF_TURN).unwrap(), "bounded");
    assert_eq!(all.iter().map(|one| i32::from(one.step)).sum::<i32>(), 1, "the last is up");
    assert!(state(&run).closed[0].feedback.is_full());
}

#[test]
fn feedback_is_about_a_turn_that_has_ended() {
    let mut run = run(&[]);
    run.recalls = vec![tea()];
    run.says("When is tea?");
    let open = state(&run).running().unwrap().id;
    gives(&mut run, "early", open, Thumb::Up, "");
    gives(&mut run, "unknown", TurnId::from_u128(9), Thumb::Up, "");
    run.replies(&[]);
    assert_eq!(given(&run), []);
    gives(&mut run, "late", open, Thumb::Up, "");
    assert_eq!(given(&run).len(), 1);
}

#[test]
fn a_turn_that_was_shown_nothing_sends_nothing() {
    let mut run = run(&[]);
    let turn = turn(&mut run, "hi", RecallFinds::default());
    let acknowledged = run.completed.len();
    gives(&mut run, "bad", turn, Thumb::Down, "rude");
    assert_eq!((given(&run)[0].moves.len(), run.completed.len()), (0, acknowledged + 1));
    assert!(!run.started.iter().any(|(_, job)| matches!(job, SessionJob::Rate(_))));
}

/// Each memory is sent its own points, also those of standing instructions; what was shown twice moves once.
#[test]
fn mem_1_memories_are_sent_the_points_that_the_turn_was_shown() {
    let mut run = run(&[]);
    let standing = vec![point("main/all", "Always whisper.")];
    let points =
        vec![point("main/peer/web:a:b", "Tea is at four."), point("main/all", "Always whisper.")];
    let turn = turn(&mut run, "When is tea?", RecallFinds { standing, points, ..tea() });
    gives(&mut run, "bad", turn, Thumb::Down, "");
    let (_, ratings) = sent(&mut run);
    let mut sent: Vec<_> = ratings
        .iter()
        .map(|one| (one.memory.to_string(), one.rating.points.len(), one.rating.step))
        .collect();
    sent.sort();
    assert_eq!(sent, [("main/all".to_owned(), 1, -1), ("main/peer/web:a:b".to_owned(), 1, -1)]);
}

#[test]
fn mem_1_an_event_that_moves_another_point_is_refused() {
    let mut run = run(&[]);
    let turn = turn(&mut run, "When is tea?", tea());
    let id = InputId::from_u128(5);
    let sealed = decode_record(&run.journal.last().unwrap().bytes).unwrap().pop().unwrap();
    let head = Head { n: Seq(99), eid: EventId::from_u128(9), ..sealed.head };
    let folds = |change: fn(&mut FeedbackGiven)| {
        let mut state = state(&run);
        let given = FeedbackInput { turn, thumb: Thumb::Up, comment: None };
        state.is_rated(id, given);
        let mut event = state.next_feedback().unwrap();
        change(&mut event);
        state.fold(&head, &event.into()).is_ok()
    };
    assert!(folds(|_| {}));
    assert!(!folds(|event| event.moves[0].memory = "main/peer/web:a:eve".parse().unwrap()));
    assert!(!folds(|event| event.moves[0].points.push(MemoryPointId::from_u128(1))));
    assert!(!folds(|event| event.step = 2));
    assert!(!folds(|event| event.feedback = InputId::from_u128(6)));
    assert!(!folds(|event| event.turn = TurnId::from_u128(6)));
}
