//! What Ollama's own wire demands of a request.

use serde::Deserialize;
use serde_json::Value;

use super::{
    media::{self, IMAGES},
    request::{Asked, count},
    tools::{Pairs, check_offers},
};

/// Bytes of one picture in base64.
const IMAGE_BYTES: usize = 50 << 20;
/// What clawnode writes before a tool's pictures, which are no words of the user's.
const FROM_TOOL: &str = "(from the tool call ";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Chat {
    model: String,
    messages: Vec<OllamaMessage>,
    /// The wire's default is to stream.
    stream: Option<bool>,
    tools: Option<Vec<Tool>>,
    think: Option<Value>,
    options: Option<ModelOptions>,
    #[serde(rename = "keep_alive")]
    _keep_alive: Option<Value>,
    format: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelOptions {
    temperature: Option<f64>,
    #[serde(rename = "top_p")]
    _top_p: Option<f64>,
    #[serde(rename = "top_k")]
    _top_k: Option<u32>,
    num_predict: Option<u32>,
    num_ctx: Option<u32>,
    #[serde(rename = "stop")]
    _stop: Option<Vec<String>>,
    #[serde(rename = "seed")]
    _seed: Option<i64>,
    #[serde(rename = "presence_penalty")]
    _presence_penalty: Option<f64>,
    #[serde(rename = "frequency_penalty")]
    _frequency_penalty: Option<f64>,
}

#[derive(Deserialize)]
#[serde(tag = "role", rename_all = "snake_case", deny_unknown_fields)]
enum OllamaMessage {
    System {
        content: String,
    },
    User {
        content: String,
        #[serde(default)]
        images: Vec<String>,
    },
    Assistant {
        content: String,
        thinking: Option<String>,
        tool_calls: Option<Vec<ToolCall>>,
    },
    Tool {
        content: String,
        tool_name: String,
        tool_call_id: String,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    #[serde(rename = "type")]
    kind: String,
    function: Offered,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Offered {
    name: String,
    #[serde(rename = "description")]
    _description: Option<String>,
    parameters: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolCall {
    id: String,
    function: Called,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Called {
    name: String,
    arguments: Value,
}

/// A conversation, message by message.
#[derive(Default)]
struct Reading<'a> {
    pairs: Pairs<'a>,
    /// The calls of the last message of the assistant: id and name.
    calls: Vec<(&'a str, &'a str)>,
    begun: bool,
    users_turn: bool,
    last_user: String,
    rounds: usize,
    results: Vec<String>,
    thoughts: Vec<String>,
    words: u64,
}

pub(super) fn ollama(request: &Chat) -> Result<Asked, String> {
    if let Some(options) = &request.options {
        if options.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
            return Err("`temperature` is not within 0 and 2".to_owned());
        }
        if options.num_predict == Some(0) || options.num_ctx == Some(0) {
            return Err("a limit of 0 tokens".to_owned());
        }
    }
    match &request.think {
        None | Some(Value::Bool(_)) => {}
        Some(level) if ["low", "medium", "high", "max"].iter().any(|known| level == known) => {}
        Some(other) => return Err(format!("invalid think value: {other}")),
    }
    match &request.format {
        None | Some(Value::Object(_)) => {}
        Some(word) if word == "json" => {}
        Some(other) => return Err(format!("invalid format: {other}")),
    }
    // It would let no call through.
    if request.format.is_some() && request.tools.is_some() {
        return Err("`format` beside tools".to_owned());
    }
    if let Some(tools) = &request.tools {
        if tools.iter().any(|tool| tool.kind != "function") {
            return Err("a tool that is no function".to_owned());
        }
        let functions = tools.iter().map(|tool| &tool.function);
        check_offers(functions.map(|function| (function.name.as_str(), &function.parameters)))?;
    }
    let mut reading = Reading::default();
    for message in &request.messages {
        reading.message(message)?;
    }
    reading.pairs.closed()?;
    if !reading.users_turn {
        return Err("the last message is not the user's".to_owned());
    }
    Ok(Asked {
        cached: crate::model::cache::PromptTokens::default(),
        usage: true,
        model: request.model.clone(),
        last_user: reading.last_user,
        rounds: reading.rounds,
        results: reading.results,
        thoughts: reading.thoughts,
        offers: request.tools.is_some(),
        stream: request.stream.unwrap_or(true),
        words: reading.words,
    })
}

impl<'a> Reading<'a> {
    fn message(&mut self, message: &'a OllamaMessage) -> Result<(), String> {
        if !matches!(message, OllamaMessage::Tool { .. }) {
            self.pairs.closed()?;
        }
        match message {
            OllamaMessage::System { .. } if self.begun => {
                return Err("a system message within the conversation".to_owned());
            }
            OllamaMessage::System { content } => return self.text(content),
            OllamaMessage::User { content, images } => {
                for image in images {
                    let kind = IMAGES.into_iter().find(|kind| {
                        media::check(kind.as_str(), image, &IMAGES, IMAGE_BYTES).is_ok()
                    });
                    kind.ok_or_else(|| "an image that is none".to_owned())?;
                }
                self.words += count(content);
                if content.trim().is_empty() && images.is_empty() {
                    return Err("a message with empty text".to_owned());
                }
                if !self.users_turn {
                    self.results.clear();
                }
                if !content.starts_with(FROM_TOOL) {
                    if self.thoughts.iter().any(|thought| !thought.is_empty()) {
                        return Err("`thinking` of a turn that is over".to_owned());
                    }
                    self.thoughts.clear();
                    (self.last_user, self.rounds) = (content.clone(), 0);
                }
                self.users_turn = true;
            }
            OllamaMessage::Assistant { .. } if !self.begun => {
                return Err("the conversation begins with the assistant".to_owned());
            }
            OllamaMessage::Assistant { content, thinking, tool_calls } => {
                self.thoughts.push(thinking.clone().unwrap_or_default());
                self.words += count(content);
                let calls = tool_calls.as_deref().unwrap_or_default();
                if content.trim().is_empty() && calls.is_empty() {
                    return Err("an assistant message with nothing in it".to_owned());
                }
                self.calls.clear();
                for ToolCall { id, function } in calls {
                    self.pairs.ask(id, &function.name)?;
                    if !function.arguments.is_object() {
                        return Err(format!("the arguments of tool call `{id}` are no object"));
                    }
                    self.calls.push((id, &function.name));
                }
                self.users_turn = false;
            }
            OllamaMessage::Tool { content, tool_name, tool_call_id } => {
                self.pairs.answer(tool_call_id)?;
                if !self.calls.contains(&(tool_call_id.as_str(), tool_name.as_str())) {
                    return Err(format!("`{tool_call_id}` is no call of `{tool_name}`"));
                }
                if !self.users_turn {
                    self.results.clear();
                    self.rounds += 1;
                }
                self.words += count(content);
                self.results.push(content.clone());
                self.users_turn = true;
            }
        }
        self.begun = true;
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        self.words += count(text);
        if text.trim().is_empty() {
            return Err("a message with empty text".to_owned());
        }
        Ok(())
    }
}
