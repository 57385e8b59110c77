//! The settings of a request that a model is given.

use std::collections::BTreeMap;

use clawnode_proto::{llm::Sampling, reasoning::Reasoning};
use serde_json::{Map, Value};

use super::{super::error::OpenAiError, tools};

/// Stop sequences at most, as OpenAI has it.
const STOPS: usize = 4;
/// Tokens with a bias at most, as OpenAI has it.
const BIASES: usize = 1_024;

/// The settings.
pub(super) fn sampling(fields: &Map<String, Value>) -> Result<Sampling, OpenAiError> {
    let temperature = within(fields, "temperature", 0.0, 2.0)?;
    // All words are what a provider chooses from anyway, and some take not both of these settings.
    let top_p = within(fields, "top_p", 0.0, 1.0)?.filter(|share| *share < 1.0);
    // The newer name goes before the older one.
    let name =
        ["max_completion_tokens", "max_tokens"].into_iter().find(|name| fields.contains_key(*name));
    let max_tokens = match name.and_then(|name| Some((name, fields.get(name)?))) {
        None => None,
        Some((name, value)) => {
            let tokens = value
                .as_u64()
                .and_then(|tokens| u32::try_from(tokens).ok())
                .filter(|tokens| *tokens > 0);
            Some(tokens.ok_or_else(|| {
                OpenAiError::invalid(name, format!("`{name}` is not a number of tokens"))
            })?)
        }
    };
    let penalty = |name| {
        let penalty = within(fields, name, -2.0, 2.0)?;
        Ok::<_, OpenAiError>(penalty.filter(|penalty| *penalty != 0.0))
    };
    let parallel_tool_calls = flag_or(fields, "parallel_tool_calls", true)?;
    Ok(Sampling {
        temperature,
        top_p,
        top_k: None,
        max_tokens,
        stop: stops(fields)?,
        reasoning: effort(fields)?,
        presence_penalty: penalty("presence_penalty")?,
        frequency_penalty: penalty("frequency_penalty")?,
        seed: seed(fields)?,
        logit_bias: biases(fields)?,
        tool_choice: tools::choice(fields)?,
        parallel_tool_calls: (!parallel_tool_calls).then_some(false),
    })
}

fn seed(fields: &Map<String, Value>) -> Result<Option<i64>, OpenAiError> {
    let Some(value) = fields.get("seed") else { return Ok(None) };
    let wrong = || OpenAiError::invalid("seed", "`seed` is not a whole number");
    value.as_i64().map(Some).ok_or_else(wrong)
}

fn biases(fields: &Map<String, Value>) -> Result<BTreeMap<String, f64>, OpenAiError> {
    let wrong = || {
        let what =
            format!("`logit_bias` is not up to {BIASES} tokens with a number from -100 to 100");
        OpenAiError::invalid("logit_bias", what)
    };
    let biases = match fields.get("logit_bias") {
        None => return Ok(BTreeMap::new()),
        Some(Value::Object(biases)) if biases.len() <= BIASES => biases,
        Some(_) => return Err(wrong()),
    };
    let read = |(token, bias): (&String, &Value)| {
        let bias = bias.as_f64().filter(|bias| (-100.0..=100.0).contains(bias));
        let token = token.parse::<u32>().ok().map(|_| token.clone());
        token.zip(bias).ok_or_else(wrong)
    };
    biases.iter().map(read).collect()
}

/// How much the model thinks, in the words of this protocol.
fn effort(fields: &Map<String, Value>) -> Result<Option<Reasoning>, OpenAiError> {
    let name = "reasoning_effort";
    let Some(value) = fields.get(name) else { return Ok(None) };
    let effort = match value.as_str() {
        Some("none") => Some(Reasoning::Off),
        Some("minimal" | "low") => Some(Reasoning::Low),
        Some("medium") => Some(Reasoning::Medium),
        Some("high" | "xhigh") => Some(Reasoning::High),
        _ => None,
    };
    let what = "`reasoning_effort` is not `none`, `minimal`, `low`, `medium`, `high` or `xhigh`";
    Ok(Some(effort.ok_or_else(|| OpenAiError::invalid(name, what))?))
}

/// A number from `least` to `most`.
fn within(
    fields: &Map<String, Value>,
    name: &str,
    least: f64,
    most: f64,
) -> Result<Option<f64>, OpenAiError> {
    let Some(value) = fields.get(name) else { return Ok(None) };
    let number = value.as_f64().filter(|number| (least..=most).contains(number));
    let wrong =
        || OpenAiError::invalid(name, format!("`{name}` is not a number from {least} to {most}"));
    number.map(Some).ok_or_else(wrong)
}

fn stops(fields: &Map<String, Value>) -> Result<Vec<String>, OpenAiError> {
    let wrong =
        || OpenAiError::invalid("stop", format!("`stop` is not a text or a list of up to {STOPS}"));
    match fields.get("stop") {
        None => Ok(Vec::new()),
        Some(Value::String(text)) => Ok(vec![text.clone()]),
        Some(Value::Array(all)) if all.len() <= STOPS => {
            all.iter().map(|one| one.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// A flag, or what it is if it is absent.
pub(super) fn flag_or(
    fields: &Map<String, Value>,
    name: &str,
    otherwise: bool,
) -> Result<bool, OpenAiError> {
    match fields.get(name) {
        None | Some(Value::Null) => Ok(otherwise),
        Some(Value::Bool(flag)) => Ok(*flag),
        Some(_) => Err(OpenAiError::invalid(name, format!("`{name}` is not true or false"))),
    }
}
