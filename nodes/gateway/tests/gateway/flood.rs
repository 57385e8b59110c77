//! Connections that never show the token keep no client out.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, SocketAddr},
    num::NonZeroUsize,
    os::unix::net::UnixStream,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use super::harness::{Gateway, PATIENCE, TOKEN, patiently};

/// Far more than the gateway takes.
const FLOOD: usize = 60;

async fn small() -> Gateway {
    Gateway::start_with(|options| {
        options.connections = NonZeroUsize::new(16).unwrap();
        options.unauthenticated = NonZeroUsize::new(4).unwrap();
        // No help from here: who is closed is closed to make room.
        options.auth_deadline = PATIENCE * 10;
    })
    .await
}

/// A connection from this address that begins a request and never ends it.
async fn half_open(from: &str, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::new(from.parse::<IpAddr>().unwrap(), 0)).unwrap();
    let mut stream = patiently("a connection is taken", socket.connect(to)).await.unwrap();
    stream.write_all(b"POST /v1/rpc HTTP/1.1\r\nHost: ").await.unwrap();
    stream
}

/// Waits until the gateway has closed it.
async fn closed(stream: &mut TcpStream) {
    let read = patiently("it is closed", stream.read(&mut [0; 64])).await;
    assert!(
        matches!(read, Ok(0))
            || read.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
    );
}

/// The value of a metric.
async fn metric(gateway: &Gateway, name: &str) -> u64 {
    let text =
        gateway.get("/metrics").bearer_auth(TOKEN).send().await.unwrap().text().await.unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    line.rsplit(' ').next().unwrap().parse().unwrap()
}

#[tokio::test]
async fn half_open_connections_make_room_for_clients() {
    let gateway = small().await;
    let mut client = gateway.connect().await;
    let mut flood = Vec::new();
    for _ in 0..FLOOD {
        flood.push(half_open("127.0.0.1", gateway.serving.addr).await);
    }
    // New clients get in, and those that were in stay.
    for _ in 0..5 {
        assert_eq!(gateway.rpc("ping", json!({})).await["error"], Value::Null);
    }
    client.call(1, "ping", json!({})).await;
    assert_eq!(client.frame().await["error"], Value::Null);
    for stream in &mut flood[..FLOOD - 4] {
        closed(stream).await;
    }
    assert!(metric(&gateway, "clawnode_gateway_evicted_total").await >= FLOOD as u64 - 4);
    drop(flood);
    gateway.stop().await;
}

#[tokio::test]
async fn a_flood_from_one_address_costs_another_nothing() {
    let gateway = small().await;
    let mut quiet = half_open("127.0.0.1", gateway.serving.addr).await;
    let mut flood = Vec::new();
    for _ in 0..FLOOD {
        flood.push(half_open("127.0.0.2", gateway.serving.addr).await);
    }
    for stream in &mut flood[..FLOOD - 4] {
        closed(stream).await;
    }
    // It goes on where it was.
    let host = gateway.serving.addr;
    let body = r#"{"id":1,"method":"ping","params":{}}"#;
    let rest = format!(
        "{host}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    quiet.write_all(rest.as_bytes()).await.unwrap();
    let mut answer = vec![0; 4_096];
    let read = patiently("an answer", quiet.read(&mut answer)).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop((quiet, flood));
    gateway.stop().await;
}

#[tokio::test]
async fn a_socket_that_owes_its_token_makes_room_too() {
    let gateway = small().await;
    let mut silent = Vec::new();
    for _ in 0..8 {
        silent.push(gateway.connect_with(&[]).await.unwrap());
    }
    let close = silent[0].close_code().await;
    assert_eq!(close, 1013, "try again later");
    assert_eq!(gateway.rpc("ping", json!({})).await["error"], Value::Null);
    drop(silent);
    gateway.stop().await;
}

#[tokio::test]
async fn the_socket_file_answers_while_no_connection_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("gateway.sock");
    let options_path = path.clone();
    let gateway = Gateway::start_with(|options| {
        options.connections = NonZeroUsize::new(2).unwrap();
        options.unauthenticated = NonZeroUsize::MIN;
        options.socket = Some(options_path);
    })
    .await;
    // All that the network may have: one with the token, and any others, which never show it.
    let client = gateway.connect().await;
    let half = half_open("127.0.0.1", gateway.serving.addr).await;
    let port = gateway.serving.addr.port();
    let ask = |token: &str| {
        let (token, path) = (token.to_owned(), path.clone());
        tokio::task::spawn_blocking(move || {
            let body = r#"{"id":1,"method":"ping","params":{}}"#;
            let mut stream = UnixStream::connect(path).unwrap();
            write!(
                stream,
                "POST /v1/rpc HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                body.len()
            )
            .unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        })
    };
    let answer = patiently("an answer", ask(TOKEN)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let refused = patiently("an answer", ask("wrong")).await.unwrap();
    assert!(refused.starts_with("HTTP/1.1 401"), "the socket file asks for the token: {refused}");
    // A gateway that stops waits ten seconds for the rest of the request.
    drop((client, half));
    gateway.stop().await;
}

/// What comes back over one connection for these bytes, until it is closed.
async fn all_of(gateway: &Gateway, bytes: &str) -> String {
    let mut stream = TcpStream::connect(gateway.serving.addr).await.unwrap();
    // It may be closed while the rest is still being written.
    drop(stream.write_all(bytes.as_bytes()).await);
    let mut answer = Vec::new();
    let mut part = [0; 4_096];
    while let Ok(read @ 1..) = patiently("the answer", stream.read(&mut part)).await {
        answer.extend_from_slice(&part[..read]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn bodies_that_two_servers_may_read_differently_are_refused() {
    let gateway = Gateway::start().await;
    let host = gateway.serving.addr;
    let head = format!(
        "POST /v1/rpc HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Type: application/json\r\n"
    );
    let body = "2\r\n{}\r\n0\r\n\r\n";
    for encoding in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: identity\r\n",
    ] {
        let answer =
            all_of(&gateway, &format!("{head}{encoding}Connection: close\r\n\r\n{body}")).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{encoding}: {answer}");
    }
    // Both lengths: `Content-Length` counts for nothing, and nothing that follows is a request.
    for lengths in [
        "Content-Length: 12\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 12\r\n",
    ] {
        let smuggled = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = all_of(&gateway, &format!("{head}{lengths}\r\n{body}{smuggled}")).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{lengths}: {answer}");
    }
    gateway.stop().await;
}

#[tokio::test]
async fn a_head_has_a_bound_however_it_arrives() {
    let gateway = Gateway::start().await;
    let long = "x".repeat(100 << 10);
    let head = format!(
        "GET /healthz HTTP/1.1\r\nHost: {}\r\nX-Long: {long}\r\nConnection: close\r\n\r\n",
        gateway.serving.addr
    );
    let answer = all_of(&gateway, &head).await;
    let status = answer.split(' ').nth(1).unwrap_or_default();
    assert!(["400", "431"].contains(&status), "{answer}");
    gateway.stop().await;
}
