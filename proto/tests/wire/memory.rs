//! The bytes of the events that memories record, of their inputs, and of how the bucket lists them.

use clawnode_proto::{
    Attempt, Digest, EntityId, InputId, MemoryPointId, Timestamp, TurnId,
    llm::{FailureClass, ModelFailure, Usage},
    memory::{MemoryLayer, MemorySource, MemoryTrust},
    memory_point::{
        JoinedPoint, LearnedPoint, MemoryEvent, MemoryInput, MemoryPoint, PointAdded, PointContent,
        PointRefusal, PointRefused, PointsConsolidated, PointsMasked, PointsRated, PointsRating,
        RatedPoint,
    },
    memory_view::ListedMemory,
    reflection::ReflectInput,
    session::{Profile, Reflected, ReflectionBegun, ReflectionFailed, SessionEvent, SessionInput},
};

use crate::{
    goldens::{all, events},
    samples::{call, model, name, profile, turn, usage},
};

fn content() -> PointContent {
    PointContent {
        layer: MemoryLayer::Semantic,
        text: "Ada lives in Bonn.".to_owned(),
        subject: Some("Ada".to_owned()),
        predicate: Some("lives in".to_owned()),
        object: Some("Bonn".to_owned()),
        confidence: 90,
        importance: 7,
        trust: MemoryTrust::Person,
    }
}

fn source(part: u32) -> MemorySource {
    let entity = EntityId::from_u128(7);
    MemorySource { entity, event: 12, part, at: Timestamp(1_795_651_200_000) }
}

fn memory_events() -> Vec<MemoryEvent> {
    let (one, other) = (source(0).point(), source(1).point());
    let bare = PointContent {
        layer: MemoryLayer::Procedural,
        subject: None,
        predicate: None,
        object: None,
        trust: MemoryTrust::Tool,
        ..content()
    };
    let added = |content, supersedes| PointAdded {
        point: MemoryPoint { content, source: source(0) },
        supersedes,
        superseded_by: None,
    };
    let joined = vec![JoinedPoint { point: one, into: other }];
    vec![
        added(content(), vec![other]).into(),
        added(bare, vec![]).into(),
        PointRefused { point: one, reason: PointRefusal::Full }.into(),
        PointRefused { point: one, reason: PointRefusal::Invalid }.into(),
        PointsMasked { points: vec![one, other], by: "ada".to_owned() }.into(),
        PointsConsolidated { joined, archived: vec![other], daily: false }.into(),
        PointsConsolidated { joined: vec![], archived: vec![], daily: true }.into(),
        rated(vec![RatedPoint { point: one, importance: 4 }]).into(),
        rated(vec![]).into(),
    ]
}

fn rated(points: Vec<RatedPoint>) -> PointsRated {
    let PointsRating { feedback, session, turn, step, .. } = rating();
    PointsRated { feedback, session, turn, step, points }
}

fn rating() -> PointsRating {
    PointsRating {
        feedback: InputId::from_u128(3),
        session: EntityId::from_u128(7),
        turn: TurnId::from_u128(5),
        step: -2,
        points: vec![source(0).point(), source(1).point()],
    }
}

fn inputs() -> Vec<MemoryInput> {
    let told = LearnedPoint { content: content(), source: Some(source(1)) };
    let own = LearnedPoint { source: None, ..told.clone() };
    vec![
        MemoryInput::Put { points: vec![told.clone(), own] },
        MemoryInput::Import { points: vec![told] },
        MemoryInput::Forget { points: vec![source(0).point()], by: "ada".to_owned(), now: false },
        MemoryInput::ForgetSource {
            source: source(0).entity,
            by: "ada".to_owned(),
            since: None,
            until: None,
        },
        MemoryInput::Delete {},
        MemoryInput::TimerFired { due: Timestamp(1_795_651_200_000) },
        MemoryInput::Rate(rating()),
    ]
}

#[test]
fn memories() {
    let listed = ["default/all", "default/peer/web:bot:ada", "shared/team-handbook"];
    let listed = listed.map(|key| ListedMemory { memory: name(key) });
    let layers = [MemoryLayer::Social, MemoryLayer::Episode];
    let trusts = [MemoryTrust::Agent, MemoryTrust::Operator];
    let golden = events(&memory_events()) + &all(&inputs()) + &all(&listed);
    insta::assert_snapshot!(golden + &all(&layers) + &all(&trusts));
}

/// Where no model looks back at turns, a configuration has the bytes that it had before any did: the other goldens show it.
#[test]
fn reflections() {
    let (turn, call, by) = (turn(), call(), model());
    let (attempt, request, max_tokens) = (Attempt(1), Digest::of(b"request"), 2_048);
    let model = by.clone();
    let begun = ReflectionBegun { turn, call, attempt, model, request, max_tokens };
    let lessons = vec!["Run the tests before you push.".to_owned(), "Ask first.".to_owned()];
    let done = Reflected {
        turn,
        call,
        attempt,
        rating: Some(4),
        lessons,
        facts: Vec::new(),
        by,
        usage: usage(),
    };
    let (lessons, facts) = (Vec::new(), vec![content()]);
    let found = Reflected { rating: None, lessons, facts, ..done.clone() };
    let failure = ModelFailure::new(FailureClass::Cancelled, "a message came first");
    let failed = ReflectionFailed { turn, call, attempt, failure, usage: usage() };
    let events = events::<SessionEvent>(&[
        Profile { reflects: true, extracts: true, ..profile() }.into(),
        begun.into(),
        done.clone().into(),
        Reflected { lessons: Vec::new(), ..done }.into(),
        found.into(),
        failed.clone().into(),
        ReflectionFailed { attempt: Attempt(0), usage: Usage::default(), ..failed }.into(),
    ]);
    let input = SessionInput::Reflect(ReflectInput { turn });
    insta::assert_snapshot!(all(&[input]) + &events);
}

/// An id that changed would add a source that comes again a second time (MEM-3).
#[test]
fn mem_3_ids_of_points_follow_from_their_sources_for_ever() {
    let ids: Vec<String> = [0, 1].map(|part| source(part).point().to_string()).to_vec();
    assert_ne!(ids[0], ids[1]);
    let aside = source(0).aside();
    assert_eq!((aside.original(), source(0).original()), (source(0), source(0)));
    let ids = [ids, vec![aside.point().to_string()]].concat();
    insta::assert_snapshot!(ids.join("\n"));
    assert_eq!(ids[0].parse::<MemoryPointId>().unwrap(), source(0).point());
}
