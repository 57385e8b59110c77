//! The way to the server: TLS, the key, and waits after failures.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clawnode_cluster::Backoff;
use clawnode_memory::store::{MemoryStoreError, StoreAway};
use qdrant_client::qdrant::{
    collections_client::CollectionsClient, points_client::PointsClient,
    qdrant_client::QdrantClient as HealthClient,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::{Instant, timeout};
use tonic::{
    Code, Request, Response, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint},
};

/// To connect.
const CONNECT: Duration = Duration::from_secs(2);
/// For an answer. Searches in turns give up long before.
const ANSWER: Duration = Duration::from_secs(10);
/// How often an idle connection is tested.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The first and the longest wait after a failure. Until it is over, calls fail at once.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));
/// Bytes of an answer: what the store asks for at once is far below.
const ANSWER_BYTES: usize = 64 << 20;
/// Characters of an answer of the server that are repeated.
const DETAIL_CHARS: usize = 300;

/// Where the server is, and how it is used.
#[derive(Clone, Debug)]
pub struct QdrantOptions {
    /// Its gRPC interface, such as `http://127.0.0.1:6334`; `https://` for TLS.
    pub url: String,
    /// Its API key.
    pub api_key: Option<SecretString>,
    /// Authorities for TLS, as PEM; without them, those of the system.
    pub ca: Option<Vec<u8>>,
    /// What the names of the collections begin with.
    pub prefix: String,
}

/// Puts the key into each request.
#[derive(Clone)]
pub(crate) struct KeyHeader(Option<MetadataValue<Ascii>>);

/// The way of all requests.
type Way = InterceptedService<Channel, KeyHeader>;

/// A connection, which is made when it is used and made again when it is lost. Its clones are one connection.
#[derive(Clone, Debug)]
pub(crate) struct QdrantConnection {
    channel: Channel,
    key: KeyHeader,
    pub(crate) url: String,
    shared: Arc<ConnectionState>,
}

#[derive(Debug)]
struct ConnectionState {
    gate: Mutex<Gate>,
    /// Whether the collections are known to be there and to fit.
    is_set_up: AtomicBool,
}

/// Lets nothing through for a while after a failure.
#[derive(Debug)]
struct Gate {
    backoff: Backoff,
    until: Option<Instant>,
    fault: Option<ServerFault>,
}

/// How the server failed last.
#[derive(Clone, Debug)]
pub(crate) enum ServerFault {
    /// It cannot be reached, or does not do what it is asked.
    Away(String),
    /// It cannot be used as it is.
    Unfit(String),
}

// === impl KeyHeader ===

impl Interceptor for KeyHeader {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(key) = &self.0 {
            request.metadata_mut().insert("api-key", key.clone());
        }
        Ok(request)
    }
}

impl std::fmt::Debug for KeyHeader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("KeyHeader")
    }
}

// === impl ServerFault ===

impl ServerFault {
    fn error(self, url: &str) -> MemoryStoreError {
        let url = url.to_owned();
        match self {
            Self::Away(detail) => MemoryStoreError::Away { url, detail },
            Self::Unfit(detail) => MemoryStoreError::Unfit { url, detail },
        }
    }
}

// === impl QdrantConnection ===

impl QdrantConnection {
    /// Refuses an address, a key or authorities that cannot be used. Nothing is sent yet.
    pub(crate) fn new(options: &QdrantOptions) -> Result<Self, MemoryStoreError> {
        let url = options.url.clone();
        let unfit = |detail: String| ServerFault::Unfit(detail).error(&url);
        let endpoint = Endpoint::from_shared(options.url.clone())
            .map_err(|error| unfit(format!("its address cannot be read: {error}")))?
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(CONNECT);
        let endpoint = if options.url.starts_with("https:") {
            let tls = match &options.ca {
                Some(pem) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(pem)),
                None => ClientTlsConfig::new().with_native_roots(),
            };
            let endpoint = endpoint.tls_config(tls);
            endpoint.map_err(|error| unfit(format!("TLS cannot be used: {}", chain(&error))))?
        } else {
            endpoint
        };
        let key = options.api_key.as_ref().map(|key| key.expose_secret().parse());
        let mut key: Option<MetadataValue<Ascii>> = key
            .transpose()
            .map_err(|_unreadable| unfit("its key has characters that no key has".to_owned()))?;
        if let Some(key) = &mut key {
            key.set_sensitive(true);
        }
        let gate = Gate { backoff: Backoff::new(AGAIN.0, AGAIN.1), until: None, fault: None };
        let shared = ConnectionState { gate: Mutex::new(gate), is_set_up: AtomicBool::new(false) };
        Ok(Self {
            channel: endpoint.connect_lazy(),
            key: KeyHeader(key),
            url,
            shared: Arc::new(shared),
        })
    }

    pub(crate) fn points(&self) -> PointsClient<Way> {
        PointsClient::with_interceptor(self.channel.clone(), self.key.clone())
            .max_decoding_message_size(ANSWER_BYTES)
    }

    pub(crate) fn collections(&self) -> CollectionsClient<Way> {
        CollectionsClient::with_interceptor(self.channel.clone(), self.key.clone())
            .max_decoding_message_size(ANSWER_BYTES)
    }

    pub(crate) fn health(&self) -> HealthClient<Way> {
        HealthClient::with_interceptor(self.channel.clone(), self.key.clone())
    }

    /// Waits for an answer. After a failure, the next calls fail at once for a while.
    pub(crate) async fn ask<T>(
        &self,
        request: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, MemoryStoreError> {
        self.open()?;
        match self.ask_plainly(request).await {
            Ok(answer) => Ok(answer),
            Err(status) => Err(self.failed(ServerFault::Away(said(&status)))),
        }
    }

    /// The same, for a caller that looks at what the server says. Its failure is no failure of the connection yet.
    pub(crate) async fn ask_plainly<T>(
        &self,
        request: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Status> {
        let answered = timeout(ANSWER, request).await;
        let answer = answered
            .unwrap_or_else(|_elapsed| Err(Status::deadline_exceeded("there is no answer")))?;
        Ok(answer.into_inner())
    }

    /// Fails if the last failure was just now.
    pub(crate) fn open(&self) -> Result<(), MemoryStoreError> {
        let gate = self.gate();
        let is_shut = gate.until.is_some_and(|until| Instant::now() < until);
        match &gate.fault {
            Some(fault) if is_shut => Err(fault.clone().error(&self.url)),
            _ => Ok(()),
        }
    }

    /// Remembers a failure: for a while, nothing is asked. After that, the collections are looked at again, because the
    /// server may be another one then.
    pub(crate) fn failed(&self, fault: ServerFault) -> MemoryStoreError {
        self.shared.is_set_up.store(false, Ordering::SeqCst);
        let mut gate = self.gate();
        // Calls that were on their way together are one failure.
        if gate.until.is_none_or(|until| until <= Instant::now()) {
            let wait = gate.backoff.next(&mut rand::rng());
            gate.until = Some(Instant::now() + wait);
        }
        gate.fault = Some(fault.clone());
        fault.error(&self.url)
    }

    pub(crate) fn is_set_up(&self) -> bool {
        self.shared.is_set_up.load(Ordering::SeqCst)
    }

    /// The server is there and fits.
    pub(crate) fn works(&self) {
        let mut gate = self.gate();
        *gate = Gate { backoff: Backoff::new(AGAIN.0, AGAIN.1), until: None, fault: None };
        self.shared.is_set_up.store(true, Ordering::SeqCst);
    }

    /// How it failed, if it does not work since, and what to do.
    pub(crate) fn away(&self) -> Option<StoreAway> {
        let (fault, url) = (self.gate().fault.clone()?, &self.url);
        let (what, hint) = match fault {
            ServerFault::Away(detail) => (
                format!("cannot use Qdrant at `{url}`: {detail}"),
                "start it, or correct `[memory.qdrant]`; agents go on without what they remember, and clawnode fills in later what is missed",
            ),
            ServerFault::Unfit(detail) => (
                format!("cannot use Qdrant at `{url}`: {detail}"),
                "agents go on without what they remember until this is changed",
            ),
        };
        Some(StoreAway { what, hint: hint.to_owned() })
    }

    fn gate(&self) -> MutexGuard<'_, Gate> {
        self.shared.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a failed request says, for people.
pub(crate) fn said(status: &Status) -> String {
    let message: String = status.message().chars().take(DETAIL_CHARS).collect();
    let cause = std::error::Error::source(status).map(chain);
    match (status.code(), cause) {
        (Code::Unauthenticated | Code::PermissionDenied, _) => {
            format!("the server refuses the key ({message})")
        }
        (Code::DeadlineExceeded, _) => format!("there is no answer within {} s", ANSWER.as_secs()),
        (_, Some(cause)) => cause,
        (code, None) => format!("{message} ({code:?})"),
    }
}

/// An error with its causes.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let further = error.to_string();
        if !text.contains(&further) {
            text = format!("{text}: {further}");
        }
        cause = error.source();
    }
    text.chars().take(DETAIL_CHARS).collect()
}
