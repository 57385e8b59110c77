//! The server's monitoring pages.

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// Reads a page that is JSON; an error is text.
pub(super) async fn page(port: u16, path: &str) -> Result<Value, String> {
    let mut stream =
        TcpStream::connect(("127.0.0.1", port)).await.map_err(|error| error.to_string())?;
    let request = format!("GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(|error| error.to_string())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.map_err(|error| error.to_string())?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no HTTP answer")?;
    serde_json::from_str(body).map_err(|error| {
        format!("{error} in `{body}` after `{}`", head.lines().next().unwrap_or_default())
    })
}
