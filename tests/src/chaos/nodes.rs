//! The nodes of a stage: each has a host, a home and a port of its own, and may be started again.

use std::{path::PathBuf, process::ExitStatus, time::Duration};

use clawnode_proto::ProcessId;
use rustix::process::Signal;
use serde::Deserialize;

use super::{
    ChaosError,
    daemon::{Daemon, Spec, log_end},
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

/// How a node that was asked to stop has ended.
#[derive(Debug)]
pub enum StopResult {
    /// By itself, with this status.
    Ended(ExitStatus),
    /// There was no node: it was killed, and not started again.
    Absent,
    /// Not in time: it was killed.
    Hangs {
        /// The end of its log.
        log: String,
    },
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

    /// Asks it to stop, and waits until it has; kills it if it does not.
    pub async fn stop(&mut self) -> Result<StopResult, ChaosError> {
        let Some(mut daemon) = self.daemon.take() else { return Ok(StopResult::Absent) };
        if daemon.is_running() {
            daemon.signal(Signal::TERM)?;
        }
        match daemon.exit(STOPS_IN).await {
            Ok(status) => Ok(StopResult::Ended(status)),
            Err(ChaosError::Late(_)) => {
                let log = log_end(&self.log());
                daemon.kill().await?;
                Ok(StopResult::Hangs { log })
            }
            Err(error) => Err(error),
        }
    }
}

// === impl StopResult ===

impl StopResult {
    /// What is wrong with this end of the node `name`, if anything is. A place may be empty: its node was killed,
    /// and the scenario could not continue and start the next one.
    pub fn complaint(self, name: &str) -> Option<String> {
        match self {
            Self::Ended(status) if status.success() => None,
            Self::Ended(status) => Some(format!("`{name}`, told to stop, ends {status}")),
            Self::Absent => None,
            Self::Hangs { log } => Some(format!(
                "`{name}` does not stop within {} s of SIGTERM; its log ends with:\n{log}",
                STOPS_IN.as_secs()
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        net::Ipv4Addr,
        os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
        path::Path,
    };

    use super::*;

    fn slot(home: &Path, script: &str) -> Slot {
        let host = Host { name: "here".to_owned(), namespace: None, ip: Ipv4Addr::LOCALHOST };
        let mut slot = Slot::new("worker1", Role::Worker, host, 0, home.to_owned());
        slot.program = home.join("node");
        std::fs::write(&slot.program, format!("#!/bin/sh\n{script}\n")).unwrap();
        let runs = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&slot.program, runs).unwrap();
        slot
    }

    /// A worker that was killed and not started again was once said to hang.
    #[tokio::test]
    async fn a_place_without_a_node_is_not_a_node_that_hangs() {
        let home = tempfile::tempdir().unwrap();
        let mut slot = slot(home.path(), "exec sleep 60");
        slot.spawn().unwrap();
        slot.kill().await.unwrap();
        assert_eq!(slot.stop().await.unwrap().complaint("worker1"), None);
        let failed = StopResult::Ended(ExitStatus::from_raw(1 << 8)).complaint("worker1");
        assert!(failed.unwrap().contains("exit status: 1"));
        let hangs = StopResult::Hangs { log: "its last line".to_owned() }.complaint("worker1");
        assert!(hangs.unwrap().ends_with("its last line"));
    }
}
