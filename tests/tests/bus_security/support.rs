//! An operator with servers, and users who try things at them.

use std::{path::PathBuf, time::Duration};

use async_nats::{Client, ConnectOptions, Event};
use clawnode_cluster::{Clock, SystemClock};
use clawnode_nats::{
    Birth, NatsOptions,
    auth::{Authority, Credential},
};
use clawnode_proto::subject::Prefix;
use clawnode_tests::{
    nats::{HarnessError, SecuredNats},
    process::{Ended, Home, Node, ProcessError, Start, TestBackend},
};
use serde_json::Value;
use tokio::sync::mpsc;

pub(crate) type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Long enough that reaching it means a bug, not a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);
/// Words of the servers that wait to be read; each try reads all of them.
const TOLD: usize = 1_024;
/// Tries to start on free ports, which another process may take in between.
const TRIES: usize = 5;

/// The operator of the cluster, and the servers.
pub(crate) struct Operator {
    pub(crate) home: Home,
    pub(crate) nats: SecuredNats,
    pub(crate) urls: Vec<String>,
}

/// A user of the bus, and what its servers tell it.
pub(crate) struct User {
    pub(crate) client: Client,
    pub(crate) told: mpsc::Receiver<Event>,
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemClock.now().0 / 1_000
}

impl Operator {
    /// A new cluster on so many servers.
    pub(crate) async fn new(servers: usize) -> Result<Self> {
        // Installing fails only if it was installed before, which serves as well.
        drop(rustls::crypto::ring::default_provider().install_default());
        for _ in 0..TRIES {
            let home = Home::new(TestBackend::Local)?.var("CLAWNODE_CLUSTER__PARTITIONS", "4");
            let mut args = vec!["cluster".to_owned(), "init".to_owned()];
            let mut folders = Vec::new();
            for number in 0..servers {
                let port = SecuredNats::free_port()?;
                args.extend(["--server".to_owned(), format!("n{number}=127.0.0.1:{port}")]);
                folders.push((home.data().join(format!("cluster/servers/n{number}")), port));
            }
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let made = home.run(&args).await?;
            assert_eq!(made.code, 0, "{made:?}");
            let urls = folders.iter().map(|(_, port)| format!("tls://127.0.0.1:{port}")).collect();
            match SecuredNats::start(folders).await {
                Ok(nats) => return Ok(Self { home, nats, urls }),
                Err(HarnessError::Ended { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err("no free ports".into())
    }

    /// The keys, as they are now.
    pub(crate) fn authority(&self) -> Result<Authority> {
        let text = std::fs::read_to_string(self.home.data().join("cluster/authority.json"))?;
        Ok(Authority::from_json(&text)?)
    }

    /// A command of the operator that must work.
    pub(crate) async fn run(&self, args: &[&str]) -> Result<Ended> {
        let ended = self.home.run(args).await?;
        assert_eq!(ended.code, 0, "{args:?}: {ended:?}");
        Ok(ended)
    }

    /// What `cluster join-token` makes: its token and the rest.
    pub(crate) async fn token(&self, role: &str) -> Result<Value> {
        Ok(self.run(&["cluster", "join-token", "--role", role, "--json"]).await?.json()?)
    }

    /// Who signs the servers' certificates.
    pub(crate) fn ca(&self) -> PathBuf {
        self.home.data().join("cluster/ca.pem")
    }

    /// How a node with this credential connects.
    pub(crate) fn options(&self, credential: &Credential) -> NatsOptions {
        NatsOptions {
            credential: Some(credential.clone()),
            ca: Some(self.ca()),
            birth: Birth::Never,
            prefix: Prefix::default(),
            ..NatsOptions::new(self.urls.clone())
        }
    }

    /// Connects past our handles.
    pub(crate) async fn user(&self, credential: &Credential) -> Result<User> {
        let (tell, told) = mpsc::channel(TOLD);
        let client = ConnectOptions::new()
            .credentials(&credential.to_creds())?
            .add_root_certificates(self.ca())
            .require_tls(true)
            .skip_subject_validation(true)
            .custom_inbox_prefix(format!("_INBOX.{}", credential.user()))
            .event_callback(move |event| {
                let tell = tell.clone();
                async move { drop(tell.send(event).await) }
            })
            .connect(self.urls.clone())
            .await?;
        Ok(User { client, told })
    }
}

/// A host that is to join: a home whose nodes have this token in their environment.
pub(crate) fn host(token: &str) -> Result<Home> {
    Ok(Home::new(TestBackend::Local)?.var("CLAWNODE_JOIN", token))
}

/// A node on a host, of this role.
pub(crate) async fn node(home: &Home, role: &'static str) -> Result<Node, ProcessError> {
    Node::start(home, Start::role(role)).await
}

/// How a node ends that must not start.
pub(crate) async fn refused(home: &Home, role: &str) -> Result<Ended> {
    let ended = home.run(&["--listen", "127.0.0.1:0", "run", "--role", role]).await?;
    assert!(ended.code > 0, "{ended:?}");
    assert!(!ended.err.contains("panicked"), "{}", ended.err);
    Ok(ended)
}

/// Waits until `user` gets an event that `wanted` takes.
pub(crate) async fn told<T>(user: &mut User, wanted: impl Fn(&Event) -> Option<T>) -> Result<T> {
    tokio::time::timeout(PATIENCE, async {
        loop {
            let event = user.told.recv().await.ok_or("the connection is gone")?;
            if let Some(found) = wanted(&event) {
                return Ok(found);
            }
        }
    })
    .await?
}
