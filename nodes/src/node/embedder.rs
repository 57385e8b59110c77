//! Asks the providers of models of this process for embeddings. Workers have their keys.

use std::time::Duration;

use clawnode_actors::{
    agent::Agents,
    llm::{EmbedReply, EmbedRequest, Wire},
    session::ResolveModel as _,
};
use clawnode_guard::{
    kill_switch::{StoppableWork, WorkStopped},
    policy::Pattern,
};
use clawnode_proto::{
    ErrorBody, ErrorCode,
    embed::{EmbedTexts, Embedded},
    kill_switch::KillSwitch,
    llm::{ModelRef, Usage},
};
use tokio::time::timeout;

use super::{
    cluster_spend::{self, MostTokens, failed},
    current_models::CurrentModels,
};
use crate::config::nearest;

/// How long the vectors of one batch may take, retries included: a local server may load its model first.
pub(super) const EMBED_TIME: Duration = Duration::from_mins(2);
/// Tokens of a text beside those of its bytes.
const TEXT_MOST: u64 = 32;
/// As much of the name of a model that is not one of them as is repeated.
const NAME_CHARS: usize = 80;
/// Models that a refusal names.
const MODELS_TOLD: usize = 16;

/// Asks the providers of this process.
#[derive(Clone, Debug)]
pub struct Embedder {
    models: CurrentModels,
    agents: Agents,
    /// The model that may be asked beside those of the configuration.
    own: Option<ModelRef>,
}

// === impl Embedder ===

impl Embedder {
    /// One that asks these providers, unless operators stop what leaves for other machines. It shares the slots
    /// of providers and the budgets with `agents`.
    pub fn new(models: CurrentModels, agents: Agents) -> Self {
        Self { models, agents, own: None }
    }

    /// The same, which also asks this model, whatever clients may ask for.
    #[must_use]
    pub fn allowing(self, model: ModelRef) -> Self {
        Self { own: Some(model), ..self }
    }

    /// The vectors of one batch.
    pub async fn embed(&self, request: EmbedTexts) -> Result<Embedded, ErrorBody> {
        let own = self.own.as_ref().filter(|own| own.to_string() == request.model);
        let model = match own {
            Some(own) => own.clone(),
            None => chosen(&self.models.embedding_models(), &request.model)?,
        };
        let stopped = |switch: KillSwitch| ErrorBody::new(ErrorCode::Stopped, switch.to_string());
        let pass = self.agents.switch_gate().pass(StoppableWork::Egress { agent: None }).await;
        let pass = pass.map_err(stopped)?;
        let reply = tokio::select! {
            biased;
            why = pass.stopped() => return Err(match why {
                WorkStopped::KillSwitch(switch) => stopped(switch),
                WorkStopped::OutOfTouch => {
                    ErrorBody::new(ErrorCode::Unavailable, "the worker lost touch with the cluster")
                }
            }),
            ended = self.asked(&model, request) => ended?,
        };
        Ok(Embedded { model, vectors: reply.vectors, input_tokens: reply.input_tokens })
    }

    /// Reserves what the batch can cost, takes a slot of its provider, and asks it.
    async fn asked(&self, model: &ModelRef, request: EmbedTexts) -> Result<EmbedReply, ErrorBody> {
        let EmbedTexts { texts, dimensions, .. } = request;
        let client = self.models.resolve_model(model).map_err(failed)?;
        let most = MostTokens { input: most_tokens(&texts), output: 0 };
        let request = EmbedRequest { model: model.model.clone(), texts, dimensions };
        let call = client.embed(request).ok_or_else(|| without_embeddings(model))?;
        let paid = cluster_spend::reserved(&self.agents, model, most).await?;
        let size = self.models.max_calls(&model.provider);
        let asked = async {
            // Held until the provider has answered.
            let _slot = self.agents.slots().take(&model.provider, size).await;
            if let Some(paid) = &paid {
                paid.sent();
            }
            call.await
        };
        // What is dropped after it was sent counts whole.
        let Ok(ended) = timeout(EMBED_TIME, asked).await else {
            let what = format!("`{model}` did not answer within {} s", EMBED_TIME.as_secs());
            return Err(ErrorBody::new(ErrorCode::ProviderTimeout, what));
        };
        if let Some(paid) = &paid {
            let counted = ended.as_ref().map(|reply| {
                let input_tokens = reply.input_tokens;
                Usage { input_tokens, ..Usage::default() }
            });
            paid.ends(counted.map_err(|failure| failure.class));
        }
        ended.map_err(failed)
    }
}

/// Tokens that texts have at most: no tokenizer makes more than one of a byte.
fn most_tokens(texts: &[String]) -> u64 {
    texts.iter().fold(0, |sum, text| sum.saturating_add(text.len() as u64 + TEXT_MOST))
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
    let listed = allowed.iter().filter(|pattern| !pattern.contains(['*', '?']));
    let mut meant = listed
        .filter_map(|model| model.parse::<ModelRef>().ok())
        .filter(|model| model.model == name);
    if let (Some(model), None) = (meant.next(), meant.next()) {
        return Ok(model);
    }
    let near = nearest_listed(allowed, name).map(|near| format!("did you mean `{near}`? "));
    let told: Vec<String> =
        allowed.iter().take(MODELS_TOLD).map(|pattern| format!("`{pattern}`")).collect();
    let name: String = name.chars().take(NAME_CHARS).collect();
    let what = format!("the model `{name}` is not one of those for embeddings");
    Err(ErrorBody::new(ErrorCode::NotFound, what).hint(format!(
        "{}`[embeddings] models` of the configuration has {}",
        near.unwrap_or_default(),
        told.join(", ")
    )))
}

/// The listed model that was meant, with its provider or without.
fn nearest_listed<'a>(allowed: &'a [String], name: &str) -> Option<&'a str> {
    let listed = || allowed.iter().map(String::as_str).filter(|name| !name.contains(['*', '?']));
    let whole = nearest(name, listed());
    whole.or_else(|| {
        let after_slash = |name: &'a str| name.split_once('/').map(|(_, model)| model);
        let near = nearest(name, listed().filter_map(after_slash))?;
        listed().find(|name| after_slash(name) == Some(near))
    })
}

fn without_embeddings(model: &ModelRef) -> ErrorBody {
    let have: Vec<String> = Wire::embedding_providers().map(|name| format!("`{name}`")).collect();
    let what = format!("provider `{}` has no embeddings", model.provider);
    ErrorBody::new(ErrorCode::Unsupported, what)
        .hint(format!("name a model of another one: {} have them", have.join(", ")))
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
        let meant = |name: &str| chosen(&allowed, name).unwrap_err().hint.unwrap();
        for name in ["openai/text-embeding-3-small", "text-embedding-3-smal"] {
            let hint = meant(name);
            assert!(hint.starts_with("did you mean `openai/text-embedding-3-small`? "), "{hint}");
        }
        assert!(!meant("voyage-3").contains("did you mean"));
        let long = chosen(&allowed, &"x".repeat(10_000)).unwrap_err();
        assert!(long.message.len() < 200, "{}", long.message);
        let none = chosen(&[], "openai/text-embedding-3-small").unwrap_err();
        assert_eq!(none.code, ErrorCode::Unsupported, "nothing is allowed by default");
        assert!(none.hint.unwrap().contains("[embeddings] models"));
    }
}
