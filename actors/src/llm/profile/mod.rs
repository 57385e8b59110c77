//! What is known of models: how much they read and write, what they take, and how a request names it.
//!
//! [`ModelProfiles`] finds the [`ModelProfile`] of a model: the row of the built-in table (`table`) whose
//! pattern fits best, with the fields that the configuration sets (`profiles`; `num_ctx` is one of them). Pure.
//!
//! Not here: the journaled configuration of an agent, which is
//! [`Profile`](clawnode_proto::session::Profile).

mod model;
mod num_ctx;
mod price;
mod profiles;
mod table;
#[cfg(test)]
mod tests;

pub use model::{InputKinds, ModelProfile, ThinkingDefault};
pub(crate) use price::unknown_output;
pub use price::{CallPrice, LongestReply, ProviderPlace, price_lines, unpriced};
pub use profiles::{BodyError, ModelExtras, ModelOverride, ModelProfiles};
pub use table::{DATE, WINDOW_DEFAULT};
