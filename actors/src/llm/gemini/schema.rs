//! A tool's JSON Schema as Gemini takes it: a subset of `OpenAPI`'s. And what it takes of a reply's.
//!
//! What the subset has no word for is left out, because the API refuses a request with a field that it does
//! not know. That only tells the model less: arguments are judged by the whole schema before a tool runs.

use serde_json::{Map, Value, json};

/// How deep a schema may be (32): what is below is left out, and a reference to itself has an end.
const DEPTH: usize = 32;
/// Fields that mean the same and are taken as they are.
const SAME: [&str; 13] = [
    "description",
    "title",
    "nullable",
    "default",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "pattern",
];
/// The formats that the API knows of each type.
const FORMATS: [(&str, &[&str]); 3] = [
    ("string", &["date-time", "enum"]),
    ("number", &["float", "double"]),
    ("integer", &["int32", "int64"]),
];

/// What the API holds a reply to of a whole JSON Schema; of others it takes no notice.
pub(super) const REPLY_KEYWORDS: [&str; 21] = [
    "$schema",
    "$id",
    "$defs",
    "$ref",
    "$anchor",
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "oneOf",
    "properties",
    "additionalProperties",
    "required",
];

/// The parameters of a tool; none if it has none, because an object without properties is refused.
pub(super) fn parameters(schema: &Value) -> Option<Value> {
    let taken = Converter { root: schema }.schema(schema, 0);
    let has_properties = taken.get("properties").is_some_and(|properties| !is_empty(properties));
    has_properties.then_some(taken)
}

fn is_empty(value: &Value) -> bool {
    value.as_object().is_none_or(Map::is_empty)
}

struct Converter<'a> {
    /// Where references lead.
    root: &'a Value,
}

impl Converter<'_> {
    fn schema(&self, schema: &Value, depth: usize) -> Value {
        let Some(fields) = schema.as_object().filter(|_| depth < DEPTH) else {
            // `true`, or too deep: anything.
            return json!({"type": "object"});
        };
        if let Some(found) = fields.get("$ref").and_then(Value::as_str) {
            let target = found.strip_prefix('#').and_then(|path| self.root.pointer(path));
            return target.map_or_else(
                || json!({"type": "object"}),
                |target| self.schema(target, depth + 1),
            );
        }
        let mut taken = Map::new();
        for name in SAME {
            if let Some(value) = fields.get(name) {
                taken.insert(name.to_owned(), value.clone());
            }
        }
        for name in ["anyOf", "oneOf", "allOf"] {
            if let Some(variants) = fields.get(name).and_then(Value::as_array) {
                self.variants(name, variants, &mut taken, depth);
            }
        }
        self.kind(fields, &mut taken, depth);
        Value::Object(taken)
    }

    /// One of several schemas. `null` among them is a flag here; all of several is the first, which
    /// says at least something.
    fn variants(
        &self,
        name: &str,
        variants: &[Value],
        taken: &mut Map<String, Value>,
        depth: usize,
    ) {
        let is_null = |variant: &&Value| variant.get("type").is_some_and(|kind| kind == "null");
        if variants.iter().any(|variant| is_null(&variant)) {
            taken.insert("nullable".to_owned(), true.into());
        }
        let mut some: Vec<Value> = variants
            .iter()
            .filter(|variant| !is_null(variant))
            .map(|variant| self.schema(variant, depth + 1))
            .collect();
        if some.len() == 1 || name == "allOf" {
            let Some(Value::Object(only)) = some.into_iter().next() else { return };
            for (field, value) in only {
                taken.entry(field).or_insert(value);
            }
        } else if !some.is_empty() {
            let all = taken.entry("anyOf").or_insert_with(|| Value::Array(Vec::new()));
            if let Value::Array(all) = all {
                all.append(&mut some);
            }
        }
    }

    /// The type, and what belongs to it.
    fn kind(&self, fields: &Map<String, Value>, taken: &mut Map<String, Value>, depth: usize) {
        let mut kinds: Vec<&str> = match fields.get("type") {
            Some(Value::String(kind)) => vec![kind.as_str()],
            Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        if kinds.len() > 1 && kinds.contains(&"null") {
            kinds.retain(|kind| *kind != "null");
            taken.insert("nullable".to_owned(), true.into());
        }
        let kind = match kinds[..] {
            [] if fields.contains_key("properties") => "object",
            [] if fields.contains_key("items") => "array",
            [] if fields.contains_key("enum") || fields.contains_key("const") => "string",
            [] if taken.contains_key("type") || taken.contains_key("anyOf") => return,
            [] => "object",
            [kind] => kind,
            [..] => {
                let one = |kind: &&str| {
                    let mut fields = fields.clone();
                    fields.insert("type".to_owned(), (*kind).into());
                    self.schema(&Value::Object(fields), depth + 1)
                };
                let any = kinds.iter().map(one).collect();
                taken.insert("anyOf".to_owned(), any);
                return;
            }
        };
        taken.insert("type".to_owned(), kind.into());
        let known = FORMATS
            .iter()
            .find(|(format_kind, _)| *format_kind == kind)
            .map_or(&[][..], |(_, known)| known);
        if let Some(format) =
            fields.get("format").filter(|format| known.iter().any(|one| *format == one))
        {
            taken.insert("format".to_owned(), format.clone());
        }
        match kind {
            "string" => {
                let only = fields.get("const").map(|only| Value::Array(vec![only.clone()]));
                let words = fields.get("enum").cloned().or(only);
                let is_words = |value: &Value| {
                    value.as_array().is_some_and(|all| all.iter().all(Value::is_string))
                };
                taken.extend(words.filter(is_words).map(|words| ("enum".to_owned(), words)));
            }
            "array" => {
                let items = fields.get("items").filter(|items| items.is_object());
                let items = items.map_or_else(
                    || json!({"type": "string"}),
                    |items| self.schema(items, depth + 1),
                );
                taken.insert("items".to_owned(), items);
            }
            "object" => self.properties(fields, taken, depth),
            _ => {}
        }
    }

    fn properties(
        &self,
        fields: &Map<String, Value>,
        taken: &mut Map<String, Value>,
        depth: usize,
    ) {
        let Some(properties) = fields.get("properties").and_then(Value::as_object) else { return };
        if properties.is_empty() {
            return;
        }
        let converted: Map<String, Value> = properties
            .iter()
            .map(|(name, schema)| (name.clone(), self.schema(schema, depth + 1)))
            .collect();
        let required = fields.get("required").and_then(Value::as_array);
        // A name that is no property is refused.
        let required: Vec<Value> = required
            .into_iter()
            .flatten()
            .filter(|name| name.as_str().is_some_and(|name| converted.contains_key(name)))
            .cloned()
            .collect();
        taken.insert("properties".to_owned(), Value::Object(converted));
        if !required.is_empty() {
            taken.insert("required".to_owned(), Value::Array(required));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_subset_has_is_kept_and_the_rest_is_left_out() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "additionalProperties": false,
            "required": ["a", "gone"],
            "properties": {
                "a": {"type": "string", "format": "uri", "enum": ["x", "y"], "minLength": 1},
                "b": {"type": ["integer", "null"], "format": "int32", "exclusiveMinimum": 0},
                "c": {"const": "only"},
                "d": {"type": "array"},
                "e": {"type": "array", "items": {"$ref": "#/$defs/point"}, "uniqueItems": true},
                "f": {"anyOf": [{"type": "number"}, {"type": "null"}], "description": "f"},
                "g": {"oneOf": [{"type": "number"}, {"type": "string", "format": "date-time"}]},
                "h": {"type": "object", "additionalProperties": {"type": "string"}},
                "i": {"type": ["string", "number"]},
                "j": {"type": "integer", "enum": [1, 2]},
                "k": true,
                "l": {"allOf": [{"$ref": "#/$defs/point"}], "description": "l"},
            },
            "$defs": {"point": {"type": "object", "properties": {"x": {"type": "number"}}}},
        });
        let point = json!({"type": "object", "properties": {"x": {"type": "number"}}});
        let mut described = point.clone();
        described["description"] = "l".into();
        let expected = json!({
            "type": "object",
            "required": ["a"],
            "properties": {
                "a": {"type": "string", "enum": ["x", "y"], "minLength": 1},
                "b": {"type": "integer", "format": "int32", "nullable": true},
                "c": {"type": "string", "enum": ["only"]},
                "d": {"type": "array", "items": {"type": "string"}},
                "e": {"type": "array", "items": point},
                "f": {"type": "number", "nullable": true, "description": "f"},
                "g": {"anyOf": [{"type": "number"}, {"type": "string", "format": "date-time"}]},
                "h": {"type": "object"},
                "i": {"anyOf": [{"type": "string"}, {"type": "number"}]},
                "j": {"type": "integer"},
                "k": {"type": "object"},
                "l": described,
            },
        });
        assert_eq!(parameters(&schema), Some(expected));
    }

    #[test]
    fn a_tool_without_parameters_has_none_and_a_schema_that_holds_itself_has_an_end() {
        for empty in
            [json!({}), json!({"type": "object"}), json!({"type": "object", "properties": {}})]
        {
            assert_eq!(parameters(&empty), None, "{empty}");
        }
        let node = json!({"type": "object", "properties": {"next": {"$ref": "#"}, "v": {}}});
        let taken = parameters(&node).unwrap();
        assert!(taken.to_string().len() < 10_000, "{taken}");
        let lost = json!({"properties": {"a": {"$ref": "#/nowhere"}}});
        let expected = json!({"type": "object", "properties": {"a": {"type": "object"}}});
        assert_eq!(parameters(&lost), Some(expected));
    }
}
