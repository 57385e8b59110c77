//! Why there is no connection to a cluster, and what to do about it.

use std::{path::PathBuf, time::Duration};

use super::{options::NatsOptions, topology::FORMAT};

/// Why there is no storage backend.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// An option that can't be.
    #[error("{0}")]
    Options(String),
    /// The credentials file can't be used.
    #[error("cannot read NATS credentials from `{path}`: {source}")]
    Credentials { path: PathBuf, source: std::io::Error },
    /// The credentials file holds none.
    #[error("`{path}` is not a NATS credentials file: {detail}")]
    NoCredentials { path: PathBuf, detail: String },
    /// Its time is over.
    #[error(
        "the credential `{name}` for this cluster has expired; ask its operator for another \
         (`clawnode cluster join-token`), and join again"
    )]
    Expired { name: String },
    /// There is no cluster.
    #[error(
        "`{urls}` has no cluster with prefix `{prefix}` yet: {detail}; its operator creates it \
         with `clawnode cluster join-token`"
    )]
    Unborn {
        urls: String,
        /// The first part of subjects.
        prefix: String,
        /// What is missing.
        detail: String,
    },
    /// It was born by an older build, and lacks what this one needs.
    #[error(
        "the cluster at `{urls}` was created by an older build and lacks streams that this one \
         needs, and this user may not create them; its operator brings it up to date with \
         `clawnode cluster push`"
    )]
    Outdated { urls: String },
    /// Another cluster is there.
    #[error(
        "the cluster at `{urls}` is `{found}`, but this node belongs to `{expected}`; correct the \
         servers or the prefix, or, if it is to change clusters, give it another data directory"
    )]
    OtherCluster {
        urls: String,
        /// The one that is there.
        found: String,
        /// The one that was expected.
        expected: String,
    },
    /// No server answers there.
    #[error("cannot reach NATS at `{urls}`: {detail}; {}", way_in(urls, detail))]
    Unreachable { urls: String, detail: String },
    /// It does not let us in.
    #[error("NATS at `{urls}` refused the login: {detail}; check the credentials file and the URL")]
    Login { urls: String, detail: String },
    /// It is too old.
    #[error("NATS at `{urls}` is version `{found}`, but 2.15.1 or newer is needed; upgrade it")]
    TooOld { urls: String, found: String },
    /// It keeps nothing.
    #[error(
        "NATS at `{urls}` has JetStream off: {detail}; start it with `-js`, or put `jetstream {{ store_dir: \"...\" }}` in its configuration and enable it for the account"
    )]
    NoJetStream { urls: String, detail: String },
    /// The cluster was born with another number of partitions.
    #[error(
        "the cluster was created with {born} partitions, but {configured} are configured; the \
         number can't change: configure {born}, or another prefix for a new cluster"
    )]
    Partitions {
        /// The number of the cluster.
        born: u16,
        /// The configured number.
        configured: u16,
    },
    /// The cluster was born by a newer program.
    #[error("the cluster has format {found}, but this build knows {FORMAT}; use a newer build")]
    Format {
        /// The format of the cluster.
        found: u32,
    },
    /// Three replicas can't be placed.
    #[error(
        "cannot store on three servers: {detail}; start three servers with JetStream, or configure one replica"
    )]
    Replicas { detail: String },
    /// A stream or consumer is not as it must be.
    #[error(
        "{detail}; correct it with the `nats` tool, or configure another prefix for a new cluster"
    )]
    Topology { detail: String },
    /// It is there, and still starts or elects.
    #[error(
        "NATS at `{urls}` is not ready after {waited:?}: {detail}; check that all its servers run \
         and reach each other"
    )]
    NotReady {
        urls: String,
        /// For how long it was waited for.
        waited: Duration,
        detail: String,
    },
    /// NATS is there, but a request to it failed.
    #[error("NATS at `{urls}` failed: {detail}; try again, and read its log if that fails too")]
    Failed { urls: String, detail: String },
}

/// A hint about servers that cannot be reached.
fn way_in(urls: &str, detail: &str) -> &'static str {
    if detail.contains("UnknownIssuer") {
        "this node has not joined that cluster: join it (`--join TOKEN`), or name who signs its \
         certificates (`[cluster] ca`)"
    } else if urls.contains("tls://") {
        "start it in its folder (`nats-server -c nats.conf`), or correct the URL"
    } else {
        "start it (`nats-server -js`), or correct the URL"
    }
}

pub(super) fn failed(options: &NatsOptions, detail: impl std::fmt::Display) -> ConnectError {
    ConnectError::Failed { urls: options.shown_urls(), detail: detail.to_string() }
}

pub(super) fn not_ready(options: &NatsOptions, detail: impl std::fmt::Display) -> ConnectError {
    ConnectError::NotReady {
        urls: options.shown_urls(),
        waited: options.ready_timeout,
        detail: detail.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_cannot_connect_is_told_what_fits_the_server() {
        for (urls, detail, expected) in [
            ("nats://a:1", "connection refused", "`nats-server -js`"),
            ("tls://a:1", "connection refused", "in its folder (`nats-server -c nats.conf`)"),
            ("tls://a:1", "invalid peer certificate: UnknownIssuer", "`--join TOKEN`"),
        ] {
            let (urls, detail) = (urls.to_owned(), detail.to_owned());
            let told = ConnectError::Unreachable { urls, detail }.to_string();
            assert!(told.contains(expected), "{told}");
        }
    }
}
