//! Points as people see them and as they want them. Pure.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
};

use clawnode_memory::points::{KeptPoint, MemoryState, PastPoint, weight};
use clawnode_proto::{
    Cursor, CursorError, EntityId, ErrorBody, ErrorCode, MemoryPointId, Timestamp,
    api::Method,
    cursor::Pair,
    feedback::PointFeedback,
    limits::MEMORY_PUT_BYTES,
    memory::{MemoryKey, MemorySource},
    memory_point::{LearnedPoint, MemoryPoint, PointContent},
    memory_view::{MemoryPointView, MemoryPoints, MemoryShowParams, PointState, WantedPoint},
};

/// Rows of a page unless the request says how many.
const PAGE: u32 = 100;

/// The place of a point among others: when it was learned, in milliseconds, and its id. It stays while other points
/// come and go.
type Place = Pair<u64, MemoryPointId>;

/// A point of a memory that is shown.
#[derive(Clone, Copy, Debug)]
struct SeenPoint<'a> {
    id: MemoryPointId,
    point: &'a MemoryPoint,
    state: PointState,
    superseded_by: Option<MemoryPointId>,
    feedback: Option<PointFeedback>,
}

/// The learned points that a person wants, if they are within the limits.
pub(super) fn learned(points: Vec<WantedPoint>) -> Result<Vec<LearnedPoint>, ErrorBody> {
    let invalid = |what: String| ErrorBody::new(ErrorCode::InvalidParams, what);
    let mut learned = Vec::new();
    for (at, point) in points.into_iter().enumerate() {
        let wrong = |problem| invalid(format!("parameter `points[{at}]`: {problem}"));
        learned.push(point.learned().map_err(wrong)?);
    }
    let bytes: usize = learned.iter().map(|point| point.content.bytes()).sum();
    if bytes > MEMORY_PUT_BYTES {
        let what = format!(
            "the points have {bytes} bytes of text, and one request at most {MEMORY_PUT_BYTES}"
        );
        return Err(invalid(what).hint("send them in several requests"));
    }
    Ok(learned)
}

/// One page of the points of a memory, the first that were learned first.
pub(super) fn page(
    state: &MemoryState,
    params: &MemoryShowParams,
    now: Timestamp,
) -> Result<MemoryPoints, CursorError> {
    const SHOW: Method = Method::MemoryShow;
    let after = params.cursor.as_ref().map(|cursor| cursor.read::<Place>(SHOW)).transpose()?;
    let live = state.live().map(SeenPoint::live);
    let past = state.past().filter(|_| params.all).map(SeenPoint::past);
    let place = |seen: &SeenPoint<'_>| Pair(seen.point.source.at.0, seen.id);
    let mut points: Vec<SeenPoint<'_>> = live.chain(past).collect();
    points.retain(|point| after.is_none_or(|after| place(point) > after));
    points.sort_by_key(place);
    let limit = usize::try_from(params.limit.unwrap_or(PAGE)).unwrap_or(usize::MAX);
    let is_more = points.len() > limit;
    points.truncate(limit);
    let next = points.last().filter(|_| is_more).map(|point| Cursor::new(SHOW, place(point)));
    let points = points.into_iter().map(|seen| seen.view(now)).collect();
    Ok(MemoryPoints { memory: params.memory.clone(), points, next })
}

// === impl SeenPoint ===

impl<'a> SeenPoint<'a> {
    const fn live(kept: &'a KeptPoint) -> Self {
        let KeptPoint { id, point, feedback } = kept;
        let (id, feedback) = (*id, *feedback);
        Self { id, point, state: PointState::Live, superseded_by: None, feedback }
    }

    const fn past(past: &'a PastPoint) -> Self {
        let PastPoint { id, point, state, superseded_by, feedback } = past;
        let (id, state, feedback) = (*id, *state, *feedback);
        Self { id, point, state, superseded_by: *superseded_by, feedback }
    }

    fn view(self, now: Timestamp) -> MemoryPointView {
        let Self { id, point, state, superseded_by, feedback } = self;
        let PointContent { layer, text, subject, predicate, object, confidence, importance, trust } =
            point.content.clone();
        let (weight, source) = (weight(point, now), point.source.clone());
        MemoryPointView {
            id,
            layer,
            text,
            subject,
            predicate,
            object,
            confidence,
            importance,
            feedback,
            weight,
            trust,
            source,
            state,
            superseded_by,
        }
    }
}

/// The events that these points of a memory were learned from, and their times, by their entities. Those of the memory itself
/// are not among them. All points if none is named.
pub(super) fn sources(
    state: &MemoryState,
    memory: &MemoryKey,
    named: Option<MemoryPointId>,
) -> BTreeMap<EntityId, BTreeSet<(u64, Timestamp)>> {
    let live = state.live().map(|kept| (kept.id, &kept.point));
    let points = live.chain(state.past().map(|past| (past.id, &past.point)));
    let meant = points.filter(|(id, _)| named.is_none_or(|named| named == *id));
    let own = memory.entity();
    let mut sources = BTreeMap::<_, BTreeSet<_>>::new();
    for (_, MemoryPoint { source, .. }) in meant.filter(|(_, point)| point.source.entity != own) {
        sources.entry(source.entity).or_default().insert((source.event, source.at));
    }
    sources
}

/// How many points of a memory, beside this one, an entity has taught while it lived, if that is known.
pub(super) fn taught(
    state: &MemoryState,
    by: EntityId,
    lifetime: Option<&RangeInclusive<Timestamp>>,
    beside: Option<MemoryPointId>,
) -> u32 {
    let live = state.live().map(|kept| (kept.id, &kept.point));
    let points = live.chain(state.past().map(|past| (past.id, &past.point)));
    let lived = |at: Timestamp| lifetime.is_none_or(|times| times.contains(&at));
    let is_of_it = |source: &MemorySource| source.entity == by && lived(source.at);
    let others = points.filter(|(id, point)| Some(*id) != beside && is_of_it(&point.source));
    u32::try_from(others.count()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use clawnode_kernel::EntityKind as _;
    use clawnode_memory::Memory;
    use clawnode_proto::{
        Epoch, EventId, Head, IdempotencyKey, Incarnation, Kind, ProcessId, Seq,
        memory::{MemoryLayer, MemoryTrust},
        memory_point::MemoryInput,
    };

    use super::*;

    fn key() -> MemoryKey {
        "default/all".parse().unwrap()
    }

    fn wanted(text: &str) -> WantedPoint {
        WantedPoint {
            text: text.to_owned(),
            layer: None,
            subject: None,
            predicate: None,
            object: None,
            confidence: None,
            importance: None,
            trust: None,
            source: None,
        }
    }

    /// A memory with these points: when they were learned, and what they say of Ada's home.
    fn memory(points: &[(u64, &str)]) -> MemoryState {
        let mut state = MemoryState::default();
        Memory::born(&mut state, "default/all").unwrap();
        for (n, (at, text)) in (1..).zip(points) {
            let mut point = wanted(text);
            (point.subject, point.predicate) =
                (Some("ada".to_owned()), text.get(..1).map(str::to_owned));
            let source = MemorySource {
                entity: EntityId::from_u128(9),
                event: n,
                part: 0,
                at: Timestamp(*at),
            };
            point.source = Some(source);
            let body = MemoryInput::Put { points: learned(vec![point]).unwrap() };
            let name: IdempotencyKey = format!("n{n}").parse().unwrap();
            let input = Memory::input(&key(), name, Timestamp(0), &body).unwrap();
            let incarnation = Incarnation { process: ProcessId::from_u128(1), counter: 0 };
            let head = Head {
                entity: key().entity(),
                n: Seq(n),
                v: 1,
                eid: EventId::from_u128(u128::from(n)),
                epoch: Epoch(1),
                incarnation,
                ts: Timestamp(0),
                kind: Kind::MEMORY.to_string(),
                required: true,
                progress: true,
            };
            Memory::accept(&mut state, &head, &input).unwrap();
            for event in Memory::advance(&state) {
                Memory::fold(&mut state, &head, &event).unwrap();
            }
        }
        state
    }

    #[test]
    fn pages_have_each_point_once_in_the_order_of_time() {
        let state = memory(&[(3, "c"), (1, "a"), (2, "b1"), (4, "b2")]);
        let mut params =
            MemoryShowParams { memory: key(), all: true, cursor: None, limit: Some(3) };
        let texts = |page: &MemoryPoints| -> Vec<String> {
            page.points.iter().map(|point| format!("{} {:?}", point.text, point.state)).collect()
        };
        let first = page(&state, &params, Timestamp(9)).unwrap();
        assert_eq!(texts(&first), ["a Live", "b1 Superseded", "c Live"]);
        params.cursor = first.next;
        let second = page(&state, &params, Timestamp(9)).unwrap();
        assert_eq!((texts(&second), &second.next), (vec!["b2 Live".to_owned()], &None));
        assert_eq!(first.points[1].superseded_by, Some(second.points[0].id));
        let live = MemoryShowParams { memory: key(), all: false, cursor: None, limit: None };
        assert_eq!(texts(&page(&state, &live, Timestamp(9)).unwrap()).len(), 3);
        let foreign = Some(Cursor::new(Method::MemoryList, "default/all"));
        page(&state, &MemoryShowParams { cursor: foreign, ..live }, Timestamp(9)).unwrap_err();
    }

    #[test]
    fn what_is_wanted_has_defaults_and_limits() {
        let content = learned(vec![wanted("Tea is at four.")]).unwrap().remove(0).content;
        assert_eq!((content.confidence, content.importance), (100, 5));
        assert_eq!((content.layer, content.trust), (MemoryLayer::Semantic, MemoryTrust::Operator));
        let wrong = WantedPoint { importance: Some(11), ..wanted("b") };
        let refused = learned(vec![wanted("a"), wrong]).unwrap_err();
        assert!(
            refused.message.starts_with("parameter `points[1]`: `importance` is 11"),
            "{refused:?}"
        );
        let large = wanted(&"\u{1f4a7}".repeat(1_000));
        let refused = learned(vec![large; 33]).unwrap_err();
        assert!(refused.message.contains("132000 bytes"), "{refused:?}");
    }

    #[test]
    fn other_journals_that_still_have_a_text_are_named() {
        let state = memory(&[(1, "a"), (2, "b")]);
        let events = BTreeSet::from([(1, Timestamp(1)), (2, Timestamp(2))]);
        let all = BTreeMap::from([(EntityId::from_u128(9), events)]);
        assert_eq!(sources(&state, &key(), None), all);
        assert_eq!(sources(&state, &key(), Some(MemoryPointId::from_u128(1))), BTreeMap::new());
        let first = state.live().next().map(|kept| kept.id);
        let session = EntityId::from_u128(9);
        assert_eq!(taught(&state, session, None, first), 1, "beside it");
        assert_eq!(taught(&state, EntityId::from_u128(8), None, None), 0, "of another session");
        let lifetime = Timestamp(2)..=Timestamp(3);
        assert_eq!(taught(&state, session, Some(&lifetime), None), 1, "of another cluster");
        let exported = page(
            &state,
            &MemoryShowParams { memory: key(), all: false, cursor: None, limit: None },
            Timestamp(9),
        );
        let again: Vec<WantedPoint> =
            exported.unwrap().points.into_iter().map(MemoryPointView::wanted).collect();
        let ids: Vec<_> = learned(again)
            .unwrap()
            .into_iter()
            .map(|point| point.source.unwrap().point())
            .collect();
        assert_eq!(
            ids,
            state.live().map(|kept| kept.id).collect::<Vec<_>>(),
            "an import adds nothing twice"
        );
    }
}
