//! When something happened.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch, as the writer's clock had it; in one journal never before
/// the event before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// How long after `earlier` it is; zero if it is before.
    pub fn since(self, earlier: Self) -> std::time::Duration {
        std::time::Duration::from_millis(self.0.saturating_sub(earlier.0))
    }

    /// This, `by` later.
    #[must_use]
    pub fn plus(self, by: std::time::Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX)))
    }
}
