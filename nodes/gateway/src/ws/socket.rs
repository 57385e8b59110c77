//! One open socket, from its reading side.

use std::{collections::HashMap, sync::Arc};

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use clawnode_proto::{EntityId, ErrorBody, ErrorCode, Traceparent, api::Method, limits};
use futures_util::{StreamExt as _, stream::SplitStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

use super::{
    super::{
        connection::Connection,
        error,
        frame::RequestId,
        gateway::Gateway,
        outbox::Outbox,
        params::read,
        rpc::{self, RpcCall, is_stream},
    },
    greeting::{is_auth_message, token_in},
    request::{SendOrder, answer, resume, send},
};

/// Sessions whose order a socket remembers before it forgets those with nothing under way.
const TAILS: usize = 128;
/// Silent spans of `ping_every` after which the other side is gone.
const SILENT_PINGS: u32 = 3;

/// One open WebSocket.
pub(super) struct ServerSocket {
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

/// F-19: closes the socket when a request's task panics. Otherwise its client would wait for ever
/// for an answer; now it connects and sends again.
struct SocketFuse(Arc<Outbox>);

impl Drop for SocketFuse {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.close(goodbye(close_code::ERROR, "a request failed here; send it again"));
        }
    }
}

// === impl ServerSocket ===

impl ServerSocket {
    pub(super) fn new(gateway: Arc<Gateway>, out: Arc<Outbox>, trace: Option<Traceparent>) -> Self {
        let most = gateway.options.requests_per_socket.get();
        Self {
            gateway,
            out,
            trace,
            streams: Arc::new(Semaphore::new(most)),
            others: Arc::new(Semaphore::new(most)),
            tasks: TaskTracker::new(),
            tails: HashMap::new(),
        }
    }

    /// Reads until either side has had enough; says how to close.
    pub(super) async fn read(
        &mut self,
        mut stream: SplitStream<WebSocket>,
        connection: &Connection,
        granted: bool,
    ) -> CloseFrame {
        let gateway = Arc::clone(&self.gateway);
        if !granted {
            let asked = self.authenticate(&mut stream, connection);
            tokio::select! {
                verdict = asked => if let Err(close) = verdict {
                    return close;
                },
                () = gateway.killed.cancelled() => return stopping(),
                () = connection.evicted().cancelled() => {
                    return goodbye(close_code::AGAIN, "other clients wait for a connection");
                }
            }
        }
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
                        return goodbye(close_code::AWAY, "the client sent nothing for too long");
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
        connection: &Connection,
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
                Err(no_token(&format!("the client sent no token within {} s", deadline.as_secs())))
            }
        };
        verdict.map_err(|error| {
            self.refuse(&RequestId::null(), &error);
            goodbye(close_code::POLICY, "unauthorized")
        })?;
        connection.authenticated().map_err(|error| {
            self.refuse(&RequestId::null(), &error);
            goodbye(close_code::AGAIN, "all connections are in use")
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
        let request = match RpcCall::read(text) {
            Ok(request) => request,
            Err((id, error)) => return self.refuse(&id, &error),
        };
        let (id, method) = (request.id.clone(), request.method);
        self.gateway.metrics.call(method.as_str());
        let span = tracing::info_span!("gateway.request", method = method.as_str());
        let trace = (self.gateway.options.adopt_trace)(&span, self.trace.as_ref());
        let started = if is_stream(method) && self.gateway.draining.is_cancelled() {
            Err(ErrorBody::new(ErrorCode::Unavailable, "this node is stopping")
                .hint("connect again; another node, or this one after its restart, answers"))
        } else {
            self.start(request, trace, span)
        };
        if let Err(error) = started {
            self.refuse_method(&id, method, &error);
        }
    }

    /// Starts a request's own task, if the request makes sense.
    fn start(
        &mut self,
        request: RpcCall,
        trace: Option<Traceparent>,
        span: tracing::Span,
    ) -> Result<(), ErrorBody> {
        let RpcCall { id, method, params } = request;
        let (gateway, out) = (Arc::clone(&self.gateway), Arc::clone(&self.out));
        match method {
            Method::ChatSend => {
                let request = rpc::send(read(method, params)?, &*gateway.backend, trace)?;
                let permit = permit(&self.streams)?;
                let turn = self.in_turn(request.session.entity());
                self.spawn(send(gateway, out, id, Box::new(request), turn), permit, span);
            }
            Method::SessionsResume => {
                let wanted = rpc::resume(read(method, params)?)?;
                let permit = permit(&self.streams)?;
                self.spawn(resume(gateway, out, id, wanted), permit, span);
            }
            method => {
                let caller = gateway.caller(trace);
                let promise = rpc::answer(Arc::clone(&gateway), caller, method, params)?;
                let permit = permit(&self.others)?;
                self.spawn(answer(gateway, out, id, promise), permit, span);
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
        let (tracked, killed) = (self.gateway.tasks.token(), self.gateway.killed.clone());
        let fuse = SocketFuse(Arc::clone(&self.out));
        self.tasks.spawn(
            async move {
                let _fuse = fuse;
                killed.run_until_cancelled(task).await;
                drop((permit, tracked));
            }
            .instrument(span),
        );
    }

    /// A place in the queue of those who send to this session.
    fn in_turn(&mut self, session: EntityId) -> SendOrder {
        if self.tails.len() >= TAILS {
            self.tails.retain(|_, tail| {
                matches!(tail.try_recv(), Err(oneshot::error::TryRecvError::Empty))
            });
        }
        let (done, tail) = oneshot::channel();
        SendOrder { before: self.tails.insert(session, tail), done }
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
            self.say(id.done_refused());
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
            tracing::debug!(%error, "a WebSocket failed");
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
fn goodbye(code: u16, reason: &'static str) -> CloseFrame {
    CloseFrame { code, reason: reason.into() }
}

fn stopping() -> CloseFrame {
    goodbye(close_code::AWAY, "this node is stopping")
}
