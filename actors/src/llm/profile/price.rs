//! What a call costs. Pure.

use clawnode_proto::{llm::ModelRef, model::ModelPrice};

use super::{ModelProfiles, table};

/// Providers that ask no money.
const FREE: [&str; 2] = ["demo", "ollama"];

/// What the tokens of a call cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallPrice {
    /// So much.
    Known(ModelPrice),
    /// Nothing is known of it. The dearest price that is known is used instead.
    Unknown(ModelPrice),
}

// === impl CallPrice ===

impl CallPrice {
    /// The price to hold.
    pub const fn held(self) -> ModelPrice {
        match self {
            Self::Known(price) | Self::Unknown(price) => price,
        }
    }
}

// === impl ModelProfiles ===

impl ModelProfiles {
    /// What the tokens of a call of this model cost.
    pub fn call_price(&self, model: &ModelRef) -> CallPrice {
        match self.of(model).price {
            Some(price) => CallPrice::Known(price),
            None if FREE.contains(&model.provider.as_str()) => CallPrice::Known(ModelPrice::FREE),
            None => CallPrice::Unknown(table::dearest()),
        }
    }
}
