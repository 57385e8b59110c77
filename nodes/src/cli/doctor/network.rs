//! The checks that look at the network: our port, and the NATS servers.

use std::{net::SocketAddr, time::Duration};

use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use super::Check;
use crate::{cli::context::Context, config::ServerUrl};

/// How long a NATS server may take to greet.
const NATS_TIMEOUT: Duration = Duration::from_secs(3);
/// Most bytes of a greeting.
const GREETING_BYTES: u64 = 64 << 10;
/// NATS's own port.
const NATS_PORT: u16 = 4222;
/// The oldest NATS that has what we use (message schedules).
const NATS_NEEDED: (u32, u32) = (2, 12);

/// Whether we can listen where we should.
pub(super) async fn listen(context: &Context) -> Check {
    const NAME: &str = "gateway.port";
    let listen = context.loaded.config.gateway.listen;
    match context.running().await {
        Ok(Some(client)) => {
            return Check::green(NAME, format!("our node runs at `{}`", client.url()));
        }
        Err(failure) => {
            let fix = failure.hint.unwrap_or_else(|| "look at the node's log".to_owned());
            return Check::red(NAME, failure.message, &fix);
        }
        Ok(None) => {}
    }
    match TcpListener::bind(listen).await {
        Ok(_) => Check::green(NAME, format!("`{listen}` is free")),
        Err(error) => {
            let found = format!("cannot listen on `{listen}`: {error}");
            Check::red(NAME, found, "stop what listens there, or choose another with `--listen`")
        }
    }
}

/// What a NATS server says of itself when somebody connects.
#[derive(Deserialize)]
struct Greeting {
    #[serde(default)]
    version: String,
    #[serde(default)]
    jetstream: bool,
}

/// One check a NATS server.
pub(super) async fn nats(servers: &ServerUrl) -> Vec<Check> {
    let mut checks = Vec::new();
    for server in servers.each() {
        checks.push(nats_server(server).await);
    }
    checks
}

async fn nats_server(server: &str) -> Check {
    const NAME: &str = "nats.reachable";
    let fix = "start the server, or correct `--nats`";
    let Some(address) = address_of(server) else {
        return Check::red(NAME, "an address without a host", fix);
    };
    let greeting = match timeout(NATS_TIMEOUT, greet(&address)).await {
        Ok(Ok(greeting)) => greeting,
        Ok(Err(error)) => return Check::red(NAME, format!("`{address}`: {error}"), fix),
        Err(_elapsed) => {
            let found = format!("`{address}` did not greet within {} s", NATS_TIMEOUT.as_secs());
            return Check::red(NAME, found, fix);
        }
    };
    let version = &greeting.version;
    if !greeting.jetstream {
        let found = format!("`{address}` (NATS {version}) has no JetStream");
        return Check::red(NAME, found, "start the server with `-js`");
    }
    if number(version).is_some_and(|it| it < NATS_NEEDED) {
        let found = format!("`{address}` is NATS {version}, too old");
        return Check::red(NAME, found, "use NATS 2.12 or newer; 2.15 is what is tested");
    }
    Check::green(NAME, format!("`{address}` is NATS {version}"))
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
        _ => Err(std::io::Error::other("what listens there is not NATS")),
    }
}

/// `2.15` of `2.15.1`.
fn number(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::{super::Verdict, *};

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
            ("INFO {\"version\":\"2.15.1\",\"jetstream\":true}\r\n", Verdict::Green),
            ("INFO {\"version\":\"2.15.1\"}\r\n", Verdict::Red),
            ("INFO {\"version\":\"2.9.0\",\"jetstream\":true}\r\n", Verdict::Red),
            ("SSH-2.0\r\n", Verdict::Red),
            ("", Verdict::Red),
        ] {
            let check = nats_server(&server(greeting).await).await;
            assert_eq!(check.verdict, verdict, "{greeting}: {}", check.found);
            assert!(!check.found.contains("hunter2"), "{}", check.found);
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
