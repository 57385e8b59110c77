//! Files of a session: uploaded ahead of the messages that name them, and read again.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Path, RawQuery, Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use clawnode_proto::{
    EntityId, ErrorBody, ErrorCode, FileId, SessionKey,
    limits::FILE_BYTES,
    media::{FileView, MediaKind},
};
use futures_util::{StreamExt as _, stream::BoxStream};
use tokio::time::timeout;

use super::{
    backend::SessionRef,
    error::{ErrorDialect, json},
    gateway::Gateway,
    params::{invalid, parse},
    rest,
    route::{QueryKind, query},
};

/// Uploads at the same time: each holds one part of its file (5 MB) in memory, twice while it is stored.
pub(super) const UPLOADS: usize = 4;
/// The longest time for one upload: 50 MB over a slow line.
const UPLOAD_TIME: Duration = Duration::from_mins(10);

/// Content of a file, as it comes.
pub(super) type FileContent = BoxStream<'static, Result<Bytes, ErrorBody>>;

/// `POST /v1/sessions/{session}/files`: the body is the file.
pub(super) async fn upload(
    State(gateway): State<Arc<Gateway>>,
    Path(session): Path<String>,
    RawQuery(query_text): RawQuery,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let stored = async {
        let session = key_of(&session)?;
        let params = query(query_text.as_deref(), &[("name", QueryKind::Text)]);
        let name = params.get("name").and_then(|name| name.as_str()).map(str::to_owned);
        check_length(&headers, 0)?;
        let content = content(request.into_body(), gateway.options.body_deadline);
        uploading(&gateway, gateway.backend.store_file(session, name, content)).await
    };
    match stored.await {
        Ok(file) => (StatusCode::CREATED, rest::json(json(&file))).into_response(),
        Err(error) => ErrorDialect::Rest.respond(&error),
    }
}

/// Does what stores a file once there is a place for it, within the time for one upload.
pub(super) async fn uploading(
    gateway: &Gateway,
    storing: impl Future<Output = Result<FileView, ErrorBody>>,
) -> Result<FileView, ErrorBody> {
    let place = timeout(gateway.options.body_deadline, gateway.uploads.acquire()).await;
    let Ok(Ok(_place)) = place else {
        let message = format!("{UPLOADS} uploads run already");
        return Err(ErrorBody::new(ErrorCode::Overloaded, message).hint("try again later"));
    };
    timeout(UPLOAD_TIME, storing).await.unwrap_or_else(|_elapsed| {
        let minutes = UPLOAD_TIME.as_secs() / 60;
        let message = format!("the upload took longer than {minutes} min");
        Err(ErrorBody::new(ErrorCode::Malformed, message))
    })
}

/// `GET /v1/sessions/{session}/files/{file}`: the file itself. A document is never shown as a page of
/// this origin.
pub(super) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Path((session, file)): Path<(String, String)>,
) -> Response {
    let found = async {
        let session: SessionRef = parse("session", &session)?;
        let file: FileId = parse("file", &file)?;
        gateway.backend.file(session.id, file).await
    };
    match found.await {
        Ok((file, content)) => respond(&file, content),
        Err(error) => ErrorDialect::Rest.respond(&error),
    }
}

/// The file itself, as an answer.
pub(super) fn respond(file: &FileView, content: FileContent) -> Response {
    let is_document = file.media_type.kind() == MediaKind::Document;
    let disposition = if is_document { "attachment" } else { "inline" };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(file.media_type.as_str())),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static(disposition)),
        (header::CONTENT_LENGTH, HeaderValue::from(file.bytes)),
    ];
    let content = content.map(|part| part.map_err(|error| std::io::Error::other(error.message)));
    (headers, Body::from_stream(content)).into_response()
}

/// A file is stored under a session's key: an id alone may be of none.
pub(super) fn key_of(session: &str) -> Result<EntityId, ErrorBody> {
    let key: Result<SessionKey, _> = session.parse();
    key.map(|key| key.entity()).map_err(|problem| {
        invalid(format!("parameter `session`: {problem}"))
            .hint("name the session by its key, `AGENT:CHANNEL:ACCOUNT:PEER`")
    })
}

/// Refuses what says itself that it is too large, with so many bytes beside the file.
pub(super) fn check_length(headers: &HeaderMap, beside: u64) -> Result<(), ErrorBody> {
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    match length.and_then(|length| length.parse::<u64>().ok()) {
        Some(length) if length > FILE_BYTES as u64 + beside => {
            let message = format!("the file takes {length} bytes, the limit is {FILE_BYTES}");
            Err(ErrorBody::new(ErrorCode::TooLarge, message).hint("upload a smaller one"))
        }
        Some(_) | None => Ok(()),
    }
}

/// The content of a body, for as long as it keeps coming.
pub(super) fn content(body: Body, patience: Duration) -> FileContent {
    let broken = |message: String| ErrorBody::new(ErrorCode::Malformed, message);
    let pieces =
        futures_util::stream::unfold(Some(body.into_data_stream()), move |pieces| async move {
            let mut pieces = pieces?;
            match timeout(patience, pieces.next()).await {
                Ok(Some(Ok(piece))) => Some((Ok(piece), Some(pieces))),
                Ok(Some(Err(error))) => {
                    Some((Err(broken(format!("the body ended early: {error}"))), None))
                }
                Ok(None) => None,
                Err(_elapsed) => {
                    let seconds = patience.as_secs();
                    Some((Err(broken(format!("the body stopped for {seconds} s"))), None))
                }
            }
        });
    // What is refused at its end is asked for the rest once more.
    pieces.fuse().boxed()
}
