//! The one map from a condition to what each dialect says: HTTP status, JSON-RPC, OpenAI, Anthropic.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use clawnode_proto::{AgentName, ErrorBody, ErrorCode, view::AcceptedView};
use serde::Serialize;

/// Seconds after which a client may try again, for conditions that pass by themselves.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");

/// Whether a client may send the request again by itself; the clients of `OpenAI` obey it.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// The first parts, after `/v1/`, of the paths of `OpenAI`'s API. Most are not offered here, but their
/// clients read what says so.
const OPENAI_PATHS: [&str; 17] = [
    "assistants",
    "audio",
    "batches",
    "chat",
    "completions",
    "conversations",
    "embeddings",
    "files",
    "fine_tuning",
    "images",
    "models",
    "moderations",
    "realtime",
    "responses",
    "threads",
    "uploads",
    "vector_stores",
];

/// The same of Anthropic's API.
const ANTHROPIC_PATHS: [&str; 2] = ["complete", "messages"];

/// What Anthropic's clients say of themselves, under paths that both APIs have.
pub(super) const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// The status of an overloaded provider in Anthropic's API.
const OVERLOADED: u16 = 529;

/// What to do about a model that there is not.
const MODELS_HINT: &str = "see `/v1/models`";

/// As much of the name of a model that there is not as is repeated.
const MODEL_CHARS: usize = 80;

/// OpenAI's word for money that is spent.
const NO_QUOTA: &str = "insufficient_quota";

/// How a path's clients read errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ErrorDialect {
    /// `{"title","status","detail","code","hint"}`, as RFC 9457 has it.
    Rest,
    /// `{"id","error":{"code","message","data"}}`.
    Rpc,
    /// `{"error":{"message","type","param","code"}}`.
    OpenAi,
    /// `{"type":"error","error":{"type","message","code"}}`.
    Anthropic,
}

/// A refusal in OpenAI's terms: the error, the parameter it is about, and their own word for it.
#[derive(Clone, Debug)]
pub(super) struct OpenAiError {
    pub(super) body: ErrorBody,
    pub(super) param: Option<String>,
    word: Option<OpenAiWord>,
}

/// `OpenAI`'s own word for an error.
#[derive(Clone, Debug)]
enum OpenAiWord {
    Code(&'static str),
    /// `model_not_found`, of this model. Boxed, because functions answer with the whole refusal.
    NoModel(Box<str>),
}

/// A refusal in Anthropic's terms.
#[derive(Clone, Debug)]
pub(super) struct AnthropicError {
    body: ErrorBody,
    /// The model that there is not, if it is about one.
    unknown_model: Option<Box<str>>,
}

/// A problem of RFC 9457. Its `type` is left out, which means `about:blank`: `code` tells kinds of
/// problems apart.
#[derive(Serialize)]
struct ProblemBody<'a> {
    title: &'static str,
    status: u16,
    detail: &'a str,
    code: ErrorCode,
    #[serde(flatten)]
    turn: Option<&'a AcceptedView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
}

#[derive(Serialize)]
struct RpcErrorBody<'a> {
    code: i32,
    message: &'a str,
    data: &'a ErrorBody,
}

#[derive(Serialize)]
struct OpenAiEnvelope<'a> {
    error: OpenAiBody<'a>,
}

#[derive(Serialize)]
struct OpenAiBody<'a> {
    message: String,
    r#type: &'static str,
    param: Option<&'a str>,
    code: &'a str,
}

#[derive(Serialize)]
struct AnthropicEnvelope<'a> {
    r#type: &'static str,
    error: AnthropicBody<'a>,
}

#[derive(Serialize)]
struct AnthropicBody<'a> {
    r#type: &'static str,
    message: &'a str,
    /// Ours, which tells more conditions apart.
    code: ErrorCode,
}

// === impl ErrorDialect ===

impl ErrorDialect {
    pub(super) fn of(path: &str, headers: &HeaderMap) -> Self {
        if path == "/v1/rpc" {
            return Self::Rpc;
        }
        let first = path.strip_prefix("/v1/").map(|rest| rest.split('/').next().unwrap_or(rest));
        match first {
            Some(first) if ANTHROPIC_PATHS.contains(&first) => Self::Anthropic,
            Some(first) if OPENAI_PATHS.contains(&first) => {
                let is_anthropic = headers.contains_key(ANTHROPIC_VERSION);
                if is_anthropic { Self::Anthropic } else { Self::OpenAi }
            }
            _ => Self::Rest,
        }
    }

    /// The whole answer to a request that failed.
    pub(super) fn respond(self, error: &ErrorBody) -> Response {
        let status = if self == Self::Anthropic { anthropic_status(error) } else { status(error) };
        self.respond_with(status, error)
    }

    /// The same with a status of HTTP's own.
    pub(super) fn respond_with(self, status: StatusCode, error: &ErrorBody) -> Response {
        let mut response = match self {
            Self::Rest => problem(status, error, None),
            Self::Rpc => respond(error, rpc("null", error)),
            Self::OpenAi => OpenAiError::from(error.clone()).respond(),
            Self::Anthropic => AnthropicError::from(error.clone()).respond(),
        };
        *response.status_mut() = status;
        response
    }
}

/// The HTTP status of an error.
pub(super) fn status(error: &ErrorBody) -> StatusCode {
    StatusCode::from_u16(error.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A JSON-RPC answer to the request with this id (already JSON).
pub(super) fn rpc(id: &str, error: &ErrorBody) -> String {
    let inner = RpcErrorBody { code: error.code.rpc_code(), message: &error.message, data: error };
    format!(r#"{{"id":{id},"error":{}}}"#, json(&inner))
}

/// The whole answer of a turn that has ended so, or was lost sight of, with its names.
pub(super) fn ended(error: &ErrorBody, turn: &AcceptedView) -> Response {
    let mut response = problem(status(error), error, Some(turn));
    once(error, &mut response);
    response
}

/// Says that the request need not be sent again: its provider was asked again as often as it helps, and
/// sending it again would be another turn. Only a wait that the provider asks for is passed on, for those
/// who decide for themselves when to go on.
fn once(error: &ErrorBody, response: &mut Response) {
    let headers = response.headers_mut();
    headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
    if error.retry_after_ms.is_none() {
        headers.remove(header::RETRY_AFTER);
    }
}

/// An HTTP answer as RFC 9457 has it: `application/problem+json`. `code` and what follows are ours.
fn problem(status: StatusCode, error: &ErrorBody, turn: Option<&AcceptedView>) -> Response {
    let ErrorBody { code, message, hint, retry_after_ms } = error;
    let body = ProblemBody {
        title: status.canonical_reason().unwrap_or_else(|| code.as_str()),
        status: status.as_u16(),
        detail: message,
        code: *code,
        turn,
        hint: hint.as_deref(),
        retry_after_ms: *retry_after_ms,
    };
    let mut response = respond(error, json(&body));
    let kind = HeaderValue::from_static("application/problem+json");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// An HTTP answer with this JSON body and the error's status.
pub(super) fn respond(error: &ErrorBody, body: String) -> Response {
    let json = [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    let mut response = (status(error), json, body).into_response();
    let headers = response.headers_mut();
    if error.code == ErrorCode::Unauthorized {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if let Some(ms) = error.retry_after_ms {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000)));
    } else if is_passing(error.code) {
        headers.insert(header::RETRY_AFTER, RETRY_AFTER);
    }
    response.extensions_mut().insert(error.code);
    response
}

/// Our own types always have a JSON form; should one not, the client learns at least that.
pub(super) fn json<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).unwrap_or_else(|error| {
        tracing::error!(%error, what = std::any::type_name::<T>(), "cannot be written as JSON");
        r#"{"code":"internal","message":"the answer cannot be written as JSON"}"#.to_owned()
    })
}

fn no_model(model: &str) -> String {
    format!("the model `{model}` does not exist; models are this node's agents")
}

/// What to do about a model that there is not, with the names nearest to it.
fn models_hint(near: &[AgentName]) -> String {
    let names: Vec<String> = near.iter().map(|name| format!("`{name}`")).collect();
    if names.is_empty() {
        return MODELS_HINT.to_owned();
    }
    format!("nearest names: {}; `/v1/models` lists all of them", names.join(", "))
}

fn is_passing(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::Overloaded
            | ErrorCode::Unavailable
            | ErrorCode::ProviderRateLimited
            | ErrorCode::ProviderOverloaded
    )
}

// === impl OpenAiError ===

impl OpenAiError {
    /// A parameter that is wrong.
    pub(super) fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::from(ErrorBody::new(ErrorCode::InvalidParams, message)).about(param)
    }

    /// A parameter that this server does not offer.
    pub(super) fn unsupported(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::from(ErrorBody::new(ErrorCode::Unsupported, message)).about(param)
    }

    /// The same about a parameter.
    pub(super) fn about(self, param: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..self }
    }

    /// The refusal of a model that there is not.
    pub(super) fn no_model(model: &str) -> Self {
        let model: String = model.chars().take(MODEL_CHARS).collect();
        let body = ErrorBody::new(ErrorCode::NotFound, no_model(&model)).hint(MODELS_HINT);
        let word = Some(OpenAiWord::NoModel(model.into()));
        Self { body, param: Some("model".to_owned()), word }
    }

    /// The same with the names nearest to the model that there is not, if it is about one.
    pub(super) fn near(mut self, nearest: impl FnOnce(&str) -> Vec<AgentName>) -> Self {
        let hint = self.unknown_model().map(|model| models_hint(&nearest(&model)));
        self.body.hint = hint.or(self.body.hint);
        self
    }

    fn unknown_model(&self) -> Option<Box<str>> {
        match &self.word {
            Some(OpenAiWord::NoModel(model)) => Some(model.clone()),
            Some(OpenAiWord::Code(_)) | None => None,
        }
    }

    /// The refusal of a response or a chat completion that there is not.
    pub(super) fn no_response(id: &str, param: &str) -> Self {
        let message = format!("`{id}` does not exist, or was deleted with its session");
        let body = ErrorBody::new(ErrorCode::NotFound, message);
        let is_previous = param == "previous_response_id";
        let word = is_previous.then_some(OpenAiWord::Code("previous_response_not_found"));
        Self { body, param: Some(param.to_owned()), word }
    }

    /// The JSON of it.
    pub(super) fn to_json(&self) -> String {
        let ErrorBody { code, message, hint, retry_after_ms: _ } = &self.body;
        let message = match hint {
            Some(hint) => format!("{message} ({hint})"),
            None => message.clone(),
        };
        let code = match code {
            ErrorCode::Unauthorized => "invalid_api_key",
            ErrorCode::Bankrupt => NO_QUOTA,
            code => match self.word {
                Some(OpenAiWord::Code(word)) => word,
                Some(OpenAiWord::NoModel(_)) => "model_not_found",
                None => code.as_str(),
            },
        };
        let kind = self.kind();
        let error = OpenAiBody { message, r#type: kind, param: self.param.as_deref(), code };
        json(&OpenAiEnvelope { error })
    }

    /// The whole answer.
    pub(super) fn respond(&self) -> Response {
        respond(&self.body, self.to_json())
    }

    /// The whole answer of a turn that has ended so.
    pub(super) fn respond_ended(&self) -> Response {
        let mut response = self.respond();
        once(&self.body, &mut response);
        response
    }

    fn kind(&self) -> &'static str {
        match self.body.code.http_status() {
            // Clients tell it from limits that pass, and do not send the request again.
            _ if self.body.code == ErrorCode::Bankrupt => NO_QUOTA,
            429 => "rate_limit_error",
            500.. => "server_error",
            _ => "invalid_request_error",
        }
    }
}

impl From<ErrorBody> for OpenAiError {
    fn from(body: ErrorBody) -> Self {
        Self { body, param: None, word: None }
    }
}

// === impl AnthropicError ===

impl AnthropicError {
    /// A part of the request that is wrong.
    pub(super) fn invalid(path: &str, message: &str) -> Self {
        ErrorBody::new(ErrorCode::InvalidParams, format!("{path}: {message}")).into()
    }

    /// A part of the request that this server does not offer.
    pub(super) fn unsupported(path: &str, message: &str) -> Self {
        ErrorBody::new(ErrorCode::Unsupported, format!("{path}: {message}")).into()
    }

    /// The refusal of a model that there is not.
    pub(super) fn no_model(model: &str) -> Self {
        let error = OpenAiError::no_model(model);
        Self { unknown_model: error.unknown_model(), ..Self::about("model", error.body) }
    }

    /// The same with the names nearest to the model that there is not, if it is about one.
    pub(super) fn near(mut self, nearest: impl FnOnce(&str) -> Vec<AgentName>) -> Self {
        let hint = self.unknown_model.as_deref().map(|model| models_hint(&nearest(model)));
        self.body.hint = hint.or(self.body.hint);
        self
    }

    /// The same about a part of the request.
    pub(super) fn about(path: &str, error: ErrorBody) -> Self {
        let message = format!("{path}: {}", error.message);
        ErrorBody { message, ..error }.into()
    }

    /// The JSON of it.
    pub(super) fn to_json(&self) -> String {
        let ErrorBody { code, message, hint, retry_after_ms: _ } = &self.body;
        let message = match hint {
            Some(hint) => format!("{message} ({hint})"),
            None => message.clone(),
        };
        let error = AnthropicBody { r#type: self.kind(), message: &message, code: *code };
        json(&AnthropicEnvelope { r#type: "error", error })
    }

    /// The whole answer.
    pub(super) fn respond(&self) -> Response {
        let mut response = respond(&self.body, self.to_json());
        *response.status_mut() = anthropic_status(&self.body);
        response
    }

    /// The whole answer of a turn that has ended so.
    pub(super) fn respond_ended(&self) -> Response {
        let mut response = self.respond();
        once(&self.body, &mut response);
        response
    }

    fn kind(&self) -> &'static str {
        match anthropic_status(&self.body).as_u16() {
            401 => "authentication_error",
            403 => "permission_error",
            404 => "not_found_error",
            409 => "conflict_error",
            413 => "request_too_large",
            429 => "rate_limit_error",
            504 => "timeout_error",
            OVERLOADED => "overloaded_error",
            500.. => "api_error",
            _ => "invalid_request_error",
        }
    }
}

impl From<ErrorBody> for AnthropicError {
    fn from(body: ErrorBody) -> Self {
        Self { body, unknown_model: None }
    }
}

/// What both APIs judge alike. Its message says what it is about; parameters have other names here.
impl From<OpenAiError> for AnthropicError {
    fn from(error: OpenAiError) -> Self {
        Self { unknown_model: error.unknown_model(), ..error.body.into() }
    }
}

fn anthropic_status(error: &ErrorBody) -> StatusCode {
    match error.code {
        ErrorCode::ProviderOverloaded => StatusCode::from_u16(OVERLOADED).unwrap_or(status(error)),
        _ => status(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_an_http_status_that_exists() {
        for code in ErrorCode::ALL {
            let error = ErrorBody::new(*code, "x");
            assert_eq!(status(&error).as_u16(), code.http_status(), "{code}");
            assert!(status(&error).as_u16() >= 400, "{code}");
        }
    }

    #[test]
    fn the_four_dialects() {
        let error = ErrorBody::new(ErrorCode::Overloaded, "256 wait").hint("wait");
        assert_eq!(
            rpc("7", &error),
            r#"{"id":7,"error":{"code":-32015,"message":"256 wait","data":{"code":"overloaded","message":"256 wait","hint":"wait"}}}"#
        );
        assert_eq!(
            OpenAiError::from(error).to_json(),
            r#"{"error":{"message":"256 wait (wait)","type":"rate_limit_error","param":null,"code":"overloaded"}}"#
        );
        assert_eq!(
            OpenAiError::invalid("n", "only one").to_json(),
            r#"{"error":{"message":"only one","type":"invalid_request_error","param":"n","code":"invalid_params"}}"#
        );
        assert_eq!(
            AnthropicError::invalid("system", "no text").to_json(),
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"system: no text","code":"invalid_params"}}"#
        );
        let spent = ErrorBody::new(ErrorCode::Bankrupt, "spent");
        assert_eq!(
            OpenAiError::from(spent.clone()).to_json(),
            r#"{"error":{"message":"spent","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}"#
        );
        let response = OpenAiError::from(spent.clone()).respond_ended();
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers().get(header::RETRY_AFTER), None, "it does not pass by itself");
        assert!(AnthropicError::from(spent).to_json().contains(r#""type":"rate_limit_error""#));
        let overloaded =
            AnthropicError::from(ErrorBody::new(ErrorCode::ProviderOverloaded, "later"));
        assert_eq!(overloaded.respond().status().as_u16(), OVERLOADED);
        assert!(overloaded.to_json().contains(r#""type":"overloaded_error""#));
    }

    #[test]
    fn an_unknown_model_is_repeated_in_part_and_gets_the_nearest_names() {
        let long = "m".repeat(1_000);
        let asked = |model: &str| {
            assert_eq!(model.len(), MODEL_CHARS);
            vec!["default".parse().unwrap(), "ops".parse().unwrap()]
        };
        let names = "nearest names: `default`, `ops`; `/v1/models` lists all of them";
        let openai = OpenAiError::no_model(&long).near(asked).to_json();
        let anthropic = AnthropicError::no_model(&long).near(asked).to_json();
        for json in [openai, anthropic] {
            assert!(json.contains(names) && json.len() < 400, "{json}");
        }
        let none = OpenAiError::no_model("gpt").near(|_| Vec::new()).to_json();
        assert!(none.contains("(see `/v1/models`)"), "{none}");
        let other = ErrorBody::new(ErrorCode::NotFound, "no file").hint("upload it");
        let other = OpenAiError::from(other).near(|_| panic!("it is about no model")).to_json();
        assert!(other.contains("no file (upload it)"), "{other}");
    }

    #[test]
    fn a_path_and_the_client_say_which_dialect() {
        let (mut headers, none) = (HeaderMap::new(), HeaderMap::new());
        headers.insert(ANTHROPIC_VERSION, HeaderValue::from_static("2023-06-01"));
        for (path, headers, dialect) in [
            ("/v1/rpc", &none, ErrorDialect::Rpc),
            ("/v1/status", &headers, ErrorDialect::Rest),
            ("/v1/models", &none, ErrorDialect::OpenAi),
            ("/v1/models/x", &headers, ErrorDialect::Anthropic),
            ("/v1/messages", &none, ErrorDialect::Anthropic),
            ("/v1/messages/batches", &none, ErrorDialect::Anthropic),
        ] {
            assert_eq!(ErrorDialect::of(path, headers), dialect, "{path}");
        }
    }
}
