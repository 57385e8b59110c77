//! `OpenAI`'s Chat Completions API, as its inventor and as compatible servers speak it.
//!
//! The proper end is a finish reason and then `[DONE]`; one without the other is a failure. Usage
//! comes in a last chunk without choices, in every chunk, or not at all.

use clawnode_proto::llm::{FailureClass, ModelFailure, Role, StopReason, Usage};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    ModelRequest,
    call::{Decoder, Dialect, Piece, headers, sensitive},
    http::{Fault, Prepared, class_of, message_in, passes},
    options::BaseUrl,
    prompt::alternate,
    sse::Event,
    tell::Finish,
};

/// The inventor's own host: it wants `max_completion_tokens`, which compatible servers do not know.
const OWN_HOST: &str = "api.openai.com";
/// The data of the last event.
const DONE: &str = "[DONE]";

/// The wire.
#[derive(Debug)]
pub(super) struct OpenAi {
    pub(super) base: BaseUrl,
    pub(super) key: Option<SecretString>,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Said<'a>>,
    stream: bool,
    stream_options: StreamOptions,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_completion_tokens: Option<u32>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    stop: &'a [String],
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Serialize)]
struct Said<'a> {
    role: &'static str,
    content: &'a str,
}

// === impl OpenAi ===

impl Dialect for OpenAi {
    fn provider(&self) -> &'static str {
        "openai"
    }

    fn prepare(&self, request: ModelRequest) -> Result<Prepared, ModelFailure> {
        let own = self.base.host() == OWN_HOST;
        let conversation = alternate(request.messages)?;
        let system = request.system.trim();
        let system = (!system.is_empty()).then_some(Said { role: "system", content: system });
        let said = conversation.iter().map(|message| {
            let role = match message.role {
                Role::User => "user",
                Role::Assistant => "assistant",
            };
            Said { role, content: &message.text }
        });
        let limit = request.sampling.max_tokens;
        let body = Body {
            model: &request.model,
            messages: system.into_iter().chain(said).collect(),
            stream: true,
            stream_options: StreamOptions { include_usage: true },
            temperature: request.sampling.temperature,
            max_tokens: limit.filter(|_| !own),
            max_completion_tokens: limit.filter(|_| own),
            stop: &request.sampling.stop,
        };
        let mut headers = headers(&request.idempotency_key);
        if let Some(key) = &self.key {
            let bearer = sensitive(&format!("Bearer {}", key.expose_secret()));
            bearer.and_then(|bearer| headers.insert("authorization", bearer));
        }
        let body = serde_json::to_vec(&body).map_err(|error| ModelFailure {
            class: FailureClass::Rejected,
            message: format!("not sent: {error}"),
            status: None,
        })?;
        Ok(Prepared { url: self.base.join("chat/completions"), headers, body: body.into() })
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(Reader::default())
    }
}

// === the reply ===

/// A chunk, or a whole completion: they differ in where a choice keeps its text.
#[derive(Deserialize)]
struct Chunk {
    model: Option<String>,
    choices: Option<Vec<Choice>>,
    usage: Option<Counts>,
    error: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    index: u32,
    #[serde(alias = "message")]
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    tool_calls: Option<Vec<Value>>,
    function_call: Option<Value>,
}

#[derive(Deserialize)]
struct Counts {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
}

#[derive(Deserialize)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

/// Reads one reply.
#[derive(Default)]
pub(super) struct Reader {
    begun: bool,
    model: String,
    refused: bool,
    usage: Usage,
    stop: Option<StopReason>,
}

impl Decoder for Reader {
    fn event(&mut self, event: &Event, pieces: &mut Vec<Piece>) -> Result<(), Fault> {
        if event.data.trim() == DONE {
            return self.end(pieces);
        }
        self.chunk(serde_json::from_str(&event.data).map_err(Fault::broken)?, pieces)
    }

    fn whole(&mut self, body: &[u8], pieces: &mut Vec<Piece>) -> Result<(), Fault> {
        self.chunk(serde_json::from_slice(body).map_err(Fault::broken)?, pieces)?;
        self.end(pieces)
    }
}

impl Reader {
    fn chunk(&mut self, chunk: Chunk, pieces: &mut Vec<Piece>) -> Result<(), Fault> {
        if let Some(error) = chunk.error {
            return Err(self.trouble(&error));
        }
        if chunk.choices.is_none() && chunk.usage.is_none() {
            return Err(Fault::broken("neither a chunk nor an error"));
        }
        self.begun = true;
        if let Some(model) = chunk.model.filter(|model| !model.is_empty()) {
            self.model = model;
        }
        for choice in chunk.choices.unwrap_or_default() {
            self.choice(choice, pieces)?;
        }
        if let Some(counts) = chunk.usage {
            self.usage = counts.usage();
            pieces.push(Piece::Usage(self.usage));
        }
        Ok(())
    }

    fn choice(&mut self, choice: Choice, pieces: &mut Vec<Piece>) -> Result<(), Fault> {
        if choice.index != 0 {
            return Err(Fault::broken("a second choice, and one was asked for"));
        }
        if let Some(delta) = choice.delta {
            if delta.tool_calls.is_some_and(|calls| !calls.is_empty())
                || delta.function_call.is_some()
            {
                return Err(unasked_tool());
            }
            let refusal = delta.refusal.filter(|text| !text.is_empty());
            self.refused |= refusal.is_some();
            let text = delta.content.filter(|text| !text.is_empty());
            for text in text.into_iter().chain(refusal) {
                if self.stop.is_some() {
                    return Err(Fault::broken("text after the finish reason"));
                }
                pieces.push(Piece::Text(text));
            }
        }
        if let Some(reason) = choice.finish_reason {
            self.stop = Some(match reason.as_str() {
                "stop" => StopReason::EndTurn,
                "length" => StopReason::MaxTokens,
                "content_filter" => StopReason::Refusal,
                "tool_calls" | "function_call" => return Err(unasked_tool()),
                _ => StopReason::Other { reason },
            });
        }
        Ok(())
    }

    fn end(&mut self, pieces: &mut Vec<Piece>) -> Result<(), Fault> {
        let Some(stop) = self.stop.take() else {
            return Err(Fault::broken("`[DONE]` without a finish reason"));
        };
        let stop = if self.refused { StopReason::Refusal } else { stop };
        let model = std::mem::take(&mut self.model);
        pieces.push(Piece::End(Finish { stop, usage: self.usage, model }));
        Ok(())
    }

    /// An error in the place of a chunk. As the first one it may be tried again.
    fn trouble(&self, error: &Value) -> Fault {
        let code = error.get("code");
        let status = code
            .and_then(|code| code.as_u64().or_else(|| code.as_str()?.parse().ok()))
            .and_then(|code| u16::try_from(code).ok())
            .filter(|code| (400..600).contains(code));
        let kind = error.get("type").or(code).and_then(Value::as_str).unwrap_or_default();
        let (class, again) = match (status, kind) {
            (Some(status), _) => (class_of(status), passes(status)),
            (None, "server_error" | "overloaded" | "overloaded_error" | "service_unavailable") => {
                (FailureClass::Overloaded, true)
            }
            (None, "rate_limit_exceeded" | "rate_limit_error" | "requests" | "tokens") => {
                (FailureClass::RateLimited, true)
            }
            (None, "invalid_request_error" | "insufficient_quota") => {
                (FailureClass::Rejected, false)
            }
            (None, "authentication_error") => (FailureClass::Unauthorized, false),
            (None, _) => (FailureClass::BrokenStream, false),
        };
        let message = error.as_str().map(str::to_owned).or_else(|| message_in(error));
        let message = message.unwrap_or_else(|| "the provider gave up without a reason".to_owned());
        let mut fault = Fault::last(class, message).again(again && !self.begun);
        fault.failure.status = status;
        fault
    }
}

impl Counts {
    fn usage(&self) -> Usage {
        let cached = self.prompt_tokens_details.as_ref().and_then(|details| details.cached_tokens);
        Usage {
            input_tokens: self.prompt_tokens.unwrap_or(0),
            output_tokens: self.completion_tokens.unwrap_or(0),
            cache_read_tokens: cached.unwrap_or(0),
            cache_write_tokens: 0,
        }
    }
}

fn unasked_tool() -> Fault {
    Fault::broken("the model asks for a tool, and none was offered")
}
