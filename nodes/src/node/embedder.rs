//! Asks the providers of models of this process for embeddings. Workers have their keys.

use std::time::Duration;

use clawnode_actors::{
    agent::Agents,
    llm::{
        EmbedReply, EmbedRequest, Wire,
        profile::{self, CallPrice},
    },
    session::{ResolveModel as _, effect::reserve::outcome},
};
use clawnode_budget::holder::{CallCost, CallHold, CallNeeds, CallUsage, Need};
use clawnode_guard::{
    kill_switch::{StoppableWork, WorkStopped},
    policy::Pattern,
};
use clawnode_proto::{
    ErrorBody, ErrorCode,
    budget::{AccountKey, BudgetUnit, LimitKey},
    embed::{EmbedTexts, Embedded},
    kill_switch::KillSwitch,
    lane::Lane,
    llm::{FailureClass, ModelFailure, ModelRef, Usage},
    model::ModelPrice,
    session::TurnOutcome,
};
use tokio::time::timeout;

use super::current_models::CurrentModels;
use crate::config::nearest;

/// How long the vectors of one batch may take, retries included: a local server may load its model first.
pub(super) const EMBED_TIME: Duration = Duration::from_mins(2);
/// How long a batch may wait for a budget: its client waits, too.
pub(super) const BUDGET_TIME: Duration = Duration::from_secs(30);
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

/// What a batch has reserved, and the price at which it is settled.
struct PaidBatch {
    hold: CallHold,
    price: ModelPrice,
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
        let most = most_tokens(&texts);
        let request = EmbedRequest { model: model.model.clone(), texts, dimensions };
        let call = client.embed(request).ok_or_else(|| without_embeddings(model))?;
        let paid = self.reserved(model, most).await?;
        let size = self.models.max_calls(&model.provider);
        let asked = async {
            // Held until the provider has answered.
            let _slot = self.agents.slots().take(&model.provider, size).await;
            if let Some(paid) = &paid {
                paid.hold.sent();
            }
            call.await
        };
        // What is dropped after it was sent counts whole.
        let Ok(ended) = timeout(EMBED_TIME, asked).await else {
            let what = format!("`{model}` did not answer within {} s", EMBED_TIME.as_secs());
            return Err(ErrorBody::new(ErrorCode::ProviderTimeout, what));
        };
        if let Some(paid) = &paid {
            paid.ends(&ended);
        }
        ended.map_err(failed)
    }

    /// Reserves the most that a batch of so many tokens can cost, if a limit holds. No agent and no user asks, so
    /// only the limits of the cluster hold; and it is no step of a turn, so limits of loops do not count it.
    async fn reserved(&self, model: &ModelRef, most: u64) -> Result<Option<PaidBatch>, ErrorBody> {
        let view = self.agents.budgets().accounts();
        let Some(limits) = view.accounts.get(&AccountKey::Cluster) else { return Ok(None) };
        let profiles = self.agents.profiles();
        let price = profiles.call_price(model);
        if matches!(price, CallPrice::Unknown(_)) {
            if limits.has_money_of_person() {
                return Err(unpriced(model));
            }
            profiles.warn_unpriced(model);
        }
        let price = price.held();
        let need = |limit: LimitKey| {
            let fixed = match limit.unit {
                BudgetUnit::Usd => price.most(most, 0).0,
                BudgetUnit::Tokens => most,
                BudgetUnit::Loops => return None,
            };
            let cost = CallCost { fixed, per_million: 0 };
            Some(Need { account: AccountKey::Cluster, limit, cost, beside: 0 })
        };
        let needs: Vec<Need> = limits.of_lane(Lane::Interactive).filter_map(need).collect();
        if needs.is_empty() {
            return Ok(None);
        }
        let needs = CallNeeds { needs, least_output: 0, most_output: 0 };
        let answer = timeout(BUDGET_TIME, self.agents.budgets().reserved(needs)).await;
        match answer.ok().flatten() {
            Some(Ok(hold)) => Ok(Some(PaidBatch { hold, price })),
            Some(Err(refusal)) => Err(outcome(refusal).error().unwrap_or_else(no_budget)),
            None => Err(no_budget()),
        }
    }
}

// === impl PaidBatch ===

impl PaidBatch {
    /// The batch has ended: at what its provider counted, and whole if that did not count.
    fn ends(&self, ended: &Result<EmbedReply, ModelFailure>) {
        match ended {
            Ok(EmbedReply { input_tokens: tokens @ 1.., .. }) => {
                let usage = Usage { input_tokens: *tokens, ..Usage::default() };
                let (usd, tokens) = (self.price.cost(&usage).0, *tokens);
                self.hold.settle(CallUsage::Known { usd, tokens });
            }
            Err(failure) if failure.class.is_free() => self.hold.release(),
            Ok(_) | Err(_) => self.hold.settle(CallUsage::Unknown),
        }
    }
}

/// Tokens that texts have at most: no tokenizer makes more than one of a byte.
fn most_tokens(texts: &[String]) -> u64 {
    texts.iter().fold(0, |sum, text| sum.saturating_add(text.len() as u64 + TEXT_MOST))
}

fn unpriced(model: &ModelRef) -> ErrorBody {
    let what = profile::unpriced(model, "budget `cluster`");
    let lines = profile::price_lines(model);
    let message = format!("{what}; add to the configuration:\n{lines}");
    failed(ModelFailure::new(FailureClass::BudgetNotAllowed, message))
}

fn no_budget() -> ErrorBody {
    let what = format!(
        "the budget `cluster` had nothing left for this request within {} s",
        BUDGET_TIME.as_secs()
    );
    ErrorBody::new(ErrorCode::BudgetUnavailable, what)
        .hint("`clawnode budget show cluster` shows who has the rest")
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
