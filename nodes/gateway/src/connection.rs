//! One connection: what its requests know of it, and how they are served.

use std::{net::SocketAddr, sync::Arc};

use axum::Router;
use clawnode_proto::{ErrorBody, ErrorCode};
use hyper::{
    Request,
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::{connections::ConnectionSlot, gateway::Gateway, write_timeout::StallGuard};

/// Bytes of a request's head; browsers send a few KiB.
pub(super) const HEAD_BYTES: usize = 64 << 10;

/// One connection, as its requests know it; counts as open until the last of them is gone.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) local: SocketAddr,
    pub(super) peer: SocketAddr,
    slot: Arc<ConnectionSlot>,
}

/// Serves the requests of a connection, until it ends or the gateway drains.
pub(super) async fn http<I>(gateway: &Gateway, stream: I, router: Router, connection: Connection)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(gateway.options.auth_deadline)
        .max_buf_size(HEAD_BYTES);
    let router = TowerToHyperService::new(router);
    // Not a layer of the router: that would wrap each of its routes again for every connection.
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(connection.clone());
        router.call(request)
    });
    let stream = StallGuard::new(stream, gateway.options.write_deadline);
    let serving = builder.serve_connection(TokioIo::new(stream), service).with_upgrades();
    tokio::pin!(serving);
    let mut draining = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended with an error");
                }
                return;
            }
            () = gateway.draining.cancelled(), if !draining => {
                draining = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

impl Connection {
    pub(super) fn new(local: SocketAddr, peer: SocketAddr, slot: ConnectionSlot) -> Self {
        Self { local, peer, slot: Arc::new(slot) }
    }

    /// The client has shown the token.
    pub(super) fn authenticated(&self) -> Result<(), ErrorBody> {
        if self.slot.authenticated() {
            return Ok(());
        }
        let why = "all connections of this gateway are in use";
        let hint = "try again, or use another gateway; `gateway.max_connections` sets how many";
        Err(ErrorBody::new(ErrorCode::Unavailable, why).hint(hint))
    }

    /// Ends when this connection has to make room for another.
    pub(super) fn evicted(&self) -> &CancellationToken {
        self.slot.evicted()
    }
}
