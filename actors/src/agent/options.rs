//! An agent's configuration.

use std::{sync::Arc, time::Duration};

use clawnode_guard::policy::Pattern;
use clawnode_proto::{
    AgentName,
    agents::{AgentLimits, AgentView},
    budget::SpendLimits,
    context::ContextSettings,
    hook::HookSpec,
    lane::Lane,
    llm::{ModelRef, Sampling},
    model_route::ModelRoute,
    policy::Policy,
    response::ResponseSchema,
    session::Profile,
    timeout::TurnTime,
    tool::{LoopGuard, ToolSpec},
};
use clawnode_tool::skill::AgentSkills;

use super::memory_options::{AgentMemory, FactExtraction, ReflectionMode};
use crate::llm::profile::ModelProfiles;

/// How an agent answers; resolved from the configuration, soul file included.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentOptions {
    /// The part of session ids before the first `:`.
    pub name: AgentName,
    /// Which model answers.
    pub model: ModelRef,
    /// The system prompt (the soul's text).
    pub system: String,
    /// Its skills (none). What its system prompt says of them follows `system`, if its model takes tools.
    pub skills: Arc<AgentSkills>,
    /// What its turns are reminded of (nothing).
    pub memory: Option<AgentMemory>,
    /// By which rules its requests are assembled (none: those of version 1).
    pub context: Option<ContextSettings>,
    /// The model that makes summaries of older turns when a window is nearly full (none: they are left out).
    pub compact_model: Option<ModelRef>,
    /// Settings of its calls.
    pub sampling: Sampling,
    /// Models that a message may choose beside `model` (none), as patterns of `PROVIDER/MODEL`.
    pub models: Vec<String>,
    /// Which model a call asks first instead of `model`, by its prompt (none): the first row that fits.
    pub routes: Vec<ModelRoute>,
    /// The models that answer when `model` does not (none), in order of preference.
    pub fallback: Vec<ModelRef>,
    /// How long a turn waits while no provider of its models is available (default 1 h): more outlives longer
    /// outages, less tells people sooner. Zero: it fails at once.
    pub outage: Duration,
    /// What is known of models.
    pub profiles: ModelProfiles,
    /// Tokens that the model reads at most (default: what its profile says): more keeps older turns
    /// longer, and costs more per call.
    pub window_tokens: Option<u32>,
    /// Model calls of one turn (default 25): more lets long turns run, and a runaway cost more.
    pub step_limit: u32,
    /// The tools it has (default none): each costs tokens of every call.
    pub tools: Vec<ToolSpec>,
    /// What its configuration names beside them (none): `SERVER__TOOL` or `SERVER__*`, of MCP servers of
    /// which no such tool is approved.
    pub missing: Vec<String>,
    /// Tool calls of one reply that run at a time (default 8): more is sooner done, and harder on
    /// what runs them.
    pub max_parallel_tools: u32,
    /// What is done about a tool call that is made over and over (default: warn at 3, refuse from
    /// 5 on, end the turn at 30).
    pub loop_guard: LoopGuard,
    /// What it does by itself, and what a person is asked about (default: it looks, and asks about
    /// everything else).
    pub policy: Policy,
    /// How long a turn that has used up its steps waits for more (default 5 min; zero: it ends).
    pub step_wait: Duration,
    /// How long a turn and a step of it may take (default 1 h and 15 min).
    pub time: TurnTime,
    /// The hooks that judge its calls, by point and name (none).
    pub hooks: Vec<HookSpec>,
    /// What its replies have to fit (nothing).
    pub response_schema: Option<ResponseSchema>,
    /// What it may do in a given time before it is paused in the whole cluster (default: no limits).
    pub limits: AgentLimits,
    /// What a turn and a session may spend (as much as it takes).
    pub spend: SpendLimits,
    /// Turns at once on one node (default 256): more calls the provider harder, fewer makes
    /// sessions wait.
    pub max_turns: u32,
    /// Its share of a provider's slots, beside the weights of other agents that wait in the same lane (default
    /// 1, at most 1,000).
    pub weight: u32,
    /// The lane of turns whose message names none (default interactive).
    pub lane: Lane,
}

impl AgentOptions {
    /// An agent of this name and model, with the defaults.
    pub fn new(name: AgentName, model: ModelRef) -> Self {
        Self {
            name,
            model,
            system: String::new(),
            skills: Arc::default(),
            memory: None,
            context: None,
            compact_model: None,
            sampling: Sampling::default(),
            models: Vec::new(),
            routes: Vec::new(),
            fallback: Vec::new(),
            outage: Duration::from_millis(u64::from(Profile::outage())),
            profiles: ModelProfiles::default(),
            window_tokens: None,
            step_limit: 25,
            tools: Vec::new(),
            missing: Vec::new(),
            max_parallel_tools: Profile::parallel_tools(),
            loop_guard: LoopGuard::default(),
            policy: Policy::default(),
            step_wait: Duration::from_mins(5),
            time: TurnTime { global_ms: 3_600_000, step_ms: 900_000 },
            hooks: Vec::new(),
            response_schema: None,
            limits: AgentLimits::default(),
            spend: SpendLimits::default(),
            max_turns: 256,
            weight: AgentView::usual_weight(),
            lane: Lane::default(),
        }
    }

    /// What the model's view depends on.
    pub fn profile(&self) -> Profile {
        self.profile_with(&self.model)
    }

    /// The same, answered by this model. What is known of models is resolved here and journaled with the
    /// rest, so that a replay needs no table.
    pub fn profile_with(&self, model: &ModelRef) -> Profile {
        self.profile_of(&self.chain(model), model)
    }

    /// The models that may answer where this one is chosen.
    pub fn chain(&self, first: &ModelRef) -> Vec<ModelRef> {
        let mut chain = vec![first.clone()];
        for model in &self.fallback {
            if !chain.contains(model) {
                chain.push(model.clone());
            }
        }
        chain
    }

    /// The same for a call with these settings: without those after the first that do not take one of them.
    pub fn chain_with(&self, first: &ModelRef, settings: &Sampling) -> Vec<ModelRef> {
        let mut chain = self.chain(first);
        chain.retain(|model| model == first || self.profiles.refused(model, settings).is_none());
        chain
    }

    /// The same, answered by this model of a chain.
    pub fn profile_of(&self, chain: &[ModelRef], model: &ModelRef) -> Profile {
        let known = self.profiles.of(model);
        let window = self.profiles.window(model);
        let window_tokens = match self.window_tokens {
            Some(configured) if *model == self.model => configured,
            // It was configured for a model that may read more.
            Some(configured) => configured.min(window),
            None => window,
        };
        let real = self.profiles.real_window(model);
        let window_tokens = real.map_or(window_tokens, |real| real.min(window_tokens));
        Profile {
            agent: self.name.clone(),
            model: model.clone(),
            system: if known.tools { self.system_with_skills() } else { self.system.clone() }
                .into(),
            sampling: self.sampling.clone(),
            window_tokens,
            reply_tokens: known.reply_in(window_tokens),
            step_limit: self.step_limit,
            tools: if known.tools { self.tools.clone() } else { Vec::new() },
            max_parallel_tools: self.max_parallel_tools,
            loop_guard: self.loop_guard,
            policy: self.policy.clone(),
            step_wait_ms: u32::try_from(self.step_wait.as_millis()).unwrap_or(u32::MAX),
            time: self.time,
            hooks: self.hooks.clone(),
            chain: if chain.len() > 1 { chain.to_vec() } else { Vec::new() },
            outage_ms: u32::try_from(self.outage.as_millis()).unwrap_or(u32::MAX),
            response_schema: self.response_schema.clone(),
            routes: self.routes.clone(),
            limits: self.spend,
            context: self.context,
            compact_model: self.compact_model.clone(),
            reflects: self
                .memory
                .as_ref()
                .is_some_and(|memory| memory.reflect == ReflectionMode::Model),
            extracts: self
                .memory
                .as_ref()
                .is_some_and(|memory| memory.extract == FactExtraction::Model),
        }
    }

    /// The system prompt with the catalogue of its skills.
    pub fn system_with_skills(&self) -> String {
        let catalogue = &self.skills.catalogue;
        let seam = if self.system.is_empty() || catalogue.is_empty() { "" } else { "\n\n" };
        [self.system.as_str(), seam, catalogue].concat()
    }

    /// Whether a message may choose this model.
    pub fn allows(&self, model: &ModelRef) -> bool {
        let name = model.to_string();
        *model == self.model
            || self.models.iter().any(|pattern| Pattern::from(pattern.as_str()).fits(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(model: &str) -> AgentOptions {
        AgentOptions::new("main".parse().unwrap(), model.parse().unwrap())
    }

    #[test]
    fn what_an_agent_does_not_say_comes_from_its_model() {
        let read =
            |agent: &AgentOptions| (agent.profile().window_tokens, agent.profile().reply_tokens);
        let mut claude = agent("anthropic/claude-3-haiku-20240307");
        assert_eq!(read(&claude), (200_000, Some(4_096)));
        claude.window_tokens = Some(8_000);
        assert_eq!(read(&claude), (8_000, Some(2_000)), "what is configured is stronger");
        assert_eq!(read(&agent("x/unknown")), (100_000, None));
    }

    /// The catalogue names a tool that a model without tools cannot call.
    #[test]
    fn the_catalogue_follows_the_soul_where_the_model_takes_tools() {
        let mut agent = agent("anthropic/claude-sonnet-4-5");
        agent.system = "Be brief.".to_owned();
        let plain = agent.profile();
        let catalogue = "Skills: a".to_owned();
        agent.skills = Arc::new(AgentSkills { catalogue, ..AgentSkills::default() });
        assert_eq!(agent.profile().system.inline(), "Be brief.\n\nSkills: a");
        agent.system.clear();
        assert_eq!(agent.profile().system.inline(), "Skills: a");
        agent.skills = Arc::default();
        agent.system = "Be brief.".to_owned();
        assert_eq!(agent.profile(), plain, "without skills nothing is other");
        let without = agent.profiles.of(&"ollama/llama2".parse().unwrap());
        assert!(!without.tools, "the model of this test takes no tools");
        agent.skills =
            Arc::new(AgentSkills { catalogue: "x".to_owned(), ..AgentSkills::default() });
        let plain = agent.profile_with(&"ollama/llama2".parse().unwrap());
        assert_eq!(plain.system.inline(), "Be brief.");
    }

    #[test]
    fn what_a_provider_says_of_its_window_holds_for_all_sessions_of_the_process() {
        let grant = crate::agent::Grant::free(agent("anthropic/claude-sonnet-4-5"));
        let profile = || grant.profile_with(None, &Sampling::default(), |_| None);
        let window = || profile().window_tokens;
        assert_eq!(window(), 200_000);
        let model = &grant.options.model;
        for (says, window_tokens) in [(150_000, 150_000), (180_000, 150_000), (9_000, 9_000)] {
            grant.options.profiles.learn_window(model, says);
            assert_eq!(window(), window_tokens);
        }
        assert!(profile().reply_tokens.is_none_or(|tokens| tokens < 9_000));
    }

    #[test]
    fn a_chain_names_each_model_once_and_is_absent_where_there_is_one() {
        let mut agent = agent("a/one");
        assert!(agent.profile().chain.is_empty());
        agent.fallback = ["b/two", "a/one", "b/two"].map(|name| name.parse().unwrap()).to_vec();
        let names =
            |profile: Profile| profile.chain.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(names(agent.profile()), ["a/one", "b/two"]);
        let chosen = "c/three".parse().unwrap();
        assert_eq!(names(agent.profile_with(&chosen)), ["c/three", "b/two", "a/one"]);
    }

    #[test]
    fn another_model_has_its_own_limits_within_what_is_configured() {
        let mut agent = agent("anthropic/claude-sonnet-4-5");
        agent.models = vec!["ollama/*".to_owned()];
        agent.window_tokens = Some(150_000);
        for (model, window, allowed) in [
            ("anthropic/claude-sonnet-4-5", 150_000, true),
            ("ollama/llama2", 4_096, true),
            ("google/gemini-2.5-pro", 150_000, false),
        ] {
            let model = model.parse().unwrap();
            assert_eq!(agent.profile_with(&model).window_tokens, window, "{model}");
            assert_eq!(agent.allows(&model), allowed, "{model}");
        }
    }
}
