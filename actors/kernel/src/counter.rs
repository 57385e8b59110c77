//! The counter: a small kind of entities for tests, beside the session. A new kind begins as a copy of it.
//!
//! It adds numbers, at once or when a timer fires, and records each new total in an event. It has
//! inputs, own events, timers, snapshots and deletion, so it tests on every backend what the kernel
//! promises of every kind.
//!
//! Invariant: each accepted input counts once, and the total in an event is the sum so far.

use std::{collections::BTreeMap, convert::Infallible, future::Future, pin::Pin, sync::Arc};

use clawnode_cluster::{Clock, Feed, Storage, Timer};
use clawnode_proto::{
    CodecError, Digest, EntityId, Epoch, Head, IdempotencyKey, Input, InputId, Kind, ProcessId,
    TimerId, Timestamp, TurnId, codec, grammar,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

#[cfg(feature = "test-util")]
use crate::KernelBug;
use crate::{
    ActivationEnd, Begun, EffectKind, Entities, EntityKind, InputMemory, KnownKinds,
    MachineOptions, Violation,
    driver::{
        AddKind, EffectRunner, Kinds, Performing, Port, erase_until_done, show_claimed, show_left,
        store_until_done,
    },
};

/// The counter entity kind.
#[derive(Debug)]
pub struct Counter;

/// What may be asked of a counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum CounterInput {
    /// Adds a number.
    Add { by: u64 },
    /// Adds a number later.
    Later { timer: TimerId, due: Timestamp, by: u64 },
    /// A timer has fired.
    Fired { timer: TimerId },
    /// Deletes the counter.
    Forget,
}

grammar! {
    /// What happens to a counter.
    pub enum CounterEvent {
        /// The total has changed.
        Counted(Counted) = "counter_counted", required, progress;
    }
}

/// The total has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    pub total: u64,
}

/// Folded from the events of its journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterState {
    key: String,
    /// The sum of the accepted inputs.
    pub total: u64,
    /// The total in the last event.
    pub said: u64,
    /// What is added later.
    pub later: BTreeMap<String, Later>,
    doomed: bool,
}

/// A number that is added later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Later {
    pub timer: TimerId,
    pub due: Timestamp,
    pub by: u64,
}

/// Runs the effects of counters.
#[derive(Clone, Debug)]
pub struct CounterRunner {
    /// The storage of counters.
    pub storage: Storage,
    /// The clock of deletions.
    pub clock: Arc<dyn Clock>,
    /// Where operators see what happens to counters.
    pub feed: Feed,
}

impl CounterInput {
    /// An input for the counter of this key.
    pub fn to(
        &self,
        key: &str,
        name: IdempotencyKey,
        sent: Timestamp,
    ) -> Result<Input, CodecError> {
        Input::new(Counter::KIND, key, name, sent, self)
    }
}

impl EntityKind for Counter {
    const KIND: Kind = Kind::of("counter");
    // A kind leaves this out unless it gets far more inputs than a client sends.
    const MEMORY: InputMemory = InputMemory { least: 64, age: std::time::Duration::from_hours(1) };
    type State = CounterState;
    type Event = CounterEvent;
    type Effect = TimerId;
    type Want = Infallible;
    type Grant = ();
    type Made = Infallible;
    type Job = Timer;
    type Outcome = Infallible;

    fn born(state: &mut CounterState, key: &str) -> Result<(), Violation> {
        key.clone_into(&mut state.key);
        Ok(())
    }

    fn fold(state: &mut CounterState, _: &Head, event: &CounterEvent) -> Result<(), Violation> {
        let CounterEvent::Counted(Counted { total }) = event;
        if *total != state.total {
            return Err(Violation(format!("it says {total} and is {}", state.total)));
        }
        state.said = *total;
        Ok(())
    }

    fn accept(state: &mut CounterState, _: &Head, input: &Input) -> Result<(), Violation> {
        let input = codec::decode(&input.body).map_err(|error| Violation(error.to_string()))?;
        match input {
            #[cfg(feature = "test-util")]
            CounterInput::Add { .. }
                if !state.later.is_empty() && KernelBug::CounterForgets.is_in_folds() => {}
            CounterInput::Add { by } => state.total += by,
            CounterInput::Later { timer, due, by } => {
                state.later.insert(timer.to_string(), Later { timer, due, by });
            }
            // It may fire more than once.
            CounterInput::Fired { timer } => {
                state.total += state.later.remove(&timer.to_string()).map_or(0, |later| later.by);
            }
            CounterInput::Forget => state.doomed = true,
        }
        Ok(())
    }

    fn emitted(_: &mut CounterState, _: TurnId) {}

    fn deleted(state: &mut CounterState) {
        *state = CounterState::default();
    }

    fn doomed(state: &CounterState) -> bool {
        state.doomed
    }

    fn understands(input: &Input) -> bool {
        input.order.is_some() || codec::decode::<CounterInput>(&input.body).is_ok()
    }

    fn begins(input: &Input) -> bool {
        let input = codec::decode(&input.body);
        matches!(input, Ok(CounterInput::Add { .. } | CounterInput::Later { .. }))
    }

    fn admits(_: &CounterState, _: &Input) -> bool {
        true
    }

    fn advance(state: &CounterState) -> Vec<CounterEvent> {
        if state.said == state.total {
            return Vec::new();
        }
        vec![Counted { total: state.total }.into()]
    }

    fn decide(state: &CounterState) -> Vec<TimerId> {
        state.later.values().map(|later| later.timer).collect()
    }

    fn class(_: &TimerId) -> EffectKind {
        EffectKind::Publish
    }

    fn want(
        _: &CounterState,
        _: &TimerId,
        _: Option<&()>,
        _: &mut Option<Infallible>,
    ) -> Option<Infallible> {
        None
    }

    fn begin(
        _: &CounterState,
        _: &TimerId,
        (): &(),
        _: Option<Infallible>,
    ) -> Option<Begun<CounterEvent, Timer>> {
        None
    }

    fn prepare(state: &CounterState, timer: &TimerId, _: bool) -> Option<Timer> {
        let due = state.later.get(&timer.to_string())?.due;
        let fired = CounterInput::Fired { timer: *timer };
        let input = fired.to(&state.key, IdempotencyKey::of_timer(*timer), due).ok()?;
        Some(Timer { id: *timer, due, input })
    }

    fn refuse(_: &CounterState, _: &TimerId, outcome: Infallible) -> Vec<CounterEvent> {
        match outcome {}
    }

    fn conclude(_: &CounterState, _: &TimerId, outcome: Infallible) -> Vec<CounterEvent> {
        match outcome {}
    }

    fn view(input: &Input) -> Value {
        let input: Option<CounterInput> = codec::decode(&input.body).ok();
        serde_json::to_value(input).unwrap_or_default()
    }
}

impl AddKind for Counter {
    fn serve(kinds: Kinds, runner: Arc<dyn EffectRunner<Self>>, machine: MachineOptions) -> Kinds {
        kinds.with::<Self>(runner, machine)
    }

    fn know(known: KnownKinds) -> KnownKinds {
        known.with::<Self>()
    }
}

impl EffectRunner<Counter> for CounterRunner {
    fn acquire(&self, _: EntityId, _: TimerId, want: Infallible, _: &Port<Counter>) -> Option<()> {
        match want {}
    }

    fn run(
        &self,
        entity: EntityId,
        timer: TimerId,
        job: Timer,
        port: Port<Counter>,
        cancelled: CancellationToken,
    ) -> Performing {
        let timers = Arc::clone(&self.storage.timers);
        Box::pin(async move {
            let attempt = || timers.set(&job);
            store_until_done(port, entity, timer, cancelled, attempt).await;
        })
    }

    fn erase(
        &self,
        entity: EntityId,
        dropped: Vec<Input>,
    ) -> Pin<Box<dyn Future<Output = Option<Digest>> + Send>> {
        // A counter names no blobs, but its snapshots have archives.
        let kinds = Counter::know(KnownKinds::default());
        let entities = Entities::new(self.storage.clone(), Arc::clone(&self.clock), kinds);
        Box::pin(async move {
            let attempt = || entities.erase(Counter::KIND, entity, &dropped);
            erase_until_done(entity, attempt).await
        })
    }

    fn claimed(&self, entity: EntityId, from: ProcessId, epoch: Epoch) {
        show_claimed(&self.feed, entity, from, epoch);
    }

    fn left(&self, entity: EntityId, _: &[InputId], stop: &ActivationEnd) {
        show_left::<Counter>(&self.feed, entity, stop);
    }
}
