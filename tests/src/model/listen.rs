//! Connections that can be broken from inside a handler, before and within an answer.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::{Context, Poll},
};

use axum::{
    extract::connect_info::Connected,
    serve::{IncomingStream, Listener},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

/// A listener whose connections carry a [`Breaker`].
#[derive(Debug)]
pub(super) struct Breakable {
    pub(super) listener: TcpListener,
    /// How many connections there were.
    pub(super) accepted: Arc<AtomicU64>,
}

/// Breaks its connection: the next write fails, and the server closes it.
#[derive(Clone, Debug, Default)]
pub(super) struct Breaker(Arc<AtomicBool>);

#[derive(Debug)]
pub(super) struct Line {
    stream: TcpStream,
    breaker: Breaker,
}

// === impl Breaker ===

impl Breaker {
    pub(super) fn trip(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn check(&self) -> io::Result<()> {
        let tripped = self.0.load(Ordering::Relaxed);
        if tripped { Err(io::ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }
}

impl Connected<IncomingStream<'_, Breakable>> for Breaker {
    fn connect_info(stream: IncomingStream<'_, Breakable>) -> Self {
        stream.io().breaker.clone()
    }
}

// === impl Breakable ===

impl Listener for Breakable {
    type Io = Line;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Line, SocketAddr) {
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        self.accepted.fetch_add(1, Ordering::Relaxed);
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        (Line { stream, breaker: Breaker::default() }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

// === impl Line ===

impl AsyncRead for Line {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, into)
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let line = self.get_mut();
        line.breaker.check()?;
        Pin::new(&mut line.stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let line = self.get_mut();
        line.breaker.check()?;
        Pin::new(&mut line.stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
