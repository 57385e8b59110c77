//! A schema in short, as a model reads it at a glance: `{"path": string, "limit"?: integer}`.

use serde_json::{Map, Value};

use super::weigh::resolve;

/// How deep objects are spelled out.
const DEPTH: usize = 4;
/// Fields of one object that are spelled out.
const FIELDS: usize = 40;
/// Alternatives that are spelled out.
const ALTERNATIVES: usize = 12;
/// Bytes of the whole: after that only kinds are named.
const BYTES: usize = 3_000;

/// The shape of values that fit `schema`.
pub(super) fn shape(schema: &Value) -> String {
    let mut shape = SchemaShape { root: schema, text: String::new() };
    shape.value(schema, 0);
    shape.text
}

struct SchemaShape<'a> {
    root: &'a Value,
    text: String,
}

impl SchemaShape<'_> {
    fn value(&mut self, schema: &Value, depth: usize) {
        let Value::Object(keywords) = schema else {
            return self.text.push_str("any");
        };
        if depth > DEPTH || self.text.len() > BYTES {
            return self.text.push_str(plain(keywords));
        }
        if let Some(target) = keywords.get("$ref").and_then(Value::as_str) {
            return match resolve(self.root, target) {
                Some(target) => self.value(target, depth + 1),
                None => self.text.push_str("any"),
            };
        }
        if let Some(constant) = keywords.get("const") {
            return self.text.push_str(&short(constant));
        }
        if let Some(options) = keywords.get("enum").and_then(Value::as_array) {
            let options: Vec<String> = options.iter().take(ALTERNATIVES).map(short).collect();
            return self.text.push_str(&options.join(" | "));
        }
        if keywords.contains_key("properties") {
            return self.object(keywords, depth);
        }
        for several in ["anyOf", "oneOf"] {
            if let Some(several) = keywords.get(several).and_then(Value::as_array) {
                for (at, one) in several.iter().take(ALTERNATIVES).enumerate() {
                    self.text.push_str(if at > 0 { " | " } else { "" });
                    self.value(one, depth + 1);
                }
                return;
            }
        }
        self.text.push_str(plain(keywords));
        if let Some(items) = keywords.get("items") {
            self.text.push_str(" of ");
            self.value(items, depth + 1);
        }
        self.bounds(keywords);
    }

    fn object(&mut self, keywords: &Map<String, Value>, depth: usize) {
        let Some(properties) = keywords.get("properties").and_then(Value::as_object) else {
            return self.text.push_str("object");
        };
        let required = keywords.get("required").and_then(Value::as_array);
        let is_required = |name: &str| {
            required.is_some_and(|names| names.iter().any(|one| one.as_str() == Some(name)))
        };
        self.text.push('{');
        for (at, (name, property)) in properties.iter().enumerate() {
            self.text.push_str(if at > 0 { ", " } else { "" });
            if at == FIELDS || self.text.len() > BYTES {
                self.text.push('…');
                break;
            }
            self.text.push_str(&short(&Value::from(name.as_str())));
            self.text.push_str(if is_required(name) { ": " } else { "?: " });
            self.value(property, depth + 1);
        }
        self.text.push('}');
    }

    /// Such as ` (1 to 100)`.
    fn bounds(&mut self, keywords: &Map<String, Value>) {
        let bound_of = |name: &str| keywords.get(name).filter(|bound| bound.is_number());
        let text = match (bound_of("minimum"), bound_of("maximum")) {
            (Some(least), Some(most)) => format!(" ({least} to {most})"),
            (Some(least), None) => format!(" (at least {least})"),
            (None, Some(most)) => format!(" (at most {most})"),
            (None, None) => return,
        };
        self.text.push_str(&text);
    }
}

/// What kind of value it is.
fn plain(keywords: &Map<String, Value>) -> &str {
    match keywords.get("type") {
        Some(Value::String(one)) => match one.as_str() {
            "string" => "string",
            "integer" => "integer",
            "number" => "number",
            "boolean" => "boolean",
            "array" => "array",
            "object" => "object",
            "null" => "null",
            _ => "any",
        },
        Some(Value::Array(several)) => {
            let first = several.iter().find_map(Value::as_str).filter(|one| *one != "null");
            first.filter(|one| one.len() <= 10).unwrap_or("any")
        }
        _ => "any",
    }
}

/// A value, at most so long.
fn short(value: &Value) -> String {
    value.to_string().chars().take(60).collect()
}
