//! One request to a provider over HTTP, and what its failures are called.
//!
//! TLS is rustls on ring, configured by value: nothing process-wide has to be installed first, and
//! the platform's certificates are read only when a provider on `https` is first called. Redirects
//! are not followed: they would take the key to another host.

use std::{
    error::Error,
    fmt, io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use clawnode_cluster::Clock;
use clawnode_proto::{
    ErrorChain, Timestamp,
    llm::{FailureClass, ModelFailure},
};
use clawnode_tool::egress::tls;
use reqwest::{
    Client, Response, Url,
    header::{CONTENT_TYPE, HeaderMap},
    redirect,
};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::timeout;

use super::{
    aws::AwsException,
    circuit::{CallPass, ProviderCircuit},
    options::ProviderOptions,
    retry::{asked_in, asked_wait},
};

/// Bytes of an error's body that are read (64 KiB); the rest cannot be the message.
const ERROR_BODY_BYTES: usize = 64 << 10;
/// Bytes of a reply that comes in one piece (8 MiB).
const WHOLE_BODY_BYTES: usize = 8 << 20;
/// Characters of a provider's message that are passed on.
const MESSAGE_CHARS: usize = 1_000;
/// The type of Amazon's event stream.
pub(super) const AMAZON_EVENTS: &str = "application/vnd.amazon.eventstream";
/// How long an unused connection is kept: shorter than servers keep it, so that a call does not
/// meet one that is just being closed.
const POOL_IDLE: Duration = Duration::from_secs(30);

/// How long a probe may take: those that it asks list what they have, which is quick.
const PROBE_TIME: Duration = Duration::from_secs(10);

/// A failed attempt.
#[derive(Debug)]
pub(super) struct AttemptFailure {
    pub(super) failure: ModelFailure,
    /// Whether the same request may work later.
    pub(super) again: bool,
    /// Whether the reply had begun and broke off.
    pub(super) in_reply: bool,
    /// How long the provider asks to wait.
    pub(super) after: Option<Duration>,
}

/// A request, ready to be sent any number of times.
#[derive(Clone)]
pub(super) struct Prepared {
    pub(super) url: Url,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    /// Whether it offers tools.
    pub(super) offers: bool,
}

/// An answer that may hold a reply.
#[derive(Debug)]
pub(super) enum HttpAnswer {
    /// Events, one after the other.
    Stream(Response),
    /// The whole reply as JSON, from a server that does not stream.
    Whole(Bytes),
}

/// The way to one provider.
#[derive(Debug)]
pub(super) struct Http {
    connect: Duration,
    idle: Duration,
    key: Option<SecretString>,
    clock: Arc<dyn Clock>,
    circuit: Arc<ProviderCircuit>,
    /// Made when it is first needed; the error is kept as text.
    client: OnceLock<Result<Client, String>>,
}

// === impl AttemptFailure ===

impl AttemptFailure {
    /// A failure that trying again cannot help.
    pub(super) fn last(class: FailureClass, message: impl Into<String>) -> Self {
        let failure = ModelFailure::new(class, message.into());
        Self { failure, again: false, in_reply: false, after: None }
    }

    /// A stream that makes no sense.
    pub(super) fn broken(message: impl fmt::Display) -> Self {
        Self::last(FailureClass::BrokenStream, format!("provider stream broken: {message}"))
    }

    /// Too long a silence.
    pub(super) fn silent(idle: Duration) -> Self {
        let message = format!("provider timeout: nothing for {} s", idle.as_secs_f64());
        Self::last(FailureClass::Timeout, message)
    }

    pub(super) const fn again(mut self, again: bool) -> Self {
        self.again = again;
        self
    }

    /// The reply broke off; another try may be whole.
    pub(super) const fn broke_off(mut self) -> Self {
        self.in_reply = true;
        self.again(true)
    }
}

// === impl Prepared ===

impl Prepared {
    /// One without content.
    pub(super) fn empty(url: Url, headers: HeaderMap) -> Self {
        Self { url, headers, body: Bytes::new(), offers: false }
    }

    /// A text from the other side without the secrets that it was sent: some servers quote a header that
    /// they refuse.
    fn without_secrets(&self, mut text: String) -> String {
        for value in self.headers.values().filter(|value| value.is_sensitive()) {
            if let Ok(secret) = value.to_str()
                && !secret.is_empty()
            {
                text = text.replace(secret, "[key]");
            }
        }
        text
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither headers (the key) nor body (what people said).
        f.debug_struct("Prepared").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

// === impl Http ===

impl Http {
    pub(super) fn new(
        options: &ProviderOptions,
        key: Option<SecretString>,
        clock: Arc<dyn Clock>,
        circuit: Arc<ProviderCircuit>,
    ) -> Self {
        let (connect, idle) = (options.connect_timeout, options.idle_timeout);
        Self { connect, idle, key, clock, circuit, client: OnceLock::new() }
    }

    /// Whether it may be used now.
    pub(super) const fn circuit(&self) -> &Arc<ProviderCircuit> {
        &self.circuit
    }

    /// The time of the process.
    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Sends the request and waits for the head of the answer.
    pub(super) async fn send(
        &self,
        request: &Prepared,
        pass: &CallPass,
    ) -> Result<HttpAnswer, AttemptFailure> {
        let sent = self
            .client(&request.url)?
            .post(request.url.clone())
            .headers(request.headers.clone())
            .body(request.body.clone())
            .send();
        let response = match timeout(self.connect + self.idle, sent).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(self.not_sent(&request.url, error)),
            Err(_elapsed) => return Err(AttemptFailure::silent(self.idle)),
        };
        pass.head(response.headers());
        if !response.status().is_success() {
            return Err(self.refused(request, response).await);
        }
        match media_type(response.headers()) {
            "" | "text/event-stream" | "application/x-ndjson" | AMAZON_EVENTS => {
                Ok(HttpAnswer::Stream(response))
            }
            "application/json" => {
                self.body(response, WHOLE_BODY_BYTES).await.map(HttpAnswer::Whole)
            }
            other => Err(AttemptFailure::broken(format_args!(
                "answered with `{}` instead of an event stream",
                self.clean(other)
            ))),
        }
    }

    /// Whether the provider answers this, whatever it says.
    pub(super) async fn reach(&self, request: &Prepared) -> Result<(), AttemptFailure> {
        let sent = self
            .client(&request.url)?
            .get(request.url.clone())
            .headers(request.headers.clone())
            .send();
        let most = PROBE_TIME.min(self.connect + self.idle);
        match timeout(most, sent).await {
            Ok(Ok(_answer)) => Ok(()),
            Ok(Err(error)) => Err(self.not_sent(&request.url, error)),
            Err(_elapsed) => Err(AttemptFailure::silent(most)),
        }
    }

    fn client(&self, url: &Url) -> Result<&Client, AttemptFailure> {
        let build = || {
            let text = |error: &(dyn Error + 'static)| ErrorChain(error).to_string();
            Client::builder()
                .tls_backend_preconfigured(
                    tls(url.scheme() == "https").map_err(|error| text(&error))?,
                )
                .user_agent(concat!("clawnode/", env!("CARGO_PKG_VERSION")))
                .redirect(redirect::Policy::none())
                .connect_timeout(self.connect)
                .pool_idle_timeout(POOL_IDLE)
                .build()
                .map_err(|error| text(&error))
        };
        match self.client.get_or_init(build) {
            Ok(client) => Ok(client),
            Err(why) => {
                let message = format!("provider unreachable: no TLS client: {why}");
                Err(AttemptFailure::last(FailureClass::Unreachable, message))
            }
        }
    }

    fn not_sent(&self, url: &Url, error: reqwest::Error) -> AttemptFailure {
        let is_connect = error.is_connect();
        let plain = not_connected(&error);
        let why = self.clean(&ErrorChain(&error.without_url()).to_string());
        if is_connect {
            let why = plain.unwrap_or(&why);
            let message = format!("provider unreachable: {url}: {why}");
            return AttemptFailure::last(FailureClass::Unreachable, message).again(true);
        }
        // The connection closed before a byte of an answer: a server that restarts, or that closes
        // an idle connection just now. The idempotency key guards against a second bill.
        AttemptFailure::broken(format_args!("{url}: no answer: {why}")).again(true)
    }

    async fn refused(&self, request: &Prepared, response: Response) -> AttemptFailure {
        let status = response.status();
        let after = asked_wait(response.headers(), self.clock.now());
        let may_retry = response.headers().get("x-should-retry").is_none_or(|v| v != "false");
        let location = response.headers().get("location").and_then(|v| v.to_str().ok());
        let moved = location.filter(|_| status.is_redirection()).map(|to| {
            // Only the host: the rest may hold a secret of the other side.
            let host = Url::parse(to).ok().and_then(|url| url.host_str().map(str::to_owned));
            let host = host.unwrap_or_else(|| "another path".to_owned());
            format!("the provider redirects to `{host}`: set `base_url`")
        });
        let exception = AwsException::of(response.headers());
        let body = self.body(response, ERROR_BODY_BYTES).await.unwrap_or_default();
        let message = moved.or_else(|| provider_message(&body)).unwrap_or_else(|| {
            let text = String::from_utf8_lossy(&body);
            format!("the provider answered {status} {text}")
        });
        // An account without credit gets no better by waiting.
        let quota = has_no_credit(&body);
        let class = match status.as_u16() {
            _ if quota => FailureClass::Rejected,
            400 if has_bad_key(&body) => FailureClass::Unauthorized,
            status => exception.as_ref().and_then(AwsException::class).unwrap_or(class_of(status)),
        };
        let after = after.or_else(|| asked_in(&error_in(&body)?));
        let message = self.clean(&request.without_secrets(message));
        let message = match &exception {
            Some(exception) => exception.advised(message),
            None => message,
        };
        let status = status.as_u16();
        let keeps_attachments =
            class == FailureClass::Rejected && (quota || !may_be_content(status, &message));
        let failure = ModelFailure::new(class, message);
        let failure = ModelFailure { status: Some(status), keeps_attachments, ..failure };
        // Some of Amazon's limits have the status of a bad request.
        let passes = passes(status) || class == FailureClass::RateLimited;
        let again = may_retry && !quota && passes;
        AttemptFailure { failure, again, in_reply: false, after }
    }

    /// The body up to `most` bytes; longer ones are refused.
    async fn body(&self, mut response: Response, most: usize) -> Result<Bytes, AttemptFailure> {
        let mut body = BytesMut::new();
        loop {
            match timeout(self.idle, response.chunk()).await {
                Ok(Ok(None)) => return Ok(body.freeze()),
                Ok(Ok(Some(chunk))) if body.len() + chunk.len() > most => {
                    return Err(AttemptFailure::broken(format_args!(
                        "the answer is over {most} bytes"
                    )));
                }
                Ok(Ok(Some(chunk))) => body.extend_from_slice(&chunk),
                Ok(Err(error)) => {
                    return Err(AttemptFailure::broken(ErrorChain(&error.without_url())));
                }
                Err(_elapsed) => return Err(AttemptFailure::silent(self.idle)),
            }
        }
    }

    /// A text from outside, fit to be shown: one line, bounded, without the key.
    pub(super) fn clean(&self, text: &str) -> String {
        let text = match &self.key {
            Some(key) => text.replace(key.expose_secret(), "[key]"),
            None => text.to_owned(),
        };
        let one_line = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
        one_line.take(MESSAGE_CHARS).collect()
    }
}

fn media_type(headers: &HeaderMap) -> &str {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim()
}

/// What kind of failure a status is.
pub(super) fn class_of(status: u16) -> FailureClass {
    match status {
        401 | 403 => FailureClass::Unauthorized,
        408 => FailureClass::Timeout,
        429 => FailureClass::RateLimited,
        500.. => FailureClass::Overloaded,
        _ => FailureClass::Rejected,
    }
}

/// Why there is no connection, in words; nothing if it is none of the usual reasons.
fn not_connected(error: &reqwest::Error) -> Option<&'static str> {
    if error.is_timeout() {
        return Some("it did not take the connection in time");
    }
    let mut cause = error.source();
    while let Some(one) = cause {
        match one.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::ConnectionRefused) => {
                return Some("the connection was refused: no server listens there");
            }
            Some(io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable) => {
                return Some("no network leads there");
            }
            // The connector has no type for it.
            None if one.to_string() == "dns error" => {
                return Some("the name of its host has no address");
            }
            _ => cause = one.source(),
        }
    }
    None
}

/// Whether a refusal with this status may pass by itself.
pub(super) fn passes(status: u16) -> bool {
    matches!(status, 408 | 429 | 500 | 502 | 503 | 504 | 529)
}

/// Whether a refusal may be about what the request says: about a picture in it, for example.
fn may_be_content(status: u16, message: &str) -> bool {
    // OpenRouter finds no provider that reads pictures, and says it with the status of a missing model.
    let is_about_pictures = message.to_ascii_lowercase().contains("image input");
    is_about_pictures || matches!(status, 400 | 413 | 415 | 422)
}

/// The message in an error's body, in the shapes that providers use.
pub(super) fn provider_message(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    message_in(body.get(0).unwrap_or(&body))
}

/// Whether a refusal is for want of money, in `OpenAI`'s words.
fn has_no_credit(body: &[u8]) -> bool {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return false };
    ["/error/code", "/error/type"]
        .iter()
        .any(|place| body.pointer(place).is_some_and(|word| word == "insufficient_quota"))
}

/// The error object in an error's body; Google's may be in a list.
fn error_in(body: &[u8]) -> Option<Value> {
    let mut body: Value = serde_json::from_slice(body).ok()?;
    let place = if body.is_array() { "/0/error" } else { "/error" };
    body.pointer_mut(place).map(Value::take)
}

/// Whether a bad request is one with a bad key, in Google's words.
fn has_bad_key(body: &[u8]) -> bool {
    let error = error_in(body).unwrap_or_default();
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    details.filter_map(|detail| detail.get("reason")).any(|reason| reason == "API_KEY_INVALID")
}

/// The message in an error object.
pub(super) fn message_in(body: &Value) -> Option<String> {
    let places = ["/error/message", "/error", "/message", "/Message", "/detail"];
    let found = places.iter().find_map(|place| body.pointer(place)?.as_str())?;
    (!found.trim().is_empty()).then(|| found.to_owned())
}

#[cfg(test)]
mod tests {
    use clawnode_cluster::SystemClock;

    use reqwest::header::HeaderValue;

    use super::*;
    use crate::llm::Wire;

    #[test]
    fn a_missing_model_is_no_refusal_of_what_was_asked() {
        for (status, message, is_content) in [
            (400, "no", true),
            (404, "the model `x` does not exist", false),
            (404, "No endpoints found that support image input", true),
            (409, "no", false),
        ] {
            assert_eq!(may_be_content(status, message), is_content, "{status} {message}");
        }
    }

    #[test]
    fn every_known_shape_of_an_error_is_read() {
        for (body, message) in [
            (
                r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
                "Overloaded",
            ),
            (r#"{"error":{"message":"Rate limit","type":"requests","code":null}}"#, "Rate limit"),
            (r#"{"error":"model 'x' not found"}"#, "model 'x' not found"),
            (r#"[{"error":{"code":400,"message":"no"}}]"#, "no"),
            (r#"{"object":"error","message":"too long"}"#, "too long"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (r#"{"Message":"not authorized"}"#, "not authorized"),
        ] {
            assert_eq!(provider_message(body.as_bytes()).as_deref(), Some(message));
        }
        for body in
            ["", "<html>", "{}", r#"{"error":{}}"#, r#"{"error":{"message":" "}}"#, "[]", "1"]
        {
            assert_eq!(provider_message(body.as_bytes()), None, "{body}");
        }
    }

    #[test]
    fn only_what_passes_is_tried_again() {
        let again: Vec<u16> = (300..600).filter(|status| passes(*status)).collect();
        assert_eq!(again, [408, 429, 500, 502, 503, 504, 529]);
    }

    #[test]
    fn what_a_request_had_in_secret_is_not_in_its_refusal() {
        let mut headers = HeaderMap::new();
        let mut secret = HeaderValue::from_static("s3cret");
        secret.set_sensitive(true);
        headers.insert("x-team", secret);
        headers.insert("x-plain", HeaderValue::from_static("plain"));
        let url = "http://127.0.0.1:1".parse().unwrap();
        let request = Prepared { url, headers, body: Bytes::new(), offers: false };
        let text = request.without_secrets("x-team `s3cret`, x-plain `plain`".to_owned());
        assert_eq!(text, "x-team `[key]`, x-plain `plain`");
    }

    #[test]
    fn foreign_text_is_one_bounded_line_without_the_key() {
        let options = ProviderOptions::new(Wire::Openai);
        let key = Some(SecretString::from("sk-hunter2"));
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let circuit = Arc::new(ProviderCircuit::new("p", "", Arc::clone(&clock)));
        let http = Http::new(&options, key, clock, circuit);
        assert_eq!(http.clean(" bad key sk-hunter2\r\n\u{1b}[31m "), "bad key [key]   [31m");
        assert_eq!(http.clean(&"é".repeat(5_000)).chars().count(), MESSAGE_CHARS);
        assert!(!format!("{http:?}").contains("hunter2"));
    }
}
