//! The checks of NATS servers: whether a node can use them, and what they do not report.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::TcpStream,
    time::timeout,
};

use super::Check;

/// How long a NATS server may take to greet.
const NATS_TIMEOUT: Duration = Duration::from_secs(3);
/// Most bytes of a greeting.
const GREETING_BYTES: u64 = 64 << 10;
/// NATS's own port.
const NATS_PORT: u16 = 4222;
/// The oldest NATS that has what we use, as nodes require it.
const NATS_NEEDED: (u32, u32, u32) = (2, 15, 1);

/// A NATS server's greeting to a client.
#[derive(Deserialize)]
struct Greeting {
    #[serde(default)]
    version: String,
    #[serde(default)]
    jetstream: bool,
    #[serde(default)]
    auth_required: bool,
    #[serde(default)]
    tls_required: bool,
}

/// Checks of each NATS server, and what none of them can say of its disk.
pub(super) async fn servers(servers: impl IntoIterator<Item = &str>) -> Vec<Check> {
    let mut checks = Vec::new();
    for server in servers {
        checks.extend(server_checks(server).await);
    }
    let found = "servers do not report whether they write to disk before they acknowledge. With \
                 `sync_interval: always`, a power cut loses nothing; with the default, it may lose \
                 the last two minutes";
    checks.push(Check::green("nats.durability", found));
    checks
}

/// Whether it can be used, and whether others can use it as well.
async fn server_checks(server: &str) -> Vec<Check> {
    const NAME: &str = "nats.reachable";
    let fix = "start the server, or correct `--nats`";
    let Some(address) = address_of(server) else {
        return vec![Check::red(NAME, "the address has no host", fix)];
    };
    let greeting = match timeout(NATS_TIMEOUT, greet(&address)).await {
        Ok(Ok(greeting)) => greeting,
        Ok(Err(error)) => return vec![Check::red(NAME, format!("`{address}`: {error}"), fix)],
        Err(_elapsed) => {
            let found = format!("`{address}` sent no greeting within {} s", NATS_TIMEOUT.as_secs());
            return vec![Check::red(NAME, found, fix)];
        }
    };
    vec![usable(&address, &greeting), open_to_others(&address, &greeting)]
}

fn usable(address: &str, greeting: &Greeting) -> Check {
    const NAME: &str = "nats.reachable";
    let version = &greeting.version;
    if !greeting.jetstream {
        let found = format!("`{address}` (NATS {version}) has no JetStream");
        return Check::red(NAME, found, "start the server with `-js`");
    }
    if number(version).is_none_or(|number| number < NATS_NEEDED) {
        let found = format!("`{address}` is NATS {version}, which is too old");
        return Check::red(NAME, found, "use NATS 2.15.1 or newer");
    }
    Check::green(NAME, format!("`{address}` is NATS {version}"))
}

/// Anyone who reaches a server without a login can read and change everything in it.
fn open_to_others(address: &str, greeting: &Greeting) -> Check {
    const NAME: &str = "nats.exposure";
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_matches(['[', ']']);
    let loopback =
        host == "localhost" || host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let fix = "create a cluster with logins and TLS: `clawnode cluster init`";
    match (greeting.auth_required, greeting.tls_required) {
        (true, true) => Check::green(NAME, format!("`{address}` requires a login, over TLS")),
        _ if loopback => {
            Check::green(NAME, format!("`{address}` can be reached from this host only"))
        }
        (false, _) => {
            let found = format!(
                "`{address}` requires no login: anyone who reaches it can change everything"
            );
            Check::yellow(NAME, found, fix)
        }
        (true, false) => {
            let found =
                format!("`{address}` has no TLS: others on the network can read everything");
            Check::yellow(NAME, found, fix)
        }
    }
}

/// `host:port` of an address, without what may be secret.
fn address_of(server: &str) -> Option<String> {
    let (_, rest) = server.split_once("://")?;
    let authority = rest.split(['/', '?']).next()?;
    let host = authority.rsplit('@').next().filter(|host| !host.is_empty())?;
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let is_ip = host.parse::<SocketAddr>().is_ok();
    Some(if has_port || is_ip { host.to_owned() } else { format!("{host}:{NATS_PORT}") })
}

async fn greet(address: &str) -> std::io::Result<Greeting> {
    let stream = TcpStream::connect(address).await?;
    let mut line = String::new();
    BufReader::new(stream.take(GREETING_BYTES)).read_line(&mut line).await?;
    let greeting = line.strip_prefix("INFO ").map(serde_json::from_str::<Greeting>);
    match greeting {
        Some(Ok(greeting)) => Ok(greeting),
        _ => Err(std::io::Error::other("the server is not a NATS server")),
    }
}

/// The numbers of `2.15.1` or `2.16.0-RC.1`.
fn number(version: &str) -> Option<(u32, u32, u32)> {
    let mut parts = version.split('-').next()?.splitn(3, '.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt, net::TcpListener};

    use super::{super::CheckStatus, *};

    /// A server that says `greeting` to the first who connects.
    async fn server(greeting: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(greeting.as_bytes()).await.unwrap();
        });
        format!("nats://ada:hunter2@{address}")
    }

    #[tokio::test]
    async fn a_nats_server_is_known_by_its_greeting() {
        for (greeting, verdict) in [
            ("INFO {\"version\":\"2.15.1\",\"jetstream\":true}\r\n", CheckStatus::Green),
            ("INFO {\"version\":\"2.15.0\",\"jetstream\":true}\r\n", CheckStatus::Red),
            ("INFO {\"version\":\"2.15.1\"}\r\n", CheckStatus::Red),
            ("INFO {\"version\":\"2.9.0\",\"jetstream\":true}\r\n", CheckStatus::Red),
            ("SSH-2.0\r\n", CheckStatus::Red),
            ("", CheckStatus::Red),
        ] {
            let checks = server_checks(&server(greeting).await).await;
            let check = &checks[0];
            assert_eq!(check.verdict, verdict, "{greeting}: {}", check.found);
            assert!(!check.found.contains("hunter2"), "{}", check.found);
        }
    }

    #[test]
    fn a_bus_that_is_open_to_others_is_yellow() {
        for (address, auth_required, tls_required, verdict) in [
            ("127.0.0.1:4222", false, false, CheckStatus::Green),
            ("[::1]:4222", false, false, CheckStatus::Green),
            ("localhost:4222", false, false, CheckStatus::Green),
            ("10.0.0.1:4222", false, false, CheckStatus::Yellow),
            ("10.0.0.1:4222", false, true, CheckStatus::Yellow),
            ("bus.lan:4222", true, false, CheckStatus::Yellow),
            ("bus.lan:4222", true, true, CheckStatus::Green),
        ] {
            let greeting =
                Greeting { version: String::new(), jetstream: true, auth_required, tls_required };
            assert_eq!(open_to_others(address, &greeting).verdict, verdict, "{address}");
        }
    }

    #[test]
    fn an_address_has_the_usual_port_and_no_password() {
        for (server, address) in [
            ("nats://one", Some("one:4222")),
            ("nats://ada:pw@one:4333/x", Some("one:4333")),
            ("tls://[::1]:4222", Some("[::1]:4222")),
            ("nats://", None),
        ] {
            assert_eq!(address_of(server).as_deref(), address, "{server}");
        }
    }
}
