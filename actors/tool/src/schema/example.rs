//! The smallest object that fits a schema, as far as a schema can be guessed from.

use serde_json::{Map, Number, Value};

use super::weigh::resolve;

/// How deep an example goes.
const DEPTH: usize = 8;
/// Bytes of an example: a longer one is none.
const BYTES: usize = 1_000;
/// Items of an array, characters of a string: what needs more has no short example.
const ITEMS: u64 = 4;
const CHARS: u64 = 64;

/// An example of a call. It is a guess (it ignores patterns, for example): the caller checks it
/// before showing it.
pub(super) fn example(schema: &Value) -> Option<Value> {
    let example = Example { root: schema }.value(schema, 0)?;
    (example.to_string().len() <= BYTES).then_some(example)
}

struct Example<'a> {
    root: &'a Value,
}

impl Example<'_> {
    fn value(&self, schema: &Value, depth: usize) -> Option<Value> {
        if depth > DEPTH {
            return None;
        }
        let Value::Object(keywords) = schema else {
            return (schema != &Value::Bool(false)).then(|| Value::from("…"));
        };
        if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
            return self.value(resolve(self.root, reference)?, depth + 1);
        }
        if let Some(given) = given(keywords) {
            return Some(given.clone());
        }
        for several in ["anyOf", "oneOf", "allOf"] {
            let several = keywords.get(several).and_then(Value::as_array);
            if let Some(several) = several.filter(|_| !keywords.contains_key("properties")) {
                return several.iter().find_map(|one| self.value(one, depth + 1));
            }
        }
        match kind(keywords) {
            "object" => self.object(keywords, depth),
            "array" => self.array(keywords, depth),
            "string" => string(keywords),
            "integer" | "number" => Some(Value::Number(number(keywords))),
            "boolean" => Some(Value::Bool(true)),
            _ => Some(Value::Null),
        }
    }

    fn object(&self, keywords: &Map<String, Value>, depth: usize) -> Option<Value> {
        let properties = keywords.get("properties").and_then(Value::as_object);
        let required = keywords.get("required").and_then(Value::as_array);
        let mut fields = Map::new();
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            let property = properties.and_then(|properties| properties.get(name));
            let value = self.value(property.unwrap_or(&Value::Bool(true)), depth + 1)?;
            fields.insert(name.to_owned(), value);
        }
        Some(Value::Object(fields))
    }

    fn array(&self, keywords: &Map<String, Value>, depth: usize) -> Option<Value> {
        let least = keywords.get("minItems").and_then(Value::as_u64).unwrap_or(0);
        let any = Value::Bool(true);
        let items = keywords.get("items").unwrap_or(&any);
        let item = |_| self.value(items, depth + 1);
        (least <= ITEMS)
            .then(|| (0..least).map(item).collect::<Option<Vec<_>>>())
            .flatten()
            .map(Value::Array)
    }
}

/// A value that the schema itself names.
fn given(keywords: &Map<String, Value>) -> Option<&Value> {
    let first = |name: &str| keywords.get(name).and_then(Value::as_array)?.first();
    let keyword = |name: &str| keywords.get(name);
    keyword("const")
        .or_else(|| first("examples"))
        .or_else(|| keyword("example"))
        .or_else(|| keyword("default"))
        .or_else(|| first("enum"))
}

fn kind(keywords: &Map<String, Value>) -> &str {
    let named = match keywords.get("type") {
        Some(Value::Array(several)) => several.first().and_then(Value::as_str),
        one => one.and_then(Value::as_str),
    };
    named.unwrap_or(if keywords.contains_key("properties") { "object" } else { "string" })
}

fn string(keywords: &Map<String, Value>) -> Option<Value> {
    let bound = |name: &str| keywords.get(name).and_then(Value::as_u64);
    let least = bound("minLength").unwrap_or(0);
    let text = match bound("maxLength") {
        Some(most) if most < 3 => "x".repeat(usize::try_from(most).unwrap_or(0)),
        _ if least > CHARS => return None,
        _ => "…".repeat(usize::try_from(least).unwrap_or(0).max(1)),
    };
    Some(Value::String(text))
}

fn number(keywords: &Map<String, Value>) -> Number {
    let bound = |name: &str| match keywords.get(name) {
        Some(Value::Number(bound)) => Some(bound.clone()),
        _ => None,
    };
    bound("minimum").or_else(|| bound("maximum")).unwrap_or_else(|| Number::from(1))
}
