//! The providers of models as the configuration has them now.

use std::sync::{Arc, PoisonError, RwLock};

use clawnode_actors::{
    llm::{Model, Models, circuit::Circuits},
    session::ResolveModel,
};
use clawnode_proto::llm::{ModelFailure, ModelRef};

/// The providers as the configuration has them now.
#[derive(Clone, Debug)]
pub struct CurrentModels(Arc<RwLock<Models>>);

impl CurrentModels {
    /// These, until they are replaced.
    pub fn new(models: Models) -> Self {
        Self(Arc::new(RwLock::new(models)))
    }

    /// Refuses a model that cannot be called, as far as that is known without a call.
    pub fn check(&self, model: &ModelRef) -> Result<(), ModelFailure> {
        let models = self.0.read().unwrap_or_else(PoisonError::into_inner);
        models.resolve_model(model)?;
        models.check(model)
    }

    /// Whether and how fast this process calls each provider.
    pub fn circuits(&self) -> Circuits {
        self.0.read().unwrap_or_else(PoisonError::into_inner).circuits().clone()
    }

    /// Calls from now on go to these.
    pub fn replace(&self, models: Models) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = models;
    }
}

impl ResolveModel for CurrentModels {
    fn resolve_model(&self, model: &ModelRef) -> Result<Arc<dyn Model>, ModelFailure> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).resolve_model(model)
    }
}
