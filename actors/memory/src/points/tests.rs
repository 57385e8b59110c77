//! Memories, through their inputs: what is live, what is only shown, and what is gone.

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    EntityId, InputId, MemoryPointId, Timestamp, codec,
    limits::{MEMORY_PAST_POINTS, MEMORY_POINTS},
    memory::{MemoryKey, MemoryLayer, MemorySource, MemoryTrust},
    memory_point::{
        LearnedPoint, MemoryEvent, MemoryInput, MemoryPoint, PointAdded, PointContent,
        PointRefusal, PointsConsolidated, PointsMasked,
    },
    memory_view::PointState,
};

use super::{Memory, MemoryEffect, MemoryState, PutAnswer, points_limit};

pub(super) const DAY: u64 = 86_400_000;

pub(super) fn at(ms: u64) -> Timestamp {
    Timestamp(ms)
}

/// A point that is learned at time 0.
pub(super) fn point(text: &str, trust: MemoryTrust) -> MemoryPoint {
    let content = PointContent {
        layer: MemoryLayer::Semantic,
        text: text.to_owned(),
        subject: None,
        predicate: None,
        object: None,
        confidence: 100,
        importance: 5,
        trust,
    };
    MemoryPoint { content, source: source(0) }
}

/// What an event of a session says.
pub(super) fn source(event: u64) -> MemorySource {
    MemorySource { entity: EntityId::from_u128(7), event, part: 0, at: at(0) }
}

/// A point that this event gave.
pub(super) fn told(event: u64, text: &str, trust: MemoryTrust) -> LearnedPoint {
    let MemoryPoint { content, .. } = point(text, trust);
    LearnedPoint { content, source: Some(source(event)) }
}

/// The same, about a subject and a predicate.
pub(super) fn fact(
    event: u64,
    about: (&str, &str),
    text: &str,
    trust: MemoryTrust,
) -> LearnedPoint {
    let mut point = told(event, text, trust);
    point.content.subject = Some(about.0.to_owned());
    point.content.predicate = Some(about.1.to_owned());
    point
}

/// What a memory is sent when a session was deleted.
pub(super) fn forget_source(
    source: EntityId,
    since: Option<Timestamp>,
    until: Option<Timestamp>,
) -> MemoryInput {
    MemoryInput::ForgetSource { source, by: "ada".to_owned(), since, until }
}

/// A memory with its journal.
#[derive(Clone, Default)]
pub(super) struct Book {
    pub(super) state: MemoryState,
    journal: Vec<Recorded>,
    pub(super) ts: u64,
    n: u64,
}

#[derive(Clone)]
enum Recorded {
    Input(u64, Timestamp, InputId, MemoryInput),
    Event(Timestamp, MemoryEvent),
}

impl Book {
    pub(super) fn new() -> Self {
        let mut book = Self::default();
        Memory::born(&mut book.state, "default/all").unwrap();
        book
    }

    /// Takes an input, and decides nothing.
    pub(super) fn accept(&mut self, input: MemoryInput) -> InputId {
        self.n += 1;
        let id = InputId::from_u128(u128::from(self.n));
        self.state.accept(self.n, at(self.ts), id, input.clone());
        self.journal.push(Recorded::Input(self.n, at(self.ts), id, input));
        id
    }

    /// Decides what follows; the events.
    pub(super) fn decide(&mut self) -> Vec<MemoryEvent> {
        self.decide_by(Memory::advance)
    }

    /// The same by an owner that decides so.
    pub(super) fn decide_by(
        &mut self,
        advance: impl Fn(&MemoryState) -> Vec<MemoryEvent>,
    ) -> Vec<MemoryEvent> {
        let mut events = Vec::new();
        loop {
            let decided = advance(&self.state);
            if decided.is_empty() {
                return events;
            }
            for event in decided {
                self.n += 1;
                self.state.fold(at(self.ts), &event).unwrap();
                self.journal.push(Recorded::Event(at(self.ts), event.clone()));
                events.push(event);
            }
        }
    }

    pub(super) fn put(&mut self, points: Vec<LearnedPoint>) -> PutAnswer {
        let input = self.accept(MemoryInput::Put { points });
        self.decide();
        self.state.answer(input).unwrap().clone()
    }

    pub(super) fn forget(&mut self, point: MemoryPointId) -> Vec<MemoryEvent> {
        self.accept(MemoryInput::Forget { points: vec![point], by: "ada".to_owned(), now: false });
        self.decide()
    }

    pub(super) fn fire(&mut self) -> Vec<MemoryEvent> {
        let Some(due) = self.state.due() else { return Vec::new() };
        self.accept(MemoryInput::TimerFired { due });
        self.decide()
    }

    /// The state that the journal gives.
    pub(super) fn replayed(&self) -> MemoryState {
        let mut state = MemoryState::default();
        Memory::born(&mut state, "default/all").unwrap();
        for recorded in self.journal.clone() {
            match recorded {
                Recorded::Input(n, ts, id, input) => state.accept(n, ts, id, input),
                Recorded::Event(ts, event) => state.fold(ts, &event).unwrap(),
            }
        }
        state
    }

    pub(super) fn texts(&self) -> Vec<&str> {
        self.state.live().map(|kept| kept.point.content.text.as_str()).collect()
    }

    pub(super) fn past(&self) -> Vec<(&str, PointState)> {
        self.state.past().map(|past| (past.point.content.text.as_str(), past.state)).collect()
    }
}

/// Of this many bytes, different for each number.
pub(super) fn large(number: u64) -> String {
    format!("{number:04}{}", "\u{1f4a7}".repeat(996))
}

#[test]
fn a_point_of_an_input_has_that_input_as_its_source() {
    let mut book = Book::new();
    book.ts = 40;
    let mut learned = told(1, "tea is at four", MemoryTrust::Operator);
    learned.source = None;
    let answer = book.put(vec![learned.clone(), learned]);
    let memory = "default/all".parse::<MemoryKey>().unwrap().entity();
    let own = |part| MemorySource { entity: memory, event: 1, part, at: at(40) }.point();
    assert_eq!(answer.added, [own(0), own(1)]);
    assert_eq!(book.replayed(), book.state);
}

#[test]
fn mem_3_a_source_that_is_told_again_adds_nothing_wherever_its_point_is() {
    let mut book = Book::new();
    let (first, second) = (source(1).point(), source(2).point());
    let lives = |event, text| fact(event, ("ada", "lives in"), text, MemoryTrust::Person);
    assert_eq!(book.put(vec![lives(1, "Ada lives in Rome")]).added, [first]);
    let again = book.put(vec![lives(1, "Ada lives in Oslo"), lives(1, "again")]);
    assert_eq!((again.added.len(), again.known), (0, vec![first, first]), "it is live");
    book.put(vec![lives(2, "Ada lives in Bonn")]);
    assert_eq!(book.put(vec![lives(1, "Ada lives in Rome")]).known, [first], "it is superseded");
    assert_eq!(book.texts(), ["Ada lives in Bonn"]);
    book.forget(second);
    assert_eq!(book.put(vec![lives(2, "Ada lives in Bonn")]).known, [second], "it is masked");
    assert_eq!(book.texts(), [""; 0]);
    assert_eq!(book.replayed(), book.state);
}

/// C23, at the memory: its owner or the teller dies after a point was journaled, and the point comes again.
#[test]
fn c23_a_point_that_is_told_again_after_a_crash_is_added_once() {
    let mut book = Book::new();
    let points = vec![told(1, "a", MemoryTrust::Person)];
    let first = book.accept(MemoryInput::Put { points: points.clone() });
    book.state = codec::decode(&codec::encode(&book.replayed()).unwrap()).unwrap();
    assert_eq!(book.state.answer(first), None, "it is not recorded yet");
    let again = book.accept(MemoryInput::Put { points });
    let events = book.decide();
    assert!(matches!(events[..], [MemoryEvent::Added(_)]), "{events:?}");
    assert_eq!(book.state.answer(first).unwrap().added, [source(1).point()]);
    assert_eq!(book.state.answer(again).unwrap().known, [source(1).point()]);
}

#[test]
fn a_later_point_about_the_same_supersedes_what_is_trusted_no_more() {
    use MemoryTrust::{Agent, Operator, Person, Tool};
    let about = ("Ada", "lives in");
    for (old, new, supersedes) in [
        (Person, Person, true),
        (Agent, Person, true),
        (Tool, Tool, true),
        (Person, Operator, true),
        (Person, Tool, false),
        (Person, Agent, false),
        (Operator, Person, false),
    ] {
        let mut book = Book::new();
        book.put(vec![fact(1, about, "Ada lives in Rome", old)]);
        let other = fact(2, ("Ada", "works in"), "Ada works in Bern", old);
        book.put(vec![other, fact(3, ("ada", "Lives  in"), "Ada lives in Bonn", new)]);
        let live = book.texts().len();
        assert_eq!(live == 2, supersedes, "S-22, {old:?} then {new:?}: {:?}", book.texts());
        let by = book.state.past().map(|past| (past.state, past.superseded_by)).collect::<Vec<_>>();
        let expected = (PointState::Superseded, Some(source(3).point()));
        assert_eq!(by, if supersedes { vec![expected] } else { vec![] }, "it is still shown");
    }
}

#[test]
fn mem_4_what_is_forgotten_is_not_shown_from_its_input_on() {
    let mut book = Book::new();
    let about = ("ada", "lives in");
    book.put(vec![fact(1, about, "Ada lives in Rome", MemoryTrust::Person)]);
    book.put(vec![fact(2, about, "Ada lives in Bonn", MemoryTrust::Person)]);
    let points = vec![source(1).point(), source(2).point()];
    book.accept(MemoryInput::Forget { points: points.clone(), by: "ada".to_owned(), now: false });
    assert_eq!((book.texts().len(), book.past().len()), (0, 0), "before the event");
    let events = book.decide();
    assert_eq!(events, [PointsMasked { points, by: "ada".to_owned() }.into()]);
    assert_eq!((book.texts().len(), book.past().len()), (0, 0));
    let bytes = codec::encode(&book.state).unwrap();
    let text = b"Ada lives";
    assert!(!bytes.windows(text.len()).any(|window| window == text), "its state has no text of it");
    let stats = book.state.stats("default/all".parse().unwrap());
    assert_eq!((stats.masked, stats.points, stats.past, stats.bytes), (2, 0, 0, 0));
}

#[test]
fn what_is_forgotten_is_purged_within_an_hour_or_at_once() {
    let forget = |event, now| MemoryInput::Forget {
        points: vec![source(event).point()],
        by: "ada".to_owned(),
        now,
    };
    let mut book = Book::new();
    book.put((1..4).map(|event| told(event, &format!("{event}"), MemoryTrust::Agent)).collect());
    book.accept(forget(9, true));
    book.decide();
    assert!(!Memory::purges(&book.state) && book.state.purge_due().is_none(), "it never was");
    book.ts = 1_000;
    book.accept(forget(1, false));
    assert!(!Memory::purges(&book.state));
    book.decide();
    book.ts = 2_000;
    book.accept(forget(2, false));
    book.decide();
    let due = at(1_000 + DAY / 24);
    assert_eq!(book.state.purge_due(), Some(due), "an hour after the first of them");
    assert!(Memory::decide(&book.state).contains(&MemoryEffect::Timer(due)));
    book.accept(MemoryInput::TimerFired { due: at(5) });
    assert!(!Memory::purges(&book.state), "another timer");
    book.accept(MemoryInput::TimerFired { due });
    assert!(Memory::purges(&book.state));
    Memory::purged(&mut book.state);
    assert!(!Memory::purges(&book.state) && book.state.purge_due().is_none());
    // What is gone from the journal is not purged again, and what is there is, once it is masked.
    book.accept(forget(1, true));
    book.decide();
    assert!(!Memory::purges(&book.state));
    book.accept(forget(3, true));
    assert!(!Memory::purges(&book.state), "its text is in the state until its event");
    book.decide();
    assert!(Memory::purges(&book.state));
}

/// A timer has its time as its name, and an input comes once. The clock of a later owner may be behind.
#[test]
fn a_timer_that_fired_in_vain_is_not_waited_for_again() {
    let forget = |event, now| MemoryInput::Forget {
        points: vec![source(event).point()],
        by: "ada".to_owned(),
        now,
    };
    let mut book = Book::new();
    book.put((1..3).map(|event| told(event, &format!("{event}"), MemoryTrust::Agent)).collect());
    book.ts = 1_000;
    book.accept(forget(1, true));
    book.decide();
    Memory::purged(&mut book.state);
    let due = at(1_000 + DAY / 24);
    book.accept(MemoryInput::TimerFired { due });
    assert!(!Memory::purges(&book.state), "it is purged");
    book.accept(forget(2, false));
    book.decide();
    assert!(book.state.purge_due().unwrap() > due);
}

#[test]
fn a_full_memory_archives_what_matters_least() {
    let mut book = Book::new();
    let most = u64::try_from(MEMORY_POINTS).unwrap();
    for chunk in 0..most / 50 {
        let events = chunk * 50..(chunk + 1) * 50;
        let points = events.map(|event| {
            let mut point = told(event, &format!("thing {event}"), MemoryTrust::Agent);
            // The first tenth matters more than all others.
            point.content.importance = if event < most / 10 { 6 } else { 5 };
            point.source = Some(MemorySource { at: at(event), ..source(event) });
            point
        });
        book.put(points.collect());
    }
    assert_eq!(book.texts().len(), MEMORY_POINTS);
    book.ts = DAY;
    let person = told(most, "Ada has a cat", MemoryTrust::Person);
    let input = book.accept(MemoryInput::Put { points: vec![person] });
    let events = book.decide();
    let [MemoryEvent::Consolidated(change), MemoryEvent::Added(_)] = events.as_slice() else {
        panic!("{events:?}")
    };
    let oldest: Vec<MemoryPointId> =
        (most / 10..most / 10 + most / 10).map(|event| source(event).point()).collect();
    assert_eq!(change.archived, oldest, "a tenth of those that matter least, the oldest first");
    assert!(change.joined.is_empty() && !change.daily);
    assert_eq!(book.state.answer(input).unwrap().added.len(), 1);
    assert_eq!(book.texts().len(), MEMORY_POINTS - MEMORY_POINTS / 10 + 1);
    assert_eq!(book.past()[0], ("thing 200", PointState::Archived), "still shown");
    assert_eq!(book.put(vec![told(200, "thing 200", MemoryTrust::Agent)]).known.len(), 1);
}

#[test]
fn a_memory_that_is_full_of_what_people_said_refuses_more_and_loses_nothing() {
    let mut book = Book::new();
    // By bytes: 2 MiB of texts of 3,988 bytes each.
    let most = 525;
    for event in 0..most {
        book.put(vec![told(event, &large(event), MemoryTrust::Person)]);
    }
    assert_eq!(book.texts().len(), 525);
    let answer = book.put(vec![told(most, &large(most), MemoryTrust::Operator)]);
    assert_eq!(answer.refused[0].reason, PointRefusal::Full);
    assert_eq!((answer.added.len(), book.texts().len()), (0, 525));
    // What takes less room still fits, and once a person has forgotten something, so does more.
    assert_eq!(book.put(vec![told(2_000, "short", MemoryTrust::Agent)]).added.len(), 1);
    book.forget(source(3).point());
    // The refused source may come again.
    let answer = book.put(vec![told(most, &large(most), MemoryTrust::Operator)]);
    assert_eq!(answer.added.len(), 1, "{:?}", answer.refused);
    assert_eq!(book.replayed(), book.state);
}

#[test]
fn what_an_agent_concluded_leaves_for_what_a_person_says() {
    let mut book = Book::new();
    for event in 0..525 {
        let trust = if event == 7 { MemoryTrust::Agent } else { MemoryTrust::Person };
        book.put(vec![told(event, &large(event), trust)]);
    }
    let answer = book.put(vec![told(525, &large(525), MemoryTrust::Person)]);
    assert_eq!(answer.added.len(), 1);
    assert_eq!(book.past(), [(large(7).as_str(), PointState::Archived)]);
}

#[test]
fn each_day_points_that_say_the_same_become_one() {
    use MemoryTrust::{Agent, Operator, Person, Tool};
    let mut book = Book::new();
    let texts = [("Ada likes tea", Agent), ("ada likes TEA.", Person), ("Ada likes tea!", Tool)];
    for (event, (text, trust)) in (1..).zip(texts) {
        book.put(vec![told(event, text, trust)]);
    }
    book.put(vec![told(4, "Tea likes Ada", Operator)]);
    assert_eq!(book.state.due(), Some(at(DAY)));
    let stale = MemoryInput::TimerFired { due: at(DAY - 1) };
    book.accept(stale);
    assert_eq!(book.decide(), [], "it was not due");
    let events = book.fire();
    let [MemoryEvent::Consolidated(change)] = events.as_slice() else { panic!("{events:?}") };
    let into = source(2).point();
    let joined: Vec<_> = change.joined.iter().map(|joined| (joined.point, joined.into)).collect();
    assert_eq!(joined, [(source(1).point(), into), (source(3).point(), into)]);
    assert!(change.archived.is_empty() && change.daily, "there is room");
    assert_eq!(book.texts(), ["ada likes TEA.", "Tea likes Ada"], "the most trusted stays");
    assert_eq!((book.state.due(), book.fire()), (None, vec![]), "nothing was added since");
    assert_eq!(book.state.now, at(DAY));
    assert_eq!(book.replayed(), book.state);
}

#[test]
fn each_day_a_nearly_full_memory_gets_a_tenth_of_room() {
    let mut book = Book::new();
    for chunk in 0..38 {
        let points = (chunk * 50..chunk * 50 + 50)
            .map(|event| told(event, &format!("thing {event}"), MemoryTrust::Agent));
        book.put(points.collect());
    }
    book.fire();
    assert_eq!(book.texts().len(), 1_800);
    assert_eq!(book.past().len(), 100);
}

#[test]
fn what_left_long_ago_is_not_in_the_state_any_more() {
    let mut book = Book::new();
    let most = u64::try_from(MEMORY_PAST_POINTS).unwrap();
    let about = ("ada", "lives in");
    for event in 0..most + 3 {
        book.put(vec![fact(event, about, &format!("house {event}"), MemoryTrust::Person)]);
    }
    assert_eq!((book.texts().len(), book.past().len()), (1, MEMORY_PAST_POINTS));
    assert_eq!(book.past()[0].0, "house 2");
    assert_eq!(book.put(vec![fact(0, about, "house 0", MemoryTrust::Person)]).known.len(), 1);
}

#[test]
fn events_that_contradict_the_state_are_refused() {
    let mut book = Book::new();
    book.put(vec![told(1, "a", MemoryTrust::Person), told(2, "b", MemoryTrust::Agent)]);
    let (supersedes, superseded_by) = (vec![], None);
    let point = point("c", MemoryTrust::Agent);
    let added = PointAdded { point, supersedes, superseded_by };
    let archived = |id| PointsConsolidated { archived: vec![id], ..PointsConsolidated::default() };
    let joined = |point, into| PointsConsolidated {
        joined: vec![clawnode_proto::memory_point::JoinedPoint { point, into }],
        ..PointsConsolidated::default()
    };
    let (person, agent, other) = (source(1).point(), source(2).point(), source(9).point());
    let wrong: [MemoryEvent; 7] = [
        added.into(),
        archived(person).into(),
        archived(other).into(),
        joined(person, agent).into(),
        joined(agent, agent).into(),
        joined(agent, other).into(),
        PointsConsolidated { daily: true, ..PointsConsolidated::default() }.into(),
    ];
    for event in wrong {
        book.state.clone().fold(at(0), &event).unwrap_err();
    }
    let mut asks = book.clone();
    let points = vec![told(3, "d", MemoryTrust::Agent)];
    asks.accept(MemoryInput::Put { points });
    let MemoryEvent::Added(mut added) = asks.state.next(points_limit::most()).unwrap() else {
        panic!()
    };
    added.supersedes = vec![person];
    asks.state.clone().fold(at(0), &added.clone().into()).unwrap_err();
    (added.supersedes, added.superseded_by) = (vec![], Some(other));
    asks.state.clone().fold(at(0), &added.clone().into()).unwrap_err();
    added.superseded_by = Some(person);
    asks.state.fold(at(0), &added.into()).unwrap();
}

#[test]
fn one_append_has_room_for_what_one_look_decides() {
    let mut book = Book::new();
    let points = (0..30).map(|event| told(event, &large(event), MemoryTrust::Agent));
    book.accept(MemoryInput::Put { points: points.collect() });
    let decided = Memory::advance(&book.state);
    assert!((2..=25).contains(&decided.len()), "{}", decided.len());
    let points = (100..160).map(|event| told(event, "x", MemoryTrust::Agent));
    book.accept(MemoryInput::Put { points: points.collect() });
    assert!(!book.state.admits(), "further inputs wait");
    assert_eq!(book.decide().len(), 90);
    assert!(book.state.admits());
}

#[test]
fn a_point_that_breaks_a_limit_is_refused_alone() {
    let mut book = Book::new();
    let answer = book.put(vec![
        told(1, &"x".repeat(1_001), MemoryTrust::Operator),
        told(2, "fine", MemoryTrust::Operator),
    ]);
    assert_eq!(answer.refused[0].reason, PointRefusal::Invalid);
    assert_eq!(book.texts(), ["fine"]);
}
