//! How a request says that its reply has to fit a schema: as the wire has it where the model is known to
//! take that, else in words. The reply is judged in any case; that is the session's business.

use clawnode_proto::{model::SchemaStyle, response::ResponseSchema};
use serde_json::{Map, Value};

use super::ModelRequest;

/// Levels of objects and lists in a schema that vendors hold a model to.
const LEVELS: usize = 10;
/// Keywords of schemas that all vendors hold a model to.
const KEYWORDS: [&str; 13] = [
    "type",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "enum",
    "const",
    "anyOf",
    "$ref",
    "$defs",
    "definitions",
    "title",
    "description",
];

/// What the reply to a request has to fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplySchema {
    /// A name for what it describes.
    pub name: String,
    /// The JSON Schema.
    pub schema: Value,
    /// How the request says it.
    pub style: SchemaStyle,
}

// === impl ReplySchema ===

impl ReplySchema {
    /// This schema, said as well as it can be.
    ///
    /// # Errors
    /// It is not JSON.
    pub fn new(schema: &ResponseSchema) -> Result<Self, serde_json::Error> {
        let style =
            if schema.is_any_object() { SchemaStyle::JsonObject } else { SchemaStyle::JsonSchema };
        Ok(Self { name: schema.name.clone(), schema: serde_json::from_str(&schema.schema)?, style })
    }

    /// Whether vendors can hold a model to it word by word. `OpenAI` wants `all_required`: each field is
    /// required.
    pub(super) fn is_strict(&self, all_required: bool) -> bool {
        self.is_of_object() && is_strict(&self.schema, all_required, 0)
    }

    /// Whether it has no keywords but these, and is not too deep. A reference has none beside it.
    pub(super) fn has_only(&self, known: &[&str]) -> bool {
        is_made_of(known, &self.schema, &self.schema, 0)
    }

    fn is_of_object(&self) -> bool {
        self.schema.get("type").is_some_and(|kind| kind == "object")
    }

    /// As a model that can be held to this takes it.
    fn style_for(&self, held_to: SchemaStyle, offers: bool) -> SchemaStyle {
        match (self.style, held_to) {
            (_, SchemaStyle::Words) => SchemaStyle::Words,
            (_, SchemaStyle::JsonSchemaAlone) if offers => SchemaStyle::Words,
            (SchemaStyle::JsonObject, _) => SchemaStyle::JsonObject,
            (_, SchemaStyle::JsonObject) if self.is_of_object() => SchemaStyle::JsonObject,
            (_, SchemaStyle::JsonObject) => SchemaStyle::Words,
            (_, SchemaStyle::JsonSchema | SchemaStyle::JsonSchemaAlone) => SchemaStyle::JsonSchema,
        }
    }

    /// What the system prompt says if nothing else holds the model to the schema.
    fn words(&self) -> String {
        let alone = "and nothing else: no words before or after it, and no code fence";
        if self.style == SchemaStyle::JsonObject && self.schema.as_object().map_or(0, Map::len) == 1
        {
            return format!("Your final reply has to be one JSON object, {alone}.");
        }
        let schema = &self.schema;
        format!("Your final reply has to be JSON that fits this JSON Schema, {alone}:\n{schema}")
    }
}

/// Has a request say what its reply has to fit: what its wire does not take is said in the system prompt.
/// `is_shown` if the model sees what its wire takes.
pub(super) fn ask(
    request: &mut ModelRequest,
    held_to: SchemaStyle,
    takes: impl FnOnce(&ReplySchema) -> bool,
    is_shown: bool,
) {
    let Some(mut schema) = request.reply_schema.take() else { return };
    let style = schema.style_for(held_to, !request.tools.is_empty());
    let words = schema.words();
    schema.style = style;
    let is_taken = style != SchemaStyle::Words && takes(&schema);
    if !is_taken || style == SchemaStyle::JsonObject || !is_shown {
        let seam = if request.system.is_empty() { "" } else { "\n\n" };
        request.system.push_str(seam);
        request.system.push_str(&words);
    }
    request.reply_schema = is_taken.then_some(schema);
}

fn is_strict(schema: &Value, all_required: bool, level: usize) -> bool {
    let Value::Object(keywords) = schema else { return false };
    if level > LEVELS || !keywords.keys().all(|name| KEYWORDS.contains(&name.as_str())) {
        return false;
    }
    let inner = |schema: &Value| is_strict(schema, all_required, level + 1);
    let each = |name: &str| match keywords.get(name) {
        None => true,
        Some(Value::Object(schemas)) => schemas.values().all(inner),
        Some(_) => false,
    };
    let plain = |value: &Value| !value.is_object() && !value.is_array();
    let several = keywords.get("anyOf").and_then(Value::as_array);
    let options = keywords.get("enum").and_then(Value::as_array);
    each("properties")
        && ["$defs", "definitions"].into_iter().all(each)
        && keywords.get("items").is_none_or(inner)
        && several.into_iter().flatten().all(inner)
        && options.into_iter().flatten().chain(keywords.get("const")).all(plain)
        && is_closed(keywords, all_required)
}

/// Whether a schema and its parts have no keywords but these. `root` is where references lead.
fn is_made_of(known: &[&str], schema: &Value, root: &Value, level: usize) -> bool {
    let Value::Object(keywords) = schema else { return false };
    if level > LEVELS || !keywords.keys().all(|name| known.contains(&name.as_str())) {
        return false;
    }
    let inner = |schema: &Value| is_made_of(known, schema, root, level + 1);
    if let Some(reference) = keywords.get("$ref").map(Value::as_str) {
        let path = reference.and_then(|path| path.strip_prefix('#'));
        let is_alone = keywords.keys().all(|name| name.starts_with('$'));
        return is_alone && path.and_then(|path| root.pointer(path)).is_some_and(inner);
    }
    let list = |name: &str| keywords.get(name).and_then(Value::as_array).into_iter().flatten();
    let map = |name: &str| keywords.get(name).and_then(Value::as_object).into_iter().flatten();
    let below = ["items", "additionalProperties"].map(|name| keywords.get(name));
    list("enum").all(|value| value.is_string() || value.is_number())
        && ["anyOf", "oneOf", "allOf", "prefixItems"].into_iter().flat_map(list).all(inner)
        && ["properties", "$defs", "definitions"]
            .into_iter()
            .flat_map(map)
            .all(|(_, schema)| inner(schema))
        && below.into_iter().flatten().all(|schema| schema.is_boolean() || inner(schema))
}

/// An object has no fields but those that are named, and if `all_required`, all of those.
fn is_closed(keywords: &Map<String, Value>, all_required: bool) -> bool {
    let kind = keywords.get("type");
    let mut kinds = kind.and_then(Value::as_array).into_iter().flatten().chain(kind);
    let is_object = kinds.any(|kind| kind == "object");
    let properties = keywords.get("properties").and_then(Value::as_object);
    if !is_object && properties.is_none() {
        return true;
    }
    let required = keywords.get("required").and_then(Value::as_array);
    let is_required =
        |name: &String| required.is_some_and(|all| all.iter().any(|required| required == name));
    keywords.get("additionalProperties") == Some(&Value::Bool(false))
        && (!all_required || properties.into_iter().flatten().all(|(name, _)| is_required(name)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn person() -> Value {
        json!({
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
            "additionalProperties": false,
        })
    }

    #[test]
    fn a_model_is_held_only_to_what_vendors_take() {
        let with = |name: &str, value: Value| {
            let mut schema = person();
            schema["properties"]["name"][name] = value;
            schema
        };
        let deep = (0..12).fold(json!({"type": "string"}), |inner, _| json!({"anyOf": [inner]}));
        for (schema, all_required, strict) in [
            (person(), true, true),
            (with("description", json!("who")), true, true),
            (with("enum", json!(["a", "b"])), true, true),
            (with("enum", json!([{"a": 1}])), true, false),
            (with("minLength", json!(1)), true, false),
            (with("items", json!({"$ref": "#/$defs/a"})), true, true),
            (with("items", json!(true)), true, false),
            (with("type", json!(["string", "object"])), true, false),
            (with("properties", json!({})), true, false),
            (with("anyOf", json!([deep])), true, false),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}},
                "additionalProperties": false}),
                true,
                false,
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}},
                "additionalProperties": false}),
                false,
                true,
            ),
            (json!({"type": "object"}), false, false),
            (json!({"type": "array", "items": {"type": "string"}}), false, false),
            (json!(true), false, false),
        ] {
            let reply = ReplySchema::new(&ResponseSchema::new(None, &schema)).unwrap();
            assert_eq!(reply.is_strict(all_required), strict, "{schema}");
        }
    }

    #[test]
    fn keywords_are_looked_for_in_each_part() {
        let known = ["type", "properties", "items", "anyOf", "$ref", "$defs", "enum", "title"];
        let schema_with = |property: Value| {
            let point = json!({"type": "object", "properties": {"x": {"type": "number"}}});
            json!({"type": "object", "properties": {"a": property}, "$defs": {"point": point}})
        };
        let deep = (0..12).fold(json!({"type": "string"}), |inner, _| json!({"anyOf": [inner]}));
        for (property, fits) in [
            (json!({"$ref": "#/$defs/point"}), true),
            (json!({"$ref": "#/$defs/point", "title": "p"}), false),
            (json!({"$ref": "#/$defs/gone"}), false),
            (json!({"$ref": "other.json"}), false),
            (json!({"$ref": "#"}), false),
            (json!({"anyOf": [{"type": "string"}, {"enum": ["a", 1]}]}), true),
            (json!({"enum": [null]}), false),
            (json!({"items": {"type": "string", "minLength": 1}}), false),
            (json!({"items": true}), true),
            (json!(true), false),
            (deep, false),
        ] {
            let schema = schema_with(property);
            let reply = ReplySchema::new(&ResponseSchema::new(None, &schema)).unwrap();
            assert_eq!(reply.has_only(&known), fits, "{schema}");
        }
    }
}
