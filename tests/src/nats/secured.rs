//! Servers as `clawnode cluster init` configures them: started in the folders that it wrote.

use std::{
    env,
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicU16, Ordering},
    },
};

use rand::Rng;
use tokio::time::Instant;

use super::{
    HarnessError, binary, http,
    server::{LOOK_EVERY, PATIENCE, patience},
};

/// The lowest port for clients; those for routes and monitoring lie above.
const LOWEST: u16 = 12_000;
/// From a port for clients to those for routes and monitoring.
const ABOVE: [u16; 3] = [0, 2_000, 4_000];
/// Ports for clients that one test has. Tests that run at a time have different ones: between the look at a port and the
/// server that listens there, another test would take it, and show its own server as this test's.
const PORTS: u16 = 100;
/// Tests at a time that have ports of their own.
const SLOTS: u16 = ABOVE[1] / PORTS;
/// Which of the tests that run at a time this one is, by the runner of tests.
const SLOT: &str = "NEXTEST_TEST_GLOBAL_SLOT";

/// Running servers; killed when dropped.
#[derive(Debug)]
pub struct SecuredNats {
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    folder: PathBuf,
    port: u16,
    child: Option<Child>,
}

impl SecuredNats {
    /// A port for clients that is not in use, nor are those above it.
    pub fn free_port() -> Result<u16, HarnessError> {
        // Begins anywhere: what ended just now may hold a port still.
        static NEXT: LazyLock<AtomicU16> =
            LazyLock::new(|| AtomicU16::new(rand::rng().random_range(..PORTS)));
        let slot = env::var(SLOT).ok().and_then(|slot| slot.parse::<u16>().ok());
        let slot = slot.unwrap_or_else(|| rand::rng().random_range(..SLOTS)) % SLOTS;
        for _ in 0..PORTS {
            let port = LOWEST + slot * PORTS + NEXT.fetch_add(1, Ordering::Relaxed) % PORTS;
            let free = |above: &u16| TcpListener::bind(("127.0.0.1", port + above)).is_ok();
            if ABOVE.iter().all(free) {
                return Ok(port);
            }
        }
        Err(HarnessError::Missing("no free ports".to_owned()))
    }

    /// Starts a server in each folder, and waits until all serve.
    pub async fn start(folders: Vec<(PathBuf, u16)>) -> Result<Self, HarnessError> {
        let servers =
            folders.into_iter().map(|(folder, port)| Server { folder, port, child: None });
        let mut secured = Self { servers: servers.collect() };
        for server in &mut secured.servers {
            server.spawn()?;
        }
        for server in &mut secured.servers {
            server.serving().await?;
        }
        Ok(secured)
    }

    /// Kills one, starts it again and waits until it serves.
    pub async fn restart(&mut self, index: usize) -> Result<(), HarnessError> {
        let missing = || HarnessError::Missing(format!("no server {index}"));
        let server = self.servers.get_mut(index).ok_or_else(missing)?;
        server.kill()?;
        server.spawn()?;
        server.serving().await
    }

    /// What all of them logged so far.
    pub fn log(&self) -> String {
        self.servers.iter().map(Server::log).collect()
    }
}

impl Server {
    fn spawn(&mut self) -> Result<(), HarnessError> {
        let binary = binary()?;
        let binary = fs::canonicalize(&binary).map_err(HarnessError::io("find NATS"))?;
        let log = File::options().create(true).append(true).open(self.log_path());
        let log = log.map_err(HarnessError::io("cannot open the log of NATS"))?;
        let child = Command::new(binary)
            .args(["-c", "nats.conf"])
            .current_dir(&self.folder)
            // Missing in its configuration: the page that shows when it serves.
            .args(["--http_port", &(self.port + ABOVE[2]).to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(HarnessError::io("cannot start NATS"))?;
        self.child = Some(child);
        Ok(())
    }

    async fn serving(&mut self) -> Result<(), HarnessError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let child = self.child.as_mut();
            let ended = child.map(Child::try_wait).transpose();
            let ended = ended.map_err(HarnessError::io("cannot look at NATS"))?.flatten();
            if let Some(status) = ended {
                let status = status.to_string();
                return Err(HarnessError::Ended { status, log: self.log() });
            }
            let page = http::page(self.port + ABOVE[2], "/healthz?js-server-only=true").await;
            let last = match page {
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

    fn kill(&mut self) -> Result<(), HarnessError> {
        if let Some(mut child) = self.child.take() {
            child.kill().map_err(HarnessError::io("cannot kill NATS"))?;
            child.wait().map_err(HarnessError::io("cannot wait for NATS"))?;
        }
        Ok(())
    }

    fn log_path(&self) -> PathBuf {
        Path::new(&self.folder).join("nats.log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_else(|error| error.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.kill() {
            tracing::warn!(%error, "a NATS server was left behind");
        }
    }
}
