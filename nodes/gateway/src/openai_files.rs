//! `/v1/files` for `OpenAI`'s clients: the files of a session, or of none.
//!
//! The header `Clawnode-Session` names the session. Files of requests without it are kept together: a message to
//! any session may name them, and gets their content; they are removed a day after their upload.

use std::sync::Arc;

use axum::{
    extract::{Path, Request, State},
    http::HeaderMap,
    response::Response,
};
use bytes::Bytes;
use clawnode_proto::{
    EntityId, ErrorBody, ErrorCode, FileId,
    media::{FileView, shared_files},
};
use futures_util::{StreamExt as _, future, stream};
use serde::Serialize;
use tokio::{sync::mpsc, time::timeout};

use super::{
    backend::SessionRef,
    error::{ANTHROPIC_VERSION, OpenAiError, json},
    gateway::Gateway,
    multipart::{FormDecoder, FormError, FormPart, FormPiece},
    openai::SESSION,
    params::{invalid, parse},
    rest,
    session_files::{self, FileContent},
};

/// The part of a form with the file.
const FILE: &str = "file";
/// The part of a form that says what the file is for.
const PURPOSE: &str = "purpose";
/// What a file may be for. All of them mean the same here: messages name it.
const PURPOSES: [&str; 3] = ["user_data", "vision", "assistants"];
/// What is answered of each.
const ANSWERED_PURPOSE: &str = "user_data";
/// A value in a form that is no file.
const VALUE_BYTES: usize = 100;
/// Parts of a form.
const PARTS: usize = 8;
/// What a form has beside the file, at most.
const FORM_BYTES: u64 = 64 << 10;

/// A file, as OpenAI's API has it.
#[derive(Serialize)]
struct FileObject {
    id: FileId,
    object: &'static str,
    bytes: u64,
    created_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<u64>,
    filename: String,
    purpose: &'static str,
    status: &'static str,
}

#[derive(Serialize)]
struct FilePage {
    object: &'static str,
    first_id: Option<FileId>,
    last_id: Option<FileId>,
    data: Vec<FileObject>,
    has_more: bool,
}

#[derive(Serialize)]
struct DeletedFile {
    id: FileId,
    object: &'static str,
    deleted: bool,
}

/// A form with a file, as it comes.
struct FileForm {
    decoder: FormDecoder,
    body: FileContent,
    parts: usize,
    /// The part that comes now is the file.
    is_file: bool,
    /// What has come of this part.
    purpose: Vec<u8>,
}

/// A form with a file, piece by piece.
enum FileEvent {
    /// The file begins, which may have a name.
    Begun(Option<String>),
    Content(Bytes),
    /// The form is complete.
    Over,
}

/// `POST /v1/files`: a form with the parts `file` and `purpose`, in any order.
pub(super) async fn create(State(gateway): State<Arc<Gateway>>, request: Request) -> Response {
    let headers = request.headers().clone();
    if headers.contains_key(ANTHROPIC_VERSION) {
        return rest::nowhere(State(gateway), request).await;
    }
    let patience = gateway.options.body_deadline;
    let mut body = session_files::content(request.into_body(), patience);
    let stored = match readable(&headers) {
        Ok((session, decoder)) => {
            let mut form = FileForm::new(decoder, body);
            let stored = session_files::uploading(&gateway, form.store(&gateway, session)).await;
            body = form.body;
            stored
        }
        Err(refused) => Err(refused),
    };
    let refused = match stored {
        Ok(file) => return rest::json(json(&FileObject::from(file))),
        Err(refused) => refused,
    };
    // A client that still sends its file would not read the answer.
    if timeout(patience, drop_rest(&mut body)).await.is_err() {
        tracing::debug!("the rest of a form that is refused came too slowly");
    }
    respond(refused)
}

/// The session of an upload, and what reads its form.
fn readable(headers: &HeaderMap) -> Result<(EntityId, FormDecoder), ErrorBody> {
    let session = session_of_upload(headers)?;
    session_files::check_length(headers, FORM_BYTES)?;
    Ok((session, FormDecoder::new(headers).map_err(of_form)?))
}

/// `GET /v1/files`.
pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    if headers.contains_key(ANTHROPIC_VERSION) {
        return rest::nowhere(State(gateway), request).await;
    }
    let found = async { gateway.backend.files(session_of(&headers)?).await };
    match found.await {
        Ok(files) => {
            let data: Vec<FileObject> = files.into_iter().rev().map(FileObject::from).collect();
            let (first_id, last_id) =
                (data.first().map(|file| file.id), data.last().map(|file| file.id));
            rest::json(json(&FilePage { object: "list", first_id, last_id, data, has_more: false }))
        }
        Err(error) => respond(error),
    }
}

/// `GET /v1/files/{file}`.
pub(super) async fn show(
    State(gateway): State<Arc<Gateway>>,
    Path(file): Path<String>,
    headers: HeaderMap,
) -> Response {
    let found = async {
        gateway.backend.file(session_of(&headers)?, named(&file)?).await.map(|(view, _)| view)
    };
    match found.await {
        Ok(file) => rest::json(json(&FileObject::from(file))),
        Err(error) => respond(error),
    }
}

/// `GET /v1/files/{file}/content`.
pub(super) async fn content(
    State(gateway): State<Arc<Gateway>>,
    Path(file): Path<String>,
    headers: HeaderMap,
) -> Response {
    let found = async { gateway.backend.file(session_of(&headers)?, named(&file)?).await };
    match found.await {
        Ok((file, content)) => session_files::respond(&file, content),
        Err(error) => respond(error),
    }
}

/// `DELETE /v1/files/{file}`.
pub(super) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Path(file): Path<String>,
    headers: HeaderMap,
) -> Response {
    let deleted = async {
        let file = named(&file)?;
        gateway.backend.delete_file(session_of(&headers)?, file).await?;
        Ok::<_, ErrorBody>(file)
    };
    match deleted.await {
        Ok(id) => rest::json(json(&DeletedFile { id, object: FILE, deleted: true })),
        Err(error) => respond(error),
    }
}

fn respond(error: ErrorBody) -> Response {
    let is_about = |name: &&str| error.message.contains(&format!("`{name}`"));
    match [PURPOSE, FILE].into_iter().find(is_about) {
        Some(param) => OpenAiError::from(error).about(param).respond(),
        None => OpenAiError::from(error).respond(),
    }
}

/// The session that the header names, or the one for files of no session.
fn session_of(headers: &HeaderMap) -> Result<EntityId, ErrorBody> {
    match session_header(headers)? {
        Some(session) => Ok(parse::<SessionRef>("Clawnode-Session", session)?.id),
        None => Ok(shared_files()),
    }
}

/// The same for an upload, which may be the first that there is of its session.
fn session_of_upload(headers: &HeaderMap) -> Result<EntityId, ErrorBody> {
    session_header(headers)?.map_or_else(|| Ok(shared_files()), session_files::key_of)
}

fn session_header(headers: &HeaderMap) -> Result<Option<&str>, ErrorBody> {
    let Some(value) = headers.get(SESSION) else { return Ok(None) };
    let text = value.to_str();
    text.map(Some).map_err(|error| invalid(format!("header `Clawnode-Session`: {error}")))
}

fn named(file: &str) -> Result<FileId, ErrorBody> {
    parse("file_id", file)
}

fn of_form(error: FormError) -> ErrorBody {
    invalid(error.to_string()).hint("send a form with the parts `file` and `purpose`")
}

async fn drop_rest(body: &mut FileContent) {
    let mut dropped = 0_usize;
    while dropped < rest::DROPPED_BYTES
        && let Some(Ok(piece)) = body.next().await
    {
        dropped = dropped.saturating_add(piece.len());
    }
}

fn missing(part: &str) -> ErrorBody {
    invalid(format!("part `{part}` of the form is missing"))
        .hint("send a form with the parts `file` and `purpose`")
}

// === impl FileObject ===

impl From<FileView> for FileObject {
    fn from(file: FileView) -> Self {
        let filename =
            file.name.unwrap_or_else(|| format!("{}.{}", file.file, file.media_type.extension()));
        Self {
            id: file.file,
            object: FILE,
            bytes: file.bytes,
            created_at: file.at.0 / 1_000,
            expires_at: file.expires_at.map(|at| at.0 / 1_000),
            filename,
            purpose: ANSWERED_PURPOSE,
            status: "processed",
        }
    }
}

// === impl FileForm ===

impl FileForm {
    fn new(decoder: FormDecoder, body: FileContent) -> Self {
        Self { decoder, body, parts: 0, is_file: false, purpose: Vec::new() }
    }

    /// Stores the file. What is wrong after it leaves nothing of it.
    async fn store(&mut self, gateway: &Gateway, session: EntityId) -> Result<FileView, ErrorBody> {
        let FileEvent::Begun(name) = self.next().await? else { return Err(missing(FILE)) };
        let (sender, receiver) = mpsc::channel(1);
        let content = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|piece| (piece, receiver))
        });
        let storing = gateway.backend.store_file(session, name, content.boxed());
        let (stored, ()) = future::join(storing, self.pass_on(sender)).await;
        stored
    }

    /// Passes the content of the file on, and judges the rest of the form. Ends early if the file is refused.
    async fn pass_on(&mut self, sender: mpsc::Sender<Result<Bytes, ErrorBody>>) {
        loop {
            let piece = match self.next().await {
                Ok(FileEvent::Content(bytes)) => Ok(bytes),
                Ok(FileEvent::Begun(_)) => Err(invalid("the form has more than one part `file`")),
                Ok(FileEvent::Over) => return,
                Err(failure) => Err(failure),
            };
            let is_refused = piece.is_err();
            if sender.send(piece).await.is_err() || is_refused {
                return;
            }
        }
    }

    async fn next(&mut self) -> Result<FileEvent, ErrorBody> {
        loop {
            match self.piece().await? {
                FormPiece::Part(part) => {
                    self.begin(&part)?;
                    if self.is_file {
                        return Ok(FileEvent::Begun(part.file_name));
                    }
                }
                FormPiece::Content(bytes) if self.is_file => return Ok(FileEvent::Content(bytes)),
                FormPiece::Content(bytes) => {
                    self.purpose.extend_from_slice(&bytes);
                    if self.purpose.len() > VALUE_BYTES {
                        return Err(invalid("part `purpose` of the form is too long"));
                    }
                }
                FormPiece::Over if self.purpose.is_empty() => return Err(missing(PURPOSE)),
                FormPiece::Over => return self.judge().map(|()| FileEvent::Over),
            }
        }
    }

    fn begin(&mut self, part: &FormPart) -> Result<(), ErrorBody> {
        // Before the file comes, if it can be known.
        self.judge()?;
        self.parts += 1;
        if self.parts > PARTS {
            return Err(invalid(format!("the form has more than {PARTS} parts")));
        }
        self.is_file = part.name == FILE;
        if !self.is_file && part.name != PURPOSE {
            let name: String = part.name.chars().take(VALUE_BYTES).collect();
            let message = format!("part `{name}` of the form is not offered");
            let hint = "leave it out; a file that no message names is kept for a day";
            return Err(ErrorBody::new(ErrorCode::Unsupported, message).hint(hint));
        }
        Ok(())
    }

    /// Judges the purpose, if it has come.
    fn judge(&self) -> Result<(), ErrorBody> {
        let purpose = String::from_utf8_lossy(&self.purpose);
        if purpose.is_empty() || PURPOSES.contains(&purpose.trim()) {
            return Ok(());
        }
        let message =
            format!("parameter `purpose`: files for `{}` are of no use here", purpose.trim());
        let hint = "send `user_data`, `vision` or `assistants`: all of them mean that messages name the file";
        Err(ErrorBody::new(ErrorCode::Unsupported, message).hint(hint))
    }

    async fn piece(&mut self) -> Result<FormPiece, ErrorBody> {
        loop {
            if let Some(piece) = self.decoder.next().map_err(of_form)? {
                return Ok(piece);
            }
            let more = self.body.next().await;
            let ended = || Err(ErrorBody::new(ErrorCode::Malformed, "the form ended early"));
            self.decoder.feed(&more.unwrap_or_else(ended)?);
        }
    }
}
