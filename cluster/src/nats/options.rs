//! What a person may choose about a cluster on NATS.

use std::{path::PathBuf, time::Duration};

use clawnode_proto::{limits, subject::Prefix};

/// How to reach NATS, and what is stored there.
#[derive(Clone, Debug)]
pub struct NatsOptions {
    /// Servers, as `nats://host:port`, `tls://host:port` or `host:port`. One is enough: the others of its cluster
    /// are learnt from it. More than one helps when the first is down at start.
    pub urls: Vec<String>,
    /// A `.creds` file with the user's JWT and seed. `None`: as the URL says, or nobody.
    pub credentials: Option<PathBuf>,
    /// What all subjects and streams begin with; clusters with different prefixes share one NATS
    /// account without meeting.
    pub prefix: Prefix,
    /// Into how many partitions entities are spread; fixed when the cluster is born. `None`: as it
    /// was born, or `limits::PARTITIONS_NATS` if this gives birth to it. More spread entities over
    /// more workers, and cost a consumer each.
    pub partitions: Option<u16>,
    /// On how many servers each record is stored before it is acknowledged.
    pub replicas: Replicas,
    /// How long a delivery may go without acknowledgement or progress; fixed when the cluster is
    /// born. Only tests change it.
    pub ack_wait: Duration,
    /// How long [`super::connect`] tries to reach a server and `JetStream`. Longer helps when both are
    /// started together.
    pub connect_timeout: Duration,
    /// How long one request or publish waits for its answer. Shorter tells callers sooner, and
    /// makes more appends whose fate must be found out.
    pub request_timeout: Duration,
}

/// On how many servers each record is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Replicas {
    /// As it was born; at birth three if the server is part of a cluster, else one.
    #[default]
    Auto,
    /// One server: what it loses is lost.
    One,
    /// Three servers: one may be lost.
    Three,
}

impl NatsOptions {
    /// The servers at `urls`, and defaults for the rest.
    pub fn new<U: Into<String>>(urls: impl IntoIterator<Item = U>) -> Self {
        Self {
            urls: urls.into_iter().map(Into::into).collect(),
            credentials: None,
            prefix: Prefix::default(),
            partitions: None,
            replicas: Replicas::Auto,
            ack_wait: limits::ACK_WAIT,
            connect_timeout: Duration::from_secs(10),
            request_timeout: Duration::from_secs(5),
        }
    }

    /// The servers, without what is secret in their URLs.
    pub(super) fn shown_urls(&self) -> String {
        self.urls.iter().map(|url| shown(url)).collect::<Vec<_>>().join(", ")
    }
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
    }
}
