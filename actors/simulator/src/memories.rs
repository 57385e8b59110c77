//! Memories: what their clients send, how their effects happen in this world, and what must hold of them.
//!
//! Clients tell the same sources again, under other names, and forget some of them. What was forgotten is purged, at
//! once or by a timer that fires early. Feedback on them comes several times, under other names. What was added, forgotten
//! and moved is counted from events alone.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
};

use clawnode_cluster::Timer;
use clawnode_kernel::MachineInput;
use clawnode_memory::{
    Memory,
    points::{MemoryEffect, MemoryJob, MemoryState},
};
use clawnode_proto::{
    EntityId, Head, IdempotencyKey, Input, InputId, MemoryPointId, Timestamp, TurnId,
    memory::{MemoryKey, MemoryLayer, MemorySource, MemoryTrust},
    memory_point::{
        LearnedPoint, MemoryEvent, MemoryInput, PointContent, PointsRated, PointsRating,
    },
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    JudgeViolation, Sim,
    any_machine::ActivationPlace,
    book::{AnyBook as _, Book, Booked, Checked},
    clients::SimClient,
    kinds::Simulated,
    plan::SeedPlan,
    process::PlannedNote,
    recall::{feeding, told},
};

/// Inputs of one memory for each of a session.
const TIMES: usize = 5;
/// Events of a session that points are learned from.
const SOURCES: u64 = 24;
/// How long it takes to store something, at most, in milliseconds.
const STORED_MOST: u64 = 3_000;
/// How long after it is set a timer fires, at most, in milliseconds.
const FIRES_MOST: u64 = 20_000;

/// What happened to a memory.
#[derive(Debug, Default)]
pub(super) struct MemoryHistory {
    added: BTreeMap<MemoryPointId, PointImportance>,
    masked: BTreeSet<MemoryPointId>,
    /// Feedback that has moved points.
    rated: BTreeSet<InputId>,
    /// A point that was shown after it was masked.
    shown: Option<MemoryPointId>,
}

/// How much a point matters.
#[derive(Debug)]
struct PointImportance {
    given: i64,
    is_of_operator: bool,
    /// By how much feedback has moved it.
    sum: i64,
}

fn key(memory: usize) -> Option<MemoryKey> {
    format!("agent{memory}/all").parse().ok()
}

/// The point that this event gives, always the same one.
fn learned(event: u64) -> LearnedPoint {
    let content = PointContent {
        layer: MemoryLayer::Semantic,
        text: format!("what was said {event}"),
        subject: event.is_multiple_of(3).then(|| format!("thing {}", event % 5)),
        predicate: event.is_multiple_of(3).then(|| "is".to_owned()),
        object: None,
        confidence: 100,
        importance: 5,
        trust: MemoryTrust::Agent,
    };
    LearnedPoint { content, source: Some(source(event)) }
}

fn source(event: u64) -> MemorySource {
    MemorySource { entity: EntityId::from_u128(7), event, part: 0, at: Timestamp(0) }
}

/// What sessions send: feedback, each twice under other names, as if the inbox had forgotten the first.
fn raters(plan: &SeedPlan) -> Vec<SimClient> {
    let mut rng = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x0fee_dbac);
    let mut clients = Vec::new();
    for (key, number) in (0..plan.memories)
        .filter_map(key)
        .flat_map(|key| (0..plan.inputs).map(move |number| (key.clone(), number)))
    {
        let rating = PointsRating {
            feedback: InputId::from_u128(rng.random()),
            session: EntityId::from_u128(7),
            turn: TurnId::from_u128(rng.random()),
            step: [1, -1, 2, -2].get(rng.random_range(0..4)).copied().unwrap_or(1),
            points: (0..3).map(|_| source(rng.random_range(0..SOURCES)).point()).collect(),
        };
        for again in 0..2 {
            let after = rng.random_range(0..plan.busy);
            let name = format!("rated{number}.{again}").parse::<IdempotencyKey>();
            let input = name.ok().and_then(|name| {
                let body = MemoryInput::Rate(rating.clone());
                Memory::input(&key, name, Timestamp(0), &body).ok()
            });
            clients.extend(input.map(|input| SimClient { after, input, answered: false }));
        }
    }
    clients
}

impl Simulated for Memory {
    fn entities(plan: &SeedPlan) -> Vec<EntityId> {
        let learning = if plan.recalls { told::memories(plan.sessions) } else { Vec::new() };
        (0..plan.memories).filter_map(key).chain(learning).map(|key| key.entity()).collect()
    }

    fn clients(plan: &SeedPlan, _: u64) -> Vec<SimClient> {
        let mut rng = ChaCha8Rng::seed_from_u64(plan.seed ^ 0x00c0_3e3a);
        let mut clients = feeding::clients(plan);
        for (key, number) in (0..plan.memories)
            .filter_map(key)
            .flat_map(|key| (0..plan.inputs * TIMES).map(move |number| (key.clone(), number)))
        {
            let after = rng.random_range(0..plan.busy);
            let body = if rng.random_bool(0.3) {
                let points = vec![source(rng.random_range(0..SOURCES)).point()];
                let now = rng.random_bool(0.5);
                MemoryInput::Forget { points, by: "a client".to_owned(), now }
            } else {
                let count = rng.random_range(1..4);
                let points = (0..count).map(|_| learned(rng.random_range(0..SOURCES))).collect();
                MemoryInput::Put { points }
            };
            let Ok(name) = format!("key{number}").parse::<IdempotencyKey>() else { continue };
            let Ok(input) = Self::input(&key, name, Timestamp(0), &body) else { continue };
            clients.push(SimClient { after, input, answered: false });
        }
        clients.extend(raters(plan));
        clients
    }

    fn acquire(_: &mut Sim, _: ActivationPlace, _: MemoryEffect, want: &Infallible) {
        match *want {}
    }

    fn start(sim: &mut Sim, at: ActivationPlace, effect: MemoryEffect, job: &MemoryJob) -> Checked {
        let after = sim.world.rng.random_range(1..STORED_MOST);
        let (about, timer) = match job {
            MemoryJob::Timer(timer) => (format!("sets {timer:?}"), Some(timer.clone())),
            MemoryJob::List(listed) => (format!("lists {listed:?}"), None),
        };
        let stored = PlannedNote::own(about, move |sim| sim.stores_of_memory(at, effect, timer));
        sim.world.later(at.process, after, stored);
        Ok(())
    }

    fn abort(sim: &mut Sim, at: ActivationPlace, effect: MemoryEffect) {
        let gone = PlannedNote::own(format!("lets go of {effect:?}"), move |sim| {
            sim.feed_as::<Self>(at, MachineInput::Gone(effect))
        });
        sim.world.mail(at.process, at.entity.as_u128(), gone);
    }
}

impl Sim {
    /// The timer of a memory is stored, or it is listed.
    fn stores_of_memory(
        &mut self,
        at: ActivationPlace,
        effect: MemoryEffect,
        timer: Option<Timer>,
    ) -> Checked {
        let process = self.processes.get_mut(&at.process);
        if process.and_then(|process| process.actor(at.entity, at.counter)).is_none() {
            return Ok(());
        }
        if let Some(timer) = timer {
            let after = self.world.rng.random_range(1..FIRES_MOST);
            self.hears(timer.input, after);
        }
        self.feed_as::<Memory>(at, MachineInput::Confirmed(effect))
    }
}

impl Booked for Memory {
    type Body = MemoryInput;
    type Own = MemoryHistory;

    fn note(own: &mut MemoryHistory, _: &Head, event: MemoryEvent) -> Checked {
        match event {
            MemoryEvent::Added(added) => {
                let (point, content) = (added.point.id(), &added.point.content);
                let importance = PointImportance {
                    given: i64::from(content.importance),
                    is_of_operator: content.trust == MemoryTrust::Operator,
                    sum: 0,
                };
                if own.added.insert(point, importance).is_some() {
                    let text = format!("the source of `{point}` gave a second point");
                    return Err(JudgeViolation::new("MEM-3", text));
                }
            }
            MemoryEvent::Masked(masked) => {
                own.masked.extend(
                    masked.points.into_iter().filter(|point| own.added.contains_key(point)),
                );
            }
            MemoryEvent::Rated(rated) => own.moves(&rated)?,
            MemoryEvent::Refused(_) | MemoryEvent::Consolidated(_) => {}
        }
        Ok(())
    }

    fn keep(own: &mut MemoryHistory, state: &MemoryState) {
        let shown = state.live().map(|kept| kept.id).chain(state.past().map(|past| past.id));
        own.shown =
            own.shown.or_else(|| shown.into_iter().find(|point| own.masked.contains(point)));
    }

    fn is_told(_: &MemoryHistory, _: TurnId) -> bool {
        true
    }

    fn forget(_: &mut MemoryHistory) {}

    /// A memory that begins again knows no source and no feedback, and may learn again what was forgotten.
    fn is_deleted(own: &mut MemoryHistory) {
        own.added.clear();
        own.masked.clear();
        own.rated.clear();
    }

    fn told_by_deletion(_: &mut MemoryHistory) {}

    fn again(_: &mut MemoryHistory, _: InputId) {}

    fn unfinished(book: &Book<Self>, input: InputId, body: &MemoryInput) -> Option<String> {
        let (state, core) = (&book.entity.state, &book.entity.core);
        let purges = state.is_to_be_purged() || core.purging.is_some();
        match body {
            MemoryInput::Put { .. } | MemoryInput::Import { .. } => {
                state.is_waiting(input).then(|| format!("`{input}` is not recorded"))
            }
            MemoryInput::Forget { .. } | MemoryInput::ForgetSource { .. } => {
                purges.then(|| format!("what `{input}` forgot is not purged"))
            }
            MemoryInput::Delete {} | MemoryInput::Rate(_) | MemoryInput::TimerFired { .. } => None,
        }
    }

    /// MEM-3, MEM-4: each source that was accepted gave a point, and none that was masked was shown.
    fn at_the_end(book: &Book<Self>, accepted: &BTreeMap<InputId, Input>) -> Checked {
        let id = book.entity.id;
        if book.damaged || book.is_quarantined() {
            return Ok(());
        }
        if let Some(point) = book.own.shown {
            let text = format!("`{id}` shows `{point}`, which was masked");
            return Err(JudgeViolation::new("MEM-4", text));
        }
        if book.deletions > 0 {
            return Ok(());
        }
        let inputs = accepted.values().filter(|input| input.entity == id);
        // A turn that is run again after its journal was damaged teaches by the same input, with other sources: the first
        // one is journaled.
        let puts = inputs.filter_map(|input| match book.body(input.id)? {
            MemoryInput::Put { points } => Some(points),
            _ => None,
        });
        let sources = puts.flatten().filter_map(|put| put.source.as_ref());
        for point in sources.map(MemorySource::point) {
            if !book.own.added.contains_key(&point) {
                let text = format!("`{id}` has no `{point}`, which was accepted");
                return Err(JudgeViolation::new("MEM-3", text));
            }
        }
        Ok(())
    }
}

impl MemoryHistory {
    /// C23: feedback counts once, and moves points within their bounds: what an operator wrote is not lowered.
    fn moves(&mut self, rated: &PointsRated) -> Checked {
        let wrong = |text: String| Err(JudgeViolation::new("C23", text));
        if !self.rated.insert(rated.feedback) {
            return wrong(format!("the feedback `{}` counts twice", rated.feedback));
        }
        for moved in &rated.points {
            let Some(importance) = self.added.get_mut(&moved.point) else {
                return wrong(format!("`{}` is moved, and was not added", moved.point));
            };
            importance.sum += i64::from(rated.step);
            let expected = importance.now();
            if i64::from(moved.importance) != expected {
                let (point, importance) = (moved.point, moved.importance);
                return wrong(format!("`{point}` matters {importance}, and not {expected}"));
            }
        }
        Ok(())
    }
}

impl PointImportance {
    fn now(&self) -> i64 {
        let least = if self.is_of_operator { self.given } else { 1 };
        (self.given + self.sum).clamp(least, 10)
    }
}
