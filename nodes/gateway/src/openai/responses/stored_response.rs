//! A response that there is, read again from the journal of its session.

use std::{sync::Arc, time::Duration};

use clawnode_proto::{ErrorCode, turn::TurnEvent};
use futures_util::StreamExt as _;
use serde_json::{Map, json};

use super::{
    super::{
        super::{
            backend::{TurnRecord, TurnState},
            error::{OpenAiError, json},
            gateway::Gateway,
        },
        id::ResponseId,
    },
    composed_events::Events,
    reader::{ResponseReader, ResponseReply, ResponseStep, broken, follow},
    request::echo,
    response_object::{ResponseLabel, Status},
};

/// How long a turn that has ended may take to be read.
const READ_WITHIN: Duration = Duration::from_secs(30);
/// How long a turn that runs is listened to for what it has said so far, and how long for one event more.
const LISTEN_MOST: Duration = Duration::from_secs(1);
const LISTEN_FOR: Duration = Duration::from_millis(100);

/// What is recorded of a response that a client names.
pub(in super::super) async fn record(
    gateway: &Gateway,
    id: &ResponseId,
    named: &str,
    param: &str,
) -> Result<TurnRecord, OpenAiError> {
    let found = gateway.backend.turn_record(id.session, id.turn, id.after).await;
    found.map_err(|error| match error.code {
        ErrorCode::NotFound => OpenAiError::no_response(named, param),
        _ => error.into(),
    })
}

/// A reader of a response that there is.
pub(super) async fn reader(
    gateway: &Arc<Gateway>,
    id: ResponseId,
    record: &TurnRecord,
) -> Result<ResponseReader, OpenAiError> {
    let events = follow(gateway, &id).await?.events;
    let mut reply = ResponseReply::new(label(gateway, id, record), None);
    reply.begin(&mut Events::new());
    Ok(ResponseReader::new(Arc::clone(gateway), reply, events, None))
}

/// The settings of its request are not said again, but for what its client keeps with it.
pub(super) fn label(gateway: &Gateway, id: ResponseId, record: &TurnRecord) -> ResponseLabel {
    let created = record.begun.unwrap_or_else(|| gateway.options.clock.now()).0 / 1_000;
    let model = record.session.as_ref().map(|key| key.agent.to_string()).unwrap_or_default();
    let mut echo = echo(&Map::new());
    echo.insert("metadata".to_owned(), json!(record.metadata));
    ResponseLabel { id, created, model, echo }
}

/// The response as it is now.
pub(super) async fn read(
    gateway: &Arc<Gateway>,
    id: ResponseId,
    record: &TurnRecord,
) -> Result<String, OpenAiError> {
    if record.state == TurnState::Queued {
        let reply = ResponseReply::new(label(gateway, id, record), None);
        return Ok(json(&reply.response(&Status::Queued)));
    }
    let mut reader = reader(gateway, id, record).await?;
    let (most, quiet) = match record.state {
        TurnState::Over => (READ_WITHIN, READ_WITHIN),
        TurnState::Queued | TurnState::Running => (LISTEN_MOST, LISTEN_FOR),
    };
    let status = ended(&mut reader, tokio::time::Instant::now() + most, quiet).await?;
    if status == Status::InProgress && record.state == TurnState::Over {
        return Err(broken(&ResponseStep::Lost).into());
    }
    Ok(json(&reader.reply.response(&status)))
}

/// Reads a response until its end, until then, or until nothing comes for so long.
pub(super) async fn ended(
    reader: &mut ResponseReader,
    until: tokio::time::Instant,
    quiet: Duration,
) -> Result<Status, OpenAiError> {
    let mut told = Events::new();
    loop {
        let most = until.min(tokio::time::Instant::now() + quiet);
        let event: TurnEvent = match tokio::time::timeout_at(most, reader.events.next()).await {
            Ok(Some(event)) => event,
            Ok(None) => return Err(broken(&ResponseStep::Lost).into()),
            Err(_elapsed) => return Ok(Status::InProgress),
        };
        told.clear();
        match reader.take(event, &mut told).await {
            ResponseStep::More | ResponseStep::Again | ResponseStep::Asks(_) => {}
            ResponseStep::Ended(status) => return Ok(status),
            step @ (ResponseStep::Other | ResponseStep::Lost) => return Err(broken(&step).into()),
        }
    }
}
