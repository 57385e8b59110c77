//! Models, as clients see them: which a message may choose, what is known of them, and a test call.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use clawnode_actors::{
    agent::{AgentOptions, Agents},
    llm::{
        ModelEvent, ModelRequest, PlainMessage, ToolOffer,
        profile::{self, ModelProfiles},
    },
    session::{ResolveModel as _, Sessions},
};
use clawnode_guard::kill_switch::{StoppableWork, WorkStopped};
use clawnode_proto::{
    AgentName, ErrorBody, ErrorCode, IdempotencyKey, InputId, SessionKey, ToolName,
    kill_switch::KillSwitch,
    llm::{FailureClass, ModelRef, Role, Sampling, Usage},
    model::{ModelList, ModelTest, ModelView},
    session::{KeptChoice, UserMessage},
};
use futures_util::{StreamExt as _, stream::BoxStream};
use serde_json::{Value, json};

use super::{
    cluster_spend::{self, MostTokens},
    current_models::CurrentModels,
};
use crate::config::{agents::DEFAULT_AGENT, nearest};

/// Tokens of a test's reply: enough for a model that reasons first.
const TEST_TOKENS: u32 = 2_048;
/// How long a test may take: a local server may load a large model first.
const TEST_TIME: Duration = Duration::from_mins(2);
/// The tokens of a test at most: its texts have fewer than 400 bytes, and a provider adds up to 1,024 tokens for a tool.
const TEST_MOST: MostTokens = MostTokens { input: 2_048, output: TEST_TOKENS as u64 };
/// What a model is asked in a test.
const TEST_PROMPT: &str =
    "Write one short sentence about the sea. Then call the tool `add` with a = 2 and b = 3.";
/// The same for the demo, which reads calls as lines.
const DEMO_PROMPT: &str = r#"/tool add {"a":2,"b":3}"#;
/// The tool that it is offered.
const TEST_TOOL: &str = "add";

/// What of it a client asks for.
#[derive(Debug)]
pub(super) struct ModelAnswers<'a> {
    pub(super) agents: &'a Agents,
    pub(super) models: &'a CurrentModels,
}

// === impl ModelAnswers ===

impl ModelAnswers<'_> {
    /// Refuses a model that a message to this agent may not choose.
    pub(super) fn permit(&self, agent: &AgentName, model: &ModelRef) -> Result<(), ErrorBody> {
        let Some(options) = self.agents.options(agent) else { return Ok(()) };
        if options.allows(model) {
            return self.callable(model).map_err(|why| {
                ErrorBody::new(ErrorCode::InvalidParams, format!("parameter `model`: {why}"))
            });
        }
        Err(not_allowed(&options, model))
    }

    /// Refuses a setting that the model of a message is known not to take: the one that it names, else the one that was
    /// chosen for its session, else that of its agent.
    pub(super) async fn takes_settings(
        &self,
        sessions: &Sessions,
        session: &SessionKey,
        message: &UserMessage,
        key: &IdempotencyKey,
    ) -> Result<(), ErrorBody> {
        let (UserMessage { model, sampling, keep, .. }, agent) = (message, &session.agent);
        let chooses = model.is_some() || keep.contains(&KeptChoice::Model);
        let mut kept = None;
        // The journal is read only if that may matter.
        if !chooses && ModelProfiles::may_refuse(sampling) && self.offers_choice(agent) {
            let found = sessions.read(session.entity()).await?;
            // A repeat: it was judged when it came first, and something else may have been chosen since.
            if found.core.has(InputId::derive(session.entity(), key)) {
                return Ok(());
            }
            kept = found.state.kept.model.filter(|model| self.allows(agent, model));
        }
        self.takes(agent, model.as_ref().or(kept.as_ref()), sampling).map_err(|refusal| match &kept
        {
            Some(kept) => refusal.hint(format!(
                "leave it out, or choose another model: `{kept}` was chosen for this session"
            )),
            None => refusal,
        })
    }

    /// Whether messages to this agent may choose among models.
    fn offers_choice(&self, agent: &AgentName) -> bool {
        self.agents.options(agent).is_some_and(|options| !options.models.is_empty())
    }

    /// Whether messages to this agent may choose this model.
    fn allows(&self, agent: &AgentName, model: &ModelRef) -> bool {
        self.agents.options(agent).is_some_and(|options| options.allows(model))
    }

    /// Refuses a setting that the model of a message to this agent is known not to take.
    pub(super) fn takes(
        &self,
        agent: &AgentName,
        model: Option<&ModelRef>,
        sampling: &Sampling,
    ) -> Result<(), ErrorBody> {
        let Some(options) = self.agents.options(agent) else { return Ok(()) };
        let model = model.unwrap_or(&options.model);
        // What is wrong with the model itself shows when it is called.
        let Ok(client) = self.models.resolve_model(model) else { return Ok(()) };
        match client.refused(&model.model, sampling) {
            None => Ok(()),
            Some(setting) => {
                let what = format!("parameter `{setting}`: model `{model}` does not take it");
                Err(ErrorBody::new(ErrorCode::Unsupported, what).hint("leave it out"))
            }
        }
    }

    /// The models of all agents.
    pub(super) fn list(&self) -> ModelList {
        let agents = self.options();
        let models = agents.iter().flat_map(|agent| {
            let routed = agent.routes.iter().map(|row| row.model.clone());
            let summaries = agent.compact_model.clone();
            chosen(agent).into_iter().chain(agent.fallback.clone()).chain(routed).chain(summaries)
        });
        let models: BTreeSet<ModelRef> = models.collect();
        ModelList { models: models.iter().map(|model| self.view(model, &agents)).collect() }
    }

    /// What is known of one model. A mistyped provider would have the profile and price that a pattern gives it.
    pub(super) fn show(&self, model: &ModelRef) -> Result<ModelView, ErrorBody> {
        self.has_provider(model)?;
        Ok(self.view(model, &self.options()))
    }

    fn has_provider(&self, model: &ModelRef) -> Result<(), ErrorBody> {
        match self.models.without_provider_of(model) {
            Some(known) => Err(of_no_provider(model, &known)),
            None => Ok(()),
        }
    }

    /// Asks a model for a text and a call of a tool, and says what worked. It is a call like any other: the
    /// kill switch stops it, the limits of the cluster hold for it, and it takes a slot of its provider.
    pub(super) async fn test(&self, model: &ModelRef) -> Result<ModelTest, ErrorBody> {
        let by = self.options().into_iter().find(|agent| agent.allows(model));
        let agent = by.map_or_else(|| DEFAULT_AGENT.parse(), |agent| Ok(agent.name));
        let agent =
            agent.map_err(|error| ErrorBody::new(ErrorCode::Internal, format!("{error}")))?;
        let stopped = |switch: KillSwitch| ErrorBody::new(ErrorCode::Stopped, switch.to_string());
        let pass = self.agents.switch_gate().pass(StoppableWork::Call { agent }).await;
        let pass = pass.map_err(stopped)?;
        tokio::select! {
            biased;
            why = pass.stopped() => Err(match why {
                WorkStopped::KillSwitch(switch) => stopped(switch),
                WorkStopped::OutOfTouch => {
                    ErrorBody::new(ErrorCode::Unavailable, "this node lost touch with the cluster")
                }
            }),
            () = tokio::time::sleep(TEST_TIME) => {
                let what = format!("`{model}` did not answer within {} s", TEST_TIME.as_secs());
                Err(ErrorBody::new(ErrorCode::ProviderTimeout, what))
            }
            tested = self.asked(model) => tested,
        }
    }

    async fn asked(&self, model: &ModelRef) -> Result<ModelTest, ErrorBody> {
        self.has_provider(model)?;
        let tools = self.profiles().of(model).tools;
        let client = self.models.resolve_model(model);
        let client = client.map_err(|error| ErrorBody::new(ErrorCode::NotFound, error.message))?;
        let request = request(model, tools)?;
        let paid = cluster_spend::reserved(self.agents, model, TEST_MOST).await?;
        // Held until the reply has ended.
        let size = self.models.max_calls(&model.provider);
        let _slot = self.agents.slots().take(&model.provider, size).await;
        if let Some(paid) = &paid {
            paid.sent();
        }
        let (result, ended) = tested(model, tools, client.stream(request)).await;
        if let Some(paid) = &paid {
            paid.ends(ended);
        }
        Ok(result)
    }

    fn view(&self, model: &ModelRef, agents: &[AgentOptions]) -> ModelView {
        let profiles = self.profiles();
        let known = profiles.of(model);
        let allow = agents.iter().filter(|agent| agent.allows(model));
        let client = self.models.resolve_model(model);
        ModelView {
            model: model.clone(),
            agents: allow.map(|agent| agent.name.clone()).collect(),
            window_tokens: known.window_tokens,
            used_tokens: profiles.window(model),
            max_output_tokens: known.max_output_tokens,
            input: known.input.list(),
            tools: known.tools,
            reasoning: known.reasoning,
            schema: client
                .ok()
                .and_then(|client| client.schema_style(&model.model))
                .unwrap_or(known.schema),
            cache: known.cache,
            sampling: known.sampling,
            price: profiles.call_price(model).known(),
            patterns: profiles.patterns(model),
            table: profile::DATE.to_owned(),
            error: self.callable(model).err(),
        }
    }

    /// Why a model cannot be called, as far as that is known without a call.
    fn callable(&self, model: &ModelRef) -> Result<(), String> {
        self.models.check(model).map_err(|failure| failure.message)
    }

    fn options(&self) -> Vec<AgentOptions> {
        self.agents.names().iter().filter_map(|name| self.agents.options(name)).collect()
    }

    /// The same for all agents.
    pub(super) fn profiles(&self) -> ModelProfiles {
        self.agents.profiles()
    }
}

/// The result of a test, and what is to be settled for it.
async fn tested(
    model: &ModelRef,
    tools: bool,
    mut events: BoxStream<'static, ModelEvent>,
) -> (ModelTest, Result<Usage, FailureClass>) {
    let mut result = ModelTest {
        model: model.clone(),
        answered: String::new(),
        text: false,
        tool_call: tools.then_some(false),
        streaming: false,
        took_ms: 0,
        usage: Usage::default(),
        error: None,
    };
    let (began, mut pieces) = (Instant::now(), 0);
    let (mut has_begun, mut refused) = (false, None);
    while let Some(event) = events.next().await {
        match event {
            ModelEvent::Text(text) => {
                let is_text = !text.is_empty();
                (result.text, pieces) = (result.text || is_text, pieces + u32::from(is_text));
                has_begun = true;
            }
            ModelEvent::Thought(_) | ModelEvent::Item(_) | ModelEvent::Arguments { .. } => {
                has_begun = true;
            }
            ModelEvent::ToolUse(call) => {
                let arguments: Option<Value> = serde_json::from_str(&call.arguments).ok();
                let is_right =
                    arguments.is_some_and(|arguments| arguments["a"] == 2 && arguments["b"] == 3);
                result.tool_call = Some(call.name == TEST_TOOL && is_right);
                has_begun = true;
            }
            ModelEvent::Usage(usage) => (result.usage, has_begun) = (usage, true),
            // What is reserved pays for one try that a provider may bill.
            ModelEvent::Retrying { failure, .. } if has_begun => {
                result.error = Some(failure.message);
                break;
            }
            ModelEvent::Paced { .. } | ModelEvent::Retrying { .. } => {}
            ModelEvent::Done { usage, model, .. } => {
                (result.usage, result.answered) = (usage, model);
            }
            ModelEvent::Failed(failure) => {
                refused = Some(failure.class).filter(|_| !has_begun);
                result.error = Some(failure.message);
            }
        }
    }
    result.streaming = pieces > 1;
    result.took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let ended = match refused {
        Some(class) => Err(class),
        // What began to answer and broke off may be billed; how much of it is not known.
        None if result.error.is_some() => Ok(Usage::UNREPORTED),
        None => Ok(result.usage),
    };
    (result, ended)
}

/// The refusal of a message that chooses a model which its agent does not allow.
fn not_allowed(agent: &AgentOptions, model: &ModelRef) -> ErrorBody {
    let named: Vec<String> = chosen(agent).iter().map(ToString::to_string).collect();
    let near = nearest(&model.to_string(), named.iter().map(String::as_str)).map(str::to_owned);
    let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    let own = [agent.model.to_string()];
    let allowed: Vec<String> =
        own.iter().chain(&agent.models).map(|pattern| format!("`{pattern}`")).collect();
    let what = format!("parameter `model`: agent `{}` does not allow `{model}`", agent.name);
    ErrorBody::new(ErrorCode::InvalidParams, what).hint(format!(
        "{meant}it allows {}; `models` of the agent's configuration allows more",
        allowed.join(", ")
    ))
}

/// The refusal of a model whose provider is none of these.
fn of_no_provider(model: &ModelRef, known: &[String]) -> ErrorBody {
    let name = &model.provider;
    let near = nearest(name, known.iter().map(String::as_str));
    let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
    let known: Vec<String> = known.iter().map(|name| format!("`{name}`")).collect();
    ErrorBody::new(ErrorCode::NotFound, format!("no provider is called `{name}`")).hint(format!(
        "{meant}name one of {}, or add `[providers.{name}]` to the configuration",
        known.join(", ")
    ))
}

/// The models that an agent's messages may have, as far as they are named.
fn chosen(agent: &AgentOptions) -> Vec<ModelRef> {
    let named = agent.models.iter().filter(|pattern| !pattern.contains(['*', '?']));
    named.filter_map(|model| model.parse().ok()).chain([agent.model.clone()]).collect()
}

fn request(model: &ModelRef, tools: bool) -> Result<ModelRequest, ErrorBody> {
    let bug = |error| ErrorBody::new(ErrorCode::Internal, format!("{error}"));
    let name: ToolName = TEST_TOOL.parse().map_err(bug)?;
    let offer = ToolOffer {
        name,
        description: "Adds two numbers.".to_owned(),
        input_schema: json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "b": { "type": "integer" } },
            "required": ["a", "b"],
        }),
    };
    let prompt = if model.provider == "demo" { DEMO_PROMPT } else { TEST_PROMPT };
    Ok(ModelRequest {
        model: model.model.clone(),
        system: String::new(),
        messages: vec![PlainMessage::text(Role::User, prompt)],
        tools: if tools { vec![offer] } else { Vec::new() },
        sampling: Sampling { max_tokens: Some(TEST_TOKENS), ..Sampling::default() },
        idempotency_key: format!("test.{}", ulid::Ulid::generate()),
        reply_schema: None,
        cache_key: String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_that_is_not_allowed_gets_the_nearest_name_and_what_is_allowed() {
        let own = "anthropic/claude-sonnet-4-5".parse().unwrap();
        let mut agent = AgentOptions::new("ops".parse().unwrap(), own);
        agent.models = vec!["openai/gpt-4o".to_owned(), "ollama/*".to_owned()];
        let error = not_allowed(&agent, &"openai/gpt-4p".parse().unwrap());
        assert!(error.message.contains("`ops` does not allow `openai/gpt-4p`"), "{error:?}");
        let hint = error.hint.unwrap_or_default();
        for part in ["did you mean `openai/gpt-4o`?", "`anthropic/claude-sonnet-4-5`", "`ollama/*`"]
        {
            assert!(hint.contains(part), "{hint}");
        }
        let far = not_allowed(&agent, &"x/y".parse().unwrap()).hint.unwrap_or_default();
        assert!(!far.contains("did you mean"), "{far}");
    }

    #[test]
    fn a_mistyped_provider_gets_the_nearest_name() {
        let known = ["anthropic", "ollama"].map(str::to_owned);
        let error = of_no_provider(&"antropic/claude-sonnet-4-5".parse().unwrap(), &known);
        assert_eq!(error.code, ErrorCode::NotFound);
        assert_eq!(error.message, "no provider is called `antropic`");
        let hint = error.hint.unwrap_or_default();
        assert!(hint.starts_with("did you mean `anthropic`? name one of `anthropic`, `ollama`"));
    }
}
