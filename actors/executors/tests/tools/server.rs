//! A web server on one address, which remembers who came.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// A request as it came in.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// What is answered: all bytes; after them the connection is closed, unless more is never to come.
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) then: Then,
}

pub(crate) enum Then {
    Close,
    /// The same bytes, for as long as the client reads them.
    Forever(Vec<u8>),
    /// Silence.
    Hang,
}

type Script = dyn Fn(&Seen) -> Answer + Send + Sync;

/// The server; it ends when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    _accepting: JoinSet<()>,
}

impl Server {
    /// Listens on this address; port 0 is any.
    pub(crate) async fn start(
        address: IpAddr,
        port: u16,
        script: impl Fn(&Seen) -> Answer + Send + Sync + 'static,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind((address, port)).await?;
        let address = listener.local_addr()?;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, Arc::clone(&seen), Arc::new(script)));
        Ok(Self { address, seen, _accepting: accepting })
    }

    /// All connections so far; those that said nothing are included once they have ended.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn accept(listener: TcpListener, seen: Arc<Mutex<Vec<Seen>>>, script: Arc<Script>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let at = {
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.push(Seen::default());
            seen.len() - 1
        };
        let (seen, script) = (Arc::clone(&seen), Arc::clone(&script));
        connections.spawn(async move {
            // A client that goes away early is none of the server's business.
            answer(stream, at, &seen, &script).await.unwrap_or_default();
        });
    }
}

async fn answer(
    mut stream: TcpStream,
    at: usize,
    seen: &Mutex<Vec<Seen>>,
    script: &Arc<Script>,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
    }
    let mut request = parse(&String::from_utf8_lossy(&head));
    let length = request.headers.get("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0_u8; length.unwrap_or(0)];
    stream.read_exact(&mut body).await?;
    request.body = String::from_utf8_lossy(&body).into_owned();
    let answer = script(&request);
    if let Some(entry) = seen.lock().unwrap_or_else(PoisonError::into_inner).get_mut(at) {
        *entry = request;
    }
    stream.write_all(&answer.bytes).await?;
    match answer.then {
        Then::Close => stream.shutdown().await,
        Then::Hang => {
            // Until the client has gone.
            stream.read_u8().await.map(drop)
        }
        Then::Forever(bytes) => loop {
            stream.write_all(&bytes).await?;
        },
    }
}

fn parse(head: &str) -> Seen {
    let mut lines = head.lines();
    let path = lines.next().and_then(|line| line.split(' ').nth(1)).unwrap_or_default().to_owned();
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        Some((name.trim().to_lowercase(), value.trim().to_owned()))
    };
    Seen { path, headers: lines.filter_map(header).collect(), body: String::new() }
}

impl Answer {
    /// 200 with this text.
    pub(crate) fn ok(text: &str) -> Self {
        Self::with("200 OK", "content-type: text/plain\r\n", text.as_bytes())
    }

    /// A redirect to there.
    pub(crate) fn to(location: &str) -> Self {
        Self::with("302 Found", &format!("location: {location}\r\n"), b"moved")
    }

    pub(crate) fn with(status: &str, headers: &str, body: &[u8]) -> Self {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n"
        );
        Self { bytes: [head.as_bytes(), body].concat(), then: Then::Close }
    }
}
