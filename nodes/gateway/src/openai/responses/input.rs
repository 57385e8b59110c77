//! The items of `input`, as messages of a chat completion, which are read there.

use serde_json::{Map, Value, json};

use super::super::{
    super::error::OpenAiError,
    message_parts::check_detail,
    tools::{call_of, short},
};

/// The messages, and where in the request each came from.
#[derive(Debug, Default)]
pub(super) struct RequestConversation {
    pub(super) messages: Vec<Value>,
    pub(super) places: Vec<String>,
}

// === impl RequestConversation ===

impl RequestConversation {
    /// Reads `instructions` and `input`.
    pub(super) fn read(
        instructions: Option<Value>,
        input: Option<Value>,
    ) -> Result<Self, OpenAiError> {
        let mut conversation = Self::default();
        if let Some(text) = instructions {
            if !text.is_string() {
                let what = "`instructions` is not a text";
                return Err(OpenAiError::invalid("instructions", what));
            }
            conversation.say("instructions", json!({"role": "system", "content": text}));
        }
        match input {
            Some(text @ Value::String(_)) => {
                conversation.say("input", json!({"role": "user", "content": text}));
            }
            Some(Value::Array(items)) => {
                for (at, item) in items.into_iter().enumerate() {
                    conversation.item(&format!("input[{at}]"), item)?;
                }
            }
            _ => {
                let what = "`input` is neither a text nor a list of items";
                return Err(OpenAiError::invalid("input", what));
            }
        }
        conversation.add_calls();
        Ok(conversation)
    }

    /// Who goes on with a response brings results without their calls. Those name their turn, which knows
    /// the calls: here they only need to be there.
    fn add_calls(&mut self) {
        let is_result = |message: &Value| message["role"] == "tool";
        let begins =
            self.messages.iter().rposition(|message| !is_result(message)).map_or(0, |at| at + 1);
        let results = self.messages.split_off(begins);
        let places = self.places.split_off(begins);
        let made =
            self.messages.iter().filter_map(|message| message["tool_calls"].as_array()).flatten();
        let made: Vec<Value> = made.map(|call| call["id"].clone()).collect();
        for (result, place) in results.iter().zip(&places) {
            let id = &result["tool_call_id"];
            if id.as_str().and_then(call_of).is_some() && !made.contains(id) {
                let call = called(Some(id), Some(&"function".into()), Some(&"{}".into()));
                self.call(place, call);
            }
        }
        self.messages.extend(results);
        self.places.extend(places);
    }

    fn say(&mut self, place: &str, message: Value) {
        self.messages.push(message);
        self.places.push(place.to_owned());
    }

    fn item(&mut self, place: &str, item: Value) -> Result<(), OpenAiError> {
        let Value::Object(mut item) = item else {
            return Err(OpenAiError::invalid(place, format!("`{place}` is not an object")));
        };
        item.retain(|_, value| !value.is_null());
        let kind = item.get("type").and_then(Value::as_str).unwrap_or("message").to_owned();
        match kind.as_str() {
            "message" => {
                known(place, &item, &["type", "role", "content", "id", "status", "phase"])?;
                let content =
                    item.remove("content").map(|value| content(place, value)).transpose()?;
                let role = item.remove("role");
                self.say(place, json!({"role": role, "content": content}));
            }
            "function_call" => {
                known(place, &item, &["type", "call_id", "name", "arguments", "id", "status"])?;
                let field = |name: &str| item.get(name);
                self.call(place, called(field("call_id"), field("name"), field("arguments")));
            }
            "function_call_output" => {
                known(place, &item, &["type", "call_id", "output", "id", "status"])?;
                let (id, output) = (item.remove("call_id"), item.remove("output"));
                let content = output.map(|value| output_content(place, value)).transpose()?;
                self.say(place, json!({"role": "tool", "tool_call_id": id, "content": content}));
            }
            // The thoughts of an earlier conversation do not become messages.
            "reasoning" => {
                known(place, &item, &["type", "id", "summary", "content", "status"])?;
            }
            "mcp_call" => self.ran(place, &item)?,
            kind => {
                let kind = short(kind);
                let what = format!("items of type `{kind}` are not offered");
                return Err(OpenAiError::unsupported(format!("{place}.type"), what));
            }
        }
        Ok(())
    }

    /// A call belongs to the message of the assistant right before it.
    fn call(&mut self, place: &str, call: Value) {
        let last = self.messages.last_mut().filter(|last| last["role"] == "assistant");
        match last.map(|last| &mut last["tool_calls"]) {
            Some(Value::Array(calls)) => calls.push(call),
            Some(none) => *none = json!([call]),
            None => {
                let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
                self.say(place, message);
            }
        }
    }

    /// A call of a tool of the agent, and its result: both as the response showed them.
    fn ran(&mut self, place: &str, item: &Map<String, Value>) -> Result<(), OpenAiError> {
        let field = |name: &str| item.get(name).and_then(Value::as_str);
        let (Some(id), Some(name)) = (field("id"), field("name")) else {
            let what = format!("`{place}` has no `id` and `name`");
            return Err(OpenAiError::invalid(place, what));
        };
        let name = match field("server_label") {
            Some(server) if server != super::response_object::OWN_SERVER => {
                format!("{server}__{name}")
            }
            _ => name.to_owned(),
        };
        // Arguments that were cut are no JSON any more.
        let arguments = field("arguments").unwrap_or("{}");
        let is_whole = serde_json::from_str::<Map<String, Value>>(arguments).is_ok();
        let arguments =
            if is_whole { arguments.to_owned() } else { json!({"cut": arguments}).to_string() };
        self.call(place, called(Some(&id.into()), Some(&name.into()), Some(&arguments.into())));
        let output = field("output").map(str::to_owned);
        let output = output.or_else(|| item.get("error").map(Value::to_string)).unwrap_or_default();
        self.say(place, json!({"role": "tool", "tool_call_id": id, "content": output}));
        Ok(())
    }
}

/// A tool call as a chat completion has it.
fn called(id: Option<&Value>, name: Option<&Value>, arguments: Option<&Value>) -> Value {
    let function = json!({"name": name, "arguments": arguments});
    json!({"id": id, "type": "function", "function": function})
}

/// The content of a message: text, or parts as a chat completion has them.
fn content(place: &str, content: Value) -> Result<Value, OpenAiError> {
    let Value::Array(parts) = content else { return Ok(content) };
    let parts = parts.into_iter().enumerate();
    let parts = parts.map(|(at, value)| part(&format!("{place}.content[{at}]"), value));
    parts.collect::<Result<Vec<Value>, _>>().map(Value::Array)
}

fn part(place: &str, part: Value) -> Result<Value, OpenAiError> {
    let Value::Object(mut part) = part else {
        return Err(OpenAiError::invalid(place, format!("`{place}` is not an object")));
    };
    part.retain(|_, value| !value.is_null());
    let kind = part.get("type").and_then(Value::as_str).unwrap_or("untyped").to_owned();
    let mut read = |fields: &[&str]| {
        known(place, &part, fields)?;
        Ok::<_, OpenAiError>(std::mem::take(&mut part))
    };
    Ok(match kind.as_str() {
        "input_text" | "text" => {
            let mut part = read(&["type", "text"])?;
            json!({"type": "text", "text": part.remove("text")})
        }
        "output_text" => {
            let mut part = read(&["type", "text", "annotations", "logprobs"])?;
            json!({"type": "text", "text": part.remove("text")})
        }
        "refusal" => {
            let mut part = read(&["type", "refusal"])?;
            json!({"type": "text", "text": part.remove("refusal")})
        }
        "input_image" => {
            let mut part = read(&["type", "image_url", "file_id", "detail"])?;
            check_detail(&format!("{place}.detail"), "detail", part.get("detail"))?;
            if let Some(file) = part.remove("file_id") {
                json!({"type": "file", "file": {"file_id": file}})
            } else {
                json!({"type": "image_url", "image_url": {"url": part.remove("image_url")}})
            }
        }
        "input_file" => {
            let mut part = read(&["type", "file_id", "file_data", "file_url", "filename"])?;
            // A chat completion has URLs of both kinds in one field.
            if let Some(url) = part.remove("file_url") {
                if part.contains_key("file_data") {
                    let what = format!("`{place}` has both `file_data` and `file_url`");
                    return Err(OpenAiError::invalid(place, what));
                }
                part.insert("file_data".to_owned(), url);
            }
            let fields = part.into_iter().filter(|(name, _)| name != "type");
            json!({"type": "file", "file": fields.collect::<Map<_, _>>()})
        }
        "input_audio" => {
            let mut part = read(&["type", "input_audio"])?;
            json!({"type": "input_audio", "input_audio": part.remove("input_audio")})
        }
        kind => {
            let what = format!("content parts of type `{}` are not offered", short(kind));
            return Err(OpenAiError::unsupported(format!("{place}.type"), what));
        }
    })
}

/// What a tool of the client answered: text, or parts of text, pictures and files.
fn output_content(place: &str, output: Value) -> Result<Value, OpenAiError> {
    let Value::Array(parts) = output else { return Ok(output) };
    let parts = parts.into_iter().enumerate();
    let parts = parts.map(|(at, value)| part(&format!("{place}.output[{at}]"), value));
    parts.collect::<Result<Vec<Value>, _>>().map(Value::Array)
}

/// Refuses what is not read.
fn known(place: &str, fields: &Map<String, Value>, names: &[&str]) -> Result<(), OpenAiError> {
    match fields.keys().find(|name| !names.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let path = format!("{place}.{}", short(name));
            let what = format!("there is no `{path}` here");
            Err(OpenAiError::unsupported(path, what))
        }
    }
}
