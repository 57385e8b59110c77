//! What servers tell of connections and of each other.

use clawnode_tests::{
    nats::{NatsCluster, NatsServer, ServerOptions},
    wait::until,
};
use futures_util::StreamExt;
use serde_json::Value;

use crate::peer::{PATIENCE, Peer, Result};

/// The events that membership relies on if it has a system account (`cluster/nats/src/disconnects.rs`).
#[tokio::test]
async fn the_system_account_hears_whose_connection_has_ended() -> Result {
    let extra = "system_account: SYS\nno_auth_user: me\naccounts {\n  \
                 SYS { users: [{ user: sys, password: sys }] }\n  \
                 A { jetstream: enabled, users: [{ user: me, password: me }] }\n}"
        .to_owned();
    let server = NatsServer::start(ServerOptions { extra, ..ServerOptions::default() }).await?;
    let sys = async_nats::ConnectOptions::with_user_and_password("sys".into(), "sys".into());
    let sys = sys.connect(server.url()).await?;
    let mut partings = sys.subscribe("$SYS.ACCOUNT.*.DISCONNECT").await?;
    Peer { client: sys.clone() }.settle().await?;
    let named = async_nats::ConnectOptions::new().name("proc_7").connect(server.url()).await?;
    Peer { client: named.clone() }.settle().await?;
    named.drain().await?;
    let event = tokio::time::timeout(PATIENCE, partings.next()).await?.ok_or("no event")?;
    let event: Value = serde_json::from_slice(&event.payload)?;
    assert_eq!(event["client"]["name"], "proc_7", "{event}");
    assert_eq!(event["reason"], "Client Closed", "{event}");
    Ok(())
}

/// Servers tell their clients which servers there are; the client library takes it only when it
/// connects. So membership does not know by it whether a server has gone, and asks who is
/// connected to it instead (`cluster/src/membership/mod.rs`).
#[tokio::test]
async fn servers_tell_who_is_left_and_the_client_library_keeps_it_to_itself() -> Result {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    let mut cluster = NatsCluster::start(3, ServerOptions::default()).await?;
    let url = cluster.urls()[0].clone();
    // The third server may be known a moment after the cluster is there.
    let whole = async || {
        let client = async_nats::connect(&url).await.unwrap();
        Ok((client.server_info().connect_urls.len() == 3).then_some(client))
    };
    let client = until("a server that knows all three", whole).await?;
    // The same server, spoken to without the library.
    let socket = tokio::net::TcpStream::connect(url.trim_start_matches("nats://")).await?;
    let mut raw = BufReader::new(socket);
    raw.write_all(b"CONNECT {\"verbose\":false,\"protocol\":1}\r\nPING\r\n").await?;
    let known = client.server_info().connect_urls;
    let mut killed = false;
    loop {
        let mut line = String::new();
        tokio::time::timeout(PATIENCE, raw.read_line(&mut line)).await??;
        if line.starts_with("PING") {
            raw.write_all(b"PONG\r\n").await?;
        }
        if line.starts_with("PONG") && !killed {
            killed = true;
            cluster.server(2)?.kill()?;
        }
        let Some(info) = line.strip_prefix("INFO ") else { continue };
        let info: Value = serde_json::from_str(info)?;
        if killed && info["connect_urls"].as_array().is_some_and(|urls| urls.len() == 2) {
            break;
        }
    }
    // The library has the same word by now: what its server sends comes in order.
    Peer { client: client.clone() }.settle().await?;
    assert_eq!(client.server_info().connect_urls, known, "the library tells by now: use it");
    Ok(())
}
