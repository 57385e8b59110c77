//! What is wrong with the models of an agent.

use std::time::Duration;

use clawnode_actors::llm::Wire;
use clawnode_proto::llm::ModelRef;

use super::{
    agents::AgentSection,
    error::{ConfigError, nearest},
    model_routes, models,
    validate::Checks,
};

/// Models that one agent falls back to.
const FALLBACKS: usize = 8;
/// The longest that a turn waits for its providers.
const OUTAGE_MAX: Duration = Duration::from_hours(7 * 24);

impl Checks<'_> {
    /// Refuses the first of an agent's models that is wrong.
    pub(super) fn models_of(&self, name: &str, agent: &AgentSection) -> Result<(), ConfigError> {
        self.model_of(name, agent)?;
        self.patterns(&["agents", name, "models"], &agent.models)?;
        let path = ["agents", name, "routes"];
        if let Some((what, hint)) = model_routes::fault(&agent.routes) {
            return self.fail(&path, what, hint);
        }
        agent.routes.iter().try_for_each(|row| self.provider_of(&row.model, &path))
    }

    fn model_of(&self, name: &str, agent: &AgentSection) -> Result<(), ConfigError> {
        if let Some(model) = &agent.model {
            self.provider_of(model, &["agents", name, "model"])?;
        }
        if let Some(model) = &agent.compact_model {
            self.provider_of(model, &["agents", name, "compact_model"])?;
        }
        let path = ["agents", name, "fallback"];
        if agent.fallback.len() > FALLBACKS {
            let what = format!("{} models, at most {FALLBACKS}", agent.fallback.len());
            return self.fail(
                &path,
                what,
                "remove some: each is asked only if those before it fail",
            );
        }
        agent.fallback.iter().try_for_each(|model| self.provider_of(model, &path))?;
        if agent.outage > OUTAGE_MAX {
            let what = "it is longer than 7 days".to_owned();
            let hint = "write a time such as `1h`, or `0s` to fail at once";
            return self.fail(&["agents", name, "outage"], what, hint);
        }
        Ok(())
    }

    /// Refuses a model at `path` whose provider is not known.
    pub(super) fn provider_of(&self, model: &ModelRef, path: &[&str]) -> Result<(), ConfigError> {
        let configured = self.config.providers.keys().map(String::as_str);
        let built_in: Vec<&str> = Wire::built_in_providers().collect();
        let known: Vec<&str> = configured.chain(built_in).collect();
        if known.contains(&model.provider.as_str()) {
            return Ok(());
        }
        let near = nearest(&model.provider, known.iter().copied());
        let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let hint = format!("{meant}add `[providers.{}]`, or name one of: {}", model.provider, {
            known.join(", ")
        });
        let what = format!("no provider is called `{}`", model.provider);
        self.fail(path, what, &hint)
    }

    /// Refuses patterns of models that are none, or too many.
    pub(super) fn patterns(&self, path: &[&str], patterns: &[String]) -> Result<(), ConfigError> {
        match models::choices_fault(patterns) {
            Some((what, hint)) => self.fail(path, what, hint),
            None => Ok(()),
        }
    }
}
