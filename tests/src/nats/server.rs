//! One server: started, killed, restarted on its directory and port, frozen and thawed.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rand::Rng;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::Instant;

use super::{HarnessError, http};

/// Long enough that reaching it means a bug, not a slow machine.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);
/// How often a state is looked at that has no event.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Tries to start on free ports, which another process may take in between.
pub(super) const TRIES: usize = 5;
/// Where free ports are looked for.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
/// Ports that are tried before giving up.
const PORT_TRIES: usize = 100;

/// How a server is configured.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Whether each record is on disk before it is acknowledged.
    pub sync_always: bool,
    /// Whether it keeps streams at all.
    pub jetstream: bool,
    /// Lines added to its configuration.
    pub extra: String,
}

/// A running (or killed) server.
#[derive(Debug)]
pub struct NatsServer {
    child: Option<Child>,
    ports: Ports,
    directory: TempDir,
}

/// The ports of one server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) client: u16,
    pub(super) monitor: u16,
    pub(super) route: u16,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self { sync_always: false, jetstream: true, extra: String::new() }
    }
}

// === impl NatsServer ===

impl NatsServer {
    /// Starts a server and waits until it serves.
    pub async fn start(options: ServerOptions) -> Result<Self, HarnessError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let ports = Ports::free()?;
            let mut server = Self::prepare(ports, &configuration(ports, &options, ""))?;
            server.spawn()?;
            match server.serving().await {
                Err(HarnessError::Ended { .. }) if tries < TRIES => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok(server),
            }
        }
    }

    /// Writes what a server needs, without starting it.
    pub(super) fn prepare(ports: Ports, configuration: &str) -> Result<Self, HarnessError> {
        let directory = TempDir::with_prefix("clawnode-nats-")
            .map_err(HarnessError::io("cannot make a directory for NATS"))?;
        let store = directory.path().join("store");
        let configuration = configuration.replace("STORE_DIR", &store.display().to_string());
        fs::write(directory.path().join("nats.conf"), configuration)
            .map_err(HarnessError::io("cannot write the configuration of NATS"))?;
        Ok(Self { child: None, ports, directory })
    }

    pub(super) fn spawn(&mut self) -> Result<(), HarnessError> {
        let binary = binary()?;
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.log_path())
            .map_err(HarnessError::io("cannot open the log of NATS"))?;
        let child = Command::new(&binary)
            .arg("-c")
            .arg(self.directory.path().join("nats.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(HarnessError::io(format!("cannot start `{}`", binary.display())))?;
        self.child = Some(child);
        Ok(())
    }

    /// Where clients connect.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.ports.client)
    }

    /// Whether the cluster calls it so.
    pub(super) fn is_named(&self, name: &str) -> bool {
        name == server_name(self.ports)
    }

    /// Its process, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// The directory with its configuration, log and store.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Whether it was started and not killed.
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Kills it at once; what it did not write is lost.
    pub fn kill(&mut self) -> Result<(), HarnessError> {
        if let Some(mut child) = self.child.take() {
            child.kill().map_err(HarnessError::io("cannot kill NATS"))?;
            child.wait().map_err(HarnessError::io("cannot wait for NATS"))?;
        }
        Ok(())
    }

    /// Starts it again on the same port and directory, and waits until it serves.
    pub async fn restart(&mut self) -> Result<(), HarnessError> {
        self.kill()?;
        self.spawn()?;
        self.serving().await
    }

    /// Stops it from running without ending it: connections stay and get no answer.
    pub fn freeze(&self) -> Result<(), HarnessError> {
        self.signal(Signal::STOP)?;
        // The signal is only sent by now; each thread stops on its own way out of the kernel.
        let end = Instant::now() + PATIENCE;
        while !self.is_frozen() {
            if Instant::now() > end {
                return Err(HarnessError::Missing("the server does not stop".to_owned()));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    /// Whether all its threads are stopped, as `/proc` has it.
    fn is_frozen(&self) -> bool {
        let Some(child) = &self.child else { return false };
        let Ok(tasks) = fs::read_dir(format!("/proc/{}/task", child.id())) else { return false };
        tasks.flatten().all(|task| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        })
    }

    /// Lets it run again.
    pub fn thaw(&self) -> Result<(), HarnessError> {
        self.signal(Signal::CONT)
    }

    /// A monitoring page, as JSON.
    pub async fn page(&self, path: &str) -> Result<serde_json::Value, HarnessError> {
        http::page(self.ports.monitor, path)
            .await
            .map_err(|error| HarnessError::Missing(format!("no page `{path}`: {error}")))
    }

    /// Waits until it serves clients.
    pub(super) async fn serving(&mut self) -> Result<(), HarnessError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.ended()? {
                return Err(HarnessError::Ended { status, log: self.log_end() });
            }
            // In a cluster a server without a leader says `unavailable`; it serves all the same.
            let last = match http::page(self.ports.monitor, "/healthz?js-server-only=true").await {
                Ok(page) if page["status"] == "ok" => return Ok(()),
                Ok(page) => page.to_string(),
                Err(error) => error,
            };
            if Instant::now() > deadline {
                return Err(patience("a serving NATS", last));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn ended(&mut self) -> Result<Option<String>, HarnessError> {
        let Some(child) = &mut self.child else { return Ok(Some("not started".to_owned())) };
        let status = child.try_wait().map_err(HarnessError::io("cannot look at NATS"))?;
        Ok(status.map(|status| status.to_string()))
    }

    fn signal(&self, signal: Signal) -> Result<(), HarnessError> {
        let child = self
            .child
            .as_ref()
            .ok_or_else(|| HarnessError::Missing("the server is not running".to_owned()))?;
        kill_process(Pid::from_child(child), signal)
            .map_err(|errno| HarnessError::io("cannot signal NATS")(errno.into()))
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("nats.log")
    }

    fn log_end(&self) -> String {
        let log = fs::read_to_string(self.log_path()).unwrap_or_else(|error| error.to_string());
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::warn!(%error, "a NATS server was left behind");
        }
    }
}

// === impl Ports ===

impl Ports {
    /// Ports that are not in use, below those that the system gives to outgoing connections.
    pub(super) fn free() -> Result<Self, HarnessError> {
        // All at the same time, so that they differ.
        let (client, monitor, route) = (listener()?, listener()?, listener()?);
        Ok(Self { client: port(&client)?, monitor: port(&monitor)?, route: port(&route)? })
    }
}

/// A port that is not in use, below those that the system gives to outgoing connections.
pub fn free_port() -> Result<u16, HarnessError> {
    port(&listener()?)
}

fn listener() -> Result<TcpListener, HarnessError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match TcpListener::bind(("127.0.0.1", rand::rng().random_range(PORTS))) {
            Err(error) if tries == PORT_TRIES => {
                return Err(HarnessError::io("no free port")(error));
            }
            Err(_) => {}
            Ok(listener) => return Ok(listener),
        }
    }
}

fn port(listener: &TcpListener) -> Result<u16, HarnessError> {
    Ok(listener.local_addr().map_err(HarnessError::io("a port without a number"))?.port())
}

/// The configuration file of one server; `cluster` is its cluster block.
pub(super) fn configuration(ports: Ports, options: &ServerOptions, cluster: &str) -> String {
    let sync = if options.sync_always { "sync_interval: always" } else { "" };
    let jetstream = if options.jetstream {
        format!("jetstream {{\n  store_dir: \"STORE_DIR\"\n  {sync}\n}}")
    } else {
        String::new()
    };
    format!(
        "listen: 127.0.0.1:{client}\nhttp: 127.0.0.1:{monitor}\nserver_name: {name}\n\
         max_payload: 4MB\nping_interval: 5s\nping_max: 2\n{jetstream}\n{cluster}\n{extra}\n",
        client = ports.client,
        monitor = ports.monitor,
        name = server_name(ports),
        extra = options.extra,
    )
}

fn server_name(ports: Ports) -> String {
    format!("s{}", ports.client)
}

pub(super) fn patience(what: &str, last: String) -> HarnessError {
    HarnessError::Patience { what: what.to_owned(), seconds: PATIENCE.as_secs(), last }
}

/// Where the binary is.
pub fn binary() -> Result<PathBuf, HarnessError> {
    let named = std::env::var_os("CLAWNODE_NATS_SERVER").map(PathBuf::from);
    let path = named.unwrap_or_else(|| {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/nats/bin/nats-server")
    });
    if path.is_file() { Ok(path) } else { Err(HarnessError::NoBinary(path)) }
}
