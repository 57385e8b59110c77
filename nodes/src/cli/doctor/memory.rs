//! How memories are searched, and the server that has their store.

use std::path::Path;

use super::Check;
use crate::{
    config::{
        Config, LoadedConfig,
        memory::{EmbeddingsChoice, MemoryStoreChoice},
    },
    node::memories::{self, FolderModel, FolderModelFault},
};

/// Whether the server can be used; nothing if there is none. Agents go on without it, so it is never red.
pub(super) async fn store(loaded: &LoadedConfig) -> Option<Check> {
    const NAME: &str = "memory.store";
    if loaded.config.memory.store != MemoryStoreChoice::Qdrant {
        return None;
    }
    Some(match memories::check_qdrant(loaded).await {
        Ok(url) => Check::green(NAME, format!("Qdrant at `{url}` can be used")),
        Err((found, fix)) => Check::yellow(NAME, found, &fix),
    })
}

/// Says which model finds memories by their meaning, or what one would gain; none if no agent is reminded.
pub(super) fn meaning(config: &Config) -> Option<Check> {
    const NAME: &str = "memory.embeddings";
    match &config.memory.embeddings {
        EmbeddingsChoice::Model(model) => {
            let found = format!(
                "`{model}` finds memories by their meaning, beside their words; it is not asked here, and `clawnode status` \
                 says if it fails"
            );
            Some(Check::green(NAME, found))
        }
        EmbeddingsChoice::Static | EmbeddingsChoice::Local => folder_model(config, NAME),
        EmbeddingsChoice::None => {
            let is_reminded = config.agents.values().any(|agent| agent.memory.is_some());
            let found = "memories are found by their words alone. `[memory] embeddings` with a model, \
                         such as `ollama/all-minilm`, or `static` with a folder, also finds what says the same in other words";
            is_reminded.then(|| Check::green(NAME, found))
        }
    }
}

/// What is in the folder of the model; nothing if the model is in none.
fn folder_model(config: &Config, name: &'static str) -> Option<Check> {
    let (choice, folder) = (&config.memory.embeddings, config.memory.embeddings_dir.as_deref());
    Some(match FolderModel::open(config)? {
        Ok(FolderModel { dimensions, tokens, .. }) => {
            let found = format!(
                "the {choice} model in `{}` ({tokens} tokens, vectors of {dimensions} numbers) finds memories by their \
                 meaning, beside their words",
                folder.unwrap_or(Path::new("")).display()
            );
            Check::green(name, found)
        }
        Err(FolderModelFault { what, fix }) => {
            Check::red(name, what, &format!("{fix}; no node starts until then"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_is_named_and_what_it_would_gain_to_those_who_have_agents_with_memory() {
        let found = |text: &str| {
            let config: Config = toml::from_str(text).unwrap();
            meaning(&config).map(|check| check.found)
        };
        assert_eq!(found(""), None);
        assert!(found("[agents.a.memory]").unwrap().contains("by their words alone"));
        let with = found("[memory]\nembeddings = 'ollama/all-minilm'").unwrap();
        assert!(with.starts_with("`ollama/all-minilm` finds"), "{with}");
        assert!(with.contains("`clawnode status` says if it fails"), "{with}");
        let lacks = found("[memory]\nembeddings = 'static'\nembeddings_dir = '/nowhere'").unwrap();
        assert!(lacks.contains("/nowhere/tokenizer.json"), "{lacks}");
        #[cfg(feature = "embed-local")]
        {
            let lacks =
                found("[memory]\nembeddings = 'local'\nembeddings_dir = '/nowhere'").unwrap();
            assert!(lacks.contains("/nowhere/config.json"), "{lacks}");
        }
    }
}
