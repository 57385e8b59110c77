//! `POST /v1/sessions/{session}/messages`: `chat.send` for clients without a WebSocket. The turn is
//! streamed as server-sent events, or answered once it has ended.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::{Path, Request, State},
    http::HeaderMap,
    response::Response,
};
use clawnode_proto::{
    ErrorBody, ErrorCode, SessionKey,
    api::{CONVERSATION, ChatSend, Method, SessionMessage},
    llm::Usage,
    session::TurnOutcome,
    turn::{StreamEnd, TurnBody},
    view::ReplyView,
};
use futures_util::StreamExt as _;
use serde_json::Value;

use super::{
    backend::{Following, SessionRef},
    error::{ErrorDialect, ended, json},
    gateway::Gateway,
    guard::RequestTrace,
    lane,
    params::{idempotency_header, invalid, read},
    rest,
    route::RouteBody,
    rpc,
    session_events::{self, Streamed},
    slow_client_stream::count,
};

/// What a message looks like.
pub(super) const EXAMPLE: &str = r#"{"content":"hello","stream":false}"#;

/// What to do with files that are too large for a message.
const FILES_APART: &str = "upload files first, with `POST /v1/files` or `POST /v1/sessions/{session}/files`, and name \
                           them in the message: `\"attachments\":[{\"file\":\"file_…\"}]`";

/// The route.
pub(super) async fn send(
    State(gateway): State<Arc<Gateway>>,
    Extension(RequestTrace(trace)): Extension<RequestTrace>,
    Path(session): Path<String>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let method = Method::ChatSend;
    gateway.metrics.call(method.as_str());
    let sent = Instant::now();
    let begun = async {
        let said = rest::said(&gateway, RouteBody::Object(EXAMPLE), request).await;
        let said = said.map_err(with_files_apart)?;
        let mut message: SessionMessage = read(method, Value::Object(said))?;
        if message.idempotency_key.is_none() {
            message.idempotency_key = idempotency_header(&headers)?;
        }
        if message.lane.is_none() {
            message.lane = lane::header(&headers)?;
        }
        let stream = message.stream;
        let request = rpc::send(to(&session, message)?, &*gateway.backend, trace)?;
        let session = SessionRef::from(request.session.clone());
        Ok((gateway.backend.send(request).await?, session, stream))
    };
    let (following, session, stream) = match begun.await {
        Ok(begun) => begun,
        Err(error) => return ErrorDialect::Rest.respond(&error),
    };
    gateway.metrics.accepted();
    if !stream {
        return whole(&gateway, following, sent).await;
    }
    session_events::respond(gateway, Streamed { session, following, after: None, sent: Some(sent) })
}

/// What makes a message too large is what is attached to it.
fn with_files_apart(error: ErrorBody) -> ErrorBody {
    if error.code == ErrorCode::TooLarge { error.hint(FILES_APART) } else { error }
}

/// The message as `chat.send` takes it: a session's key says all about where it goes.
fn to(session: &str, message: SessionMessage) -> Result<ChatSend, ErrorBody> {
    let SessionKey { agent, channel, account, peer } = session.parse().map_err(|problem| {
        invalid(format!("parameter `session`: {problem}"))
            .hint("name the session by its key, `AGENT:CHANNEL:ACCOUNT:PEER`")
    })?;
    let peer = peer.to_string();
    let (peer, conversation) = match peer.split_once(CONVERSATION) {
        Some((peer, conversation)) => (peer.to_owned(), Some(conversation.to_owned())),
        None => (peer, None),
    };
    let SessionMessage {
        content,
        attachments,
        model,
        mode,
        reasoning,
        response_schema,
        keep,
        lane,
        idempotency_key,
        stream: _,
    } = message;
    Ok(ChatSend {
        channel: channel.to_string(),
        account: account.to_string(),
        peer,
        conversation,
        content,
        attachments,
        guild: None,
        team: None,
        agent: Some(agent.to_string()),
        model,
        idempotency_key,
        mode,
        reasoning,
        response_schema,
        keep,
        lane,
    })
}

/// Waits for the end of the turn. A client that hangs up meanwhile ends nothing (GATE-4).
async fn whole(gateway: &Gateway, following: Following, sent: Instant) -> Response {
    let Following { accepted, mut events } = following;
    let (mut text, mut usage, mut failure) = (String::new(), Usage::default(), None);
    while let Some(event) = events.next().await {
        count(gateway, &event.body, sent);
        match event.body {
            TurnBody::Text(more) => text.push_str(&more),
            TurnBody::Reset(reset) => text = reset.text,
            TurnBody::Usage(more) => usage = usage.plus(more),
            TurnBody::Error(error) => failure = Some(error),
            TurnBody::Done(StreamEnd { outcome: None, .. }) => break,
            TurnBody::Done(StreamEnd { outcome: Some(TurnOutcome::Cancelled), .. }) => {
                failure = Some(ErrorBody::new(ErrorCode::Cancelled, "the turn was cancelled"));
                break;
            }
            TurnBody::Done(StreamEnd { outcome: Some(outcome), structured, .. }) => {
                if let Some(error) = failure.take().or_else(|| outcome.error()) {
                    return ended(&error, &accepted);
                }
                let (session, turn) = (accepted.session, accepted.turn);
                let reply = ReplyView { session, turn, text, structured, usage, outcome };
                return rest::json(json(&reply));
            }
            TurnBody::Accepted(_)
            | TurnBody::Thought(_)
            | TurnBody::Notice(_)
            | TurnBody::ToolUse(_)
            | TurnBody::ApprovalRequest(_)
            | TurnBody::ClientCalls(_)
            | TurnBody::ToolResult(_)
            | TurnBody::Lagged(_)
            | TurnBody::Unknown { .. } => {}
        }
    }
    let lost = || {
        ErrorBody::new(ErrorCode::Unavailable, "this node lost track of the turn, which continues")
            .hint("follow it with `/v1/sessions/SESSION/events?turn=TURN`")
    };
    ended(&failure.unwrap_or_else(lost), &accepted)
}
