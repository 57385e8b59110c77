//! Whose conversations the store of memories keeps, and what is wrong with that.

use std::collections::BTreeSet;

use clawnode_actors::llm::Wire;
use clawnode_proto::{AgentName, limits::MEMORY_POINTS_MOST, memory::MemoryLayer};

use super::{
    Config, ConfigError,
    agents::DEFAULT_AGENT,
    memory::{EmbeddingsChoice, LOCAL_FILES, STATIC_FILES},
    nearest,
    validate::Checks,
};

// === impl Config ===

impl Config {
    /// The agents whose conversations the store has: those that `[memory]` names, and those whose turns are reminded of
    /// passages.
    pub fn kept_conversations(&self) -> BTreeSet<AgentName> {
        let reminded = self.agents.iter().filter(|(_, agent)| {
            agent
                .memory
                .as_ref()
                .is_some_and(|memory| memory.layers.contains(&MemoryLayer::Episode))
        });
        let reminded = reminded.map(|(name, _)| name.clone());
        self.memory.conversations.iter().cloned().chain(reminded).collect()
    }
}

// === impl Checks ===

impl Checks<'_> {
    /// Refuses a store that cannot be used, a number of points that no memory has, conversations of agents that there are
    /// not, and models that make no vectors.
    pub(super) fn memory(&self) -> Result<(), ConfigError> {
        self.qdrant()?;
        self.points_most()?;
        self.embeddings()?;
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

    fn points_most(&self) -> Result<(), ConfigError> {
        let points = self.config.memory.points_most();
        if (1..=MEMORY_POINTS_MOST).contains(&points) {
            return Ok(());
        }
        let what = format!("{points} is not in the range 1 to {MEMORY_POINTS_MOST}");
        self.fail(&["memory", "points"], what, "remove it for 2,000 points, or correct it")
    }

    fn embeddings(&self) -> Result<(), ConfigError> {
        let (choice, folder) = (&self.config.memory.embeddings, &self.config.memory.embeddings_dir);
        match (choice, folder) {
            (EmbeddingsChoice::Static | EmbeddingsChoice::Local, None) => {
                let is_static = *choice == EmbeddingsChoice::Static;
                let files = if is_static { STATIC_FILES } else { LOCAL_FILES };
                let hint = format!("name the folder that has its {files}");
                let what = format!("the model `{choice}` has no `embeddings_dir`");
                return self.fail(&["memory", "embeddings"], what, &hint);
            }
            (EmbeddingsChoice::None | EmbeddingsChoice::Model(_), Some(_)) => {
                let hint = "set `memory.embeddings` to \"static\" or \"local\", or remove `embeddings_dir`";
                let what = format!("the model `{choice}` is in no folder");
                return self.fail(&["memory", "embeddings_dir"], what, hint);
            }
            _ => {}
        }
        let EmbeddingsChoice::Model(model) = choice else { return Ok(()) };
        let path = ["memory", "embeddings"];
        self.provider_of(model, &path)?;
        let name = &model.provider;
        let configured = self.config.providers.get(name).map(|section| section.wire_of(name));
        let wire = configured.unwrap_or_else(|| Wire::of_provider(name, None));
        if wire.is_some_and(Wire::has_embeddings) {
            return Ok(());
        }
        let have: Vec<&str> = Wire::embedding_providers().collect();
        let hint = format!("name a model of another one: {} have them", have.join(", "));
        self.fail(&path, format!("provider `{name}` has no embeddings"), &hint)
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
