//! The settings of a request that a model is given, and what its reply has to fit.

use clawnode_proto::{llm::Sampling, reasoning::Reasoning, response::ResponseSchema};
use serde_json::{Map, Value};

use super::{super::error::AnthropicError, blocks::object, tools};

/// Texts at most at which the model stops; its provider may take fewer.
const STOPS: usize = 16;

/// The settings.
pub(super) fn sampling(fields: &Map<String, Value>) -> Result<Sampling, AnthropicError> {
    let (tool_choice, one_at_a_time) = tools::choice(fields)?;
    let max_tokens = fields.get("max_tokens").and_then(Value::as_u64);
    let max_tokens =
        max_tokens.and_then(|tokens| u32::try_from(tokens).ok()).filter(|tokens| *tokens > 0);
    let max_tokens = max_tokens.ok_or_else(|| {
        AnthropicError::invalid("max_tokens", "it is missing, or no number of tokens")
    })?;
    let reasoning = reasoning(fields, max_tokens)?;
    // The limit of this API counts thoughts in; that of a reply does not.
    let thoughts = match reasoning {
        Some(Reasoning::Tokens(tokens)) => tokens,
        _ => 0,
    };
    Ok(Sampling {
        temperature: share(fields, "temperature")?,
        // All words are what a provider chooses from anyway, and some take not both of these settings.
        top_p: share(fields, "top_p")?.filter(|share| *share < 1.0),
        top_k: top_k(fields)?,
        max_tokens: Some(max_tokens.saturating_sub(thoughts)),
        stop: stops(fields)?,
        reasoning,
        tool_choice,
        parallel_tool_calls: one_at_a_time.then_some(false),
        ..Sampling::default()
    })
}

/// What the reply has to fit.
pub(super) fn response_schema(
    fields: &Map<String, Value>,
) -> Result<Option<ResponseSchema>, AnthropicError> {
    let config = output_config(fields)?;
    let path = "output_config.format";
    let Some(format) = config.get("format") else { return Ok(None) };
    let format = object(path, format, &["type", "schema"])?;
    if format.get("type").is_none_or(|kind| kind != "json_schema") {
        let what = "it is not `json_schema`";
        return Err(AnthropicError::unsupported(&format!("{path}.type"), what));
    }
    match format.get("schema") {
        Some(schema @ Value::Object(_)) => Ok(Some(ResponseSchema::new(None, schema))),
        Some(_) | None => {
            Err(AnthropicError::invalid(&format!("{path}.schema"), "it is not a JSON Schema"))
        }
    }
}

/// How much the model thinks: so many tokens, or as much as it decides by itself at this effort. The agent
/// says it for a request without `thinking`.
fn reasoning(
    fields: &Map<String, Value>,
    max_tokens: u32,
) -> Result<Option<Reasoning>, AnthropicError> {
    let effort = effort(fields)?;
    let Some(thinking) = fields.get("thinking") else { return Ok(effort) };
    let thinking = object("thinking", thinking, &["type", "budget_tokens", "display"])?;
    if thinking.get("display").is_some_and(|display| display != "summarized") {
        let what = "only `summarized` is offered";
        return Err(AnthropicError::unsupported("thinking.display", what));
    }
    let budget = thinking.get("budget_tokens");
    match thinking.get("type").and_then(Value::as_str) {
        Some("enabled") => {
            let tokens = budget.and_then(Value::as_u64).and_then(Reasoning::tokens);
            let tokens = tokens.filter(|effort| effort.budget() < max_tokens);
            let what = format!(
                "it is not a number of tokens from {} to below `max_tokens`",
                Reasoning::MIN_TOKENS
            );
            let wrong = || AnthropicError::invalid("thinking.budget_tokens", &what);
            Ok(Some(tokens.ok_or_else(wrong)?))
        }
        Some("adaptive" | "disabled") if budget.is_some() => {
            let what = "only `enabled` has a budget";
            Err(AnthropicError::invalid("thinking.budget_tokens", what))
        }
        Some("adaptive") => Ok(Some(effort.unwrap_or(Reasoning::High))),
        Some("disabled") => Ok(Some(Reasoning::Off)),
        Some(_) | None => {
            let what = "it is not `enabled`, `adaptive` or `disabled`";
            Err(AnthropicError::unsupported("thinking.type", what))
        }
    }
}

fn effort(fields: &Map<String, Value>) -> Result<Option<Reasoning>, AnthropicError> {
    match output_config(fields)?.get("effort").map(Value::as_str) {
        None => Ok(None),
        Some(Some("low")) => Ok(Some(Reasoning::Low)),
        Some(Some("medium")) => Ok(Some(Reasoning::Medium)),
        Some(Some("high" | "xhigh" | "max")) => Ok(Some(Reasoning::High)),
        Some(_) => {
            let what = "it is not `low`, `medium`, `high`, `xhigh` or `max`";
            Err(AnthropicError::invalid("output_config.effort", what))
        }
    }
}

fn output_config(fields: &Map<String, Value>) -> Result<Map<String, Value>, AnthropicError> {
    let config = fields.get("output_config");
    config.map_or_else(
        || Ok(Map::new()),
        |config| object("output_config", config, &["effort", "format"]),
    )
}

/// A number from 0 to 1.
fn share(fields: &Map<String, Value>, name: &str) -> Result<Option<f64>, AnthropicError> {
    let Some(value) = fields.get(name) else { return Ok(None) };
    let number = value.as_f64().filter(|number| (0.0..=1.0).contains(number));
    number.map(Some).ok_or_else(|| AnthropicError::invalid(name, "it is not a number from 0 to 1"))
}

/// A number of words, of which there is at least one.
fn top_k(fields: &Map<String, Value>) -> Result<Option<u32>, AnthropicError> {
    let Some(value) = fields.get("top_k") else { return Ok(None) };
    let number =
        value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
    number.map(Some).ok_or_else(|| AnthropicError::invalid("top_k", "it is not a number of words"))
}

fn stops(fields: &Map<String, Value>) -> Result<Vec<String>, AnthropicError> {
    let wrong = || {
        let what = format!("it is not a list of up to {STOPS} texts");
        AnthropicError::invalid("stop_sequences", &what)
    };
    match fields.get("stop_sequences") {
        None => Ok(Vec::new()),
        Some(Value::Array(all)) if all.len() <= STOPS => {
            all.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}
