//! An input that is in hand is acknowledged, also if its kind has forgotten it meanwhile.

use clawnode_cluster::{AppendAnswer, Record};
use clawnode_proto::{EntityId, Incarnation, Position, ProcessId, Timestamp};

use super::*;
use crate::counter::{Counter, CounterInput};

/// Longer than a counter remembers inputs, in milliseconds.
const LONG: u64 = 2 * 60 * 60 * 1_000;
/// More inputs than a counter remembers in any case.
const MANY: usize = Counter::MEMORY.least + 1;

fn add(number: usize) -> Input {
    let name = format!("n{number}").parse().unwrap();
    CounterInput::Add { by: 1 }.to("one", name, Timestamp(1)).unwrap()
}

fn at(millis: u64) -> Now {
    Now { wall: Timestamp(millis), steady: Timestamp(millis) }
}

/// A counter, on a store that answers when it is asked to.
struct CounterBench {
    machine: Machine<Counter>,
    journal: Vec<Record>,
    appending: Option<Write>,
    completed: Vec<InputId>,
}

impl CounterBench {
    fn new() -> Self {
        let machine = Self::machine(1);
        let (journal, completed) = (Vec::new(), Vec::new());
        let mut bench = Self { machine, journal, appending: None, completed };
        bench.load(1);
        bench
    }

    fn machine(process: u128) -> Machine<Counter> {
        let entity = EntityId::derive(Counter::KIND, "one");
        let me = Incarnation { process: ProcessId::from_u128(process), counter: 1 };
        Machine::new(entity, me, Activation::Fresh, MachineOptions::default(), at(1)).0
    }

    fn load(&mut self, millis: u64) {
        let records = self.journal.clone();
        let loaded = LoadedJournal { records, snapshot: None };
        self.feed(millis, MachineInput::Loaded(loaded));
    }

    fn feed(&mut self, millis: u64, input: MachineInput<Counter>) {
        for out in self.machine.handle(at(millis), input) {
            match out {
                MachineOutput::Append { write, .. } => {
                    assert!(self.appending.replace(write).is_none(), "one append at a time");
                }
                MachineOutput::Complete(input) => self.completed.push(input),
                MachineOutput::TellFenced { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn deliver(&mut self, millis: u64, numbers: std::ops::Range<usize>) {
        self.feed(millis, MachineInput::Deliver(numbers.map(add).collect()));
    }

    /// Every append is stored.
    fn store(&mut self, millis: u64) {
        while let Some(Write { bytes, .. }) = self.appending.take() {
            let position = Position(self.journal.last().map_or(1, |last| last.position.0 + 1));
            self.journal.push(Record { position, bytes });
            let stored = AppendAnswer::Stored(position);
            self.feed(millis, MachineInput::Answered(stored));
        }
    }

    fn total(&self) -> u64 {
        self.machine.settled().unwrap().state.total
    }
}

#[test]
fn what_is_forgotten_before_the_entity_rests_is_acknowledged() {
    let mut bench = CounterBench::new();
    bench.deliver(1, 0..1);
    // These come before its append is stored, so the entity does not rest in between.
    bench.deliver(LONG, 1..1 + MANY);
    assert_eq!(bench.completed, [], "nothing is in the journal yet");
    bench.store(LONG);
    let known = bench.machine.settled().unwrap().core.has(add(0).id);
    assert_eq!((known, bench.total()), (false, 1 + MANY as u64));
    assert!(bench.completed.contains(&add(0).id), "it is never acknowledged");
    assert_eq!(bench.completed.len(), 1 + MANY);
}

/// Its owner died before it could acknowledge the input, and the next one has a clock that is ahead.
#[test]
fn what_an_owner_forgets_with_its_first_append_is_acknowledged() {
    let mut bench = CounterBench::new();
    bench.deliver(1, 0..1);
    bench.store(1);
    bench.completed.clear();
    bench.machine = CounterBench::machine(2);
    bench.load(1);
    bench.deliver(LONG, 0..1 + MANY);
    assert_eq!(bench.completed, [], "nothing but the first is in the journal yet");
    bench.store(LONG);
    assert_eq!(bench.total(), 1 + MANY as u64, "the first counts once");
    assert!(bench.completed.contains(&add(0).id), "it is never acknowledged");
    assert_eq!(bench.completed.len(), 1 + MANY);
}
