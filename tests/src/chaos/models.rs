//! The model servers of a stage: a process for each provider, which counts what it is asked and syncs each
//! count. One that went down comes back at the same address, and goes on with its log.

use std::{
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use super::{
    ChaosError,
    daemon::{Daemon, Spec, sibling},
    stage::Shape,
};
use crate::model::{Logged, read_log};

/// The providers in the order in which they are asked: the variables with their key and their address,
/// and how that ends.
const PROVIDERS: [(&str, &str, &str); 2] =
    [("ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", ""), ("OPENAI_API_KEY", "OPENAI_BASE_URL", "/v1")];
/// The agent's settings, if there are two of them.
const CHAIN: &str = "model = \"anthropic/scripted\"\nfallback = [\"openai/scripted\"]\n";

/// All of them.
#[derive(Debug)]
pub(super) struct ModelServers(Vec<Server>);

#[derive(Debug)]
struct Server {
    /// How it is started, at the address that it has.
    spec: Spec,
    address: String,
    log: PathBuf,
    daemon: Option<Daemon>,
}

// === impl ModelServers ===

impl ModelServers {
    /// Starts all that the shape has, at `ip`.
    pub(super) async fn start(ip: Ipv4Addr, shape: &Shape, dir: &Path) -> Result<Self, ChaosError> {
        let mut servers = Vec::new();
        for number in 1..=shape.providers.clamp(1, PROVIDERS.len()) {
            servers.push(Server::start(ip, number, shape, dir).await?);
        }
        Ok(Self(servers))
    }

    /// The variables by which nodes find them.
    pub(super) fn vars(&self) -> Vec<(String, String)> {
        let mut vars = Vec::new();
        for (server, (key, url, path)) in self.0.iter().zip(PROVIDERS) {
            vars.push((key.to_owned(), "sk-chaos".to_owned()));
            vars.push((url.to_owned(), format!("http://{}{path}", server.address)));
        }
        if let [_, last] = self.0.as_slice() {
            let (key, _, path) = PROVIDERS[1];
            let url = format!("http://{}{path}", last.address);
            // The last one of a chain is tried again within a call: five failures would open its
            // circuit, and a turn that finds it open waits for longer than this outage lasts. A provider
            // with settings has its address and key from them alone.
            let settings = [("RETRIES", "0"), ("BASE_URL", url.as_str()), ("API_KEY_ENV", key)];
            vars.extend(settings.map(|(name, value)| {
                (format!("CLAWNODE_PROVIDERS__OPENAI__{name}"), value.to_owned())
            }));
        }
        vars
    }

    /// What an agent's settings say of them.
    pub(super) fn chain(&self) -> &'static str {
        if self.0.len() > 1 { CHAIN } else { "" }
    }

    /// Kills one, as counted from the first that is asked.
    pub(super) async fn kill(&mut self, at: usize) -> Result<(), ChaosError> {
        match self.0.get_mut(at).and_then(|server| server.daemon.take()) {
            Some(mut daemon) => daemon.kill().await,
            None => Err(ChaosError::Missing(format!("provider {at} does not run"))),
        }
    }

    /// Starts one again.
    pub(super) async fn restart(&mut self, at: usize) -> Result<(), ChaosError> {
        match self.0.get_mut(at) {
            Some(server) => server.serve().await.map(drop),
            None => Err(ChaosError::Missing(format!("there is no provider {at}"))),
        }
    }

    /// Stops all; what they were asked.
    pub(super) async fn close(&mut self) -> Result<Vec<Logged>, ChaosError> {
        let mut asked = Vec::new();
        for server in &mut self.0 {
            if let Some(daemon) = &mut server.daemon {
                daemon.kill().await?;
            }
            let log = read_log(&server.log);
            asked.extend(log.map_err(ChaosError::io("read a model server's log"))?);
        }
        Ok(asked)
    }
}

// === impl Server ===

impl Server {
    async fn start(
        ip: Ipv4Addr,
        number: usize,
        shape: &Shape,
        dir: &Path,
    ) -> Result<Self, ChaosError> {
        let log = dir.join(format!("calls{number}.jsonl"));
        let args = [
            ("--tokens", shape.tokens.to_string()),
            ("--delay-ms", shape.delay_ms.to_string()),
            ("--log", log.display().to_string()),
            ("--model", "scripted".to_owned()),
        ];
        let spec = Spec {
            name: format!("model{number}"),
            program: sibling("model_server", "cargo build -p clawnode-tests --bins")?,
            args: args.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]).collect(),
            dir: dir.to_owned(),
            ..Spec::default()
        };
        let mut server = Self { spec, address: format!("{ip}:0"), log, daemon: None };
        server.address = server.serve().await?;
        Ok(server)
    }

    /// Starts it at its address; where it listens then.
    async fn serve(&mut self) -> Result<String, ChaosError> {
        let mut spec = self.spec.clone();
        spec.args.extend(["--listen".to_owned(), self.address.clone()]);
        let mut daemon = Daemon::start(&spec)?;
        let line = daemon.line().await?;
        self.daemon = Some(daemon);
        Ok(line.trim().strip_prefix("listening ").unwrap_or_default().to_owned())
    }
}
