//! What vendors demand of the schema of a reply that they hold a model to.

use serde_json::Value;

/// Keywords that none of them takes.
const REFUSED: [&str; 12] = [
    "allOf",
    "oneOf",
    "not",
    "if",
    "patternProperties",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minProperties",
    "uniqueItems",
    "default",
];

/// What `OpenAI` lets a schema be called.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let safe = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(safe) {
        return Err(format!("a schema called `{name}`"));
    }
    Ok(())
}

/// Each object has the fields that it names and no others; if `all_required`, it has all of them.
pub(super) fn check_closed(schema: &Value, all_required: bool) -> Result<(), String> {
    if schema["type"] != "object" {
        return Err("a schema whose root is not an object".to_owned());
    }
    walk(schema, all_required)
}

fn walk(schema: &Value, all_required: bool) -> Result<(), String> {
    let Value::Object(keywords) = schema else { return Err(format!("a schema `{schema}`")) };
    if let Some(name) = REFUSED.iter().find(|name| keywords.contains_key(**name)) {
        return Err(format!("a schema with `{name}`"));
    }
    if let Some(Value::Object(properties)) = keywords.get("properties") {
        if keywords.get("additionalProperties") != Some(&Value::Bool(false)) {
            return Err("an object without `additionalProperties: false`".to_owned());
        }
        let required = keywords.get("required").and_then(Value::as_array);
        let is_required =
            |name: &String| required.is_some_and(|names| names.iter().any(|other| other == name));
        if all_required && !properties.keys().all(is_required) {
            return Err("`required` does not have all properties".to_owned());
        }
        properties.values().try_for_each(|schema| walk(schema, all_required))?;
    }
    let several = keywords.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    several.chain(keywords.get("items")).try_for_each(|schema| walk(schema, all_required))
}
