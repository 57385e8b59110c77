//! `POST /v1/messages`.

use std::{sync::Arc, time::Instant};

use axum::{
    Extension,
    extract::{Request, State},
    http::HeaderMap,
    response::Response,
};
use clawnode_proto::ErrorBody;

use super::{
    super::{
        backend::Following,
        error::AnthropicError,
        gateway::Gateway,
        guard::RequestTrace,
        openai::{
            approval::{headers as naming, pending_error},
            handlers::{Received, WholeEnd, heard, is_of_model, session_of},
            stream,
        },
        rest,
        slow_client_stream::lost,
    },
    reply::{MessageLabel, MessageWords},
    request::MessagesAsk,
};

/// The route.
pub(in super::super) async fn messages(
    State(gateway): State<Arc<Gateway>>,
    Extension(RequestTrace(trace)): Extension<RequestTrace>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let received = match Received::of(&gateway, &headers, request).await {
        Ok(received) => received,
        Err(error) => return AnthropicError::from(error).respond(),
    };
    let MessagesAsk { model, stream, has_schema, stops, wanted } =
        match MessagesAsk::read(&received.body, received.key(), trace) {
            Ok(ask) => ask,
            Err(error) => return unknown(&gateway, error).respond(),
        };
    let sent = Instant::now();
    let is_held = has_schema || gateway.backend.has_schema(wanted.agent());
    let following = match received.send(&gateway, wanted).await {
        Ok(following) => following,
        Err(error) => return refused(&gateway, error, &model).respond(),
    };
    let (turn, session) = (following.accepted.turn, session_of(&following));
    let label = MessageLabel { turn, session, model, stops };
    if stream {
        stream::respond(gateway, MessageWords::new(label), following, sent, is_held).await
    } else {
        whole(&gateway, &label, following, sent).await
    }
}

/// Waits for the whole reply.
async fn whole(
    gateway: &Gateway,
    label: &MessageLabel,
    following: Following,
    sent: Instant,
) -> Response {
    let session = following.accepted.session.clone();
    let (reply, end) = heard(gateway, following, sent).await;
    match end {
        WholeEnd::Called(calls) => rest::json(label.whole(&reply, Err(&calls))),
        WholeEnd::Finished(reason) => rest::json(label.whole(&reply, Ok(reason))),
        WholeEnd::Failed(error) => AnthropicError::from(error).respond_ended(),
        WholeEnd::Lost => AnthropicError::from(lost()).respond(),
        WholeEnd::Waits(request) => {
            let error = pending_error(&request, &session);
            let mut response = AnthropicError::from(error).respond_ended();
            response.headers_mut().extend(naming(Some(&request), &session));
            response
        }
    }
}

/// The same with the nearest names, if it is about a model that there is not.
pub(super) fn unknown(gateway: &Gateway, error: AnthropicError) -> AnthropicError {
    error.near(|model| gateway.backend.agents_like(model))
}

/// What a node refuses of a request to this model.
pub(super) fn refused(gateway: &Gateway, error: ErrorBody, model: &str) -> AnthropicError {
    if is_of_model(gateway, &error, model) {
        return unknown(gateway, AnthropicError::no_model(model));
    }
    error.into()
}
