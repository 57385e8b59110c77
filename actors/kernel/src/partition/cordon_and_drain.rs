//! Cordon and drain: taking no more entities, answering others that ask for one, and giving
//! entities back.

use std::time::Duration;

use clawnode_proto::{EntityId, InputId, ProcessId};

use super::{
    Partition,
    io::{AskId, PartitionOutput},
    slot::{EntityPhase, EntitySlot},
};

impl Partition {
    /// Whether it takes no more entities.
    pub(super) const fn stands_back(&self) -> bool {
        self.cordoned || self.draining
    }

    pub(super) fn asked(
        &mut self,
        ask: AskId,
        entity: EntityId,
        input: InputId,
        asker: Option<ProcessId>,
    ) {
        match self.slots.get_mut(&entity) {
            Some(slot) if slot.phase == EntityPhase::Active => {
                slot.asker = asker.map(|process| (process, input)).or(slot.asker);
                if slot.open.values().any(|one| *one == input) {
                    // Only the first waiting input is asked about: others may have come after it,
                    // which are delivered to the asker alone.
                    self.out.push(PartitionOutput::AskActor(ask, entity, input));
                    return self.ring(entity);
                }
                let mut unanswered = slot.asks.iter().chain(&slot.late_asks);
                if slot.is_unreadable() || unanswered.any(|(_, one)| *one == input) {
                    // The inbox cannot be read now. Its owner lives nevertheless, and looks after
                    // the input as soon as it can: no other process needs to claim the entity.
                    self.out.push(PartitionOutput::AnswerHeld(ask));
                    return self.ring(entity);
                }
                // The question is also a signal: the input is read before the answer.
                let asks = if slot.reading { &mut slot.late_asks } else { &mut slot.asks };
                asks.push((ask, input));
                self.ring(entity);
            }
            _ => self.out.push(PartitionOutput::AnswerNotMine(ask)),
        }
    }

    /// Leaves an entity to its new owner.
    pub(super) fn forget(&mut self, entity: EntityId) {
        if let Some(slot) = self.slots.remove(&entity) {
            self.out.extend(slot.handles.into_values().map(PartitionOutput::Forget));
        }
    }

    /// Leaves an entity to the process that it is delivered to after `delay`.
    pub(super) fn give_back(&mut self, entity: EntityId, delay: Duration) {
        if let Some(slot) = self.slots.remove(&entity) {
            self.out.extend(slot.handles.into_values().map(|one| PartitionOutput::Nak(one, delay)));
        }
        self.drained();
    }

    pub(super) fn cordon(&mut self, is_cordoned: bool) {
        self.cordoned = is_cordoned;
        if is_cordoned {
            self.give_back_idle();
        }
    }

    pub(super) fn drain(&mut self) {
        self.draining = true;
        self.give_back_idle();
        self.drained();
    }

    fn give_back_idle(&mut self) {
        let idle: Vec<EntityId> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.phase != EntityPhase::Active)
            .map(|(entity, _)| *entity)
            .collect();
        for entity in idle {
            if let Some(slot) = self.slots.remove(&entity) {
                self.out.extend(
                    slot.handles.into_values().map(|one| PartitionOutput::Nak(one, Duration::ZERO)),
                );
            }
        }
    }

    pub(super) fn drained(&mut self) {
        if self.draining && self.slots.is_empty() {
            self.out.push(PartitionOutput::Drained);
        }
    }
}

impl EntitySlot {
    /// The process to notify that the entity was given up while `first` waits.
    pub(super) fn rings_for(
        &self,
        entity: EntityId,
        first: Option<InputId>,
    ) -> Option<PartitionOutput> {
        match (self.asker, first) {
            // That process was answered `held`, so its own delivery comes again much later.
            (Some((process, input)), _) => Some(PartitionOutput::Ring(process, entity, input)),
            // It was given up before a process asked. An input that a scan found has no delivery to
            // give back, so only the next scan elsewhere would find it.
            (None, Some(input)) => Some(PartitionOutput::RingNext(entity, input)),
            (None, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Input, Kind, Position, SessionKey, Timestamp,
        session::{SessionInput, UserMessage},
    };

    use super::*;
    use crate::partition::{Arrived, Gone, LastWriter, PartitionInput};

    const NOW: Timestamp = Timestamp(0);

    /// An entity that is active because a scan found it: there is no delivery to give back.
    fn scanned() -> (Partition, Input) {
        let key: SessionKey = "main:web:a:b".parse().unwrap();
        let message = SessionInput::UserMessage(UserMessage::text("hello".to_owned()));
        let name = "k".parse().unwrap();
        let input = Input::new(Kind::SESSION, &key.to_string(), name, NOW, &message).unwrap();
        let mut partition = Partition::new(ProcessId::from_u128(1), true, NOW);
        partition.handle(NOW, PartitionInput::Scanned(vec![input.entity]));
        let read = vec![(Position(1), Arrived::Input(input.clone()))];
        partition.handle(NOW, PartitionInput::Inbox(input.entity, Position(0), read));
        let released = LastWriter { process: ProcessId::from_u128(2), released: true };
        partition.handle(NOW, PartitionInput::Tail(input.entity, Some(released)));
        partition.handle(NOW, PartitionInput::Drain);
        (partition, input)
    }

    #[test]
    fn what_nobody_asked_for_is_announced_when_it_is_given_up() {
        let (mut partition, input) = scanned();
        let out = partition.handle(NOW, PartitionInput::Gone(input.entity, Gone::Released));
        assert_eq!(
            out,
            [PartitionOutput::RingNext(input.entity, input.id), PartitionOutput::Drained]
        );
        // With nothing left to do, no process is notified.
        let (mut partition, input) = scanned();
        partition.handle(NOW, PartitionInput::Completed(input.entity, input.id));
        let out = partition.handle(NOW, PartitionInput::Gone(input.entity, Gone::Released));
        assert_eq!(out, [PartitionOutput::Drained]);
    }

    /// An entity that is active and has nothing in hand.
    fn active() -> (Partition, Input) {
        let (_, input) = scanned();
        let mut partition = Partition::new(ProcessId::from_u128(1), false, NOW);
        partition.handle(NOW, PartitionInput::Scanned(vec![input.entity]));
        let read = vec![(Position(1), Arrived::Input(input.clone()))];
        partition.handle(NOW, PartitionInput::Inbox(input.entity, Position(0), read));
        partition.handle(NOW, PartitionInput::Completed(input.entity, input.id));
        (partition, input)
    }

    #[test]
    fn an_owner_answers_though_its_inbox_cannot_be_read() {
        let asker = Some(ProcessId::from_u128(3));
        let other = |n: u128| clawnode_proto::InputId::from_u128(n);
        let (mut partition, input) = active();
        let entity = input.entity;
        let out = partition.handle(NOW, PartitionInput::Asked(AskId(1), entity, other(1), asker));
        assert_eq!(
            out,
            [PartitionOutput::ReadInbox(entity, Position(1))],
            "what is new is read first"
        );
        // The read lasts, and it is asked again.
        let out = partition.handle(NOW, PartitionInput::Asked(AskId(2), entity, other(1), asker));
        assert_eq!(out, [PartitionOutput::AnswerHeld(AskId(2))]);
        // It fails: every caller gets an answer, now and while it is tried again.
        let out = partition.handle(NOW, PartitionInput::ReadFailed(entity));
        assert_eq!(out, [PartitionOutput::AnswerHeld(AskId(1))]);
        let out = partition.handle(NOW, PartitionInput::Asked(AskId(3), entity, other(2), asker));
        assert_eq!(
            out,
            [
                PartitionOutput::AnswerHeld(AskId(3)),
                PartitionOutput::ReadInbox(entity, Position(1))
            ]
        );
        // It can be read again: the actor knows best.
        partition.handle(NOW, PartitionInput::Inbox(entity, Position(1), Vec::new()));
        partition.handle(NOW, PartitionInput::Asked(AskId(4), entity, other(2), asker));
        partition.handle(NOW, PartitionInput::Inbox(entity, Position(1), Vec::new()));
        let out = partition.handle(NOW, PartitionInput::Inbox(entity, Position(1), Vec::new()));
        assert_eq!(out, [PartitionOutput::AskActor(AskId(4), entity, other(2))]);
    }

    #[test]
    fn what_is_in_hand_is_answered_for_before_what_is_behind_it_is_read() {
        let (mut partition, first) = active();
        let name = "k2".parse().unwrap();
        let message = SessionInput::UserMessage(UserMessage::text("again".to_owned()));
        let second = Input::new(Kind::SESSION, &first.key, name, NOW, &message).unwrap();
        partition.handle(NOW, PartitionInput::Scanned(vec![first.entity]));
        let read = vec![(Position(2), Arrived::Input(second.clone()))];
        partition.handle(NOW, PartitionInput::Inbox(first.entity, Position(1), read));
        let out =
            partition.handle(NOW, PartitionInput::Asked(AskId(1), first.entity, second.id, None));
        let answer = PartitionOutput::AskActor(AskId(1), first.entity, second.id);
        assert_eq!(out, [answer, PartitionOutput::ReadInbox(first.entity, Position(2))]);
    }

    #[test]
    fn who_asked_is_told_rather_than_who_is_next() {
        let (mut partition, input) = scanned();
        let asker = ProcessId::from_u128(3);
        let question = PartitionInput::Asked(AskId(7), input.entity, input.id, Some(asker));
        let out = partition.handle(NOW, question);
        assert_eq!(out[0], PartitionOutput::AskActor(AskId(7), input.entity, input.id));
        let out = partition.handle(NOW, PartitionInput::Gone(input.entity, Gone::Released));
        assert_eq!(
            out,
            [PartitionOutput::Ring(asker, input.entity, input.id), PartitionOutput::Drained]
        );
    }
}
