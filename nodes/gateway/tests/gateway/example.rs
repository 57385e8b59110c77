//! Example parameters and answers of methods, made from the schemas of their types.

use clawnode_proto::{api::Method, methods::types};
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

/// Below this many values in each other, lists have no items: a type may have items of its own type.
const DEEPEST: usize = 12;

/// An answer of a method, with one item in each of its lists.
pub(super) fn answer(method: Method) -> Value {
    made(false, |types| method.schemas(types).1)
}

/// The parameters that a method needs, and all whose names are in `known`, with those values.
pub(super) fn params(method: Method, known: &Value) -> Value {
    let mut types = generator(true);
    let schema = method.schemas(&mut types).0.to_value();
    body(&schema, types.definitions(), known)
}

/// The same for a schema whose references lead to `types`.
pub(super) fn body(schema: &Value, types: &Map<String, Value>, known: &Value) -> Value {
    let mut params = example(schema, types, 0);
    let schema = resolved(schema, types);
    for (name, value) in known.as_object().unwrap() {
        if schema["properties"].get(name).is_some() {
            params[name] = value.clone();
        }
    }
    params
}

fn made(is_taken: bool, schema: impl Fn(&mut SchemaGenerator) -> Schema) -> Value {
    let mut types = generator(is_taken);
    let schema = schema(&mut types).to_value();
    example(&schema, types.definitions(), 0)
}

fn generator(is_taken: bool) -> SchemaGenerator {
    let settings = SchemaSettings::draft2020_12();
    if is_taken { settings.for_deserialize() } else { settings.for_serialize() }.into_generator()
}

/// The schema that a reference leads to, or the schema itself.
fn resolved<'a>(schema: &'a Value, types: &'a Map<String, Value>) -> &'a Value {
    let target = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next());
    target.map_or(schema, |name| &types[name])
}

fn example(schema: &Value, types: &Map<String, Value>, depth: usize) -> Value {
    if let Some(fixed) = schema.get("const") {
        return fixed.clone();
    }
    if let Some(one) = ["examples", "enum"].iter().find_map(|all| schema[all].get(0)) {
        return one.clone();
    }
    let below = |schema: &Value| example(schema, types, depth + 1);
    let first = |choice: &str| schema[choice].get(0).map(below);
    let referred = schema.get("$ref").map(|_| below(resolved(schema, types)));
    let choice = referred.or_else(|| first("oneOf")).or_else(|| first("anyOf"));
    let kind = schema["type"].get(0).unwrap_or(&schema["type"]).as_str();
    let own = match kind {
        Some("object") => object(schema, below),
        Some("array") => array(schema, depth, below),
        Some("string") => text(schema["pattern"].as_str()).into(),
        Some("integer") => json!(schema["minimum"].as_u64().unwrap_or_default().max(1)),
        Some("number") => 1.0.into(),
        Some("boolean") => false.into(),
        _ => return choice.unwrap_or_default(),
    };
    match (own, choice) {
        // A part of the fields is of a type of its own.
        (Value::Object(mut fields), Some(Value::Object(more))) => {
            fields.extend(more);
            fields.into()
        }
        (own, _) => own,
    }
}

fn object(schema: &Value, below: impl Fn(&Value) -> Value) -> Value {
    let required = schema["required"].as_array().into_iter().flatten();
    let fields = required.map(|name| {
        let name = name.as_str().unwrap();
        (name.to_owned(), below(&schema["properties"][name]))
    });
    fields.collect::<Map<_, _>>().into()
}

fn array(schema: &Value, depth: usize, below: impl Fn(&Value) -> Value) -> Value {
    if let Some(items) = schema["prefixItems"].as_array() {
        return items.iter().map(below).collect();
    }
    let count = schema["minItems"].as_u64().unwrap_or(u64::from(depth < DEEPEST));
    (0..count).map(|_| below(&schema["items"])).collect()
}

/// A text of this form: of characters, and classes of them such as `[0-9a-z]{26}` and `[a-z]+`.
fn text(pattern: Option<&str>) -> String {
    let Some(pattern) = pattern else { return "x".to_owned() };
    let mut rest = pattern.trim_start_matches('^').trim_end_matches('$');
    let mut text = String::new();
    while let Some((before, class)) = rest.split_once('[') {
        let (class, after) = class.split_once(']').unwrap();
        let (count, after) = match after.strip_prefix('{') {
            Some(after) => after.split_once('}').unwrap(),
            None => ("1", after.strip_prefix('+').unwrap_or(after)),
        };
        text += before;
        text.extend(class.chars().take(1).cycle().take(count.parse().unwrap()));
        rest = after;
    }
    (text + rest).replace('\\', "")
}

macro_rules! decoded {
    ($(
        $(#[doc = $about:literal])*
        $variant:ident $($handler:ident)? = $wire:literal: $takes:ident => $answers:ident
        $([$($routes:tt)*])?;
    )*) => {
        /// A method's answer as its type reads and writes it.
        fn decoded(method: Method, answer: Value) -> Value {
            match method {
                $( Method::$variant => {
                    json!(serde_json::from_value::<types::$answers>(answer).expect($wire))
                } )*
            }
        }
    };
}

clawnode_proto::methods!(decoded);

#[test]
fn every_answer_is_what_its_schema_says() {
    for method in Method::ALL {
        let answer = answer(*method);
        assert_eq!(decoded(*method, answer.clone()), answer, "{}", method.as_str());
    }
}
