//! The limits that are in force, by the journals of accounts alone.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    EntityId,
    budget::{
        AccountKey, BudgetAllowed, BudgetLimit, BudgetSet, LimitKey, LimitSource, WindowNumber,
    },
};

/// The limits of an account, as its journal has them.
#[derive(Debug)]
pub(super) struct JournaledLimits {
    pub(super) account: AccountKey,
    configured: Vec<BudgetLimit>,
    by_person: Option<Vec<BudgetLimit>>,
    /// In which windows a person has allowed more.
    allowed: BTreeSet<(LimitKey, WindowNumber)>,
    /// Its journal was deleted: what calls had cost before is not known there.
    pub(super) is_lost: bool,
}

// === impl JournaledLimits ===

impl JournaledLimits {
    /// Of an account that has none yet, by its entity.
    pub(super) fn of(account: AccountKey) -> (EntityId, Self) {
        let (configured, by_person, allowed) = (Vec::new(), None, BTreeSet::new());
        let entity = account.entity();
        (entity, Self { account, configured, by_person, allowed, is_lost: false })
    }

    pub(super) fn in_force(&self) -> BTreeMap<LimitKey, BudgetLimit> {
        let limits = self.by_person.as_ref().unwrap_or(&self.configured);
        limits.iter().map(|limit| (limit.key, *limit)).collect()
    }

    /// They are set. What a person has allowed of one that changes was allowed for another one.
    pub(super) fn set(&mut self, set: BudgetSet) {
        let before = self.in_force();
        match set.source {
            LimitSource::Person { .. } => self.by_person = set.limits,
            LimitSource::Configured | LimitSource::BuiltIn => {
                self.configured = set.limits.unwrap_or_default();
            }
        }
        let now = self.in_force();
        self.allowed.retain(|(key, _)| before.get(key) == now.get(key));
    }

    pub(super) fn allow(&mut self, allowed: &BudgetAllowed) {
        self.allowed.insert((allowed.limit, allowed.window));
    }

    /// How much may be granted in a window.
    pub(super) fn ceiling(&self, limit: LimitKey, window: WindowNumber) -> Option<u64> {
        let in_force = self.in_force().get(&limit).copied()?;
        let is_allowed = self.allowed.contains(&(limit, window));
        Some(if is_allowed { in_force.amount } else { in_force.share(in_force.ask_at) })
    }
}
