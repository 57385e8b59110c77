//! Several servers as one cluster, with the means to find and kill leaders.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::{
    HarnessError, NatsServer, ServerOptions,
    server::{PATIENCE, Ports, TRIES, configuration, patience},
};

/// How often a state is looked at that has no event.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A cluster of servers.
#[derive(Debug)]
pub struct NatsCluster {
    servers: Vec<NatsServer>,
}

// === impl NatsCluster ===

impl NatsCluster {
    /// Starts `count` servers and waits until each knows all others.
    pub async fn start(count: usize, options: ServerOptions) -> Result<Self, HarnessError> {
        let mut tries = 0;
        loop {
            tries += 1;
            match Self::try_start(count, &options).await {
                Err(HarnessError::Ended { .. }) if tries < TRIES => {}
                started => return started,
            }
        }
    }

    async fn try_start(count: usize, options: &ServerOptions) -> Result<Self, HarnessError> {
        let ports = (0..count).map(|_| Ports::free()).collect::<Result<Vec<_>, _>>()?;
        let routes: Vec<String> =
            ports.iter().map(|ports| format!("nats://127.0.0.1:{}", ports.route)).collect();
        let mut servers = Vec::with_capacity(count);
        for &own in &ports {
            let cluster = format!(
                "cluster {{\n  name: test\n  listen: 127.0.0.1:{}\n  routes: [{}]\n}}",
                own.route,
                routes.join(", ")
            );
            let mut server = NatsServer::prepare(own, &configuration(own, options, &cluster))?;
            server.spawn()?;
            servers.push(server);
        }
        let mut cluster = Self { servers };
        for server in &mut cluster.servers {
            server.serving().await?;
        }
        cluster.settled().await?;
        Ok(cluster)
    }

    /// Where clients connect: all servers.
    pub fn urls(&self) -> Vec<String> {
        self.servers.iter().map(NatsServer::url).collect()
    }

    /// One server.
    pub fn server(&mut self, index: usize) -> Result<&mut NatsServer, HarnessError> {
        let count = self.servers.len();
        self.servers
            .get_mut(index)
            .ok_or_else(|| HarnessError::Missing(format!("server {index} is not one of {count}")))
    }

    /// Kills all servers, starts them again and waits as [`start`](Self::start) does.
    pub async fn restart_all(&mut self) -> Result<(), HarnessError> {
        for server in &mut self.servers {
            server.kill()?;
        }
        for server in &mut self.servers {
            server.spawn()?;
        }
        for server in &mut self.servers {
            server.serving().await?;
        }
        self.settled().await
    }

    /// Waits until a running server leads the stream, and says which.
    pub async fn leader_of(&self, stream: &str) -> Result<usize, HarnessError> {
        self.leader(&format!("leader of {stream}"), |account| {
            let stream = find(&account["stream_detail"], stream)?;
            stream["cluster"]["leader"].as_str().map(str::to_owned)
        })
        .await
    }

    /// Waits until a running server leads the consumer, and says which.
    pub async fn consumer_leader_of(
        &self,
        stream: &str,
        consumer: &str,
    ) -> Result<usize, HarnessError> {
        self.leader(&format!("leader of {stream}/{consumer}"), |account| {
            let stream = find(&account["stream_detail"], stream)?;
            let consumer = find(&stream["consumer_detail"], consumer)?;
            consumer["cluster"]["leader"].as_str().map(str::to_owned)
        })
        .await
    }

    /// Waits until all running servers agree on a leader and know each other.
    pub async fn settled(&self) -> Result<(), HarnessError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut views = Vec::new();
            for server in self.servers.iter().filter(|server| server.is_running()) {
                views.push(server.page("/jsz").await.map_err(|error| error.to_string()));
            }
            let count = self.servers.len() as u64;
            let running = views.len() as u64;
            let is_led = |view: &Value| {
                let meta = &view["meta_cluster"];
                meta["leader"].as_str().is_some_and(|name| !name.is_empty())
                    && meta["cluster_size"].as_u64() == Some(count)
            };
            // The leader alone lists the others, and whether it hears of them.
            let followers = views.iter().flatten().map(followers).max().unwrap_or_default();
            let is_settled = views.iter().all(|view| view.as_ref().is_ok_and(is_led))
                && followers + 1 == running;
            if is_settled {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(patience("a settled NATS cluster", format!("{views:?}")));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn leader(
        &self,
        what: &str,
        pick: impl Fn(&Value) -> Option<String>,
    ) -> Result<usize, HarnessError> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut named = Vec::new();
            for server in self.servers.iter().filter(|server| server.is_running()) {
                let Ok(page) = server.page("/jsz?accounts=true&streams=true&consumers=true").await
                else {
                    continue;
                };
                named.extend(
                    page["account_details"].as_array().into_iter().flatten().filter_map(&pick),
                );
            }
            let leader = self.servers.iter().position(|server| {
                server.is_running() && named.iter().any(|name| server.is_named(name))
            });
            // While servers disagree, an election is under way.
            let agree = named.windows(2).all(|pair| pair[0] == pair[1]);
            match leader {
                Some(leader) if agree => return Ok(leader),
                _ if Instant::now() > deadline => return Err(patience(what, format!("{named:?}"))),
                _ => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }
}

/// The element of a list with this name.
fn find<'a>(list: &'a Value, name: &str) -> Option<&'a Value> {
    list.as_array()?.iter().find(|element| element["name"] == name)
}

/// How many followers this page's server sees up to date.
fn followers(page: &Value) -> u64 {
    let replicas = page["meta_cluster"]["replicas"].as_array().into_iter().flatten();
    let current = replicas
        .filter(|replica| replica["current"] == true && replica["offline"] != Value::Bool(true));
    current.count() as u64
}
