//! Which skills a turn began with.

use serde::{Deserialize, Serialize};

use crate::id::{Digest, TurnId};

/// The tool that writes a skill from entries of the work ledger.
pub const CREATE_SKILL: &str = "create_skill";

/// The message of a turn has triggers of skills. The model reads them with it, for as long as the turn runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SkillsActivated {
    /// The turn whose message has the triggers.
    pub turn: TurnId,
    /// The skills, in the order in which they are shown.
    pub skills: Vec<ActiveSkill>,
}

/// A skill that a model is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ActiveSkill {
    /// Its name.
    pub name: String,
    /// The digest of its `SKILL.md`.
    pub digest: Digest,
    /// Its instructions. Empty once its turn is over: the event has them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}
