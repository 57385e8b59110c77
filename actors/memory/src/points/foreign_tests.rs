//! Points of two clusters whose sources have the same ids, and of sessions that were deleted.

use clawnode_proto::{
    EntityId, codec,
    limits::MEMORY_PAST_POINTS,
    memory::{MemorySource, MemoryTrust},
    memory_point::{LearnedPoint, MemoryEvent, MemoryInput},
    memory_view::PointState,
};

use super::{
    PutAnswer,
    tests::{Book, DAY, at, fact, forget_source, source, told},
};

/// A point that this event gave at this time.
fn told_at(event: u64, ms: u64, text: &str) -> LearnedPoint {
    let mut point = told(event, text, MemoryTrust::Operator);
    point.source = Some(MemorySource { at: at(ms), ..source(event) });
    point
}

/// What `memory export` gives.
fn exported(book: &Book) -> Vec<LearnedPoint> {
    let points = book.state.live().map(|kept| kept.point.clone());
    points
        .map(|point| LearnedPoint { content: point.content, source: Some(point.source) })
        .collect()
}

fn import(book: &mut Book, points: Vec<LearnedPoint>) -> PutAnswer {
    let input = book.accept(MemoryInput::Import { points });
    book.decide();
    book.state.answer(input).unwrap().clone()
}

/// Each of two clusters has points of the same events, at other times.
fn two() -> (Book, Book) {
    let books = [(100, ["here one", "here two"]), (900, ["there one", "there two"])];
    let [here, there] = books.map(|(ms, texts)| {
        let mut book = Book::new();
        book.put((1..).zip(texts).map(|(event, text)| told_at(event, ms, text)).collect());
        book
    });
    (here, there)
}

#[test]
fn mem_3_points_of_another_cluster_are_added_beside_those_with_their_ids_and_once() {
    let (mut here, mut there) = two();
    let first = import(&mut here, exported(&there));
    assert_eq!((first.added.len(), first.known.len()), (2, 0), "{first:?}");
    assert_eq!(here.texts(), ["here one", "here two", "there one", "there two"]);
    let again = import(&mut here, exported(&there));
    assert_eq!((again.added.len(), again.known), (0, first.added));
    // All of it is known in both, whichever has it beside its own.
    let all = exported(&here);
    assert_eq!(import(&mut here, all.clone()).known.len(), 4, "its own export");
    let back = import(&mut there, all);
    assert_eq!(
        (back.added.len(), back.known.len()),
        (2, 2),
        "its own points come back as they are"
    );
    assert_eq!(there.texts(), ["there one", "there two", "here one", "here two"]);
    for book in [here, there] {
        assert_eq!(book.replayed(), book.state);
    }
}

#[test]
fn an_export_of_two_clusters_comes_back_whole_and_once_in_any_order() {
    let (mut here, there) = two();
    import(&mut here, exported(&there));
    let mut all = exported(&here);
    for _ in 0..2 {
        let mut book = Book::new();
        assert_eq!(import(&mut book, all.clone()).added.len(), 4);
        assert_eq!(import(&mut book, all.clone()).added.len(), 0);
        assert_eq!(import(&mut book, exported(&there)).added.len(), 0);
        assert_eq!(book.texts().len(), 4);
        all.reverse();
    }
}

/// What a session learns is not lost to a point of another cluster that came first.
#[test]
fn an_own_event_with_the_id_of_an_imported_point_still_teaches() {
    let mut book = Book::new();
    import(&mut book, vec![told_at(1, 900, "there one")]);
    assert_eq!(book.put(vec![told_at(1, 100, "here one")]).added.len(), 1);
    assert_eq!(book.put(vec![told_at(1, 100, "found by a later build")]).added.len(), 0);
    assert_eq!(book.texts(), ["there one", "here one"]);
}

/// Nor to one that has left again, whatever made it leave.
#[test]
fn an_own_event_with_the_id_of_a_point_that_left_still_teaches_and_once() {
    let leaves: [fn(&mut Book); 2] = [
        |book: &mut Book| {
            book.forget(source(1).point());
        },
        |book: &mut Book| {
            // A file of points that say the same: they leave for one of them, and the oldest of the past for others.
            let most = u64::try_from(MEMORY_PAST_POINTS).unwrap();
            let same = |event: u64| told_at(event, 900, "there one");
            for first in 0..=most / 50 {
                import(book, (2 + first * 50..52 + first * 50).map(same).collect());
            }
            book.ts = 2 * DAY;
            book.fire();
        },
    ];
    for leaves in leaves {
        let mut book = Book::new();
        import(&mut book, vec![told_at(1, 900, "there one")]);
        leaves(&mut book);
        assert!(book.state.is_gone(source(1).point()));
        assert_eq!(import(&mut book, vec![told_at(1, 900, "there one")]).added.len(), 0, "MEM-4");
        let own = book.put(vec![told_at(1, 100, "here one")]).added;
        assert_eq!(own.len(), 1);
        assert_eq!(book.put(vec![told_at(1, 100, "again")]).known, own, "MEM-3");
        book.forget(own[0]);
        assert_eq!(book.put(vec![told_at(1, 100, "again")]).added.len(), 0, "MEM-4");
        assert_eq!(book.replayed(), book.state);
    }
}

/// A snapshot of an older build has only ids, and so has what left before the first import.
#[test]
fn what_left_without_a_time_does_not_come_back_at_any_time() {
    let mut book = Book::new();
    book.put(vec![told_at(1, 100, "here one")]);
    book.forget(source(1).point());
    let bytes = codec::encode(&book.state).unwrap();
    let field = b"gone_at";
    assert!(!bytes.windows(field.len()).any(|window| window == field), "as an older build has it");
    book.state = codec::decode(&bytes).unwrap();
    assert_eq!(import(&mut book, vec![told_at(1, 900, "there one")]).added.len(), 0);
    assert_eq!(book.put(vec![told_at(1, 100, "here one")]).added.len(), 0);
}

#[test]
fn mem_4_what_is_forgotten_does_not_come_back_with_an_import() {
    let (mut here, there) = two();
    let added = import(&mut here, exported(&there)).added;
    here.forget(added[0]);
    here.forget(source(2).point());
    let again = import(&mut here, exported(&there));
    assert_eq!((again.added.len(), here.texts()), (0, vec!["here one", "there two"]));
    assert_eq!(
        again.known,
        [added[0], added[1]],
        "one is forgotten, and one is live under its id here"
    );
}

#[test]
fn an_older_export_replaces_nothing_that_was_learned_later() {
    use MemoryTrust::{Agent, Operator, Person};
    let lives = |event: u64, ms: u64, text: &str, trust| {
        let mut point = fact(event, ("ada", "lives in"), text, trust);
        point.source = Some(MemorySource { at: at(ms), ..source(event) });
        point
    };
    for (ms, trust, replaces) in
        [(100, Person, false), (300, Person, true), (100, Agent, false), (100, Operator, true)]
    {
        let mut book = Book::new();
        book.put(vec![lives(1, 200, "Ada lives in Paris", Person)]);
        let rome = lives(2, ms, "Ada lives in Rome", trust);
        let answer = import(&mut book, vec![rome.clone()]);
        assert_eq!(answer.added, [source(2).point()]);
        let (live, past) =
            if replaces { ("Ada lives in Rome", 1) } else { ("Ada lives in Paris", 2) };
        assert_eq!(book.texts(), [live], "{ms}, {trust:?}");
        let left = book.state.past().next().unwrap();
        assert_eq!((left.id, left.state), (source(past).point(), PointState::Superseded));
        assert_eq!(left.superseded_by, Some(source(3 - past).point()), "people see why");
        assert_eq!(import(&mut book, vec![rome]).known, answer.added, "MEM-3");
        assert_eq!(book.replayed(), book.state);
    }
    // Of one file, in any order; and what a session sends late counts as it comes.
    let mut book = Book::new();
    import(
        &mut book,
        vec![lives(1, 200, "Ada lives in Paris", Person), lives(2, 100, "Rome", Person)],
    );
    assert_eq!(book.texts(), ["Ada lives in Paris"]);
    book.put(vec![lives(3, 100, "Ada lives in Oslo", Person)]);
    assert_eq!(book.texts(), ["Ada lives in Oslo"]);
}

#[test]
fn a_deleted_session_takes_nothing_along_that_one_of_another_cluster_taught() {
    let mut book = Book::new();
    book.put(vec![told_at(1, 100, "here one"), told_at(2, 200, "here two")]);
    import(
        &mut book,
        vec![told_at(1, 99, "there one"), told_at(2, 201, "there two"), told_at(3, 150, "there")],
    );
    let session = source(1).entity;
    book.accept(forget_source(session, Some(at(100)), Some(at(200))));
    book.decide();
    // Of one that lived at the same time, nothing says where it was.
    assert_eq!(book.texts(), ["there one", "there two"]);
    assert_eq!(book.replayed(), book.state);
    let bytes = codec::encode(&forget_source(session, None, None)).unwrap();
    let field = b"since";
    assert!(!bytes.windows(field.len()).any(|window| window == field), "as older builds send it");
    book.accept(codec::decode(&bytes).unwrap());
    book.decide();
    assert_eq!(book.texts(), [""; 0]);
}

/// Journals of before have no import: what `Put` did with another time is what it did.
#[test]
fn without_an_import_a_source_is_known_at_any_time() {
    let mut book = Book::new();
    book.put(vec![told_at(1, 100, "here one")]);
    assert_eq!(book.put(vec![told_at(1, 900, "there one")]).added.len(), 0);
    assert_eq!(book.texts(), ["here one"]);
}

#[test]
fn what_was_learned_from_a_deleted_session_is_masked_wherever_it_is() {
    let mut book = Book::new();
    let about = ("ada", "lives in");
    book.put(vec![fact(1, about, "Ada lives in Rome", MemoryTrust::Person)]);
    let mut other = fact(2, about, "Ada lives in Bonn", MemoryTrust::Person);
    other.source = Some(MemorySource { entity: EntityId::from_u128(8), ..source(2) });
    book.put(vec![other]);
    // One is superseded, one waits to be recorded, and one is from elsewhere.
    book.accept(MemoryInput::Put { points: vec![told(3, "Ada has a cat", MemoryTrust::Agent)] });
    let source = EntityId::from_u128(7);
    book.accept(forget_source(source, None, None));
    let events = book.decide();
    assert_eq!((book.texts(), book.past().len()), (vec!["Ada lives in Bonn"], 0));
    assert_eq!(book.state.purge_due(), Some(at(DAY / 24)));
    assert_eq!(book.replayed(), book.state);
    // The input comes again, under another name: all of it is masked already.
    assert!(matches!(events[..], [MemoryEvent::Added(_), MemoryEvent::Masked(_)]), "{events:?}");
    book.accept(forget_source(source, None, None));
    assert_eq!(book.decide(), []);
    let mut book = Book::new();
    book.accept(forget_source(source, None, None));
    assert_eq!((book.decide(), book.state.purge_due()), (Vec::new(), None));
}
