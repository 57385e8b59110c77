//! Where an agent's `response_schema` is: in a file, or in the configuration itself.

use std::{fmt, fs::File, io::Read, path::PathBuf};

use clawnode_proto::{limits::RESPONSE_SCHEMA_BYTES, response::ResponseSchema};
use clawnode_tool::schema::check_response;
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Map, Value};

/// A JSON Schema: the path of a file that has one, or the schema as a table.
#[derive(Clone, Debug, PartialEq)]
pub enum SchemaSource {
    File(PathBuf),
    /// In place.
    Inline(Map<String, Value>),
}

struct SourceVisitor;

// === impl SchemaSource ===

impl SchemaSource {
    /// The schema, or why there is none that replies can be judged by.
    pub fn read(&self) -> Result<ResponseSchema, String> {
        let schema = match self {
            Self::Inline(fields) => Value::Object(fields.clone()),
            Self::File(path) => {
                let shown = path.display();
                let mut text = String::new();
                let read = File::open(path).and_then(|file| {
                    file.take(RESPONSE_SCHEMA_BYTES as u64 + 1).read_to_string(&mut text)
                });
                read.map_err(|error| format!("cannot read `{shown}`: {error}"))?;
                if text.len() > RESPONSE_SCHEMA_BYTES {
                    return Err(format!("`{shown}` has more than {RESPONSE_SCHEMA_BYTES} bytes"));
                }
                serde_json::from_str(&text).map_err(|error| format!("`{shown}`: {error}"))?
            }
        };
        let schema = ResponseSchema::new(None, &schema);
        check_response(&schema).map_err(|fault| format!("the {fault}"))?;
        Ok(schema)
    }
}

impl<'de> Deserialize<'de> for SchemaSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SourceVisitor)
    }
}

impl<'de> Visitor<'de> for SourceVisitor {
    type Value = SchemaSource;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the path of a JSON Schema, or a table that is one")
    }

    fn visit_str<E>(self, path: &str) -> Result<SchemaSource, E> {
        Ok(SchemaSource::File(path.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<SchemaSource, A::Error> {
        Map::deserialize(MapAccessDeserializer::new(fields)).map(SchemaSource::Inline)
    }
}

impl Serialize for SchemaSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::File(path) => path.serialize(serializer),
            Self::Inline(fields) => fields.serialize(serializer),
        }
    }
}
