//! From an HTTP request to an open socket, and its end.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{
        State,
        ws::{WebSocket, WebSocketUpgrade, rejection::WebSocketUpgradeRejection},
    },
    http::HeaderMap,
    response::Response,
};
use clawnode_proto::{ErrorBody, ErrorCode, Traceparent, limits};
use futures_util::StreamExt as _;
use tracing::Instrument as _;

use super::{
    super::{
        connection::Connection,
        error,
        gateway::Gateway,
        guard::{SocketAdmission, traceparent},
        outbox::Outbox,
    },
    socket::ServerSocket,
    writer::write,
};

/// Bytes read at once; most requests are small.
const READ_BUFFER: usize = 16 << 10;
/// Bytes gathered before a write; a wake-up's frames leave in one.
const WRITE_BUFFER: usize = 64 << 10;
/// How long a goodbye may take once everything ends.
const GOODBYE: Duration = Duration::from_millis(500);
/// The subprotocol that a client may offer beside its ticket.
const PROTOCOL: &str = "clawnode";

/// Answers the upgrade.
pub(in super::super) async fn upgrade(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    Extension(admitted): Extension<SocketAdmission>,
    headers: HeaderMap,
    socket: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let mut socket = match socket {
        Ok(socket) => socket,
        Err(rejection) => {
            let error = ErrorBody::new(
                ErrorCode::InvalidRequest,
                format!("this is a WebSocket: {rejection}"),
            );
            return error::respond(&error, error::json(&error));
        }
    };
    let ours = socket.requested_protocols().find(|name| *name == PROTOCOL).cloned();
    if let Some(protocol) = ours.or_else(|| admitted.protocol.clone()) {
        socket.set_selected_protocol(protocol);
    }
    let span = tracing::info_span!("gateway.ws", peer = %connection.peer);
    let trace = (gateway.options.adopt_trace)(&span, traceparent(&headers).as_ref());
    let tracked = gateway.tasks.token();
    socket
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(WRITE_BUFFER)
        .max_frame_size(limits::WS_FRAME_BYTES)
        .max_message_size(limits::WS_FRAME_BYTES)
        .on_upgrade(move |socket| {
            async move {
                serve(gateway, socket, &connection, admitted.granted, trace).await;
                // The connection counts as open, and keeps the gateway from stopping, until here.
                drop((connection, tracked));
            }
            .instrument(span)
        })
}

async fn serve(
    gateway: Arc<Gateway>,
    socket: WebSocket,
    connection: &Connection,
    granted: bool,
    trace: Option<Traceparent>,
) {
    let counted = Arc::clone(&gateway);
    let open = counted.metrics.socket();
    let options = &gateway.options;
    let out = Arc::new(Outbox::new(options.queue_frames, options.queue_bytes));
    let (sink, stream) = socket.split();
    let mut writer = tokio::spawn(write(Arc::clone(&out), sink));
    let mut socket = ServerSocket::new(gateway, Arc::clone(&out), trace);
    let close = socket.read(stream, connection, granted).await;
    out.close(close);
    let cut = async {
        counted.killed.cancelled().await;
        tokio::time::sleep(GOODBYE).await;
    };
    tokio::select! {
        ended = &mut writer => {
            if let Err(error) = ended {
                tracing::error!(%error, "the writer of a WebSocket ended with an error");
            }
        }
        () = cut => writer.abort(),
    }
    out.die();
    drop(open);
}
