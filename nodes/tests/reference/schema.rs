//! Schemas of types as rows of tables.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value};

use super::page;

/// More values than that are not listed with a type.
const MOST_WORDS: usize = 16;

/// A type's schema, and the types that it names.
pub(crate) struct Schema {
    pub(crate) root: Value,
    types: Map<String, Value>,
}

/// A field: its name with dots, its type, whether it must be there, and what it means.
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) is_required: bool,
    pub(crate) about: String,
}

impl Schema {
    /// As it is read (`takes`) or written.
    pub(crate) fn of<T: JsonSchema>(takes: bool) -> Self {
        Self::made(takes, |types| types.subschema_for::<T>().to_value())
    }

    pub(crate) fn made(takes: bool, root: impl FnOnce(&mut SchemaGenerator) -> Value) -> Self {
        let settings = SchemaSettings::draft2020_12();
        let settings = if takes { settings.for_deserialize() } else { settings.for_serialize() };
        let mut types = settings.into_generator();
        let root = root(&mut types);
        Self { root, types: types.take_definitions(true) }
    }

    /// The type of a schema, without its being optional.
    pub(crate) fn resolved<'a>(&'a self, schema: &'a Value) -> &'a Value {
        if let Some(name) =
            schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next())
        {
            return self.resolved(&self.types[name]);
        }
        match schema["anyOf"].as_array() {
            Some(any) if any.iter().any(|one| one["type"] == "null") => {
                self.resolved(any.iter().find(|one| one["type"] != "null").unwrap())
            }
            _ => schema,
        }
    }

    /// What a value is, in a few words.
    pub(crate) fn kind(&self, schema: &Value) -> String {
        let schema = self.resolved(schema);
        if let Some(one) = schema["const"].as_str() {
            return format!("`{one}`");
        }
        if let Some(all) = schema["enum"].as_array() {
            return words(all.iter().filter_map(Value::as_str));
        }
        if let Some(all) = schema["oneOf"].as_array() {
            let texts: Vec<_> = all.iter().flat_map(consts).collect();
            if texts.len() > MOST_WORDS {
                return "string".to_owned();
            }
            if !texts.is_empty() {
                return words(texts.into_iter());
            }
            let tags = all.iter().filter_map(|one| one["properties"]["type"]["const"].as_str());
            return format!("object, `type` is {}", words(tags));
        }
        let types = &schema["type"];
        let first = types.as_array().and_then(|all| all.first()).unwrap_or(types);
        match first.as_str() {
            Some("array") => format!("list of {}", self.kind(&schema["items"])),
            Some("object") if schema["additionalProperties"].is_object() => {
                format!("map of {}", self.kind(&schema["additionalProperties"]))
            }
            Some(other) => other.to_owned(),
            None => "any".to_owned(),
        }
    }

    /// The fields of an object, and of the objects in it down to `depth`.
    pub(crate) fn fields(&self, schema: &Value, depth: usize) -> Vec<Field> {
        let mut found = Vec::new();
        let schema = self.resolved(schema);
        self.walk(schema, "", depth, &mut found);
        self.walk(self.resolved(&schema["items"]), "[].", depth, &mut found);
        found
    }

    fn walk(&self, schema: &Value, prefix: &str, depth: usize, found: &mut Vec<Field>) {
        let required = schema["required"].as_array().map_or(&[][..], Vec::as_slice);
        for (key, field) in schema["properties"].as_object().into_iter().flatten() {
            let inner = self.resolved(field);
            let about = [field, inner].iter().find_map(|one| one["description"].as_str());
            let name = format!("{prefix}{key}");
            found.push(Field {
                kind: self.kind(field),
                is_required: required.iter().any(|name| name == key.as_str()),
                about: page::plain(about.unwrap_or_default()),
                name: name.clone(),
            });
            if depth > 1 {
                let items = self.resolved(&inner["items"]);
                self.walk(inner, &format!("{name}."), depth - 1, found);
                self.walk(items, &format!("{name}[]."), depth - 1, found);
            }
        }
    }
}

/// The texts that a variant may be.
fn consts(variant: &Value) -> Vec<&str> {
    match variant["enum"].as_array() {
        Some(all) => all.iter().filter_map(Value::as_str).collect(),
        None => variant["const"].as_str().into_iter().collect(),
    }
}

fn words<'a>(all: impl Iterator<Item = &'a str>) -> String {
    all.map(|one| format!("`{one}`")).collect::<Vec<_>>().join(", ")
}
