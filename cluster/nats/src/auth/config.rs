//! The configuration of a server: durable, with TLS, and with the accounts built in. All paths in it
//! are relative, so that its folder can be carried to the server's host.

use std::{fmt, net::IpAddr, str::FromStr};

use super::{Authority, AuthorityError};

/// From a server's client port to the one for routes between servers, where none is named.
const ROUTES: u16 = 2_000;
/// Longest name of a server.
const NAME_MOST: usize = 64;

/// A server, as clients and other servers reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusServer {
    /// Its name, of its own among the servers.
    pub name: String,
    /// A name or an address.
    pub host: String,
    /// Where clients connect.
    pub port: u16,
    /// Where the other servers connect.
    pub route_port: u16,
}

/// Text that names no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a server: write `NAME=HOST:PORT`, with a port of 1 to {}, or `NAME=HOST:PORT/ROUTE_PORT`",
    u16::MAX - ROUTES
)]
pub struct ServerNameError;

// === impl BusServer ===

impl FromStr for BusServer {
    type Err = ServerNameError;

    fn from_str(text: &str) -> Result<Self, ServerNameError> {
        let (name, address) = text.split_once('=').ok_or(ServerNameError)?;
        let (host, port) = address.rsplit_once(':').ok_or(ServerNameError)?;
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let number = |text: &str| text.parse::<u16>().map_err(|_error| ServerNameError);
        let (port, route_port) = if let Some((port, route_port)) = port.split_once('/') {
            (number(port)?, number(route_port)?)
        } else {
            let port = number(port)?;
            (port, port.checked_add(ROUTES).ok_or(ServerNameError)?)
        };
        let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_');
        let fits = !name.is_empty()
            && name.len() <= NAME_MOST
            && name.bytes().all(plain)
            && !host.is_empty()
            && host.bytes().all(|c| plain(c) || matches!(c, b'.' | b':'))
            && (!host.contains(':') || host.parse::<IpAddr>().is_ok())
            && port != 0
            && route_port != 0
            && port != route_port;
        if fits {
            Ok(Self { name: name.to_owned(), host: host.to_owned(), port, route_port })
        } else {
            Err(ServerNameError)
        }
    }
}

impl fmt::Display for BusServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.at(self.port))?;
        if self.port.checked_add(ROUTES) == Some(self.route_port) {
            return Ok(());
        }
        write!(f, "/{}", self.route_port)
    }
}

impl BusServer {
    /// Where clients connect.
    pub fn url(&self) -> String {
        format!("tls://{}", self.at(self.port))
    }

    /// Whether both would listen on one port of one host.
    pub fn collides(&self, other: &Self) -> bool {
        let ports = [other.port, other.route_port];
        self.host == other.host && (ports.contains(&self.port) || ports.contains(&self.route_port))
    }

    /// Whether only its own host reaches it.
    pub fn is_loopback(&self) -> bool {
        self.host == "localhost"
            || self.host.parse().is_ok_and(|address: IpAddr| address.is_loopback())
    }

    fn at(&self, port: u16) -> String {
        if self.host.contains(':') {
            format!("[{}]:{port}", self.host)
        } else {
            format!("{}:{port}", self.host)
        }
    }

    /// Where it listens: on its own host only if that is all that it is named by.
    fn listen(&self, port: u16) -> String {
        if self.is_loopback() { self.at(port) } else { format!("0.0.0.0:{port}") }
    }
}

/// The configuration of one of `servers`. Its folder holds `server.pem`, `server.key` and `ca.pem`.
pub fn server_config(
    authority: &Authority,
    server: &BusServer,
    servers: &[BusServer],
    now: u64,
) -> Result<String, AuthorityError> {
    let cluster =
        if servers.len() > 1 { routes(authority, server, servers) } else { String::new() };
    Ok(format!(
        r#"# A NATS server of the clawnode cluster `{cluster_name}`, made by `clawnode cluster init`.
# Start it in this folder: nats-server -c nats.conf

server_name: "{name}"
listen: "{listen}"
client_advertise: "{advertise}"
# Monitoring pages tell everybody on this host, without a login, who is connected and what for:
# http: "127.0.0.1:8222"

# A user message of 1 MiB must fit in its envelope.
max_payload: 4MB

# A client that is gone is noticed within 15 s, so that its pulls stop holding messages.
ping_interval: "5s"
ping_max: 2

# What is acknowledged is on disk.
jetstream {{
  store_dir: "data"
  sync_interval: always
}}

tls {{
  cert_file: "server.pem"
  key_file: "server.key"
  ca_file: "ca.pem"
  timeout: 5
}}

# Users prove who they are with keys; their permissions are in the account. A newer account, with
# other permissions and revocations, is pushed by `clawnode cluster` and kept in `jwt`.
operator: "{operator}"
system_account: "{system_id}"
resolver {{
  type: full
  dir: "jwt"
  allow_delete: false
  interval: "1m"
}}
resolver_preload {{
  {system_id}: "{system}"
  {account_id}: "{account}"
}}
{cluster}"#,
        cluster_name = authority.cluster(),
        name = server.name,
        listen = server.listen(server.port),
        advertise = server.at(server.port),
        operator = authority.operator_jwt(now)?,
        system_id = authority.system_id(),
        system = authority.system_jwt(now)?,
        account_id = authority.account_id(),
        account = authority.account_jwt(now)?,
    ))
}

/// The block that joins the servers: only those with a certificate of the cluster's own authority.
fn routes(authority: &Authority, server: &BusServer, servers: &[BusServer]) -> String {
    let routes: Vec<String> = servers
        .iter()
        .map(|server| format!("\"tls://{}\"", server.at(server.route_port)))
        .collect();
    format!(
        r#"
cluster {{
  name: "{name}"
  listen: "{listen}"
  cluster_advertise: "{advertise}"
  routes: [{routes}]
  tls {{
    cert_file: "server.pem"
    key_file: "server.key"
    ca_file: "ca.pem"
    verify: true
    timeout: 5
  }}
}}
"#,
        name = authority.cluster(),
        listen = server.listen(server.route_port),
        advertise = server.at(server.route_port),
        routes = routes.join(", "),
    )
}

#[cfg(test)]
mod tests {
    use clawnode_proto::subject::Prefix;

    use super::*;

    /// Monitoring pages need no login.
    #[test]
    fn a_server_has_no_monitoring_pages() {
        let authority = Authority::new("lab", &Prefix::default()).unwrap();
        let one: BusServer = "n1=127.0.0.1:4222".parse().unwrap();
        let text = server_config(&authority, &one, std::slice::from_ref(&one), 0).unwrap();
        let of_monitoring = ["http", "https", "monitor_port"];
        let named =
            |line: &&str| of_monitoring.iter().any(|key| line.trim_start().starts_with(key));
        assert_eq!(text.lines().find(named), None);
    }

    #[test]
    fn a_server_is_a_name_and_an_address() {
        let one: BusServer = "n1=10.0.0.1:4222".parse().unwrap();
        assert_eq!((one.url(), one.is_loopback()), ("tls://10.0.0.1:4222".to_owned(), false));
        let six: BusServer = "n2=[::1]:4222".parse().unwrap();
        assert_eq!((six.url(), six.is_loopback()), ("tls://[::1]:4222".to_owned(), true));
        for (text, route_port) in
            [("n=h:4222", 6222), ("n=h:4222/5222", 5222), ("n=[::1]:65000/1", 1)]
        {
            let server: BusServer = text.parse().unwrap();
            assert_eq!((server.route_port, server.to_string().as_str()), (route_port, text));
        }
        for text in [
            "",
            "n",
            "n=h",
            "n=h:0",
            "n=:1",
            "=h:1",
            "n=h:65000",
            "a b=h:1",
            "n=h\":1",
            "n=h:1/0",
            "n=h:1/1",
            "n=h:1/",
            "n=h:1/70000",
        ] {
            assert_eq!(text.parse::<BusServer>(), Err(ServerNameError), "{text}");
        }
    }
}
