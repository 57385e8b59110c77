//! What `OpenAI` demands of a request.

use clawnode_proto::media::MediaType;
use serde::Deserialize;
use serde_json::Value;

use super::{
    media::{self, IMAGES},
    request::{Asked, count},
    schemas,
    tools::{Pairs, check_offers},
};
use crate::model::cache::PromptTokens;

/// Bytes of all parts of a message in base64, as the vendor has it for files.
const PART_BYTES: usize = 50 << 20;
/// What clawnode writes before a tool's pictures, which are no words of the user's.
const FROM_TOOL: &str = "(from the tool call ";
/// Markers of one request, where the model is one of Anthropic's.
const MOST_MARKERS: usize = 4;
/// Bytes of the id of a tool call.
const ID_BYTES: usize = 40;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Completions {
    model: String,
    messages: Vec<OpenAiMessage>,
    #[serde(default)]
    stream: bool,
    stream_options: Option<StreamOptions>,
    temperature: Option<f64>,
    max_tokens: Option<u32>,
    max_completion_tokens: Option<u32>,
    stop: Option<Value>,
    n: Option<u32>,
    #[serde(rename = "top_p")]
    _top_p: Option<f64>,
    #[serde(rename = "seed")]
    _seed: Option<i64>,
    #[serde(rename = "user")]
    _user: Option<String>,
    tools: Option<Vec<Tool>>,
    #[serde(rename = "tool_choice")]
    _tool_choice: Option<Value>,
    #[serde(rename = "parallel_tool_calls")]
    _parallel_tool_calls: Option<bool>,
    #[serde(rename = "presence_penalty")]
    _presence_penalty: Option<f64>,
    #[serde(rename = "frequency_penalty")]
    _frequency_penalty: Option<f64>,
    #[serde(rename = "logit_bias")]
    _logit_bias: Option<Value>,
    reasoning_effort: Option<String>,
    #[serde(rename = "prompt_cache_key")]
    _prompt_cache_key: Option<String>,
    response_format: Option<ResponseFormat>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ResponseFormat {
    Text,
    JsonObject,
    JsonSchema { json_schema: NamedSchema },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedSchema {
    name: String,
    #[serde(rename = "description")]
    _description: Option<String>,
    schema: Value,
    strict: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Deserialize)]
#[serde(tag = "role", rename_all = "snake_case", deny_unknown_fields)]
enum OpenAiMessage {
    #[serde(alias = "developer")]
    System {
        content: UserContent,
    },
    User {
        content: UserContent,
    },
    Assistant {
        content: Option<String>,
        reasoning_content: Option<String>,
        reasoning_details: Option<Vec<Value>>,
        tool_calls: Option<Vec<ToolCall>>,
    },
    Tool {
        content: UserContent,
        tool_call_id: String,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum UserContent {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Part {
    Text { text: String, cache_control: Option<ContentMarker> },
    ImageUrl { image_url: ImageUrl },
    InputAudio { input_audio: InputAudio },
    File { file: FileData },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum ContentMarker {
    Ephemeral,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ImageUrl {
    url: String,
    #[serde(rename = "detail")]
    _detail: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputAudio {
    data: String,
    format: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FileData {
    filename: String,
    file_data: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    #[serde(rename = "type")]
    _kind: Kind,
    function: Offered,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Function,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Offered {
    name: String,
    #[serde(rename = "description")]
    _description: Option<String>,
    parameters: Value,
    #[serde(rename = "strict")]
    _strict: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolCall {
    id: String,
    #[serde(rename = "type")]
    _kind: Kind,
    function: Called,
    extra_content: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Called {
    name: String,
    arguments: String,
}

pub(super) fn openai(request: Completions) -> Result<Asked, String> {
    if request.n.is_some_and(|n| n != 1) {
        return Err("`n` is not 1".to_owned());
    }
    if request.stream_options.is_some() && !request.stream {
        return Err("`stream_options` without `stream`".to_owned());
    }
    if request.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
        return Err("`temperature` is not within 0 and 2".to_owned());
    }
    if request.max_tokens.is_some() && request.max_completion_tokens.is_some() {
        return Err("both `max_tokens` and `max_completion_tokens`".to_owned());
    }
    if request.max_tokens == Some(0) || request.max_completion_tokens == Some(0) {
        return Err("a limit of 0 tokens".to_owned());
    }
    if request.stop.as_ref().is_some_and(|stop| stop.as_array().is_some_and(|all| all.len() > 4)) {
        return Err("more than 4 stop sequences".to_owned());
    }
    let efforts = ["low", "medium", "high"];
    if request.reasoning_effort.as_ref().is_some_and(|effort| !efforts.contains(&effort.as_str())) {
        return Err("an unknown `reasoning_effort`".to_owned());
    }
    if let Some(tools) = &request.tools {
        let functions = tools.iter().map(|tool| &tool.function);
        check_offers(functions.map(|function| (function.name.as_str(), &function.parameters)))?;
    }
    if let Some(format) = &request.response_format {
        check_format(format, &request.messages)?;
    }
    if request.messages.iter().map(markers).sum::<usize>() > MOST_MARKERS {
        return Err(format!("more than {MOST_MARKERS} markers"));
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
        usage: !request.stream
            || request.stream_options.is_some_and(|options| options.include_usage),
        model: request.model,
        last_user: reading.last_user,
        rounds: reading.rounds,
        results: reading.results,
        thoughts: reading.thoughts,
        offers: request.tools.is_some(),
        stream: request.stream,
        words: reading.words,
        cached: PromptTokens::default(),
    })
}

fn check_format(format: &ResponseFormat, messages: &[OpenAiMessage]) -> Result<(), String> {
    match format {
        ResponseFormat::Text => Ok(()),
        ResponseFormat::JsonObject => {
            let says = |message: &OpenAiMessage| match message {
                OpenAiMessage::System { content: UserContent::Text(content) }
                | OpenAiMessage::User { content: UserContent::Text(content) } => {
                    content.to_lowercase().contains("json")
                }
                _ => false,
            };
            let wrong = || Err("`json_object` without the word `json` in the messages".to_owned());
            if messages.iter().any(says) { Ok(()) } else { wrong() }
        }
        ResponseFormat::JsonSchema { json_schema: NamedSchema { name, schema, strict, .. } } => {
            schemas::check_name(name)?;
            if *strict == Some(true) { schemas::check_closed(schema, true) } else { Ok(()) }
        }
    }
}

/// The text of a message's parts; each part holds to the wire.
fn parts_text(parts: &[Part]) -> Result<String, String> {
    if parts.is_empty() {
        return Err("a message without parts".to_owned());
    }
    let mut texts = Vec::new();
    for part in parts {
        match part {
            Part::Text { text, .. } if text.trim().is_empty() => {
                return Err("a part with empty text".to_owned());
            }
            Part::Text { text, .. } => texts.push(text.as_str()),
            Part::ImageUrl { image_url } => media::check_url(&image_url.url, &IMAGES, PART_BYTES)?,
            Part::InputAudio { input_audio: InputAudio { data, format } } => {
                let (claimed, kind) = match format.as_str() {
                    "wav" => ("audio/wav", MediaType::Wav),
                    "mp3" => ("audio/mpeg", MediaType::Mp3),
                    other => return Err(format!("sound of the format `{other}`")),
                };
                media::check(claimed, data, &[kind], PART_BYTES)?;
            }
            Part::File { file } => {
                if file.filename.is_empty() {
                    return Err("a file without a name".to_owned());
                }
                media::check_url(&file.file_data, &[MediaType::Pdf], PART_BYTES)?;
            }
        }
    }
    Ok(texts.join("\n"))
}

/// The text of a message that has no other content.
fn text_alone(content: &UserContent) -> Result<String, String> {
    match content {
        UserContent::Text(text) => Ok(text.clone()),
        UserContent::Parts(parts) => {
            if parts.iter().any(|part| !matches!(part, Part::Text { .. })) {
                return Err("a part that is no text in a message of text alone".to_owned());
            }
            parts_text(parts)
        }
    }
}

/// How many markers a message has.
fn markers(message: &OpenAiMessage) -> usize {
    let (OpenAiMessage::System { content }
    | OpenAiMessage::User { content }
    | OpenAiMessage::Tool { content, .. }) = message
    else {
        return 0;
    };
    let UserContent::Parts(parts) = content else { return 0 };
    let is_marked = |part: &&Part| {
        matches!(part, Part::Text { cache_control: Some(ContentMarker::Ephemeral), .. })
    };
    parts.iter().filter(is_marked).count()
}

/// An entry that belongs to a tool call has its id.
fn check_details(details: &[Value], calls: &[ToolCall]) -> Result<(), String> {
    if details.is_empty() {
        return Err("empty `reasoning_details`".to_owned());
    }
    let mut ids = details.iter().filter_map(|entry| entry["id"].as_str());
    match ids.find(|id| calls.iter().all(|call| call.id != *id)) {
        Some(id) => Err(format!("`reasoning_details` of a tool call `{id}` that there is not")),
        None => Ok(()),
    }
}

/// A conversation, message by message.
#[derive(Default)]
struct Reading<'a> {
    pairs: Pairs<'a>,
    begun: bool,
    /// Whether the last message is the user's, or a tool's.
    users_turn: bool,
    last_user: String,
    rounds: usize,
    results: Vec<String>,
    /// What the assistant thought since the user's last words.
    thoughts: Vec<String>,
    /// Whether some of that is `reasoning_content`.
    has_contents: bool,
    words: u64,
}

impl<'a> Reading<'a> {
    fn message(&mut self, message: &'a OpenAiMessage) -> Result<(), String> {
        if !matches!(message, OpenAiMessage::Tool { .. }) {
            self.pairs.closed()?;
        }
        match message {
            OpenAiMessage::System { .. } if self.begun => {
                return Err("a system message within the conversation".to_owned());
            }
            OpenAiMessage::System { content } => return self.text(&text_alone(content)?),
            OpenAiMessage::User { content } => {
                let text = match content {
                    UserContent::Text(text) => text.clone(),
                    UserContent::Parts(parts) => parts_text(parts)?,
                };
                self.words += count(&text);
                let is_picture_alone = matches!(content, UserContent::Parts(_));
                if text.trim().is_empty() && !is_picture_alone {
                    return Err("a message with empty text".to_owned());
                }
                if !self.users_turn {
                    self.results.clear();
                }
                // Parts without words of a person are what tools gave.
                if !text.starts_with(FROM_TOOL) {
                    if std::mem::take(&mut self.has_contents) {
                        return Err("`reasoning_content` of a turn that is over".to_owned());
                    }
                    self.thoughts.clear();
                    (self.last_user, self.rounds) = (text, 0);
                }
                self.users_turn = true;
            }
            OpenAiMessage::Assistant { .. } if !self.begun => {
                return Err("the conversation begins with the assistant".to_owned());
            }
            OpenAiMessage::Assistant {
                content,
                reasoning_content,
                reasoning_details,
                tool_calls,
            } => {
                let called = tool_calls.as_deref().unwrap_or_default();
                self.thought(reasoning_content.as_deref(), reasoning_details.as_deref(), called)?;
                if let Some(content) = content {
                    self.text(content)?;
                }
                match tool_calls {
                    Some(calls) if calls.is_empty() => return Err("no tool calls".to_owned()),
                    None if content.is_none() => {
                        return Err("an assistant message with nothing in it".to_owned());
                    }
                    Some(calls) => calls.iter().try_for_each(|call| self.call(call))?,
                    None => {}
                }
                self.users_turn = false;
            }
            OpenAiMessage::Tool { content, tool_call_id } => {
                self.pairs.answer(tool_call_id)?;
                if !self.users_turn {
                    self.results.clear();
                    self.rounds += 1;
                }
                let content = text_alone(content)?;
                self.words += count(&content);
                self.results.push(content);
                self.users_turn = true;
            }
        }
        self.begun = true;
        Ok(())
    }

    fn thought(
        &mut self,
        content: Option<&str>,
        details: Option<&[Value]>,
        called: &[ToolCall],
    ) -> Result<(), String> {
        if let Some(details) = details {
            check_details(details, called)?;
        }
        self.has_contents |= content.is_some_and(|content| !content.is_empty());
        let details = details.map(|details| Value::from(details).to_string());
        self.thoughts.push(details.or(content.map(str::to_owned)).unwrap_or_default());
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), String> {
        self.words += count(text);
        if text.trim().is_empty() {
            return Err("a message with empty text".to_owned());
        }
        Ok(())
    }

    fn call(&mut self, call: &'a ToolCall) -> Result<(), String> {
        let ToolCall { id, function, extra_content, .. } = call;
        if extra_content.as_ref().is_some_and(|content| !content.is_object()) {
            return Err(format!("the `extra_content` of tool call `{id}` is not an object"));
        }
        if !(1..=ID_BYTES).contains(&id.len()) {
            return Err(format!("a tool call id `{id}` that is not 1 to {ID_BYTES} bytes long"));
        }
        // Unlike the other wire's, ids may come again in a later message.
        self.pairs.ask(id, &function.name)?;
        let arguments: Result<Value, _> = serde_json::from_str(&function.arguments);
        if !arguments.is_ok_and(|arguments| arguments.is_object()) {
            return Err(format!("the arguments of tool call `{id}` are not an object in JSON"));
        }
        Ok(())
    }
}
