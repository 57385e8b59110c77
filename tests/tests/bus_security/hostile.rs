//! Servers that are old, or mean harm: whatever they say, the node ends with an error that names
//! them, in bounded time. What panics in the client's own tasks goes no further.

use std::{sync::Arc, time::Duration};

use clawnode_cluster::Lost;
use clawnode_nats::{ConnectError, NatsOptions, connect};
use clawnode_tests::{
    nats::{NatsServer, ServerOptions},
    process::{Home, TestBackend},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::timeout,
};

use crate::support::{PATIENCE, Result, refused};

/// How long one attempt may take; its own timeouts are far below.
const BOUND: Duration = Duration::from_secs(30);

/// A server that sends `greeting` to each client, and answers each `PING` with a `PONG` and `then`.
async fn play(greeting: Vec<u8>, then: Vec<u8>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("nats://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (greeting, then) = (greeting.clone(), then.clone());
            tokio::spawn(async move {
                let (read, mut write) = stream.into_split();
                write.write_all(&greeting).await?;
                let mut lines = BufReader::new(read).split(b'\n');
                while let Some(line) = lines.next_segment().await? {
                    if line.starts_with(b"PING") {
                        write.write_all(b"PONG\r\n").await?;
                        write.write_all(&then).await?;
                    }
                }
                std::io::Result::Ok(())
            });
        }
    });
    Ok(url)
}

async fn met(url: String) -> Result<ConnectError> {
    met_within(Duration::from_secs(1), url).await
}

async fn met_within(time: Duration, url: String) -> Result<ConnectError> {
    let options = NatsOptions {
        connect_timeout: time,
        ready_timeout: time,
        request_timeout: Duration::from_millis(200),
        ..NatsOptions::new([url])
    };
    Ok(timeout(BOUND, connect(options)).await?.err().ok_or("connected")?)
}

fn info(fields: &str) -> Vec<u8> {
    format!("INFO {{{fields}}}\r\n").into_bytes()
}

const GOOD: &str =
    r#""server_id":"x","version":"2.15.1","max_payload":1048576,"headers":true,"jetstream":true"#;

#[tokio::test]
async fn an_old_nats_is_refused_with_the_version_that_is_needed() -> Result {
    for version in
        ["2.15.0", "2.9.25", "1.4.1", "", "2.15", "99999999999999999999.1.1", "\\u001b[31m"]
    {
        let url =
            play(info(&format!(r#""version":"{version}","max_payload":1048576"#)), Vec::new());
        // It is refused as soon as it has said its version, whenever that is.
        let error = met_within(BOUND / 2, url.await?).await?;
        assert!(matches!(error, ConnectError::TooOld { .. }), "{version}: {error}");
        assert!(error.to_string().contains("2.15.1 or newer"), "{error}");
        assert!(!error.to_string().contains('\u{1b}'), "{error}");
    }
    let url = play(info(r#""version":"2.15.0","max_payload":1048576"#), Vec::new()).await?;
    let home = Home::new(TestBackend::Nats { url, prefix: "cn".to_owned() })?;
    let ended = refused(&home, "worker").await?;
    assert!(ended.code == 78 && ended.err.contains("2.15.1 or newer"), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn a_hostile_nats_peer_ends_in_an_error() -> Result {
    let greetings: Vec<Vec<u8>> = vec![
        Vec::new(),
        b"\r\n".to_vec(),
        b"INFO\r\n".to_vec(),
        b"INFO {}\r\n".to_vec(),
        b"INFO {\r\n".to_vec(),
        b"INFO []\r\n".to_vec(),
        b"INFO {\"version\":7,\"max_payload\":-1}\r\n".to_vec(),
        b"INFO \xff\xfe\x00\r\n".to_vec(),
        b"SSH-2.0-OpenSSH\r\n".to_vec(),
        b"-ERR 'go away'\r\n".to_vec(),
        b"-ERR\r\n".to_vec(),
        b"PING\r\n".to_vec(),
        b"MSG a 1 99999999999999999999\r\n".to_vec(),
        info(
            r#""version":"2.15.1","max_payload":18446744073709551615,"connect_urls":["::::","","a b","nats://[::"]"#,
        ),
        info(&format!(r#"{GOOD},"tls_required":true"#)),
        info(&format!(r#"{GOOD},"auth_required":true,"nonce":"{}""#, "n".repeat(100_000))),
        vec![b'x'; 1 << 20],
    ];
    for greeting in greetings {
        let shown = String::from_utf8_lossy(&greeting[..greeting.len().min(80)]).into_owned();
        let error = met(play(greeting, Vec::new()).await?).await?;
        assert!(error.to_string().contains("127.0.0.1"), "{shown}: {error}");
    }
    let after: Vec<&[u8]> = vec![
        b"garbage\r\n",
        b"MSG\r\n",
        b"MSG a\r\n",
        b"MSG a 1 67108864\r\nshort",
        b"MSG a 1 -1\r\n",
        b"MSG a 99999999999999999999 1\r\nx\r\n",
        b"MSG \xff\xff 1 1\r\nx\r\n",
        b"HMSG a 1 12 12\r\nNATS/1.0\r\n\r\n\r\n",
        b"HMSG a 1 4 2\r\nxx\r\n",
        b"HMSG a 1 99999999 99999999\r\n",
        b"HMSG a 1 20 20\r\nNATS/1.0 \xff\r\nA\rB:c\r\n\r\n",
        b"HMSG a 1 13 13\r\nNATS/9.9 abc\r\n",
        b"INFO {\"connect_urls\":[\"::::\"]}\r\n",
        b"INFO {bad\r\n",
        b"-ERR\r\n",
        b"-ERR 'Permissions Violation for Publish to'\r\n",
        b"-ERR 'authorization violation'\r\n",
        b"+OK\r\n+OK\r\nPING\r\nPONG\r\nPONG\r\n",
        b"\x00\x01\x02\xff\r\n\r\n\r\n",
    ];
    for then in after {
        let shown = String::from_utf8_lossy(then).into_owned();
        let error = met(play(info(GOOD), then.to_vec()).await?).await?;
        assert!(error.to_string().contains("127.0.0.1"), "{shown}: {error}");
    }
    Ok(())
}

/// A relay before a real server that sends a message of its own to all clients, when notified.
async fn relay(server: String, poison: Arc<Notify>) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("nats://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let (server, poison) = (server.clone(), Arc::clone(&poison));
            tokio::spawn(async move {
                let mut far = TcpStream::connect(server).await?;
                tokio::select! {
                    ended = tokio::io::copy_bidirectional(&mut near, &mut far) => ended.map(drop),
                    () = poison.notified() => near.write_all(b"-ERR\r\n").await,
                }
            });
        }
    });
    Ok(url)
}

#[tokio::test]
async fn a_client_that_nats_has_broken_ends_the_node() -> Result {
    let server = NatsServer::start(ServerOptions::default()).await?;
    let poison = Arc::new(Notify::new());
    let address = server.url().replace("nats://", "");
    let url = relay(address, Arc::clone(&poison)).await?;
    let options = NatsOptions { partitions: Some(1), ..NatsOptions::new([url]) };
    let storage = connect(options).await?;
    poison.notify_waiters();
    let lost = timeout(PATIENCE, storage.health.lost()).await?;
    assert!(matches!(lost, Lost::Broken(_)), "{lost:?}");
    Ok(())
}
