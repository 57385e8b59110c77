//! Tools that a client runs, and whether the model has to call one.

use clawnode_proto::{ToolName, client_tool::ClientTool, tool_choice::ToolChoice};
use serde_json::{Map, Value};

use super::{
    super::{
        error::AnthropicError,
        openai::tools::{OfferFault, check_offer, short},
    },
    blocks::{check_cache_control, object},
};

/// The only type of tool.
const CUSTOM: &str = "custom";

/// The tools that a request offers.
pub(super) fn offered(fields: &Map<String, Value>) -> Result<Vec<ClientTool>, AnthropicError> {
    let list = match fields.get("tools") {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(AnthropicError::invalid("tools", "it is not a list")),
    };
    let tools = list.iter().enumerate().map(|(at, tool)| tool_at(&format!("tools.{at}"), tool));
    let tools = tools.collect::<Result<Vec<_>, _>>()?;
    check_offer(&tools).map_err(|fault| {
        let path = match fault {
            OfferFault::Twice(at, _) => format!("tools.{at}.name"),
            OfferFault::Many(_) | OfferFault::Long(_) => "tools".to_owned(),
        };
        AnthropicError::invalid(&path, &fault.to_string())
    })?;
    Ok(tools)
}

fn tool_at(path: &str, tool: &Value) -> Result<ClientTool, AnthropicError> {
    if let Some(kind) = tool.get("type").and_then(Value::as_str).filter(|kind| *kind != CUSTOM) {
        let kind = short(kind);
        let what = format!("tools of type `{kind}` are not offered, only `{CUSTOM}`");
        return Err(AnthropicError::unsupported(&format!("{path}.type"), &what));
    }
    // `strict` holds anyway: a call whose arguments do not fit never reaches the client. They come whole,
    // so that to stream them eagerly changes nothing.
    let known = [
        "type",
        "name",
        "description",
        "input_schema",
        "cache_control",
        "strict",
        "eager_input_streaming",
    ];
    let fields = object(path, tool, &known)?;
    if let Some(control) = fields.get("cache_control") {
        check_cache_control(path, control)?;
    }
    let path = |field: &str| format!("{path}.{field}");
    let name = fields.get("name").and_then(Value::as_str).unwrap_or_default();
    let name: ToolName = name.parse().map_err(|error: clawnode_proto::id::ParseIdError| {
        AnthropicError::invalid(&path("name"), &error.to_string())
    })?;
    let description = match fields.get("description") {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(_) => return Err(AnthropicError::invalid(&path("description"), "it is not a text")),
    };
    match fields.get("input_schema") {
        Some(schema @ Value::Object(_)) => {
            Ok(ClientTool { name, description, input_schema: schema.to_string() })
        }
        Some(_) | None => {
            Err(AnthropicError::invalid(&path("input_schema"), "it is missing, or no object"))
        }
    }
}

/// Whether the model must, may or must not call tools, and whether one at a time.
pub(super) fn choice(
    fields: &Map<String, Value>,
) -> Result<(Option<ToolChoice>, bool), AnthropicError> {
    let Some(choice) = fields.get("tool_choice") else { return Ok((None, false)) };
    let known = ["type", "name", "disable_parallel_tool_use"];
    let choice = object("tool_choice", choice, &known)?;
    let one_at_a_time = match choice.get("disable_parallel_tool_use") {
        None => false,
        Some(Value::Bool(flag)) => *flag,
        Some(_) => {
            let path = "tool_choice.disable_parallel_tool_use";
            return Err(AnthropicError::invalid(path, "it is not true or false"));
        }
    };
    let choice = match choice.get("type").and_then(Value::as_str) {
        Some("auto") => None,
        Some("none") => Some(ToolChoice::None),
        Some("any") => Some(ToolChoice::Required),
        Some("tool") => {
            let name = choice.get("name").and_then(Value::as_str);
            let name = name.and_then(|name| name.parse().ok()).ok_or_else(|| {
                AnthropicError::invalid("tool_choice.name", "it is not the name of a tool")
            })?;
            Some(ToolChoice::Tool { name })
        }
        _ => {
            let what = "it is not `auto`, `any`, `tool` or `none`";
            return Err(AnthropicError::invalid("tool_choice.type", what));
        }
    };
    Ok((choice, one_at_a_time))
}
