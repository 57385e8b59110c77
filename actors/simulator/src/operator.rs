//! An operator: looks after what is out of service, and orders what the plan says.

use clawnode_kernel::{
    Core, LoadedJournal, Service,
    core::{position_of, snapshot_blob},
};
use clawnode_proto::{Digest, EntityId, Input, Order, Timestamp};
use rand::Rng;

use super::{CLIENTS, FATE, Sim, clients::SimClient, process::PlannedNote};

/// Between two looks of the operator, in milliseconds.
const LOOK: std::ops::Range<u64> = 300..6_000;

impl Sim {
    /// Damages what the plan says, and orders what is to be done about sessions out of service.
    pub(super) fn operate(&mut self) {
        let after = self.world.rng.random_range(LOOK);
        self.world.later(FATE, self.rests_for().unwrap_or(after), PlannedNote::Operate);
        let first = self.clients.first().map(|client| client.input.entity);
        if let Some(first) = first
            && self.plan.damage
            && self.damaged.is_none()
            && self.world.damage(first)
        {
            self.remark(FATE, || format!("the journal of {first} is damaged"));
            self.damaged = Some(first);
            self.ledger.damaged(first);
            self.judge.damaged(first);
            if let Some(recall) = &mut self.recall {
                recall.judge.damaged(first);
            }
        }
        for (entity, order, about) in self.orders() {
            let input =
                Input::order(self.ledger.kind_of(entity), entity, about, Timestamp(0), order);
            if self.clients.iter().any(|client| client.input.id == input.id) {
                continue;
            }
            self.remark(FATE, || format!("{order:?} is ordered for {entity}"));
            if self.poisoned == Some(entity) && (self.calm || self.world.chance(0.7)) {
                self.poisoned = None;
            }
            self.clients.push(SimClient { after: 0, input, answered: false });
            self.world.later(CLIENTS, 0, PlannedNote::Send(self.clients.len() - 1));
        }
    }

    /// The entities that are out of service, what to do about each, and the state that this is
    /// about.
    fn orders(&self) -> Vec<(EntityId, Order, Digest)> {
        let mut entities: Vec<EntityId> =
            self.clients.iter().map(|client| client.input.entity).collect();
        entities.sort_unstable();
        entities.dedup();
        let order = |entity| {
            // The ledger folds every record once, and with these nothing is wrong.
            if self.ledger.serves(entity) {
                return None;
            }
            let records = self.world.journal(entity);
            let snapshot = snapshot_blob(&records).and_then(|digest| self.world.blob(digest));
            let last = position_of(&records);
            let about = Digest::of(&last.0.to_be_bytes());
            let order = match Core::of(entity, &LoadedJournal { records, snapshot }, &|_| true) {
                Err(_) => Order::Bury,
                Ok(core) if matches!(core.service, Service::Quarantined { .. }) => {
                    self.plan.operator?
                }
                Ok(_) => return None,
            };
            Some((entity, order, about))
        };
        entities.into_iter().filter_map(order).collect()
    }

    /// What is still out of service, though an operator looks after it.
    pub(super) fn out_of_service(&self) -> Option<String> {
        let (entity, order, _) = self.orders().into_iter().next()?;
        Some(format!("`{entity}` is out of service, though `{}` was ordered", order.as_str()))
    }
}
