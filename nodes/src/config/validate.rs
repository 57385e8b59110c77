//! What is well-formed and wrong.

use std::{collections::BTreeMap, time::Duration};

use clawnode_actors::{agent::WEIGHT_MAX, llm::Wire};
use clawnode_guard::policy::ReadOnly;
use clawnode_proto::{
    limits::{self, AGENT_COUNTS_TOLD, APPROVAL_WAIT_MAX, JOB_WAIT_MAX, POLICY_RULES, RULE_CHARS},
    policy::Verdict,
};

use super::{
    agent_memory::AgentMemoryOptions,
    agents::{AgentSection, DEFAULT_AGENT, LimitOptions},
    error::{ConfigError, nearest},
    mcp::{self, McpServerFault, is_http},
    models::{self, ModelFault},
    options::Config,
    prices,
    schema_source::SchemaSource,
    tools::ToolTimeout,
    tree::ConfigNode,
};

/// The shortest wait for a person that makes sense.
const APPROVAL_WAIT_MIN: Duration = Duration::from_secs(1);
/// The longest wait for more steps: a turn that waits keeps those behind it waiting.
const STEP_WAIT_MAX: Duration = Duration::from_hours(24);
/// The longest time of a turn or step: what takes longer is better made of several turns.
const TURN_TIME_MAX: Duration = Duration::from_hours(7 * 24);
/// The longest time of a tool call: a node looks after a job no longer.
const TOOL_TIME_MAX: Duration = Duration::from_hours(1);
/// The least `cluster.lost_after`: an election of the servers takes about as long.
const LOST_AFTER_LEAST: Duration = Duration::from_secs(2);
/// The least `gateway.max_unread`: a piece of a reply has to fit.
const UNREAD_LEAST: u64 = 64 << 10;
/// Plugins of one node (64): each takes memory for its code.
const PLUGINS: usize = 64;

/// Hosts of one node over SSH (64): each is probed again and again.
const SSH_HOSTS: usize = 64;

/// Refuses the first thing that is wrong.
pub(super) fn check(config: &Config, tree: &ConfigNode) -> Result<(), ConfigError> {
    let checks = Checks { config, tree };
    checks.node()?;
    checks.gateway()?;
    checks.cluster()?;
    checks.session()?;
    checks.providers()?;
    checks.models()?;
    checks.patterns(&["embeddings", "models"], &config.embeddings.models)?;
    checks.agents()?;
    checks.budgets()?;
    checks.memory()?;
    checks.at_least_one(&["tools", "max_jobs"], config.tools.max_jobs)?;
    checks.some_time(&["tools", "job_wait"], config.tools.job_wait)?;
    checks.job_wait()?;
    for (name, ToolTimeout(time)) in &config.tools.timeouts {
        checks.tool_time(name.as_str(), *time)?;
    }
    checks.read_only_commands()?;
    checks.mcp_servers()?;
    checks.plugins()?;
    checks.skills()?;
    checks.ssh_hosts()?;
    checks.sandbox()?;
    checks.bindings()
}

pub(super) struct Checks<'a> {
    pub(super) config: &'a Config,
    tree: &'a ConfigNode,
}

impl Checks<'_> {
    pub(super) fn fail(
        &self,
        path: &[&str],
        what: impl Into<String>,
        hint: &str,
    ) -> Result<(), ConfigError> {
        Err(ConfigError::new(&path.join("."), self.tree.origin_of(path), what, hint))
    }

    fn at_least_one(&self, path: &[&str], value: u32) -> Result<(), ConfigError> {
        match value {
            0 => self.fail(path, "0 is too few", "write 1 or more"),
            _ => Ok(()),
        }
    }

    pub(super) fn some_time(&self, path: &[&str], value: Duration) -> Result<(), ConfigError> {
        match value {
            Duration::ZERO => self.fail(path, "it is zero", "write a duration such as `10s`"),
            _ => Ok(()),
        }
    }

    /// A job that is older than `limits::JOB_AGE_MAX` is never begun, so no call may wait that
    /// long.
    fn job_wait(&self) -> Result<(), ConfigError> {
        if self.config.tools.job_wait <= JOB_WAIT_MAX {
            return Ok(());
        }
        let hint = "write `48h` or less";
        self.fail(&["tools", "job_wait"], "it is longer than 48 h", hint)
    }

    fn read_only_commands(&self) -> Result<(), ConfigError> {
        let (key, all) =
            (["tools", "run_command", "read_only"], &self.config.tools.run_command.read_only);
        if all.len() > limits::READ_ONLY_COMMANDS {
            let what = format!("{} commands, at most {}", all.len(), limits::READ_ONLY_COMMANDS);
            return self.fail(&key, what, "name fewer");
        }
        for command in all {
            if command.chars().count() > RULE_CHARS {
                let what = format!("a command has more than {RULE_CHARS} characters");
                return self.fail(&key, what, "make it shorter");
            }
            if let Err(error) = ReadOnly::parse(command) {
                let what = format!("clawnode cannot tell that `{command}` only reads: {error}");
                return self.fail(&key, what, "write words such as `git status` or `git diff *`");
            }
        }
        Ok(())
    }

    fn tool_time(&self, name: &str, value: Duration) -> Result<(), ConfigError> {
        if value.is_zero() || value > TOOL_TIME_MAX {
            let what = "it must be 1 ms to 1 h";
            let hint = "write a duration such as `30s`";
            return self.fail(&["tools", "timeouts", name], what, hint);
        }
        Ok(())
    }

    fn node(&self) -> Result<(), ConfigError> {
        if self.config.node.data_dir.as_os_str().is_empty() {
            let what = "no data directory, because neither `XDG_DATA_HOME` nor `HOME` is set";
            return self.fail(&["node", "data_dir"], what, "set `--data-dir DIR`");
        }
        Ok(())
    }

    fn gateway(&self) -> Result<(), ConfigError> {
        let gateway = &self.config.gateway;
        let listen = gateway.listen;
        let tls = match (&gateway.tls_cert, &gateway.tls_key) {
            (Some(_), Some(_)) => true,
            (None, None) => false,
            (Some(_), None) => {
                let what = "a certificate without its key";
                return self.fail(&["gateway", "tls_cert"], what, "set `gateway.tls_key` as well");
            }
            (None, Some(_)) => {
                let what = "a key without its certificate";
                return self.fail(&["gateway", "tls_key"], what, "set `gateway.tls_cert` as well");
            }
        };
        if gateway.no_auth && !listen.ip().is_loopback() {
            let what = format!("`{listen}` is not loopback, so a token is needed");
            let hint = "leave out `--no-auth`, or listen on 127.0.0.1";
            return self.fail(&["gateway", "no_auth"], what, hint);
        }
        if !listen.ip().is_loopback() && !tls && !gateway.plain_http {
            let what = format!("`{listen}` is not loopback, so it needs TLS");
            let hint = "set `--tls-cert FILE --tls-key FILE`, or `--plain-http` behind a proxy \
                        that has TLS";
            return self.fail(&["gateway", "listen"], what, hint);
        }
        if let Some(url) = &gateway.advertise
            && !is_http(url)
        {
            let what = format!("`{url}` is not an address that clients can use");
            let hint = "write one such as `https://gateway-1.example:3100`";
            return self.fail(&["gateway", "advertise"], what, hint);
        }
        let most = limits::MESSAGE_BYTES as u64;
        if gateway.message_size.0 == 0 || gateway.message_size.0 > most {
            let what = format!("`{}` is not between 1B and 1MiB", gateway.message_size);
            return self.fail(&["gateway", "message_size"], what, "write a size in this range");
        }
        if gateway.max_unread.0 < UNREAD_LEAST {
            let what = format!("`{}` is less than 64KiB", gateway.max_unread);
            return self.fail(&["gateway", "max_unread"], what, "write 64KiB or more");
        }
        self.at_least_one(&["gateway", "max_connections"], gateway.max_connections)
    }

    fn cluster(&self) -> Result<(), ConfigError> {
        let cluster = &self.config.cluster;
        if let Some(count) = cluster.partitions
            && !(1..=limits::PARTITIONS_MAX).contains(&count)
        {
            let what = format!("{count} is not in the range 1 to {}", limits::PARTITIONS_MAX);
            return self.fail(&["cluster", "partitions"], what, "write a number in this range");
        }
        if let Some(count) = cluster.replicas
            && ![1, 3, 5].contains(&count)
        {
            let what = format!("{count} replicas are not supported: use 1, 3 or 5");
            return self.fail(&["cluster", "replicas"], what, "write 1, 3 or 5");
        }
        for (key, value) in [
            ("heartbeat", cluster.heartbeat),
            ("probe_every", cluster.probe_every),
            ("probe_again", cluster.probe_again),
        ] {
            self.some_time(&["cluster", key], value)?;
        }
        if cluster.dead_after < cluster.heartbeat.saturating_mul(3) {
            let what = "it is shorter than three heartbeats: live nodes would seem dead";
            let hint = "write three times `cluster.heartbeat` or more";
            return self.fail(&["cluster", "dead_after"], what, hint);
        }
        if cluster.lost_after < LOST_AFTER_LEAST {
            let what = "it is too short: an election of the NATS servers would stop all work";
            return self.fail(&["cluster", "lost_after"], what, "write two seconds or more");
        }
        if cluster.sys_credentials.is_some() && cluster.nats.is_none() {
            let what = "a system account needs NATS servers";
            return self.fail(&["cluster", "sys_credentials"], what, "set `cluster.nats` as well");
        }
        Ok(())
    }

    fn session(&self) -> Result<(), ConfigError> {
        let session = &self.config.session;
        self.some_time(&["session", "passivate_after"], session.passivate_after)?;
        self.at_least_one(&["session", "snapshot_every"], session.snapshot_every)?;
        self.at_least_one(&["session", "max_active"], session.max_active)?;
        match session.keep_stateless {
            Some(keep) => self.some_time(&["session", "keep_stateless"], keep),
            None => Ok(()),
        }
    }

    fn providers(&self) -> Result<(), ConfigError> {
        for (name, provider) in &self.config.providers {
            if name.is_empty() || name.contains('/') {
                let what = format!("`{name}` is not a provider name");
                return self.fail(&["providers", name], what, "use letters, digits, `-`, `_`");
            }
            if provider.wire_of(name).is_none() {
                let what = format!("provider `{name}` does not say which protocol it speaks");
                let hint = "add `wire = \"openai\"` (for every compatible server) or \
                            `wire = \"anthropic\"`";
                return self.fail(&["providers", name], what, hint);
            }
            for (key, value) in [
                ("connect_timeout", provider.connect_timeout),
                ("idle_timeout", provider.idle_timeout),
                ("total_timeout", provider.total_timeout),
            ] {
                self.some_time(&["providers", name, key], value)?;
            }
            self.at_least_one(&["providers", name, "max_calls"], provider.max_calls)?;
        }
        Ok(())
    }

    fn models(&self) -> Result<(), ConfigError> {
        let takes_num_ctx = |wire: Option<Wire>| wire.is_some_and(Wire::takes_num_ctx);
        let mut providers: BTreeMap<&str, bool> = Wire::built_in_providers()
            .map(|name| (name, takes_num_ctx(Wire::of_provider(name, None))))
            .collect();
        for (name, provider) in &self.config.providers {
            providers.insert(name, takes_num_ctx(provider.wire_of(name)));
        }
        let found = [
            ("models", models::check(&self.config.models, &providers)),
            ("prices", prices::check(&self.config.prices, &providers)),
        ];
        for (section, fault) in found {
            let Some(ModelFault { pattern, key, what, hint }) = fault else { continue };
            let path: Vec<&str> =
                [section, &pattern, key].into_iter().filter(|part| !part.is_empty()).collect();
            return self.fail(&path, what, &hint);
        }
        Ok(())
    }

    fn agents(&self) -> Result<(), ConfigError> {
        for (name, agent) in &self.config.agents {
            let name = name.as_str();
            self.models_of(name, agent)?;
            if agent.system.is_some() && agent.soul.is_some() {
                let what = "both `system` and `soul` give a system prompt";
                return self.fail(&["agents", name, "soul"], what, "remove one of them");
            }
            if let (Some(path), Err(error)) = (&agent.soul, agent.prompt()) {
                let what = format!("cannot read `{}`: {error}", path.display());
                let hint =
                    "correct the file, or its path, which is relative to the configuration file";
                return self.fail(&["agents", name, "soul"], what, hint);
            }
            let fault = agent.context_fault().or_else(|| agent.skills_fault());
            if let Some((key, what, hint)) = fault.or_else(|| agent.memory_tools_fault()) {
                return self.fail(&["agents", name, key], what, &hint);
            }
            let fault = agent.memory.as_ref().and_then(AgentMemoryOptions::fault);
            if let Some((key, what, hint)) = fault {
                return self.fail(&["agents", name, "memory", key], what, &hint);
            }
            if let Some(Err(what)) = agent.response_schema.as_ref().map(SchemaSource::read) {
                let hint = "write a JSON Schema; a path is relative to the configuration file";
                return self.fail(&["agents", name, "response_schema"], &what, hint);
            }
            for (key, value, most) in [
                ("temperature", agent.sampling.temperature, 2.0),
                ("top_p", agent.sampling.top_p, 1.0),
            ] {
                let Some(value) = value.filter(|set| !(0.0..=most).contains(set)) else { continue };
                let what = format!("{value} is not in the range 0 to {most}");
                let hint = format!("write 0 to {most}");
                return self.fail(&["agents", name, "sampling", key], what, &hint);
            }
            for (key, value) in [
                ("window_tokens", agent.window_tokens.unwrap_or(1)),
                ("step_limit", agent.step_limit),
                ("max_turns", agent.max_turns),
                ("weight", agent.weight),
                ("max_parallel_tools", agent.max_parallel_tools),
            ] {
                self.at_least_one(&["agents", name, key], value)?;
            }
            if agent.weight > WEIGHT_MAX {
                let what = format!("a weight of {} is more than {WEIGHT_MAX}", agent.weight);
                let hint = "weights are compared with each other: write smaller ones";
                return self.fail(&["agents", name, "weight"], &what, hint);
            }
            let guard = agent.loop_guard;
            for (key, value) in [("warn", guard.warn), ("refuse", guard.refuse), ("end", guard.end)]
            {
                self.at_least_one(&["agents", name, "loop_guard", key], value)?;
            }
            self.limits(name, agent.limits)?;
            self.policy(name, agent)?;
        }
        Ok(())
    }

    /// What an agent may do in a given time. Each heartbeat has the counts of all agents with limits.
    fn limits(&self, name: &str, limits: LimitOptions) -> Result<(), ConfigError> {
        let path = |key| ["agents", name, "limits", key];
        let calls = limits.tool_calls_per_minute.unwrap_or(1);
        self.at_least_one(&path("tool_calls_per_minute"), calls)?;
        self.at_least_one(&path("turns_per_hour"), limits.turns_per_hour.unwrap_or(1))?;
        if limits.egress_bytes_per_day.is_some_and(|size| size.0 == 0) {
            return self.fail(
                &path("egress_bytes_per_day"),
                "it is zero",
                "write a size such as `50MiB`",
            );
        }
        let limited = self.config.agents.values().filter(|agent| !agent.limits.is_empty()).count();
        if limited > AGENT_COUNTS_TOLD && !limits.is_empty() {
            let what = format!("{limited} agents have limits");
            let hint = format!("give limits to at most {AGENT_COUNTS_TOLD} agents");
            return self.fail(&["agents", name, "limits"], what, &hint);
        }
        Ok(())
    }

    fn policy(&self, name: &str, agent: &AgentSection) -> Result<(), ConfigError> {
        let path = ["agents", name, "approval_wait"];
        if agent.approval_wait < APPROVAL_WAIT_MIN || agent.approval_wait > APPROVAL_WAIT_MAX {
            let what = "it must be 1 s to 90 days".to_owned();
            return self.fail(&path, what, "write a time such as `7d` or `8h`");
        }
        if agent.step_wait > STEP_WAIT_MAX {
            let what = "it is longer than 24 h".to_owned();
            let hint = "write a time such as `5m`, or `0s` to end such turns at once";
            return self.fail(&["agents", name, "step_wait"], what, hint);
        }
        for (key, time) in [("global", agent.timeouts.global), ("step", agent.timeouts.step)] {
            if time > TURN_TIME_MAX {
                let what = "it is longer than 7 days".to_owned();
                let hint = "write a time such as `1h`, or `0s` for as long as it takes";
                return self.fail(&["agents", name, "timeouts", key], what, hint);
            }
        }
        let path = ["agents", name, "rules"];
        if agent.rules.len() > POLICY_RULES {
            let what = format!("{} rules, at most {POLICY_RULES}", agent.rules.len());
            return self.fail(&path, what, "combine some rules: patterns may contain `*` and `?`");
        }
        for (number, rule) in agent.rules.iter().enumerate() {
            let texts = rule.tool.iter().chain(&rule.reason).chain(rule.arguments.values());
            let mut texts = texts.chain(rule.arguments.keys());
            if texts.any(|text| text.is_empty() || text.chars().count() > RULE_CHARS) {
                let what = format!("a text of rule {} is empty, or too long", number + 1);
                let hint = format!("write 1 to {RULE_CHARS} characters, or leave the key out");
                return self.fail(&path, what, &hint);
            }
            if rule.exact && rule.verdict != Verdict::Allow {
                let what = format!("rule {} is exact, but its verdict is not `allow`", number + 1);
                let hint = "remove `exact`: the rule would not match calls with more arguments";
                return self.fail(&path, what, hint);
            }
        }
        Ok(())
    }

    fn ssh_hosts(&self) -> Result<(), ConfigError> {
        let hosts = &self.config.ssh_hosts;
        if hosts.len() > SSH_HOSTS {
            let what = format!("{} hosts, at most {SSH_HOSTS}", hosts.len());
            return self.fail(&["ssh_hosts"], what, "remove some of them");
        }
        for (at, host) in hosts.iter().enumerate() {
            let path = at.to_string();
            if hosts.iter().take(at).any(|other| other.name == host.name) {
                let what = format!("two hosts are called `{}`", host.name);
                let hint = "give one of them another name";
                return self.fail(&["ssh_hosts", &path, "name"], what, hint);
            }
            if let Err(wrong) = host.check() {
                let exact = ["ssh_hosts", &path, wrong.key];
                return self.fail(&exact, wrong.what, wrong.hint);
            }
        }
        Ok(())
    }

    fn sandbox(&self) -> Result<(), ConfigError> {
        let Err(wrong) = self.config.sandbox.check() else { return Ok(()) };
        let key: Vec<&str> = wrong.key.iter().map(String::as_str).collect();
        self.fail(&key, wrong.what, &wrong.hint)
    }

    fn mcp_servers(&self) -> Result<(), ConfigError> {
        match mcp::check(&self.config.mcp_servers) {
            None => Ok(()),
            Some(McpServerFault { server, key, what, hint }) => {
                let at = server.to_string();
                let exact = ["mcp_servers", &at, &key];
                // What is not written has no place; its server has one.
                let known = self.tree.find(&exact).is_some();
                self.fail(if known { &exact } else { &exact[..2] }, what, hint)
            }
        }
    }

    fn plugins(&self) -> Result<(), ConfigError> {
        let plugins = &self.config.plugins;
        if plugins.len() > PLUGINS {
            let what = format!("{} plugins, at most {PLUGINS}", plugins.len());
            return self.fail(&["plugins"], what, "remove some of them");
        }
        for (at, plugin) in plugins.iter().enumerate() {
            let path = at.to_string();
            if plugins.iter().take(at).any(|other| other.name == plugin.name) {
                let what = format!("two plugins are called `{}`", plugin.name);
                return self.fail(&["plugins", &path, "name"], what, "name them differently");
            }
            let servers = &self.config.mcp_servers;
            if servers.iter().any(|server| server.name.as_str() == plugin.name.as_str()) {
                let what = format!("an MCP server is called `{}` too", plugin.name);
                let hint = "name them differently: their tools would have the same names";
                return self.fail(&["plugins", &path, "name"], what, hint);
            }
            self.some_time(&["plugins", &path, "timeout"], plugin.timeout)?;
        }
        Ok(())
    }

    fn skills(&self) -> Result<(), ConfigError> {
        match self.config.skills.fault() {
            Some((key, what, hint)) => self.fail(&["skills", key], what, &hint),
            None => Ok(()),
        }
    }

    fn bindings(&self) -> Result<(), ConfigError> {
        for (at, binding) in self.config.bindings.iter().enumerate() {
            let at = at.to_string();
            let agent = binding.agent.as_str();
            if agent != DEFAULT_AGENT && !self.config.agents.contains_key(&binding.agent) {
                let known = self.config.agents.keys().map(clawnode_proto::AgentName::as_str);
                let near = nearest(agent, known);
                let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
                let hint = format!("{meant}add `[agents.{agent}]`, or correct the name");
                let what = format!("no agent is called `{agent}`");
                return self.fail(&["bindings", &at, "agent"], what, &hint);
            }
            if binding.is_anywhere() {
                let hint = "add `peer`, `guild`, `team`, `account` or `channel`; if no binding \
                            fits, the agent `default` answers";
                return self.fail(&["bindings", &at], "the binding fits every message", hint);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{
        Env,
        load::{Sources, load},
    };

    /// The error for a file with this text: key with message, and hint; or nothing.
    fn verdict(text: &str) -> Option<(String, String)> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        std::fs::write(&path, text).unwrap();
        let env = Env::from([("HOME", "/home/ada")]);
        let error = load(&Sources { env, file: Some(path), flags: Vec::new() }).err()?;
        assert!(!error.hint.is_empty(), "{error} has no remedy");
        Some((error.key.clone(), format!("{error}; {}", error.hint)))
    }

    #[test]
    fn what_is_well_formed_and_wrong_is_refused() {
        let cases = [
            ("[gateway]\nlisten = '0.0.0.0:3100'", "gateway.listen", "--plain-http"),
            ("[gateway]\nlisten = '[::]:3100'", "gateway.listen", "TLS"),
            (
                "[gateway]\nlisten = '0.0.0.0:1'\nplain_http = true\nno_auth = true",
                "gateway.no_auth",
                "not loopback",
            ),
            ("[gateway]\nadvertise = 'gateway-1:3100'", "gateway.advertise", "https://"),
            ("[gateway]\nadvertise = 'https://a:b@c'", "gateway.advertise", "https://"),
            ("[gateway]\ntls_cert = 'c'", "gateway.tls_cert", "tls_key"),
            ("[gateway]\ntls_key = 'k'", "gateway.tls_key", "tls_cert"),
            ("[gateway]\nmessage_size = '2MiB'", "gateway.message_size", "1MiB"),
            ("[gateway]\nmax_unread = '63KiB'", "gateway.max_unread", "64KiB"),
            ("[gateway]\nmax_connections = 0", "gateway.max_connections", "1 or more"),
            ("[cluster]\npartitions = 513", "cluster.partitions", "512"),
            ("[cluster]\nreplicas = 2", "cluster.replicas", "1, 3 or 5"),
            ("[cluster]\nprefix = 'a.b'", "cluster.prefix", "a.b"),
            ("[cluster]\nheartbeat = '0s'", "cluster.heartbeat", "10s"),
            ("[cluster]\nprobe_every = '0s'", "cluster.probe_every", "10s"),
            (
                "[cluster]\nheartbeat = '3s'\ndead_after = '8s'",
                "cluster.dead_after",
                "three heartbeats",
            ),
            ("[cluster]\nsys_credentials = 'c'", "cluster.sys_credentials", "cluster.nats"),
            ("[session]\npassivate_after = '0s'", "session.passivate_after", "10s"),
            ("[session]\nkeep_stateless = '0s'", "session.keep_stateless", "10s"),
            ("[providers.lab]\nretries = 1", "providers.lab", "wire"),
            ("[agents.a]\nmodel = 'antropic/x'", "agents.a.model", "did you mean `anthropic`"),
            ("[agents.a]\nmodel = 'x'", "agents.a.model", "PROVIDER/MODEL"),
            ("[agents.a]\ncompact_model = 'antropic/x'", "agents.a.compact_model", "anthropic"),
            ("[agents.a]\nmax_tokens = 9", "agents.a.max_tokens", "write `sampling.max_tokens"),
            ("[agents.a]\nsystem = 'a'\nsoul = 'b'", "agents.a.soul", "remove one"),
            ("[agents.a]\nsoul = 'nowhere.md'", "agents.a.soul", "nowhere.md"),
            ("[agents.a]\ncontext = 'short'", "agents.a.context", "`window`"),
            ("[agents.a]\ncontext_tokens = 5", "agents.a.context_tokens", "256 or more"),
            ("[agents.a]\ntools = ['recall']", "agents.a.tools", "[agents.NAME.memory]"),
            ("[agents.a]\nrecent_turns = 0", "agents.a.recent_turns", "1 to 8"),
            ("[agents.a]\nrecent_turns = 9", "agents.a.recent_turns", "1 to 8"),
            ("[agents.a]\nresponse_schema = 'no.json'", "agents.a.response_schema", "no.json"),
            ("[agents.a]\nresponse_schema = 3", "agents.a.response_schema", "a JSON Schema"),
            (
                "[agents.a.response_schema]\ntype = 'objet'",
                "agents.a.response_schema",
                "schema is not valid: `/type`",
            ),
            ("[agents.a.timeouts]\nglobal = '8d'", "agents.a.timeouts.global", "7 days"),
            ("[agents.a.timeouts]\nstep = '200h'", "agents.a.timeouts.step", "as long as it takes"),
            ("[agents.'a b']", "agents.a b", "agent name"),
            ("[agents.a.sampling]\ntemperature = 3.0", "agents.a.sampling.temperature", "0 to 2"),
            ("[agents.a.sampling]\ntop_p = 1.5", "agents.a.sampling.top_p", "0 to 1"),
            ("[[bindings]]\nagent = 'default'", "bindings.0", "peer"),
            ("[[bindings]]\npeer = 'x'", "bindings.0", "agent"),
        ];
        all_refused(&cases);
    }

    #[test]
    fn memories_that_could_not_be_are_refused() {
        let local = if cfg!(feature = "embed-local") { "config.json" } else { "not in this build" };
        let cases = [
            ("[agents.a.memory]\ntop_facts = 21", "agents.a.memory.top_facts", "0 to 20"),
            ("[agents.a.memory]\nextract = 'models'", "agents.a.memory.extract", "`patterns`"),
            (
                "[agents.a.memory]\nextract = 'model'\nlayers = ['episode']",
                "agents.a.memory.extract",
                "`semantic`",
            ),
            ("[agents.a.memory]\nreflect = 'always'", "agents.a.memory.reflect", "`model`"),
            (
                "[agents.a.memory]\nreflect = 'model'\nlayers = ['social']",
                "agents.a.memory.reflect",
                "`procedural`",
            ),
            ("[agents.a.memory]\nlayers = []", "agents.a.memory.layers", "remove the section"),
            ("[agents.a.memory]\nshared = ['x', 'x']", "agents.a.memory.shared", "twice"),
            ("[agents.a.memory]\nshared = ['all']", "agents.a.memory.shared", "named `shared`"),
            ("[memory]\nembeddings = 'openia/x'", "memory.embeddings", "did you mean `openai`"),
            ("[memory]\nembeddings = 'anthropic/x'", "memory.embeddings", "openai"),
            ("[memory]\nembeddings = 'x'", "memory.embeddings", "PROVIDER/MODEL"),
            ("[memory]\nembeddings = 'local'", "memory.embeddings", local),
            ("[memory]\nembeddings = 'static'", "memory.embeddings", "tokenizer.json"),
            ("[memory]\nembeddings_dir = 'm'", "memory.embeddings_dir", "\"static\""),
            ("[memory]\npoints = 0", "memory.points", "0 is not in the range 1 to 20000"),
            ("[memory]\npoints = 20001", "memory.points", "20001 is not in the range 1 to 20000"),
        ];
        all_refused(&cases);
    }

    #[test]
    fn tools_rules_and_limits_that_could_not_be_are_refused() {
        let one = |n: usize| format!("[agents.a{n}.limits]\nturns_per_hour = 1\n");
        let too_many = (0..65).map(one).collect::<Vec<String>>().concat();
        let cases = [
            ("[tools]\njob_wait = '49h'", "tools.job_wait", "longer than 48 h"),
            (
                "[tools.run_command]\nread_only = ['ls; rm a']",
                "tools.run_command.read_only",
                "cannot tell that `ls; rm a` only reads: `ls;` has a meaning in a shell",
            ),
            ("[tools.timeouts]\ncalculate = '0s'", "tools.timeouts.calculate", "1 ms to 1 h"),
            ("[tools.timeouts]\ncalculate = '2h'", "tools.timeouts.calculate", "1 ms to 1 h"),
            (
                "[[agents.a.rules]]\nverdict = 'deny'\ntool = 'x'\nexact = true",
                "agents.a.rules",
                "remove `exact`",
            ),
            (
                "[[agents.a.rules]]\nverdict = 'ask'\nexact = true",
                "agents.a.rules",
                "rule 1 is exact",
            ),
            ("[agents.a]\nstep_limit = 0", "agents.a.step_limit", "1 or more"),
            (
                "[agents.a.limits]\ntool_calls_per_minute = 0",
                "agents.a.limits.tool_calls_per_minute",
                "1 or more",
            ),
            (
                "[agents.a.limits]\nturns_per_hour = 0",
                "agents.a.limits.turns_per_hour",
                "1 or more",
            ),
            (
                "[agents.a.limits]\negress_bytes_per_day = '0B'",
                "agents.a.limits.egress_bytes_per_day",
                "it is zero",
            ),
            (too_many.as_str(), "agents.a0.limits", "65 agents have limits"),
        ];
        all_refused(&cases);
    }

    #[test]
    fn ssh_hosts_that_could_not_be_are_refused() {
        let host = "[[ssh_hosts]]\nname = 'db'\nhost = 'h'\nuser = 'u'\nkey = 'k'\n";
        let twice = format!("{host}{host}");
        let none = format!("{host}port = 0");
        all_refused(&[
            (&twice, "ssh_hosts.1.name", "two hosts are called `db`"),
            (&none, "ssh_hosts.0.port", "no port 0"),
        ]);
    }

    #[test]
    fn mcp_servers_that_could_not_be_are_refused() {
        all_refused(&[
            (
                "[agents.ops]\n[[bindings]]\nagent = 'opps'\npeer = 'x'",
                "bindings.0.agent",
                "did you mean `ops`",
            ),
            ("[[mcp_servers]]\nname = 'a__b'\ncommand = 'x'", "mcp_servers.0.name", "without `__`"),
            ("[[mcp_servers]]\nname = 'a'", "mcp_servers.0.name", "`command` and `url`"),
            (
                "[[mcp_servers]]\nname = 'a'\ncommand = 'x'\nurl = 'http://a/'",
                "mcp_servers.0.name",
                "one of",
            ),
            ("[[mcp_servers]]\nname = 'a'\nurl = 'ftp://a/'", "mcp_servers.0.url", "https://"),
            (
                "[[mcp_servers]]\nname = 'a'\ncommand = 'x'\n\
                 [[mcp_servers]]\nname = 'a'\ncommand = 'y'",
                "mcp_servers.1.name",
                "two MCP servers",
            ),
            (
                "[[mcp_servers]]\nname = 'a'\ncommand = 'x'\nenv = { 'A=B' = 'c' }",
                "mcp_servers.0.env",
                "A=B",
            ),
            (
                "[[mcp_servers]]\nname = 'a'\ncommand = 'x'\n[mcp_servers.tools.t]\nclass = 'check'",
                "mcp_servers.0.tools",
                "name its `probe`",
            ),
            (
                "[[mcp_servers]]\nname = 'a'\ncommand = 'x'\n[mcp_servers.tools.t]\nprobe = 'was'",
                "mcp_servers.0.tools",
                "the probe of `t` is never called",
            ),
            (
                "[[mcp_servers]]\nname = 'a'\ncommand = 'x'\nrestart_most = '1ms'",
                "mcp_servers.0.restart_most",
                "restart_first",
            ),
            (
                "[[plugins]]\nname = 'a'\npath = 'a'\n[[plugins]]\nname = 'a'\npath = 'b'",
                "plugins.1.name",
                "two plugins",
            ),
            (
                "[[plugins]]\nname = 'a'\npath = 'a'\n[[mcp_servers]]\nname = 'a'\ncommand = 'x'",
                "plugins.0.name",
                "MCP server",
            ),
            ("[[plugins]]\nname = 'a'\npath = 'a'\ntimeout = '0s'", "plugins.0.timeout", "zero"),
            (
                "[[plugins]]\nname = 'a'\npath = 'a'\ncapabilities = ['file:/etc']",
                "plugins.0.capabilities.0",
                "not a capability of plugins",
            ),
            ("[sandbox.docker]\nmemory = '512'", "sandbox.docker.memory", "512MiB"),
            ("[sandbox.docker]\ntmp = '1g'", "sandbox.docker.tmp", "sandbox.docker.memory"),
            (
                "[sandbox.tools.t]\ndescription = 'd'\ncommand = ['a', '{b}']",
                "sandbox.tools.t.command",
                "input_schema",
            ),
            ("[agents.a]\ntools = ['a b']", "agents.a.tools.0", "tool name"),
            ("[agents.a]\ntools = ['a__b__*']", "agents.a.tools.0", "MCP server"),
        ]);
    }

    fn all_refused(cases: &[(&str, &str, &str)]) {
        for &(text, key, words) in cases {
            let (found, message) = verdict(text).unwrap_or_default();
            assert_eq!(found, key, "{text}: {message}");
            assert!(message.contains(words), "{text}: {message}");
            assert!(message.contains("config.toml:"), "{text}: {message}");
        }
    }

    #[test]
    fn what_is_right_is_taken() {
        for text in [
            "",
            "[gateway]\nlisten = '0.0.0.0:3100'\nplain_http = true",
            "[gateway]\nlisten = '0.0.0.0:3100'\ntls_cert = 'c'\ntls_key = 'k'",
            "[gateway]\nlisten = '[::1]:0'\nno_auth = true",
            "[gateway]\nadvertise = 'http://10.0.0.1:3100/'",
            "[[bindings]]\nagent = 'default'\nchannel = 'telegram'",
            "[[mcp_servers]]\nname = 'a'\nurl = 'http://127.0.0.1:1/mcp'\nheaders = { X = 'y' }",
            "[agents.a]\ntools = ['fs__*', 'git__log', 'calculate']",
            "[memory]\npoints = 1",
            "[memory]\npoints = 20000",
            "[cluster]\nheartbeat = '3s'\ndead_after = '9s'",
            "[providers.lab]\nwire = 'openai'\nbase_url = 'http://127.0.0.1:1/v1'\n\
             [agents.a]\nmodel = 'lab/deep/seek'",
        ] {
            assert_eq!(verdict(text), None, "{text}");
        }
    }
}
