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

use clawnode_cluster::Write;
use clawnode_proto::{
    Digest, EntityId, EventId, Incarnation, Input, InputId, Position, ProcessId, Tail, Timestamp,
    kernel::Emitted,
};

use super::{
    Core, Entity, FoldError, LoadedJournal, Service, ShrinkToFit,
    kind::{EffectKind, EntityKind},
};

mod append_answer;
mod append_draft;
mod compose;
mod deletion;
mod io;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod memory_tests;
mod options;
#[cfg(feature = "test-util")]
mod planted;
mod probation;
mod purge;
mod quarantine;
mod snapshots;
#[cfg(test)]
#[cfg(feature = "test-util")]
mod wants_tests;

pub use io::{ActivationEnd, MachineInput, MachineOutput, OwnerSays};
pub use options::MachineOptions;

/// How long refusals that no read explains may last before the store must have lost data.
pub const DIVERGED_AFTER: Duration = Duration::from_mins(1);
/// The first wait before an append is sent again; doubles up to [`RESEND_MOST`].
const RESEND_FIRST: Duration = Duration::from_millis(50);
/// The longest wait before an append is sent again: turns continue at most this much later than the
/// bus.
const RESEND_MOST: Duration = Duration::from_secs(1);

/// The present time, by two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// The time of day, for events; it may jump.
    pub wall: Timestamp,
    /// Since any fixed moment of this activation's process, for waits; it must not jump.
    pub steady: Timestamp,
}

/// Why the entity is activated; decides whether the claim may ride in the first append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// An input's first delivery.
    Fresh,
    /// Redelivered, found by a scan, restarted: the claim is appended alone, before folding.
    Recovery,
    /// Its last activation in this process panicked or hit a defect: a recovery that counts against
    /// it (C16).
    Died,
    /// No living process can read all of it: a recovery in which only an ordered deletion may
    /// follow.
    Orphan,
}

/// Whether the entity may have killed its process, several times in a row (C16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probation {
    /// Not suspected.
    No,
    /// It waits for its turn: one entity of a process is tried at a time.
    Asked,
    /// It is noted as in hand until all that it begins with has begun.
    On,
}

/// The writer after which the entity may be claimed. Admission judged one writer; a process that
/// has claimed since is alive and is asked first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreviousOwner {
    /// Any last writer: no other process can be alive.
    OfAnyone,
    /// The process that admission saw as the last writer, if there was one.
    Of(Option<ProcessId>),
}

impl PreviousOwner {
    fn may_claim(self, last: Option<ProcessId>) -> bool {
        match self {
            Self::OfAnyone => true,
            Self::Of(seen) => last.is_none() || seen == last,
        }
    }
}

/// Whether the entity is to leave memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaving {
    /// It may stay.
    No,
    /// As soon as it has no work: others have no room.
    ToMakeRoom,
    /// It is handed over.
    Drained,
}

/// How far the activation is.
#[derive(Debug)]
enum ActivationPhase<K: EntityKind> {
    /// The journal is being read.
    Unread,
    /// Only the kernel's part is folded: the claim goes first, or the entity is out of service.
    Headers(Core, LoadedJournal),
    /// It cannot be folded: it can only be deleted, if that was ordered.
    Damaged {
        /// As much as can be read.
        core: Core,
        /// Why the activation ends without such an order.
        why: ActivationEnd,
        /// Whether a record may follow those there are, or may only replace them all.
        open: bool,
    },
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
    /// How many events of the draft it carries.
    events: usize,
    tries: u32,
    refused_since: Option<Timestamp>,
}

/// What blocks the next append.
#[derive(Debug)]
enum Busy {
    No,
    Appending(InFlight),
    Archiving,
    /// What the journal had is being removed; a snapshot replaces all records.
    Purging,
    /// Personal data is being removed; the tombstone replaces everything up to here.
    Erasing(Tail),
    /// The entity is deleted, and what is left of it is removed.
    Scrubbing,
}

/// A call that is wanted.
#[derive(Debug)]
enum CallGrant<G> {
    /// `Acquire` is out; no answer yet.
    Asked,
    /// It must wait.
    Deferred,
    /// It must wait, and has to be asked for again.
    Forgotten,
    /// It may start.
    Granted(G),
}

/// One activation of one entity.
#[derive(Debug)]
pub struct Machine<K: EntityKind> {
    id: EntityId,
    incarnation: Incarnation,
    activation: Activation,
    previous_owner: PreviousOwner,
    options: MachineOptions,
    body: ActivationPhase<K>,
    /// The last owner, if it has not released the entity.
    predecessor: Option<ProcessId>,
    /// The store's position of the last record.
    position: Position,
    busy: Busy,
    claimed: bool,
    probation: Probation,
    /// Something else ended the last activation, not this entity.
    excused: bool,
    /// Delivered, not journaled.
    queue: VecDeque<Input>,
    /// Delivered and not completed.
    held: BTreeSet<InputId>,
    draft: Vec<clawnode_proto::Sealed>,
    draft_bytes: usize,
    /// Where the draft may be cut into several appends: events between two cuts belong together.
    cuts: Vec<usize>,
    staged: Vec<MachineOutput<K>>,
    ended: Vec<(K::Effect, K::Outcome)>,
    refused: Vec<(K::Effect, K::Outcome)>,
    admissions: BTreeMap<K::Effect, CallGrant<K::Grant>>,
    /// Of the call that was asked for last. It is not kept while that waits.
    made: Option<compose::MadeFor<K>>,
    running: BTreeMap<K::Effect, EffectKind>,
    aborting: BTreeSet<K::Effect>,
    confirmed: BTreeSet<K::Effect>,
    /// Effects that were decided before this activation, and may have begun before it.
    inherited: BTreeSet<K::Effect>,
    /// Go into the next append.
    riders: Vec<Emitted>,
    quiescent: bool,
    /// The time of this step.
    now: Now,
    idle_since: Timestamp,
    growth: snapshots::Growth,
    /// Blobs that nothing needs once the tombstone is stored.
    scrub: Option<Vec<Digest>>,
    leaving: Leaving,
    out: Vec<MachineOutput<K>>,
    /// The state that the draft is based on, if a planted bug needs it.
    #[cfg(feature = "test-util")]
    base: Option<Entity<K>>,
}

impl<K: EntityKind> Machine<K> {
    /// A new activation; begins by asking for the journal.
    pub fn new(
        id: EntityId,
        incarnation: Incarnation,
        activation: Activation,
        options: MachineOptions,
        now: Now,
    ) -> (Self, Vec<MachineOutput<K>>) {
        let machine = Self {
            id,
            incarnation,
            activation,
            previous_owner: PreviousOwner::OfAnyone,
            options,
            body: ActivationPhase::Unread,
            predecessor: None,
            position: Position(0),
            busy: Busy::No,
            claimed: false,
            probation: Probation::No,
            excused: false,
            queue: VecDeque::new(),
            held: BTreeSet::new(),
            draft: Vec::new(),
            draft_bytes: 0,
            cuts: Vec::new(),
            staged: Vec::new(),
            ended: Vec::new(),
            refused: Vec::new(),
            admissions: BTreeMap::new(),
            made: None,
            running: BTreeMap::new(),
            aborting: BTreeSet::new(),
            confirmed: BTreeSet::new(),
            inherited: BTreeSet::new(),
            riders: Vec::new(),
            quiescent: false,
            now,
            idle_since: now.steady,
            growth: snapshots::Growth::default(),
            scrub: None,
            leaving: Leaving::No,
            out: Vec::new(),
            #[cfg(feature = "test-util")]
            base: None,
        };
        (machine, vec![MachineOutput::Load])
    }

    /// The same; it may claim only after this writer.
    #[must_use]
    pub fn after(mut self, previous_owner: PreviousOwner) -> Self {
        self.previous_owner = previous_owner;
        self
    }

    /// What this owner tells another process that was given an input. The input may only be
    /// acknowledged elsewhere if it might be acknowledged here (I4).
    pub fn says(&self, input: InputId) -> OwnerSays {
        let journaled = self.core().is_some_and(|core| core.has(input));
        if self.held.contains(&input) {
            return OwnerSays::Held;
        }
        match journaled {
            true if self.may_complete(input) => OwnerSays::Completed,
            true => OwnerSays::Held,
            false => OwnerSays::NotMine,
        }
    }

    /// The folded entity, while no append is in flight: the part that a visitor may see (I5).
    pub fn settled(&self) -> Option<&Entity<K>> {
        match (&self.body, &self.busy) {
            (ActivationPhase::Whole(entity), Busy::No) => Some(entity),
            _ => None,
        }
    }

    /// Gives back room that only work under way needs.
    fn slim(&mut self) {
        self.queue.slim();
        self.held.slim();
        self.draft.slim();
        self.cuts.slim();
        self.staged.slim();
        self.ended.slim();
        self.refused.slim();
        self.admissions.slim();
        self.made = None;
        self.running.slim();
        self.aborting.slim();
        self.confirmed.slim();
        self.inherited.slim();
        self.riders.slim();
        if let ActivationPhase::Whole(entity) = &mut self.body {
            K::slim(&mut entity.state);
        }
    }

    /// The identity of this activation.
    pub const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// Takes one thing that happened; returns what to do, in order.
    pub fn handle(&mut self, now: Now, input: MachineInput<K>) -> Vec<MachineOutput<K>> {
        self.now = now;
        let now = now.wall;
        if !matches!(self.body, ActivationPhase::Stopped) {
            match self.take(now, input).and_then(|()| self.pump(now)) {
                Ok(()) => self.leave_probation(),
                Err(stop) => self.stop(stop),
            }
        }
        std::mem::take(&mut self.out)
    }

    #[expect(clippy::too_many_lines, reason = "one flat match over what happened")]
    fn take(&mut self, now: Timestamp, input: MachineInput<K>) -> Result<(), ActivationEnd> {
        match input {
            MachineInput::Deliver(inputs) => {
                self.idle_since = self.now.steady;
                for input in inputs {
                    self.held.insert(input.id);
                    self.queue.push_back(input);
                }
            }
            MachineInput::Loaded(loaded) => self.loaded(now, loaded)?,
            MachineInput::Probation { blamed } => self.on_probation(now, blamed)?,
            MachineInput::Unreadable { detail, position } => self.unreadable(detail, position)?,
            MachineInput::Answered(answer) => self.answered(&answer)?,
            MachineInput::ReadBack { after_expected, tail } => {
                self.read_back(&after_expected, tail)?;
            }
            MachineInput::Granted(effect, grant) => {
                if let Some(admission) = self.admissions.get_mut(&effect) {
                    *admission = CallGrant::Granted(grant);
                } else {
                    self.out.push(MachineOutput::Release(effect));
                }
            }
            MachineInput::Deferred(effect) => {
                self.made = None;
                if let Some(admission) = self.admissions.get_mut(&effect) {
                    *admission = CallGrant::Deferred;
                }
            }
            MachineInput::Forgotten(effect) => {
                if let Some(admission) = self.admissions.get_mut(&effect)
                    && !matches!(admission, CallGrant::Granted(_))
                {
                    *admission = CallGrant::Forgotten;
                }
            }
            MachineInput::Refused(effect, outcome) => {
                if self.admissions.remove(&effect).is_some() {
                    self.refused.push((effect, outcome));
                }
            }
            MachineInput::Ended(effect, outcome) => {
                self.aborting.remove(&effect);
                if self.running.remove(&effect).is_some() {
                    self.ended.push((effect, outcome));
                }
            }
            MachineInput::Gone(effect) => {
                self.aborting.remove(&effect);
                self.running.remove(&effect);
            }
            MachineInput::Confirmed(effect) => match self.running.remove(&effect) {
                Some(EffectKind::Emit(turn)) => {
                    self.confirmed.insert(effect);
                    self.riders.push(Emitted { turn });
                }
                Some(EffectKind::Publish) => {
                    self.confirmed.insert(effect);
                }
                Some(EffectKind::Call | EffectKind::Run) | None => {}
            },
            MachineInput::Archived { archive, state, superseded, positions } => {
                self.archived(now, archive, positions, state, superseded)?;
            }
            MachineInput::Scrubbed => {
                if matches!(self.busy, Busy::Scrubbing) {
                    self.busy = Busy::No;
                }
            }
            MachineInput::Erased { state, before } => self.write_tombstone(now, state, before)?,
            MachineInput::Purged { state, before } => self.purged(now, state, before)?,
            MachineInput::ArchiveFailed => self.archive_failed(),
            MachineInput::FencedHint(epoch) => {
                if self.claimed && self.core().is_some_and(|core| core.tail.epoch < epoch) {
                    return Err(ActivationEnd::Fenced);
                }
            }
            MachineInput::Tick => {
                self.admissions.retain(|_, one| !matches!(one, CallGrant::Forgotten));
                self.give_up_damaged()?;
            }
            MachineInput::MakeRoom if self.drains() => {}
            MachineInput::MakeRoom => self.leaving = Leaving::ToMakeRoom,
            MachineInput::Drain => {
                self.leaving = Leaving::Drained;
                self.give_up_damaged()?;
            }
            MachineInput::GiveUp => {
                self.leaving = Leaving::Drained;
                for (effect, _) in std::mem::take(&mut self.running) {
                    self.out.push(MachineOutput::Abort(effect));
                }
                self.aborting.clear();
                // Work that the append in flight announced does not begin either.
                self.staged.retain(|out| !matches!(out, MachineOutput::Start(..)));
            }
        }
        Ok(())
    }

    fn drains(&self) -> bool {
        self.leaving == Leaving::Drained
    }

    fn makes_room(&self) -> bool {
        self.leaving == Leaving::ToMakeRoom
    }

    /// It has work again.
    fn stays(&mut self) {
        if self.makes_room() {
            self.leaving = Leaving::No;
        }
    }

    fn stop(&mut self, stop: ActivationEnd) {
        self.body = ActivationPhase::Stopped;
        self.busy = Busy::No;
        self.staged.clear();
        self.made = None;
        self.out.push(MachineOutput::Stop(stop));
    }

    fn core(&self) -> Option<&Core> {
        match &self.body {
            ActivationPhase::Headers(core, _) | ActivationPhase::Damaged { core, .. } => Some(core),
            ActivationPhase::Whole(entity) => Some(&entity.core),
            ActivationPhase::Unread | ActivationPhase::Stopped => None,
        }
    }
}

impl<K: EntityKind> ActivationPhase<K> {
    fn damaged(core: Core, error: &FoldError) -> Self {
        let why = error.needs().map_or_else(
            || ActivationEnd::Corrupt(clawnode_proto::ErrorChain(error).to_string()),
            ActivationEnd::TooNew,
        );
        Self::Damaged { core, why, open: true }
    }
}
