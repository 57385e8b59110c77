//! The limits of an account as every process reads them from the bucket.

use serde::{Deserialize, Serialize};

use super::{AccountKey, BudgetLimit};
use crate::timestamp::Timestamp;

/// The limits of an account. The account writes it under [`crate::subject::budget_key`]. It says which
/// limits a call has to ask for; only the account itself grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetView {
    /// `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
    pub account: AccountKey,
    /// The limits in force.
    pub limits: Vec<BudgetLimit>,
    /// Whether no person and no configuration set a limit in money: what there is of them is the built-in default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_default: bool,
    /// Whether a person set them, or some of them, so that those win over the configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_person: bool,
    /// The event of the account's journal that set them: a view with a lower version is older.
    pub version: u64,
    /// When the account began. One that was deleted and began again counts its events from 1. Absent: its owner is of
    /// a build that does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
}

/// At which event of which life of an account something was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AccountVersion {
    /// When the account began; absent if that is not known.
    pub begun: Option<Timestamp>,
    /// The event of its journal.
    pub n: u64,
}

// === impl BudgetView ===

impl BudgetView {
    /// When the account showed this.
    pub const fn said_at(&self) -> AccountVersion {
        AccountVersion { begun: self.begun, n: self.version }
    }
}

// === impl AccountVersion ===

impl AccountVersion {
    /// Whether the account said the other one later. Of two lives the later one counts. Where one of them does not
    /// say when the account began, only their events are compared.
    pub fn is_before(self, other: Self) -> bool {
        match (self.begun, other.begun) {
            (Some(begun), Some(others)) if begun != others => begun < others,
            _ => self.n < other.n,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_that_began_again_comes_after_the_one_that_was_deleted() {
        let at = |begun: Option<u64>, n| AccountVersion { begun: begun.map(Timestamp), n };
        for (before, after) in [
            (at(Some(1), 9), at(Some(2), 1)),
            (at(Some(1), 1), at(Some(1), 2)),
            // An owner of an earlier build says less of the same account.
            (at(None, 1), at(Some(1), 2)),
            (at(Some(1), 2), at(None, 3)),
            (at(None, 1), at(None, 2)),
            (AccountVersion::default(), at(Some(1), 1)),
        ] {
            assert!(before.is_before(after) && !after.is_before(before), "{before:?} {after:?}");
        }
        assert!(!at(Some(1), 2).is_before(at(Some(1), 2)), "it is the same");
    }
}
