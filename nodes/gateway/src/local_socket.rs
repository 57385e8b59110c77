//! The gateway's second listener: a socket file in the data directory, for commands on the same
//! machine. It has connections of its own, so that `clawnode panic` gets through while clients, or
//! who pretends to be one, hold all those of the network. What is asked there passes the same checks,
//! the token among them.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    num::NonZeroUsize,
    os::unix::fs::{FileTypeExt as _, PermissionsExt as _},
    path::Path,
    sync::Arc,
};

use axum::Router;
use tokio::net::UnixListener;

use super::{
    connection::{Connection, http},
    connections::Connections,
    gateway::Gateway,
};

/// Connections at once (64): commands, each with one.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(64).unwrap();

/// Takes the place of the socket that an earlier node left: only one node has the directory.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(path) {
        Ok(there) if there.file_type().is_socket() => fs::remove_file(path)?,
        Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not a socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves until the gateway stops.
pub(super) async fn accept(gateway: &Arc<Gateway>, listener: UnixListener, router: &Router) {
    let connections = Connections::new(CONNECTIONS, CONNECTIONS);
    // The names of this machine's loopback are good for `Host` here.
    let here = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), gateway.addr.port());
    loop {
        let Some(permit) = connections.room().await else { return };
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::error!(%error, "cannot accept a connection on the socket file");
                    return;
                }
            },
            () = gateway.draining.cancelled() => return,
            () = gateway.killed.cancelled() => return,
        };
        let connection = Connection::new(here, here, connections.enter(here.ip(), permit));
        let (gateway, router) = (Arc::clone(gateway), router.clone());
        let (tasks, killed) = (gateway.tasks.clone(), gateway.killed.clone());
        tasks.spawn(async move {
            let evicted = connection.evicted().clone();
            let served = Box::pin(http(&gateway, stream, router, connection));
            killed.run_until_cancelled(evicted.run_until_cancelled(served)).await
        });
    }
}
