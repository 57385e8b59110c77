//! `/ws`: JSON-RPC over one WebSocket, many requests at once.
//!
//! One task reads, one writes, and each request has its own; they meet in the [`Outbox`]. Messages
//! to one session are stored in the order in which they were sent.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Extension,
    extract::{
        State,
        ws::{
            CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code,
            rejection::WebSocketUpgradeRejection,
        },
    },
    http::HeaderMap,
    response::Response,
};
use clawnode_proto::{EntityId, ErrorBody, ErrorCode, Traceparent, api::Method, limits};
use futures_util::{
    SinkExt as _, StreamExt as _,
    stream::{SplitSink, SplitStream},
};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::{
    backend::SendRequest,
    error,
    frame::RequestId,
    guard::{Admitted, traceparent},
    outbox::{Batch, Outbox},
    rpc::{Call, Request, Unary, is_stream},
    serve::{Connection, Gateway},
    turn::Stream,
};

/// Bytes read at once; most requests are small.
const READ_BUFFER: usize = 16 << 10;
/// Bytes gathered before a write; a wake-up's frames leave in one.
const WRITE_BUFFER: usize = 64 << 10;
/// Sessions whose order a socket remembers before it forgets those with nothing under way.
const TAILS: usize = 128;
/// Silent spans of `ping_every` after which the other side is gone.
const SILENT_PINGS: u32 = 3;
/// The subprotocol that a client may offer beside its ticket.
const PROTOCOL: &str = "clawnode";

/// One open WebSocket.
struct Socket {
    gateway: Arc<Gateway>,
    out: Arc<Outbox>,
    trace: Option<Traceparent>,
    /// One bound for turns followed, one for all else, so that `chat.cancel` always has room.
    streams: Arc<Semaphore>,
    others: Arc<Semaphore>,
    tasks: TaskTracker,
    /// The last send to each session, done when its sender is dropped.
    tails: HashMap<EntityId, oneshot::Receiver<()>>,
}

/// Answers the upgrade.
pub(super) async fn upgrade(
    State(gateway): State<Arc<Gateway>>,
    Extension(connection): Extension<Connection>,
    Extension(admitted): Extension<Admitted>,
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
                serve(gateway, socket, admitted.granted, trace).await;
                // The connection counts as open, and keeps the gateway from stopping, until here.
                drop((connection, tracked));
            }
            .instrument(span)
        })
}

async fn serve(
    gateway: Arc<Gateway>,
    socket: WebSocket,
    granted: bool,
    trace: Option<Traceparent>,
) {
    let counted = Arc::clone(&gateway);
    let open = counted.metrics.socket();
    let options = &gateway.options;
    let out = Arc::new(Outbox::new(options.queue_frames, options.queue_bytes));
    let (sink, stream) = socket.split();
    let writer = tokio::spawn(write(Arc::clone(&out), sink, options.write_deadline));
    let most = options.requests_per_socket.get();
    let mut socket = Socket {
        gateway,
        out: Arc::clone(&out),
        trace,
        streams: Arc::new(Semaphore::new(most)),
        others: Arc::new(Semaphore::new(most)),
        tasks: TaskTracker::new(),
        tails: HashMap::new(),
    };
    let close = socket.read(stream, granted).await;
    out.close(close);
    if let Err(error) = writer.await {
        tracing::error!(%error, "the writer of a socket ended badly");
    }
    out.die();
    drop(open);
}

/// Writes what waits, in as few system calls as it fits.
async fn write(out: Arc<Outbox>, mut sink: SplitSink<WebSocket, Message>, deadline: Duration) {
    while let Some(batch) = out.take().await {
        let last = batch.close.is_some();
        match tokio::time::timeout(deadline, write_batch(&mut sink, batch)).await {
            Ok(Ok(())) if !last => {}
            Ok(Ok(())) => break,
            Ok(Err(error)) => {
                tracing::debug!(%error, "the other side of a socket is gone or going");
                break;
            }
            Err(_elapsed) => {
                tracing::info!(?deadline, "a socket read nothing for too long; closing it");
                break;
            }
        }
    }
    out.die();
}

async fn write_batch(
    sink: &mut SplitSink<WebSocket, Message>,
    batch: Batch,
) -> Result<(), axum::Error> {
    let mut said = Ok(());
    for frame in batch.frames.into_iter().chain(batch.close.map(|it| Message::Close(Some(it)))) {
        said = said.and(sink.feed(frame).await);
    }
    // Also after an error: when the other side said goodbye first, the reply to it waits in there.
    let flushed = sink.flush().await;
    if flushed.is_err() {
        return sink.flush().await.and(flushed).and(said);
    }
    said
}

// === impl Socket ===

impl Socket {
    /// Reads until either side has had enough; says how to close.
    async fn read(&mut self, mut stream: SplitStream<WebSocket>, granted: bool) -> CloseFrame {
        if !granted && let Err(close) = self.authenticate(&mut stream).await {
            return close;
        }
        let gateway = Arc::clone(&self.gateway);
        let mut silent = 0;
        let mut ticks = tokio::time::interval(gateway.options.ping_every);
        ticks.reset();
        let mut first = true;
        loop {
            tokio::select! {
                message = stream.next() => {
                    silent = 0;
                    match self.message(message, first) {
                        Ok(said) => first &= !said,
                        Err(close) => return close,
                    }
                }
                () = self.out.closed() => return goodbye(close_code::ABNORMAL, ""),
                () = gateway.killed.cancelled() => return stopping(),
                () = self.drained() => return stopping(),
                _ = ticks.tick() => {
                    silent += 1;
                    if silent > SILENT_PINGS {
                        return goodbye(close_code::AWAY, "nothing was heard for too long");
                    }
                    // A full queue is no silence: the write deadline watches over it.
                    if self.out.ping().is_err() {
                        silent = 0;
                    }
                }
            }
        }
    }

    /// The first message has to be the token.
    async fn authenticate(
        &mut self,
        stream: &mut SplitStream<WebSocket>,
    ) -> Result<(), CloseFrame> {
        let deadline = self.gateway.options.auth_deadline;
        let first = tokio::time::timeout(deadline, async {
            loop {
                match stream.next().await {
                    Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                    message => return message,
                }
            }
        });
        let verdict = match first.await {
            Ok(Some(Ok(Message::Text(text)))) => match token_in(&text) {
                Some(token) => self.gateway.auth.check(&token),
                None => Err(no_token("the first message is not a token")),
            },
            Ok(Some(Ok(Message::Binary(_)))) => Err(no_token("the first message is not a token")),
            Ok(Some(Err(error))) => return Err(self.unreadable(&error)),
            Ok(Some(Ok(_)) | None) => return Err(goodbye(close_code::NORMAL, "")),
            Err(_elapsed) => {
                Err(no_token(&format!("no token came within {} s", deadline.as_secs())))
            }
        };
        verdict.map_err(|error| {
            self.refuse(&RequestId::null(), &error);
            goodbye(close_code::POLICY, "unauthorized")
        })
    }

    /// Takes one message; whether it was one that says something.
    fn message(
        &mut self,
        message: Option<Result<Message, axum::Error>>,
        first: bool,
    ) -> Result<bool, CloseFrame> {
        match message {
            Some(Ok(Message::Text(text))) => {
                // A client that always begins with the token is welcome where none is needed.
                let greeting = first && is_auth_message(&text);
                if !greeting {
                    self.request(&text);
                }
                Ok(true)
            }
            Some(Ok(Message::Binary(_))) => {
                let error =
                    ErrorBody::new(ErrorCode::InvalidRequest, "binary messages are not read")
                        .hint("send requests as text");
                self.refuse(&RequestId::null(), &error);
                Ok(true)
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(false),
            Some(Ok(Message::Close(_))) | None => Err(goodbye(close_code::NORMAL, "")),
            Some(Err(error)) => Err(self.unreadable(&error)),
        }
    }

    fn request(&mut self, text: &str) {
        let request = match Request::read(text) {
            Ok(request) => request,
            Err((id, error)) => return self.refuse(&id, &error),
        };
        let Request { id, method, params } = request;
        self.gateway.metrics.call(method.as_str());
        let span = tracing::info_span!("gateway.request", method = method.as_str());
        let trace = (self.gateway.options.adopt_trace)(&span, self.trace.as_ref());
        let call = if self.gateway.draining.is_cancelled() {
            Err(ErrorBody::new(ErrorCode::Unavailable, "this node is stopping")
                .hint("connect again; another node, or this one after its restart, answers"))
        } else {
            Call::read(method, params, &*self.gateway.backend, trace.clone())
        };
        let started = call.and_then(|call| self.start(id.clone(), call, trace, span));
        if let Err(error) = started {
            self.refuse_method(&id, method, &error);
        }
    }

    /// Starts a request's own task.
    fn start(
        &mut self,
        id: RequestId,
        call: Call,
        trace: Option<Traceparent>,
        span: tracing::Span,
    ) -> Result<(), ErrorBody> {
        let (gateway, out) = (Arc::clone(&self.gateway), Arc::clone(&self.out));
        match call {
            Call::Unary(unary) => {
                let permit = permit(&self.others)?;
                self.spawn(answer(gateway, out, id, unary, trace), permit, span);
            }
            Call::Send(request) => {
                let permit = permit(&self.streams)?;
                let turn = self.in_turn(request.session.entity());
                self.spawn(send(gateway, out, id, request, turn), permit, span);
            }
            Call::Resume { session, turn, after } => {
                let permit = permit(&self.streams)?;
                let resumed = async move {
                    match gateway.backend.follow(&session, turn, after).await {
                        Ok(following) => {
                            let stream = Stream {
                                gateway: &gateway,
                                out: &out,
                                id: &id,
                                session,
                                seen: after,
                                first: true,
                                sent: None,
                            };
                            // A closed socket has nobody to be told.
                            stream.run(following).await.ok();
                        }
                        Err(error) => fail_stream(&gateway, &out, &id, &error).await,
                    }
                };
                self.spawn(resumed, permit, span);
            }
        }
        Ok(())
    }

    fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
        permit: OwnedSemaphorePermit,
        span: tracing::Span,
    ) {
        // Tracked by the gateway too: a message on its way into the inbox is not dropped because
        // its sender hung up.
        let tracked = self.gateway.tasks.token();
        self.tasks.spawn(
            async move {
                task.await;
                drop((permit, tracked));
            }
            .instrument(span),
        );
    }

    /// A place in the queue of those who send to this session.
    fn in_turn(&mut self, session: EntityId) -> Turn {
        if self.tails.len() >= TAILS {
            self.tails.retain(|_, tail| {
                matches!(tail.try_recv(), Err(oneshot::error::TryRecvError::Empty))
            });
        }
        let (done, tail) = oneshot::channel();
        Turn { before: self.tails.insert(session, tail), done }
    }

    /// Returns when the node is stopping and nothing is under way here any more.
    async fn drained(&self) {
        self.gateway.draining.cancelled().await;
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Refuses what is not a stream, or not even a request.
    fn refuse(&self, id: &RequestId, error: &ErrorBody) {
        self.gateway.metrics.refusal(error.code);
        self.say(error::rpc(id.as_str(), error));
    }

    fn refuse_method(&self, id: &RequestId, method: Method, error: &ErrorBody) {
        if is_stream(method) {
            self.gateway.metrics.refusal(error.code);
            self.say(id.error(error));
            self.say(id.done_early(None));
        } else {
            self.refuse(id, error);
        }
    }

    /// Says something from the reader, which must not wait: a client that sends nonsense and does
    /// not read the answers is let go.
    fn say(&self, frame: String) {
        if self.out.push(frame).is_err() {
            self.out.close(goodbye(close_code::POLICY, "too many answers wait to be read"));
        }
    }

    fn unreadable(&self, error: &axum::Error) -> CloseFrame {
        if !is_too_large(error) {
            tracing::debug!(%error, "a socket broke off");
            return goodbye(close_code::PROTOCOL, "");
        }
        let limit = limits::WS_FRAME_BYTES;
        let message = format!("the frame is larger than {limit} bytes");
        let error = ErrorBody::new(ErrorCode::TooLarge, message)
            .hint("a message may be 1 MiB; send it in parts, on a new connection");
        self.refuse(&RequestId::null(), &error);
        goodbye(close_code::SIZE, "too_large")
    }
}

/// Orders the sends to one session; dropping it lets the next one go.
struct Turn {
    before: Option<oneshot::Receiver<()>>,
    done: oneshot::Sender<()>,
}

async fn answer(
    gateway: Arc<Gateway>,
    out: Arc<Outbox>,
    id: RequestId,
    unary: Unary,
    trace: Option<Traceparent>,
) {
    let answer = match unary.answer(&gateway, trace).await {
        Ok(result) => id.result(&result),
        Err(error) => {
            gateway.metrics.refusal(error.code);
            error::rpc(id.as_str(), &error)
        }
    };
    // A closed socket has nobody to be told.
    out.push_wait(answer).await.ok();
}

async fn send(
    gateway: Arc<Gateway>,
    out: Arc<Outbox>,
    id: RequestId,
    request: Box<SendRequest>,
    turn: Turn,
) {
    let sent = Instant::now();
    let session = request.session.clone();
    if let Some(before) = turn.before {
        // It ends by being dropped, which is all we wait for.
        before.await.ok();
    }
    let outcome = gateway.backend.send(*request).await;
    drop(turn.done);
    match outcome {
        Ok(following) => {
            gateway.metrics.accepted();
            let stream = Stream {
                gateway: &gateway,
                out: &out,
                id: &id,
                session: session.into(),
                seen: None,
                first: true,
                sent: Some(sent),
            };
            // A closed socket has nobody to be told (GATE-4).
            stream.run(following).await.ok();
        }
        Err(error) => fail_stream(&gateway, &out, &id, &error).await,
    }
}

async fn fail_stream(gateway: &Gateway, out: &Outbox, id: &RequestId, error: &ErrorBody) {
    gateway.metrics.refusal(error.code);
    if out.push_wait(id.error(error)).await.is_ok() {
        // A closed socket has nobody to be told.
        out.push_wait(id.done_early(None)).await.ok();
    }
}

fn permit(bound: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, ErrorBody> {
    Arc::clone(bound).try_acquire_owned().map_err(|full| {
        ErrorBody::new(
            ErrorCode::Overloaded,
            format!("too many requests are under way on this connection: {full}"),
        )
        .hint("wait for one to end, or open another connection")
    })
}

fn is_too_large(error: &axum::Error) -> bool {
    use tokio_tungstenite::tungstenite::Error as Broken;
    std::error::Error::source(error)
        .and_then(|cause| cause.downcast_ref::<Broken>())
        .is_some_and(|cause| matches!(cause, Broken::Capacity(_)))
}

fn no_token(message: &str) -> ErrorBody {
    ErrorBody::new(ErrorCode::Unauthorized, message).hint(
        r#"send `Authorization: Bearer TOKEN` with the upgrade, or `{"token":"TOKEN"}` first"#,
    )
}

/// `{"token":"…"}`, `{"type":"auth","token":"…"}`, a JSON string, or the bare token.
fn token_in(text: &str) -> Option<String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => match fields.get("token") {
            Some(Value::String(token)) => Some(token.clone()),
            _ => None,
        },
        Ok(Value::String(token)) => Some(token),
        Ok(_) | Err(_) => Some(text.to_owned()),
    }
}

fn is_auth_message(text: &str) -> bool {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => {
            !fields.contains_key("method") && fields.get("token").is_some_and(Value::is_string)
        }
        Ok(_) | Err(_) => false,
    }
}

fn goodbye(code: u16, reason: &'static str) -> CloseFrame {
    CloseFrame { code, reason: reason.into() }
}

fn stopping() -> CloseFrame {
    goodbye(close_code::AWAY, "this node is stopping")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_message_may_be_the_token_in_four_ways() {
        let bare = "s3cret-with-\"quote";
        let table = [
            (r#"{"token":"abc"}"#, Some("abc")),
            (r#"{"type":"auth","token":"abc"}"#, Some("abc")),
            (r#""abc""#, Some("abc")),
            ("abc", Some("abc")),
            ("12345", Some("12345")),
            (bare, Some(bare)),
            ("", Some("")),
            (r#"{"token":""}"#, Some("")),
            (r#"{"token":7}"#, None),
            (r#"{"id":1,"method":"ping"}"#, None),
        ];
        for (text, token) in table {
            assert_eq!(token_in(text).as_deref(), token, "{text}");
        }
    }
}
