//! The gateway of a node: from the settings to what it serves with, and from its refusals to words.

use std::sync::Arc;

use clawnode_cluster::Clock;
use clawnode_proto::ErrorChain;
use secrecy::SecretString;

use crate::{
    config::{Config, Secret},
    failure::{Exit, Failure},
    gateway::{GatewayOptions, ServeError, TlsFiles},
    telemetry,
};

/// How the gateway is to serve.
pub fn gateway_options(
    config: &Config,
    token: Option<&Secret>,
    clock: Arc<dyn Clock>,
) -> GatewayOptions {
    let it = &config.gateway;
    let tls = match (&it.tls_cert, &it.tls_key) {
        (Some(cert), Some(key)) => Some(TlsFiles { cert: cert.clone(), key: key.clone() }),
        _ => None,
    };
    let connections = usize::try_from(it.max_connections).unwrap_or(usize::MAX);
    let defaults = GatewayOptions::default();
    GatewayOptions {
        listen: it.listen,
        token: token.map(|token| SecretString::from(token.expose().to_owned())),
        tls,
        plain_http: it.plain_http,
        allowed_hosts: it.hosts.clone(),
        allowed_origins: it.origins.clone(),
        connections: connections.try_into().unwrap_or(defaults.connections),
        drain: config.node.drain,
        clock,
        adopt_trace: telemetry::adopt,
        ..defaults
    }
}

/// Why it does not.
pub fn refused(error: &ServeError) -> Failure {
    let message = ErrorChain(error).to_string();
    match error {
        ServeError::Bind { .. } => Failure::new(Exit::Failed, "listen_failed", message)
            .hint("name a free address with `--listen 127.0.0.1:0`; is another node running?"),
        ServeError::TokenRequired { .. }
        | ServeError::TlsRequired { .. }
        | ServeError::EmptyToken
        | ServeError::AllowList { .. }
        | ServeError::Tls { .. } => Failure::new(Exit::Config, "config_invalid", message),
    }
}

/// Where clients reach a gateway that serves at `url`, as far as it can tell.
pub fn advertised(config: &Config, url: &str) -> Option<String> {
    let it = &config.gateway;
    let own = || (!it.listen.ip().is_unspecified()).then(|| url.to_owned());
    it.advertise.clone().or_else(own)
}
