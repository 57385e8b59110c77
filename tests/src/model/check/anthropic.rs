//! What Anthropic demands of a request.

use clawnode_proto::media::MediaType;
use serde::Deserialize;
use serde_json::Value;

use super::{
    media::{self, IMAGES},
    request::{Asked, count},
    schemas,
    tools::{Pairs, check_offers},
};
use crate::model::{
    cache::PromptTokens,
    thoughts::{check_sealed, check_signed},
};

/// Bytes of one picture in base64.
const IMAGE_BYTES: usize = 5 << 20;
/// Bytes of one document in base64: those of a request.
const DOCUMENT_BYTES: usize = 32 << 20;
/// Markers of one request.
const MARKERS: usize = 4;

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
    output_config: Option<OutputConfig>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Thinking {
    Enabled { budget_tokens: u32 },
    Adaptive,
    Disabled,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputConfig {
    effort: Option<String>,
    format: Option<OutputFormat>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum OutputFormat {
    JsonSchema { schema: Value },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    name: String,
    #[serde(rename = "description")]
    _description: Option<String>,
    input_schema: Value,
    cache_control: Option<Marker>,
}

/// Up to where the provider keeps a prompt.
#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Marker {
    Ephemeral {
        #[serde(rename = "ttl")]
        _ttl: Option<Ttl>,
    },
}

#[derive(Deserialize)]
enum Ttl {
    #[serde(rename = "5m")]
    Short,
    #[serde(rename = "1h")]
    Long,
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
        cache_control: Option<Marker>,
    },
    Thinking {
        thinking: String,
        signature: String,
    },
    RedactedThinking {
        data: String,
    },
    Image {
        source: Source,
        cache_control: Option<Marker>,
    },
    Document {
        source: Source,
        #[serde(rename = "title")]
        _title: Option<String>,
        cache_control: Option<Marker>,
    },
    ToolUse {
        id: String,
        name: String,
        input: Value,
        cache_control: Option<Marker>,
    },
    ToolResult {
        tool_use_id: String,
        content: Option<Value>,
        #[serde(rename = "is_error")]
        _is_error: Option<bool>,
        cache_control: Option<Marker>,
    },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Source {
    Base64 { media_type: String, data: String },
}

impl Content {
    /// Its texts joined, or why it is malformed.
    fn text(&self) -> Result<String, String> {
        let texts: Vec<&str> = match self {
            Self::Text(text) => vec![text],
            Self::Blocks(blocks) => {
                let text = |block: &'_ Block| matches!(block, Block::Text { .. });
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
            | Self::Image { .. }
            | Self::Document { .. }
            | Self::ToolUse { .. }
            | Self::ToolResult { .. } => None,
        }
    }

    fn is_marked(&self) -> bool {
        match self {
            Self::Text { cache_control, .. }
            | Self::Image { cache_control, .. }
            | Self::Document { cache_control, .. }
            | Self::ToolUse { cache_control, .. }
            | Self::ToolResult { cache_control, .. } => cache_control.is_some(),
            Self::Thinking { .. } | Self::RedactedThinking { .. } => false,
        }
    }

    fn is_thought(&self) -> bool {
        matches!(self, Self::Thinking { .. } | Self::RedactedThinking { .. })
    }

    /// Holds a picture or a document to the wire.
    fn check_media(&self) -> Result<(), String> {
        let (Source::Base64 { media_type, data }, types, most) = match self {
            Self::Image { source, .. } => (source, &IMAGES[..], IMAGE_BYTES),
            Self::Document { source, .. } => (source, &[MediaType::Pdf][..], DOCUMENT_BYTES),
            Self::Text { .. }
            | Self::Thinking { .. }
            | Self::RedactedThinking { .. }
            | Self::ToolUse { .. }
            | Self::ToolResult { .. } => return Ok(()),
        };
        media::check(media_type, data, types, most)
    }
}

impl Messages {
    /// Holds `cache_control` to its bound. A thought has no such field.
    fn check_markers(&self) -> Result<(), String> {
        let tools = self.tools.iter().flatten().filter(|tool| tool.cache_control.is_some());
        let said = self.conversation.iter().map(|message| &message.content);
        let blocks = self.system.iter().chain(said).flat_map(Content::blocks);
        match tools.count() + blocks.filter(|block| block.is_marked()).count() {
            0..=MARKERS => Ok(()),
            found => Err(format!(
                "A maximum of {MARKERS} blocks with cache_control may be provided. Found {found}."
            )),
        }
    }

    /// Whether the request asks for thoughts; its other settings have to agree with that.
    fn thinks(&self) -> Result<bool, String> {
        if let Some(OutputConfig { effort: Some(effort), .. }) = &self.output_config
            && !["low", "medium", "high", "max"].contains(&effort.as_str())
        {
            return Err(format!("`output_config.effort` is `{effort}`"));
        }
        if let Some(OutputConfig { format: Some(format), .. }) = &self.output_config {
            let OutputFormat::JsonSchema { schema } = format;
            schemas::check_closed(schema, false)?;
        }
        match self.thinking {
            Some(Thinking::Enabled { budget_tokens }) if budget_tokens < 1_024 => {
                return Err("`thinking.budget_tokens` is less than 1024".to_owned());
            }
            Some(Thinking::Enabled { budget_tokens }) if budget_tokens >= self.max_tokens => {
                return Err("`max_tokens` must be greater than `thinking.budget_tokens`".to_owned());
            }
            Some(Thinking::Enabled { .. } | Thinking::Adaptive) => {}
            Some(Thinking::Disabled) | None => return Ok(false),
        }
        if self.temperature.is_some_and(|temperature| temperature < 1.0) || self.top_k.is_some() {
            return Err("`temperature` or `top_k` with thinking".to_owned());
        }
        if self.top_p.is_some_and(|share| share < 0.95) {
            return Err("`top_p` under 0.95 with thinking".to_owned());
        }
        Ok(true)
    }
}

/// What a message of the assistant's thinks; every thought is in its place, and has its signature.
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
            Block::Text { .. }
            | Block::Image { .. }
            | Block::Document { .. }
            | Block::ToolUse { .. }
            | Block::ToolResult { .. } => {}
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
    if request.temperature.is_some_and(|temperature| !(0.0..=1.0).contains(&temperature)) {
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
    request.check_markers()?;
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
    let cached = PromptTokens::default();
    Ok(Asked { model, last_user, rounds, results, thoughts, offers, stream, usage, words, cached })
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
            (Block::Image { .. } | Block::Document { .. }, AnthropicRole::Assistant) => {
                return Err("a picture or document of the assistant's".to_owned());
            }
            (block @ (Block::Image { .. } | Block::Document { .. }), _) => {
                block.check_media()?;
                said = true;
            }
            (Block::ToolUse { id, name, input, .. }, AnthropicRole::Assistant) => {
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
                return Err("a tool result after other content".to_owned());
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
    let blocks: Vec<Block> = match content {
        Value::String(text) if text.trim().is_empty() => {
            return Err("an empty tool result".to_owned());
        }
        Value::String(text) => return Ok(text.clone()),
        blocks => serde_json::from_value(blocks.clone())
            .map_err(|error| format!("a tool result that is not readable: {error}"))?,
    };
    let is_result =
        |block: &Block| !matches!(block, Block::ToolUse { .. } | Block::ToolResult { .. });
    if !blocks.iter().all(is_result) {
        return Err("a tool result with tools in it".to_owned());
    }
    blocks.iter().try_for_each(Block::check_media)?;
    Content::Blocks(blocks).text()
}
