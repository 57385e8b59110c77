//! Which accounts there are, as a process knows it. Pure.

use std::collections::BTreeMap;

use clawnode_proto::{
    AgentName,
    budget::{AccountKey, BudgetUnit, LimitKey},
};

/// What is known of the limits of one account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccountLimits {
    /// Which limits it has.
    pub limits: Vec<LimitKey>,
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
    /// The accounts that a call of this agent and user needs, in the order in which they are asked.
    pub fn of_call<'a>(
        &'a self,
        agent: &AgentName,
        user: &AccountKey,
    ) -> Vec<(AccountKey, &'a AccountLimits)> {
        let keys = [AccountKey::Agent(agent.clone()), AccountKey::Cluster, user.clone()];
        let found = keys.into_iter().filter_map(|key| {
            let own = self.accounts.get(&key);
            let limits = match &key {
                AccountKey::User { .. } => own.or(self.each_user.as_ref()),
                AccountKey::Agent(_) | AccountKey::Cluster => own,
            };
            limits.filter(|it| !it.limits.is_empty()).map(|limits| (key, limits))
        });
        found.collect()
    }
}

// === impl AccountLimits ===

impl AccountLimits {
    /// Whether a person set a limit in money.
    pub fn has_money_of_person(&self) -> bool {
        !self.is_default && self.limits.iter().any(|limit| limit.unit == BudgetUnit::Usd)
    }
}
