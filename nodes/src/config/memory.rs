//! Settings of the store that finds what memories and conversations say.

use std::collections::BTreeSet;

use clawnode_proto::AgentName;
use serde::{Deserialize, Serialize};

use super::{ConfigError, agents::DEFAULT_AGENT, nearest, validate::Checks};

/// `[memory]`: the store that finds what memories and conversations say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySection {
    /// Which store: `local` is in each worker, with its files in `memory` of the data folder. There is no other yet.
    pub store: MemoryStoreChoice,
    /// The agents whose conversations can be found (none). They take disk in each worker, about as much as their texts.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub conversations: BTreeSet<AgentName>,
}

/// Which store finds things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryStoreChoice {
    /// In the process of each worker.
    #[default]
    Local,
}

// === impl Checks ===

impl Checks<'_> {
    /// Refuses conversations of agents that there are not.
    pub(super) fn memory(&self) -> Result<(), ConfigError> {
        for name in &self.config.memory.conversations {
            let name = name.as_str();
            let known = self.config.agents.keys().map(AgentName::as_str);
            let mut known = known.chain([DEFAULT_AGENT]);
            if known.clone().all(|agent| agent != name) {
                let near = nearest(name, &mut known);
                let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
                let hint = format!("{meant}add `[agents.{name}]`, or correct the name");
                let what = format!("no agent is called `{name}`");
                return self.fail(&["memory", "conversations"], what, &hint);
            }
        }
        Ok(())
    }
}
