//! `http_fetch` reads what is on the web, and `http_post` sends something there, through the one way out.

use std::time::Duration;

use async_trait::async_trait;
use clawnode_proto::{
    ErrorChain, ToolName,
    tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::{
    Executor, ToolRun,
    append::append,
    arguments,
    egress::{
        Decoded, Egress, EgressError, EgressOptions, EgressReply, EgressRequest, HeaderBounds,
    },
    spec::BuiltIn,
};
use reqwest::{
    Method,
    header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

const HTTP_FETCH: &str = "http_fetch";
const HTTP_POST: &str = "http_post";
/// What a node needs to run it.
const CAPABILITY: &str = "egress";
/// Bytes of a body when nothing else is asked for (256 KiB): more than a model is shown of it.
const DEFAULT_BYTES: usize = 256 << 10;
/// Headers that a call may set, and their bytes together.
const HEADERS: HeaderBounds = HeaderBounds { most: 20, bytes: 8 << 10 };
/// Characters of a body that is sent: what fits into the arguments of a call.
const SENT_CHARS: usize = 100_000;
/// Headers of a reply that are worth reading.
const SHOWN_HEADERS: [&str; 9] = [
    "content-type",
    "content-length",
    "content-range",
    "last-modified",
    "etag",
    "location",
    "retry-after",
    "link",
    "www-authenticate",
];
/// Characters of one header of a reply.
const SHOWN_CHARS: usize = 500;
/// What a run may take beside the request itself.
const MARGIN: Duration = Duration::from_secs(5);

/// Fetches from the web, and sends to it.
#[derive(Clone, Debug)]
pub struct HttpFetch {
    egress: Egress,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FetchArguments {
    url: String,
    #[serde(default)]
    method: FetchMethod,
    #[serde(default)]
    headers: Map<String, Value>,
    max_bytes: Option<usize>,
    #[serde(default)]
    expect_success: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PostArguments {
    url: String,
    body: String,
    #[serde(default)]
    headers: Map<String, Value>,
    max_bytes: Option<usize>,
    #[serde(default)]
    expect_success: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum FetchMethod {
    #[default]
    Get,
    Head,
}

impl HttpFetch {
    /// It leaves through `egress`.
    pub const fn new(egress: Egress) -> Self {
        Self { egress }
    }

    async fn run(&self, mut run: ToolRun) -> Result<ToolOutcome, ToolOutcome> {
        let agent = run.agent.clone();
        let posts = run.tool.as_str() == HTTP_POST;
        let asked = if posts { post_request(&mut run)? } else { fetch_request(&mut run)? };
        let (request, expects_success) = asked;
        let told = |error: EgressError| {
            let why = ErrorChain(&error).to_string();
            let is_unclear = matches!(
                error,
                EgressError::Broken { .. }
                    | EgressError::TimedOut { .. }
                    | EgressError::Encoded { .. }
                    | EgressError::Interrupted(_)
            );
            let seen = if posts && is_unclear { "; the server may have received it" } else { "" };
            ToolOutcome::failed(error.failure(), format!("{why}{seen}"))
        };
        let reply = self.egress.fetch(Some(&agent), request).await.map_err(told)?;
        let outcome = tell(&reply);
        let is_unexpected = expects_success && !reply.status.is_success();
        // What was sent has arrived, whatever the reply is made of.
        let failure = outcome.failure.filter(|_| !posts);
        let failure = failure.or(is_unexpected.then_some(ToolFailure::Failed));
        Ok(ToolOutcome { failure, ..outcome })
    }
}

/// The request of a call, and whether a status that is no success fails the call.
fn fetch_request(run: &mut ToolRun) -> Result<(EgressRequest, bool), ToolOutcome> {
    let FetchArguments { url, method, headers, max_bytes, expect_success } = arguments::read(run)?;
    let method = match method {
        FetchMethod::Get => Method::GET,
        FetchMethod::Head => Method::HEAD,
    };
    let (headers, max_bytes) = (headers_of(&headers)?, max_bytes.unwrap_or(DEFAULT_BYTES));
    Ok((EgressRequest { url, method, body: None, headers, max_bytes }, expect_success))
}

/// The same for a call that sends a body.
fn post_request(run: &mut ToolRun) -> Result<(EgressRequest, bool), ToolOutcome> {
    let PostArguments { url, body, headers, max_bytes, expect_success } = arguments::read(run)?;
    let (mut headers, max_bytes) = (headers_of(&headers)?, max_bytes.unwrap_or(DEFAULT_BYTES));
    if !headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    let (method, body) = (Method::POST, Some(body.into_bytes().into()));
    Ok((EgressRequest { url, method, body, headers, max_bytes }, expect_success))
}

/// How `expect_success` of both tools is described.
fn expect_success() -> Value {
    json!({
        "type": "boolean",
        "description": "Fail unless the status is 2xx. Default: false.",
    })
}

fn headers_of(given: &Map<String, Value>) -> Result<HeaderMap, ToolOutcome> {
    // The schema has judged that all are texts.
    let given = given.iter().map(|(name, value)| (&**name, value.as_str().unwrap_or_default()));
    HEADERS.read(given).map_err(|why| ToolOutcome::failed(ToolFailure::Invalid, why))
}

/// How `http_post` is described.
fn post_spec(options: &EgressOptions) -> ToolSpec {
    let post = BuiltIn {
        name: HTTP_POST,
        description: "Sends a text to a URL of the public web with POST, and returns the status \
                      line, some headers and the body as text. It cannot reach private or local \
                      addresses and follows no redirects. A status such as 404 is a result, not \
                      an error.",
        input: json!({
            "type": "object",
            "properties": {
                "url": {
                    "type": "string",
                    "description": "Absolute, `http://` or `https://`.",
                    "examples": ["https://example.org/"],
                    "minLength": 8,
                    "maxLength": 8192,
                },
                "body": {
                    "type": "string",
                    "description": "What to send.",
                    "maxLength": SENT_CHARS,
                },
                "headers": {
                    "type": "object",
                    "description": "Request headers. Default: a `Content-Type` of \
                                    `application/json`.",
                    "additionalProperties": {"type": "string"},
                    "maxProperties": HEADERS.most,
                },
                "max_bytes": {
                    "type": "integer",
                    "description": "Bytes of the reply's body to read; the rest is cut off. \
                                    Default: 262144.",
                    "minimum": 1,
                    "maximum": options.max_body_bytes,
                },
                "expect_success": expect_success(),
            },
            "required": ["url", "body"],
            "additionalProperties": false,
        }),
        class: EffectClass::Once,
        risk: Risk::Write,
        capability: Some(CAPABILITY),
        timeout: options.total_timeout + MARGIN,
    };
    post.spec()
}

#[async_trait]
impl Executor for HttpFetch {
    fn reaches_out(&self, _tool: &ToolName) -> bool {
        true
    }

    fn tools(&self) -> Vec<ToolSpec> {
        let options = self.egress.options();
        let fetch = BuiltIn {
            name: HTTP_FETCH,
            description: "Fetches a URL from the public web and returns the status line, some \
                          headers and the body as text (HTML as it is). Use it to read a page, a \
                          document or an API that needs no login. It cannot reach private or \
                          local addresses, sends no body, and does not run scripts; up to a few \
                          redirects are followed. A status such as 404 is a result, not an error. \
                          Bodies that are not text are only named, with their type and size.",
            input: json!({
                "type": "object",
                "properties": {
                    "url": {
                        "type": "string",
                        "description": "Absolute, `http://` or `https://`.",
                        "examples": ["https://example.org/"],
                        "minLength": 8,
                        "maxLength": 8192,
                    },
                    "method": {
                        "type": "string",
                        "enum": ["GET", "HEAD"],
                        "description": "HEAD returns no body. Default: GET.",
                    },
                    "headers": {
                        "type": "object",
                        "description": "Request headers, for example `{\"Accept\": \
                                        \"application/json\"}`. Those of the connection itself \
                                        cannot be set.",
                        "additionalProperties": {"type": "string"},
                        "maxProperties": HEADERS.most,
                    },
                    "max_bytes": {
                        "type": "integer",
                        "description": "Bytes of the body to read; the rest is cut off. \
                                        Default: 262144.",
                        "minimum": 1,
                        "maximum": options.max_body_bytes,
                    },
                    "expect_success": expect_success(),
                },
                "required": ["url"],
                "additionalProperties": false,
            }),
            class: EffectClass::Safe,
            risk: Risk::ReadOnly,
            capability: Some(CAPABILITY),
            timeout: options.total_timeout + MARGIN,
        };
        vec![fetch.spec(), post_spec(options)]
    }

    async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        let posts = run.tool.as_str() == HTTP_POST;
        tokio::select! {
            outcome = self.run(run) => outcome.unwrap_or_else(|failed| failed),
            () = cancelled.cancelled() => {
                let why = if posts { "the server may have received the request" } else { "" };
                ToolOutcome::failed(ToolFailure::Cancelled, why)
            }
        }
    }

    async fn health_check(&self) -> Result<(), String> {
        self.egress.health_check().map_err(|error| ErrorChain(&error).to_string())
    }
}

/// A reply as text for the model.
fn tell(reply: &EgressReply) -> ToolOutcome {
    let mut text = format!("HTTP {}\n", reply.status);
    if reply.redirects > 0 {
        append(&mut text, format_args!("url: {} (after redirects)\n", reply.url));
    }
    for name in SHOWN_HEADERS {
        for value in reply.headers.get_all(name) {
            let shown: String =
                String::from_utf8_lossy(value.as_bytes()).chars().take(SHOWN_CHARS).collect();
            append(&mut text, format_args!("{name}: {shown}\n"));
        }
    }
    let header = |name: HeaderName| reply.headers.get(name).and_then(|value| value.to_str().ok());
    let kind = header(CONTENT_TYPE).unwrap_or_default();
    let body = &reply.body;
    let size = header(CONTENT_LENGTH).map_or_else(
        || format!("{}{} bytes", if body.is_cut { "more than " } else { "" }, body.bytes.len()),
        |length| format!("{length} bytes"),
    );
    match Decoded::of(&body.bytes, kind, body.is_cut) {
        Decoded::Text { text: shown, note } => {
            append(&mut text, format_args!("\n{shown}"));
            if body.is_cut {
                let read = body.bytes.len();
                append(&mut text, format_args!("\n[cut: the first {read} bytes of {size}]"));
            }
            if let Some(note) = note {
                append(&mut text, format_args!("\n[{note}]"));
            }
            ToolOutcome::done(text)
        }
        Decoded::Binary => {
            let kind = if kind.is_empty() { "an unknown type" } else { kind };
            append(
                &mut text,
                format_args!("\nThe body is not text and is not shown: {kind}, {size}."),
            );
            ToolOutcome::failed(ToolFailure::Failed, text)
        }
    }
}
