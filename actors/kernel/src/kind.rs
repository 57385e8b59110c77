//! What an entity kind is: pure functions over its state.

use std::fmt::Debug;

use clawnode_proto::{Digest, Grammar, Head, Input, Kind, Seq, TurnId};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use super::idempotency::InputMemory;

/// An event that contradicts the state before it; the journal is refused, and the event named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Violation(pub String);

/// What announces a call, and what running it takes, unless there is nothing to run.
pub type Begun<Event, Job> = (Vec<Event>, Option<Job>);

/// What an effect needs before it starts, and how its end is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EffectKind {
    /// Needs a grant, is announced in the journal before it starts, and its outcome is journaled.
    Call,
    /// May be run again at will, until its outcome is journaled.
    Run,
    /// Idempotent by key; its result comes as an input.
    Publish,
    /// Idempotent by key; once confirmed, the next append carries `Emitted` for this turn.
    Emit(TurnId),
}

/// A kind of entity: what happened ([`fold`](Self::fold)) and what follows from it
/// ([`advance`](Self::advance), [`decide`](Self::decide)).
///
/// All functions are pure: no I/O, no clock, no randomness, no panic. Time enters as an event's
/// `ts` alone. `decide` answers from state alone, so it gives the same answer after a crash.
pub trait EntityKind: Debug + Send + Sync + 'static {
    /// Its name in ids and births.
    const KIND: Kind;
    /// How long its inputs are remembered. A kind with many inputs needs less: each id is kept in
    /// memory and in every snapshot.
    const MEMORY: InputMemory = InputMemory::DAYS;
    /// Whether its events record what people were shown, so that a [`replay`](Self::replay) of a
    /// journal has something to compare.
    const IS_REPLAYED: bool = false;
    /// What its events add up to.
    type State: Clone + Debug + Default + Send + Serialize + DeserializeOwned;
    /// What happens to it, beside the kernel's own events.
    type Event: Grammar + Clone + Debug + Send;
    /// What must be under way. It is its own key: while an equal one runs, it is not begun again.
    type Effect: Clone + Debug + Ord + Send + Sync;
    /// What a call needs before it may start.
    type Want: Debug + Send;
    /// What a grant brings along, for example the agent's configuration.
    type Grant: Clone + Debug + Send;
    /// What is made to learn what a call needs, and what its beginning takes, too.
    type Made: Debug + Send;
    /// All that running an effect takes.
    type Job: Debug + Send;
    /// How a call ended.
    type Outcome: Debug + Send;

    /// Takes the readable key at birth.
    fn born(state: &mut Self::State, key: &str) -> Result<(), Violation>;
    /// What it records with its birth if it was deleted before, by an event of this number: its ids may have to follow
    /// from that.
    fn begun_again(_deletion: Seq) -> Option<Self::Event> {
        None
    }
    /// Takes one of its own events.
    fn fold(state: &mut Self::State, head: &Head, event: &Self::Event) -> Result<(), Violation>;
    /// Takes an input that was journaled.
    fn accept(state: &mut Self::State, head: &Head, input: &Input) -> Result<(), Violation>;
    /// A turn's effects after its end are confirmed.
    fn emitted(state: &mut Self::State, turn: TurnId);
    /// Forgets all personal data.
    fn deleted(state: &mut Self::State);
    /// Gives back room that only work under way needs: the entity is at rest.
    fn slim(_state: &mut Self::State) {}

    /// Whether it is to be deleted once it is at rest.
    fn doomed(state: &Self::State) -> bool;
    /// Whether its journal is to be purged once it is at rest: archives and records are removed, and a snapshot
    /// of the state takes their place. What the state does not have is gone then. Blobs that events name stay.
    fn purges(_state: &Self::State) -> bool {
        false
    }
    /// Its journal was purged, so it is not to be purged any more.
    fn purged(_state: &mut Self::State) {}
    /// Whether this build can read what the input says; one that it cannot is never journaled.
    fn understands(input: &Input) -> bool;
    /// Whether an entity may begin with this input. Any other is dropped if it comes for one that
    /// was deleted or never was.
    fn begins(input: &Input) -> bool;
    /// Whether this input may be journaled now, or must wait in the inbox.
    fn admits(state: &Self::State, input: &Input) -> bool;
    /// Events that follow from the state without anything being done in the world. Called again
    /// until it returns none.
    fn advance(state: &Self::State) -> Vec<Self::Event>;
    /// What must be under way now.
    fn decide(state: &Self::State) -> Vec<Self::Effect>;

    /// The effect's class.
    fn class(effect: &Self::Effect) -> EffectKind;
    /// What a call needs before it may start, beside what it was granted: computed when its grant is
    /// asked for, and again when there is one. The answer to a second want replaces the first grant.
    /// Nothing, if that is all, or if `decide` does not name it. What it leaves in `made` may be given to
    /// [`begin`](Self::begin), or to the next `want`, as long as the state is the same.
    fn want(
        state: &Self::State,
        effect: &Self::Effect,
        granted: Option<&Self::Grant>,
        made: &mut Option<Self::Made>,
    ) -> Option<Self::Want>;
    /// How a call begins; nothing, unless `decide` named it. With and without what `want` left of this state, it
    /// begins the same. The grant may be another one than `want` had.
    fn begin(
        state: &Self::State,
        effect: &Self::Effect,
        grant: &Self::Grant,
        made: Option<Self::Made>,
    ) -> Option<Begun<Self::Event, Self::Job>>;
    /// What running an effect takes that needs no grant; nothing, unless `decide` named it. `again`:
    /// an earlier activation may have begun it.
    fn prepare(state: &Self::State, effect: &Self::Effect, again: bool) -> Option<Self::Job>;
    /// The events for a call that may not be made.
    fn refuse(
        state: &Self::State,
        effect: &Self::Effect,
        outcome: Self::Outcome,
    ) -> Vec<Self::Event>;
    /// The events for a call's outcome.
    fn conclude(
        state: &Self::State,
        effect: &Self::Effect,
        outcome: Self::Outcome,
    ) -> Vec<Self::Event>;

    // === for readers of its journals ===

    /// What an input says, for people, as far as this build can read it.
    fn view(_input: &Input) -> Value {
        Value::Null
    }
    /// The blobs that an input names; they go with the entity.
    fn blobs_of_input(_input: &Input) -> Vec<Digest> {
        Vec::new()
    }
    /// The blobs that an event names; they go with the entity.
    fn blobs_of_event(_event: &Self::Event) -> Vec<Digest> {
        Vec::new()
    }
    /// Compares what an event says that people were shown with what the state before the event
    /// gives. Absent if the event records nothing of the sort.
    fn replay(_state: &Self::State, _event: &Self::Event) -> Option<Result<(), Violation>> {
        None
    }
}
