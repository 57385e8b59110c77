//! Holds requests to the wire: what a vendor would refuse, and what it would wrongly let pass.

use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::Value;

use super::book::WireName;

/// What matters of a proper request.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) model: String,
    pub(super) last_user: String,
    pub(super) stream: bool,
    /// Whether usage was asked for.
    pub(super) usage: bool,
    /// Words of the prompt, which this server counts as tokens.
    pub(super) words: u64,
}

/// Reads a request; the error says how it is malformed.
pub(super) fn check(wire: WireName, headers: &HeaderMap, body: &[u8]) -> Result<Asked, String> {
    let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if header("content-type") != Some("application/json") {
        return Err("`content-type` is not `application/json`".to_owned());
    }
    match wire {
        WireName::Anthropic => {
            if header("anthropic-version") != Some("2023-06-01") {
                return Err("`anthropic-version` is not `2023-06-01`".to_owned());
            }
            anthropic(serde_json::from_slice(body).map_err(|error| error.to_string())?)
        }
        WireName::Openai => {
            openai(serde_json::from_slice(body).map_err(|error| error.to_string())?)
        }
    }
}

// === Anthropic ===

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Messages {
    model: String,
    max_tokens: u32,
    #[serde(rename = "messages")]
    conversation: Vec<AnthropicMessage>,
    system: Option<Content>,
    #[serde(default)]
    stream: bool,
    temperature: Option<f64>,
    #[serde(default)]
    stop_sequences: Vec<String>,
    #[serde(rename = "top_p")]
    _top_p: Option<f64>,
    #[serde(rename = "top_k")]
    _top_k: Option<u32>,
    #[serde(rename = "metadata")]
    _metadata: Option<Value>,
    #[serde(rename = "tools")]
    _tools: Option<Vec<Value>>,
    #[serde(rename = "tool_choice")]
    _tool_choice: Option<Value>,
    #[serde(rename = "thinking")]
    _thinking: Option<Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnthropicMessage {
    role: AnthropicRole,
    content: Content,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AnthropicRole {
    User,
    Assistant,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Block {
    Text {
        text: String,
        #[serde(rename = "cache_control")]
        _cache_control: Option<Value>,
    },
    ToolUse {
        id: String,
        #[serde(rename = "name")]
        _name: String,
        #[serde(rename = "input")]
        _input: Value,
    },
    ToolResult {
        tool_use_id: String,
        #[serde(rename = "content")]
        _content: Option<Value>,
        #[serde(rename = "is_error")]
        _is_error: Option<bool>,
    },
}

impl Content {
    /// Its texts joined, or why it is malformed.
    fn text(&self) -> Result<String, String> {
        let texts: Vec<&str> = match self {
            Self::Text(text) => vec![text],
            Self::Blocks(blocks) => {
                let text = |block: &'_ Block| match block {
                    Block::Text { .. } => true,
                    Block::ToolUse { .. } | Block::ToolResult { .. } => false,
                };
                if blocks.is_empty() {
                    return Err("a message without content".to_owned());
                }
                let texts = blocks.iter().filter(|block| text(block));
                texts.filter_map(Block::as_text).collect()
            }
        };
        if texts.iter().any(|text| text.trim().is_empty()) {
            return Err("a message with empty text".to_owned());
        }
        Ok(texts.join("\n"))
    }

    fn blocks(&self) -> &[Block] {
        match self {
            Self::Text(_) => &[],
            Self::Blocks(blocks) => blocks,
        }
    }
}

impl Block {
    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::ToolUse { .. } | Self::ToolResult { .. } => None,
        }
    }
}

fn anthropic(request: Messages) -> Result<Asked, String> {
    if request.max_tokens == 0 {
        return Err("`max_tokens` is 0".to_owned());
    }
    if request.temperature.is_some_and(|it| !(0.0..=1.0).contains(&it)) {
        return Err("`temperature` is not within 0 and 1".to_owned());
    }
    if request.stop_sequences.iter().any(|stop| stop.trim().is_empty()) {
        return Err("an empty stop sequence".to_owned());
    }
    let mut words = match &request.system {
        Some(system) => count(&system.text()?),
        None => 0,
    };
    let (mut expected, mut last_user) = (AnthropicRole::User, String::new());
    let mut offered: Vec<&str> = Vec::new();
    for message in &request.conversation {
        if message.role != expected {
            return Err("roles do not alternate from the user on".to_owned());
        }
        let text = message.content.text()?;
        words += count(&text);
        let mut asked = Vec::new();
        for block in message.content.blocks() {
            match block {
                Block::ToolResult { tool_use_id, .. }
                    if !offered.contains(&tool_use_id.as_str()) =>
                {
                    return Err(format!("an orphan tool result `{tool_use_id}`"));
                }
                Block::ToolUse { id, .. } => asked.push(id.as_str()),
                Block::ToolResult { .. } | Block::Text { .. } => {}
            }
        }
        offered = asked;
        expected = match message.role {
            AnthropicRole::User => {
                last_user = text;
                AnthropicRole::Assistant
            }
            AnthropicRole::Assistant => AnthropicRole::User,
        };
    }
    if expected == AnthropicRole::User {
        return Err("the last message is not the user's".to_owned());
    }
    Ok(Asked { model: request.model, last_user, stream: request.stream, usage: true, words })
}

// === OpenAI ===

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Completions {
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
    #[serde(rename = "tools")]
    _tools: Option<Vec<Value>>,
    #[serde(rename = "tool_choice")]
    _tool_choice: Option<Value>,
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
        content: String,
    },
    User {
        content: String,
    },
    Assistant {
        content: Option<String>,
        tool_calls: Option<Vec<ToolCall>>,
    },
    Tool {
        content: String,
        tool_call_id: String,
    },
}

#[derive(Deserialize)]
struct ToolCall {
    id: String,
}

fn openai(request: Completions) -> Result<Asked, String> {
    if request.n.is_some_and(|n| n != 1) {
        return Err("`n` is not 1".to_owned());
    }
    if request.stream_options.is_some() && !request.stream {
        return Err("`stream_options` without `stream`".to_owned());
    }
    if request.temperature.is_some_and(|it| !(0.0..=2.0).contains(&it)) {
        return Err("`temperature` is not within 0 and 2".to_owned());
    }
    if request.max_tokens.is_some() && request.max_completion_tokens.is_some() {
        return Err("both `max_tokens` and `max_completion_tokens`".to_owned());
    }
    if request.max_tokens == Some(0) || request.max_completion_tokens == Some(0) {
        return Err("a limit of 0 tokens".to_owned());
    }
    if request.stop.is_some_and(|stop| stop.as_array().is_some_and(|all| all.len() > 4)) {
        return Err("more than 4 stop sequences".to_owned());
    }
    let (mut last_user, mut words, mut begun) = (None, 0, false);
    let mut offered: Vec<&str> = Vec::new();
    for message in &request.messages {
        let text = match message {
            OpenAiMessage::System { .. } if begun => {
                return Err("a system message within the conversation".to_owned());
            }
            OpenAiMessage::System { content } => content,
            OpenAiMessage::User { content } => {
                last_user = Some(content.clone());
                content
            }
            OpenAiMessage::Assistant { .. } if !begun => {
                return Err("the conversation begins with the assistant".to_owned());
            }
            OpenAiMessage::Assistant { content, tool_calls } => {
                last_user = None;
                offered = tool_calls.iter().flatten().map(|call| call.id.as_str()).collect();
                match content {
                    Some(content) => content,
                    None if !offered.is_empty() => continue,
                    None => return Err("an assistant message with nothing in it".to_owned()),
                }
            }
            OpenAiMessage::Tool { content, tool_call_id } => {
                if !offered.contains(&tool_call_id.as_str()) {
                    return Err(format!("an orphan tool result `{tool_call_id}`"));
                }
                last_user = last_user.or_else(|| Some(String::new()));
                content
            }
        };
        begun |= !matches!(message, OpenAiMessage::System { .. });
        if text.trim().is_empty() {
            return Err("a message with empty text".to_owned());
        }
        words += count(text);
    }
    let Some(last_user) = last_user else {
        return Err("the last message is not the user's".to_owned());
    };
    let usage = !request.stream || request.stream_options.is_some_and(|it| it.include_usage);
    Ok(Asked { model: request.model, last_user, stream: request.stream, usage, words })
}

fn count(text: &str) -> u64 {
    text.split_whitespace().count() as u64
}
