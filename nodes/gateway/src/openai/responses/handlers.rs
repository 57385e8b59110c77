//! The endpoints.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Extension,
    extract::{Path, RawQuery, Request, State},
    http::HeaderMap,
    response::Response,
};
use clawnode_proto::{ErrorBody, ErrorCode, InputId, SessionKey, Traceparent, TurnId};
use serde::Serialize;
use serde_json::Value;

use super::{
    super::{
        super::{
            backend::{Following, TurnRecord, TurnState},
            error::{OpenAiError, json},
            gateway::Gateway,
            given_params::SessionTurn,
            guard::RequestTrace,
            rest,
            route::{QueryKind, query},
        },
        approval::{self, Heard, PersonWait},
        handlers::{Received, of_model, session_of, unknown},
        id::ResponseId,
        message_parts::about,
        request::{Ask, Wanted},
        stream::Early,
    },
    composed_events::Events,
    event_number::EventNumber,
    reader::{ResponseReader, ResponseReply, ResponseStep, broken, follow},
    references,
    request::Create,
    response_object::{ResponseLabel, Status},
    stored_response::{ended, label, read, reader, record},
    stream,
};

/// What a request for a response may ask for in its query.
pub(in super::super::super) const QUERY: &[(&str, QueryKind)] = &[
    ("stream", QueryKind::Flag),
    ("starting_after", QueryKind::Number),
    ("include_obfuscation", QueryKind::Flag),
];
/// How long a cancelled turn is waited for.
const CANCELLED_WITHIN: Duration = Duration::from_secs(5);
/// How often a turn that is only stored is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// `POST /v1/responses`.
pub(in super::super::super) async fn create(
    State(gateway): State<Arc<Gateway>>,
    Extension(RequestTrace(trace)): Extension<RequestTrace>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let made = made(gateway, trace, &headers, request).await;
    made.unwrap_or_else(|error| error.respond())
}

/// `GET /v1/responses/{response}`.
pub(in super::super::super) async fn retrieve(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
    RawQuery(asked): RawQuery,
) -> Response {
    let read = async {
        let id = ResponseId::read(&id, "response_id")?;
        let asked = Asked::read(asked.as_deref())?;
        let record = record(&gateway, &id, &id.to_string(), "response_id").await?;
        if asked.is_stream {
            streamed(gateway, id, &record, asked.starting_after).await
        } else {
            read(&gateway, id, &record).await.map(rest::json)
        }
    };
    read.await.unwrap_or_else(|error: OpenAiError| error.respond())
}

/// `POST /v1/responses/{response}/cancel`.
pub(in super::super::super) async fn cancel(
    State(gateway): State<Arc<Gateway>>,
    Extension(RequestTrace(trace)): Extension<RequestTrace>,
    Path(id): Path<String>,
) -> Response {
    let cancelled = async {
        let id = ResponseId::read(&id, "response_id")?;
        let mut record = record(&gateway, &id, &id.to_string(), "response_id").await?;
        let until = tokio::time::Instant::now() + CANCELLED_WITHIN;
        if record.state != TurnState::Over {
            record = begun(&gateway, &id, record, until).await?;
            let turn = SessionTurn { session: id.session(), turn: id.turn };
            gateway.backend.chat_cancel(&gateway.caller(trace), turn).await?;
        }
        let mut reader = reader(&gateway, id, &record).await?;
        let status = ended(&mut reader, until, CANCELLED_WITHIN).await?;
        Ok(rest::json(json(&reader.reply.response(&status))))
    };
    cancelled.await.unwrap_or_else(|error: OpenAiError| error.respond())
}

/// `DELETE /v1/responses/{response}`: a journal loses no part of itself, so the session goes if it has nothing
/// else.
pub(in super::super::super) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(RequestTrace(trace)): Extension<RequestTrace>,
    Path(id): Path<String>,
) -> Response {
    let deleted = async {
        let id = ResponseId::read(&id, "response_id")?;
        let record = record(&gateway, &id, &id.to_string(), "response_id").await?;
        let until = tokio::time::Instant::now() + CANCELLED_WITHIN;
        let record = begun(&gateway, &id, record, until).await?;
        if !record.is_only {
            return Err(one_of_several(&id, &record));
        }
        gateway.backend.sessions_delete(&gateway.caller(trace), id.session()).await?;
        let deleted = DeletedResponse { id: id.to_string(), object: "response", deleted: true };
        Ok(rest::json(json(&deleted)))
    };
    deleted.await.unwrap_or_else(|error: OpenAiError| error.respond())
}

/// What a client learns of a response that it deleted.
#[derive(Serialize)]
struct DeletedResponse {
    id: String,
    object: &'static str,
    deleted: bool,
}

/// The refusal to delete a response whose session has more.
fn one_of_several(id: &ResponseId, record: &TurnRecord) -> OpenAiError {
    let Some(session) = &record.session else {
        let what = "the response is stored and not begun yet";
        return ErrorBody::new(ErrorCode::Unavailable, what).hint("ask again soon").into();
    };
    let what = format!(
        "`{id}` is not the only response of its session `{session}`, and a session loses no part; \
         `DELETE /v1/sessions/{session}` deletes all of it"
    );
    OpenAiError::unsupported("response_id", what)
}

/// What is asked of a response that there is.
struct Asked {
    is_stream: bool,
    starting_after: Option<EventNumber>,
}

impl Asked {
    fn read(asked: Option<&str>) -> Result<Self, OpenAiError> {
        let mut asked = query(asked, QUERY);
        let mut flag = |name: &str| match asked.remove(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(OpenAiError::invalid(name, format!("`{name}` is not true or false"))),
        };
        let (is_stream, is_obfuscated) = (flag("stream")?, flag("include_obfuscation")?);
        if is_obfuscated {
            let what = "`include_obfuscation` is not offered";
            return Err(OpenAiError::unsupported("include_obfuscation", what));
        }
        let starting_after = match asked.remove("starting_after") {
            None => None,
            Some(number) => Some(number.as_u64().map(EventNumber::of).ok_or_else(|| {
                let what = "`starting_after` is not the `sequence_number` of an event";
                OpenAiError::invalid("starting_after", what)
            })?),
        };
        if starting_after.is_some() && !is_stream {
            let what = "`starting_after` is of a stream, send `stream=true`";
            return Err(OpenAiError::invalid("starting_after", what));
        }
        if let Some(name) = asked.keys().next() {
            let name: String = name.chars().take(40).collect();
            let what = format!("there is no parameter `{name}`");
            return Err(OpenAiError::unsupported(name, what));
        }
        Ok(Self { is_stream, starting_after })
    }
}

async fn made(
    gateway: Arc<Gateway>,
    trace: Option<Traceparent>,
    headers: &HeaderMap,
    request: Request,
) -> Result<Response, OpenAiError> {
    let received = Received::of(&gateway, headers, request).await?;
    let create = Create::read(&references::resolved(&gateway, &received.body).await?)?;
    let previous = match &create.previous {
        None => None,
        Some(previous) => {
            Some(record(&gateway, previous, &previous.to_string(), "previous_response_id").await?)
        }
    };
    let known =
        previous.as_ref().map(|response| session_to_go_on_with(response, &create)).transpose()?;
    let ask = create.ask(known, received.key(), trace);
    let ask = ask.map_err(|error| unknown(&gateway, error))?;
    if let (Some(record), Wanted::Send(send)) = (&previous, &ask.wanted) {
        let own = TurnId::from(InputId::derive(send.session.entity(), &send.key));
        if record.next.is_some_and(|next| next != own) && !received.is_sent_elsewhere() {
            let what = "`previous_response_id` is not the last response of its conversation, and only the \
                        last one can be gone on with";
            return Err(OpenAiError::unsupported("previous_response_id", what));
        }
    }
    let sent = Instant::now();
    let is_held = ask.has_schema
        || create.previous.is_some_and(|previous| previous.is_held)
        || gateway.backend.has_schema(ask.wanted.agent());
    let after = ask.wanted.after();
    let Ask { model, has_schema, wanted, .. } = ask;
    let following = match received.send(&gateway, wanted).await {
        Ok(following) => following,
        // All else was judged before.
        Err(error) if has_schema && error.code == ErrorCode::InvalidParams => {
            return Err(about("text.format", error));
        }
        Err(error) => return Err(create.in_own_words(of_model(&gateway, error, &model))),
    };
    let (session, turn) = (session_of(&following), following.accepted.turn);
    let id = ResponseId { session, turn, after, is_held };
    let created = gateway.options.clock.now().0 / 1_000;
    let label = ResponseLabel { id, created, model, echo: create.echo };
    let reply = ResponseReply::new(label, None);
    let Following { accepted, mut events } = following;
    if create.stream {
        let early = match Early::of(&gateway, &mut events, sent).await {
            Ok(early) => early,
            Err(refusal) => return Ok(refusal.respond()),
        };
        let reader = ResponseReader::new(gateway, reply, events, Some(sent));
        return Ok(stream::respond(reader, early, &accepted.session));
    }
    if create.background {
        return Ok(named(json(&reply.response(&Status::Queued)), &accepted.session));
    }
    let reader = ResponseReader::new(gateway, reply, events, Some(sent));
    Ok(whole(reader, &accepted.session).await)
}

/// The session that a response belongs to, if it can be gone on with as asked.
fn session_to_go_on_with(record: &TurnRecord, create: &Create) -> Result<SessionKey, OpenAiError> {
    let Some(session) = record.session.clone() else {
        let what = "the previous response is stored and not begun yet";
        return Err(ErrorBody::new(ErrorCode::Unavailable, what).hint("ask again soon").into());
    };
    if session.agent.as_str() != create.model {
        let what = format!("the previous response is of the model `{}`", session.agent);
        return Err(OpenAiError::invalid("model", what));
    }
    Ok(session)
}

/// Waits for the whole response.
async fn whole(mut reader: ResponseReader, session: &str) -> Response {
    let gateway = Arc::clone(&reader.gateway);
    let mut people = PersonWait::new(gateway.options.approval_patience);
    let mut told = Events::new();
    reader.reply.begin(&mut told);
    loop {
        let event = match people.next(&gateway, &mut reader.events).await {
            Heard::Event(Some(event)) => event,
            Heard::Event(None) => return OpenAiError::from(broken(&ResponseStep::Lost)).respond(),
            Heard::TooLong(request) => return approval::pending(&request, session),
        };
        told.clear();
        match reader.take(event, &mut told).await {
            ResponseStep::More | ResponseStep::Again | ResponseStep::Asks(_) => {}
            ResponseStep::Ended(Status::Failed(error)) => {
                drain(&mut reader);
                return OpenAiError::from(error).respond_ended();
            }
            ResponseStep::Ended(status) => {
                return named(json(&reader.reply.response(&status)), session);
            }
            // The client has no events: it does not matter that a reply was begun again.
            step @ (ResponseStep::Other | ResponseStep::Lost) => {
                return OpenAiError::from(broken(&step)).respond();
            }
        }
    }
}

fn drain(reader: &mut ResponseReader) {
    if let Some(sent) = reader.sent {
        super::super::stream::drain(&reader.gateway, &mut reader.events, sent);
    }
}

/// A JSON answer that names its session.
fn named(body: String, session: &str) -> Response {
    let mut response = rest::json(body);
    response.headers_mut().extend(approval::headers(None, session));
    response
}

/// Waits until a turn is more than stored, so that it can be cancelled.
async fn begun(
    gateway: &Gateway,
    id: &ResponseId,
    mut record_now: TurnRecord,
    until: tokio::time::Instant,
) -> Result<TurnRecord, OpenAiError> {
    while record_now.session.is_none() && tokio::time::Instant::now() < until {
        tokio::time::sleep(LOOK_AGAIN).await;
        record_now = record(gateway, id, &id.to_string(), "response_id").await?;
    }
    Ok(record_now)
}

/// The events of a response after this one, as they come.
async fn streamed(
    gateway: Arc<Gateway>,
    id: ResponseId,
    record: &TurnRecord,
    after: Option<EventNumber>,
) -> Result<Response, OpenAiError> {
    let Following { accepted, events } = follow(&gateway, &id).await?;
    let session = record.session.as_ref().map_or(accepted.session, ToString::to_string);
    let reply = ResponseReply::new(label(&gateway, id, record), after);
    let reader = ResponseReader::new(gateway, reply, events, None);
    Ok(stream::respond(reader, Early::default(), &session))
}
