//! Which accounts there are, as a process knows it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    AgentName,
    budget::{AccountKey, BudgetLimit, BudgetUnit, CountedLanes, LimitKey},
    lane::Lane,
};

/// What is known of the limits of one account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountLimits {
    /// Which limits it has.
    pub limits: Vec<LimitKey>,
    /// Those of them that count only calls of the background.
    pub background: BTreeSet<LimitKey>,
    /// Whether no person and no configuration set them: they are the built-in default.
    pub is_default: bool,
}

/// Which accounts there are. Which of them a call needs follows from this and the call alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountsView {
    /// By key.
    pub accounts: BTreeMap<AccountKey, AccountLimits>,
    /// What each user has who has no account of their own yet: it is made with the first call.
    pub each_user: Option<AccountLimits>,
}

// === impl AccountsView ===

impl AccountsView {
    /// The accounts that a call of this agent and user needs in this lane, in the order in which they are asked.
    pub fn of_call<'a>(
        &'a self,
        agent: &AgentName,
        user: &AccountKey,
        lane: Lane,
    ) -> Vec<(AccountKey, &'a AccountLimits)> {
        let keys = [AccountKey::Agent(agent.clone()), AccountKey::Cluster, user.clone()];
        let found = keys.into_iter().filter_map(|key| {
            let limits = self.limits_of(&key);
            limits
                .filter(|limits| limits.of_lane(lane).next().is_some())
                .map(|limits| (key, limits))
        });
        found.collect()
    }

    /// The limits of an account; nothing if it has none.
    pub(super) fn limits_of(&self, account: &AccountKey) -> Option<&AccountLimits> {
        let own = self.accounts.get(account);
        match account {
            AccountKey::User { .. } => own.or(self.each_user.as_ref()),
            AccountKey::Agent(_) | AccountKey::Cluster => own,
        }
    }
}

// === impl AccountLimits ===

impl AccountLimits {
    /// Those of these limits, in their order.
    pub fn of(limits: &[BudgetLimit], is_default: bool) -> Self {
        let in_background = limits.iter().filter(|limit| limit.lanes == CountedLanes::Background);
        Self {
            limits: limits.iter().map(|limit| limit.key).collect(),
            background: in_background.map(|limit| limit.key).collect(),
            is_default,
        }
    }

    /// The limits that calls of this lane need.
    pub fn of_lane(&self, lane: Lane) -> impl Iterator<Item = LimitKey> {
        let needs =
            move |limit: &LimitKey| lane == Lane::Background || !self.background.contains(limit);
        self.limits.iter().copied().filter(needs)
    }

    /// Whether a person set a limit in money.
    pub fn has_money_of_person(&self) -> bool {
        !self.is_default && self.limits.iter().any(|limit| limit.unit == BudgetUnit::Usd)
    }
}
