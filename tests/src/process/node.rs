//! A running node, and what can be done to it.

use std::{
    fs::OpenOptions,
    process::{ExitStatus, Stdio},
};

use clawnode_proto::ProcessId;
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, ChildStdout},
    time::timeout,
};

use super::{Client, Home, ProcessError, home::PATIENCE};

/// Bytes of a log that an error shows.
const LOG_END: usize = 4_000;
/// What the nodes of tests log, as `RUST_LOG` says it.
const LOG: &str = "CLAWNODE_TEST_LOG";

/// How a node is started.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// Its roles, as `--role` takes them; all of them, by `up`, if there is none.
    pub role: Option<&'static str>,
    /// The point at which it kills itself.
    pub kill: Option<String>,
    /// Variables of this start only.
    pub vars: Vec<(&'static str, String)>,
    /// Its address; a free port if there is none.
    pub listen: Option<String>,
    /// Further flags.
    pub flags: Vec<&'static str>,
}

/// A running node; its whole process group is killed when it is dropped.
#[derive(Debug)]
pub struct Node {
    child: Child,
    pid: Pid,
    stdout: BufReader<ChildStdout>,
    url: String,
    process: Option<ProcessId>,
    client: Option<Client>,
}

/// The line that a node says once it serves.
#[derive(Deserialize)]
struct Ready {
    url: String,
    process: ProcessId,
}

impl Start {
    /// A node that kills itself at this point.
    pub fn killed(point: &str) -> Self {
        Self { kill: Some(point.to_owned()), ..Self::default() }
    }

    /// A node on a directory whose sessions were moved.
    pub fn taking_back() -> Self {
        Self { flags: vec!["--take-back"], ..Self::default() }
    }

    /// A node with these roles only.
    pub fn role(role: &'static str) -> Self {
        Self { role: Some(role), ..Self::default() }
    }
}

impl Node {
    /// Starts a node and waits until it serves.
    pub async fn up(home: &Home) -> Result<Self, ProcessError> {
        Self::start(home, Start::default()).await
    }

    /// Starts a node so, and waits until it serves.
    pub async fn start(home: &Home, start: Start) -> Result<Self, ProcessError> {
        let mut node = Self::spawn(home, start)?;
        node.ready(home).await?;
        Ok(node)
    }

    /// Starts a node so; it does not serve yet.
    pub fn spawn(home: &Home, start: Start) -> Result<Self, ProcessError> {
        let log = OpenOptions::new().create(true).append(true).open(home.log());
        let log = log.map_err(ProcessError::io("open the node's log"))?;
        let listen = start.listen.as_deref().unwrap_or("127.0.0.1:0");
        let mut args = vec!["--listen", listen, "--json"];
        match start.role {
            Some(role) => args.extend(["run", "--role", role]),
            None => args.push("up"),
        }
        args.extend(&start.flags);
        let mut command = home.command(&args);
        command.stderr(Stdio::from(log)).envs(std::env::var(LOG).map(|log| ("RUST_LOG", log)));
        command.envs(start.vars);
        if let Some(point) = start.kill {
            command.env("CLAWNODE_TEST_KILL", point);
        }
        let mut child = command.spawn().map_err(ProcessError::io("start a node"))?;
        let pid = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let (Some(pid), Some(stdout)) = (pid, child.stdout.take()) else {
            return Err(ProcessError::Protocol("a child without pid or output".to_owned()));
        };
        let stdout = BufReader::new(stdout);
        Ok(Self { child, pid, stdout, url: String::new(), process: None, client: None })
    }

    /// Waits until it serves.
    pub async fn ready(&mut self, home: &Home) -> Result<(), ProcessError> {
        let mut line = String::new();
        let read = timeout(PATIENCE, self.stdout.read_line(&mut line)).await;
        read.map_err(|_elapsed| ProcessError::Late("the node's `ready`".to_owned()))?
            .map_err(ProcessError::io("read what the node says"))?;
        if line.is_empty() {
            let status = self.ended().await?.to_string();
            return Err(ProcessError::NotReady { status, log: log_end(home) });
        }
        let ready: Ready = serde_json::from_str(&line)
            .map_err(|error| ProcessError::Protocol(format!("{error}: {line}")))?;
        if !ready.url.is_empty() {
            self.client = Some(Client::new(&ready.url, &home.data())?);
        }
        self.url = ready.url;
        self.process = Some(ready.process);
        Ok(())
    }

    /// Its address; empty without a gateway.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its process id in the cluster; none before it serves.
    pub const fn process(&self) -> Option<ProcessId> {
        self.process
    }

    /// Its process at the operating system.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Its handle.
    pub fn client(&self) -> Result<Client, ProcessError> {
        let none = || ProcessError::Protocol("this node has no gateway".to_owned());
        self.client.clone().ok_or_else(none)
    }

    /// Sends a signal to it.
    pub fn signal(&self, signal: Signal) -> Result<(), ProcessError> {
        kill_process(self.pid, signal)
            .map_err(|error| ProcessError::io(format!("signal the node {signal:?}"))(error.into()))
    }

    /// `kill -9`, and waits until it is gone.
    pub async fn kill(mut self) -> Result<(), ProcessError> {
        self.signal(Signal::KILL)?;
        self.ended().await.map(drop)
    }

    /// Asks it to stop, and waits until it has; anything but success is an error.
    pub async fn stop(mut self) -> Result<(), ProcessError> {
        self.signal(Signal::TERM)?;
        let status = self.ended().await?;
        if status.success() {
            Ok(())
        } else {
            Err(ProcessError::Broken(format!("a node told to stop ended with {status}")))
        }
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> Result<ExitStatus, ProcessError> {
        timeout(PATIENCE, self.child.wait())
            .await
            .map_err(|_elapsed| ProcessError::Late("the node's end".to_owned()))?
            .map_err(ProcessError::io("wait for the node"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Not reaped yet, so the number is still ours.
        if self.child.id().is_some()
            && let Err(error) = kill_process_group(self.pid, Signal::KILL)
        {
            tracing::debug!(%error, "a node was gone already");
        }
    }
}

fn log_end(home: &Home) -> String {
    let log = std::fs::read(home.log()).unwrap_or_default();
    let from = log.len().saturating_sub(LOG_END);
    String::from_utf8_lossy(log.get(from..).unwrap_or_default()).into_owned()
}
