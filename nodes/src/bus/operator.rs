//! The operator's directory: the keys of a cluster, and a folder for each NATS server.
//!
//! ```text
//! DIR/authority.json          the keys, and whom credentials were made for: secret
//! DIR/servers.json            the servers
//! DIR/ca.pem, ca.key          who signs the servers' certificates; the key is secret
//! DIR/servers/NAME/           what the host of that server gets: nats.conf, certificates
//! ```

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use clawnode_cluster::{Clock, Storage, SystemClock};
use clawnode_nats::{
    Birth, KnownCluster, NatsOptions, RestoredStream,
    auth::{
        Authority, AuthorityError, BusRole, BusServer, JoinToken, Pushed, offer, push,
        server_config,
    },
    connect, mirror, restore,
};
use clawnode_proto::{ErrorChain, NodeName, subject::Prefix};

use super::{
    certificates,
    cluster::{replicas, unconnected},
    files,
};
use crate::{config::Config, start_error::StartError};

const AUTHORITY: &str = "authority.json";
const SERVERS: &str = "servers.json";
const CA: &str = "ca.pem";
const CA_KEY: &str = "ca.key";
/// How long the credential lives with which a command works on the bus, in seconds.
const COMMAND_TTL: u64 = 300;

/// The same for one that copies streams, which may take long.
const KEEPER_TTL: u64 = 24 * 3_600;

/// The operator's directory, opened.
#[derive(Debug)]
pub struct Operator {
    dir: PathBuf,
    authority: Authority,
    servers: Vec<BusServer>,
}

/// What a join token is for.
#[derive(Debug)]
pub struct JoinPurpose {
    /// What the node may be.
    pub role: BusRole,
    /// What people call its credential.
    pub name: NodeName,
    /// How long the token may be used.
    pub ttl: Duration,
    /// How long the node's credential lasts.
    pub credential_ttl: Duration,
}

/// A join token, and whom it makes.
#[derive(Debug)]
pub struct IssuedJoinToken {
    /// The text to carry to the host: secret.
    pub token: String,
    /// The user that it makes.
    pub user: String,
    /// The cluster that it is for.
    pub cluster: String,
}

impl Operator {
    /// Makes the directory, its keys and a folder for each server; never over another.
    pub fn init(
        dir: &Path,
        cluster: &str,
        prefix: &Prefix,
        servers: Vec<BusServer>,
    ) -> Result<Self, StartError> {
        if dir.join(AUTHORITY).exists() {
            let message = format!("`{}` has the keys of a cluster already", dir.display());
            return Err(StartError::failed("conflict", message)
                .hint("name another directory with `--dir`; keys are never replaced"));
        }
        let authority = Authority::new(cluster, prefix).map_err(|error| unusable(dir, &error))?;
        let operator = Self { dir: dir.to_owned(), authority, servers };
        files::directory(dir)?;
        let ca = certificates::authority(cluster)?;
        files::write(&dir.join(CA), &ca.certificate)?;
        files::write(&dir.join(CA_KEY), &ca.key)?;
        for server in &operator.servers {
            operator.write_server(server)?;
        }
        // Last: with it the directory is whole.
        operator.save()?;
        Ok(operator)
    }

    /// Opens the directory.
    pub fn open(dir: &Path) -> Result<Self, StartError> {
        let Some(text) = files::read(&dir.join(AUTHORITY))? else {
            let message = format!("`{}` has no keys of a cluster", dir.display());
            return Err(StartError::config("no_authority", message).hint(
                "make some with `clawnode cluster init`, or name their directory with `--dir`",
            ));
        };
        let authority = Authority::from_json(&text).map_err(|error| unusable(dir, &error))?;
        let text = files::read(&dir.join(SERVERS))?.unwrap_or_default();
        let names: Vec<String> = serde_json::from_str(&text).map_err(|error| {
            StartError::config("authority_unusable", format!("`{SERVERS}`: {error}"))
        })?;
        let servers = names.iter().map(|name| name.parse()).collect::<Result<_, _>>();
        let servers = servers.map_err(|error: clawnode_nats::auth::ServerNameError| {
            StartError::config("authority_unusable", format!("`{SERVERS}`: {error}"))
        })?;
        Ok(Self { dir: dir.to_owned(), authority, servers })
    }

    /// Writes the keys back.
    pub fn save(&self) -> Result<(), StartError> {
        let servers: Vec<String> = self.servers.iter().map(ToString::to_string).collect();
        files::write(&self.dir.join(SERVERS), &serde_json::json!(servers).to_string())?;
        let text = self.authority.to_json().map_err(|error| unusable(&self.dir, &error))?;
        files::write(&self.dir.join(AUTHORITY), &text)
    }

    /// The keys.
    pub const fn authority(&self) -> &Authority {
        &self.authority
    }

    /// The keys, to be saved after a change.
    pub const fn authority_mut(&mut self) -> &mut Authority {
        &mut self.authority
    }

    pub fn servers(&self) -> &[BusServer] {
        &self.servers
    }

    /// The folder that this server's host gets.
    pub fn folder(&self, server: &BusServer) -> PathBuf {
        self.dir.join("servers").join(&server.name)
    }

    /// Adds a server, or makes the folder of one again, with another certificate.
    pub fn certify(&mut self, server: &BusServer) -> Result<(), StartError> {
        self.servers.retain(|other| other.name != server.name);
        self.servers.push(server.clone());
        self.write_server(server)?;
        self.save()
    }

    fn write_server(&self, server: &BusServer) -> Result<(), StartError> {
        let folder = self.folder(server);
        files::directory(&folder)?;
        let key = self.file(CA_KEY)?;
        let pair = certificates::server(self.authority.cluster(), &key, server)?;
        let config = server_config(&self.authority, server, &self.servers, now())
            .map_err(|error| unusable(&self.dir, &error))?;
        files::write(&folder.join("server.pem"), &pair.certificate)?;
        files::write(&folder.join("server.key"), &pair.key)?;
        files::write(&folder.join(CA), &self.file(CA)?)?;
        files::write(&folder.join("nats.conf"), &config)
    }

    fn file(&self, name: &str) -> Result<String, StartError> {
        let path = self.dir.join(name);
        files::read(&path)?.ok_or_else(|| {
            let message = format!("`{}` is missing", path.display());
            StartError::config("authority_unusable", message)
                .hint("restore it from a backup of the directory")
        })
    }

    /// How to reach the servers.
    fn options(&self) -> NatsOptions {
        NatsOptions {
            prefix: self.authority.prefix().clone(),
            ca: Some(self.dir.join(CA)),
            ..NatsOptions::new(self.servers.iter().map(BusServer::url))
        }
    }

    /// How the operator reaches the cluster.
    fn cluster_options(&self, config: &Config, birth: Birth) -> Result<NatsOptions, StartError> {
        let credential = self.authority.brief(BusRole::Admin, None, now(), COMMAND_TTL);
        let credential = credential.map_err(|error| unusable(&self.dir, &error))?;
        Ok(NatsOptions {
            credential: Some(credential),
            partitions: config.cluster.partitions,
            replicas: replicas(config),
            known: self.authority.born().cloned(),
            birth,
            ..self.options()
        })
    }

    /// Opens the cluster as its operator; gives birth to it if it is not there, and writes down how
    /// it was born, so that this can be said again.
    async fn cluster(&mut self, config: &Config, birth: Birth) -> Result<Storage, StartError> {
        let options = self.cluster_options(config, birth)?;
        let opened = connect(options).await.map_err(|error| unconnected(&error))?;
        if let Some(cluster) = opened.health.cluster()
            && self.authority.remember(KnownCluster { cluster, partitions: opened.partitions })
        {
            self.save()?;
        }
        Ok(opened)
    }

    /// Offers a node its credential on the bus, and makes the token to take it with.
    pub async fn admit(
        &mut self,
        config: &Config,
        purpose: &JoinPurpose,
    ) -> Result<IssuedJoinToken, StartError> {
        let storage = self.cluster(config, Birth::IfMissing).await?;
        let cluster = storage.health.cluster().unwrap_or_default();
        storage.health.close().await;
        let dir = self.dir.clone();
        let unusable = |error: AuthorityError| unusable(&dir, &error);
        let now = now();
        let ttl = purpose.credential_ttl.as_secs();
        let credential = self.authority.issue(purpose.role, purpose.name.as_str(), now, ttl);
        let credential = credential.map_err(unusable)?;
        let ttl = purpose.ttl.as_secs();
        let admission = self.authority.brief(BusRole::Admission, Some(&credential), now, ttl);
        let token = JoinToken {
            urls: self.servers.iter().map(BusServer::url).collect(),
            ca: self.file(CA)?,
            prefix: self.authority.prefix().clone(),
            cluster: cluster.clone(),
            role: purpose.role,
            admission: admission.map_err(unusable)?,
            offer: Some(credential.digest()),
        };
        let token = token
            .to_text()
            .map_err(|error| StartError::failed("internal", ErrorChain(&error).to_string()))?;
        // Written down before it can be used, so that it can be revoked.
        self.save()?;
        let options = self.cluster_options(config, Birth::Never)?;
        offer(&options, &credential, purpose.ttl).await.map_err(|error| {
            let message = format!("cannot offer the credential: {}", ErrorChain(&error));
            StartError::failed("bus_failed", message).hint("try again")
        })?;
        Ok(IssuedJoinToken { token, user: credential.user().to_owned(), cluster })
    }

    /// How the operator mirrors and restores.
    fn keeper_options(&self) -> Result<NatsOptions, StartError> {
        let credential = self.authority.keeper(now(), KEEPER_TTL);
        let credential = credential.map_err(|error| unusable(&self.dir, &error))?;
        Ok(NatsOptions { credential: Some(credential), ..self.options() })
    }

    /// Has the servers keep every record for so long; `None`: for ever. Says in which streams.
    pub async fn mirror(&self, keep: Option<Duration>) -> Result<Vec<String>, StartError> {
        let made = mirror(&self.keeper_options()?, keep).await;
        made.map_err(|error| unconnected(&error))
    }

    /// Brings back what was kept, but for what was stored in the last `without`.
    pub async fn restore(&self, without: Duration) -> Result<Vec<RestoredStream>, StartError> {
        let restored = restore(&self.keeper_options()?, without).await;
        restored.map_err(|error| unconnected(&error))
    }

    /// Tells the servers what the keys say now.
    pub async fn push(&self) -> Result<Pushed, StartError> {
        let pushed = push(&self.authority, &self.options(), self.servers.len(), now()).await;
        pushed.map_err(|error| {
            StartError::unreachable("push_failed", ErrorChain(&error).to_string())
                .hint("the changes are saved; run `clawnode cluster push` once the servers answer")
        })
    }

    /// Creates what is missing of the cluster's streams and consumers.
    pub async fn mend(&mut self, config: &Config) -> Result<(), StartError> {
        self.cluster(config, Birth::Mend).await?.health.close().await;
        Ok(())
    }
}

/// Seconds since 1970.
pub fn now() -> u64 {
    SystemClock.now().0 / 1_000
}

fn unusable(dir: &Path, error: &AuthorityError) -> StartError {
    let message = format!("the keys in `{}`: {}", dir.display(), ErrorChain(error));
    StartError::config("authority_unusable", message)
}
