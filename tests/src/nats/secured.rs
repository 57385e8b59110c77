//! Servers as `clawnode cluster init` configures them: started in the folders that it wrote.

use std::{
    fs::{self, File},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use rand::Rng;
use tokio::time::Instant;

use super::{
    HarnessError, binary, http,
    server::{LOOK_EVERY, PATIENCE, patience},
};

/// Where ports for clients are looked for; those for routes and monitoring lie above.
const PORTS: std::ops::Range<u16> = 12_000..27_000;
/// From a port for clients to those for routes and monitoring.
const ABOVE: [u16; 3] = [0, 2_000, 4_000];
/// Ports that are tried before giving up.
const PORT_TRIES: usize = 200;

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
        for _ in 0..PORT_TRIES {
            let port = rand::rng().random_range(PORTS);
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
