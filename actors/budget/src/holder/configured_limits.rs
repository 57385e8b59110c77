//! What the configuration of a process says of budgets, and how accounts hear of it.

use std::collections::BTreeMap;

use clawnode_proto::budget::{AccountKey, BudgetInput, BudgetLimit, LimitSource};

use super::AccountLimits;

/// The limits of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfiguredBudgets {
    /// Those of agents, and of the cluster.
    pub accounts: BTreeMap<AccountKey, Vec<BudgetLimit>>,
    /// Those of each user. A user's account is made with the first call.
    pub each_user: Vec<BudgetLimit>,
    /// The configuration says nothing of the cluster: its limits are the built-in default.
    pub is_default: bool,
}

// === impl ConfiguredBudgets ===

impl ConfiguredBudgets {
    /// The limits that an account should have by the configuration; empty if there are none.
    pub fn limits_of(&self, account: &AccountKey) -> &[BudgetLimit] {
        let own = self.accounts.get(account).map(Vec::as_slice);
        match account {
            AccountKey::User { .. } => own.unwrap_or(&self.each_user),
            AccountKey::Agent(_) | AccountKey::Cluster => own.unwrap_or_default(),
        }
    }

    /// The same, as calls see it.
    pub(super) fn known_of(&self, account: &AccountKey) -> AccountLimits {
        AccountLimits::of(self.limits_of(account), self.is_default_of(account))
    }

    fn is_default_of(&self, account: &AccountKey) -> bool {
        self.is_default && *account == AccountKey::Cluster
    }

    /// What an account has to hear.
    pub fn input_for(&self, account: &AccountKey) -> BudgetInput {
        let is_default = self.is_default_of(account) && !self.limits_of(account).is_empty();
        let source = if is_default { LimitSource::BuiltIn } else { LimitSource::Configured };
        BudgetInput::Set { source, limits: Some(self.limits_of(account).to_vec()), decides: None }
    }
}
