//! `GET /v1/chat/completions/{completion}`: a chat completion once more, from the journal of its session.
//!
//! Nothing is stored for it: its id names its session and its turn, so that any gateway reads it, and it goes
//! with its session.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Path, State},
    response::Response,
};
use clawnode_proto::{ErrorBody, ErrorCode};
use futures_util::StreamExt as _;
use tokio::time::{Instant, timeout_at};

use super::{
    super::{
        backend::TurnState, error::OpenAiError, gateway::Gateway, rest, slow_client_stream::lost,
    },
    id::ResponseId,
    reply::{Label, OpenAiReply, ReplyStep},
    responses::{follow, record},
};

/// The parameter with its id, as OpenAI names it.
const ID: &str = "completion_id";
/// How long a turn that has ended may take to be read.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// How long another one is listened to: the part of it that is asked for may have ended.
const LISTEN_FOR: Duration = Duration::from_secs(1);

/// `GET /v1/chat/completions/{completion}`.
pub(in super::super) async fn stored(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Response {
    match read(&gateway, &id).await {
        Ok(completion) => rest::json(completion),
        Err(error) => error.respond(),
    }
}

async fn read(gateway: &Gateway, id: &str) -> Result<String, OpenAiError> {
    let id = ResponseId::read_completion(id, ID)?;
    let record = record(gateway, &id, &id.of_completion(), ID).await?;
    let is_over = record.state == TurnState::Over;
    let until = Instant::now() + if is_over { READ_WITHIN } else { LISTEN_FOR };
    if record.state == TurnState::Queued {
        return Err(not_over());
    }
    let label = Label {
        id,
        created: record.begun.unwrap_or_else(|| gateway.options.clock.now()).0 / 1_000,
        model: record.session.map(|key| key.agent.to_string()).unwrap_or_default(),
        metadata: Some(record.metadata),
        usage: false,
    };
    let mut events = follow(gateway, &id).await?.events;
    let mut reply = OpenAiReply::default();
    loop {
        let event = match timeout_at(until, events.next()).await {
            Ok(Some(event)) => event,
            Err(_elapsed) if !is_over => return Err(not_over()),
            Ok(None) | Err(_) => return Err(lost().into()),
        };
        match reply.take(event.body) {
            ReplyStep::Nothing
            | ReplyStep::Text(_)
            | ReplyStep::Thought(_)
            | ReplyStep::Asks(_)
            | ReplyStep::Waits(_)
            | ReplyStep::Diverged => {}
            ReplyStep::Called(calls) => return Ok(label.called(&reply, &calls)),
            ReplyStep::Finished(reason) => return Ok(label.completion(&reply, reason)),
            ReplyStep::Failed(error) => return Err(error.into()),
        }
    }
}

fn not_over() -> OpenAiError {
    let what = "the chat completion is not over yet";
    ErrorBody::new(ErrorCode::Unavailable, what).hint("ask again soon").into()
}
