//! The NATS servers of a stage, each on a host of its own.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use super::{
    ChaosError,
    daemon::{Daemon, Spec, tool},
    hosts::{Host, HostKind, Network},
    wait::{PATIENCE, eventually},
};
use crate::nats;

/// The ports of a server that has its host for itself.
const PORTS: Ports = Ports { client: 4_222, monitor: 8_222, route: 6_222 };
/// What a disk is asked to keep by.
const SYNCS: &str = "trace=fsync,fdatasync";
/// And a fifth of a second that it takes more.
const SLOWLY: &str = "inject=fsync,fdatasync:delay_exit=200000";
/// How long a monitoring page may take.
const PAGE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
struct Ports {
    client: u16,
    monitor: u16,
    route: u16,
}

/// One server.
#[derive(Debug)]
pub struct Server {
    /// Where it runs.
    pub host: Host,
    ports: Ports,
    dir: PathBuf,
    daemon: Option<Daemon>,
}

/// All servers of a stage.
#[derive(Debug)]
pub struct Bus {
    servers: Vec<Server>,
    http: reqwest::Client,
}

// === impl Bus ===

impl Bus {
    /// Starts `count` servers, and waits until they serve. What they store is synced before it is
    /// acknowledged; `store` is where, if not beside their logs.
    pub async fn start(
        network: &mut Network,
        kind: HostKind,
        count: usize,
        dir: &Path,
        store: Option<&Path>,
    ) -> Result<Self, ChaosError> {
        let mut servers = Vec::new();
        for number in 1..=count {
            let host = network.add(&format!("nats{number}"))?;
            let ports = match kind {
                HostKind::Namespaces => PORTS,
                HostKind::Loopback => Ports {
                    client: nats::free_port()?,
                    monitor: nats::free_port()?,
                    route: nats::free_port()?,
                },
            };
            servers.push(Server { host, ports, dir: dir.to_owned(), daemon: None });
        }
        let routes: Vec<String> = servers
            .iter()
            .map(|one| format!("nats://{}:{}", one.host.ip, one.ports.route))
            .collect();
        for server in &mut servers {
            let routes = if count > 1 { routes.as_slice() } else { &[] };
            server.configure(routes, store)?;
            server.spawn()?;
        }
        // Fails only if it was installed before, which serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).timeout(PAGE).build();
        let http = http.map_err(|error| ChaosError::Missing(format!("no HTTP: {error}")))?;
        let bus = Self { servers, http };
        bus.serving().await?;
        Ok(bus)
    }

    /// What `--nats` takes.
    pub fn urls(&self) -> String {
        let url = |one: &Server| format!("nats://{}:{}", one.host.ip, one.ports.client);
        self.servers.iter().map(url).collect::<Vec<_>>().join(",")
    }

    /// The addresses of all servers.
    pub fn addresses(&self) -> Vec<std::net::Ipv4Addr> {
        self.servers.iter().map(|one| one.host.ip).collect()
    }

    /// Makes every sync of a server's disk take longer, until what is returned is dropped.
    pub async fn slow(&self, index: usize) -> Result<Daemon, ChaosError> {
        let server = self.servers.get(index).and_then(|one| one.daemon.as_ref().zip(Some(one)));
        let Some((daemon, server)) = server else {
            return Err(ChaosError::Missing(format!("server {index} does not run")));
        };
        let pid = daemon.pid().as_raw_nonzero().get().to_string();
        let words = ["-f", "-q", "-o", "/dev/null", "-e", SYNCS, "-e", SLOWLY, "-p", &pid];
        let spec = Spec {
            name: format!("{}-tracer", server.host.name),
            program: tool("strace")
                .ok_or_else(|| ChaosError::Missing("`strace` is missing".to_owned()))?,
            args: words.map(str::to_owned).to_vec(),
            dir: server.dir.clone(),
            ..Spec::default()
        };
        let tracer = Daemon::start(&spec)?;
        let status = format!("/proc/{pid}/status");
        eventually("a traced server", PATIENCE, async || {
            let status = fs::read_to_string(&status).map_err(|error| error.to_string())?;
            let line = status.lines().find(|line| line.starts_with("TracerPid:"));
            match line {
                Some(line) if !line.ends_with("\t0") => Ok(()),
                _ => Err(format!("{line:?}")),
            }
        })
        .await?;
        Ok(tracer)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.servers.len()
    }

    /// `kill -9`.
    pub async fn kill(&mut self, index: usize) -> Result<(), ChaosError> {
        match self.servers.get_mut(index).and_then(|one| one.daemon.take()) {
            Some(mut daemon) => daemon.kill().await,
            None => Err(ChaosError::Missing(format!("server {index} does not run"))),
        }
    }

    /// Starts a killed one again on what it stored, and waits until all serve.
    pub async fn restart(&mut self, index: usize) -> Result<(), ChaosError> {
        if let Some(server) = self.servers.get_mut(index) {
            server.spawn()?;
        }
        self.serving().await
    }

    /// Starts those again that have ended by themselves; says which.
    pub fn revive(&mut self) -> Result<Vec<String>, ChaosError> {
        let mut revived = Vec::new();
        for server in &mut self.servers {
            if server.daemon.as_mut().is_some_and(|daemon| !daemon.is_running()) {
                server.spawn()?;
                revived.push(server.host.name.clone());
            }
        }
        Ok(revived)
    }

    /// Waits until all servers serve and, if there are several, agree on who leads them.
    pub async fn serving(&self) -> Result<(), ChaosError> {
        eventually("a serving bus", PATIENCE, async || {
            for server in &self.servers {
                let page = self.page(server, "/jsz?streams=true").await?;
                let leader = page["meta_cluster"]["leader"].as_str().unwrap_or_default();
                let size = page["meta_cluster"]["cluster_size"].as_u64();
                let led =
                    self.count() == 1 || (!leader.is_empty() && size == Some(self.count() as u64));
                let full = self.page(server, "/healthz").await?;
                if !led || full["status"] != "ok" {
                    return Err(format!("{}: {full}", server.host.name));
                }
            }
            Ok(())
        })
        .await
    }

    /// The server that leads the stream.
    pub async fn leader_of(&self, stream: &str) -> Result<usize, ChaosError> {
        eventually(&format!("a leader of `{stream}`"), PATIENCE, async || {
            let mut named = Vec::new();
            for server in &self.servers {
                let page = self.page(server, "/jsz?streams=true&accounts=true").await?;
                let found = streams(&page).find(|one| one["name"] == stream);
                let leader = found.and_then(|one| one["cluster"]["leader"].as_str());
                named.extend(leader.map(str::to_owned));
            }
            let agreed = named.windows(2).all(|pair| pair[0] == pair[1]);
            let leader = named.first().filter(|_| agreed);
            let index =
                leader.and_then(|name| self.servers.iter().position(|one| one.host.name == **name));
            index.ok_or_else(|| format!("{named:?}"))
        })
        .await
    }

    /// Messages in a stream, as the server says that has most of them.
    pub async fn messages(&self, stream: &str) -> Result<u64, String> {
        let mut most = None;
        for server in &self.servers {
            let page = self.page(server, "/jsz?streams=true&accounts=true").await?;
            let found = streams(&page).find(|one| one["name"] == stream);
            most = most.max(found.and_then(|one| one["state"]["messages"].as_u64()));
        }
        most.ok_or_else(|| format!("no stream `{stream}`"))
    }

    async fn page(&self, server: &Server, path: &str) -> Result<Value, String> {
        let url = format!("http://{}:{}{path}", server.host.ip, server.ports.monitor);
        let text = |error: reqwest::Error| format!("{}: {error}", server.host.name);
        let response = self.http.get(url).send().await.map_err(text)?;
        response.json().await.map_err(text)
    }
}

fn streams(page: &Value) -> impl Iterator<Item = &Value> {
    let accounts = page["account_details"].as_array().into_iter().flatten();
    accounts.flat_map(|account| account["stream_detail"].as_array().into_iter().flatten())
}

// === impl Server ===

impl Server {
    fn configure(&self, routes: &[String], store: Option<&Path>) -> Result<(), ChaosError> {
        let (ip, ports, name) = (self.host.ip, self.ports, &self.host.name);
        let store = store.unwrap_or(&self.dir).join(name);
        let cluster = if routes.is_empty() {
            String::new()
        } else {
            let routes = routes.join(", ");
            format!(
                "cluster {{\n  name: chaos\n  listen: \"{ip}:{}\"\n  routes: [{routes}]\n}}\n",
                ports.route
            )
        };
        let text = format!(
            "listen: \"{ip}:{}\"\nhttp: \"{ip}:{}\"\nserver_name: {name}\nmax_payload: 4MB\n\
             ping_interval: 5s\nping_max: 2\njetstream {{\n  store_dir: \"{}\"\n  \
             sync_interval: always\n}}\n{cluster}",
            ports.client,
            ports.monitor,
            store.display()
        );
        let path = self.configuration();
        fs::write(&path, text).map_err(ChaosError::io(format!("write `{}`", path.display())))
    }

    fn configuration(&self) -> PathBuf {
        self.dir.join(format!("{}.conf", self.host.name))
    }

    fn spawn(&mut self) -> Result<(), ChaosError> {
        let spec = Spec {
            name: self.host.name.clone(),
            namespace: self.host.namespace.clone(),
            program: nats::binary()?,
            args: vec!["-c".to_owned(), self.configuration().display().to_string()],
            vars: Vec::new(),
            dir: self.dir.clone(),
        };
        self.daemon = Some(Daemon::start(&spec)?);
        Ok(())
    }
}
