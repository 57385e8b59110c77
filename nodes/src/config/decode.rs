//! From a tree to types: a `serde` deserializer whose errors know key, place and remedy.

use std::{collections::btree_map, fmt};

use serde::de::{self, DeserializeSeed, IntoDeserializer, Unexpected, Visitor};

use super::{
    error::{ConfigError, nearest},
    tree::{ConfigNode, TableEntry, Value, ValueOrigin},
};

/// Keys whose values are not quoted in an error.
const SECRET_KEYS: &[&str] = &["api_key", "token", "password"];
/// Tables of which no value is.
const SECRET_TABLES: &[&str] = &["env", "headers"];

/// Keys of an agent's `sampling` that people write beside it.
const SAMPLING: &[&str] = &["temperature", "top_p", "max_tokens", "stop"];

/// Reads `tree` as a `T`.
pub(super) fn read<T: de::DeserializeOwned>(tree: &ConfigNode) -> Result<T, ConfigError> {
    T::deserialize(De { node: tree }).map_err(DecodeFault::into_error)
}

struct De<'a> {
    node: &'a ConfigNode,
}

/// An error on its way out: every level that it passes adds its key; the innermost its place.
#[derive(Debug)]
pub(super) struct DecodeFault {
    what: String,
    hint: String,
    /// Innermost first.
    path: Vec<String>,
    origin: Option<ValueOrigin>,
}

// === impl DecodeFault ===

impl DecodeFault {
    fn new(what: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { what: what.into(), hint: hint.into(), path: Vec::new(), origin: None }
    }

    fn within(mut self, key: &str, origin: &ValueOrigin) -> Self {
        let in_table = self.path.len() == 1 && SECRET_TABLES.contains(&key);
        if in_table || self.path.is_empty() && SECRET_KEYS.contains(&key) {
            "the value is not text".clone_into(&mut self.what);
        }
        self.path.push(key.to_owned());
        self.origin.get_or_insert_with(|| origin.clone());
        self
    }

    fn into_error(self) -> ConfigError {
        let path: Vec<_> = self.path.into_iter().rev().collect();
        ConfigError::new(&path.join("."), self.origin.unwrap_or_default(), self.what, self.hint)
    }
}

impl fmt::Display for DecodeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for DecodeFault {}

impl de::Error for DecodeFault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(message.to_string(), "correct it, or remove it to use the default")
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let (found, expected) = (plainly(&found), plainly(&expected));
        Self::new(format!("{found} is not {expected}"), format!("write {expected}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let expected = plainly(&expected);
        Self::new(format!("{found} is not {expected}"), format!("write {expected}"))
    }

    fn unknown_variant(found: &str, expected: &'static [&'static str]) -> Self {
        let hint = match nearest(found, expected.iter().copied()) {
            Some(near) => format!("did you mean `{near}`? {}", one_of(expected)),
            None => one_of(expected),
        };
        Self::new(format!("unknown value `{found}`"), hint)
    }

    fn unknown_field(found: &str, expected: &'static [&'static str]) -> Self {
        let hint = match nearest(found, expected.iter().copied()) {
            _ if SAMPLING.contains(&found) && expected.contains(&"sampling") => {
                format!("it belongs to `sampling`: write `sampling.{found} = …`")
            }
            Some(near) => format!("did you mean `{near}`? {}", one_of(expected)),
            None => format!("remove it; {}", one_of(expected)),
        };
        Self::new(format!("unknown key `{found}`"), hint)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::new(format!("key `{field}` is missing"), format!("add `{field} = …`"))
    }
}

/// `serde`'s words for kinds of values, as a person who writes TOML knows them.
fn plainly(words: &dyn fmt::Display) -> String {
    match words.to_string().as_str() {
        "a boolean" => "`true` or `false`".to_owned(),
        "a sequence" | "sequence" => "a list".to_owned(),
        "map" => "a table".to_owned(),
        "u8" => "a whole number from 0 to 255".to_owned(),
        "u16" => "a whole number from 0 to 65535".to_owned(),
        "u32" => "a whole number from 0 to 4294967295".to_owned(),
        "u64" => "a whole number, 0 or more".to_owned(),
        other if other.starts_with("struct ") => "a table".to_owned(),
        other => other.to_owned(),
    }
}

fn one_of(known: &[&str]) -> String {
    let known: Vec<_> = known.iter().map(|word| format!("`{word}`")).collect();
    format!("known here: {}", known.join(", "))
}

// === impl De ===

/// Numbers and switches of a raw text are what the wanted type says they are.
macro_rules! from_raw {
    ($($method:ident $visit:ident $type:ty, $expected:literal;)*) => {
        $(
            fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
                match &self.node.value {
                    Value::Raw(text) => match text.trim().parse::<$type>() {
                        Ok(value) => visitor.$visit(value),
                        Err(_) => {
                            Err(de::Error::invalid_value(Unexpected::Str(text), &$expected))
                        }
                    },
                    _ => self.deserialize_any(visitor),
                }
            }
        )*
    };
}

impl<'de> de::Deserializer<'de> for De<'_> {
    type Error = DecodeFault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        match &self.node.value {
            Value::Raw(text) | Value::Text(text) => visitor.visit_str(text),
            Value::Bool(flag) => visitor.visit_bool(*flag),
            Value::Integer(number) => visitor.visit_i64(*number),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::List(list) => visitor.visit_seq(Items { list, at: 0 }),
            Value::Table(table) => {
                visitor.visit_map(TableEntries { rest: table.iter(), value: None })
            }
        }
    }

    from_raw! {
        deserialize_bool visit_bool bool, "`true` or `false`";
        deserialize_i64 visit_i64 i64, "a whole number";
        deserialize_u8 visit_u8 u8, "a whole number from 0 to 255";
        deserialize_u16 visit_u16 u16, "a whole number from 0 to 65535";
        deserialize_u32 visit_u32 u32, "a whole number from 0 to 4294967295";
        deserialize_u64 visit_u64 u64, "a whole number, 0 or more";
        deserialize_f64 visit_f64 f64, "a number";
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        match &self.node.value {
            Value::Raw(text) => {
                let origin = &self.node.origin;
                let item = |part: &str| ConfigNode {
                    origin: origin.clone(),
                    value: Value::Raw(part.trim().to_owned()),
                };
                let list: Vec<_> =
                    text.split(',').filter(|part| !part.trim().is_empty()).map(item).collect();
                visitor.visit_seq(Items { list: &list, at: 0 })
            }
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DecodeFault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, DecodeFault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DecodeFault> {
        match &self.node.value {
            Value::Raw(text) | Value::Text(text) => {
                visitor.visit_enum(text.as_str().into_deserializer())
            }
            _ => self.deserialize_any(visitor),
        }
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i128 u128 f32 char str string bytes byte_buf unit unit_struct
        tuple tuple_struct map struct identifier ignored_any
    }
}

struct Items<'a> {
    list: &'a [ConfigNode],
    at: usize,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = DecodeFault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, DecodeFault> {
        let Some(node) = self.list.get(self.at) else { return Ok(None) };
        let key = self.at.to_string();
        self.at += 1;
        seed.deserialize(De { node }).map(Some).map_err(|fault| fault.within(&key, &node.origin))
    }
}

struct TableEntries<'a> {
    rest: btree_map::Iter<'a, String, TableEntry>,
    value: Option<(&'a str, &'a TableEntry)>,
}

impl<'de> de::MapAccess<'de> for TableEntries<'_> {
    type Error = DecodeFault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, DecodeFault> {
        let Some((key, entry)) = self.rest.next() else { return Ok(None) };
        self.value = Some((key, entry));
        let name: de::value::StrDeserializer<'_, DecodeFault> = key.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|fault| fault.within(key, &entry.key))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<T::Value, DecodeFault> {
        let Some((key, entry)) = self.value.take() else {
            return Err(DecodeFault::new(
                "a value was read before its key",
                "report this as a defect",
            ));
        };
        seed.deserialize(De { node: &entry.node })
            .map_err(|fault| fault.within(key, &entry.node.origin))
    }
}
