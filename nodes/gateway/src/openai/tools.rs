//! Tools that a client runs: what it offers, which calls it made before, and what it brings.
//!
//! The id of a call names its session, so that any gateway finds the turn that waits, whatever else the
//! request says.

use std::collections::BTreeSet;

use clawnode_proto::{
    CallId, EntityId, ToolName,
    client_tool::{ClientCall, ClientTool},
    limits::{CLIENT_TOOLS, CLIENT_TOOLS_BYTES},
    tool::ToolUse,
    tool_choice::ToolChoice,
};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::super::error::OpenAiError;

/// The only kind of tool.
const FUNCTION: &str = "function";
/// Between the call and its session in an id.
const OF: char = '-';
/// Characters of a name or id that are repeated.
const NAME_CHARS: usize = 80;

/// A tool call as clients are given it.
#[derive(Debug, Serialize)]
pub(super) struct HandedCall<'a> {
    /// Its place, in a chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) index: Option<usize>,
    id: String,
    r#type: &'static str,
    function: HandedFunction<'a>,
}

/// What is wrong with the tools of a request together.
#[derive(Debug, thiserror::Error)]
pub(in super::super) enum OfferFault {
    #[error("there are {0} `tools`, the limit is {CLIENT_TOOLS}")]
    Many(usize),
    /// The place of the second one, and its name.
    #[error("two of `tools` are called `{1}`")]
    Twice(usize, ToolName),
    #[error("all `tools` together take {0} bytes, the limit is {CLIENT_TOOLS_BYTES}")]
    Long(usize),
}

#[derive(Debug, Serialize)]
struct HandedFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

// === impl HandedCall ===

impl<'a> HandedCall<'a> {
    pub(super) fn new(call: &'a ClientCall, session: EntityId, index: Option<usize>) -> Self {
        let function = HandedFunction { name: &call.name, arguments: &call.arguments };
        Self { index, id: handed_id(call.id, session), r#type: FUNCTION, function }
    }
}

/// The id of a call as its client is given it.
pub(in super::super) fn handed_id(call: CallId, session: EntityId) -> String {
    format!("{call}{OF}{session}")
}

/// The call and the session of an id that a client was given.
pub(super) fn call_of(id: &str) -> Option<(CallId, EntityId)> {
    let (call, session) = id.split_once(OF)?;
    Some((call.parse().ok()?, session.parse().ok()?))
}

/// The tools that a request offers.
pub(super) fn offered(fields: &Map<String, Value>) -> Result<Vec<ClientTool>, OpenAiError> {
    let list = match fields.get("tools") {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(OpenAiError::invalid("tools", "`tools` is not a list")),
    };
    let tools = list.iter().enumerate().map(|(at, tool)| tool_at(at, tool));
    let tools = tools.collect::<Result<Vec<_>, _>>()?;
    check_offer(&tools).map_err(|fault| {
        let path = match fault {
            OfferFault::Twice(at, _) => format!("tools[{at}].function.name"),
            OfferFault::Many(_) | OfferFault::Long(_) => "tools".to_owned(),
        };
        OpenAiError::invalid(path, fault.to_string())
    })?;
    Ok(tools)
}

/// Judges the tools of a request together.
pub(in super::super) fn check_offer(tools: &[ClientTool]) -> Result<(), OfferFault> {
    if tools.len() > CLIENT_TOOLS {
        return Err(OfferFault::Many(tools.len()));
    }
    let mut names = BTreeSet::new();
    for (at, tool) in tools.iter().enumerate() {
        if !names.insert(&tool.name) {
            return Err(OfferFault::Twice(at, tool.name.clone()));
        }
    }
    let bytes: usize = tools.iter().map(ClientTool::bytes).sum();
    if bytes > CLIENT_TOOLS_BYTES {
        return Err(OfferFault::Long(bytes));
    }
    Ok(())
}

fn tool_at(at: usize, tool: &Value) -> Result<ClientTool, OpenAiError> {
    let path = |field: &str| format!("tools[{at}].{field}");
    match tool.get("type").and_then(Value::as_str) {
        Some(FUNCTION) => {}
        Some(kind) => {
            let kind = short(kind);
            let what = format!("tools of type `{kind}` are not offered, only `{FUNCTION}`");
            return Err(OpenAiError::unsupported(path("type"), what));
        }
        None => return Err(OpenAiError::invalid(path("type"), "`type` is missing")),
    }
    let Some(Value::Object(function)) = tool.get(FUNCTION) else {
        return Err(OpenAiError::invalid(path(FUNCTION), "`function` is not an object"));
    };
    // `strict` holds anyway: a call whose arguments do not fit never reaches the client.
    let known = ["name", "description", "parameters", "strict"];
    if let Some(name) = function.keys().find(|name| !known.contains(&name.as_str())) {
        let name = short(name);
        let what = format!("a function has no `{name}`");
        return Err(OpenAiError::unsupported(path(&format!("function.{name}")), what));
    }
    let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
    let name: ToolName = name.parse().map_err(|error: clawnode_proto::id::ParseIdError| {
        OpenAiError::invalid(path("function.name"), error.to_string())
    })?;
    let description = match function.get("description") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(_) => {
            let what = "`description` is not a text";
            return Err(OpenAiError::invalid(path("function.description"), what));
        }
    };
    let input_schema = match function.get("parameters") {
        None | Some(Value::Null) => json!({"type": "object", "properties": {}}),
        Some(schema @ Value::Object(_)) => schema.clone(),
        Some(_) => {
            let what = "`parameters` is not an object";
            return Err(OpenAiError::invalid(path("function.parameters"), what));
        }
    };
    Ok(ClientTool { name, description, input_schema: input_schema.to_string() })
}

/// Whether the model must, may or must not call tools.
pub(super) fn choice(fields: &Map<String, Value>) -> Result<Option<ToolChoice>, OpenAiError> {
    let wrong = |what: &str| Err(OpenAiError::invalid("tool_choice", what));
    match fields.get("tool_choice") {
        None => Ok(None),
        Some(Value::String(word)) => match word.as_str() {
            "auto" => Ok(None),
            "none" => Ok(Some(ToolChoice::None)),
            "required" => Ok(Some(ToolChoice::Required)),
            _ => wrong("`tool_choice` is not `none`, `auto`, `required` or a function"),
        },
        Some(value) => match value.get("type").and_then(Value::as_str) {
            Some(FUNCTION) => {
                let name = value.get(FUNCTION).and_then(|function| function.get("name"));
                let name = name.and_then(Value::as_str).and_then(|name| name.parse().ok());
                match name {
                    Some(name) => Ok(Some(ToolChoice::Tool { name })),
                    None => wrong("`tool_choice.function.name` is not the name of a tool"),
                }
            }
            Some(kind) => {
                let what = format!("`tool_choice` of type `{}` is not offered", short(kind));
                Err(OpenAiError::unsupported("tool_choice", what))
            }
            None => wrong("`tool_choice` is not `none`, `auto`, `required` or a function"),
        },
    }
}

/// The calls that a message of the assistant made.
pub(super) fn made(at: usize, message: &Value) -> Result<Vec<ToolUse>, OpenAiError> {
    let list = match message.get("tool_calls") {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => {
            let path = format!("messages[{at}].tool_calls");
            return Err(OpenAiError::invalid(path, "`tool_calls` is not a list"));
        }
    };
    let read = |(nth, call): (usize, &Value)| {
        let path = |field: &str| format!("messages[{at}].tool_calls[{nth}].{field}");
        let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
        if call.get("type").is_some_and(|kind| kind != FUNCTION) {
            let what = "only calls of type `function` are offered";
            return Err(OpenAiError::unsupported(path("type"), what));
        }
        let id = text(call.get("id")).filter(|id| !id.is_empty());
        let id = id.ok_or_else(|| OpenAiError::invalid(path("id"), "`id` is missing"))?;
        let function = call.get(FUNCTION);
        let name = text(function.and_then(|function| function.get("name")));
        let name = name.filter(|name| name.parse::<ToolName>().is_ok()).ok_or_else(|| {
            OpenAiError::invalid(path("function.name"), "`name` is not the name of a tool")
        })?;
        let arguments = text(function.and_then(|function| function.get("arguments")));
        let arguments = arguments.map(|text| if text.is_empty() { "{}".to_owned() } else { text });
        let is_object = |text: &String| serde_json::from_str::<Map<String, Value>>(text).is_ok();
        let arguments = arguments.filter(is_object).ok_or_else(|| {
            let what = "`arguments` is not a JSON object, as text";
            OpenAiError::invalid(path("function.arguments"), what)
        })?;
        Ok(ToolUse { id, name, arguments })
    };
    list.iter().enumerate().map(read).collect()
}

/// As much of a foreign text as is repeated.
pub(in super::super) fn short(text: &str) -> String {
    text.chars().take(NAME_CHARS).collect()
}
