//! `response_format` of a chat completion: what the reply has to fit.

use clawnode_proto::response::ResponseSchema;
use serde_json::{Map, Value};

use super::super::error::OpenAiError;

/// Where a schema is within the request.
pub(super) const SCHEMA: &str = "response_format.json_schema";
/// Characters of a schema's name, as OpenAI has it.
const NAME_CHARS: usize = 64;

/// Reads it. `text`, and none at all, mean what the agent is configured to.
pub(super) fn response_format(
    fields: &Map<String, Value>,
) -> Result<Option<ResponseSchema>, OpenAiError> {
    let Some(format) = fields.get("response_format") else { return Ok(None) };
    let kind = format.get("type").and_then(Value::as_str);
    let known: &[&str] =
        if kind == Some("json_schema") { &["type", "json_schema"] } else { &["type"] };
    let mut given = format.as_object().into_iter().flatten();
    if let Some((name, _)) = given.find(|(name, _)| !known.contains(&name.as_str())) {
        return Err(unknown("response_format", name));
    }
    match kind {
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(ResponseSchema::any_object())),
        Some("json_schema") => named_schema(format.get("json_schema")).map(Some),
        Some(_) | None => {
            let message = "`response_format.type` is not `text`, `json_object` or `json_schema`";
            Err(OpenAiError::invalid("response_format.type", message))
        }
    }
}

fn named_schema(given: Option<&Value>) -> Result<ResponseSchema, OpenAiError> {
    let Some(Value::Object(given)) = given else {
        return Err(OpenAiError::invalid(SCHEMA, format!("`{SCHEMA}` is not an object")));
    };
    let known = ["name", "description", "schema", "strict"];
    if let Some(name) = given.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(unknown(SCHEMA, name));
    }
    let wrong = |field: &str, what: &str| {
        let path = format!("{SCHEMA}.{field}");
        let message = format!("`{path}` is not {what}");
        Err(OpenAiError::invalid(path, message))
    };
    let name = given.get("name").and_then(Value::as_str).unwrap_or_default();
    let is_safe = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if name.is_empty() || name.len() > NAME_CHARS || !name.chars().all(is_safe) {
        return wrong("name", "a name of up to 64 letters, digits, `_` and `-`");
    }
    // The reply is held to every word of the schema in any case.
    if given.get("strict").is_some_and(|strict| !strict.is_boolean() && !strict.is_null()) {
        return wrong("strict", "true or false");
    }
    let Some(Value::Object(schema)) = given.get("schema") else {
        return wrong("schema", "a JSON Schema");
    };
    let mut schema = schema.clone();
    match given.get("description") {
        None | Some(Value::Null) => {}
        Some(Value::String(text)) => {
            schema.entry("description").or_insert_with(|| text.as_str().into());
        }
        Some(_) => return wrong("description", "a text"),
    }
    Ok(ResponseSchema::new(Some(name), &Value::Object(schema)))
}

fn unknown(path: &str, name: &str) -> OpenAiError {
    let name: String = name.chars().take(NAME_CHARS).collect();
    let path = format!("{path}.{name}");
    let message = format!("there is no parameter `{path}`");
    OpenAiError::unsupported(path, message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(format: &Value) -> Result<Option<ResponseSchema>, OpenAiError> {
        let fields = json!({ "response_format": format });
        response_format(fields.as_object().unwrap())
    }

    #[test]
    fn each_format_is_a_schema() {
        assert_eq!(read(&json!({"type": "text"})).unwrap(), None);
        let any = read(&json!({"type": "json_object"})).unwrap();
        assert_eq!(any, Some(ResponseSchema::any_object()));
        let (strict, title) = (json!({"type": "object", "title": "x"}), "who it is");
        let format = json!({"type": "json_schema", "json_schema":
            {"name": "person", "strict": true, "schema": strict, "description": title}});
        let schema = read(&format).unwrap().unwrap();
        assert_eq!(schema.name, "person");
        let expected = json!({"type": "object", "title": "x", "description": title});
        assert_eq!(schema.schema.parse::<Value>().unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        let schema = |more: Value| {
            let mut schema = json!({"name": "a", "schema": {}});
            schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({"type": "json_schema", "json_schema": schema})
        };
        for (format, param) in [
            (json!("json"), "response_format.type"),
            (json!({"type": "xml"}), "response_format.type"),
            (json!({"type": "json_object", "schema": {}}), "response_format.schema"),
            (json!({"type": "json_schema"}), SCHEMA),
            (schema(json!({"name": ""})), "response_format.json_schema.name"),
            (schema(json!({"name": "a b"})), "response_format.json_schema.name"),
            (schema(json!({"name": "x".repeat(65)})), "response_format.json_schema.name"),
            (schema(json!({"strict": 1})), "response_format.json_schema.strict"),
            (schema(json!({"schema": "{}"})), "response_format.json_schema.schema"),
            (schema(json!({"description": 1})), "response_format.json_schema.description"),
            (schema(json!({"more": 1})), "response_format.json_schema.more"),
        ] {
            assert_eq!(read(&format).unwrap_err().param.as_deref(), Some(param), "{format}");
        }
    }
}
