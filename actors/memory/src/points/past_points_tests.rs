//! Points that leave together.

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    MemoryPointId, codec,
    limits::{MEMORY_GONE, MEMORY_POINTS},
    memory::MemoryTrust::Agent,
    memory_point::{JoinedPoint, MemoryEvent, MemoryInput, MemoryPoint, PointsConsolidated},
    memory_view::PointState,
};

use super::{
    KeptPoint, Memory,
    consolidate::PointsSize,
    kind::decided,
    tests::{Book, at, forget_source, point, source, told},
};

fn thing(event: u64) -> KeptPoint {
    let MemoryPoint { content, .. } = point(&format!("thing {event}"), Agent);
    let point = MemoryPoint { content, source: source(event) };
    KeptPoint { id: point.id(), point, feedback: None }
}

/// A memory whose owner is configured to the most, with one more point than this.
fn filled(points: u64) -> Book {
    let mut book = Book::new();
    book.state.live = (0..points).map(thing).collect();
    let points = vec![told(points, "the last thing", Agent)];
    book.accept(MemoryInput::Put { points });
    book.decide_by(|state| decided(state, PointsSize::MOST));
    book
}

#[test]
fn mem_4_what_is_forgotten_of_a_large_memory_at_once_does_not_come_back() {
    let most = u64::try_from(MEMORY_GONE).unwrap() + 2;
    let mut book = filled(most);
    book.accept(forget_source(source(0).entity, None, None));
    book.decide();
    assert!(book.texts().is_empty());
    for event in [0, 1, most] {
        let again = book.put(vec![told(event, "again", Agent)]);
        assert_eq!((again.added, again.known), (vec![], vec![source(event).point()]), "{event}");
    }
}

/// Journals of before have no memory with more points, and are folded as they were.
#[test]
fn a_memory_of_usual_size_remembers_as_many_as_before() {
    let mut book = filled(u64::try_from(MEMORY_POINTS).unwrap() - 1);
    assert_eq!(book.texts().len(), MEMORY_POINTS);
    for id in 0..=u128::try_from(MEMORY_GONE).unwrap() {
        book.state.forgets(MemoryPointId::from_u128(id), None);
    }
    assert_eq!(book.state.gone.len(), MEMORY_GONE);
    assert!(!book.state.is_gone(MemoryPointId::from_u128(0)), "the oldest");
    let bytes = codec::encode(&book.state).unwrap();
    let field = b"most_live";
    assert!(!bytes.windows(field.len()).any(|window| window == field), "as an older build has it");
}

#[test]
fn points_that_leave_by_one_event_leave_in_its_order() {
    let mut book = Book::new();
    book.put((1..=5).map(|event| told(event, &format!("thing {event}"), Agent)).collect());
    let id = |event: u64| source(event).point();
    let change = |joined: &[(u64, u64)], archived: &[u64]| -> MemoryEvent {
        let joined =
            joined.iter().map(|(point, into)| JoinedPoint { point: id(*point), into: id(*into) });
        let (joined, archived) =
            (joined.collect(), archived.iter().map(|event| id(*event)).collect());
        PointsConsolidated { joined, archived, daily: false }.into()
    };
    let wrong = [
        change(&[(1, 5), (5, 1)], &[]),
        change(&[(1, 5), (1, 2)], &[]),
        change(&[(1, 5)], &[1]),
        change(&[], &[1, 1]),
    ];
    for event in wrong {
        book.state.clone().fold(at(0), &event).unwrap_err();
    }
    book.state.fold(at(0), &change(&[(4, 2), (2, 5)], &[3])).unwrap();
    assert_eq!(book.texts(), ["thing 1", "thing 5"]);
    let (joined, archived) = (PointState::Joined, PointState::Archived);
    assert_eq!(book.past(), [("thing 4", joined), ("thing 2", joined), ("thing 3", archived)]);
    let by: Vec<_> = book.state.past().map(|past| past.superseded_by).collect();
    assert_eq!(by, [Some(id(2)), Some(id(5)), None]);
}

/// A text that was refused is in the journal alone. A person who has it purged names no point, and there may be none.
#[test]
fn mem_4_a_journal_is_purged_at_once_without_a_point() {
    let now = || MemoryInput::Forget { points: Vec::new(), by: "ada".to_owned(), now: true };
    let mut book = Book::new();
    book.accept(now());
    book.decide();
    assert!(!Memory::purges(&book.state), "nothing was forgotten");
    let refused = book.put(vec![told(1, "", Agent)]).refused;
    assert_eq!(refused.len(), 1);
    book.accept(forget_source(source(1).entity, None, None));
    book.decide();
    assert!(book.state.is_to_be_purged() && !Memory::purges(&book.state));
    book.accept(now());
    book.decide();
    assert!(Memory::purges(&book.state));
    assert_eq!(book.replayed(), book.state);
}
