//! Memories, whatever the order of their inputs.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    MemoryPointId, codec,
    limits::{MEMORY_BYTES, MEMORY_PAST_BYTES, MEMORY_PAST_POINTS, MEMORY_POINTS},
    memory::MemoryTrust,
    memory_point::{MemoryEvent, MemoryInput},
    memory_view::PointState,
};
use proptest::prelude::*;

use super::{
    Memory, MemoryState,
    tests::{Book, DAY, fact, large, source, told},
};

/// Large points that a memory begins with; a few more fill it.
const FILLED: u64 = 518;

#[derive(Clone, Debug)]
enum Step {
    Fact { event: u64, about: u8, text: u8, trust: MemoryTrust },
    Large { event: u64, trust: MemoryTrust },
    Forget(u64),
    Fire,
    Clock(u64),
}

fn trust() -> impl Strategy<Value = MemoryTrust> {
    use MemoryTrust::{Agent, Operator, Person, Tool};
    prop_oneof![Just(Tool), Just(Agent), Just(Person), Just(Operator)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (1_000..1_030_u64, 0..3_u8, 0..3_u8, trust())
            .prop_map(|(event, about, text, trust)| Step::Fact { event, about, text, trust }),
        5 => (2_000..2_030_u64, trust()).prop_map(|(event, trust)| Step::Large { event, trust }),
        2 => prop_oneof![0..FILLED, 1_000..1_030_u64, 2_000..2_030_u64].prop_map(Step::Forget),
        1 => Just(Step::Fire),
        1 => (0..40 * DAY).prop_map(Step::Clock),
    ]
}

/// What was seen of a memory, which no later event may contradict.
#[derive(Default)]
struct Seen {
    added: BTreeSet<MemoryPointId>,
    /// Not live any more.
    left: BTreeSet<MemoryPointId>,
    masked: BTreeSet<MemoryPointId>,
    trust: BTreeMap<MemoryPointId, MemoryTrust>,
}

impl Seen {
    fn event(&mut self, event: &MemoryEvent) {
        match event {
            MemoryEvent::Added(added) => {
                let id = added.point.id();
                assert!(self.added.insert(id), "MEM-3: {id} is added a second time");
                self.trust.insert(id, added.point.content.trust);
                self.left.extend(&added.supersedes);
            }
            // What was never there is not remembered as forgotten.
            MemoryEvent::Masked(masked) => {
                let known = masked.points.iter().filter(|id| self.added.contains(id));
                self.masked.extend(known);
            }
            MemoryEvent::Consolidated(consolidated) => {
                self.left.extend(consolidated.joined.iter().map(|joined| joined.point));
                self.left.extend(&consolidated.archived);
            }
            MemoryEvent::Refused(_) | MemoryEvent::Rated(_) => {}
        }
    }

    fn state(&self, state: &MemoryState) {
        let live: Vec<MemoryPointId> = state.live().map(|kept| kept.id).collect();
        let past: Vec<_> = state.past().collect();
        for id in live.iter().chain(past.iter().map(|past| &past.id)) {
            assert!(!self.masked.contains(id), "MEM-4: {id} is masked");
        }
        assert!(live.iter().all(|id| !self.left.contains(id)), "MEM-4: it was superseded");
        assert_eq!(live.iter().collect::<BTreeSet<_>>().len(), live.len());
        let bytes: usize = state.live().map(|kept| kept.point.content.bytes()).sum();
        assert!(live.len() <= MEMORY_POINTS && bytes <= MEMORY_BYTES, "{} {bytes}", live.len());
        let bytes: usize = past.iter().map(|past| past.point.content.bytes()).sum();
        assert!(past.len() <= MEMORY_PAST_POINTS && bytes <= MEMORY_PAST_BYTES);
        // What people said leaves only for what people said.
        let kept = |id: &MemoryPointId| {
            self.trust.get(id).is_some_and(|trust| *trust >= MemoryTrust::Person)
        };
        for past in past.iter().filter(|past| past.point.content.trust >= MemoryTrust::Person) {
            assert_ne!(past.state, PointState::Archived);
            assert!(past.superseded_by.is_some_and(|by| kept(&by)), "S-22: {past:?}");
        }
    }
}

fn taken(book: &mut Book, step: &Step) -> Vec<MemoryEvent> {
    let put = |points| MemoryInput::Put { points };
    let input = match *step {
        Step::Fact { event, about, text, trust } => {
            let (about, text) = (format!("s{about}"), format!("says {text}"));
            put(vec![fact(event, (&about, "is"), &text, trust)])
        }
        Step::Large { event, trust } => put(vec![told(event, &large(event), trust)]),
        Step::Forget(event) => return book.forget(source(event).point()),
        Step::Fire => return book.fire(),
        Step::Clock(ts) => {
            book.ts = ts;
            return Vec::new();
        }
    };
    book.accept(input);
    book.decide()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, failure_persistence: None, ..Default::default() })]

    /// MEM-3, MEM-4 and the limits hold at every prefix, in whatever order points come, come again and are
    /// forgotten, and however clocks jump; and the journal is all there is.
    #[test]
    fn mem_3_and_mem_4_hold_at_every_prefix(
        steps in prop::collection::vec(step(), 1..60),
        kept in 0..=FILLED,
    ) {
        let (mut book, mut seen) = (Book::new(), Seen::default());
        for chunk in (0..FILLED).collect::<Vec<_>>().chunks(30) {
            let trust = |event| if event < kept { MemoryTrust::Person } else { MemoryTrust::Agent };
            let points = chunk.iter().map(|event| told(*event, &large(*event), trust(*event)));
            book.accept(MemoryInput::Put { points: points.collect() });
            for event in &book.decide() {
                seen.event(event);
            }
        }
        for step in steps {
            for event in &taken(&mut book, &step) {
                seen.event(event);
            }
            seen.state(&book.state);
            prop_assert!(Memory::advance(&book.state).is_empty());
        }
        prop_assert!(book.replayed() == book.state, "the journal is all there is");
        let bytes = codec::encode(&book.state).unwrap();
        let read: MemoryState = codec::decode(&bytes).unwrap();
        prop_assert!(read == book.state);
    }
}
