//! An agent's configuration.

use std::time::Duration;

use clawnode_proto::{
    AgentName,
    hook::HookSpec,
    llm::{ModelRef, Sampling},
    policy::Policy,
    session::Profile,
    timeout::TurnTime,
    tool::{LoopGuard, ToolSpec},
};

/// How an agent answers; resolved from the configuration, soul file included.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentOptions {
    /// The part of session ids before the first `:`.
    pub name: AgentName,
    /// Which model answers.
    pub model: ModelRef,
    /// The system prompt (the soul's text).
    pub system: String,
    /// Settings of its calls.
    pub sampling: Sampling,
    /// Tokens that the model reads at most (default 128,000): more keeps older turns longer, and
    /// costs more per call.
    pub window_tokens: u32,
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
    /// Turns at once on one node (default 256): more calls the provider harder, fewer makes
    /// sessions wait.
    pub max_turns: u32,
}

impl AgentOptions {
    /// An agent of this name and model, with the defaults.
    pub fn new(name: AgentName, model: ModelRef) -> Self {
        Self {
            name,
            model,
            system: String::new(),
            sampling: Sampling::default(),
            window_tokens: 128_000,
            step_limit: 25,
            tools: Vec::new(),
            missing: Vec::new(),
            max_parallel_tools: Profile::parallel_tools(),
            loop_guard: LoopGuard::default(),
            policy: Policy::default(),
            step_wait: Duration::from_mins(5),
            time: TurnTime { global_ms: 3_600_000, step_ms: 900_000 },
            hooks: Vec::new(),
            max_turns: 256,
        }
    }

    /// What the model's view depends on.
    pub fn profile(&self) -> Profile {
        Profile {
            agent: self.name.clone(),
            model: self.model.clone(),
            system: self.system.clone(),
            sampling: self.sampling.clone(),
            window_tokens: self.window_tokens,
            step_limit: self.step_limit,
            tools: self.tools.clone(),
            max_parallel_tools: self.max_parallel_tools,
            loop_guard: self.loop_guard,
            policy: self.policy.clone(),
            step_wait_ms: u32::try_from(self.step_wait.as_millis()).unwrap_or(u32::MAX),
            time: self.time,
            hooks: self.hooks.clone(),
        }
    }
}
