//! The machine itself: one partition at one process.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clawnode_proto::{EntityId, InputId, Position, ProcessId, Timestamp, limits::ACK_PROGRESS};

use super::{
    forward::ORPHAN_FOR,
    io::{Arrived, Gone, HandleId, LastWriter, PartitionInput, PartitionOutput},
    slot::{EntityPhase, EntitySlot},
};
use crate::MissingCapability;
use crate::machine::{Activation, PreviousOwner};

/// The first wait before an entity that was lost, or whose actor died, is admitted again.
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// The longest such wait.
const RETRY_MOST: Duration = Duration::from_secs(10);
/// The longest wait before an inbox or a journal is read again that could not be read.
const READ_MOST: Duration = Duration::from_secs(2);
/// How long the inputs of an entity that cannot be served now stay away.
pub(super) const PUT_OFF: Duration = Duration::from_mins(1);
/// How long the inputs of an entity that made room stay away: others have their turn meanwhile.
const GIVES_WAY_FOR: Duration = Duration::from_secs(30);
/// How long an input stays away that was delivered and then not found.
pub(super) const LOOK_AGAIN: Duration = Duration::from_secs(5);

/// One partition at one process.
#[derive(Debug)]
pub struct Partition {
    me: ProcessId,
    /// Whether other processes may own entities of this partition.
    shared: bool,
    pub(super) slots: BTreeMap<EntityId, EntitySlot>,
    pub(super) dead: BTreeSet<ProcessId>,
    last_progress: Timestamp,
    pub(super) cordoned: bool,
    pub(super) draining: bool,
    /// Entities that this process cannot serve, and why.
    pub(super) foreign: BTreeMap<EntityId, MissingCapability>,
    /// Those that no living process can serve, with the time when that was found, until they are
    /// activated once more.
    pub(super) orphans: BTreeMap<EntityId, Timestamp>,
    pub(super) out: Vec<PartitionOutput>,
    /// A bug for the simulator to find.
    #[cfg(feature = "test-util")]
    pub planted: crate::KernelBug,
}

impl Partition {
    /// A partition with nothing under way.
    pub fn new(me: ProcessId, shared: bool, now: Timestamp) -> Self {
        Self {
            me,
            shared,
            slots: BTreeMap::new(),
            dead: BTreeSet::new(),
            last_progress: now,
            cordoned: false,
            draining: false,
            foreign: BTreeMap::new(),
            orphans: BTreeMap::new(),
            out: Vec::new(),
            #[cfg(feature = "test-util")]
            planted: crate::KernelBug::None,
        }
    }

    /// Handles that wait for an answer.
    pub fn handles(&self) -> usize {
        self.slots.values().map(|slot| slot.handles.len()).sum()
    }

    /// Entities that are active or about to be.
    pub fn entities(&self) -> usize {
        self.slots.len()
    }

    /// At most `most` of its entities, and the phase of each in a word.
    pub fn look(&self, most: usize) -> Vec<(EntityId, &'static str)> {
        self.slots.iter().take(most).map(|(entity, slot)| (*entity, slot.phase.name())).collect()
    }

    /// Takes one thing that happened; returns what to do, in order. `now` measures waits: it must
    /// not jump.
    pub fn handle(&mut self, now: Timestamp, input: PartitionInput) -> Vec<PartitionOutput> {
        match input {
            PartitionInput::Delivered { entity, position, handle, redelivered, foremost } => {
                self.delivered(entity, position, foremost, handle, redelivered);
            }
            PartitionInput::Scanned(entities) => {
                for entity in entities {
                    self.scanned(entity);
                }
            }
            PartitionInput::Inbox(entity, after, waiting) => {
                // The answer of a read that was given up: earlier inputs may not have been read
                // since.
                if self.reads(entity, after) {
                    self.inbox(entity, waiting);
                }
            }
            PartitionInput::Aside(entity, position, kept) => self.aside(entity, position, kept),
            PartitionInput::Tail(entity, last) => self.tail(entity, last),
            PartitionInput::ReadFailed(entity) => self.read_failed(now, entity),
            PartitionInput::OwnerSaid(entity, says) => self.owner_said(entity, says),
            PartitionInput::Completed(entity, input) => self.completed(entity, input),
            PartitionInput::Gone(entity, why) => self.gone(now, entity, why),
            PartitionInput::Asked(ask, entity, input, asker) => {
                self.asked(ask, entity, input, asker);
            }
            PartitionInput::Rung(ask, entity, input) => self.rung(ask, entity, input),
            PartitionInput::TooNew(entity, needs) => self.too_new(now, entity, needs),
            PartitionInput::Forwarded(entity, came) => self.forwarded(now, entity, came),
            PartitionInput::Dead(dead) => self.held_dead(dead),
            PartitionInput::Tick => self.tick(now),
            PartitionInput::Cordon(is_cordoned) => self.cordon(is_cordoned),
            PartitionInput::Drain => self.drain(),
        }
        std::mem::take(&mut self.out)
    }

    pub(super) fn slot(&mut self, entity: EntityId) -> &mut EntitySlot {
        self.slots.entry(entity).or_insert_with(|| EntitySlot {
            kind: None,
            phase: EntityPhase::Ringing,
            activation: Activation::Fresh,
            last: None,
            seen: Position(0),
            buffered: Vec::new(),
            open: BTreeMap::new(),
            aside: BTreeSet::new(),
            done: BTreeSet::new(),
            handles: BTreeMap::new(),
            reading: false,
            read_after: Position(0),
            rung: false,
            losses: 0,
            asks: Vec::new(),
            late_asks: Vec::new(),
            asker: None,
        })
    }

    /// An input waits for an entity. If the entity is active and has nothing in hand, it has not
    /// heard of the input: its delivery was lost.
    fn scanned(&mut self, entity: EntityId) {
        match self.slots.get(&entity) {
            Some(slot) if slot.phase == EntityPhase::Active && slot.open.is_empty() => {
                self.ring(entity);
            }
            None if !self.stands_back() => {
                self.slot(entity).recovers();
                self.ring(entity);
            }
            _ => {}
        }
    }

    fn delivered(
        &mut self,
        entity: EntityId,
        position: Position,
        foremost: Option<Arrived>,
        handle: HandleId,
        redelivered: bool,
    ) {
        if self.stands_back() && !self.slots.contains_key(&entity) {
            self.out.push(PartitionOutput::Nak(handle, Duration::ZERO));
            return;
        }
        let slot = self.slot(entity);
        if slot.done.remove(&position) {
            slot.slim();
            self.out.push(PartitionOutput::Ack(handle));
            return;
        }
        let replaced = slot.handles.insert(position, handle);
        if redelivered {
            slot.recovers();
        }
        let unseen = position > slot.seen;
        let is_waiting = slot.phase == EntityPhase::Active && !slot.reading;
        self.out.extend(replaced.map(PartitionOutput::Forget));
        match foremost {
            // A read would show the same. Only for an active entity: if another process had it
            // since, that process has appended, and this activation is fenced by its next append.
            Some(arrived) if unseen && is_waiting => self.inbox(entity, vec![(position, arrived)]),
            _ if unseen => self.ring(entity),
            _ => {}
        }
    }

    pub(super) fn ring(&mut self, entity: EntityId) {
        let slot = self.slot(entity);
        if matches!(slot.phase, EntityPhase::Waiting(_)) {
            return;
        }
        if slot.reading {
            slot.rung = true;
            return;
        }
        slot.reading = true;
        let after = slot.seen;
        slot.read_after = after;
        self.out.push(PartitionOutput::ReadInbox(entity, after));
    }

    /// Whether its inbox is being read from this position on.
    fn reads(&self, entity: EntityId, after: Position) -> bool {
        self.slots.get(&entity).is_some_and(|slot| slot.reading && slot.read_after == after)
    }

    fn inbox(&mut self, entity: EntityId, mut waiting: Vec<(Position, Arrived)>) {
        self.unblock_burial(entity, &mut waiting);
        let Some(slot) = self.slots.get_mut(&entity) else { return };
        slot.reading = false;
        for (position, arrived) in waiting {
            slot.seen = slot.seen.max(position);
            if slot.done.contains(&position) || slot.open.contains_key(&position) {
                continue;
            }
            match arrived {
                Arrived::Input(input) => {
                    slot.learn_kind(&input);
                    slot.open.insert(position, input.id);
                    slot.buffered.push(input);
                }
                Arrived::Foreign { input, needs, .. } => {
                    slot.open.insert(position, input);
                    // It keeps its place: nothing after it is taken before it.
                    self.foreign.insert(entity, needs);
                    break;
                }
                Arrived::Unreadable { bytes, reason } => {
                    if slot.aside.insert(position) {
                        self.out.push(PartitionOutput::SetAside(entity, position, bytes, reason));
                    }
                }
            }
        }
        let foreign = self.foreign.contains_key(&entity);
        match slot.phase {
            // It is read again below.
            EntityPhase::Ringing if slot.open.is_empty() && slot.rung => {}
            // The inputs after those that are put aside are served; until then the entity is held.
            EntityPhase::Ringing if slot.open.is_empty() && !slot.aside.is_empty() => return,
            EntityPhase::Ringing if slot.open.is_empty() => {
                self.leave_empty(entity);
                return;
            }
            EntityPhase::Ringing if foreign => self.forward(entity),
            EntityPhase::Ringing if self.shared => {
                slot.phase = EntityPhase::Admitting;
                self.out.push(PartitionOutput::ReadTail(entity));
            }
            EntityPhase::Ringing => self.activate(entity),
            EntityPhase::Active => self.hand_on(entity),
            EntityPhase::Admitting
            | EntityPhase::Asking { .. }
            | EntityPhase::Forwarding
            | EntityPhase::Waiting(_) => {}
        }
        let Some(slot) = self.slots.get_mut(&entity) else { return };
        if std::mem::take(&mut slot.rung) {
            self.ring(entity);
        }
    }

    fn hand_on(&mut self, entity: EntityId) {
        let Some(slot) = self.slots.get_mut(&entity) else { return };
        let inputs = std::mem::take(&mut slot.buffered);
        #[cfg(feature = "test-util")]
        let inputs = if self.planted == crate::KernelBug::HandsOnBackwards {
            inputs.into_iter().rev().collect()
        } else {
            inputs
        };
        if !inputs.is_empty() {
            self.out.push(PartitionOutput::Deliver(entity, inputs));
        }
        for (ask, input) in std::mem::take(&mut slot.asks) {
            self.out.push(PartitionOutput::AskActor(ask, entity, input));
        }
        slot.asks.append(&mut slot.late_asks);
    }

    fn tail(&mut self, entity: EntityId, last: Option<LastWriter>) {
        let Some(slot) = self.slots.get_mut(&entity) else { return };
        if slot.phase != EntityPhase::Admitting {
            return;
        }
        // A process that released it has no claim on it any more, and may have claimed it again
        // since.
        slot.last = last.filter(|last| !last.released).map(|last| last.process);
        #[cfg(feature = "test-util")]
        let asks = self.planted != crate::KernelBug::NeverAsks;
        #[cfg(not(feature = "test-util"))]
        let asks = true;
        match last {
            Some(last)
                if !last.released
                    && asks
                    && last.process != self.me
                    && !self.dead.contains(&last.process) =>
            {
                slot.phase = EntityPhase::Asking { process: last.process, tries: 0 };
                self.ask(entity);
            }
            _ => self.activate(entity),
        }
    }

    pub(super) fn activate(&mut self, entity: EntityId) {
        if self.stands_back() {
            return self.give_back(entity, Duration::ZERO);
        }
        let Some(slot) = self.slots.get_mut(&entity) else { return };
        // An entity is activated only after one of its inputs was read.
        let Some(kind) = slot.kind else { return self.leave_empty(entity) };
        slot.phase = EntityPhase::Active;
        let activation = slot.activated(self.orphans.remove(&entity).is_some());
        let previous_owner =
            if self.shared { PreviousOwner::Of(slot.last) } else { PreviousOwner::OfAnyone };
        self.out.push(PartitionOutput::Activate(entity, kind, activation, previous_owner));
        self.hand_on(entity);
    }

    pub(super) fn completed(&mut self, entity: EntityId, input: InputId) {
        let Some(slot) = self.slots.get_mut(&entity) else { return };
        let positions: Vec<Position> =
            slot.open.iter().filter(|(_, one)| **one == input).map(|(at, _)| *at).collect();
        for position in positions {
            slot.open.remove(&position);
            slot.losses = 0;
            match slot.handles.remove(&position) {
                Some(handle) => self.out.push(PartitionOutput::Ack(handle)),
                None => {
                    slot.done.insert(position);
                }
            }
        }
        slot.slim();
    }

    pub(super) fn gone(&mut self, now: Timestamp, entity: EntityId, why: Gone) {
        let Some(slot) = self.slots.get_mut(&entity) else { return };
        slot.asks.append(&mut slot.late_asks);
        for (ask, _) in std::mem::take(&mut slot.asks) {
            self.out.push(PartitionOutput::AnswerNotMine(ask));
        }
        // Inputs that the actor had in hand are read again from the start.
        slot.buffered.clear();
        slot.seen = Position(0);
        let first = slot.open.first_key_value().map(|(_, input)| *input);
        let unfinished = !slot.open.is_empty() || slot.rung || slot.reading;
        slot.open.clear();
        // A read that is under way would leave out inputs that are read again.
        (slot.reading, slot.rung) = (false, false);
        slot.recovers();
        match why {
            Gone::Idle if !unfinished && slot.handles.is_empty() => {
                self.slots.remove(&entity);
            }
            Gone::Idle => {
                slot.phase = EntityPhase::Ringing;
                self.ring(entity);
            }
            Gone::Lost | Gone::Died => {
                if why == Gone::Died {
                    slot.activation = Activation::Died;
                }
                let wait = RETRY_FIRST.saturating_mul(1 << slot.losses.min(10)).min(RETRY_MOST);
                slot.losses += 1;
                slot.phase = EntityPhase::Waiting(now.plus(wait));
            }
            Gone::Unservable | Gone::Released | Gone::GaveWay => {
                let delay = match why {
                    Gone::Released => Duration::ZERO,
                    Gone::GaveWay => GIVES_WAY_FOR,
                    _ => PUT_OFF,
                };
                if why == Gone::Released {
                    self.out.extend(slot.rings_for(entity, first));
                }
                self.give_back(entity, delay);
                return;
            }
        }
        self.drained();
    }

    fn read_failed(&mut self, now: Timestamp, entity: EntityId) {
        let Some(slot) = self.slots.get_mut(&entity) else { return };
        slot.reading = false;
        match slot.phase {
            EntityPhase::Active => {
                slot.rung = true;
                slot.asks.append(&mut slot.late_asks);
                let asks = std::mem::take(&mut slot.asks).into_iter();
                self.out.extend(asks.map(|(ask, _)| PartitionOutput::AnswerHeld(ask)));
            }
            EntityPhase::Ringing
            | EntityPhase::Admitting
            | EntityPhase::Asking { .. }
            | EntityPhase::Forwarding
            | EntityPhase::Waiting(_) => {
                slot.buffered.clear();
                slot.open.clear();
                slot.seen = Position(0);
                let wait = RETRY_FIRST.saturating_mul(1 << slot.losses.min(10)).min(READ_MOST);
                slot.losses += 1;
                slot.phase = EntityPhase::Waiting(now.plus(wait));
            }
        }
    }

    fn tick(&mut self, now: Timestamp) {
        self.orphans.retain(|_, since| now.since(*since) < ORPHAN_FOR);
        let progress = now.since(self.last_progress) >= ACK_PROGRESS;
        if progress {
            self.last_progress = now;
        }
        let mut again = Vec::new();
        for (entity, slot) in &mut self.slots {
            if progress {
                self.out.extend(slot.handles.values().copied().map(PartitionOutput::Progress));
            }
            match slot.phase {
                EntityPhase::Waiting(until) if now >= until => {
                    slot.phase = EntityPhase::Ringing;
                    slot.reading = false;
                    again.push(*entity);
                }
                EntityPhase::Active if slot.rung && !slot.reading => again.push(*entity),
                EntityPhase::Active if progress => {
                    if let Some(unseen) = slot.unseen() {
                        // Never further: earlier inputs may not have been read either.
                        slot.seen = slot.seen.min(Position(unseen.0.saturating_sub(1)));
                        again.push(*entity);
                    }
                }
                _ => {}
            }
        }
        for entity in again {
            // An active entity has an actor, which ends first, with what it has under way.
            let is_active = |slot: &EntitySlot| slot.phase == EntityPhase::Active;
            if self.draining && !self.slots.get(&entity).is_some_and(is_active) {
                self.gone(now, entity, Gone::Released);
            } else {
                self.ring(entity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Input, Kind,
        session::{SessionInput, UserMessage},
    };

    use super::*;

    const NOW: Timestamp = Timestamp(0);

    fn input(number: u64) -> Input {
        let name = format!("k{number}").parse().unwrap();
        let message = SessionInput::UserMessage(UserMessage::text("hello".to_owned()));
        Input::new(Kind::SESSION, "main:web:a:b", name, NOW, &message).unwrap()
    }

    fn entity() -> EntityId {
        input(0).entity
    }

    /// The delivery of input `number`, which says that nothing is before it if `foremost`.
    fn deliver(partition: &mut Partition, number: u64, foremost: bool) -> Vec<PartitionOutput> {
        let (entity, position, handle) = (entity(), Position(number), HandleId(number));
        let foremost = foremost.then(|| Arrived::Input(input(number)));
        let delivered =
            PartitionInput::Delivered { entity, position, handle, redelivered: false, foremost };
        partition.handle(NOW, delivered)
    }

    fn inbox(partition: &mut Partition, numbers: &[u64]) -> Vec<PartitionOutput> {
        let waiting = numbers.iter().map(|n| (Position(*n), Arrived::Input(input(*n))));
        let after = partition.slots.get(&entity()).map_or(Position(0), |slot| slot.read_after);
        partition.handle(NOW, PartitionInput::Inbox(entity(), after, waiting.collect()))
    }

    /// A partition whose entity is active and has done its first input.
    fn active() -> Partition {
        let mut partition = Partition::new(ProcessId::from_u128(1), false, NOW);
        deliver(&mut partition, 1, true);
        let out = inbox(&mut partition, &[1]);
        assert!(
            matches!(out[..], [PartitionOutput::Activate(..), PartitionOutput::Deliver(..)]),
            "{out:?}"
        );
        let out = partition.handle(NOW, PartitionInput::Completed(entity(), input(1).id));
        assert_eq!(out, [PartitionOutput::Ack(HandleId(1))]);
        partition
    }

    #[test]
    fn whoever_is_active_is_handed_what_nothing_is_before() {
        let mut partition = active();
        let out = deliver(&mut partition, 2, true);
        assert_eq!(out, [PartitionOutput::Deliver(entity(), vec![input(2)])]);
        let out = partition.handle(NOW, PartitionInput::Completed(entity(), input(2).id));
        assert_eq!(out, [PartitionOutput::Ack(HandleId(2))]);
    }

    #[test]
    fn whoever_is_not_active_reads_its_inbox_first() {
        let mut partition = Partition::new(ProcessId::from_u128(1), true, NOW);
        let out = deliver(&mut partition, 1, true);
        assert_eq!(out, [PartitionOutput::ReadInbox(entity(), Position(0))]);
    }

    #[test]
    fn what_may_have_something_before_it_is_read_in_order() {
        let mut partition = active();
        let out = deliver(&mut partition, 3, false);
        assert_eq!(out, [PartitionOutput::ReadInbox(entity(), Position(1))]);
        // A read is under way: it decides what comes first.
        assert_eq!(deliver(&mut partition, 4, true), []);
        let out = inbox(&mut partition, &[2, 3]);
        let both = PartitionOutput::Deliver(entity(), vec![input(2), input(3)]);
        assert_eq!(out, [both, PartitionOutput::ReadInbox(entity(), Position(3))]);
    }

    #[test]
    fn a_scan_finds_what_was_not_delivered_to_whoever_is_active() {
        let scan = || PartitionInput::Scanned(vec![entity()]);
        let mut partition = active();
        let out = partition.handle(NOW, scan());
        assert_eq!(out, [PartitionOutput::ReadInbox(entity(), Position(1))]);
        assert_eq!(partition.handle(NOW, scan()), [], "it is being read");
        let out = inbox(&mut partition, &[2]);
        assert_eq!(out[0], PartitionOutput::Deliver(entity(), vec![input(2)]));
        inbox(&mut partition, &[]);
        assert_eq!(partition.handle(NOW, scan()), [], "it is in hand");
    }

    /// A read was under way when another one failed: its answer leaves out earlier inputs.
    #[test]
    fn a_late_answer_does_not_let_what_came_later_go_first() {
        let mut partition = Partition::new(ProcessId::from_u128(1), true, NOW);
        deliver(&mut partition, 1, false);
        inbox(&mut partition, &[1]);
        let out = deliver(&mut partition, 2, false);
        assert_eq!(out, [PartitionOutput::ReadInbox(entity(), Position(1))]);
        // The tail cannot be read, so all begins again.
        assert_eq!(partition.handle(NOW, PartitionInput::ReadFailed(entity())), []);
        let second = || vec![(Position(2), Arrived::Input(input(2)))];
        let late = || PartitionInput::Inbox(entity(), Position(1), second());
        assert_eq!(partition.handle(NOW, late()), []);
        let out = partition.handle(Timestamp(60_000), PartitionInput::Tick);
        let again = PartitionOutput::ReadInbox(entity(), Position(0));
        assert!(out.contains(&again), "{out:?}");
        assert_eq!(partition.handle(NOW, late()), []);
        assert_eq!(inbox(&mut partition, &[1, 2]), [PartitionOutput::ReadTail(entity())]);
        let out = partition.handle(NOW, PartitionInput::Tail(entity(), None));
        let [PartitionOutput::Activate(..), PartitionOutput::Deliver(_, inputs)] = &out[..] else {
            panic!("{out:?}")
        };
        assert_eq!(*inputs, [input(1), input(2)]);
    }

    /// The inbox was being read when its actor was lost: the answer leaves out what the actor had.
    #[test]
    fn a_read_for_an_actor_that_is_lost_does_not_let_what_came_later_go_first() {
        for why in [Gone::Lost, Gone::Died] {
            let mut partition = active();
            deliver(&mut partition, 2, false);
            inbox(&mut partition, &[2]);
            let out = deliver(&mut partition, 3, false);
            assert_eq!(out, [PartitionOutput::ReadInbox(entity(), Position(2))]);
            assert_eq!(partition.handle(NOW, PartitionInput::Gone(entity(), why)), []);
            let third = vec![(Position(3), Arrived::Input(input(3)))];
            assert_eq!(
                partition.handle(NOW, PartitionInput::Inbox(entity(), Position(2), third)),
                []
            );
            let out = partition.handle(Timestamp(60_000), PartitionInput::Tick);
            let again = PartitionOutput::ReadInbox(entity(), Position(0));
            assert!(out.contains(&again), "{out:?}");
        }
    }

    /// A drain does not give up an active entity because its inbox cannot be read meanwhile.
    #[test]
    fn a_failed_read_gives_up_nobody_who_is_active_while_draining() {
        let mut partition = active();
        deliver(&mut partition, 2, false);
        assert_eq!(partition.handle(NOW, PartitionInput::Drain), []);
        partition.handle(NOW, PartitionInput::ReadFailed(entity()));
        let out = partition.handle(NOW, PartitionInput::Tick);
        assert_eq!(out, [PartitionOutput::ReadInbox(entity(), Position(1))]);
        let out = partition.handle(NOW, PartitionInput::Gone(entity(), Gone::Released));
        assert!(out.contains(&PartitionOutput::Drained), "{out:?}");
    }

    /// An input whose delivery was lost is not skipped when later inputs are looked for again.
    #[test]
    fn a_look_for_what_was_not_read_begins_where_reading_ended() {
        let mut partition = active();
        // The second input was not delivered.
        let read = PartitionOutput::ReadInbox(entity(), Position(1));
        assert_eq!(deliver(&mut partition, 3, false), [read]);
        partition.handle(Timestamp(60_000), PartitionInput::Tick);
        partition.handle(Timestamp(60_000), PartitionInput::ReadFailed(entity()));
        let out = partition.handle(Timestamp(60_001), PartitionInput::Tick);
        assert_eq!(out, [PartitionOutput::ReadInbox(entity(), Position(1))]);
    }

    #[test]
    fn who_released_an_entity_is_asked_again_before_it_is_claimed_from() {
        // It may have claimed it again since the tail was read, and be in the middle of a call.
        let owner = ProcessId::from_u128(2);
        let mut partition = Partition::new(ProcessId::from_u128(1), true, NOW);
        deliver(&mut partition, 1, false);
        inbox(&mut partition, &[1]);
        let released = LastWriter { process: owner, released: true };
        let out = partition.handle(NOW, PartitionInput::Tail(entity(), Some(released)));
        let [PartitionOutput::Activate(_, _, _, previous_owner), PartitionOutput::Deliver(..)] =
            &out[..]
        else {
            panic!("{out:?}")
        };
        assert_eq!(*previous_owner, PreviousOwner::Of(None));
        // The owner until its death is named.
        let mut partition = Partition::new(ProcessId::from_u128(1), true, NOW);
        partition.handle(NOW, PartitionInput::Dead(BTreeSet::from([owner])));
        deliver(&mut partition, 1, false);
        inbox(&mut partition, &[1]);
        let died = LastWriter { process: owner, released: false };
        let out = partition.handle(NOW, PartitionInput::Tail(entity(), Some(died)));
        let [PartitionOutput::Activate(_, _, _, previous_owner), PartitionOutput::Deliver(..)] =
            &out[..]
        else {
            panic!("{out:?}")
        };
        assert_eq!(*previous_owner, PreviousOwner::Of(Some(owner)));
    }

    #[test]
    fn what_was_read_already_is_not_handed_on_again() {
        let mut partition = active();
        deliver(&mut partition, 2, false);
        inbox(&mut partition, &[2, 3]);
        assert_eq!(deliver(&mut partition, 3, true), []);
    }
}
