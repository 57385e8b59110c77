//! How memories are searched.

use super::Check;
use crate::config::{Config, memory::EmbeddingsChoice};

/// Says which model finds memories by their meaning, or what one would gain; none if no agent is reminded.
pub(super) fn check(config: &Config) -> Option<Check> {
    const NAME: &str = "memory.embeddings";
    match &config.memory.embeddings {
        EmbeddingsChoice::Model(model) => {
            let found = format!("`{model}` finds memories by their meaning, beside their words");
            Some(Check::green(NAME, found))
        }
        EmbeddingsChoice::None => {
            let is_reminded = config.agents.values().any(|agent| agent.memory.is_some());
            let found = "memories are found by their words alone. `[memory] embeddings` with a model, \
                         such as `ollama/all-minilm`, also finds what says the same in other words";
            is_reminded.then(|| Check::green(NAME, found))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_named_and_what_it_would_gain_to_those_who_have_agents_with_memory() {
        let found = |text: &str| {
            let config: Config = toml::from_str(text).unwrap();
            check(&config).map(|check| check.found)
        };
        assert_eq!(found(""), None);
        assert!(found("[agents.a.memory]").unwrap().contains("by their words alone"));
        let with = found("[memory]\nembeddings = 'ollama/all-minilm'").unwrap();
        assert!(with.starts_with("`ollama/all-minilm` finds"), "{with}");
    }
}
