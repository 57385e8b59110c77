//! Settings of the store that finds what memories and conversations say.

use std::collections::BTreeSet;

use clawnode_proto::{AgentName, memory::MemoryLayer};
use serde::{Deserialize, Serialize};

use super::{Config, ConfigError, agents::DEFAULT_AGENT, nearest, validate::Checks};

/// `[memory]`: the store that finds what memories and conversations say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MemorySection {
    /// Which store: `local` is in each node, with its files in `memory` of the data folder. There is no other yet.
    pub store: MemoryStoreChoice,
    /// The agents whose conversations can be found, beside those that are reminded of theirs by `[agents.NAME.memory]`
    /// (none). They take disk in each node, about as much as their texts.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub conversations: BTreeSet<AgentName>,
}

/// Which store finds things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryStoreChoice {
    /// In the process of each node.
    #[default]
    Local,
}

// === impl Config ===

impl Config {
    /// The agents whose conversations the store has: those that `[memory]` names, and those whose turns are reminded of
    /// passages.
    pub fn kept_conversations(&self) -> BTreeSet<AgentName> {
        let reminded = self.agents.iter().filter(|(_, agent)| {
            agent.memory.as_ref().is_some_and(|it| it.layers.contains(&MemoryLayer::Episode))
        });
        let reminded = reminded.map(|(name, _)| name.clone());
        self.memory.conversations.iter().cloned().chain(reminded).collect()
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_are_kept_of_agents_that_are_reminded_of_them_and_of_those_that_are_named() {
        let config = "[memory]\nconversations = ['named']\n[agents.named]\n[agents.neither]\n\
                      [agents.reminded.memory]\n[agents.facts.memory]\nlayers = ['semantic']";
        let config: Config = toml::from_str(config).unwrap();
        let kept: Vec<String> =
            config.kept_conversations().iter().map(ToString::to_string).collect();
        assert_eq!(kept, ["named", "reminded"]);
    }
}
