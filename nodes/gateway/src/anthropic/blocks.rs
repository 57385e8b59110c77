//! The messages of a request: who says them, and the blocks that they are made of.
//!
//! Thoughts come back with the messages of the assistant. A turn that waits for the results of tools has
//! its own in the journal, with the signatures of its provider; those of earlier turns are left out, as
//! Anthropic's API does. `cache_control` is taken: nodes mark themselves what their providers cache.

use clawnode_proto::{ErrorBody, ToolName, tool::ToolUse};
use serde_json::{Map, Value};

use super::super::{
    attachments::{self, AttachmentError},
    backend::AttachmentSource,
    error::AnthropicError,
    openai::{
        conversation::{RequestMessage, Said},
        message_parts::{BETWEEN, MessageContent},
        tools::short,
    },
    params::parse,
};

/// One block: its place in the request, and its fields without those that are `null`.
struct AnthropicRequestBlock<'a> {
    path: String,
    kind: &'a str,
    fields: Map<String, Value>,
}

/// The messages, and those of role `system`.
pub(super) fn messages(
    fields: &Map<String, Value>,
) -> Result<(Vec<RequestMessage>, Vec<String>), AnthropicError> {
    let Some(Value::Array(messages)) = fields.get("messages") else {
        return Err(AnthropicError::invalid("messages", "it is not a list of messages"));
    };
    let (mut said, mut system) = (Vec::new(), Vec::new());
    for (at, message) in messages.iter().enumerate() {
        let path = format!("messages.{at}");
        let fields = object(&path, message, &["role", "content"])?;
        let content = fields.get("content").unwrap_or(&Value::Null);
        let path = format!("{path}.content");
        let all = match fields.get("role").and_then(Value::as_str) {
            Some("user") => said_by_user(&path, content)?,
            Some("assistant") => vec![said_by_assistant(&path, content)?],
            Some("system") => {
                system.push(text_of(&path, content)?);
                continue;
            }
            Some(role) => {
                let what = format!("there is no role `{}`", short(role));
                return Err(AnthropicError::invalid(&format!("messages.{at}.role"), &what));
            }
            None => {
                return Err(AnthropicError::invalid(
                    &format!("messages.{at}.role"),
                    "it is missing",
                ));
            }
        };
        said.extend(all.into_iter().map(|said| RequestMessage { at, said }));
    }
    match said.last().map(|message| &message.said) {
        Some(Said::User(_) | Said::Tool { .. }) => Ok((said, system)),
        Some(Said::Assistant { .. }) => {
            let what =
                "the last message is of the assistant; a reply cannot be begun for the model";
            Err(AnthropicError::unsupported("messages", what))
        }
        Some(Said::System(_)) | None => {
            Err(AnthropicError::invalid("messages", "there is no message of role `user`"))
        }
    }
}

/// Text, or blocks of text, joined.
pub(super) fn text_of(path: &str, content: &Value) -> Result<String, AnthropicError> {
    let mut texts = Vec::new();
    for block in blocks(path, content)? {
        if block.kind != "text" {
            return Err(block.not_offered());
        }
        texts.push(block.text()?);
    }
    Ok(texts.join(BETWEEN))
}

/// What a tool answered: texts, pictures and documents.
fn answered(path: &str, content: &Value) -> Result<MessageContent, AnthropicError> {
    let mut answer = MessageContent::default();
    for block in blocks(path, content)? {
        block.add_to(&mut answer)?;
    }
    check_count(path, &answer)?;
    Ok(answer)
}

fn check_count(path: &str, content: &MessageContent) -> Result<(), AnthropicError> {
    let counted = attachments::check_count(content.attachments.len());
    counted.map_err(|error| AnthropicError::about(path, error))
}

fn said_by_user(path: &str, content: &Value) -> Result<Vec<Said>, AnthropicError> {
    let (mut results, mut said, mut is_said) = (Vec::new(), MessageContent::default(), false);
    for block in blocks(path, content)? {
        if block.kind == "tool_result" {
            if is_said {
                let what = "the results of tools go before all else in a message";
                return Err(AnthropicError::invalid(&block.path, what));
            }
            results.push(block.result()?);
            continue;
        }
        is_said = true;
        block.add_to(&mut said)?;
    }
    check_count(path, &said)?;
    if said.text.is_empty() && said.attachments.is_empty() {
        if results.is_empty() {
            return Err(AnthropicError::invalid(path, "a user message is empty"));
        }
        return Ok(results);
    }
    results.push(Said::User(said));
    Ok(results)
}

fn said_by_assistant(path: &str, content: &Value) -> Result<Said, AnthropicError> {
    let (mut text, mut calls) = (String::new(), Vec::new());
    for block in blocks(path, content)? {
        match block.kind {
            // A reply whose text was parted by a thought.
            "text" => text.push_str(&block.text()?),
            "thinking" => {
                block.knows(&["thinking", "signature"])?;
                block.field("thinking")?;
                block.field("signature")?;
            }
            "redacted_thinking" => {
                block.knows(&["data"])?;
                block.field("data")?;
            }
            "tool_use" => calls.push(block.call()?),
            _ => return Err(block.not_offered()),
        }
    }
    Ok(Said::Assistant { text, calls })
}

/// The blocks of a content; a text is one of them.
fn blocks<'a>(
    path: &str,
    content: &'a Value,
) -> Result<Vec<AnthropicRequestBlock<'a>>, AnthropicError> {
    let list = match content {
        Value::String(text) => {
            let fields = Map::from_iter([("text".to_owned(), text.as_str().into())]);
            return Ok(vec![AnthropicRequestBlock { path: path.to_owned(), kind: "text", fields }]);
        }
        Value::Array(list) => list,
        _ => return Err(AnthropicError::invalid(path, "it is neither text nor a list of blocks")),
    };
    let read = |(at, block): (usize, &'a Value)| {
        let path = format!("{path}.{at}");
        let Some(kind) = block.get("type").and_then(Value::as_str) else {
            return Err(AnthropicError::invalid(&path, "`type` is missing"));
        };
        let mut fields = block.as_object().cloned().unwrap_or_default();
        fields.retain(|name, value| !value.is_null() && name != "type");
        if let Some(control) = fields.remove("cache_control") {
            check_cache_control(&path, &control)?;
        }
        Ok(AnthropicRequestBlock { path, kind, fields })
    };
    list.iter().enumerate().map(read).collect()
}

/// It changes nothing here, and still has to be one.
pub(super) fn check_cache_control(path: &str, control: &Value) -> Result<(), AnthropicError> {
    if control.get("type").is_some_and(|kind| kind == "ephemeral") {
        return Ok(());
    }
    let what = r#"it is not `{"type":"ephemeral"}`"#;
    Err(AnthropicError::invalid(&format!("{path}.cache_control"), what))
}

/// An object with no other fields than these; without those that are `null`.
pub(super) fn object(
    path: &str,
    value: &Value,
    known: &[&str],
) -> Result<Map<String, Value>, AnthropicError> {
    let Value::Object(fields) = value else {
        return Err(AnthropicError::invalid(path, "it is not an object"));
    };
    let mut fields = fields.clone();
    fields.retain(|_, value| !value.is_null());
    check_known(path, &fields, known)?;
    Ok(fields)
}

fn check_known(
    path: &str,
    fields: &Map<String, Value>,
    known: &[&str],
) -> Result<(), AnthropicError> {
    let unknown = fields.keys().find(|name| !known.contains(&name.as_str()));
    unknown.map_or(Ok(()), |name| {
        let name = short(name);
        let what = format!("`{name}` is not offered");
        Err(AnthropicError::unsupported(&format!("{path}.{name}"), &what))
    })
}

// === impl AnthropicRequestBlock ===

impl AnthropicRequestBlock<'_> {
    fn not_offered(&self) -> AnthropicError {
        let what = format!("blocks of type `{}` are not offered here", short(self.kind));
        AnthropicError::unsupported(&self.path, &what)
    }

    fn knows(&self, known: &[&str]) -> Result<(), AnthropicError> {
        check_known(&self.path, &self.fields, known)
    }

    /// A field that is text.
    fn field(&self, name: &str) -> Result<&str, AnthropicError> {
        let field = self.fields.get(name).and_then(Value::as_str);
        field.ok_or_else(|| {
            AnthropicError::invalid(&format!("{}.{name}", self.path), "it is missing, or no text")
        })
    }

    fn text(&self) -> Result<String, AnthropicError> {
        let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
        if self.fields.get("citations").is_some_and(|citations| !is_empty(citations)) {
            let path = format!("{}.citations", self.path);
            return Err(AnthropicError::unsupported(&path, "citations are not offered"));
        }
        self.knows(&["text", "citations"])?;
        self.field("text").map(str::to_owned)
    }

    fn result(&self) -> Result<Said, AnthropicError> {
        self.knows(&["tool_use_id", "content", "is_error"])?;
        let path = |name: &str| format!("{}.{name}", self.path);
        let content = match self.fields.get("content") {
            None => MessageContent::default(),
            Some(content) => answered(&path("content"), content)?,
        };
        let is_error = match self.fields.get("is_error") {
            None => false,
            Some(Value::Bool(is_error)) => *is_error,
            Some(_) => {
                return Err(AnthropicError::invalid(&path("is_error"), "it is not true or false"));
            }
        };
        Ok(Said::Tool { id: self.field("tool_use_id")?.to_owned(), content, is_error })
    }

    fn call(&self) -> Result<ToolUse, AnthropicError> {
        self.knows(&["id", "name", "input", "caller"])?;
        let path = |name: &str| format!("{}.{name}", self.path);
        if self
            .fields
            .get("caller")
            .is_some_and(|caller| caller.get("type") != Some(&"direct".into()))
        {
            return Err(AnthropicError::unsupported(&path("caller"), "only `direct` is offered"));
        }
        let (id, name) = (self.field("id")?.to_owned(), self.field("name")?.to_owned());
        if id.is_empty() {
            return Err(AnthropicError::invalid(&path("id"), "it is empty"));
        }
        if name.parse::<ToolName>().is_err() {
            return Err(AnthropicError::invalid(&path("name"), "it is not the name of a tool"));
        }
        match self.fields.get("input") {
            Some(input @ Value::Object(_)) => {
                Ok(ToolUse { id, name, arguments: input.to_string() })
            }
            Some(_) | None => {
                Err(AnthropicError::invalid(&path("input"), "it is missing, or no object"))
            }
        }
    }

    fn image(&self) -> Result<AttachmentSource, AnthropicError> {
        self.knows(&["source"])?;
        self.source(None)?.ok_or_else(|| {
            let path = format!("{}.source.type", self.path);
            AnthropicError::invalid(&path, "it is not `base64`, `url` or `file`")
        })
    }

    /// Adds it to what a user or a tool says.
    fn add_to(&self, content: &mut MessageContent) -> Result<(), AnthropicError> {
        match self.kind {
            "text" => content.say(&self.text()?),
            "image" => content.attach(self.image()?),
            "document" => self.document(content)?,
            _ => return Err(self.not_offered()),
        }
        Ok(())
    }

    /// A document is attached; one of text is text.
    fn document(&self, content: &mut MessageContent) -> Result<(), AnthropicError> {
        self.knows(&["source", "title", "context", "citations"])?;
        let path = |name: &str| format!("{}.{name}", self.path);
        let off = Some(&Value::Bool(false));
        if self.fields.get("citations").is_some_and(|citations| citations.get("enabled") != off) {
            return Err(AnthropicError::unsupported(&path("citations"), "it is not offered"));
        }
        let text = |name: &str| match self.fields.get(name) {
            None => Ok(None),
            Some(_) => self.field(name).map(Some),
        };
        let title = text("title")?;
        content.say(text("context")?.unwrap_or_default());
        if let Some(source) = self.source(title)? {
            content.attach(source);
            return Ok(());
        }
        let source = self.fields.get("source").unwrap_or(&Value::Null);
        let written = match source.get("type").and_then(Value::as_str) {
            Some("text") => source.get("data"),
            Some("content") => source.get("content"),
            _ => {
                let what = "it is not `base64`, `text`, `content`, `url` or `file`";
                return Err(AnthropicError::invalid(&path("source.type"), what));
            }
        };
        content.say(title.unwrap_or_default());
        content.say(&text_of(&path("source"), written.unwrap_or(&Value::Null))?);
        Ok(())
    }

    /// What is attached, if it is no text.
    fn source(&self, name: Option<&str>) -> Result<Option<AttachmentSource>, AnthropicError> {
        let path = format!("{}.source", self.path);
        let source = self.fields.get("source").unwrap_or(&Value::Null);
        let field = |name: &str| {
            let value = source.get(name).and_then(Value::as_str);
            let missing = || AnthropicError::invalid(&format!("{path}.{name}"), "it is missing");
            value.ok_or_else(missing)
        };
        let about = |error: ErrorBody| AnthropicError::about(&path, error);
        let attached = |read: Result<AttachmentSource, AttachmentError>| {
            read.map(Some).map_err(|error| about(error.of("it")))
        };
        match source.get("type").and_then(Value::as_str) {
            // Its bytes say what it is, and not `media_type`.
            Some("base64") => {
                let content = attachments::content(name, field("data")?);
                attached(content.map(AttachmentSource::Content))
            }
            Some("url") => attached(attachments::at_url(name, field("url")?)),
            Some("file") => {
                let file = parse("file_id", field("file_id")?).map_err(about)?;
                Ok(Some(AttachmentSource::File(file)))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PNG: &str = "iVBORw0KGgo=";
    const PDF: &str = "JVBERi0xLjc=";

    fn read(messages: &Value) -> Result<(Vec<RequestMessage>, Vec<String>), AnthropicError> {
        messages_of(&json!({ "messages": messages }))
    }

    fn messages_of(body: &Value) -> Result<(Vec<RequestMessage>, Vec<String>), AnthropicError> {
        super::messages(body.as_object().unwrap())
    }

    fn user(content: &Value) -> Value {
        json!({"role": "user", "content": content})
    }

    fn base64(kind: &str, data: &str) -> Value {
        json!({"type": kind, "source": {"type": "base64", "media_type": "x/y", "data": data}})
    }

    #[test]
    fn blocks_are_text_attachments_calls_and_results() {
        let cached = json!({"type": "ephemeral", "ttl": "1h"});
        let text = |text: &str| json!({"type": "text", "text": text, "cache_control": cached});
        let (said, system) = read(&json!([
            user(&json!([text("one"), base64("image", PNG), text("two"), base64("document", PDF)])),
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "redacted_thinking", "data": "x"},
                {"type": "text", "text": "I ", "citations": null},
                {"type": "text", "text": "look."},
                {"type": "tool_use", "id": "a", "name": "look", "input": {"at": 1}},
            ]},
            {"role": "system", "content": "be brief"},
            user(&json!([
                {"type": "tool_result", "tool_use_id": "a", "content": [text("s"), text("een")],
                 "is_error": true},
                {"type": "document", "title": "notes", "context": "mine",
                 "source": {"type": "text", "media_type": "text/plain", "data": "it is red"}},
                text("and?"),
            ])),
        ]))
        .unwrap();
        assert_eq!(system, ["be brief"]);
        let places: Vec<usize> = said.iter().map(|message| message.at).collect();
        assert_eq!(places, [0, 1, 3, 3]);
        let [first, second, third, last] = &said[..] else { panic!() };
        let Said::User(content) = &first.said else { panic!() };
        let places: Vec<_> = content.attachments.iter().map(|one| one.at).collect();
        assert_eq!((content.text.as_str(), places), ("one\n\ntwo", vec![Some(3), Some(8)]));
        let Said::Assistant { text, calls } = &second.said else { panic!() };
        assert_eq!((text.as_str(), calls[0].arguments.as_str()), ("I look.", r#"{"at":1}"#));
        let Said::Tool { id, content, is_error } = &third.said else { panic!() };
        assert_eq!((id.as_str(), content.text.as_str(), *is_error), ("a", "s\n\neen", true));
        let Said::User(content) = &last.said else { panic!() };
        assert_eq!(content.text, "mine\n\nnotes\n\nit is red\n\nand?");
    }

    #[test]
    fn what_makes_no_sense_or_is_not_offered_is_refused_by_name() {
        let result =
            |block: Value| json!({"type": "tool_result", "tool_use_id": "a", "content": [block]});
        let url = |url: &str| json!({"type": "image", "source": {"type": "url", "url": url}});
        let assistant = |block: Value| json!([{"role": "assistant", "content": [block]}]);
        let table = [
            (json!("hi"), "messages: "),
            (json!([]), "messages: "),
            (json!([{"role": "king", "content": "x"}]), "messages.0.role: "),
            (json!([{"role": "user", "content": "x", "name": "ada"}]), "messages.0.name: "),
            (json!([user(&json!(7))]), "messages.0.content: "),
            (json!([user(&json!(""))]), "messages.0.content: "),
            (json!([user(&json!([{"text": "x"}]))]), "messages.0.content.0: "),
            (json!([user(&json!([{"type": "audio"}]))]), "messages.0.content.0: "),
            (
                json!([user(&json!([url("http://example.com/a.png")]))]),
                "messages.0.content.0.source: ",
            ),
            (json!([user(&json!([base64("image", "!!")]))]), "messages.0.content.0.source: "),
            (json!([user(&json!([base64("image", "aGVsbG8=")]))]), "messages.0.content.0.source: "),
            (json!([user(&json!(vec![base64("image", PNG); 9]))]), "messages.0.content: "),
            (
                json!([user(&json!([result(json!({"type": "search_result"}))]))]),
                "messages.0.content.0.content.0: ",
            ),
            (
                json!([user(&json!([result(base64("image", "aGVsbG8="))]))]),
                "messages.0.content.0.content.0.source: ",
            ),
            (
                json!([user(&json!([{"type": "tool_result", "tool_use_id": "a",
                    "content": vec![base64("image", PNG); 9]}]))]),
                "messages.0.content.0.content: ",
            ),
            (
                json!([user(&json!([{"type": "text", "text": "x"},
                    {"type": "tool_result", "tool_use_id": "a"}]))]),
                "messages.0.content.1: ",
            ),
            (
                json!([user(&json!([{"type": "text", "text": "x", "cache_control": 1}]))]),
                "messages.0.content.0.cache_control: ",
            ),
            (assistant(json!({"type": "text", "text": "so"})), "messages: "),
            (
                assistant(json!({"type": "thinking", "thinking": "x"})),
                "messages.0.content.0.signature: ",
            ),
            (assistant(json!({"type": "server_tool_use"})), "messages.0.content.0: "),
            (
                assistant(json!({"type": "tool_use", "id": "a", "name": "look", "input": "x"})),
                "messages.0.content.0.input: ",
            ),
        ];
        for (messages, begins) in table {
            let error = read(&messages).err().unwrap().to_json();
            let message: Value = serde_json::from_str(&error).unwrap();
            let message = message["error"]["message"].as_str().unwrap();
            assert!(message.starts_with(begins), "{messages}: {message}");
        }
    }
}
