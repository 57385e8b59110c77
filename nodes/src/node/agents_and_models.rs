//! From settings to providers and agents.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use clawnode_actors::{
    agent::AgentOptions,
    hook::Hooks,
    llm::{
        self, ModelChoice, Models,
        circuit::Circuits,
        discover, ollama_models,
        profile::{ModelOverride, ModelProfiles},
    },
    session::{
        clients::bindings::{self, Routes},
        turn::context::count_tokens,
    },
};
use clawnode_cluster::{Clock, SystemClock};
use clawnode_executors::mcp::Pins;
use clawnode_proto::{
    AgentName, Capability, ErrorChain, ToolName, llm::Sampling, policy::Policy, tool::ToolSpec,
};
use clawnode_tool::skill::{AgentSkills, FoundSkills, SkillShelf};
use secrecy::SecretString;
use tracing::warn;

use super::{agent_tools, hooks, mcp_servers, plugins::NodePlugins, skills};
use crate::{
    config::{
        self, Config, Env, LoadedConfig, agents::DEFAULT_AGENT, schema_source::SchemaSource,
        tools::ToolSelection,
    },
    start_error::StartError,
};

/// Everything about who answers.
#[derive(Clone, Debug)]
pub struct Answering {
    /// The providers.
    pub models: Models,
    /// Patterns of those that clients may ask for embeddings.
    pub embeddings: Vec<String>,
    /// The agents, without the tools of MCP servers.
    pub agents: ConfiguredAgents,
    /// Which agent answers where.
    pub routes: Routes,
    /// The default model, and why that one.
    pub choice: ModelChoice,
    /// The plugins that agents may have tools of.
    pub plugins: NodePlugins,
    /// The hooks that judge their calls.
    pub hooks: Hooks,
}

/// The agents of a configuration, without the tools of MCP servers.
#[derive(Clone, Debug)]
pub struct ConfiguredAgents(Vec<AgentOptions>);

/// What a node has read beside its settings, for its agents.
#[derive(Clone, Debug)]
pub struct AnsweringParts {
    /// The plugins that agents may have tools of.
    pub plugins: NodePlugins,
    /// The hooks that judge their calls.
    pub hooks: Hooks,
    /// The skills that they may have.
    pub skills: FoundSkills,
}

impl Answering {
    /// The skills of all agents, for the tools that hand them out.
    pub fn shelf(&self) -> SkillShelf {
        let skills = SkillShelf::default();
        self.shelve(&skills);
        skills
    }

    /// Replaces the skills on a shelf by those of all agents.
    pub fn shelve(&self, skills: &SkillShelf) {
        skills.replace(
            self.agents.0.iter().map(|agent| (agent.name.clone(), Arc::clone(&agent.skills))),
        );
    }
}

impl ConfiguredAgents {
    /// With the tools of MCP servers too, as far as they are approved. `config` is the configuration that they are of.
    pub fn with_mcp(&self, config: &Config, pins: &Pins) -> Vec<AgentOptions> {
        let with = |agent: &AgentOptions| {
            let choices = config.agents.get(&agent.name).map(|section| section.tools.as_slice());
            let choices = choices.unwrap_or_default();
            let tools = mcp_servers::with_tools(agent.tools.clone(), &agent.name, choices, pins);
            let missing = mcp_servers::missing(choices, &tools);
            let tools = tools.into_iter().map(|spec| config.tools.timed(spec)).collect();
            let read_only = config.tools.run_command.read_only.clone();
            let policy = Policy { read_only, ..agent.policy.clone() };
            AgentOptions { tools, missing, policy, ..agent.clone() }
        };
        self.0.iter().map(with).collect()
    }
}

/// Reads who answers from the settings; looks for a provider where they name none. `circuits` are
/// those that the process has.
pub async fn answering(
    config: &Config,
    env: &Env,
    clock: &Arc<dyn Clock>,
    parts: AnsweringParts,
    circuits: &Circuits,
) -> Result<Answering, StartError> {
    let lookup = |name: &str| env.get(name).map(str::to_owned);
    let choice = match named(config) {
        Some(choice) => choice,
        None => discover(&lookup, ollama_models).await,
    };
    resolved(config, env, clock, choice, parts, circuits)
}

/// What a check finds of a configuration with which a node starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedConfig {
    /// What the agents' tools need of a node, without those of plugins and MCP servers.
    pub needs: BTreeSet<Capability>,
    /// What is probably not meant, for people.
    pub warnings: Vec<String>,
}

/// Refuses a configuration with which no node starts, as the start would; asks no other machine, and
/// loads no plugin.
pub fn check(loaded: &LoadedConfig) -> Result<CheckedConfig, StartError> {
    let (config, env) = (&loaded.config, loaded.env());
    let plugins = NodePlugins::unloaded(config, "a check loads none");
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let demo = || ModelChoice { model: llm::demo_model(), why: "for a check".to_owned() };
    let choice = named(config).unwrap_or_else(demo);
    let (hooks, circuits) = (hooks::open(loaded)?, Circuits::default());
    let skills = skills::found(loaded);
    let of_skills = skills::warnings(loaded, &skills);
    let parts = AnsweringParts { plugins, hooks, skills };
    let answering = resolved(config, env, &clock, choice, parts, &circuits)?;
    mcp_servers::check(config, env)?;
    let warnings = answering.agents.0.iter().flat_map(|agent| {
        let choices = config.agents.get(&agent.name).map(|section| section.tools.as_slice());
        let tools = without_tools(agent, choices.unwrap_or_default());
        tools
            .into_iter()
            .chain(count_tokens::warning(&agent.profile()))
            .chain(unpriced_route(agent))
    });
    let warnings = warnings.chain(of_skills).collect();
    let tools = answering.agents.0.into_iter().flat_map(|agent| agent.tools);
    let needs = tools.filter_map(|tool| tool.capability).collect();
    Ok(CheckedConfig { needs, warnings })
}

/// What an agent with tools has to be told whose models take none; `choices` are the tools of its settings.
fn without_tools(agent: &AgentOptions, choices: &[ToolSelection]) -> Option<String> {
    if agent.tools.is_empty() && choices.is_empty() {
        return None;
    }
    let routed = agent.routes.iter().map(|row| row.model.clone());
    let mut models = agent.chain(&agent.model).into_iter().chain(routed);
    let model = models.find(|model| !agent.profiles.of(model).tools)?;
    let name = &agent.name;
    Some(format!(
        "agent `{name}` has tools, and its model `{model}` takes none: with that model it has no tools"
    ))
}

/// What an agent has to be told one of whose routes fits no call, because its model has no price.
fn unpriced_route(agent: &AgentOptions) -> Option<String> {
    let has_no_price = |model| agent.profiles.call_price(model).known().is_none();
    let mut limited = (1..).zip(&agent.routes).filter(|(_, row)| row.max_usd.is_some());
    let (number, row) = limited.find(|(_, row): &(u32, _)| has_no_price(&row.model))?;
    Some(format!(
        "agent `{}`: row {number} of its routes fits no call, because `{}` has no price: set \
         `[prices.\"{}\"]`",
        agent.name, row.model, row.model
    ))
}

/// The model that the settings name for all agents.
fn named(config: &Config) -> Option<ModelChoice> {
    let model = config.agents.values().find_map(|agent| agent.model.clone())?;
    let all = config.agents.values().all(|agent| agent.model.is_some());
    all.then(|| ModelChoice { model, why: "the configuration names it".to_owned() })
}

fn resolved(
    config: &Config,
    env: &Env,
    clock: &Arc<dyn Clock>,
    choice: ModelChoice,
    AnsweringParts { plugins, hooks, skills }: AnsweringParts,
    circuits: &Circuits,
) -> Result<Answering, StartError> {
    let lookup = |name: &str| env.get(name).map(str::to_owned);
    let providers = providers(config)?;
    let profiles = profiles_of(config, &providers, &lookup);
    let models = Models::with(providers, &profiles, &lookup, clock, circuits);
    let default: AgentName = DEFAULT_AGENT
        .parse()
        .map_err(|error| StartError::failed("internal", format!("{error}")))?;
    let catalogue = agent_tools::catalogue(config, env, clock, &plugins);
    let mut agents = Vec::new();
    let parts = AgentParts {
        choice: &choice,
        profiles: &profiles,
        catalogue: &catalogue,
        plugins: &plugins,
        hooks: &hooks,
        skills: &skills,
    };
    for (name, options) in &config.agents {
        agents.push(agent(name, options, &parts)?);
    }
    if !agents.iter().any(|agent| agent.name == default) {
        agents.push(agent(&default, &config::AgentSection::default(), &parts)?);
    }
    for agent in &agents {
        let choices = config.agents.get(&agent.name).map(|section| section.tools.as_slice());
        let tools = without_tools(agent, choices.unwrap_or_default());
        for warning in tools.into_iter().chain(unpriced_route(agent)) {
            warn!("{warning}");
        }
        let refused = |why: String| {
            let what = format!("agent `{}`: {why}", agent.name);
            StartError::config("config_invalid", what)
                .hint("choose another with `--model PROVIDER/MODEL`, or complete the provider")
        };
        let routed = agent.routes.iter().map(|row| row.model.clone());
        for model in agent.chain(&agent.model).into_iter().chain(routed) {
            models.resolve(&model).map_err(|error| refused(ErrorChain(&error).to_string()))?;
            models.check(&model).map_err(|failure| refused(failure.message))?;
        }
    }
    // People see the model of the agent that they speak to unless they name another.
    let choice = match config.agents.get(&default).and_then(|agent| agent.model.clone()) {
        Some(model) => ModelChoice { model, why: format!("agent `{default}` has it") },
        None => choice,
    };
    let bindings: Vec<bindings::Binding> = config.bindings.iter().map(binding).collect();
    let routes = Routes::build(default, &bindings)
        .map_err(|error| StartError::config("config_invalid", ErrorChain(&error).to_string()))?;
    let embeddings = config.embeddings.models.clone();
    let agents = ConfiguredAgents(agents);
    Ok(Answering { models, embeddings, agents, routes, choice, plugins, hooks })
}

fn providers(config: &Config) -> Result<BTreeMap<String, llm::ProviderOptions>, StartError> {
    let read = |(name, section): (&String, _)| Ok((name.clone(), provider(name, section)?));
    config.providers.iter().map(read).collect()
}

/// What the settings say of models, and `lookup`, which reads the environment, of where providers are.
pub fn profiles(
    config: &Config,
    lookup: &(dyn Fn(&str) -> Option<String> + Sync),
) -> Result<ModelProfiles, StartError> {
    Ok(profiles_of(config, &providers(config)?, lookup))
}

fn profiles_of(
    config: &Config,
    providers: &BTreeMap<String, llm::ProviderOptions>,
    lookup: &(dyn Fn(&str) -> Option<String> + Sync),
) -> ModelProfiles {
    let known =
        config.models.iter().map(|(pattern, section)| (pattern.clone(), section.to_override()));
    let mut known: BTreeMap<String, ModelOverride> = known.collect();
    for (pattern, price) in &config.prices {
        known.entry(pattern.clone()).or_default().price = Some(price.to_price());
    }
    ModelProfiles::new(known).with_providers(llm::provider_places(providers, lookup))
}

fn provider(
    name: &str,
    section: &config::ProviderSection,
) -> Result<llm::ProviderOptions, StartError> {
    let invalid = |detail: String| {
        StartError::config("config_invalid", format!("`providers.{name}`: {detail}"))
    };
    let Some(wire) = section.wire_of(name) else {
        return Err(invalid("`wire` is missing".to_owned())
            .hint("write `wire = \"openai\"` or `wire = \"anthropic\"`"));
    };
    let mut options = llm::ProviderOptions::new(wire);
    if let Some(url) = &section.base_url {
        let url = url.expose().parse().map_err(|error| invalid(format!("`base_url`: {error}")))?;
        options.base_url = Some(url);
    }
    options.api_key_env.clone_from(&section.api_key_env);
    options.api_key_file.clone_from(&section.api_key_file);
    options.api_key =
        section.api_key.as_ref().map(|key| SecretString::from(key.expose().to_owned()));
    options.region.clone_from(&section.region);
    options.credentials_file.clone_from(&section.credentials_file);
    options.machine_role = section.machine_role;
    options.connect_timeout = section.connect_timeout;
    options.idle_timeout = section.idle_timeout;
    options.total_timeout = section.total_timeout;
    options.retries = section.retries;
    options.probe = section.probe;
    options.max_calls = section.max_calls;
    options.check().map_err(|error| invalid(ErrorChain(&error).to_string()))?;
    Ok(options)
}

/// What agents are made of, beside their settings.
struct AgentParts<'a> {
    /// The model of those that name none.
    choice: &'a ModelChoice,
    /// What is known of models.
    profiles: &'a ModelProfiles,
    /// The tools that agents may be given.
    catalogue: &'a [ToolSpec],
    plugins: &'a NodePlugins,
    hooks: &'a Hooks,
    /// The skills that agents may have.
    skills: &'a FoundSkills,
}

fn agent(
    name: &AgentName,
    section: &config::AgentSection,
    parts: &AgentParts<'_>,
) -> Result<AgentOptions, StartError> {
    let AgentParts { choice, profiles, catalogue, plugins, hooks, skills } = parts;
    let model = section.model.clone().unwrap_or_else(|| choice.model.clone());
    let mut options = AgentOptions::new(name.clone(), model);
    options.models.clone_from(&section.models);
    options.fallback.clone_from(&section.fallback);
    options.compact_model.clone_from(&section.compact_model);
    options.routes = section.routes.iter().cloned().map(Into::into).collect();
    options.outage = section.outage;
    options.profiles = (*profiles).clone();
    options.system = section.prompt().map_err(|error| {
        let path = section.soul.as_deref().unwrap_or(Path::new(""));
        let what =
            format!("agent `{name}`: cannot read the soul file `{}`: {error}", path.display());
        StartError::config("config_invalid", what)
            .hint("write the file, or name another with `soul`")
    })?;
    options.skills = Arc::new(AgentSkills::chosen(&skills.skills, &section.skills));
    options.context = section.context_settings();
    options.memory = section.memory.as_ref().map(Into::into);
    options.sampling = Sampling { reasoning: section.reasoning, ..section.sampling.clone().into() };
    options.response_schema =
        section.response_schema.as_ref().map(SchemaSource::read).transpose().map_err(|what| {
            let what = format!("agent `{name}`: `response_schema`: {what}");
            StartError::config("config_invalid", what).hint("correct the JSON Schema")
        })?;
    options.window_tokens = section.window_tokens;
    options.step_limit = section.step_limit;
    options.spend = section.spend();
    options.max_turns = section.max_turns;
    options.limits = section.limits.into();
    options.weight = section.weight;
    options.lane = section.lane;
    let own = section.tools.iter().filter_map(ToolSelection::name);
    let own = own.filter(|name| plugins.owns(name) || name.mcp_server().is_none());
    let mut own: Vec<ToolName> = own.cloned().collect();
    own.extend(
        skills::tools(&options.skills, &own).filter(|name| !own.contains(name)).collect::<Vec<_>>(),
    );
    options.tools = agent_tools::chosen(catalogue, name, &plugins.present(name, &own))?;
    let shared = options.memory.as_ref().map(|memory| memory.shared.as_slice());
    agent_tools::narrow(&mut options.tools, shared.unwrap_or_default());
    options.max_parallel_tools = section.max_parallel_tools;
    options.loop_guard = section.loop_guard.into();
    options.policy = Policy {
        rules: section.rules.iter().cloned().map(Into::into).collect(),
        approval_wait_ms: u64::try_from(section.approval_wait.as_millis()).unwrap_or(u64::MAX),
        // The same for all agents: see `ConfiguredAgents::with_mcp`.
        read_only: Vec::new(),
    };
    options.step_wait = section.step_wait;
    options.time = section.timeouts.into();
    options.hooks = hooks.of_agent(name);
    Ok(options)
}

fn binding(section: &config::BindingSection) -> bindings::Binding {
    bindings::Binding {
        agent: section.agent.clone(),
        channel: section.channel.clone(),
        account: section.account.clone(),
        peer: section.peer.clone(),
        guild: section.guild.clone(),
        team: section.team.clone(),
    }
}
