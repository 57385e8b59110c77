//! The nodes of a stage: each has a host, a home and a port of its own, and may be started again.

use std::{path::PathBuf, process::ExitStatus, time::Duration};

use clawnode_proto::ProcessId;
use rustix::process::Signal;
use serde::Deserialize;

use super::{
    ChaosError,
    daemon::{Daemon, Spec},
    hosts::Host,
};

/// How long a node may take to stop: its grace for running calls (30 s), and more.
const STOPS_IN: Duration = Duration::from_secs(45);

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Holds client connections.
    Gateway,
    /// Owns sessions.
    Worker,
    /// Both, alone on its own disk.
    Alone,
}

/// A place for a node, and the node that is there now.
#[derive(Debug)]
pub struct Slot {
    pub name: String,
    pub role: Role,
    /// Where it runs.
    pub host: Host,
    /// Where it listens.
    pub port: u16,
    /// Its folder.
    pub home: PathBuf,
    pub program: PathBuf,
    /// Its environment.
    pub vars: Vec<(String, String)>,
    /// `--nats` and `--prefix`; none for a node alone.
    pub nats: Option<(String, String)>,
    daemon: Option<Daemon>,
    process: Option<ProcessId>,
}

/// The line that a node says once it serves.
#[derive(Deserialize)]
struct Ready {
    process: ProcessId,
}

// === impl Slot ===

impl Slot {
    /// An empty place.
    pub fn new(name: &str, role: Role, host: Host, port: u16, home: PathBuf) -> Self {
        Self {
            name: name.to_owned(),
            role,
            host,
            port,
            home,
            program: PathBuf::new(),
            vars: Vec::new(),
            nats: None,
            daemon: None,
            process: None,
        }
    }

    /// Its address for clients.
    pub fn url(&self) -> String {
        format!("http://{}:{}", self.host.ip, self.port)
    }

    /// Its process id in the cluster, also after its end.
    pub const fn process(&self) -> Option<ProcessId> {
        self.process
    }

    /// Where its log is.
    pub fn log(&self) -> PathBuf {
        self.spec().log()
    }

    fn spec(&self) -> Spec {
        let mut args = vec!["--listen".to_owned(), format!("{}:{}", self.host.ip, self.port)];
        if self.host.namespace.is_some() {
            args.push("--plain-http".to_owned());
        }
        if let Some((urls, prefix)) = &self.nats {
            args.extend(["--nats".to_owned(), urls.clone(), "--prefix".to_owned(), prefix.clone()]);
        }
        args.push("--json".to_owned());
        match self.role {
            Role::Gateway => args.extend(["run", "--role", "gateway"].map(str::to_owned)),
            Role::Worker => args.extend(["run", "--role", "worker"].map(str::to_owned)),
            Role::Alone => args.push("up".to_owned()),
        }
        Spec {
            name: self.name.clone(),
            namespace: self.host.namespace.clone(),
            program: self.program.clone(),
            args,
            vars: self.vars.clone(),
            dir: self.home.clone(),
        }
    }

    /// Starts it without waiting for it.
    pub fn spawn(&mut self) -> Result<(), ChaosError> {
        self.daemon = Some(Daemon::start(&self.spec())?);
        Ok(())
    }

    /// Waits until it serves.
    pub async fn ready(&mut self) -> Result<(), ChaosError> {
        let Some(daemon) = &mut self.daemon else {
            return Err(ChaosError::Missing(format!("`{}` was not started", self.name)));
        };
        let line = daemon.line().await?;
        let ready: Ready = serde_json::from_str(&line).map_err(|error| {
            ChaosError::Missing(format!("`{}` says {line}: {error}", self.name))
        })?;
        self.process = Some(ready.process);
        Ok(())
    }

    /// Starts it, and waits until it serves.
    pub async fn start(&mut self) -> Result<(), ChaosError> {
        self.spawn()?;
        self.ready().await
    }

    /// Whether it runs.
    pub fn is_running(&mut self) -> bool {
        self.daemon.as_mut().is_some_and(Daemon::is_running)
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: Signal) -> Result<(), ChaosError> {
        match &self.daemon {
            Some(daemon) => daemon.signal(signal),
            None => Err(ChaosError::Missing(format!("`{}` does not run", self.name))),
        }
    }

    /// `kill -9`, and waits until it is gone.
    pub async fn kill(&mut self) -> Result<(), ChaosError> {
        match self.daemon.take() {
            Some(mut daemon) => daemon.kill().await,
            None => Ok(()),
        }
    }

    /// Asks it to stop, and waits until it has. `None`: it did not, and was killed.
    pub async fn stop(&mut self) -> Result<Option<ExitStatus>, ChaosError> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(None) };
        if daemon.is_running() {
            daemon.signal(Signal::TERM)?;
        }
        match daemon.exit(STOPS_IN).await {
            Ok(status) => Ok(Some(status)),
            Err(ChaosError::Late(_)) => daemon.kill().await.map(|()| None),
            Err(error) => Err(error),
        }
    }
}
