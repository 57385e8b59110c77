//! Lanes: which model calls come first where not all of them can be made at once.

use serde::{Deserialize, Serialize};

/// How urgent the model calls of a turn are. A place or a provider's slot that is free goes to the first lane
/// that has a call waiting.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// The cluster's own work, before all other. Only an agent's configuration chooses it.
    System,
    /// A person or a program waits for the reply.
    #[default]
    Interactive,
    /// Work that can wait. A call of it may be ended for one of another lane, and is then made again.
    Background,
}

impl Lane {
    /// All of them, the most urgent first.
    pub const ALL: [Self; 3] = [Self::System, Self::Interactive, Self::Background];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Interactive => "interactive",
            Self::Background => "background",
        }
    }

    /// Whether it is the usual lane, which need not be named.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}
