//! The providers of models as the configuration has them now.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use clawnode_actors::{
    llm::{Model, Models, circuit::Circuits},
    session::ResolveModel,
};
use clawnode_proto::llm::{ModelFailure, ModelRef};
use futures_util::future::BoxFuture;

/// The providers as the configuration has them now.
#[derive(Clone, Debug)]
pub struct CurrentModels(Arc<RwLock<ConfiguredModels>>);

#[derive(Debug)]
struct ConfiguredModels {
    models: Models,
    /// Patterns of those that clients may ask for embeddings.
    embeddings: Vec<String>,
}

impl CurrentModels {
    /// These, until they are replaced. Clients may ask those for embeddings that fit a pattern of
    /// `embeddings`.
    pub fn new(models: Models, embeddings: Vec<String>) -> Self {
        Self(Arc::new(RwLock::new(ConfiguredModels { models, embeddings })))
    }

    fn models(&self) -> Models {
        self.0.read().unwrap_or_else(PoisonError::into_inner).models.clone()
    }

    /// Patterns of the models that clients may ask for embeddings.
    pub fn embedding_models(&self) -> Vec<String> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).embeddings.clone()
    }

    /// The names of the providers, if none of them is the model's.
    pub fn without_provider_of(&self, model: &ModelRef) -> Option<Vec<String>> {
        let models = self.models();
        let is_known = models.names().any(|name| name == model.provider);
        (!is_known).then(|| models.names().map(str::to_owned).collect())
    }

    /// Refuses a model that cannot be called, as far as that is known without a call.
    pub fn check(&self, model: &ModelRef) -> Result<(), ModelFailure> {
        let models = self.models();
        models.resolve_model(model)?;
        models.check(model)
    }

    /// Whether and how fast this process calls each provider.
    pub fn circuits(&self) -> Circuits {
        self.models().circuits().clone()
    }

    /// The providers that are to be probed, and how often.
    pub fn probed(&self) -> BTreeMap<String, Duration> {
        self.models().probed().map(|(name, every)| (name.to_owned(), every)).collect()
    }

    /// Asks whether the provider of this name can be reached; none if it cannot be asked.
    pub fn probe(&self, name: &str) -> Option<BoxFuture<'static, Result<(), ModelFailure>>> {
        self.models().probe(name)
    }

    /// Calls from now on go to these.
    pub fn replace(&self, models: Models, embeddings: Vec<String>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) =
            ConfiguredModels { models, embeddings };
    }
}

impl ResolveModel for CurrentModels {
    fn resolve_model(&self, model: &ModelRef) -> Result<Arc<dyn Model>, ModelFailure> {
        self.models().resolve_model(model)
    }

    fn max_calls(&self, provider: &str) -> u32 {
        self.models().max_calls(provider)
    }
}
