//! What the real stores were seen to do, the simulated world can do.
//!
//! Seeded random sequences of operations run on the local substrate and on NATS. What each
//! operation was seen to do is then looked for in simulated worlds: the same operations run there,
//! and at every step the world must be able to show the same, given that it showed the same before.
//! Where the world has a choice (which of two concurrent writers is first, what became of a write
//! without an answer), every choice is tried. The same code operates and observes both.
//!
//! Compared: for appends, rollups and values, stored, refused or unknown, and whether the position
//! is above all others of the journal or key; for reads, the sequence's own labels in order; for
//! inboxes, what waits, how much, and which inputs are delivered, each with whether it was
//! delivered before; after an acknowledgement, that the input goes. Not compared: positions
//! themselves, time, and the order of deliveries, none of which the doors promise.
//!
//! A calm world must explain the local substrate. On NATS a write may also stay without an answer,
//! and on three servers be refused without a cause; how often that was needed is printed.
#![expect(clippy::print_stdout, reason = "these are tests, also in their helper functions")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    future::Future,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{
    AppendAnswer, BucketError, Consumer, Delivery, Entry, Record, StoreError, Substrate,
    SystemClock, Write,
    local::{LocalOptions, open},
    nats::{NatsOptions, Replicas, connect},
    sim::{
        Bugs, Faults,
        doors::{SimDoorsOptions, SimStores},
    },
};
use clawnode_proto::{EntityId, Input, Kind, Partition, Position, Timestamp, subject::Prefix};
use clawnode_tests::{
    conformance::Result,
    nats::{NatsCluster, NatsServer, ServerOptions},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Few, because each costs a consumer on NATS.
const PARTITIONS: u16 = 4;
/// Where all inputs of all sequences wait.
const PARTITION: Partition = Partition(0);
/// Longer than a test: what is in hand stays there until it is answered.
const ACK_WAIT: Duration = Duration::from_mins(5);
/// Long enough that reaching it means a defect, not a slow machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Journals, inboxes and keys of one sequence.
const EACH: usize = 2;
/// Operations of one sequence.
const STEPS: u32 = 50;
/// Worlds that are tried for one sequence at most.
const TRIES: usize = 5_000;
/// Seeds that are tried for one concurrent pair: both orders come up.
const SEEDS_PAIR: u64 = 16;
/// The same if one or both may be lost: both orders with every loss of either come up.
const SEEDS_LOSSY_PAIR: u64 = 128;

// === what is done ===

/// Where a writer believes the last one is, told by what it knows.
#[derive(Clone, Copy, Debug)]
enum Expect {
    Nothing,
    Last,
    BeforeLast,
    BeyondLast,
}

/// One operation. A pair of concurrent writes has labels `label` and `label + 1`.
#[derive(Clone, Copy, Debug)]
enum Op {
    Append {
        journal: usize,
        expect: Expect,
        rollup: bool,
        label: u32,
    },
    AppendPair {
        journal: usize,
        expect: [Expect; 2],
        rollup: bool,
        label: u32,
    },
    Read {
        journal: usize,
        after: Expect,
    },
    Tail {
        journal: usize,
    },
    Put {
        inbox: usize,
        label: u32,
    },
    ReadInbox {
        inbox: usize,
    },
    Pending {
        inbox: usize,
    },
    /// Everything that can be delivered now.
    Deliver,
    /// Of what is in hand, if anything is.
    Ack {
        pick: usize,
    },
    Nak {
        pick: usize,
    },
    Set {
        key: usize,
        expect: Expect,
        label: u32,
    },
    SetPair {
        key: usize,
        expect: [Expect; 2],
        label: u32,
    },
    Remove {
        key: usize,
        expect: Expect,
    },
    Get {
        key: usize,
    },
    List,
}

fn expect(rng: &mut impl Rng) -> Expect {
    match rng.random_range(0..10) {
        0 => Expect::Nothing,
        1 => Expect::BeforeLast,
        2 => Expect::BeyondLast,
        _ => Expect::Last,
    }
}

fn operations(seed: u64) -> Vec<Op> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let operation = |step: u32| {
        let (one, label, rollup) = (rng.random_range(0..EACH), 2 * step, rng.random_bool(0.2));
        let (pick, first, second) = (rng.random_range(0..8), expect(&mut rng), expect(&mut rng));
        match rng.random_range(0..28) {
            0..=4 => Op::Append { journal: one, expect: first, rollup, label },
            5..=7 => Op::AppendPair { journal: one, expect: [first, second], rollup, label },
            8..=9 => Op::Read { journal: one, after: Expect::Nothing },
            10 => Op::Read { journal: one, after: first },
            11 => Op::Tail { journal: one },
            12..=14 => Op::Put { inbox: one, label },
            15 => Op::ReadInbox { inbox: one },
            16 => Op::Pending { inbox: one },
            17 => Op::Deliver,
            18..=19 => Op::Ack { pick },
            20 => Op::Nak { pick },
            21..=22 => Op::Set { key: one, expect: first, label },
            23 => Op::SetPair { key: one, expect: [first, second], label },
            24 => Op::Remove { key: one, expect: first },
            25..=26 => Op::Get { key: one },
            _ => Op::List,
        }
    };
    (0..STEPS).map(operation).collect()
}

// === what is seen ===

#[derive(Clone, Debug, PartialEq)]
enum Seen {
    /// Stored, above all that was known to be there, or not.
    Stored {
        above: bool,
    },
    Refused,
    Unknown,
    Both(Box<(Seen, Seen)>),
    Labels(Vec<String>),
    Count(usize),
    /// Each with whether it was delivered before.
    Delivered(BTreeSet<(u32, bool)>),
    /// It did not come, or did not go, however long one waits.
    Never,
    Done,
    /// Nothing is in hand.
    NothingToDo,
}

/// Somebody who operates on a substrate, and what they know of it.
struct Operator {
    substrate: Substrate,
    consumer: Box<dyn Consumer>,
    name: String,
    entities: Vec<(String, EntityId)>,
    journals: Vec<BTreeSet<Position>>,
    values: Vec<BTreeSet<Position>>,
    hand: BTreeMap<u32, Delivery>,
    deliverable: usize,
}

impl Operator {
    /// `seed` names what it works on, so that sequences do not meet.
    fn new(substrate: Substrate, consumer: Box<dyn Consumer>, seed: u64) -> Self {
        let entities = (0_u32..)
            .map(|n| format!("fidelity-{seed}-{n}"))
            .map(|key| (key.clone(), EntityId::derive(Kind::Session, &key)))
            .filter(|(_, entity)| entity.partition(PARTITIONS) == PARTITION)
            .take(EACH)
            .collect();
        Self {
            substrate,
            consumer,
            name: format!("fidelity-{seed}"),
            entities,
            journals: vec![BTreeSet::new(); EACH],
            values: vec![BTreeSet::new(); EACH],
            hand: BTreeMap::new(),
            deliverable: 0,
        }
    }

    async fn perform(&mut self, op: Op) -> Result<Seen> {
        match op {
            Op::Append { journal, expect, rollup, label } => {
                let answer = self.append(journal, expect, rollup, label).await;
                appended(answer, &mut self.journals[journal])
            }
            Op::AppendPair { journal, expect: [first, second], rollup, label } => {
                let answers = tokio::join!(
                    self.append(journal, first, rollup, label),
                    self.append(journal, second, false, label + 1)
                );
                let known = &mut self.journals[journal];
                let before = known.clone();
                let first = appended(answers.0, &mut before.clone())?;
                let second = appended(answers.1, &mut before.clone())?;
                Ok(Seen::Both(Box::new((first, second))))
            }
            Op::Read { journal, after } => {
                let (id, after) = (self.entities[journal].1, at(after, &self.journals[journal]));
                let records = steady(|| self.substrate.journal.read(id, after)).await?;
                self.learn(journal, &records)
            }
            Op::Tail { journal } => {
                let id = self.entities[journal].1;
                let tail = steady(|| self.substrate.journal.tail(id)).await?;
                self.learn(journal, tail.as_slice())
            }
            Op::Set { key, expect, label } => {
                let answer = self.set(key, expect, label).await;
                changed(answer, &mut self.values[key])
            }
            Op::SetPair { key, expect: [first, second], label } => {
                let answers =
                    tokio::join!(self.set(key, first, label), self.set(key, second, label + 1));
                let before = self.values[key].clone();
                let first = changed(answers.0, &mut before.clone())?;
                let second = changed(answers.1, &mut before.clone())?;
                Ok(Seen::Both(Box::new((first, second))))
            }
            Op::Remove { key, expect } => {
                let (name, position) = (self.key(key), at(expect, &self.values[key]));
                match self.substrate.bucket.delete(&name, position).await {
                    Ok(()) => Ok(Seen::Done),
                    Err(error) => changed(Err(error), &mut self.values[key]),
                }
            }
            Op::Get { key } => {
                let name = self.key(key);
                let entry = steady(|| self.substrate.bucket.get(&name)).await?;
                Ok(Seen::Labels(self.value(key, entry.as_ref())?.into_iter().collect()))
            }
            Op::List => self.list().await,
            other => self.perform_on_inbox(other).await,
        }
    }

    async fn perform_on_inbox(&mut self, op: Op) -> Result<Seen> {
        match op {
            Op::Put { inbox, label } => {
                let (key, name) = (&self.entities[inbox].0, label.to_string());
                let input = Input::new(Kind::Session, key, name.parse()?, Timestamp(1), &name)?;
                self.substrate.inbox.put(&input).await?;
                self.deliverable += 1;
                Ok(Seen::Done)
            }
            Op::ReadInbox { inbox } => {
                let id = self.entities[inbox].1;
                let waiting = steady(|| self.substrate.inbox.read(id, Position(0))).await?;
                let names = waiting.iter().map(|one| Ok(label_of(&one.bytes)?.to_string()));
                names.collect::<Result<_>>().map(Seen::Labels)
            }
            Op::Pending { inbox } => {
                let id = self.entities[inbox].1;
                Ok(Seen::Count(steady(|| self.substrate.inbox.pending(id)).await?))
            }
            Op::Deliver => self.deliver().await,
            Op::Ack { pick } => match self.pick(pick) {
                Some((_, delivery)) => self.acknowledge(&delivery).await,
                None => Ok(Seen::NothingToDo),
            },
            Op::Nak { pick } => match self.pick(pick) {
                Some((_, delivery)) => {
                    delivery.handle.nak(Duration::ZERO).await?;
                    self.deliverable += 1;
                    Ok(Seen::Done)
                }
                None => Ok(Seen::NothingToDo),
            },
            other => Err(format!("{other:?} is nothing for an inbox").into()),
        }
    }

    async fn append(
        &self,
        journal: usize,
        expect: Expect,
        rollup: bool,
        label: u32,
    ) -> AppendAnswer {
        let expected = at(expect, &self.journals[journal]);
        let write = Write { bytes: Bytes::from(label.to_string()), rollup };
        self.substrate.journal.append(self.entities[journal].1, expected, write).await
    }

    async fn set(
        &self,
        key: usize,
        expect: Expect,
        label: u32,
    ) -> std::result::Result<Position, BucketError> {
        let (name, expected) = (self.key(key), at(expect, &self.values[key]));
        self.substrate.bucket.put(&name, expected, Bytes::from(label.to_string()), None).await
    }

    async fn list(&mut self) -> Result<Seen> {
        let prefix = format!("{}.", self.name);
        let listed = steady(|| self.substrate.bucket.list(&prefix)).await?;
        let mut seen = Vec::new();
        for key in 0..EACH {
            let name = self.key(key);
            let entry = listed.iter().find(|(listed, _)| *listed == name).map(|(_, entry)| entry);
            seen.extend(self.value(key, entry)?.map(|label| format!("{key}: {label}")));
        }
        Ok(Seen::Labels(seen))
    }

    async fn deliver(&mut self) -> Result<Seen> {
        let mut seen = BTreeSet::new();
        for _ in 0..std::mem::take(&mut self.deliverable) {
            let Ok(delivery) = tokio::time::timeout(PATIENCE, self.consumer.next()).await else {
                return Ok(Seen::Never);
            };
            let delivery = delivery?;
            let label = label_of(&delivery.bytes)?;
            seen.insert((label, delivery.redelivered));
            self.hand.insert(label, delivery);
        }
        Ok(Seen::Delivered(seen))
    }

    async fn acknowledge(&self, delivery: &Delivery) -> Result<Seen> {
        delivery.handle.ack().await?;
        let gone = async {
            loop {
                let look = || self.substrate.inbox.read(delivery.entity, Position(0));
                if steady(look).await?.iter().all(|one| one.position != delivery.position) {
                    return Result::Ok(());
                }
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(PATIENCE, gone).await {
            Ok(gone) => gone.map(|()| Seen::Done),
            Err(_elapsed) => Ok(Seen::Never),
        }
    }

    /// What journals and values hold, without learning from it.
    async fn truth(&self) -> Result<String> {
        let mut truth = Vec::new();
        for (at, (_, id)) in self.entities.iter().enumerate() {
            let records = self.substrate.journal.read(*id, Position(0)).await?;
            let value = self.substrate.bucket.get(&self.key(at)).await?;
            truth.push(format!("{records:?} {value:?}"));
        }
        Ok(truth.join(" "))
    }

    /// Leaves nothing to whoever comes next; gives the consumer back.
    async fn leave(mut self) -> Result<Box<dyn Consumer>> {
        self.deliver().await?;
        for delivery in self.hand.values() {
            self.acknowledge(delivery).await?;
        }
        Ok(self.consumer)
    }

    fn pick(&mut self, pick: usize) -> Option<(u32, Delivery)> {
        let label = *self.hand.keys().nth(pick % self.hand.len().max(1))?;
        self.hand.remove_entry(&label)
    }

    fn key(&self, key: usize) -> String {
        format!("{}.{key}", self.name)
    }

    fn learn(&mut self, journal: usize, records: &[Record]) -> Result<Seen> {
        self.journals[journal].extend(records.iter().map(|record| record.position));
        let texts = records.iter().map(|record| Ok(String::from_utf8(record.bytes.to_vec())?));
        texts.collect::<Result<_>>().map(Seen::Labels)
    }

    fn value(&mut self, key: usize, entry: Option<&Entry>) -> Result<Option<String>> {
        let Some(entry) = entry else { return Ok(None) };
        self.values[key].insert(entry.position);
        Ok(Some(String::from_utf8(entry.value.to_vec())?))
    }
}

fn at(expect: Expect, known: &BTreeSet<Position>) -> Position {
    let last = known.last().copied().unwrap_or(Position(0));
    match expect {
        Expect::Nothing => Position(0),
        Expect::Last => last,
        Expect::BeforeLast => known.iter().rev().nth(1).copied().unwrap_or(Position(0)),
        // Far, so that no store's way of counting makes it true.
        Expect::BeyondLast => Position(last.0 + 1_000_000_000),
    }
}

fn stored(position: Position, known: &mut BTreeSet<Position>) -> Seen {
    let above = known.last().is_none_or(|last| *last < position);
    known.insert(position);
    Seen::Stored { above }
}

fn appended(answer: AppendAnswer, known: &mut BTreeSet<Position>) -> Result<Seen> {
    match answer {
        AppendAnswer::Stored(position) => Ok(stored(position, known)),
        AppendAnswer::Refused => Ok(Seen::Refused),
        AppendAnswer::Unknown(_) => Ok(Seen::Unknown),
        AppendAnswer::Defect(error) => Err(error.into()),
    }
}

fn changed(
    answer: std::result::Result<Position, BucketError>,
    known: &mut BTreeSet<Position>,
) -> Result<Seen> {
    match answer {
        Ok(position) => Ok(stored(position, known)),
        Err(BucketError::Conflict { .. }) => Ok(Seen::Refused),
        Err(BucketError::Store(error)) if error.is_transient() => Ok(Seen::Unknown),
        Err(BucketError::Store(error)) => Err(error.into()),
    }
}

fn label_of(input: &[u8]) -> Result<u32> {
    Ok(Input::from_bytes(input)?.idempotency_key.as_str().parse()?)
}

/// Reads again while the store is out of reach, which shows nothing.
async fn steady<T, F>(mut read: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = std::result::Result<T, StoreError>>,
{
    let reading = async {
        loop {
            match read().await {
                Err(error) if error.is_transient() => tokio::task::yield_now().await,
                answer => return answer,
            }
        }
    };
    Ok(tokio::time::timeout(PATIENCE, reading).await??)
}

// === what the world can do ===

/// What else than a calm world may explain.
#[derive(Clone, Copy, Debug, Default)]
struct Allowed {
    /// A write may stay without an answer, and have taken effect or not, now or later.
    unknown: bool,
    /// An append may be refused without a cause.
    spurious: bool,
}

/// A sequence, and what was seen of it.
struct Trace {
    seed: u64,
    steps: Vec<(Op, Seen)>,
}

/// One way the world may take at one step.
#[derive(Clone, Copy, Debug)]
struct Choice {
    seed: u64,
    faults: Faults,
}

impl Seen {
    fn has(&self, what: &Self) -> bool {
        match self {
            Self::Both(both) => both.0 == *what || both.1 == *what,
            one => one == what,
        }
    }
}

/// All ways the world may take that could show this, the calm ones first.
fn choices(op: Op, seen: &Seen, allowed: Allowed) -> Vec<Choice> {
    let none = Faults::none();
    let is_pair = matches!(op, Op::AppendPair { .. } | Op::SetPair { .. });
    let is_append = matches!(op, Op::Append { .. } | Op::AppendPair { .. });
    let can_refuse = allowed.spurious && is_append && seen.has(&Seen::Refused);
    let mut faults = Vec::new();
    if !allowed.unknown || !seen.has(&Seen::Unknown) {
        faults.push(none);
    } else if is_pair {
        // Each of the two may fare otherwise.
        faults.push(Faults { lost_request: 0.3, lost_answer: 0.5, ..none });
        faults.push(Faults { ghost: 0.5, lost_answer: 0.3, ..none });
    } else {
        faults.push(Faults { lost_answer: 1.0, ..none });
        faults.push(Faults { lost_request: 1.0, ..none });
        faults.push(Faults { ghost: 1.0, ..none });
    }
    if can_refuse {
        let spurious_refusal = if is_pair { 0.5 } else { 1.0 };
        let refusing: Vec<_> =
            faults.iter().map(|faults| Faults { spurious_refusal, ..*faults }).collect();
        faults.extend(refusing);
    }
    let seeds = match (is_pair, faults.contains(&none) && !can_refuse) {
        (false, _) => 1,
        (true, true) => SEEDS_PAIR,
        (true, false) => SEEDS_LOSSY_PAIR,
    };
    let of = |faults| (0..seeds).map(move |seed| Choice { seed, faults });
    faults.into_iter().flat_map(of).collect()
}

/// Whether what became of the one can be seen in the other.
fn related(earlier: Op, later: Op) -> bool {
    let journal = |op| match op {
        Op::Append { journal, .. }
        | Op::AppendPair { journal, .. }
        | Op::Read { journal, .. }
        | Op::Tail { journal } => Some(journal),
        _ => None,
    };
    let keys = |op| match op {
        Op::Set { key, .. }
        | Op::SetPair { key, .. }
        | Op::Remove { key, .. }
        | Op::Get { key } => key..key + 1,
        Op::List => 0..EACH,
        _ => 0..0,
    };
    let is_same_journal = journal(earlier).is_some() && journal(earlier) == journal(later);
    is_same_journal || keys(earlier).any(|key| keys(later).contains(&key))
}

/// Runs the sequence in a new world that takes these choices, until it shows something else; says
/// how far that was, and what was shown there (`None` if that was tried before).
///
/// Steps from `changed` on lead somewhere new: a world that stands at one of them exactly as one
/// before it is not followed further, because what comes next depends on nothing else.
async fn replay(
    trace: &Trace,
    choices: &[Choice],
    bugs: Bugs,
    changed: usize,
    tried: &mut BTreeSet<(usize, String)>,
) -> Result<Option<(usize, Option<Seen>)>> {
    let (stores, substrate) = world(bugs);
    let consumer = substrate.inbox.consume(PARTITION, 0).await?;
    let mut operator = Operator::new(substrate, consumer, trace.seed);
    let mut ghosts = Vec::new();
    for (step, ((op, seen), choice)) in trace.steps.iter().zip(choices).enumerate() {
        stores.disturb(choice.seed, choice.faults);
        let shown = operator.perform(*op).await?;
        if shown != *seen {
            return Ok(Some((step, Some(shown))));
        }
        if choice.faults.ghost > 0.0 {
            ghosts.push(step);
        }
        if seen.has(&Seen::Unknown) {
            stores.disturb(choice.seed, Faults::none());
            let stands = format!("{ghosts:?} {}", operator.truth().await?);
            if step >= changed && !tried.insert((step, stands)) {
                return Ok(Some((step, None)));
            }
        }
    }
    Ok(None)
}

/// How many steps needed a fault, or why no world shows what was seen.
async fn explain(
    trace: &Trace,
    allowed: Allowed,
    bugs: Bugs,
) -> Result<std::result::Result<usize, String>> {
    let all: Vec<Vec<Choice>> =
        trace.steps.iter().map(|(op, seen)| choices(*op, seen, allowed)).collect();
    let mut picks = vec![0; all.len()];
    let (mut furthest, mut shown_there, mut changed) = (0, Vec::new(), 0);
    let mut tried = BTreeSet::new();
    for _ in 0..TRIES {
        let taken: Vec<Choice> = all.iter().zip(&picks).map(|(all, pick)| all[*pick]).collect();
        let Some((mut step, shown)) = replay(trace, &taken, bugs, changed, &mut tried).await?
        else {
            return Ok(Ok(taken.iter().filter(|one| one.faults != Faults::none()).count()));
        };
        if step > furthest {
            (furthest, shown_there) = (step, Vec::new());
        }
        if let Some(shown) = shown
            && step == furthest
            && !shown_there.contains(&shown)
        {
            shown_there.push(shown);
        }
        // The next choice here; else another at an earlier step that is not known and matters here.
        let here = trace.steps[step].0;
        while picks[step] + 1 == all[step].len() {
            picks[step] = 0;
            let is_open = |earlier: &usize| {
                let (op, seen) = &trace.steps[*earlier];
                seen.has(&Seen::Unknown) && related(*op, here)
            };
            match (0..step).rev().find(is_open) {
                Some(earlier) => step = earlier,
                None => return Ok(Err(complaint(trace, furthest, &shown_there))),
            }
        }
        picks[step] += 1;
        changed = step;
        for (later, (op, _)) in trace.steps.iter().enumerate().skip(step + 1) {
            if related(*op, here) {
                picks[later] = 0;
            }
        }
    }
    Ok(Err(complaint(trace, furthest, &shown_there)))
}

fn complaint(trace: &Trace, step: usize, shown: &[Seen]) -> String {
    let (op, seen) = &trace.steps[step];
    let before: Vec<String> =
        trace.steps[..step].iter().map(|(op, seen)| format!("  {op:?}: {seen:?}")).collect();
    format!(
        "sequence {}, step {step}: {op:?} was seen to give {seen:?}, but a world gives {shown:?}, \
         after\n{}",
        trace.seed,
        before.join("\n")
    )
}

// === the grounds ===

fn world(bugs: Bugs) -> (SimStores, Substrate) {
    let options = SimDoorsOptions {
        bugs,
        partitions: PARTITIONS,
        ack_wait: ACK_WAIT,
        ..SimDoorsOptions::default()
    };
    let stores = SimStores::new(&options);
    let substrate = stores.open();
    (stores, substrate)
}

/// A runtime whose time flies when nobody has anything to do.
fn simulated<T>(doing: impl Future<Output = Result<T>>) -> Result<T> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().start_paused(true).build()?.block_on(doing)
}

fn real<T>(doing: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(doing)
}

/// Runs sequences on a ground; `before` is told each operation that comes, or the end.
async fn observe(
    substrate: Substrate,
    seeds: std::ops::Range<u64>,
    mut before: impl FnMut(Option<Op>),
) -> Result<Vec<Trace>> {
    let mut consumer = substrate.inbox.consume(PARTITION, 0).await?;
    let mut traces = Vec::new();
    for seed in seeds {
        let mut operator = Operator::new(substrate.clone(), consumer, seed);
        let mut steps = Vec::new();
        for op in operations(seed) {
            before(Some(op));
            steps.push((op, operator.perform(op).await?));
        }
        traces.push(Trace { seed, steps });
        before(None);
        consumer = operator.leave().await?;
    }
    Ok(traces)
}

/// Fails with the first trace that no world shows.
fn all_explained(ground: &str, traces: &[Trace], allowed: Allowed) -> Result {
    let mut disturbed = 0;
    for trace in traces {
        disturbed += simulated(explain(trace, allowed, Bugs::default()))??;
    }
    let seen = |what: &Seen| -> usize {
        traces.iter().flat_map(|trace| &trace.steps).filter(|(_, seen)| seen.has(what)).count()
    };
    let steps: usize = traces.iter().map(|trace| trace.steps.len()).sum();
    let (stored, refused) = (seen(&Seen::Stored { above: true }), seen(&Seen::Refused));
    let unknown = seen(&Seen::Unknown);
    println!(
        "{ground}: {steps} steps, {stored} stored, {refused} refused, {unknown} without an answer; \
         {disturbed} only by a fault"
    );
    assert!(stored > steps / 20 && refused > steps / 20, "the sequences exercise too little");
    Ok(())
}

/// How many of some sequences, seen in a world with some bugs, no world with others shows.
fn unexplained(seen_with: Bugs, explained_with: Bugs) -> Result<usize> {
    let traces = simulated(async {
        let (_stores, substrate) = world(seen_with);
        observe(substrate, 0..10, |_| {}).await
    })?;
    let mut count = 0;
    for trace in &traces {
        let explained = simulated(explain(trace, Allowed::default(), explained_with))?;
        count += usize::from(explained.is_err());
    }
    Ok(count)
}

#[test]
fn local_does_what_a_world_can() -> Result {
    let dir = tempfile::tempdir()?;
    let traces = real(async {
        let mut options = LocalOptions::new(Prefix::default(), Arc::new(SystemClock));
        (options.ack_wait, options.partitions, options.head_room) = (ACK_WAIT, PARTITIONS, 0);
        let (substrate, _control) = open(dir.path(), options)?;
        let traces = observe(substrate.clone(), 0..40, |_| {}).await?;
        substrate.health.close().await;
        Ok(traces)
    })?;
    all_explained("local", &traces, Allowed::default())
}

async fn on_nats(urls: Vec<String>, replicas: Replicas) -> Result<Vec<Trace>> {
    let options = NatsOptions {
        partitions: Some(PARTITIONS),
        replicas,
        ack_wait: ACK_WAIT,
        ..NatsOptions::new(urls)
    };
    let substrate = connect(options).await?;
    let traces = observe(substrate.clone(), 0..20, |_| {}).await?;
    substrate.health.close().await;
    Ok(traces)
}

#[test]
fn nats_r1_does_what_a_world_can() -> Result {
    let traces = real(async {
        let server = NatsServer::start(ServerOptions::default()).await?;
        on_nats(vec![server.url()], Replicas::One).await
    })?;
    all_explained("nats R1", &traces, Allowed { unknown: true, spurious: false })
}

#[test]
fn nats_r3_does_what_a_world_can() -> Result {
    let traces = real(async {
        let cluster = NatsCluster::start(3, ServerOptions::default()).await?;
        on_nats(cluster.urls(), Replicas::Three).await
    })?;
    all_explained("nats R3", &traces, Allowed { unknown: true, spurious: true })
}

/// The search itself: a world that loses requests and answers is explained, and not by a calm one.
#[test]
fn writes_without_an_answer_are_explained() -> Result {
    let traces = simulated(async {
        let (stores, substrate) = world(Bugs::default());
        let mut seed = 0;
        observe(substrate, 0..10, |op| {
            seed += 1;
            let mut faults = Faults::none();
            if let Some(Op::Append { .. } | Op::AppendPair { .. } | Op::Set { .. }) = op {
                (faults.lost_request, faults.lost_answer) = (0.1, 0.2);
            }
            stores.disturb(seed, faults);
        })
        .await
    })?;
    all_explained("a world that loses", &traces, Allowed { unknown: true, spurious: false })?;
    for trace in traces {
        let lost = trace.steps.iter().any(|(_, seen)| seen.has(&Seen::Unknown));
        let calm = simulated(explain(&trace, Allowed::default(), Bugs::default()))?;
        assert_eq!(calm.is_err(), lost, "only losses need faults");
    }
    Ok(())
}

#[test]
fn a_store_that_refuses_nothing_is_found() -> Result {
    let (sound, planted) = (Bugs::default(), Bugs { no_fencing: true, ..Bugs::default() });
    assert_eq!(unexplained(sound, sound)?, 0);
    assert_eq!(unexplained(planted, sound)?, 10, "as a real store");
    assert_eq!(unexplained(sound, planted)?, 10, "as a world that explains");
    Ok(())
}

#[test]
fn a_store_that_forgets_on_delivery_is_found() -> Result {
    let planted = Bugs { forget_on_delivery: true, ..Bugs::default() };
    assert!(unexplained(planted, Bugs::default())? > 5);
    Ok(())
}
