//! The model that finds memories by their meaning: a provider's, asked as for clients.

use std::sync::Arc;

use async_trait::async_trait;
use clawnode_actors::agent::Agents;
use clawnode_memory::{
    embed::{EmbedFault, TextEmbedder},
    serve::{MeaningState, ServedStore},
};
use clawnode_proto::{ErrorBody, embed::EmbedTexts, llm::ModelRef, view::WarningView};

use crate::{
    config::{LoadedConfig, memory::EmbeddingsChoice},
    node::{
        base::NodeBase, current_models::CurrentModels, embedder::Embedder, embeddings::Embeddings,
    },
};

/// A model of a provider. A worker asks the provider, and a gateway asks a worker.
#[derive(Debug)]
struct ProviderEmbedder {
    model: String,
    embeddings: Embeddings,
}

#[async_trait]
impl TextEmbedder for ProviderEmbedder {
    fn model(&self) -> &str {
        &self.model
    }

    async fn embed(&self, texts: Vec<String>) -> Result<Vec<Vec<f32>>, EmbedFault> {
        let request = EmbedTexts { model: self.model.clone(), texts, dimensions: None };
        let failed = |failure: ErrorBody| EmbedFault::Failed(failure.message);
        let embedded = self.embeddings.embed(request).await.map_err(failed)?;
        Ok(embedded.vectors.iter().map(|vector| vector.numbers().collect()).collect())
    }
}

/// The model of a provider that the configuration names, if it names one.
pub(super) fn configured(loaded: &LoadedConfig) -> Option<ModelRef> {
    match &loaded.config.memory.embeddings {
        EmbeddingsChoice::None | EmbeddingsChoice::Static | EmbeddingsChoice::Local => None,
        EmbeddingsChoice::Model(model) => Some(model.clone()),
    }
}

/// Has the store of a node find things by their meaning, if the configuration names a model of a provider for that.
pub fn find_meaning(
    base: &NodeBase,
    loaded: &LoadedConfig,
    models: &CurrentModels,
    agents: &Agents,
) {
    let Some(model) = configured(loaded) else { return };
    let embedder = Embedder::new(models.clone(), agents.clone()).allowing(model.clone());
    let (storage, members) = (base.storage.clone(), base.members.clone());
    let embeddings = Embeddings::new(embedder, storage, members, base.is_worker());
    base.memory.finds_meaning(Arc::new(ProviderEmbedder { model: model.to_string(), embeddings }));
}

/// Warns if the model makes no vectors now.
pub(super) fn failing(served: &ServedStore) -> Option<WarningView> {
    let MeaningState { model, failure, .. } = served.meaning_state()?;
    failure.map(|failure| WarningView {
        name: "memory.embeddings".to_owned(),
        message: format!("memories are searched by their words alone: {failure}"),
        hint: format!(
            "correct `[memory] embeddings`, which names `{model}`, or its provider; clawnode asks it again \
             within five minutes"
        ),
    })
}
