//! Feedback on points: whatever its order, and however often it comes.

use std::collections::BTreeMap;

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    EntityId, InputId, MemoryPointId, TurnId,
    feedback::{PointFeedback, Thumb},
    memory::MemoryTrust,
    memory_point::{MemoryEvent, MemoryInput, PointsRated, PointsRating, RatedPoint},
};
use proptest::prelude::*;

use super::{
    Memory,
    tests::{Book, at, fact, source, told},
};

const TRUSTS: [MemoryTrust; 4] =
    [MemoryTrust::Tool, MemoryTrust::Agent, MemoryTrust::Person, MemoryTrust::Operator];

fn rating(feedback: u128, step: i8, events: &[u64]) -> PointsRating {
    PointsRating {
        feedback: InputId::from_u128(feedback),
        session: EntityId::from_u128(7),
        turn: TurnId::from_u128(8),
        step,
        points: events.iter().map(|event| source(*event).point()).collect(),
    }
}

/// The events that a rating gives.
fn rates(book: &mut Book, rating: PointsRating) -> Vec<MemoryEvent> {
    book.accept(MemoryInput::Rate(rating));
    book.decide()
}

/// Each live point's importance, and how feedback moved it.
fn importance(book: &Book) -> BTreeMap<MemoryPointId, (u8, Option<PointFeedback>)> {
    let live = book.state.live();
    live.map(|kept| (kept.id, (kept.point.content.importance, kept.feedback))).collect()
}

/// A memory with a point of each trust: of the events 0 to 3.
fn book() -> Book {
    let mut book = Book::new();
    let points = (0..).zip(TRUSTS);
    book.put(points.map(|(event, trust)| told(event, &format!("{event}"), trust)).collect());
    book
}

#[test]
fn feedback_moves_the_points_of_its_turn_once() {
    let mut book = book();
    let [agent, person] = [1, 2].map(|event| source(event).point());
    let events = rates(&mut book, rating(1, -1, &[1, 2, 99]));
    let [MemoryEvent::Rated(rated)] = &events[..] else { panic!("{events:?}") };
    let lower = |point| RatedPoint { point, importance: 4 };
    assert_eq!(rated.points, [lower(agent), lower(person)], "the third is not there");
    let now = importance(&book);
    assert_eq!(now[&person], (4, Some(PointFeedback { given: 5, sum: -1 })));
    assert_eq!(now[&source(0).point()], (5, None), "the turn was not shown it");
    assert_eq!(rates(&mut book, rating(1, -1, &[1, 2])), [], "its session sends it again");
    assert_eq!(importance(&book), now);
    assert_eq!(book.replayed(), book.state);
}

#[test]
fn what_an_operator_said_is_not_lowered_below_what_they_gave() {
    let mut book = book();
    let point = source(3).point();
    rates(&mut book, rating(1, -1, &[3]));
    assert_eq!(importance(&book)[&point].0, 5);
    rates(&mut book, rating(2, 1, &[3]));
    rates(&mut book, rating(3, 1, &[3]));
    assert_eq!(importance(&book)[&point].0, 6, "one of three thumbs was down");
}

#[test]
fn what_left_the_live_points_does_not_move() {
    let mut book = Book::new();
    let lives = |event, text| fact(event, ("ada", "lives in"), text, MemoryTrust::Person);
    book.put(vec![lives(1, "Ada lives in Rome")]);
    rates(&mut book, rating(1, 1, &[1]));
    book.put(vec![lives(2, "Ada lives in Bonn")]);
    assert_eq!(rates(&mut book, rating(2, 1, &[1])), []);
    let past = book.state.past().next().unwrap();
    assert_eq!((past.point.content.importance, past.feedback.unwrap().sum), (6, 1));
    assert_eq!(importance(&book)[&source(2).point()], (5, None), "it is another point");
    // Forgotten between the input and its event.
    book.accept(MemoryInput::Rate(rating(3, 1, &[2])));
    let forget = vec![source(2).point()];
    let mut other = book.clone();
    other.accept(MemoryInput::Forget { points: forget, by: "ada".to_owned(), now: false });
    assert_eq!(other.decide().len(), 2);
    assert_eq!((other.state.live().count(), other.replayed()), (0, other.state.clone()));
}

#[test]
fn an_event_that_rates_what_it_may_not_is_refused() {
    let rated = |feedback, event, importance, step| {
        let mut book = book();
        book.accept(MemoryInput::Rate(rating(1, -1, &[1, 3])));
        let PointsRating { session, turn, .. } = rating(1, -1, &[]);
        let points = vec![RatedPoint { point: source(event).point(), importance }];
        let feedback = InputId::from_u128(feedback);
        let event = PointsRated { feedback, session, turn, step, points }.into();
        book.state.fold(at(0), &event).is_ok()
    };
    assert!(rated(1, 1, 4, -1));
    assert!(!rated(2, 1, 4, -1), "no such feedback was sent");
    assert!(!rated(1, 2, 4, -1), "it is not about this point");
    assert!(!rated(1, 1, 0, -1) && !rated(1, 1, 11, -1), "it is out of bounds");
    assert!(!rated(1, 1, 4, 2), "it is another step");
    assert!(rated(1, 3, 5, -1));
    assert!(!rated(1, 3, 4, -1), "an operator said it");
}

#[test]
fn a_memory_that_is_not_there_does_not_begin_with_feedback() {
    let name = "a".parse().unwrap();
    let body = MemoryInput::Rate(rating(1, 1, &[1]));
    let input = Memory::input(&"default/all".parse().unwrap(), name, at(0), &body).unwrap();
    assert!(Memory::understands(&input) && !Memory::begins(&input));
}

/// A turn of a session, with the thumbs that it got one after the other, and the points that it was shown.
#[derive(Clone, Debug)]
struct RatedTurn {
    thumbs: Vec<bool>,
    shown: Vec<u64>,
}

fn turns() -> impl Strategy<Value = Vec<RatedTurn>> {
    let thumbs = prop::collection::vec(any::<bool>(), 1..5);
    let shown = prop::sample::subsequence(vec![0_u64, 1, 2, 3], 1..=4);
    let turn = (thumbs, shown).prop_map(|(thumbs, shown)| RatedTurn { thumbs, shown });
    prop::collection::vec(turn, 1..24)
}

const fn thumb(up: bool) -> Thumb {
    if up { Thumb::Up } else { Thumb::Down }
}

/// What the sessions send: a rating for each thumb that changes something.
fn sent(turns: &[RatedTurn]) -> Vec<PointsRating> {
    let mut sent = Vec::new();
    for turn in turns {
        let mut before = None;
        for up in &turn.thumbs {
            let step = thumb(*up).after(before);
            before = Some(thumb(*up));
            if step != 0 {
                sent.push(rating(sent.len() as u128, step, &turn.shown));
            }
        }
    }
    sent
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    /// In whatever order feedback comes, and comes again: each importance is within 1 to 10 at every prefix, and in the
    /// end it is what the last thumbs of all turns make of it.
    #[test]
    fn importance_is_the_fold_of_the_last_thumbs(
        (turns, order) in turns().prop_flat_map(|turns| {
            let all: Vec<usize> = (0..sent(&turns).len()).collect();
            let twice: Vec<usize> = all.iter().chain(&all).copied().collect();
            (Just(turns), Just(twice).prop_shuffle())
        }),
    ) {
        let (mut book, sent) = (book(), sent(&turns));
        for (at, number) in order.into_iter().enumerate() {
            book.accept(MemoryInput::Rate(sent[number].clone()));
            if at % 3 > 0 {
                continue;
            }
            for event in book.decide() {
                let MemoryEvent::Rated(rated) = event else { panic!("{event:?}") };
                prop_assert!(rated.points.iter().all(|point| (1..=10).contains(&point.importance)));
            }
        }
        book.decide();
        for (event, trust) in (0..).zip(TRUSTS) {
            let shown = turns.iter().filter(|turn| turn.shown.contains(&event));
            let sum: i32 = shown.map(|turn| if *turn.thumbs.last().unwrap() { 1 } else { -1 }).sum();
            let sum = if trust == MemoryTrust::Operator { sum.max(0) } else { sum };
            let expected = (5 + sum).clamp(1, 10);
            prop_assert_eq!(i32::from(importance(&book)[&source(event).point()].0), expected);
        }
        prop_assert!(book.replayed() == book.state, "the journal is all there is");
    }
}
