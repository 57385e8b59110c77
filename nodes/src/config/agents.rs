//! Settings of providers, agents and bindings.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use clawnode_actors::llm::{MAX_CALLS, Wire};
use clawnode_proto::{
    AgentName,
    agents::{AgentLimits, AgentView},
    budget::SpendLimits,
    lane::Lane,
    llm::{ModelRef, Sampling},
    money::MicroUsd,
    policy::{Policy, Rule, Verdict},
    reasoning::Reasoning,
    session::Profile,
    timeout::TurnTime,
    tool::Risk,
    units::ByteSize,
};
use serde::{Deserialize, Serialize};

use super::{
    agent_memory::AgentMemoryOptions,
    model_routes::RouteOptions,
    schema_source::SchemaSource,
    secret::ServerUrl,
    tools::{LoopGuardOptions, ToolSelection},
    units, usd,
};
use crate::secret::Secret;

/// The agent that answers where no binding fits; it needs no configuration.
pub const DEFAULT_AGENT: &str = "default";
/// `[providers.NAME]`: who serves models.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderSection {
    /// The protocol it speaks. The built-in names know theirs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire: Option<Wire>,
    /// Where it is, with `/v1` where it has one. Unless set: where the variable of its protocol says
    /// (`OPENAI_BASE_URL` and its like), else at the vendor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<ServerUrl>,
    /// The environment variable that holds its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The file that holds its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_file: Option<PathBuf>,
    /// The key itself; a file or a variable is a better place for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<Secret>,
    /// The region at Amazon. Unless set: `AWS_REGION`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The file with the keys of an account at Amazon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credentials_file: Option<PathBuf>,
    /// Whether to use the keys of the machine's role at Amazon (no).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub machine_role: bool,
    /// To connect (10 s).
    #[serde(with = "units::duration")]
    pub connect_timeout: Duration,
    /// Between two pieces of a streamed reply (60 s: reasoning models are silent for long).
    #[serde(with = "units::duration")]
    pub idle_timeout: Duration,
    /// One whole call, retries included (10 min).
    #[serde(with = "units::duration")]
    pub total_timeout: Duration,
    /// Further tries while nothing of the reply has been received (4).
    pub retries: u32,
    /// How often to ask whether it can be reached (never), from 5 s to 1 h. It costs no tokens.
    #[serde(skip_serializing_if = "Option::is_none", with = "units::maybe_duration")]
    pub probe: Option<Duration>,
    /// Model calls of one node at a time (64); more wait.
    pub max_calls: u32,
}

/// How much of a conversation a model is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContextChoice {
    /// All of it while it is short, then as much as `context_tokens` have room for.
    #[default]
    Auto,
    /// Always as much as `context_tokens` have room for.
    Bounded,
    /// The newest turns that fit into the model's window.
    Window,
}

/// `[agents.NAME]`: who answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSection {
    /// `PROVIDER/MODEL`. Unless set: the first provider that is found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Models that a message may choose instead (none), as patterns of `PROVIDER/MODEL`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Which model a call asks first instead of `model`, by its prompt (none): the first row that fits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteOptions>,
    /// Models that answer when `model` does not (none), as `PROVIDER/MODEL`, in order of preference.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<ModelRef>,
    /// How long a turn waits while no provider of its models is available (1 h, at most 7 days);
    /// `0s`: it fails at once.
    #[serde(with = "units::duration")]
    pub outage: Duration,
    /// The system prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// A file with the system prompt, instead of `system`. `AGENTS.md` in the same folder follows it, if it is there.
    /// Both have at most 128 KiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub soul: Option<PathBuf>,
    /// Its skills (`*`: all that the node has), by name or pattern. Each is named in the system prompt, and read by the
    /// model when it needs it.
    pub skills: Vec<String>,
    /// How much of a conversation the model is shown (`auto`): all of it while it is short, then the newest turns that
    /// fit into `context_tokens`. `bounded`: always that. `window`: the newest turns that fit into the model's window.
    pub context: ContextChoice,
    /// Tokens of a bounded request beside its running turn (5,000), at least 256: system prompt, tools and earlier turns.
    pub context_tokens: u32,
    /// How many of the newest turns a bounded request shows, if they fit (5), at most 8; older ones follow in blocks of
    /// so many, as far as they fit.
    pub recent_turns: u32,
    /// `PROVIDER/MODEL` that makes a summary of the oldest turns when its model's window is nearly full (none: they are
    /// left out). A cheap model will do. Each summary costs a call, under the budgets of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compact_model: Option<ModelRef>,
    /// What its turns are reminded of before their first call (nothing).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<AgentMemoryOptions>,
    /// How much its model thinks before it answers: `off`, `low`, `medium`, `high`, or a number of tokens
    /// from 1,024 on. Unless set, the provider decides.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Reasoning>,
    /// What its replies have to fit (nothing): a file with a JSON Schema, or the schema as a table. Those that do
    /// not are corrected by the model, at most twice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<SchemaSource>,
    /// How it chooses its words.
    pub sampling: SamplingOptions,
    /// Tokens that its model reads at most. Unless set: what is known of the model, but at most 200,000 as
    /// far as the built-in table knows it. Older turns are dropped beyond it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_tokens: Option<u32>,
    /// Model calls of one turn (25).
    pub step_limit: u32,
    /// What one turn may spend, in USD (as much as it takes); then it ends with what it has.
    #[serde(skip_serializing_if = "Option::is_none", with = "usd")]
    pub turn_usd: Option<MicroUsd>,
    /// Tokens that one turn may use, in and out (as many as it takes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn_tokens: Option<u64>,
    /// What one session may spend in all its turns, in USD (as much as it takes).
    #[serde(skip_serializing_if = "Option::is_none", with = "usd")]
    pub session_usd: Option<MicroUsd>,
    /// Tokens that one session may use in all its turns, in and out (as many as it takes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_tokens: Option<u64>,
    /// Turns at once on one node (256); more wait.
    pub max_turns: u32,
    /// Its share of a provider's calls, where agents wait for one (1, at most 1,000): an agent with 2 gets twice
    /// as many as one with 1.
    pub weight: u32,
    /// The lane of its turns whose message names none (`interactive`): `system`, `interactive` or `background`.
    pub lane: Lane,
    /// The tools it has (none): each costs tokens of every call. Those of an MCP server are
    /// `SERVER__TOOL`, or all that are approved: `SERVER__*`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSelection>,
    /// Tool calls of one reply that run at a time (8).
    pub max_parallel_tools: u32,
    /// What is done about a call that is made over and over.
    pub loop_guard: LoopGuardOptions,
    /// What it does by itself, and what a person is asked about: the first rule about a call
    /// decides. Without one, tools that only look are allowed, and a person is asked about all
    /// others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleOptions>,
    /// How long a person is waited for (7 days, at most 90); then the call is refused.
    #[serde(with = "units::duration")]
    pub approval_wait: Duration,
    /// How long a turn that has used up its steps waits to be given more (5 min); `0s`: it ends.
    #[serde(with = "units::duration")]
    pub step_wait: Duration,
    /// How long its turns, and their steps, may take.
    pub timeouts: TimeoutOptions,
    /// What it may do in a given time (no limits).
    #[serde(skip_serializing_if = "LimitOptions::is_empty")]
    pub limits: LimitOptions,
}

/// `[agents.NAME.limits]`: what an agent may do in a given time (no limits). An agent that exceeds one is paused
/// on every node and its running turns end, until an operator resumes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitOptions {
    /// Tool calls that begin in a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_calls_per_minute: Option<u32>,
    /// Bytes that `http_fetch`, `http_post`, plugins and tools of MCP servers with a `url` send and receive in 24 hours.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress_bytes_per_day: Option<ByteSize>,
    /// Turns that begin in an hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns_per_hour: Option<u32>,
}

/// `[agents.NAME.timeouts]`: how long turns and steps may take. The shortest of these, of the
/// executor's limit and of a tool's own timeout applies to a tool call. The clock stops while a
/// turn waits for a person or a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutOptions {
    /// A whole turn, from its first model call on (1 h); `0s`: as long as it takes. What it has by
    /// then is its reply.
    #[serde(with = "units::duration")]
    pub global: Duration,
    /// One step of it, a model call with the tools that it asks for (15 min); `0s`: as long as it
    /// takes.
    #[serde(with = "units::duration")]
    pub step: Duration,
}

impl Default for TimeoutOptions {
    fn default() -> Self {
        Self { global: Duration::from_hours(1), step: Duration::from_mins(15) }
    }
}

impl From<TimeoutOptions> for TurnTime {
    fn from(options: TimeoutOptions) -> Self {
        let ms = |time: Duration| u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        Self { global_ms: ms(options.global), step_ms: ms(options.step) }
    }
}

/// `[[agents.NAME.rules]]`: what follows for tool calls that fit all that is given. Patterns are of
/// the whole text: `*` is any characters, `?` is one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleOptions {
    /// Tools with such names; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// Tools of this risk (`READ_ONLY`, `WRITE`, `ADMIN`); of any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// Arguments by name (`.` leads into objects): each is there and has such a value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// Whether `arguments` are all the arguments, character by character (no); `*` alone is any value.
    /// Only of rules that `allow`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
    /// What follows: `allow`, `ask` or `deny`.
    pub verdict: Verdict,
    /// Why, for people and for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `[agents.NAME.sampling]`: how an agent chooses its words; what is absent is the provider's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SamplingOptions {
    /// 0 (always the likeliest) to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// From which share of the likeliest words to choose, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// Most tokens of one reply.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// Texts at which to stop.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stop: Vec<String>,
}

/// `[[bindings]]`: this agent answers what fits all that is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BindingSection {
    /// Who answers.
    pub agent: AgentName,
    /// The other side: a user, a room.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// The server or workspace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guild: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<String>,
    /// Our side of the channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
}

impl ProviderSection {
    /// The protocol that the provider of this name speaks; none if nothing says which.
    pub fn wire_of(&self, name: &str) -> Option<Wire> {
        let url = self.base_url.as_ref().map(ServerUrl::expose);
        self.wire.or_else(|| Wire::of_provider(name, url))
    }
}

impl Default for ProviderSection {
    fn default() -> Self {
        Self {
            wire: None,
            base_url: None,
            api_key_env: None,
            api_key_file: None,
            api_key: None,
            region: None,
            credentials_file: None,
            machine_role: false,
            connect_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_mins(1),
            total_timeout: Duration::from_mins(10),
            retries: 4,
            probe: None,
            max_calls: MAX_CALLS,
        }
    }
}

impl Default for AgentSection {
    fn default() -> Self {
        Self {
            model: None,
            models: Vec::new(),
            routes: Vec::new(),
            fallback: Vec::new(),
            outage: Duration::from_millis(u64::from(Profile::outage())),
            system: None,
            soul: None,
            skills: vec!["*".to_owned()],
            context: ContextChoice::default(),
            context_tokens: 5_000,
            recent_turns: 5,
            compact_model: None,
            memory: None,
            reasoning: None,
            response_schema: None,
            sampling: SamplingOptions::default(),
            window_tokens: None,
            step_limit: 25,
            turn_usd: None,
            turn_tokens: None,
            session_usd: None,
            session_tokens: None,
            max_turns: 256,
            weight: AgentView::usual_weight(),
            lane: Lane::default(),
            tools: Vec::new(),
            max_parallel_tools: Profile::parallel_tools(),
            loop_guard: LoopGuardOptions::default(),
            rules: Vec::new(),
            approval_wait: Duration::from_millis(Policy::WAIT_MS),
            step_wait: Duration::from_mins(5),
            timeouts: TimeoutOptions::default(),
            limits: LimitOptions::default(),
        }
    }
}

impl LimitOptions {
    /// Whether it limits nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl From<LimitOptions> for AgentLimits {
    fn from(options: LimitOptions) -> Self {
        Self {
            tool_calls_per_minute: options.tool_calls_per_minute.map(u64::from),
            egress_bytes_per_day: options.egress_bytes_per_day.map(|size| size.0),
            turns_per_hour: options.turns_per_hour.map(u64::from),
        }
    }
}

impl AgentSection {
    /// What its turns and sessions may spend.
    pub const fn spend(&self) -> SpendLimits {
        let Self { turn_usd, turn_tokens, session_usd, session_tokens, .. } = *self;
        SpendLimits { turn_usd, turn_tokens, session_usd, session_tokens }
    }
}

impl From<RuleOptions> for Rule {
    fn from(options: RuleOptions) -> Self {
        let RuleOptions { tool, risk, arguments, exact, verdict, reason } = options;
        Self { tool, risk, arguments, exact, verdict, reason }
    }
}

impl From<Rule> for RuleOptions {
    fn from(rule: Rule) -> Self {
        let Rule { tool, risk, arguments, exact, verdict, reason } = rule;
        Self { tool, risk, arguments, exact, verdict, reason }
    }
}

impl From<SamplingOptions> for Sampling {
    fn from(options: SamplingOptions) -> Self {
        let SamplingOptions { temperature, top_p, max_tokens, stop } = options;
        Self { temperature, top_p, max_tokens, stop, ..Self::default() }
    }
}

impl BindingSection {
    /// Whether it says anything about where.
    pub const fn is_anywhere(&self) -> bool {
        self.peer.is_none()
            && self.guild.is_none()
            && self.team.is_none()
            && self.account.is_none()
            && self.channel.is_none()
    }
}
