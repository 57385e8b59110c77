//! Memories whose owners are configured to other numbers of points.

use clawnode_proto::{
    limits::{MEMORY_BYTES, MEMORY_POINTS_MOST},
    memory::MemoryTrust::{self, Agent, Person},
    memory_point::{LearnedPoint, MemoryEvent, MemoryInput, PointRefusal},
};

use super::{
    MemoryState,
    consolidate::PointsSize,
    kind::{begins_to_refuse, decided},
    tests::{Book, fact, source, told},
};

/// An owner whose memories have at most so many points.
fn owner(points: usize) -> impl Fn(&MemoryState) -> Vec<MemoryEvent> {
    move |state| decided(state, PointsSize { points, bytes: MEMORY_BYTES })
}

fn things(events: std::ops::Range<u64>, trust: MemoryTrust) -> Vec<LearnedPoint> {
    events.map(|event| told(event, &format!("thing {event}"), trust)).collect()
}

/// Adds points, as an owner with this limit does.
fn put(book: &mut Book, points: Vec<LearnedPoint>, most: usize) -> Vec<MemoryEvent> {
    book.accept(MemoryInput::Put { points });
    book.decide_by(owner(most))
}

/// A memory with so many points of an agent.
fn filled(points: u64, most: usize) -> Book {
    let mut book = Book::new();
    for event in (0..points).step_by(50) {
        put(&mut book, things(event..(event + 50).min(points), Agent), most);
    }
    book
}

/// How many points each of these events takes out.
fn left(events: &[MemoryEvent]) -> Vec<(usize, bool)> {
    let change = |event: &MemoryEvent| {
        let MemoryEvent::Consolidated(change) = event else { return None };
        Some((change.joined.len() + change.archived.len(), change.daily))
    };
    events.iter().filter_map(change).collect()
}

#[test]
fn a_memory_has_as_many_points_as_its_owner_is_configured_to() {
    let mut book = filled(20, 20);
    assert_eq!(book.texts().len(), 20);
    assert_eq!(left(&put(&mut book, things(20..21, Agent), 20)), [(2, false)]);
    assert_eq!(book.texts().len(), 19);
    let more = put(&mut book, things(21..40, Agent), 40);
    assert!(left(&more).is_empty(), "another owner has more room");
    assert_eq!(book.texts().len(), 38);
    assert_eq!(book.replayed(), book.state, "the journal alone says what left");
}

#[test]
fn more_than_the_default_are_live_and_most_of_them_stay() {
    let mut book = filled(2_050, MEMORY_POINTS_MOST);
    assert_eq!(book.texts().len(), 2_050);
    assert_eq!(left(&book.fire()), [(250, true)], "an owner with the default makes room each day");
    assert_eq!(book.texts().len(), 1_800);
    assert_eq!(book.replayed(), book.state);
}

#[test]
fn a_limit_that_fell_takes_points_out_in_events_that_fit_into_appends() {
    let mut book = filled(2_500, 2_500);
    let mut lowered = book.clone();
    assert_eq!(
        left(&put(&mut lowered, things(2_500..2_501, Person), 100)),
        [(1_000, false), (1_000, false), (401, false)]
    );
    assert_eq!(lowered.texts().len(), 100);
    assert_eq!(lowered.replayed(), lowered.state);
    let due = book.state.due().unwrap();
    book.accept(MemoryInput::TimerFired { due });
    assert_eq!(left(&book.decide_by(owner(1_000))), [(1_000, false), (600, true)]);
    assert_eq!((book.texts().len(), book.state.due()), (900, None));
    assert_eq!(book.replayed(), book.state);
}

#[test]
fn points_that_say_the_same_leave_in_such_events_too() {
    let mut book = Book::new();
    for event in 0..30 {
        let same = (event * 50..event * 50 + 50).map(|event| told(event, "the same", Agent));
        put(&mut book, same.collect(), 2_000);
    }
    assert_eq!(left(&book.fire()), [(1_000, false), (499, true)]);
    assert_eq!(book.texts(), ["the same"]);
    assert_eq!(book.replayed(), book.state);
}

#[test]
fn what_people_said_stays_however_low_the_limit_falls() {
    let mut book = Book::new();
    put(&mut book, things(0..5, Person), 5);
    let refused = put(&mut book, things(5..6, Person), 3);
    let [MemoryEvent::Refused(refused)] = refused.as_slice() else { panic!("{refused:?}") };
    assert_eq!(refused.reason, PointRefusal::Full);
    assert_eq!(book.texts().len(), 5);
    assert!(left(&put(&mut book, things(6..7, Agent), 6)).is_empty());
    assert_eq!(book.texts().len(), 6, "there is room once the limit is higher");
    let due = book.state.due().unwrap();
    book.accept(MemoryInput::TimerFired { due });
    assert_eq!(left(&book.decide_by(owner(3))), [(1, true)], "the agent's point alone may leave");
    assert_eq!(book.replayed(), book.state);
}

/// The log says once that nothing more is learned, and not with each point.
#[test]
fn a_memory_begins_to_refuse_once() {
    let mut book = Book::new();
    put(&mut book, things(0..5, Person), 5);
    for begins in [true, false] {
        let event = if begins { 5 } else { 6 };
        book.accept(MemoryInput::Put { points: things(event..event + 1, Person) });
        let events = owner(5)(&book.state);
        assert!(matches!(events.as_slice(), [MemoryEvent::Refused(_)]), "{events:?}");
        assert_eq!(begins_to_refuse(&book.state, &events), begins);
        book.decide_by(owner(5));
    }
    let added = put(&mut book, things(7..8, Person), 7);
    assert!(!begins_to_refuse(&MemoryState::default(), &added), "it has room");
}

/// It would else be said once in the life of a memory that few points are sent.
#[test]
fn a_memory_that_had_room_again_begins_to_refuse_again() {
    let mut book = Book::new();
    let begins = |book: &mut Book, points: Vec<LearnedPoint>| {
        book.accept(MemoryInput::Put { points });
        let begins = begins_to_refuse(&book.state, &owner(5)(&book.state));
        book.decide_by(owner(5));
        begins
    };
    let fact = |event: u64, text: &str| fact(event, ("Ada", "lives in"), text, Person);
    put(&mut book, things(0..4, Person), 5);
    put(&mut book, vec![fact(4, "Paris")], 5);
    assert!(begins(&mut book, things(5..6, Person)));
    assert!(!begins(&mut book, vec![fact(6, "Rome")]), "it takes the place of another one");
    assert!(!begins(&mut book, things(7..8, Person)), "there was no room since");

    book.forget(source(0).point());
    assert!(!begins(&mut book, things(8..9, Person)), "it has room");
    assert!(begins(&mut book, things(9..10, Person)));
    // In one look at the state.
    book.forget(source(1).point());
    assert!(begins(&mut book, things(10..12, Person)));
    assert!(!begins(&mut book, things(12..13, Person)));
}

#[test]
fn the_only_point_of_the_smallest_memory_stays_each_day() {
    let mut book = filled(1, 1);
    let due = book.state.due().unwrap();
    book.accept(MemoryInput::TimerFired { due });
    assert_eq!(left(&book.decide_by(owner(1))), [(0, true)]);
    assert_eq!(book.texts().len(), 1);
}
