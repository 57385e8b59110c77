//! Calls that are made again, and what explains that.

use std::collections::BTreeMap;

use clawnode_proto::{Attempt, CallId, EntityId, Incarnation, ProcessId};

use crate::{JudgeViolation, book::Checked};

/// For how long something that befell a process or an entity explains what others do, in
/// milliseconds: who takes an entity over looks at its inbox and its journal first, and each look
/// may have to be repeated.
const AFTER: u64 = 30_000;

/// Who made what, and what befell whom.
#[derive(Debug, Default)]
pub(super) struct Effort {
    made: BTreeMap<CallId, (Incarnation, u64)>,
    processes: BTreeMap<ProcessId, u64>,
    entities: BTreeMap<EntityId, u64>,
}

// === impl Effort ===

impl Effort {
    pub(super) fn befalls(&mut self, now: u64, process: ProcessId) {
        self.processes.insert(process, now);
    }

    pub(super) fn troubles(&mut self, now: u64, entity: EntityId) {
        self.entities.insert(entity, now);
    }

    /// An attempt at a call gave way: another one follows, by any process.
    pub(super) fn gives_way(&mut self, call: CallId) {
        self.made.remove(&call);
    }

    /// A try at a call is begun.
    pub(super) fn begins(
        &mut self,
        now: u64,
        entity: EntityId,
        call: CallId,
        attempt: Attempt,
        by: Incarnation,
    ) -> Checked {
        let Some((before, at)) = self.made.insert(call, (by, now)) else { return Ok(()) };
        let befell = self.processes.get(&before.process).max(self.entities.get(&entity));
        if befell.is_some_and(|befell| befell + AFTER >= at) {
            return Ok(());
        }
        let text = format!(
            "attempt {attempt} at `{call}` is begun by `{by}`, and nothing befell `{before}`, which \
             had begun it before"
        );
        Err(JudgeViolation::new("OWN-1", text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_1_a_call_is_made_again_only_for_a_reason() {
        let by = |n: u128| Incarnation { process: ProcessId::from_u128(n), counter: 1 };
        let (entity, call) = (EntityId::from_u128(1), CallId::from_u128(1));
        let again = |befell: &dyn Fn(&mut Effort)| {
            let mut effort = Effort::default();
            effort.begins(100_000, entity, call, Attempt(1), by(1)).unwrap();
            befell(&mut effort);
            effort.begins(200_000, entity, call, Attempt(2), by(2)).is_ok()
        };
        assert!(!again(&|_| ()));
        assert!(again(&|effort| effort.befalls(150_000, ProcessId::from_u128(1))));
        assert!(!again(&|effort| effort.befalls(150_000, ProcessId::from_u128(2))));
        assert!(again(&|effort| effort.troubles(150_000, entity)));
        assert!(!again(&|effort| effort.troubles(69_999, entity)), "long before");
    }
}
