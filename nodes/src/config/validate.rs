//! What is well-formed and wrong.

use std::time::Duration;

use clawnode_proto::limits;

use super::{
    agents::{AgentOptions, BUILT_IN_PROVIDERS, DEFAULT_AGENT},
    error::{ConfigError, nearest},
    options::Config,
    tree::Node,
};

/// Refuses the first thing that is wrong.
pub(super) fn check(config: &Config, tree: &Node) -> Result<(), ConfigError> {
    let checks = Checks { config, tree };
    checks.node()?;
    checks.gateway()?;
    checks.cluster()?;
    checks.session()?;
    checks.providers()?;
    checks.agents()?;
    checks.at_least_one(&["tools", "max_jobs"], config.tools.max_jobs)?;
    checks.some_time(&["tools", "job_wait"], config.tools.job_wait)?;
    checks.bindings()
}

struct Checks<'a> {
    config: &'a Config,
    tree: &'a Node,
}

impl Checks<'_> {
    fn fail(&self, path: &[&str], what: impl Into<String>, hint: &str) -> Result<(), ConfigError> {
        Err(ConfigError::new(&path.join("."), self.tree.origin_of(path), what, hint))
    }

    fn at_least_one(&self, path: &[&str], value: u32) -> Result<(), ConfigError> {
        match value {
            0 => self.fail(path, "0 is too few", "write 1 or more"),
            _ => Ok(()),
        }
    }

    fn some_time(&self, path: &[&str], value: Duration) -> Result<(), ConfigError> {
        match value {
            Duration::ZERO => self.fail(path, "no time at all", "write a duration such as `10s`"),
            _ => Ok(()),
        }
    }

    fn node(&self) -> Result<(), ConfigError> {
        if self.config.node.data_dir.as_os_str().is_empty() {
            let what = "no data directory, because neither `XDG_DATA_HOME` nor `HOME` is set";
            return self.fail(&["node", "data_dir"], what, "set `--data-dir DIR`");
        }
        Ok(())
    }

    fn gateway(&self) -> Result<(), ConfigError> {
        let it = &self.config.gateway;
        let listen = it.listen;
        let tls = match (&it.tls_cert, &it.tls_key) {
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
        if it.no_auth && !listen.ip().is_loopback() {
            let what = format!("`{listen}` is not loopback, so a token is needed");
            let hint = "leave out `--no-auth`, or listen on 127.0.0.1";
            return self.fail(&["gateway", "no_auth"], what, hint);
        }
        if !listen.ip().is_loopback() && !tls && !it.plain_http {
            let what = format!("`{listen}` is not loopback, so it needs TLS");
            let hint = "set `--tls-cert FILE --tls-key FILE`, or `--plain-http` behind a proxy \
                        that has TLS";
            return self.fail(&["gateway", "listen"], what, hint);
        }
        if let Some(url) = &it.advertise
            && !is_http(url)
        {
            let what = format!("`{url}` is no address that clients could use");
            let hint = "write one such as `https://gateway-1.example:3100`";
            return self.fail(&["gateway", "advertise"], what, hint);
        }
        let most = limits::MESSAGE_BYTES as u64;
        if it.message_size.0 == 0 || it.message_size.0 > most {
            let what = format!("`{}` is not between 1B and 1MiB", it.message_size);
            return self.fail(&["gateway", "message_size"], what, "write a size within");
        }
        self.at_least_one(&["gateway", "max_connections"], it.max_connections)
    }

    fn cluster(&self) -> Result<(), ConfigError> {
        let it = &self.config.cluster;
        if let Some(count) = it.partitions
            && !(1..=limits::PARTITIONS_MAX).contains(&count)
        {
            let what = format!("{count} partitions are not 1 to {}", limits::PARTITIONS_MAX);
            return self.fail(&["cluster", "partitions"], what, "write a number within");
        }
        if let Some(count) = it.replicas
            && ![1, 3, 5].contains(&count)
        {
            let what = format!("{count} replicas cannot vote: 1, 3 or 5 can");
            return self.fail(&["cluster", "replicas"], what, "write 1, 3 or 5");
        }
        for (key, value) in [
            ("heartbeat", it.heartbeat),
            ("probe_every", it.probe_every),
            ("probe_again", it.probe_again),
        ] {
            self.some_time(&["cluster", key], value)?;
        }
        if it.dead_after < it.heartbeat.saturating_mul(3) {
            let what = "a node that misses fewer than three heartbeats is not dead";
            let hint = "write three times `cluster.heartbeat` or more";
            return self.fail(&["cluster", "dead_after"], what, hint);
        }
        if it.sys_credentials.is_some() && it.nats.is_none() {
            let what = "credentials of a system account without servers";
            return self.fail(&["cluster", "sys_credentials"], what, "set `cluster.nats` as well");
        }
        Ok(())
    }

    fn session(&self) -> Result<(), ConfigError> {
        let it = &self.config.session;
        self.some_time(&["session", "passivate_after"], it.passivate_after)?;
        self.at_least_one(&["session", "snapshot_every"], it.snapshot_every)
    }

    fn providers(&self) -> Result<(), ConfigError> {
        for (name, it) in &self.config.providers {
            if name.is_empty() || name.contains('/') {
                let what = format!("`{name}` is no provider name");
                return self.fail(&["providers", name], what, "use letters, digits, `-`, `_`");
            }
            if it.wire.is_none() && !BUILT_IN_PROVIDERS.contains(&name.as_str()) {
                let what = format!("provider `{name}` does not say which protocol it speaks");
                let hint = "add `wire = \"openai\"` (for every compatible server) or \
                            `wire = \"anthropic\"`";
                return self.fail(&["providers", name], what, hint);
            }
            for (key, value) in [
                ("connect_timeout", it.connect_timeout),
                ("idle_timeout", it.idle_timeout),
                ("total_timeout", it.total_timeout),
            ] {
                self.some_time(&["providers", name, key], value)?;
            }
        }
        Ok(())
    }

    fn agents(&self) -> Result<(), ConfigError> {
        for (name, it) in &self.config.agents {
            let name = name.as_str();
            self.model_of(name, it)?;
            if it.system.is_some() && it.soul.is_some() {
                let what = "both `system` and `soul` give a system prompt";
                return self.fail(&["agents", name, "soul"], what, "remove one of them");
            }
            if let (Some(path), Err(error)) = (&it.soul, it.prompt()) {
                let what = format!("cannot read `{}`: {error}", path.display());
                let hint = "correct the path, which is relative to the configuration file";
                return self.fail(&["agents", name, "soul"], what, hint);
            }
            if let Some(value) = it.sampling.temperature
                && !(0.0..=2.0).contains(&value)
            {
                let path = ["agents", name, "sampling", "temperature"];
                return self.fail(&path, format!("{value} is not 0 to 2"), "write 0 to 2");
            }
            for (key, value) in [
                ("window_tokens", it.window_tokens),
                ("step_limit", it.step_limit),
                ("max_turns", it.max_turns),
                ("max_parallel_tools", it.max_parallel_tools),
            ] {
                self.at_least_one(&["agents", name, key], value)?;
            }
            let guard = it.loop_guard;
            for (key, value) in [("warn", guard.warn), ("refuse", guard.refuse), ("end", guard.end)]
            {
                self.at_least_one(&["agents", name, "loop_guard", key], value)?;
            }
        }
        Ok(())
    }

    fn model_of(&self, name: &str, agent: &AgentOptions) -> Result<(), ConfigError> {
        let Some(model) = &agent.model else { return Ok(()) };
        let configured = self.config.providers.keys().map(String::as_str);
        let known: Vec<&str> = configured.chain(BUILT_IN_PROVIDERS.iter().copied()).collect();
        if known.contains(&model.provider.as_str()) {
            return Ok(());
        }
        let near = nearest(&model.provider, known.iter().copied());
        let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
        let hint = format!("{meant}add `[providers.{}]`, or name one of: {}", model.provider, {
            known.join(", ")
        });
        let what = format!("no provider is called `{}`", model.provider);
        self.fail(&["agents", name, "model"], what, &hint)
    }

    fn bindings(&self) -> Result<(), ConfigError> {
        for (at, it) in self.config.bindings.iter().enumerate() {
            let at = at.to_string();
            let agent = it.agent.as_str();
            if agent != DEFAULT_AGENT && !self.config.agents.contains_key(&it.agent) {
                let known = self.config.agents.keys().map(clawnode_proto::AgentName::as_str);
                let near = nearest(agent, known);
                let meant = near.map(|near| format!("did you mean `{near}`? ")).unwrap_or_default();
                let hint = format!("{meant}add `[agents.{agent}]`, or correct the name");
                let what = format!("no agent is called `{agent}`");
                return self.fail(&["bindings", &at, "agent"], what, &hint);
            }
            if it.is_anywhere() {
                let hint = "add `peer`, `guild`, `team`, `account` or `channel`; where no binding \
                            fits, the agent `default` answers";
                return self.fail(&["bindings", &at], "a binding that says nothing of where", hint);
            }
        }
        Ok(())
    }
}

/// Whether clients could use this address, and nothing in it is a secret.
fn is_http(url: &str) -> bool {
    url.parse::<axum::http::Uri>().is_ok_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.authority().is_some_and(|it| !it.host().is_empty() && !it.as_str().contains('@'))
    })
}

#[cfg(test)]
mod tests {
    use crate::config::{
        Env,
        load::{Sources, load},
    };

    /// What a file with this text is told: key, message and hint; or nothing.
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
            ("[providers.lab]\nretries = 1", "providers.lab", "wire"),
            ("[agents.a]\nmodel = 'antropic/x'", "agents.a.model", "did you mean `anthropic`"),
            ("[agents.a]\nmodel = 'x'", "agents.a.model", "PROVIDER/MODEL"),
            ("[agents.a]\nsystem = 'a'\nsoul = 'b'", "agents.a.soul", "remove one"),
            ("[agents.a]\nsoul = 'nowhere.md'", "agents.a.soul", "nowhere.md"),
            ("[agents.a]\nstep_limit = 0", "agents.a.step_limit", "1 or more"),
            ("[agents.'a b']", "agents.a b", "agent name"),
            ("[agents.a.sampling]\ntemperature = 3.0", "agents.a.sampling.temperature", "0 to 2"),
            (
                "[agents.ops]\n[[bindings]]\nagent = 'opps'\npeer = 'x'",
                "bindings.0.agent",
                "did you mean `ops`",
            ),
            ("[[bindings]]\nagent = 'default'", "bindings.0", "peer"),
            ("[[bindings]]\npeer = 'x'", "bindings.0", "agent"),
        ];
        for (text, key, words) in cases {
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
            "[cluster]\nheartbeat = '3s'\ndead_after = '9s'",
            "[providers.lab]\nwire = 'openai'\nbase_url = 'http://127.0.0.1:1/v1'\n\
             [agents.a]\nmodel = 'lab/deep/seek'",
        ] {
            assert_eq!(verdict(text), None, "{text}");
        }
    }
}
