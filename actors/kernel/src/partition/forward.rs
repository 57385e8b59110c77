//! Entities that this process cannot serve, because a newer build wrote to them: it asks another
//! process to. Until one can, their inputs stay in the inbox.

use std::time::Duration;

use clawnode_proto::{EntityId, InputId, Timestamp};

use super::{
    Partition,
    io::{AskId, Forwarded, Gone, PartitionOutput},
    slot::EntityPhase,
};
use crate::MissingCapability;

/// Entities of one partition that are known to be for other processes; beyond it a journal is read
/// once more.
const FOREIGN_MAX: usize = 4_096;
/// How long it counts that no living process can serve an entity: its inputs come again sooner.
pub(super) const ORPHAN_FOR: Duration = Duration::from_secs(20);
/// How long an input stays away after another process was notified of it: by then that one has it.
const RUNG_AGAIN: Duration = Duration::from_secs(2);
/// How long an input stays away that no living process can serve. After that time it reaches a node
/// that has come.
const NOT_NOW_AGAIN: Duration = Duration::from_secs(10);

impl Partition {
    /// The entity's actor found out that it is not for this process.
    pub(super) fn too_new(&mut self, now: Timestamp, entity: EntityId, needs: MissingCapability) {
        if self.foreign.len() >= FOREIGN_MAX {
            self.foreign.pop_first();
        }
        self.foreign.insert(entity, needs);
        // Waiting inputs are read again, and forwarded.
        self.gone(now, entity, Gone::Idle);
    }

    /// Forwards the first waiting input: the other process reads the rest by itself.
    pub(super) fn forward(&mut self, entity: EntityId) {
        if self.stands_back() {
            return self.give_back(entity, Duration::ZERO);
        }
        let (Some(slot), Some(needs)) = (self.slots.get_mut(&entity), self.foreign.get(&entity))
        else {
            return;
        };
        let Some((_, &input)) = slot.open.first_key_value() else { return self.forget(entity) };
        slot.phase = EntityPhase::Forwarding;
        self.out.push(PartitionOutput::Forward(entity, input, needs.clone()));
    }

    /// Another process was asked to serve it; this is the result.
    pub(super) fn forwarded(&mut self, now: Timestamp, entity: EntityId, came: Forwarded) {
        self.orphans.remove(&entity);
        let Some(slot) = self.slots.get(&entity) else { return };
        if slot.phase != EntityPhase::Forwarding {
            return;
        }
        let first = slot.open.first_key_value().map(|(_, input)| *input);
        match came {
            Forwarded::Held => self.forget(entity),
            Forwarded::Completed => {
                if let Some(input) = first {
                    self.completed(entity, input);
                }
                self.forward(entity);
            }
            Forwarded::Rung => self.give_back(entity, RUNG_AGAIN),
            Forwarded::NotNow | Forwarded::Orphan => {
                // Its journal may have become readable here: it was deleted, or a snapshot replaced it.
                self.foreign.remove(&entity);
                if came == Forwarded::Orphan && self.orphans.len() < FOREIGN_MAX {
                    self.orphans.insert(entity, now);
                }
                self.give_back(entity, NOT_NOW_AGAIN);
            }
        }
    }

    /// Another process wants the entity to be served here.
    pub(super) fn rung(&mut self, ask: AskId, entity: EntityId, input: InputId) {
        let active = self.slots.get(&entity).is_some_and(|slot| slot.phase == EntityPhase::Active);
        if active {
            return self.asked(ask, entity, input, None);
        }
        if self.stands_back() || self.foreign.contains_key(&entity) {
            return self.out.push(PartitionOutput::AnswerNotMine(ask));
        }
        let fresh = !self.slots.contains_key(&entity);
        let slot = self.slot(entity);
        slot.recovers();
        match slot.phase {
            // The owner that is being asked has just given it up, which the tail says sooner.
            EntityPhase::Asking { .. } => {
                slot.phase = EntityPhase::Admitting;
                self.out.push(PartitionOutput::ReadTail(entity));
            }
            EntityPhase::Waiting(_) => {
                slot.phase = EntityPhase::Ringing;
                slot.reading = false;
                self.ring(entity);
            }
            _ if fresh => self.ring(entity),
            _ => {}
        }
        self.out.push(PartitionOutput::AnswerRung(ask));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use clawnode_proto::{
        Digest, Input, Kind, Order, Position, ProcessId, SessionKey,
        session::{SessionInput, UserMessage},
    };

    use super::*;
    use crate::{
        Activation,
        partition::{Arrived, HandleId, PartitionInput},
    };

    const NOW: Timestamp = Timestamp(0);

    fn input(number: u32) -> Input {
        let key: SessionKey = "main:web:a:b".parse().unwrap();
        let name = format!("k{number}").parse().unwrap();
        let message = SessionInput::UserMessage(UserMessage::text("hello".to_owned()));
        Input::new(Kind::SESSION, &key.to_string(), name, NOW, &message).unwrap()
    }

    fn partition() -> Partition {
        Partition::new(ProcessId::from_u128(1), true, NOW)
    }

    fn deliver(partition: &mut Partition, entity: EntityId, handle: u64) -> Vec<PartitionOutput> {
        let position = Position(handle);
        let (handle, redelivered, foremost) = (HandleId(handle), false, None);
        partition.handle(
            NOW,
            PartitionInput::Delivered { entity, position, handle, redelivered, foremost },
        )
    }

    /// An input of an envelope that no build here can read.
    fn newer(input: &Input) -> Arrived {
        Arrived::Foreign {
            input: input.id,
            needs: MissingCapability::Input(9),
            bytes: Bytes::new(),
        }
    }

    /// A partition that has found out that the entity of `input` is not for it.
    fn foreign(input: &Input) -> (Partition, Vec<PartitionOutput>) {
        let (mut partition, entity) = (partition(), input.entity);
        deliver(&mut partition, entity, 1);
        partition.handle(
            NOW,
            PartitionInput::Inbox(
                entity,
                Position(0),
                vec![(Position(1), Arrived::Input(input.clone()))],
            ),
        );
        partition.handle(NOW, PartitionInput::Tail(entity, None));
        let needs = MissingCapability::Event("new".to_owned());
        let out = partition.handle(NOW, PartitionInput::TooNew(entity, needs.clone()));
        assert_eq!(out, [PartitionOutput::ReadInbox(entity, Position(0))]);
        let out = partition.handle(
            NOW,
            PartitionInput::Inbox(
                entity,
                Position(0),
                vec![(Position(1), Arrived::Input(input.clone()))],
            ),
        );
        assert_eq!(out, [PartitionOutput::Forward(entity, input.id, needs)]);
        (partition, out)
    }

    #[test]
    fn what_cannot_be_read_is_forwarded_and_acknowledged_once_the_other_is_done() {
        let input = input(1);
        let (mut partition, _) = foreign(&input);
        let came = PartitionInput::Forwarded(input.entity, Forwarded::Completed);
        let out = partition.handle(NOW, came);
        assert_eq!(out, [PartitionOutput::Ack(HandleId(1))]);
        assert_eq!(partition.entities(), 0);
        // From now on this is known: the journal is not folded again only to find out.
        deliver(&mut partition, input.entity, 2);
        let read = PartitionInput::Inbox(
            input.entity,
            Position(0),
            vec![(Position(2), Arrived::Input(input.clone()))],
        );
        let out = partition.handle(NOW, read);
        assert!(matches!(out[..], [PartitionOutput::Forward(..)]), "{out:?}");
    }

    #[test]
    fn what_nobody_can_read_stays_in_the_inbox() {
        let input = input(1);
        for (came, wait) in [(Forwarded::NotNow, NOT_NOW_AGAIN), (Forwarded::Rung, RUNG_AGAIN)] {
            let (mut partition, _) = foreign(&input);
            let out = partition.handle(NOW, PartitionInput::Forwarded(input.entity, came));
            assert_eq!(out, [PartitionOutput::Nak(HandleId(1), wait)]);
            assert_eq!(partition.entities(), 0);
        }
        let (mut partition, _) = foreign(&input);
        let out = partition.handle(NOW, PartitionInput::Forwarded(input.entity, Forwarded::Held));
        assert_eq!(out, [PartitionOutput::Forget(HandleId(1))], "its owner has it; it comes again");
    }

    #[test]
    fn what_nobody_alive_can_read_is_activated_as_an_orphan_once() {
        let input = input(1);
        let (mut partition, _) = foreign(&input);
        partition.handle(NOW, PartitionInput::Forwarded(input.entity, Forwarded::Orphan));
        assert_eq!(activation(&mut partition, &input), Activation::Orphan);
        assert_eq!(activation(&mut partition, &input), Activation::Fresh);
    }

    /// A process that can may have come, or it takes nothing now.
    #[test]
    fn who_may_be_read_by_another_is_no_orphan() {
        let input = input(1);
        let (mut partition, _) = foreign(&input);
        partition.handle(NOW, PartitionInput::Forwarded(input.entity, Forwarded::NotNow));
        assert_eq!(activation(&mut partition, &input), Activation::Fresh);
        let (mut partition, _) = foreign(&input);
        partition.handle(NOW, PartitionInput::Forwarded(input.entity, Forwarded::Orphan));
        partition.handle(Timestamp(NOW.plus(ORPHAN_FOR).0 - 1), PartitionInput::Tick);
        assert_eq!(partition.orphans.len(), 1);
        partition.handle(NOW.plus(ORPHAN_FOR), PartitionInput::Tick);
        assert_eq!(activation(&mut partition, &input), Activation::Fresh);
    }

    /// How its entity is activated when this input comes; it is given up at once.
    fn activation(partition: &mut Partition, input: &Input) -> Activation {
        deliver(partition, input.entity, 1);
        let waiting = vec![(Position(1), Arrived::Input(input.clone()))];
        partition.handle(NOW, PartitionInput::Inbox(input.entity, Position(0), waiting));
        let out = partition.handle(NOW, PartitionInput::Tail(input.entity, None));
        let Some(PartitionOutput::Activate(_, _, activation, _)) = out.first() else {
            panic!("{out:?}")
        };
        let activation = *activation;
        partition.handle(NOW, PartitionInput::Gone(input.entity, Gone::Released));
        activation
    }

    #[test]
    fn an_input_for_newer_readers_is_forwarded_with_what_follows_it() {
        let (new, plain) = (input(1), input(2));
        let (mut partition, entity) = (partition(), new.entity);
        deliver(&mut partition, entity, 1);
        let read = vec![(Position(1), newer(&new)), (Position(2), Arrived::Input(plain))];
        let out = partition.handle(NOW, PartitionInput::Inbox(entity, Position(0), read));
        assert_eq!(out, [PartitionOutput::Forward(entity, new.id, MissingCapability::Input(9))]);
    }

    /// It is kept whole as a dead letter, and the entity goes with all else that waits.
    #[test]
    fn what_nobody_alive_can_read_holds_up_no_burial() {
        let new = input(1);
        let entity = new.entity;
        let order =
            |order| Arrived::Input(Input::order(new.kind, entity, Digest::ZERO, NOW, order));
        let comes = |partition: &mut Partition, order| {
            deliver(partition, entity, 1);
            let read = vec![(Position(1), newer(&new)), (Position(2), order)];
            partition.handle(NOW, PartitionInput::Inbox(entity, Position(0), read))
        };
        let forward = [PartitionOutput::Forward(entity, new.id, MissingCapability::Input(9))];
        let mut partition = partition();
        // There may be a process that takes both.
        assert_eq!(comes(&mut partition, order(Order::Bury)), forward);
        partition.handle(NOW, PartitionInput::Forwarded(entity, Forwarded::NotNow));
        assert_eq!(comes(&mut partition, order(Order::Bury)), forward);
        partition.handle(NOW, PartitionInput::Forwarded(entity, Forwarded::Orphan));
        // Back in service, it would be served by a newer build.
        assert_eq!(comes(&mut partition, order(Order::Restore)), forward);
        partition.handle(NOW, PartitionInput::Forwarded(entity, Forwarded::Orphan));
        let out = comes(&mut partition, order(Order::Bury));
        let Some((PartitionOutput::SetAside(_, Position(1), _, reason), rest)) = out.split_first()
        else {
            panic!("{out:?}")
        };
        assert!(reason.contains("input v9"), "{reason}");
        assert_eq!(rest, [PartitionOutput::ReadTail(entity)], "the order is served");
    }

    #[test]
    fn who_is_rung_looks_after_the_entity_unless_it_stands_back() {
        let input = input(1);
        let rung = || PartitionInput::Rung(AskId(7), input.entity, input.id);
        let mut partition = partition();
        let out = partition.handle(NOW, rung());
        assert_eq!(
            out,
            [
                PartitionOutput::ReadInbox(input.entity, Position(0)),
                PartitionOutput::AnswerRung(AskId(7))
            ]
        );
        partition.handle(NOW, PartitionInput::Cordon(true));
        assert_eq!(partition.handle(NOW, rung()), [PartitionOutput::AnswerNotMine(AskId(7))]);
        partition.handle(NOW, PartitionInput::Cordon(false));
        partition.handle(NOW, PartitionInput::TooNew(input.entity, MissingCapability::Input(2)));
        assert_eq!(partition.handle(NOW, rung()), [PartitionOutput::AnswerNotMine(AskId(7))]);
    }
}
