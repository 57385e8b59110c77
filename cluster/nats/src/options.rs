//! The options of a cluster on NATS.

use std::{fmt, path::PathBuf, time::Duration};

use clawnode_proto::{ProcessId, limits, subject::Prefix};
use serde::{Deserialize, Serialize};

use super::auth::Credential;

/// How to reach NATS, and how it stores.
#[derive(Clone)]
pub struct NatsOptions {
    /// Servers, as `nats://host:port`, `tls://host:port` or `host:port`. One is enough: the others
    /// of its cluster are learnt from it. More than one helps when the first is down at start. The
    /// first that says `user:password@` or `token@` logs in to all.
    pub urls: Vec<String>,
    /// A `.creds` file with the user's JWT and seed. `None`: the user in the URL, or no user.
    pub credentials: Option<PathBuf>,
    /// A `.creds` file of the servers' system account. `None`: servers do not report lost
    /// connections, and processes find them by asking.
    pub sys_credentials: Option<PathBuf>,
    /// The name of the connection: by it others know which process it was when it ends.
    pub process: Option<ProcessId>,
    /// A credential at hand; it goes before `credentials`.
    pub credential: Option<Credential>,
    /// Certificates, PEM, of those that may sign the servers' certificates. With it TLS is
    /// required, and only these are trusted. `None`: TLS if the server asks for it, signed by any
    /// authority that this machine trusts.
    pub ca: Option<PathBuf>,
    /// Whether the cluster may be created here.
    pub birth: Birth,
    /// The name of the cluster that must be there; `None`: any.
    pub cluster: Option<String>,
    /// The content of the birth record, in case the record is gone and the cluster is not. `None`:
    /// unknown, and a new cluster is created.
    pub known: Option<KnownCluster>,
    /// The first part of all subjects and streams; clusters with different prefixes share one NATS
    /// account without meeting.
    pub prefix: Prefix,
    /// The number of partitions, over which entities are spread; fixed when the cluster is created.
    /// `None`: the number of the cluster, or `limits::PARTITIONS_NATS` if it is created here. More
    /// spread entities over more workers, and cost a consumer each.
    pub partitions: Option<u16>,
    /// On how many servers each record is stored before it is acknowledged.
    pub replicas: Replicas,
    /// How long a delivery may go without acknowledgement or progress; fixed when the cluster is
    /// born. Only tests change it.
    pub ack_wait: Duration,
    /// How long [`super::connect()`] tries to reach a server.
    pub connect_timeout: Duration,
    /// How long servers that were reached may start `JetStream` and elect. Servers that were just
    /// started may need it, and so may those that have lost a quorum for a moment.
    pub ready_timeout: Duration,
    /// How long one request or publish waits for its answer. Shorter informs callers sooner, and
    /// makes more appends whose result must be found out.
    pub request_timeout: Duration,
}

/// How a URL says to log in. Not printable.
#[derive(PartialEq, Eq)]
pub(super) enum Login {
    /// As this user.
    User(String, String),
    /// With this token.
    Token(String),
}

/// How a cluster was born, as its operator wrote it down.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownCluster {
    pub cluster: String,
    /// Into how many partitions its entities are spread.
    pub partitions: u16,
}

/// On how many servers each record is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replicas {
    /// The number of the cluster; at its creation three if the server is part of a cluster, else
    /// one.
    #[default]
    Auto,
    /// One server: if it loses data, the data is lost.
    One,
    /// Three servers: one may be lost.
    Three,
}

/// Whether streams and consumers may be created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Birth {
    /// If there is no cluster yet.
    #[default]
    IfMissing,
    /// Never: this user may not.
    Never,
    /// Missing streams are created, also in an older cluster.
    Mend,
}

impl NatsOptions {
    /// The servers at `urls`, and defaults for the rest.
    pub fn new<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            credentials: None,
            sys_credentials: None,
            process: None,
            credential: None,
            ca: None,
            birth: Birth::default(),
            cluster: None,
            known: None,
            prefix: Prefix::default(),
            partitions: None,
            replicas: Replicas::Auto,
            ack_wait: limits::ACK_WAIT,
            connect_timeout: Duration::from_secs(10),
            ready_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(5),
        }
    }

    /// The login in the URLs, if any. The client itself does not look there.
    pub(super) fn login(&self) -> Option<Login> {
        let user_info = self.urls.iter().find_map(|url| {
            let rest = url.split_once("://").map_or(url.as_str(), |(_, rest)| rest);
            rest.rsplit_once('@').map(|(user_info, _)| user_info)
        })?;
        Some(match user_info.split_once(':') {
            Some((user, password)) => Login::User(decoded(user), decoded(password)),
            None => Login::Token(decoded(user_info)),
        })
    }

    /// The servers, without the secrets in their URLs.
    pub(super) fn shown_urls(&self) -> String {
        self.urls.iter().map(|url| shown(url)).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions")
            .field("urls", &self.shown_urls())
            .field("credentials", &self.credentials)
            .field("sys_credentials", &self.sys_credentials)
            .field("credential", &self.credential)
            .field("ca", &self.ca)
            .field("prefix", &self.prefix)
            .field("partitions", &self.partitions)
            .field("replicas", &self.replicas)
            .finish_non_exhaustive()
    }
}

/// A text with its `%40` and the like decoded; other `%` stay.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let code = (first == b'%')
            .then(|| after.get(..2))
            .flatten()
            .and_then(|code| std::str::from_utf8(code).ok())
            .and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(code.unwrap_or(first));
        rest = if code.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A URL without its user, password or token.
fn shown(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://{host}"),
        (None, Some((_, host))) => host.to_owned(),
        (_, None) => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_secrets() {
        let options = NatsOptions::new(["nats://me:secret@host:4222", "token@b:1", "nats://c:2"]);
        assert_eq!(options.shown_urls(), "nats://host:4222, b:1, nats://c:2");
        let debug = format!("{options:?}");
        assert!(!debug.contains("secret") && !debug.contains("token"), "{debug}");
    }

    #[test]
    fn the_first_login_in_the_urls_is_taken() {
        let login = |urls: &[&str]| NatsOptions::new(urls.iter().copied()).login();
        let user = Login::User("me".to_owned(), "p@ss%zz".to_owned());
        assert!(login(&["a:1", "nats://me:p%40ss%zz@host:4222"]) == Some(user));
        assert!(login(&["nats://token@host"]) == Some(Login::Token("token".to_owned())));
        assert!(login(&["nats://host:4222"]).is_none());
    }
}
