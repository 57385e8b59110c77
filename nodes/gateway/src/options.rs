//! What a person may set about the gateway, and what stops it from starting.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use clawnode_cluster::clock::{Clock, SystemClock};
use clawnode_proto::Traceparent;
use secrecy::SecretString;

/// Gives a request's span its parent and says which trace context travels on; telemetry's part.
pub type AdoptTrace = fn(&tracing::Span, Option<&Traceparent>) -> Option<Traceparent>;

/// Everything the gateway can be told.
#[derive(Clone)]
pub struct GatewayOptions {
    /// Where to listen (127.0.0.1:3100; port 0 takes a free one).
    pub listen: SocketAddr,
    /// What clients must show; none is allowed on loopback only (`--no-auth`).
    pub token: Option<SecretString>,
    /// A socket file to listen on besides, for commands on the same machine (none).
    pub socket: Option<PathBuf>,
    /// Certificate and key, to speak TLS.
    pub tls: Option<TlsFiles>,
    /// Speak without TLS beyond loopback, because a proxy in front of us does it.
    pub plain_http: bool,
    /// Further names of this gateway in `Host`, as `name` (default port) or `name:port`.
    pub allowed_hosts: Vec<String>,
    /// Web pages of other origins that may use this gateway, as `https://host[:port]`.
    pub allowed_origins: Vec<String>,
    /// Connections at once (10,000); further ones wait to be accepted.
    pub connections: NonZeroUsize,
    /// How many of them may be open before they have shown the token (512). One more takes the place
    /// of the oldest of the peer that has most. More lets more clients begin at the same moment; less
    /// spends less memory on those who never show it.
    pub unauthenticated: NonZeroUsize,
    /// Turns followed at once on one WebSocket (64), and other requests under way on it (64).
    pub requests_per_socket: NonZeroUsize,
    /// Frames that wait for one slow WebSocket or stream of events (1,024) before it gets `lagged`.
    pub queue_frames: NonZeroUsize,
    /// Bytes that wait for it (4 MiB); what comes first counts.
    pub queue_bytes: NonZeroUsize,
    /// How long a connection may take over TLS and request headers, and a WebSocket over its first
    /// message if that is the token (10 s).
    pub auth_deadline: Duration,
    /// How long a request may take over its body (30 s).
    pub body_deadline: Duration,
    /// How long a client with waiting frames may read nothing (30 s); then its connection is
    /// closed. It resumes from its cursor.
    pub write_deadline: Duration,
    /// How long a completion that is not streamed waits for a person's approval (60 s); then it is answered
    /// with an error that says how to go on.
    pub approval_patience: Duration,
    /// After how long without a word a WebSocket is pinged (30 s); after three such spans closed.
    pub ping_every: Duration,
    /// How long open streams may run on after the stop signal (30 s).
    pub drain: Duration,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Links spans to traces.
    pub adopt_trace: AdoptTrace,
}

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Why the gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Anybody on the network could use it.
    #[error("`{listen}` is reachable from other machines, so `--no-auth` is refused")]
    TokenRequired {
        /// Where it should listen.
        listen: SocketAddr,
    },
    /// The token would cross the network in the clear.
    #[error(
        "`{listen}` is reachable from other machines: give `--tls-cert` and `--tls-key`, or \
         `--plain-http` if a proxy in front of it speaks TLS"
    )]
    TlsRequired {
        /// Where it should listen.
        listen: SocketAddr,
    },
    /// A token that everybody could guess.
    #[error("the token is empty; leave it out to have one made")]
    EmptyToken,
    /// An entry of an allow-list that could never match.
    #[error("`{entry}` in `{list}` is not {expected}")]
    AllowList {
        list: &'static str,
        entry: String,
        /// What it should be.
        expected: &'static str,
    },
    /// The address is in use, or not permitted.
    #[error("cannot listen on `{listen}`")]
    Bind {
        /// Where it should listen.
        listen: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// Certificate or key cannot be used.
    #[error("cannot use `{path}` for TLS: {problem}")]
    Tls { path: PathBuf, problem: String },
}

// === impl GatewayOptions ===

impl Default for GatewayOptions {
    fn default() -> Self {
        let most = |count: usize| NonZeroUsize::new(count).unwrap_or(NonZeroUsize::MIN);
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 3100),
            token: None,
            socket: None,
            tls: None,
            plain_http: false,
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            connections: most(10_000),
            unauthenticated: most(512),
            requests_per_socket: most(64),
            queue_frames: most(1_024),
            queue_bytes: most(4 << 20),
            auth_deadline: Duration::from_secs(10),
            body_deadline: Duration::from_secs(30),
            write_deadline: Duration::from_secs(30),
            approval_patience: Duration::from_mins(1),
            ping_every: Duration::from_secs(30),
            drain: Duration::from_secs(30),
            clock: Arc::new(SystemClock),
            adopt_trace: |_, incoming| incoming.cloned(),
        }
    }
}

impl GatewayOptions {
    /// Refuses what would be unsafe; the same rules whatever the command line let through.
    pub fn check(&self) -> Result<(), ServeError> {
        use secrecy::ExposeSecret as _;
        if self.token.as_ref().is_some_and(|token| token.expose_secret().trim().is_empty()) {
            return Err(ServeError::EmptyToken);
        }
        if self.listen.ip().is_loopback() {
            return Ok(());
        }
        if self.token.is_none() {
            return Err(ServeError::TokenRequired { listen: self.listen });
        }
        if self.tls.is_none() && !self.plain_http {
            return Err(ServeError::TlsRequired { listen: self.listen });
        }
        Ok(())
    }
}

impl fmt::Debug for GatewayOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GatewayOptions")
            .field("listen", &self.listen)
            .field("token", &self.token.is_some())
            .field("tls", &self.tls)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn beyond_loopback_needs_a_token_and_tls() {
        let table = [
            // listen, token, tls, plain_http, starts
            ("127.0.0.1:0", false, false, false, true),
            ("[::1]:0", false, false, false, true),
            ("127.0.0.1:0", true, false, false, true),
            ("0.0.0.0:0", false, false, false, false),
            ("0.0.0.0:0", true, false, false, false),
            ("0.0.0.0:0", false, true, false, false),
            ("0.0.0.0:0", false, false, true, false),
            ("0.0.0.0:0", true, true, false, true),
            ("192.0.2.1:0", true, false, true, true),
            ("[::]:0", true, false, false, false),
            ("[::ffff:127.0.0.1]:0", false, false, false, false),
        ];
        for (listen, token, tls, plain_http, starts) in table {
            let options = GatewayOptions {
                listen: listen.parse().unwrap(),
                token: token.then(|| SecretString::from("secret")),
                tls: tls.then(|| TlsFiles { cert: "c".into(), key: "k".into() }),
                plain_http,
                ..GatewayOptions::default()
            };
            assert_eq!(options.check().is_ok(), starts, "{listen} {token} {tls} {plain_http}");
        }
    }

    #[test]
    fn an_empty_token_is_no_token() {
        let options =
            GatewayOptions { token: Some(SecretString::from("  ")), ..GatewayOptions::default() };
        assert!(matches!(options.check(), Err(ServeError::EmptyToken)));
    }
}
