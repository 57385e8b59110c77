//! What Anthropic demands of a request.

use serde::Deserialize;
use serde_json::Value;

use super::{
    request::{Asked, count},
    tools::{Pairs, check_offers},
};
use crate::model::thoughts::{check_sealed, check_signed};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Messages {
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
    top_p: Option<f64>,
    top_k: Option<u32>,
    #[serde(rename = "metadata")]
    _metadata: Option<Value>,
    tools: Option<Vec<Tool>>,
    #[serde(rename = "tool_choice")]
    _tool_choice: Option<Value>,
    thinking: Option<Thinking>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Thinking {
    Enabled { budget_tokens: u32 },
    Disabled,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    name: String,
    #[serde(rename = "description")]
    _description: Option<String>,
    input_schema: Value,
    #[serde(rename = "cache_control")]
    _cache_control: Option<Value>,
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
    Thinking {
        thinking: String,
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
    ToolUse {
        id: String,
        name: String,
        input: Value,
    },
    ToolResult {
        tool_use_id: String,
        content: Option<Value>,
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
                    Block::Thinking { .. }
                    | Block::RedactedThinking { .. }
                    | Block::ToolUse { .. }
                    | Block::ToolResult { .. } => false,
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
            Self::Thinking { .. }
            | Self::RedactedThinking { .. }
            | Self::ToolUse { .. }
            | Self::ToolResult { .. } => None,
        }
    }

    fn is_thought(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::RedactedThinking { .. })
    }
}

impl Messages {
    /// Whether it is told to think; what it is told may not be at odds with that.
    fn thinks(&self) -> Result<bool, String> {
        let Some(Thinking::Enabled { budget_tokens }) = self.thinking else { return Ok(false) };
        if budget_tokens < 1_024 {
            return Err("`thinking.budget_tokens` is less than 1024".to_owned());
        }
        if budget_tokens >= self.max_tokens {
            return Err("`max_tokens` must be greater than `thinking.budget_tokens`".to_owned());
        }
        if self.temperature.is_some_and(|it| it < 1.0) || self.top_k.is_some() {
            return Err("`temperature` or `top_k` with thinking".to_owned());
        }
        if self.top_p.is_some_and(|it| it < 0.95) {
            return Err("`top_p` under 0.95 with thinking".to_owned());
        }
        Ok(true)
    }
}

/// What a message of the assistant's thinks; every thought stands where it was, and has its signature.
fn check_thoughts(blocks: &[Block]) -> Result<String, String> {
    let count = blocks.iter().filter(|block| block.is_thought()).count();
    let mut thoughts = String::new();
    for (index, block) in blocks.iter().enumerate() {
        match block {
            Block::Thinking { thinking, signature } => {
                check_signed((index, count), thinking, signature)?;
                thoughts.push_str(thinking);
            }
            Block::RedactedThinking { data } => check_sealed((index, count), data)?,
            Block::Text { .. } | Block::ToolUse { .. } | Block::ToolResult { .. } => {}
        }
    }
    if blocks.last().is_some_and(Block::is_thought) {
        return Err("the final block in an assistant message cannot be `thinking`".to_owned());
    }
    Ok(thoughts)
}

pub(super) fn anthropic(request: Messages) -> Result<Asked, String> {
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
    if let Some(tools) = &request.tools {
        check_offers(tools.iter().map(|tool| (tool.name.as_str(), &tool.input_schema)))?;
    }
    let (thinks, disabled) =
        (request.thinks()?, matches!(request.thinking, Some(Thinking::Disabled)));
    // What was thought since the user's last words, and whether that began with a thought.
    let (mut thoughts, mut begun) = (Vec::new(), None);
    let mut expected = AnthropicRole::User;
    let (mut last_user, mut rounds, mut results) = (String::new(), 0, Vec::new());
    let mut pairs = Pairs::default();
    for message in &request.conversation {
        if message.role != expected {
            return Err("roles do not alternate from the user on".to_owned());
        }
        let text = message.content.text()?;
        words += count(&text);
        results = check_blocks(message.role, message.content.blocks(), &mut pairs)?;
        words += results.iter().map(|result| count(result)).sum::<u64>();
        expected = match message.role {
            AnthropicRole::User => {
                pairs.closed()?;
                if text.is_empty() {
                    rounds += 1;
                } else {
                    (last_user, rounds) = (text, 0);
                    (thoughts, begun) = (Vec::new(), None);
                }
                AnthropicRole::Assistant
            }
            AnthropicRole::Assistant => {
                let blocks = message.content.blocks();
                if disabled && blocks.iter().any(Block::is_thought) {
                    return Err("a thought, but `thinking` is disabled".to_owned());
                }
                thoughts.push(check_thoughts(blocks)?);
                begun.get_or_insert(blocks.first().is_some_and(Block::is_thought));
                AnthropicRole::User
            }
        };
    }
    if expected == AnthropicRole::User {
        return Err("the last message is not the user's".to_owned());
    }
    if thinks && begun == Some(false) {
        return Err("Expected `thinking` or `redacted_thinking`, but found something else: when \
                    `thinking` is enabled, a final `assistant` message must start with a thinking block"
            .to_owned());
    }
    let (model, stream, offers) = (request.model, request.stream, request.tools.is_some());
    if !thinks {
        thoughts.clear();
    }
    let usage = true;
    Ok(Asked { model, last_user, rounds, results, thoughts, offers, stream, usage, words })
}

/// The results in a message; checks that each block is where it may be.
fn check_blocks<'a>(
    role: AnthropicRole,
    blocks: &'a [Block],
    pairs: &mut Pairs<'a>,
) -> Result<Vec<String>, String> {
    let (mut results, mut said) = (Vec::new(), false);
    for block in blocks {
        match (block, role) {
            (Block::Text { .. }, _) => said = true,
            (Block::Thinking { .. } | Block::RedactedThinking { .. }, AnthropicRole::Assistant) => {
            }
            (Block::Thinking { .. } | Block::RedactedThinking { .. }, AnthropicRole::User) => {
                return Err("a thought of the user's".to_owned());
            }
            (Block::ToolUse { id, name, input }, AnthropicRole::Assistant) => {
                let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
                if id.is_empty() || !id.bytes().all(plain) {
                    return Err(format!(
                        "a tool use id `{id}` that is not a-z, A-Z, 0-9, `_`, `-`"
                    ));
                }
                if !pairs.ask(id, name)? {
                    return Err(format!("two tool uses `{id}`"));
                }
                if !input.is_object() {
                    return Err(format!("the input of tool use `{id}` is not an object"));
                }
            }
            (Block::ToolUse { .. }, AnthropicRole::User) => {
                return Err("a tool use of the user's".to_owned());
            }
            (Block::ToolResult { .. }, AnthropicRole::Assistant) => {
                return Err("a tool result of the assistant's".to_owned());
            }
            (Block::ToolResult { .. }, _) if said => {
                return Err("a tool result after text".to_owned());
            }
            (Block::ToolResult { tool_use_id, content, .. }, _) => {
                pairs.answer(tool_use_id)?;
                results.push(match content {
                    Some(content) => result(content)?,
                    None => String::new(),
                });
            }
        }
    }
    Ok(results)
}

/// The text of a tool result.
fn result(content: &Value) -> Result<String, String> {
    let block = |block: &Value| {
        let text = block.get("text").and_then(Value::as_str);
        text.filter(|_| block.get("type").is_some_and(|kind| kind == "text")).map(str::to_owned)
    };
    let text = match content {
        Value::String(text) => Some(text.clone()),
        Value::Array(blocks) => blocks.iter().map(block).collect(),
        _ => None,
    };
    match text {
        Some(text) if text.trim().is_empty() => Err("an empty tool result".to_owned()),
        Some(text) => Ok(text),
        None => Err("a tool result that is no text".to_owned()),
    }
}
