//! The limits of an account as every process reads them from the bucket.

use serde::{Deserialize, Serialize};

use super::{AccountKey, BudgetLimit};

/// The limits of an account. The account writes it under [`crate::subject::budget_key`]. It says which
/// limits a call has to ask for; only the account itself grants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct BudgetView {
    /// `cluster`, `agent:NAME` or `user:CHANNEL:ACCOUNT:PEER`.
    pub account: AccountKey,
    /// The limits in force.
    pub limits: Vec<BudgetLimit>,
    /// Whether no person and no configuration set them: they are the built-in default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_default: bool,
    /// Whether a person set them, so that they win over the configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_person: bool,
    /// The event of the account's journal that set them: a view with a lower version is older.
    pub version: u64,
}
