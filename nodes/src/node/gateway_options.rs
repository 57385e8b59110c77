//! Makes the gateway's options from the settings, and errors for people from its refusals.

use std::{num::NonZeroUsize, sync::Arc};

use clawnode_cluster::Clock;
use clawnode_gateway::{GatewayOptions, ServeError, TlsFiles};
use clawnode_proto::ErrorChain;
use rustix::process::{Resource, getrlimit};
use secrecy::SecretString;

use crate::{
    config::Config, node_file::SOCKET_FILE, secret::Secret, start_error::StartError, telemetry,
};

/// Files and sockets that a node needs besides its clients' (512): its log, the bus, models, tools.
const FILES_BESIDES: usize = 512;

/// How the gateway is to serve.
pub fn gateway_options(
    config: &Config,
    token: Option<&Secret>,
    clock: Arc<dyn Clock>,
) -> GatewayOptions {
    let gateway = &config.gateway;
    let tls = match (&gateway.tls_cert, &gateway.tls_key) {
        (Some(cert), Some(key)) => Some(TlsFiles { cert: cert.clone(), key: key.clone() }),
        _ => None,
    };
    let connections = connections(gateway.max_connections, getrlimit(Resource::Nofile).current);
    let defaults = GatewayOptions::default();
    GatewayOptions {
        listen: gateway.listen,
        token: token.map(|token| SecretString::from(token.expose().to_owned())),
        socket: Some(config.node.data_dir.join(SOCKET_FILE)),
        tls,
        plain_http: gateway.plain_http,
        allowed_hosts: gateway.hosts.clone(),
        allowed_origins: gateway.origins.clone(),
        connections: connections.try_into().unwrap_or(defaults.connections),
        queue_bytes: unread(gateway.max_unread.0).unwrap_or(defaults.queue_bytes),
        approval_patience: gateway.approval_patience,
        drain: config.node.drain,
        clock,
        adopt_trace: telemetry::adopt,
        ..defaults
    }
}

fn unread(bytes: u64) -> Option<NonZeroUsize> {
    usize::try_from(bytes).ok().and_then(NonZeroUsize::new)
}

/// How many connections there may be: those that are configured, as long as enough of the files that
/// this process may open (`None`: any number) are left for everything else.
fn connections(configured: u32, files: Option<u64>) -> usize {
    let configured = usize::try_from(configured).unwrap_or(usize::MAX);
    let Some(files) = files else { return configured };
    let files = usize::try_from(files).unwrap_or(usize::MAX);
    let most = files.saturating_sub(FILES_BESIDES).max(files / 2);
    if most < configured {
        tracing::warn!(
            files,
            connections = most,
            "fewer connections than `gateway.max_connections`: this process may not open more files \
             (`ulimit -n`)"
        );
    }
    configured.min(most)
}

/// Why it does not.
pub fn refused(error: &ServeError) -> StartError {
    let message = ErrorChain(error).to_string();
    match error {
        ServeError::Bind { .. } => StartError::failed("listen_failed", message)
            .hint("name a free address with `--listen 127.0.0.1:0`; is another node running?"),
        ServeError::TokenRequired { .. }
        | ServeError::TlsRequired { .. }
        | ServeError::EmptyToken
        | ServeError::AllowList { .. }
        | ServeError::Tls { .. } => StartError::config("config_invalid", message),
    }
}

/// Where clients reach a gateway that serves at `url`, as far as it can tell.
pub fn advertised(config: &Config, url: &str) -> Option<String> {
    let gateway = &config.gateway;
    let own = || (!gateway.listen.ip().is_unspecified()).then(|| url.to_owned());
    gateway.advertise.clone().or_else(own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Env, Sources, load};

    /// Where the gateway judges names and origins.
    const ORIGIN: &str = include_str!("../../gateway/src/origin.rs");

    #[test]
    fn hints_of_the_gateway_name_settings_that_exist() {
        let code = ORIGIN.split("mod tests").next().unwrap();
        let mut keys = 0;
        for key in code.split('`').filter_map(|part| part.strip_prefix("gateway.")) {
            let home = tempfile::tempdir().unwrap();
            let file = home.path().join("config.toml");
            std::fs::write(&file, format!("[gateway]\n{key} = []\n")).unwrap();
            let env = Env::from([("HOME", "/home/ada")]);
            let sources = Sources { env, file: Some(file), flags: Vec::new() };
            assert!(load(&sources).is_ok(), "`gateway.{key}` is no setting");
            keys += 1;
        }
        assert_eq!(keys, 2);
    }

    #[test]
    fn connections_leave_files_for_the_rest() {
        assert_eq!(connections(4_096, None), 4_096);
        assert_eq!(connections(4_096, Some(65_536)), 4_096);
        assert_eq!(connections(4_096, Some(1_024)), 512);
        assert_eq!(connections(4_096, Some(600)), 300);
        assert_eq!(connections(10, Some(600)), 10);
    }
}
