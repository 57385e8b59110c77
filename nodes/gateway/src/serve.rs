//! The listeners: accept a bounded number of connections, and stop without cutting anybody off.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use axum::Router;
use futures_util::future::BoxFuture;
use tokio::{
    net::{TcpListener, TcpStream, UnixListener},
    sync::Semaphore,
    task::JoinHandle,
};
use tokio_util::{
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use super::{
    auth::Auth,
    backend::Backend,
    connection::{Connection, http},
    connections::{ConnectionSlot, Connections},
    gateway::Gateway,
    local_socket,
    metrics::Metrics,
    openai::Repeats,
    options::{GatewayOptions, ServeError},
    origin::AllowedNames,
    routes,
    session_files::UPLOADS,
};

/// How long to wait when the system has no more file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// How long connections may take to end once they are cut off (5 s).
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// A gateway that serves.
#[derive(Debug)]
pub struct Serving {
    /// Where, with the port that was really taken.
    pub addr: SocketAddr,
    /// `http://…` or `https://…`, as a client on this machine writes it.
    pub url: String,
    /// The socket file that it serves on besides, if it has one.
    pub socket: Option<PathBuf>,
    task: JoinHandle<()>,
    clients: Clients,
    /// Dropping `Serving` cuts everything off.
    _guard: DropGuard,
}

/// How many clients are connected. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Clients(Connections);

/// Listens, and serves until `shutdown`; then lets open streams end, for `options.drain` at most.
///
/// Boxed, so that only this crate compiles what it runs.
pub fn serve(
    options: GatewayOptions,
    backend: Arc<dyn Backend>,
    shutdown: CancellationToken,
) -> BoxFuture<'static, Result<Serving, ServeError>> {
    Box::pin(start(options, backend, shutdown))
}

async fn start(
    options: GatewayOptions,
    backend: Arc<dyn Backend>,
    shutdown: CancellationToken,
) -> Result<Serving, ServeError> {
    options.check()?;
    let acceptor = Acceptor::new(&options)?;
    let bind = |source| ServeError::Bind { listen: options.listen, source };
    let listener = TcpListener::bind(options.listen).await.map_err(bind)?;
    let addr = listener.local_addr().map_err(bind)?;
    let tls = options.tls.is_some();
    let names =
        AllowedNames::new(addr.port(), tls, &options.allowed_hosts, &options.allowed_origins)?;
    let killed = CancellationToken::new();
    let gateway = Arc::new(Gateway {
        backend,
        auth: Auth::new(options.token.as_ref()),
        names,
        metrics: Metrics::default(),
        connections: Connections::new(options.connections, options.unauthenticated),
        repeats: Repeats::default(),
        uploads: Semaphore::new(UPLOADS),
        addr,
        started: options.clock.now(),
        draining: shutdown,
        killed: killed.clone(),
        tasks: TaskTracker::new(),
        options,
    });
    let connections = gateway.connections.clone();
    let (local, socket) = open_socket(&gateway.options).unzip();
    let task = tokio::spawn(run(gateway, listener, acceptor, local));
    let clients = Clients(connections);
    Ok(Serving { addr, url: url(addr, tls), socket, task, clients, _guard: killed.drop_guard() })
}

/// The socket file for commands on this machine. A node serves without it: its path may be too long.
fn open_socket(options: &GatewayOptions) -> Option<(UnixListener, PathBuf)> {
    let path = options.socket.as_ref()?;
    match local_socket::bind(path) {
        Ok(listener) => Some((listener, path.clone())),
        Err(error) => {
            tracing::warn!(%error, path = %path.display(), "cannot open the socket file");
            None
        }
    }
}

fn url(addr: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    let reachable = match addr.ip() {
        ip if ip.is_unspecified() => SocketAddr::new(Ipv4Addr::LOCALHOST.into(), addr.port()),
        _ => addr,
    };
    format!("{scheme}://{reachable}")
}

async fn run(
    gateway: Arc<Gateway>,
    listener: TcpListener,
    acceptor: Acceptor,
    local: Option<UnixListener>,
) {
    let router = routes::router(Arc::clone(&gateway));
    let local = async {
        if let Some(listener) = local {
            local_socket::accept(&gateway, listener, &router).await;
        }
    };
    tokio::join!(accept(&gateway, listener, &acceptor, &router), local);
    let_go(&gateway.tasks, &gateway.killed, gateway.options.drain).await;
}

/// Lets what is open end, for `drain` at most, and then cuts it off. What does not end by that either is left behind: it
/// must not keep the process.
async fn let_go(tasks: &TaskTracker, killed: &CancellationToken, drain: Duration) {
    tasks.close();
    if tokio::time::timeout(drain, tasks.wait()).await.is_err() {
        tracing::warn!(open = tasks.len(), "streams still open after the drain; cut off");
    }
    killed.cancel();
    if tokio::time::timeout(KILLED_WITHIN, tasks.wait()).await.is_err() {
        tracing::warn!(open = tasks.len(), "streams do not end; they end with the process");
    }
}

async fn accept(
    gateway: &Arc<Gateway>,
    listener: TcpListener,
    acceptor: &Acceptor,
    router: &Router,
) {
    let stop = || async {
        tokio::select! {
            () = gateway.draining.cancelled() => {}
            () = gateway.killed.cancelled() => {}
        }
    };
    loop {
        let permit = tokio::select! {
            permit = gateway.connections.room() => permit,
            () = stop() => return,
        };
        let Some(permit) = permit else { return };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop() => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (gateway, router) = (Arc::clone(gateway), router.clone());
                let acceptor = acceptor.clone();
                let (tasks, killed) = (gateway.tasks.clone(), gateway.killed.clone());
                let slot = gateway.connections.enter(peer.ip(), permit);
                tasks.spawn(async move {
                    let served = connection(&gateway, acceptor, router, stream, peer, slot);
                    killed.run_until_cancelled(served).await
                });
            }
            Err(error) if is_peers_fault(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_peers_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

async fn connection(
    gateway: &Gateway,
    acceptor: Acceptor,
    router: Router,
    stream: TcpStream,
    peer: SocketAddr,
    slot: ConnectionSlot,
) {
    let open = gateway.metrics.connection();
    let local = stream.local_addr().unwrap_or(gateway.addr);
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot turn on TCP_NODELAY for a connection");
    }
    let connection = Connection::new(local, peer, slot);
    let evicted = connection.evicted().clone();
    let served = async {
        match acceptor {
            Acceptor::Plain => http(gateway, stream, router, connection).await,
            #[cfg(feature = "tls")]
            Acceptor::Tls(tls) => {
                let deadline = gateway.options.auth_deadline;
                match tokio::time::timeout(deadline, tls.accept(stream)).await {
                    Ok(Ok(stream)) => http(gateway, stream, router, connection).await,
                    Ok(Err(error)) => {
                        tracing::debug!(%error, %peer, "a TLS handshake failed");
                    }
                    Err(_elapsed) => tracing::debug!(%peer, "a TLS handshake took too long"),
                }
            }
        }
    };
    if evicted.run_until_cancelled(Box::pin(served)).await.is_none() {
        tracing::debug!(%peer, "closed to make room: it had not shown the token");
    }
    drop(open);
}

/// How a connection begins.
#[derive(Clone)]
enum Acceptor {
    Plain,
    #[cfg(feature = "tls")]
    Tls(tokio_rustls::TlsAcceptor),
}

// === impl Acceptor ===

impl Acceptor {
    #[cfg(feature = "tls")]
    fn new(options: &GatewayOptions) -> Result<Self, ServeError> {
        match &options.tls {
            None => Ok(Self::Plain),
            Some(files) => super::tls::acceptor(files).map(Self::Tls),
        }
    }

    #[cfg(not(feature = "tls"))]
    fn new(options: &GatewayOptions) -> Result<Self, ServeError> {
        match &options.tls {
            None => Ok(Self::Plain),
            Some(files) => Err(ServeError::Tls {
                path: files.cert.clone(),
                problem: "this build has no TLS (feature `tls`)".to_owned(),
            }),
        }
    }
}

// === impl Serving, Clients ===

impl Clients {
    /// How many there are now.
    pub fn count(&self) -> u32 {
        u32::try_from(self.0.count()).unwrap_or(u32::MAX)
    }
}

impl Serving {
    /// Its clients, to be counted.
    pub fn clients(&self) -> Clients {
        self.clients.clone()
    }

    /// Returns when all is over; only after the shutdown that `serve` was given.
    pub fn ended(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Self { task, _guard, .. } = self;
            if let Err(error) = task.await {
                tracing::error!(%error, "the gateway ended with an error");
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::{Instant, timeout};

    use super::*;

    const DRAIN: Duration = Duration::from_secs(30);
    const SECOND: Duration = Duration::from_secs(1);

    /// How long a stop takes while this is open.
    async fn stop_with(open: impl Future<Output = ()> + Send + 'static) -> Duration {
        let (tasks, killed) = (TaskTracker::new(), CancellationToken::new());
        let begun = Instant::now();
        let held = killed.clone();
        tasks.spawn(async move { held.run_until_cancelled(open).await });
        let_go(&tasks, &killed, DRAIN).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_lets_streams_end_and_cuts_off_those_that_stay_open() {
        assert_eq!(stop_with(async {}).await, Duration::ZERO);
        let nearly = DRAIN.saturating_sub(SECOND);
        let ends = async move { timeout(nearly, pending()).await.unwrap_or(()) };
        assert_eq!(stop_with(ends).await, nearly);
        assert_eq!(stop_with(pending()).await, DRAIN);
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_ignores_the_cut_does_not_keep_the_process() {
        let (tasks, killed) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(pending::<()>());
        // It takes a while to say goodbye, and is waited for.
        tasks.spawn({
            let killed = killed.clone();
            async move {
                killed.cancelled().await;
                timeout(SECOND, pending()).await.unwrap_or(());
            }
        });
        let begun = Instant::now();
        let_go(&tasks, &killed, DRAIN).await;
        assert_eq!(begun.elapsed(), DRAIN + KILLED_WITHIN);
        assert_eq!(tasks.len(), 1, "the other one has ended");
    }
}
