//! Inbox entries that no build can read as an input.

use clawnode_proto::{EntityId, Order, Position};

use super::{
    dispatch::{LOOK_AGAIN, PUT_OFF, Partition},
    io::{Arrived, PartitionOutput},
    slot::EntityPhase,
};

impl Partition {
    /// An entry was put aside whole, so the inbox may forget it; or it could not be.
    pub(super) fn aside(&mut self, entity: EntityId, position: Position, kept: bool) {
        let Some(slot) = self.slots.get_mut(&entity) else { return };
        slot.aside.remove(&position);
        let handle = slot.handles.remove(&position);
        match (kept, handle) {
            (true, Some(handle)) => self.out.push(PartitionOutput::Ack(handle)),
            (true, None) => drop(slot.done.insert(position)),
            // Delivered again, it is read again.
            (false, handle) => {
                self.out.extend(handle.map(|one| PartitionOutput::Nak(one, PUT_OFF)));
            }
        }
        self.after_aside(entity);
    }

    /// A deletion does not wait for a build that is not in use. An input that no living process can
    /// read is put aside if an order to delete its entity waits as well.
    pub(super) fn unblock_burial(&self, entity: EntityId, waiting: &mut [(Position, Arrived)]) {
        let is_ordered = waiting.iter().any(|(_, arrived)| match arrived {
            Arrived::Input(input) => input.order == Some(Order::Bury),
            Arrived::Foreign { .. } | Arrived::Unreadable { .. } => false,
        });
        if !is_ordered || !self.orphans.contains_key(&entity) {
            return;
        }
        for (_, arrived) in waiting {
            if let Arrived::Foreign { needs, bytes, .. } = arrived {
                let reason =
                    format!("no living process can read it ({needs}), and its entity goes");
                *arrived = Arrived::Unreadable { bytes: std::mem::take(bytes), reason };
            }
        }
    }

    /// The entry that rang is gone, or the read is old. Absence proves nothing, so it is given
    /// back: if it is really gone, it does not come again.
    pub(super) fn leave_empty(&mut self, entity: EntityId) {
        let Some(slot) = self.slots.remove(&entity) else { return };
        let handles = slot.handles.into_values();
        #[cfg(feature = "test-util")]
        if self.planted == crate::KernelBug::AckWhenAbsent {
            self.out.extend(handles.map(PartitionOutput::Ack));
            return;
        }
        self.out.extend(handles.map(|one| PartitionOutput::Nak(one, LOOK_AGAIN)));
        self.drained();
    }

    /// Nothing is being put aside any more: continues if the entity waited only for that.
    fn after_aside(&mut self, entity: EntityId) {
        let Some(slot) = self.slots.get(&entity) else { return };
        let empty = slot.open.is_empty() && slot.aside.is_empty();
        if slot.phase == EntityPhase::Ringing && empty && !slot.reading && !slot.rung {
            self.leave_empty(entity);
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use clawnode_proto::{
        Input, InputId, Kind, ProcessId, SessionKey, Timestamp, session::SessionInput,
    };

    use super::*;
    use crate::{
        MissingCapability,
        partition::{HandleId, PartitionInput},
    };

    const AT: Timestamp = Timestamp(0);

    fn entity() -> EntityId {
        EntityId::derive(Kind::SESSION, "main:web:a:b")
    }

    fn unreadable() -> Arrived {
        Arrived::Unreadable { bytes: Bytes::from_static(b"?"), reason: "no input".to_owned() }
    }

    /// A partition that asked for an inbox whose first position was delivered.
    fn rung() -> Partition {
        let mut partition = Partition::new(ProcessId::from_u128(1), false, AT);
        let (position, handle) = (Position(1), HandleId(7));
        let (entity, redelivered, foremost) = (entity(), false, None);
        let delivered =
            PartitionInput::Delivered { entity, position, handle, redelivered, foremost };
        let out = partition.handle(AT, delivered);
        assert!(matches!(out[..], [PartitionOutput::ReadInbox(..)]), "{out:?}");
        partition
    }

    #[test]
    fn what_nobody_can_read_is_acknowledged_once_it_is_kept_and_not_before() {
        let mut partition = rung();
        let inbox = PartitionInput::Inbox(entity(), Position(0), vec![(Position(1), unreadable())]);
        let out = partition.handle(AT, inbox);
        assert!(matches!(out[..], [PartitionOutput::SetAside(_, Position(1), ..)]), "{out:?}");
        let out = partition.handle(AT, PartitionInput::Aside(entity(), Position(1), true));
        assert_eq!(out, [PartitionOutput::Ack(HandleId(7))]);
        assert_eq!((partition.entities(), partition.handles()), (0, 0));
    }

    #[test]
    fn what_cannot_be_kept_now_comes_again() {
        let mut partition = rung();
        partition.handle(
            AT,
            PartitionInput::Inbox(entity(), Position(0), vec![(Position(1), unreadable())]),
        );
        let out = partition.handle(AT, PartitionInput::Aside(entity(), Position(1), false));
        assert_eq!(out, [PartitionOutput::Nak(HandleId(7), PUT_OFF)]);
        assert_eq!((partition.entities(), partition.handles()), (0, 0));
    }

    #[test]
    fn what_follows_what_nobody_can_read_is_served() {
        let mut partition = rung();
        let key: SessionKey = "main:web:a:b".parse().unwrap();
        let body = SessionInput::Delete;
        let name = "one".parse().unwrap();
        let input = Input::new(Kind::SESSION, &key.to_string(), name, AT, &body).unwrap();
        let waiting = vec![(Position(1), unreadable()), (Position(2), Arrived::Input(input))];
        let out = partition.handle(AT, PartitionInput::Inbox(entity(), Position(0), waiting));
        assert!(
            matches!(
                &out[..],
                [PartitionOutput::SetAside(..), PartitionOutput::Activate(..), PartitionOutput::Deliver(_, inputs)]
                    if inputs.len() == 1
            ),
            "{out:?}"
        );
        let out = partition.handle(AT, PartitionInput::Aside(entity(), Position(1), true));
        assert_eq!(out, [PartitionOutput::Ack(HandleId(7))], "its neighbour stays where it is");
        assert_eq!(partition.entities(), 1);
    }

    #[test]
    fn what_is_too_new_is_forwarded_and_keeps_its_place_behind_what_nobody_can_read() {
        let mut partition = rung();
        let id = InputId::from_u128(1);
        let waiting = vec![
            (Position(1), unreadable()),
            (
                Position(2),
                Arrived::Foreign {
                    input: id,
                    needs: MissingCapability::Input(9),
                    bytes: Bytes::new(),
                },
            ),
            (Position(3), unreadable()),
        ];
        let out = partition.handle(AT, PartitionInput::Inbox(entity(), Position(0), waiting));
        let [
            PartitionOutput::SetAside(_, Position(1), ..),
            PartitionOutput::Forward(_, forwarded, needs),
        ] = &out[..]
        else {
            panic!("{out:?}");
        };
        assert_eq!((*forwarded, needs), (id, &MissingCapability::Input(9)));
        let out = partition.handle(AT, PartitionInput::Aside(entity(), Position(1), true));
        assert_eq!(out, [PartitionOutput::Ack(HandleId(7))], "it is still being forwarded");
        assert_eq!(partition.entities(), 1);
    }
}
