//! Asks the providers of models of this process for embeddings. Workers have their keys.

use std::time::Duration;

use clawnode_actors::{
    llm::{EmbedRequest, Wire},
    session::ResolveModel as _,
};
use clawnode_guard::{
    kill_switch::{StoppableWork, SwitchGate, WorkStopped},
    policy::Pattern,
};
use clawnode_proto::{
    ErrorBody, ErrorCode,
    embed::{EmbedTexts, Embedded},
    kill_switch::KillSwitch,
    llm::{ModelFailure, ModelRef},
    session::TurnOutcome,
};
use tokio::time::timeout;

use super::current_models::CurrentModels;

/// How long the vectors of one batch may take, retries included: a local server may load its model first.
pub(super) const EMBED_TIME: Duration = Duration::from_mins(2);
/// Models that a refusal names.
const MODELS_TOLD: usize = 16;

/// Asks the providers of this process.
#[derive(Clone, Debug)]
pub struct Embedder {
    models: CurrentModels,
    switch_gate: SwitchGate,
}

// === impl Embedder ===

impl Embedder {
    /// One that asks these providers, unless operators stop what leaves for other machines.
    pub fn new(models: CurrentModels, switch_gate: SwitchGate) -> Self {
        Self { models, switch_gate }
    }

    /// The vectors of one batch.
    pub async fn embed(&self, request: EmbedTexts) -> Result<Embedded, ErrorBody> {
        let EmbedTexts { model, texts, dimensions } = request;
        let model = chosen(&self.models.embedding_models(), &model)?;
        let client = self.models.resolve_model(&model).map_err(failed)?;
        let name = model.model.clone();
        let Some(call) = client.embed(EmbedRequest { model: name, texts, dimensions }) else {
            return Err(without_embeddings(&model));
        };
        let stopped = |latch: KillSwitch| ErrorBody::new(ErrorCode::Stopped, latch.to_string());
        let pass = self.switch_gate.pass(StoppableWork::Egress { agent: None }).await;
        let pass = pass.map_err(stopped)?;
        let reply = tokio::select! {
            biased;
            why = pass.stopped() => return Err(match why {
                WorkStopped::Latched(latch) => stopped(latch),
                WorkStopped::OutOfTouch => {
                    ErrorBody::new(ErrorCode::Unavailable, "the worker lost touch with the cluster")
                }
            }),
            ended = timeout(EMBED_TIME, call) => match ended {
                Ok(ended) => ended.map_err(failed)?,
                Err(_elapsed) => {
                    let what = format!("`{model}` did not answer within {} s", EMBED_TIME.as_secs());
                    return Err(ErrorBody::new(ErrorCode::ProviderTimeout, what));
                }
            },
        };
        Ok(Embedded { model, vectors: reply.vectors, input_tokens: reply.input_tokens })
    }
}

/// The model that a request names: `PROVIDER/MODEL`, or the part after the slash of one that is listed.
fn chosen(allowed: &[String], name: &str) -> Result<ModelRef, ErrorBody> {
    if allowed.is_empty() {
        let what = "the configuration allows no model for embeddings";
        return Err(ErrorBody::new(ErrorCode::Unsupported, what).hint(
            "set `[embeddings] models` on the workers, such as `[\"openai/text-embedding-3-small\"]`",
        ));
    }
    let is_allowed = |model: &ModelRef| {
        let name = model.to_string();
        allowed.iter().any(|pattern| Pattern::from(pattern.as_str()).fits(&name))
    };
    if let Some(model) = name.parse::<ModelRef>().ok().filter(is_allowed) {
        return Ok(model);
    }
    let listed = allowed.iter().filter(|it| !it.contains(['*', '?']));
    let mut meant =
        listed.filter_map(|it| it.parse::<ModelRef>().ok()).filter(|it| it.model == name);
    if let (Some(model), None) = (meant.next(), meant.next()) {
        return Ok(model);
    }
    let told: Vec<String> =
        allowed.iter().take(MODELS_TOLD).map(|pattern| format!("`{pattern}`")).collect();
    let what = format!("the model `{name}` is not one of those for embeddings");
    Err(ErrorBody::new(ErrorCode::NotFound, what)
        .hint(format!("`[embeddings] models` of the configuration has {}", told.join(", "))))
}

fn without_embeddings(model: &ModelRef) -> ErrorBody {
    let have: Vec<String> = Wire::embedding_providers().map(|name| format!("`{name}`")).collect();
    let what = format!("provider `{}` has no embeddings", model.provider);
    ErrorBody::new(ErrorCode::Unsupported, what)
        .hint(format!("name a model of another one: {} have them", have.join(", ")))
}

/// As of any other call.
fn failed(failure: ModelFailure) -> ErrorBody {
    let (code, message) = (failure.code(), failure.message.clone());
    TurnOutcome::from(failure).error().unwrap_or_else(|| ErrorBody::new(code, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_allowed_can_be_asked() {
        let allowed = ["openai/text-embedding-3-small", "ollama/*", "a/same", "b/same"];
        let allowed = allowed.map(str::to_owned);
        for (name, model) in [
            ("openai/text-embedding-3-small", Some("openai/text-embedding-3-small")),
            ("text-embedding-3-small", Some("openai/text-embedding-3-small")),
            ("ollama/bge-m3", Some("ollama/bge-m3")),
            ("b/same", Some("b/same")),
            ("same", None),
            ("bge-m3", None),
            ("openai/text-embedding-3-large", None),
            ("", None),
        ] {
            let found = chosen(&allowed, name).ok().map(|model| model.to_string());
            assert_eq!(found.as_deref(), model, "{name}");
        }
        let refused = chosen(&allowed, "gpt").unwrap_err();
        assert_eq!(refused.code, ErrorCode::NotFound);
        assert!(refused.hint.unwrap().contains("`ollama/*`"));
        let none = chosen(&[], "openai/text-embedding-3-small").unwrap_err();
        assert_eq!(none.code, ErrorCode::Unsupported, "nothing is allowed by default");
        assert!(none.hint.unwrap().contains("[embeddings] models"));
    }
}
