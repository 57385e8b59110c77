//! What the Responses wire demands of a request that stores nothing.

use clawnode_proto::media::MediaType;
use serde::Deserialize;
use serde_json::Value;

use super::{
    media::{self, IMAGES},
    request::{Asked, count},
    schemas,
    tools::{Pairs, check_offers},
};
use crate::model::thoughts::check_sealed;

/// Bytes of one file in base64.
const PART_BYTES: usize = 50 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Create {
    model: String,
    instructions: Option<String>,
    input: Vec<InputItem>,
    tools: Option<Vec<Tool>>,
    #[serde(default)]
    stream: bool,
    store: Option<bool>,
    #[serde(default)]
    include: Vec<String>,
    temperature: Option<f64>,
    #[serde(rename = "top_p")]
    _top_p: Option<f64>,
    max_output_tokens: Option<u32>,
    reasoning: Option<Effort>,
    text: Option<TextConfig>,
    tool_choice: Option<ToolChoice>,
    parallel_tool_calls: Option<bool>,
    #[serde(rename = "prompt_cache_key")]
    _prompt_cache_key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Effort {
    effort: Option<String>,
    #[serde(rename = "summary")]
    _summary: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TextConfig {
    format: TextFormat,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum TextFormat {
    Text,
    JsonObject,
    JsonSchema { name: String, schema: Value, strict: Option<bool> },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ToolChoice {
    Word(String),
    Tool(ChosenTool),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChosenTool {
    #[serde(rename = "type")]
    kind: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    #[serde(rename = "description")]
    _description: Option<String>,
    parameters: Value,
    strict: bool,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum InputItem {
    Message {
        role: String,
        content: Vec<Part>,
        #[serde(rename = "phase")]
        _phase: Option<String>,
    },
    FunctionCall {
        call_id: String,
        name: String,
        arguments: String,
    },
    FunctionCallOutput {
        call_id: String,
        output: Output,
    },
    Reasoning {
        id: String,
        summary: Vec<SummaryPart>,
        encrypted_content: Option<String>,
    },
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Output {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum Part {
    InputText {
        text: String,
    },
    OutputText {
        text: String,
    },
    InputImage {
        image_url: String,
        #[serde(rename = "detail")]
        _detail: String,
    },
    InputFile {
        filename: String,
        file_data: String,
    },
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
enum SummaryPart {
    SummaryText { text: String },
}

/// A conversation, item by item.
#[derive(Default)]
struct Reading<'a> {
    pairs: Pairs<'a>,
    begun: bool,
    users_turn: bool,
    last_user: String,
    rounds: usize,
    results: Vec<String>,
    thoughts: Vec<String>,
    words: u64,
    /// The items of the running reply, and those of them that are reasoning: place, content and summary.
    items: usize,
    reasoned: Vec<(usize, &'a str, String)>,
    /// Whether the last item is reasoning.
    waits: bool,
}

pub(super) fn responses(request: &Create) -> Result<Asked, String> {
    if request.store != Some(false) {
        return Err("`store` is not false".to_owned());
    }
    if request.include.iter().any(|include| include != "reasoning.encrypted_content") {
        return Err("an unknown `include`".to_owned());
    }
    if request.temperature.is_some_and(|temperature| !(0.0..=2.0).contains(&temperature)) {
        return Err("`temperature` is not within 0 and 2".to_owned());
    }
    if request.max_output_tokens == Some(0) {
        return Err("a limit of 0 tokens".to_owned());
    }
    let effort = request.reasoning.as_ref().and_then(|reasoning| reasoning.effort.as_deref());
    if effort.is_some_and(|effort| !["minimal", "low", "medium", "high"].contains(&effort)) {
        return Err("an unknown `reasoning.effort`".to_owned());
    }
    if let Some(tools) = &request.tools {
        if tools.iter().any(|tool| tool.kind != "function" || tool.strict) {
            return Err("a tool that is no function, or is strict".to_owned());
        }
        check_offers(tools.iter().map(|tool| (tool.name.as_str(), &tool.parameters)))?;
    }
    if let Some(choice) = &request.tool_choice {
        check_choice(choice, request.tools.as_deref().unwrap_or_default())?;
    }
    if request.parallel_tool_calls.is_some() && request.tools.is_none() {
        return Err("`parallel_tool_calls` without tools".to_owned());
    }
    let mut reading = Reading::default();
    reading.words += request.instructions.as_deref().map_or(0, count);
    for item in &request.input {
        reading.item(item)?;
    }
    if let Some(text) = &request.text {
        let instructions = request.instructions.as_deref().unwrap_or_default();
        check_format(&text.format, &format!("{instructions} {}", reading.last_user))?;
    }
    reading.ends()?;
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
        stream: request.stream,
        words: reading.words,
    })
}

fn check_format(format: &TextFormat, said: &str) -> Result<(), String> {
    match format {
        TextFormat::Text => Ok(()),
        TextFormat::JsonObject if said.to_lowercase().contains("json") => Ok(()),
        TextFormat::JsonObject => Err("`json_object` without the word `json`".to_owned()),
        TextFormat::JsonSchema { name, schema, strict } => {
            schemas::check_name(name)?;
            if *strict == Some(true) { schemas::check_closed(schema, true) } else { Ok(()) }
        }
    }
}

fn check_choice(choice: &ToolChoice, tools: &[Tool]) -> Result<(), String> {
    match choice {
        ToolChoice::Word(word) if ["none", "auto"].contains(&word.as_str()) => Ok(()),
        ToolChoice::Word(word) if word == "required" && !tools.is_empty() => Ok(()),
        ToolChoice::Word(word) => Err(format!("the tool choice `{word}` is invalid")),
        ToolChoice::Tool(ChosenTool { kind, name }) => {
            let is_offered = kind == "function" && tools.iter().any(|tool| tool.name == *name);
            let wrong = || Err(format!("Tool choice '{name}' not found in 'tools' parameter"));
            if is_offered { Ok(()) } else { wrong() }
        }
    }
}

/// The text of parts of a side.
fn text_of(parts: &[Part], is_user: bool) -> Result<String, String> {
    let mut texts = Vec::new();
    for part in parts {
        match part {
            Part::InputText { text } if is_user => texts.push(text.as_str()),
            Part::OutputText { text } if !is_user => texts.push(text.as_str()),
            Part::InputText { .. } | Part::OutputText { .. } => {
                return Err("a part of the other side".to_owned());
            }
            Part::InputImage { image_url, .. } => media::check_url(image_url, &IMAGES, PART_BYTES)?,
            Part::InputFile { filename, .. } if filename.is_empty() => {
                return Err("a file without a name".to_owned());
            }
            Part::InputFile { file_data, .. } => {
                media::check_url(file_data, &[MediaType::Pdf], PART_BYTES)?;
            }
        }
    }
    if parts.is_empty() || texts.iter().any(|text| text.trim().is_empty()) {
        return Err("a message with empty text".to_owned());
    }
    Ok(texts.join("\n"))
}

impl<'a> Reading<'a> {
    fn item(&mut self, item: &'a InputItem) -> Result<(), String> {
        match item {
            InputItem::Message { role, content, .. } if role == "user" => {
                self.ends()?;
                self.pairs.closed()?;
                let text = text_of(content, true)?;
                self.words += count(&text);
                if !self.users_turn {
                    self.results.clear();
                }
                self.thoughts.clear();
                (self.last_user, self.rounds, self.users_turn) = (text, 0, true);
            }
            InputItem::Message { role, content, .. } => {
                if role != "assistant" || !self.begun {
                    return Err("the conversation begins with the assistant".to_owned());
                }
                self.pairs.closed()?;
                self.words += count(&text_of(content, false)?);
                self.said(false);
            }
            InputItem::FunctionCall { call_id, name, arguments } => {
                if !self.begun {
                    return Err("the conversation begins with the assistant".to_owned());
                }
                let arguments: Result<Value, _> = serde_json::from_str(arguments);
                if !arguments.is_ok_and(|arguments| arguments.is_object()) {
                    return Err(format!("the arguments of `{call_id}` are no object in JSON"));
                }
                self.pairs.ask(call_id, name)?;
                self.said(false);
            }
            InputItem::FunctionCallOutput { call_id, output } => {
                self.ends()?;
                self.pairs.answer(call_id)?;
                if !self.users_turn {
                    self.results.clear();
                    self.rounds += 1;
                }
                let text = match output {
                    Output::Text(text) => text.clone(),
                    Output::Parts(parts) => text_of(parts, true)?,
                };
                self.words += count(&text);
                self.results.push(text);
                self.users_turn = true;
            }
            InputItem::Reasoning { id, summary, encrypted_content } => {
                let Some(content) = encrypted_content else {
                    return Err(format!("Item with id '{id}' not found: `store` is false"));
                };
                let text = summary.iter().map(|SummaryPart::SummaryText { text }| text.as_str());
                self.reasoned.push((self.items, content, text.collect()));
                self.said(true);
            }
        }
        self.begun = true;
        Ok(())
    }

    fn said(&mut self, waits: bool) {
        (self.users_turn, self.waits) = (false, waits);
        self.items += 1;
    }

    /// The assistant's reply is whole, if there is one: all that it reasoned is in its place.
    fn ends(&mut self) -> Result<(), String> {
        if self.items == 0 {
            return Ok(());
        }
        if self.waits {
            return Err(
                "Item of type 'reasoning' was provided without its required following item"
                    .to_owned(),
            );
        }
        let reasoned = std::mem::take(&mut self.reasoned);
        let mut thoughts = String::new();
        for (index, content, summary) in &reasoned {
            check_sealed((*index, reasoned.len()), content)?;
            if !summary.is_empty() && !content.starts_with(&format!("{summary}.")) {
                return Err("a summary of other reasoning".to_owned());
            }
            thoughts.push_str(summary);
        }
        self.thoughts.push(thoughts);
        self.items = 0;
        Ok(())
    }
}
