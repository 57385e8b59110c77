//! What Bedrock demands of a request, as Anthropic's models there do.

use std::collections::BTreeSet;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_proto::media::MediaType;
use serde::Deserialize;
use serde_json::Value;

use super::{
    bedrock_fields::{ConverseOutput, ModelFields, Thinking},
    media::{self, IMAGES},
    request::{Asked, count},
    tools::{Pairs, check_offers},
};
use crate::model::{
    cache::PromptTokens,
    thoughts::{check_sealed, check_signed},
};

/// Bytes of one picture, and of one document, in base64.
const IMAGE_BYTES: usize = 5_000_000;
const DOCUMENT_BYTES: usize = 6_000_000;
/// Markers of one request.
const MARKERS: usize = 4;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Converse {
    messages: Vec<ConverseMessage>,
    #[serde(default)]
    system: Vec<SystemBlock>,
    #[serde(default)]
    inference_config: InferenceConfig,
    tool_config: Option<ToolConfig>,
    #[serde(default)]
    additional_model_request_fields: ModelFields,
    output_config: Option<ConverseOutput>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConverseMessage {
    role: ConverseRole,
    content: Vec<Block>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ConverseRole {
    User,
    Assistant,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum SystemBlock {
    Text(String),
    CachePoint {
        #[serde(rename = "type")]
        _kind: CacheKind,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Block {
    Text(String),
    Image(Image),
    Document(Document),
    ToolUse(ToolUse),
    ToolResult(ToolResult),
    ReasoningContent(Reasoning),
    CachePoint {
        #[serde(rename = "type")]
        _kind: CacheKind,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Image {
    format: String,
    source: Source,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    format: String,
    name: String,
    source: Source,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Source {
    bytes: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ToolUse {
    #[serde(rename = "toolUseId")]
    id: String,
    name: String,
    input: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ToolResult {
    tool_use_id: String,
    content: Vec<Block>,
    #[serde(rename = "status")]
    _status: Option<ResultStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ResultStatus {
    Success,
    Error,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Reasoning {
    ReasoningText(ReasoningText),
    RedactedContent(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReasoningText {
    text: String,
    signature: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum CacheKind {
    Default,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct InferenceConfig {
    max_tokens: Option<u32>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    #[serde(default)]
    stop_sequences: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ToolConfig {
    tools: Vec<Tool>,
    tool_choice: Option<ToolChoice>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Tool {
    ToolSpec(ToolSpec),
    CachePoint {
        #[serde(rename = "type")]
        _kind: CacheKind,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ToolSpec {
    name: String,
    description: Option<String>,
    input_schema: InputSchema,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputSchema {
    json: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum ToolChoice {
    Auto {},
    Any {},
    Tool(NamedTool),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NamedTool {
    name: String,
}

/// A conversation, message by message.
#[derive(Default)]
struct Reading<'a> {
    pairs: Pairs<'a>,
    names: BTreeSet<&'a str>,
    has_tools: bool,
    last_user: String,
    rounds: usize,
    results: Vec<String>,
    /// What was thought since the user's last words, and whether that began with a thought.
    thoughts: Vec<String>,
    begun: Option<bool>,
    words: u64,
}

pub(super) fn bedrock(request: &Converse) -> Result<Asked, String> {
    request.check_config()?;
    request.check_markers()?;
    request.output_config.as_ref().map_or(Ok(()), ConverseOutput::check)?;
    let thinks = request.thinks()?;
    let mut reading = Reading::default();
    for block in &request.system {
        if let SystemBlock::Text(text) = block {
            reading.words += words_of(text)?;
        }
    }
    for (nth, message) in request.messages.iter().enumerate() {
        let is_user = message.role == ConverseRole::User;
        if is_user != nth.is_multiple_of(2) {
            return Err("roles do not alternate from the user on".to_owned());
        }
        if message.content.is_empty() {
            return Err("a message without content".to_owned());
        }
        if is_user {
            reading.user(&message.content)?;
        } else {
            reading.assistant(&message.content)?;
        }
    }
    if request.messages.len().is_multiple_of(2) {
        return Err("the last message is not the user's".to_owned());
    }
    if reading.has_tools && request.tool_config.is_none() {
        return Err("The toolConfig field must be defined when using toolUse".to_owned());
    }
    if thinks && reading.begun == Some(false) {
        return Err(
            "Expected `thinking` or `redacted_thinking`, but found something else".to_owned()
        );
    }
    // Who is not told to think may leave all thoughts out, and then it is as if there were none.
    if !thinks && reading.thoughts.iter().all(String::is_empty) {
        reading.thoughts.clear();
    }
    Ok(Asked {
        model: String::new(),
        last_user: reading.last_user,
        rounds: reading.rounds,
        results: reading.results,
        thoughts: reading.thoughts,
        offers: request.tool_config.is_some(),
        stream: true,
        usage: true,
        words: reading.words,
        cached: PromptTokens::default(),
    })
}

/// How many words a text has, which may not be blank.
fn words_of(text: &str) -> Result<u64, String> {
    if text.trim().is_empty() {
        return Err("The text field in the ContentBlock object is blank".to_owned());
    }
    Ok(count(text))
}

// === impl Converse ===

impl Converse {
    fn check_config(&self) -> Result<(), String> {
        let InferenceConfig { max_tokens, temperature, top_p, stop_sequences } =
            &self.inference_config;
        if *max_tokens == Some(0) {
            return Err("`maxTokens` is 0".to_owned());
        }
        if [temperature, top_p].into_iter().flatten().any(|number| !(0.0..=1.0).contains(number)) {
            return Err("`temperature` or `topP` is not within 0 and 1".to_owned());
        }
        if stop_sequences.len() > 4 || stop_sequences.iter().any(|text| text.trim().is_empty()) {
            return Err("an empty stop sequence, or more than 4".to_owned());
        }
        let Some(ToolConfig { tools, tool_choice }) = &self.tool_config else { return Ok(()) };
        let specs = tools.iter().filter_map(|tool| match tool {
            Tool::ToolSpec(spec) => Some(spec),
            Tool::CachePoint { .. } => None,
        });
        if specs.clone().any(|spec| spec.description.as_ref().is_some_and(String::is_empty)) {
            return Err("`description` has 0 characters, at least 1 is needed".to_owned());
        }
        if let Some(ToolChoice::Tool(NamedTool { name })) = tool_choice
            && specs.clone().all(|spec| spec.name != *name)
        {
            return Err(format!("the tool `{name}` of `toolChoice` is not offered"));
        }
        check_offers(specs.map(|spec| (spec.name.as_str(), &spec.input_schema.json)))
    }

    /// Holds cache points to their bound and their places: something is before them.
    fn check_markers(&self) -> Result<(), String> {
        let is_point = |block: &Block| matches!(block, Block::CachePoint { .. });
        if self.messages.iter().any(|message| message.content.first().is_some_and(is_point))
            || matches!(self.system.first(), Some(SystemBlock::CachePoint { .. }))
        {
            return Err("a cache point after nothing".to_owned());
        }
        let tools = self.tool_config.iter().flat_map(|config| &config.tools);
        let tools = tools.filter(|tool| matches!(tool, Tool::CachePoint { .. })).count();
        let system =
            self.system.iter().filter(|block| matches!(block, SystemBlock::CachePoint { .. }));
        let said = self.messages.iter().flat_map(|message| &message.content);
        let found = tools + system.count() + said.filter(|block| is_point(block)).count();
        if found <= MARKERS {
            return Ok(());
        }
        Err(format!("A maximum of {MARKERS} cache points may be provided. Found {found}."))
    }

    /// Whether the request asks for thoughts; its other settings have to agree with that.
    fn thinks(&self) -> Result<bool, String> {
        let InferenceConfig { max_tokens, temperature, top_p, .. } = self.inference_config;
        match self.additional_model_request_fields.thinking {
            None => return Ok(false),
            Some(Thinking::Enabled { budget_tokens }) if budget_tokens < 1_024 => {
                return Err("`thinking.budget_tokens` is less than 1024".to_owned());
            }
            Some(Thinking::Enabled { budget_tokens })
                if max_tokens.is_none_or(|most| budget_tokens >= most) =>
            {
                return Err("`max_tokens` must be greater than `thinking.budget_tokens`".to_owned());
            }
            Some(Thinking::Enabled { .. } | Thinking::Adaptive) => {}
        }
        let top_k = self.additional_model_request_fields.top_k;
        if temperature.is_some() || top_p.is_some() || top_k.is_some() {
            return Err("`temperature`, `topP` or `top_k` with thinking".to_owned());
        }
        Ok(true)
    }
}

// === impl Block ===

impl Block {
    /// Holds a picture or a document to the wire.
    fn check_media(&self) -> Result<(), String> {
        match self {
            Self::Image(Image { format, source }) => {
                let claimed = format!("image/{format}");
                media::check(&claimed, &source.bytes, &IMAGES, IMAGE_BYTES)
            }
            Self::Document(Document { format, name, source }) => {
                let plain = |c: char| c.is_ascii_alphanumeric() || " -()[]".contains(c);
                if name.is_empty() || !name.chars().all(plain) || name.contains("  ") {
                    return Err(format!("a document with the name `{name}`"));
                }
                let claimed = format!("application/{format}");
                media::check(&claimed, &source.bytes, &[MediaType::Pdf], DOCUMENT_BYTES)
            }
            _ => Ok(()),
        }
    }
}

// === impl Reading ===

impl<'a> Reading<'a> {
    fn user(&mut self, content: &'a [Block]) -> Result<(), String> {
        self.results.clear();
        let (mut texts, mut has_media, mut has_document) = (Vec::new(), false, false);
        for block in content {
            match block {
                Block::Text(text) => {
                    self.words += words_of(text)?;
                    texts.push(text.as_str());
                }
                Block::Image(_) | Block::Document(_) => {
                    self.media(block)?;
                    has_media = true;
                    has_document |= matches!(block, Block::Document(_));
                }
                Block::ToolResult(_) if has_media || !texts.is_empty() => {
                    return Err("a tool result after other content".to_owned());
                }
                Block::ToolResult(result) => self.result(result)?,
                Block::CachePoint { .. } => {}
                Block::ToolUse(_) => return Err("a tool use of the user's".to_owned()),
                Block::ReasoningContent(_) => return Err("a thought of the user's".to_owned()),
            }
        }
        self.pairs.closed()?;
        if has_document && texts.is_empty() {
            return Err("a document without a text block".to_owned());
        }
        if texts.is_empty() && !has_media {
            self.rounds += 1;
        } else {
            (self.last_user, self.rounds) = (texts.join("\n"), 0);
            (self.thoughts, self.begun) = (Vec::new(), None);
        }
        Ok(())
    }

    fn media(&mut self, block: &'a Block) -> Result<(), String> {
        block.check_media()?;
        match block {
            Block::Document(Document { name, .. }) if !self.names.insert(name) => {
                Err(format!("duplicate document names: `{name}`"))
            }
            _ => Ok(()),
        }
    }

    fn result(&mut self, result: &'a ToolResult) -> Result<(), String> {
        self.has_tools = true;
        self.pairs.answer(&result.tool_use_id)?;
        if result.content.is_empty() {
            return Err("a tool result without content".to_owned());
        }
        let mut text = Vec::new();
        for block in &result.content {
            match block {
                Block::Text(said) => {
                    self.words += words_of(said)?;
                    text.push(said.as_str());
                }
                Block::Image(_) | Block::Document(_) => self.media(block)?,
                _ => return Err("a tool result with other things in it".to_owned()),
            }
        }
        self.results.push(text.join("\n"));
        Ok(())
    }

    fn assistant(&mut self, content: &'a [Block]) -> Result<(), String> {
        let is_thought = |block: &Block| matches!(block, Block::ReasoningContent(_));
        let count = content.iter().filter(|block| is_thought(block)).count();
        let mut thoughts = String::new();
        for (index, block) in content.iter().enumerate() {
            match block {
                Block::Text(text) => self.words += words_of(text)?,
                Block::ReasoningContent(Reasoning::ReasoningText(ReasoningText {
                    text,
                    signature,
                })) => {
                    check_signed((index, count), text, signature)?;
                    thoughts.push_str(text);
                }
                Block::ReasoningContent(Reasoning::RedactedContent(data)) => {
                    let data =
                        STANDARD.decode(data).map_err(|error| format!("no base64: {error}"))?;
                    check_sealed((index, count), &String::from_utf8_lossy(&data))?;
                }
                Block::ToolUse(ToolUse { id, name, input }) => {
                    self.has_tools = true;
                    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
                    if id.is_empty() || !id.bytes().all(plain) {
                        return Err(format!("a tool use id `{id}`"));
                    }
                    if !self.pairs.ask(id, name)? {
                        return Err(format!("two tool uses `{id}`"));
                    }
                    if !input.is_object() {
                        return Err(format!("the input of tool use `{id}` is not an object"));
                    }
                }
                _ => return Err("a block of the assistant's that is none".to_owned()),
            }
        }
        if content.last().is_some_and(is_thought) {
            return Err("the final block in an assistant message cannot be `thinking`".to_owned());
        }
        self.thoughts.push(thoughts);
        self.begun.get_or_insert(content.first().is_some_and(is_thought));
        Ok(())
    }
}
