//! The entity machine: one activation of one entity, sans I/O.
//!
//! [`Machine::handle`] takes what happened and returns what to do; the ractor driver and the
//! simulator are two thin drivers of it. It has at most one append in flight. Events are folded
//! when they are drafted, one append ahead of the store; everything that follows from them (starts,
//! completions) is staged until the append is conclusive, and a refused append ends the activation
//! with its state, so no inconclusive event is ever visible or built upon.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use bytes::Bytes;
use clawnode_cluster::{
    AppendAnswer, Record, Write,
    outcome::{self, Verdict},
};
use clawnode_proto::{
    Digest, EntityId, Epoch, EventId, Incarnation, Input, InputId, Position, ProcessId, Timestamp,
    kernel::{Emitted, SnapshotState},
};

use super::{
    core::{Core, Entity, FoldError, Loaded, Service},
    kind::{EffectClass, EntityKind},
};

mod compose;
mod draft;

/// How long refusals that no read explains may last before the store must have lost data.
pub const DIVERGED_AFTER: Duration = Duration::from_mins(1);
/// The first wait before an append is sent again; doubles up to [`RESEND_MOST`].
const RESEND_FIRST: Duration = Duration::from_millis(50);
/// The longest wait before an append is sent again.
const RESEND_MOST: Duration = Duration::from_secs(5);

/// How an activation treats its entity.
#[derive(Clone, Copy, Debug)]
pub struct MachineOptions {
    /// Idle this long, it leaves memory (default 60 s): shorter costs a read per message, longer
    /// costs memory.
    pub passivate_after: Duration,
    /// A snapshot replaces the journal after this many events (default 200): fewer costs writes,
    /// more costs reads at activation.
    pub snapshot_every: u64,
    /// Protocol bugs for the simulator to find; none in production.
    #[cfg(feature = "test-util")]
    pub planted: super::Planted,
}

impl Default for MachineOptions {
    fn default() -> Self {
        Self {
            passivate_after: Duration::from_mins(1),
            snapshot_every: 200,
            #[cfg(feature = "test-util")]
            planted: super::Planted::default(),
        }
    }
}

/// Why the entity is activated; decides whether the claim may ride in the first append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// An input's first delivery.
    Fresh,
    /// Redelivered, found by a scan, restarted: the claim is appended alone, before folding.
    Recovery,
}

/// What happened.
#[derive(Debug)]
pub enum In<K: EntityKind> {
    /// Inputs from the inbox, in stream order.
    Deliver(Vec<Input>),
    /// The journal, as asked by [`Out::Load`].
    Loaded(Loaded),
    /// The journal cannot be read: damaged, not merely out of reach.
    Unreadable(String),
    /// The answer to [`Out::Append`].
    Answered(AppendAnswer),
    /// The answer to [`Out::ReadBack`]: records after the expected position, and the last
    /// record's position if there are none.
    ReadBack {
        /// Records after the expected position.
        after_expected: Vec<Record>,
        /// The position of the last record of all.
        tail: Position,
    },
    /// The call may start.
    Granted(K::Key, K::Grant),
    /// The call must wait; `Granted` follows.
    Deferred(K::Key),
    /// A call has ended.
    Ended(K::Key, K::Outcome),
    /// An emission is confirmed.
    Confirmed(K::Key),
    /// A call that was aborted before it had an outcome is gone.
    Gone(K::Key),
    /// Old records are archived and the state is stored, as asked by [`Out::Archive`].
    Archived {
        /// The archive's digest.
        archive: Digest,
        /// Where the state is.
        state: SnapshotState,
    },
    /// The blobs of a doomed entity are gone, as asked by [`Out::Erase`].
    Erased {
        /// The blob of the snapshot that it still loads from.
        snapshot: Option<Digest>,
    },
    /// The archive could not be made; the next attempt is after another `snapshot_every` events.
    ArchiveFailed,
    /// Another process says that it has claimed the entity.
    FencedHint(Epoch),
    /// Time has passed.
    Tick,
    /// Hand the entity over: no new work; running calls may end.
    Drain,
    /// Hand the entity over now: running calls are given up.
    GiveUp,
}

/// What to do.
#[derive(Debug)]
pub enum Out<K: EntityKind> {
    /// Read the journal.
    Load,
    /// Append, after a wait.
    Append {
        /// How long to wait before (the driver adds jitter).
        wait: Duration,
        /// The fence.
        expected: Position,
        /// What.
        write: Write,
    },
    /// Read the records after this position.
    ReadBack {
        /// The fence of the append in flight.
        after: Position,
    },
    /// Ask whether the call may start; answer `Granted` or `Deferred`.
    Acquire(K::Key, K::Effect),
    /// The grant is not needed any more.
    Release(K::Key),
    /// Start a call or an emission; answer `Ended`, `Confirmed` or `Gone`.
    Start(K::Key, K::Job),
    /// Stop a call; answer `Ended` with what there is, or `Gone`.
    Abort(K::Key),
    /// The input may be acknowledged (I4).
    Complete(InputId),
    /// Tell this process that the entity has another owner now, so that it stops paying at once.
    TellFenced {
        /// Who owned it last.
        process: ProcessId,
        /// The epoch that is in force now.
        epoch: Epoch,
    },
    /// Archive the records and store this state; answer `Archived` or `ArchiveFailed`.
    Archive {
        /// The encoded state.
        state: Bytes,
    },
    /// Remove the blobs of a doomed entity, but for the state it loads from; answer `Erased`.
    Erase,
    /// Remove this blob; nothing refers to it any more.
    Discard(Digest),
    /// The activation is over.
    Stop(Stop),
}

/// Why an activation is over.
#[derive(Debug)]
pub enum Stop {
    /// Idle; nothing is left to do.
    Passivated,
    /// Handed over.
    Released,
    /// Somebody else owns the entity.
    Fenced,
    /// Out of service; its inputs are parked.
    Quarantined(String),
    /// The journal cannot be folded; nothing was appended.
    Corrupt(String),
    /// The store lost records that it had acknowledged.
    Diverged(String),
    /// This program drafted something that the store or the fold refuses.
    Defect(String),
}

/// How far the activation is.
#[derive(Debug)]
enum Body<K: EntityKind> {
    /// The journal is being read.
    Unread,
    /// Only the kernel's part is folded: the claim goes first, or the entity is out of service.
    Headers(Core, Loaded),
    /// Folded.
    Whole(Entity<K>),
    /// Over.
    Stopped,
}

/// An append that is not conclusive yet.
#[derive(Debug)]
struct InFlight {
    expected: Position,
    write: Write,
    first: EventId,
    tries: u32,
    refused_since: Option<Timestamp>,
}

/// What blocks the next append.
#[derive(Debug)]
enum Busy {
    No,
    Appending(InFlight),
    Archiving,
    Erasing,
}

/// A call that is wanted.
#[derive(Debug)]
enum Admission<G> {
    /// `Acquire` was said; no answer yet.
    Asked,
    /// It must wait.
    Deferred,
    /// It may start.
    Granted(G),
}

/// One activation of one entity.
#[derive(Debug)]
pub struct Machine<K: EntityKind> {
    id: EntityId,
    incarnation: Incarnation,
    activation: Activation,
    options: MachineOptions,
    body: Body<K>,
    /// Who owned it last and has not given it up.
    predecessor: Option<ProcessId>,
    /// The store's position of the last record.
    position: Position,
    busy: Busy,
    claimed: bool,
    /// Delivered, not journaled.
    queue: VecDeque<Input>,
    /// Delivered and not completed.
    held: BTreeSet<InputId>,
    draft: Vec<clawnode_proto::Sealed>,
    draft_bytes: usize,
    staged: Vec<Out<K>>,
    ended: Vec<(K::Key, K::Outcome)>,
    admissions: BTreeMap<K::Key, Admission<K::Grant>>,
    running: BTreeMap<K::Key, EffectClass>,
    aborting: BTreeSet<K::Key>,
    confirmed: BTreeSet<K::Key>,
    /// Rides in the next append.
    riders: Vec<Emitted>,
    quiescent: bool,
    idle_since: Timestamp,
    next_snapshot: u64,
    draining: bool,
    out: Vec<Out<K>>,
}

impl<K: EntityKind> Machine<K> {
    /// A new activation; begins by asking for the journal.
    pub fn new(
        id: EntityId,
        incarnation: Incarnation,
        activation: Activation,
        options: MachineOptions,
        now: Timestamp,
    ) -> (Self, Vec<Out<K>>) {
        let next_snapshot = options.snapshot_every.max(1);
        let machine = Self {
            id,
            incarnation,
            activation,
            options,
            body: Body::Unread,
            predecessor: None,
            position: Position(0),
            busy: Busy::No,
            claimed: false,
            queue: VecDeque::new(),
            held: BTreeSet::new(),
            draft: Vec::new(),
            draft_bytes: 0,
            staged: Vec::new(),
            ended: Vec::new(),
            admissions: BTreeMap::new(),
            running: BTreeMap::new(),
            aborting: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            riders: Vec::new(),
            quiescent: false,
            idle_since: now,
            next_snapshot,
            draining: false,
            out: Vec::new(),
        };
        (machine, vec![Out::Load])
    }

    /// Whether this activation has the input, journaled or about to be.
    pub fn holds(&self, input: InputId) -> bool {
        self.held.contains(&input)
    }

    /// Whether the input is in the journal, as far as it is folded.
    pub fn has(&self, input: InputId) -> bool {
        self.core().is_some_and(|core| core.has(input))
    }

    /// The folded entity, while no append is in flight: what a visitor may see (I5).
    pub fn settled(&self) -> Option<&Entity<K>> {
        match (&self.body, &self.busy) {
            (Body::Whole(entity), Busy::No) => Some(entity),
            _ => None,
        }
    }

    /// Who this activation is.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Takes one thing that happened; returns what to do, in order.
    pub fn handle(&mut self, now: Timestamp, input: In<K>) -> Vec<Out<K>> {
        if !matches!(self.body, Body::Stopped) {
            let step = self.take(now, input).and_then(|()| self.pump(now));
            if let Err(stop) = step {
                self.stop(stop);
            }
        }
        std::mem::take(&mut self.out)
    }

    fn take(&mut self, now: Timestamp, input: In<K>) -> Result<(), Stop> {
        match input {
            In::Deliver(inputs) => {
                self.idle_since = now;
                for input in inputs {
                    self.held.insert(input.id);
                    self.queue.push_back(input);
                }
            }
            In::Loaded(loaded) => self.loaded(now, loaded)?,
            In::Unreadable(detail) => return Err(Stop::Corrupt(detail)),
            In::Answered(answer) => self.answered(now, &answer)?,
            In::ReadBack { after_expected, tail } => self.read_back(now, &after_expected, tail)?,
            In::Granted(key, grant) => {
                if let Some(admission) = self.admissions.get_mut(&key) {
                    *admission = Admission::Granted(grant);
                } else {
                    self.out.push(Out::Release(key));
                }
            }
            In::Deferred(key) => {
                if let Some(admission) = self.admissions.get_mut(&key) {
                    *admission = Admission::Deferred;
                }
            }
            In::Ended(key, outcome) => {
                self.aborting.remove(&key);
                if self.running.remove(&key).is_some() {
                    self.ended.push((key, outcome));
                }
            }
            In::Gone(key) => {
                self.aborting.remove(&key);
                self.running.remove(&key);
            }
            In::Confirmed(key) => {
                if let Some(EffectClass::Emit(turn)) = self.running.remove(&key) {
                    self.confirmed.insert(key);
                    self.riders.push(Emitted { turn });
                }
            }
            In::Archived { archive, state } => self.archived(now, archive, state)?,
            In::Erased { snapshot } => self.bury(now, snapshot)?,
            In::ArchiveFailed => {
                self.busy = Busy::No;
                self.next_snapshot += self.options.snapshot_every.max(1);
            }
            In::FencedHint(epoch) => {
                if self.claimed && self.core().is_some_and(|core| core.tail.epoch < epoch) {
                    return Err(Stop::Fenced);
                }
            }
            In::Tick => {}
            In::Drain => self.draining = true,
            In::GiveUp => {
                self.draining = true;
                for (key, _) in std::mem::take(&mut self.running) {
                    self.out.push(Out::Abort(key));
                }
                self.aborting.clear();
            }
        }
        Ok(())
    }

    fn stop(&mut self, stop: Stop) {
        self.body = Body::Stopped;
        self.busy = Busy::No;
        self.staged.clear();
        self.out.push(Out::Stop(stop));
    }

    fn core(&self) -> Option<&Core> {
        match &self.body {
            Body::Headers(core, _) => Some(core),
            Body::Whole(entity) => Some(&entity.core),
            Body::Unread | Body::Stopped => None,
        }
    }

    // === the append in flight ===

    fn answered(&mut self, now: Timestamp, answer: &AppendAnswer) -> Result<(), Stop> {
        self.verdict(now, outcome::of_answer(answer))
    }

    fn read_back(
        &mut self,
        now: Timestamp,
        after_expected: &[Record],
        tail: Position,
    ) -> Result<(), Stop> {
        let Busy::Appending(flight) = &mut self.busy else { return Ok(()) };
        if after_expected.is_empty() && tail < flight.expected {
            let since = *flight.refused_since.get_or_insert(now);
            if now.since(since) >= DIVERGED_AFTER {
                return Err(Stop::Diverged(format!(
                    "the journal ends at {tail}, but {} was acknowledged",
                    flight.expected
                )));
            }
        } else {
            flight.refused_since = None;
        }
        let first = flight.first;
        self.verdict(now, outcome::of_read_back(first, after_expected))
    }

    fn verdict(&mut self, now: Timestamp, verdict: Verdict) -> Result<(), Stop> {
        let Busy::Appending(flight) = &mut self.busy else { return Ok(()) };
        match verdict {
            Verdict::Stored(position) => {
                let record = Record { position, bytes: flight.write.bytes.clone() };
                self.position = position;
                self.busy = Busy::No;
                self.claimed = true;
                if let (Some(process), Some(core)) = (self.predecessor.take(), self.core()) {
                    let epoch = core.tail.epoch;
                    self.out.push(Out::TellFenced { process, epoch });
                }
                self.draft.clear();
                self.draft_bytes = 0;
                self.idle_since = now;
                self.out.append(&mut self.staged);
                self.stored(record)
            }
            Verdict::Fenced => Err(Stop::Fenced),
            Verdict::ReadBack => {
                self.out.push(Out::ReadBack { after: flight.expected });
                Ok(())
            }
            Verdict::Resend => {
                let wait = RESEND_FIRST.saturating_mul(1 << flight.tries.min(10)).min(RESEND_MOST);
                flight.tries = flight.tries.saturating_add(1);
                self.out.push(Out::Append {
                    wait,
                    expected: flight.expected,
                    write: flight.write.clone(),
                });
                Ok(())
            }
            Verdict::Defect(detail) => Err(Stop::Defect(detail)),
        }
    }

    /// The claim is conclusive: what was only headers is folded now.
    fn stored(&mut self, record: Record) -> Result<(), Stop> {
        if let Body::Headers(core, loaded) = &mut self.body
            && !matches!(core.service, Service::Quarantined { .. })
        {
            let mut loaded = std::mem::take(loaded);
            loaded.records.push(record);
            let entity = Entity::of(self.id, &loaded).map_err(|error| corrupt(&error))?;
            self.body = Body::Whole(entity);
        }
        Ok(())
    }
}

fn corrupt(error: &FoldError) -> Stop {
    Stop::Corrupt(clawnode_proto::ErrorChain(error).to_string())
}
