//! The world: requests go in, what happens next comes out.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Record, Write};
use clawnode_proto::{
    Digest, EntityId, Input, Partition, Position, ProcessId, Timestamp, limits::ACK_WAIT,
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    STALE_MOST,
    faults::{Bugs, Faults},
    inboxes::{Inboxes, Token},
    jobs::SimJobQueue,
    journals::Journals,
    key_values::{Expiry, SimKeyValues},
    lanes::Lanes,
    request::{Delivered, Happening, RequestTicket, StoreChange, StoreReply, StoreRequest},
    schedule::Schedule,
    sync::Unsynced,
};

/// How long an asker waits for a store's answer, in milliseconds.
pub(super) const TIMEOUT: u64 = 2_000;
/// How long after its asker gave up a ghost may take effect at most, in milliseconds.
const GHOST_MOST: u64 = 20_000;
/// How long a frozen process still counts as pulling, in milliseconds.
const PULLS_WHILE_FROZEN: u64 = 8_000;

#[derive(Debug)]
pub(super) enum WorldEvent<D> {
    Arrive { from: ProcessId, ticket: RequestTicket, request: StoreRequest, answered: bool },
    Happen(ProcessId, Happening<D>),
    Wake(Position),
    WakeJob(Position),
    Expire(Expiry),
    Commit,
}

#[derive(Debug)]
enum Life<D> {
    Runs,
    Frozen { since: u64, backlog: Vec<Happening<D>> },
}

/// Stores, network and processes. `D` is what the driver plans for its processes.
#[derive(Debug)]
pub struct World<D> {
    /// All chance comes from here.
    pub rng: ChaCha8Rng,
    /// What may go wrong now.
    pub faults: Faults,
    /// How long a delivery may go without an answer.
    pub ack_wait: Duration,
    pub(super) bugs: Bugs,
    /// Whether writes are synced in groups, and lost in a power cut before.
    pub(super) synced_in_groups: bool,
    pub(super) partitions: u16,
    pub(super) schedule: Schedule<WorldEvent<D>>,
    pub(super) journals: Journals,
    pub(super) inboxes: Inboxes,
    pub(super) jobs: SimJobQueue,
    pub(super) blobs: BTreeMap<Digest, Bytes>,
    pub(super) shelf: SimKeyValues,
    processes: BTreeMap<ProcessId, Life<D>>,
    pulling: BTreeSet<ProcessId>,
    lanes: Lanes,
    pub(super) unsynced: Vec<Unsynced>,
    down_until: u64,
    tickets: u64,
    pub(super) changes: Vec<StoreChange>,
    /// Whose inbox was read as it was a while ago.
    misread: Vec<EntityId>,
}

impl<D> World<D> {
    /// An empty world.
    pub fn new(seed: u64, partitions: u16, synced_in_groups: bool, bugs: Bugs) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            faults: Faults::none(),
            ack_wait: ACK_WAIT,
            bugs,
            synced_in_groups,
            partitions,
            // Any time will do; late enough that skewed clocks stay positive.
            schedule: Schedule::new(Timestamp(1_700_000_000_000)),
            journals: Journals::default(),
            inboxes: Inboxes::default(),
            jobs: SimJobQueue::default(),
            blobs: BTreeMap::new(),
            shelf: SimKeyValues::default(),
            processes: BTreeMap::new(),
            pulling: BTreeSet::new(),
            lanes: Lanes::default(),
            unsynced: Vec::new(),
            down_until: 0,
            tickets: 0,
            changes: Vec::new(),
            misread: Vec::new(),
        }
    }

    /// The true time.
    pub fn now(&self) -> Timestamp {
        self.schedule.now()
    }

    /// Whether chance says so.
    pub fn chance(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.rng.random_bool(probability.min(1.0))
    }

    /// What changed since this was asked last, in order.
    pub fn changes(&mut self) -> Vec<StoreChange> {
        std::mem::take(&mut self.changes)
    }

    /// Entities whose inbox was read stale since the last question.
    pub fn misread(&mut self) -> Vec<EntityId> {
        std::mem::take(&mut self.misread)
    }

    /// Whether no input waits for anybody.
    pub fn inboxes_empty(&self) -> bool {
        self.inboxes.is_empty()
    }

    /// What the store really has of a journal now.
    pub fn journal(&self, entity: EntityId) -> Vec<Record> {
        self.journals.read(entity, Position(0), u64::MAX)
    }

    /// Flips one bit of an entity's journal, for good; says whether it has one.
    pub fn damage(&mut self, entity: EntityId) -> bool {
        let (record, byte) = (self.rng.random_range(0..1_000), self.rng.random_range(0..100_000));
        self.journals.damage(entity, record, byte)
    }

    /// What really waits for an entity now.
    pub fn inbox(&self, entity: EntityId) -> Vec<(Position, Input)> {
        self.inboxes.read(entity, Position(0), u64::MAX)
    }

    /// What the store really has under a digest.
    pub fn blob(&self, digest: Digest) -> Option<Bytes> {
        self.blobs.get(&digest).cloned()
    }

    /// All that the store really has beside journals.
    pub fn blobs(&self) -> &BTreeMap<Digest, Bytes> {
        &self.blobs
    }

    // === processes ===

    /// A process begins; it pulls the inboxes if `pulls`.
    pub fn start(&mut self, process: ProcessId, pulls: bool) {
        self.processes.insert(process, Life::Runs);
        if pulls {
            self.pulling.insert(process);
        }
    }

    /// A process pulls no more.
    pub fn stop_pulling(&mut self, process: ProcessId) {
        self.pulling.remove(&process);
    }

    /// A process is gone; what it sent is still under way.
    pub fn kill(&mut self, process: ProcessId) {
        self.processes.remove(&process);
        self.pulling.remove(&process);
        self.jobs.forget(process);
    }

    /// Freezes a process; what happens to it waits.
    pub fn freeze(&mut self, process: ProcessId) {
        let since = self.now().0;
        if let Some(life @ Life::Runs) = self.processes.get_mut(&process) {
            *life = Life::Frozen { since, backlog: Vec::new() };
        }
    }

    /// A frozen process goes on as if nothing had been.
    pub fn thaw(&mut self, process: ProcessId) {
        let Some(life) = self.processes.get_mut(&process) else { return };
        if let Life::Frozen { backlog, .. } = std::mem::replace(life, Life::Runs) {
            for happening in backlog {
                self.schedule.plan(0, WorldEvent::Happen(process, happening));
            }
        }
    }

    /// Whether the process lives, frozen or not.
    pub fn lives(&self, process: ProcessId) -> bool {
        self.processes.contains_key(&process)
    }

    /// No store answers for a while.
    pub fn outage(&mut self, millis: u64) {
        self.down_until = self.now().0 + millis;
    }

    /// The live process that should serve a partition.
    pub fn first_of(&self, partition: Partition) -> Option<ProcessId> {
        let serves = |process: &&ProcessId| self.serves(**process);
        self.pulling.iter().filter(serves).min_by_key(|one| rank(**one, partition)).copied()
    }

    /// Whether what the process asks for still waits for it at the stores.
    pub(super) fn serves(&self, process: ProcessId) -> bool {
        match self.processes.get(&process) {
            Some(Life::Runs) => true,
            Some(Life::Frozen { since, .. }) => self.now().0 - since < PULLS_WHILE_FROZEN,
            None => false,
        }
    }

    // === time ===

    /// Plans something of the driver's own, `after` milliseconds from now.
    pub fn later(&mut self, to: ProcessId, after: u64, what: D) {
        self.schedule.plan(after, WorldEvent::Happen(to, Happening::Own(what)));
    }

    /// Puts something into a mailbox: it comes soon, and in order with the mailbox's others.
    pub fn mail(&mut self, to: ProcessId, lane: u128, what: D) {
        let now = self.now().0;
        let soon = now + self.rng.random_range(0..3);
        let at = self.lanes.next(now, soon, to, lane);
        self.schedule.plan_at(at, WorldEvent::Happen(to, Happening::Own(what)));
    }

    /// Sends something to another process: it may be lost, or be late.
    pub fn send(&mut self, to: ProcessId, what: D) {
        if !self.chance(self.faults.lost_message) {
            let after = self.delay();
            self.later(to, after, what);
        }
    }

    /// What happens next, to whom.
    pub fn step(&mut self) -> Option<(ProcessId, Happening<D>)> {
        self.step_until(Timestamp(u64::MAX))
    }

    /// What happens next until a time, to whom; if nothing does, it is that time.
    pub fn step_until(&mut self, until: Timestamp) -> Option<(ProcessId, Happening<D>)> {
        loop {
            match self.schedule.pop_until(until)? {
                WorldEvent::Arrive { from, ticket, request, answered } => {
                    self.arrive(from, ticket, request, answered);
                }
                WorldEvent::Happen(to, happening) => match self.processes.get_mut(&to) {
                    Some(Life::Runs) => return Some((to, happening)),
                    Some(Life::Frozen { backlog, .. }) => backlog.push(happening),
                    None => {}
                },
                WorldEvent::Wake(position) => self.wake(position),
                WorldEvent::WakeJob(position) => self.wake_job(position),
                WorldEvent::Expire(expiry) => self.expire(expiry),
                WorldEvent::Commit => self.commit(),
            }
        }
    }

    pub(super) fn delay(&mut self) -> u64 {
        let most = if self.chance(self.faults.slow) { 1_500 } else { 12 };
        self.rng.random_range(1..=most)
    }

    // === requests ===

    /// Sends a request to the stores; the answer comes as a [`Happening::Answer`].
    pub fn submit(&mut self, from: ProcessId, request: StoreRequest) -> RequestTicket {
        self.tickets += 1;
        let ticket = RequestTicket(self.tickets);
        let (there, faults) = (self.delay(), self.faults);
        let failed = WorldEvent::Happen(from, Happening::Answer(ticket, StoreReply::Failed));
        if self.chance(faults.busy) {
            self.schedule.plan(there, failed);
        } else if self.chance(faults.lost_request) {
            self.schedule.plan(TIMEOUT, failed);
        } else if self.chance(faults.ghost) {
            self.schedule.plan(TIMEOUT, failed);
            let late = TIMEOUT + self.rng.random_range(0..GHOST_MOST);
            self.schedule.plan(late, WorldEvent::Arrive { from, ticket, request, answered: false });
        } else if self.chance(faults.lost_answer) {
            self.schedule.plan(TIMEOUT, failed);
            self.schedule
                .plan(there, WorldEvent::Arrive { from, ticket, request, answered: false });
        } else {
            if self.chance(faults.twice) {
                let first = request.clone();
                self.schedule.plan(
                    there,
                    WorldEvent::Arrive { from, ticket, request: first, answered: false },
                );
            }
            self.schedule.plan(there, WorldEvent::Arrive { from, ticket, request, answered: true });
        }
        ticket
    }

    fn arrive(
        &mut self,
        from: ProcessId,
        ticket: RequestTicket,
        request: StoreRequest,
        answered: bool,
    ) {
        if self.now().0 < self.down_until {
            if answered {
                self.answer(from, ticket, StoreReply::Failed);
            }
            return;
        }
        let Some(request) = self.keep_back(from, ticket, request) else { return };
        let reply = self.serve(request);
        if answered {
            self.answer(from, ticket, reply);
        }
    }

    pub(super) fn answer(&mut self, to: ProcessId, ticket: RequestTicket, reply: StoreReply) {
        let back = self.delay();
        self.schedule.plan(back, WorldEvent::Happen(to, Happening::Answer(ticket, reply)));
    }

    /// When a read is answered from: now, or a while ago.
    fn as_of(&mut self) -> u64 {
        let now = self.now().0;
        if self.chance(self.faults.stale_read) {
            now - self.rng.random_range(0..STALE_MOST)
        } else {
            now
        }
    }

    pub(super) fn serve(&mut self, request: StoreRequest) -> StoreReply {
        match request {
            StoreRequest::Append { entity, expected, write } => {
                self.append(entity, expected, write)
            }
            StoreRequest::Journal(entity, after) => {
                let as_of = self.as_of();
                StoreReply::Records(self.journals.read(entity, after, as_of))
            }
            StoreRequest::Tail(entity) => {
                let as_of = self.as_of();
                StoreReply::Tail(self.journals.read(entity, Position(0), as_of).pop())
            }
            StoreRequest::Put(input) => self.put(input),
            StoreRequest::Inbox(entity, after) => {
                let as_of = self.as_of();
                if as_of < self.now().0 {
                    self.misread.push(entity);
                }
                StoreReply::Waiting(self.inboxes.read(entity, after, as_of))
            }
            StoreRequest::Scan(partition) => {
                StoreReply::Entities(self.inboxes.scan(partition, self.partitions))
            }
            StoreRequest::Ack(Token(position)) => {
                if let Some((entity, input)) = self.inboxes.remove(self.schedule.now().0, position)
                {
                    self.changes.push(StoreChange::Removed(entity, input));
                }
                StoreReply::Done
            }
            StoreRequest::Progress(Token(position)) => {
                let due = self.now().plus(self.ack_wait).0;
                if let Some(waiting) = self.inboxes.get_mut(position) {
                    waiting.due = due;
                }
                StoreReply::Done
            }
            StoreRequest::Nak(Token(position), wait) => {
                let due = self.now().plus(wait).0;
                if let Some(waiting) = self.inboxes.get_mut(position) {
                    waiting.due = due;
                    self.schedule.plan_at(due, WorldEvent::Wake(position));
                }
                StoreReply::Done
            }
            StoreRequest::PutBlob(content) => {
                let digest = Digest::of(&content);
                self.blobs.insert(digest, content);
                StoreReply::Stored(digest)
            }
            StoreRequest::GetBlob(digest) => StoreReply::Blob(self.blobs.get(&digest).cloned()),
            other => self.serve_shelf(other),
        }
    }

    fn append(&mut self, entity: EntityId, expected: Position, write: Write) -> StoreReply {
        let fits = self.journals.tail(entity) == expected || self.bugs.no_fencing;
        if !fits || self.chance(self.faults.spurious_refusal) {
            return StoreReply::Append(AppendAnswer::Refused);
        }
        let rollup = write.rollup;
        let record = self.journals.append(self.schedule.now().0, entity, write);
        let position = record.position;
        self.changes.push(StoreChange::Appended { entity, record, rollup });
        self.sync_later(Unsynced::Record(entity, position));
        StoreReply::Append(AppendAnswer::Stored(position))
    }

    pub(super) fn put(&mut self, input: Input) -> StoreReply {
        let (entity, id) = (input.entity, input.id);
        let position = self.inboxes.put(self.schedule.now().0, input);
        self.changes.push(StoreChange::Put(entity, id));
        self.sync_later(Unsynced::Input(position));
        self.schedule.plan(1, WorldEvent::Wake(position));
        StoreReply::Put(position)
    }

    // === deliveries ===

    fn wake(&mut self, position: Position) {
        let now = self.now().0;
        let Some(waiting) = self.inboxes.get_mut(position) else { return };
        if waiting.due > now {
            self.schedule.plan_at(waiting.due, WorldEvent::Wake(position));
            return;
        }
        let entity = waiting.input.entity;
        let partition = entity.partition(self.partitions);
        if !self.shelf.is_wanted(partition, position) {
            return;
        }
        let Some(mut to) = self.first_of(partition) else {
            self.schedule.plan(1_000, WorldEvent::Wake(position));
            return;
        };
        let faults = self.faults;
        if self.chance(faults.misrouted) {
            to = self.anyone(to);
        }
        let due = self.now().plus(self.ack_wait).0;
        let (mut redelivered, mut foremost) = (false, None);
        if let Some(waiting) = self.inboxes.get_mut(position) {
            waiting.due = due;
            redelivered = waiting.deliveries > 0;
            foremost = waiting.foremost.then(|| Box::new(waiting.input.clone()));
            waiting.deliveries += 1;
        }
        self.schedule.plan_at(due, WorldEvent::Wake(position));
        let delivered = Delivered { entity, token: Token(position), redelivered, foremost };
        if self.chance(faults.lost_delivery) {
            self.shelf.want_again(partition);
        } else {
            let (after, happening) = (self.delay(), Happening::Delivery(delivered.clone()));
            self.schedule.plan(after, WorldEvent::Happen(to, happening));
        }
        if self.chance(faults.delivered_twice) {
            let (other, after) = (self.anyone(to), self.delay());
            let delivered = Delivered { redelivered: true, ..delivered };
            self.schedule.plan(after, WorldEvent::Happen(other, Happening::Delivery(delivered)));
        }
        if self.bugs.forget_on_delivery
            && let Some((entity, input)) = self.inboxes.remove(now, position)
        {
            self.changes.push(StoreChange::Removed(entity, input));
        }
    }

    fn anyone(&mut self, otherwise: ProcessId) -> ProcessId {
        let at = self.rng.random_range(0..self.pulling.len().max(1));
        self.pulling.iter().nth(at).copied().unwrap_or(otherwise)
    }
}

/// Rendezvous: the lower, the sooner this process serves the partition.
fn rank(process: ProcessId, partition: Partition) -> [u8; 32] {
    let mut bytes = process.as_u128().to_be_bytes().to_vec();
    bytes.extend(partition.0.to_be_bytes());
    *Digest::of(&bytes).as_bytes()
}
