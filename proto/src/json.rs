//! JSON that means the same to every reader.
//!
//! Of two fields with one name some readers take the first, others the last: a person would be
//! shown one and another would be done. Such text is refused wherever something is decided by it.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Characters of a field's name that an error repeats.
const NAME_SHOWN: usize = 80;
/// Readings until a text reads as what was written. A number is written as short as it may be and
/// read to within its last digit, so this is nearly always the second.
const READINGS: usize = 4;

/// A value without two fields of one name, at any depth.
struct Plain(Value);

struct PlainVisitor;

/// Reads a value in which no object has two fields of one name.
///
/// # Errors
/// What is no JSON, and what has such fields: then the error is of the category
/// [`Data`](serde_json::error::Category::Data).
pub fn read(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).map(|Plain(value)| value)
}

/// The same, if it is an object.
pub fn read_object(text: &str) -> Option<Map<String, Value>> {
    match read(text) {
        Ok(Value::Object(fields)) => Some(fields),
        Ok(_) | Err(_) => None,
    }
}

/// Reads an object that is a part of something, as [`read`] does.
///
/// # Errors
/// What is no object, and what has two fields of one name.
pub fn fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    match Plain::deserialize(deserializer)? {
        Plain(Value::Object(fields)) => Ok(fields),
        Plain(_) => Err(de::Error::custom("this is not an object")),
    }
}

/// The one text of an object: in one line, without white space, its fields by name. `None` if the
/// text is not an object, or means several things.
pub fn canonical(text: &str) -> Option<String> {
    let mut fields = read_object(text)?;
    let mut written = Value::Object(fields).to_string();
    for _ in 1..READINGS {
        fields = read_object(&written)?;
        let again = Value::Object(fields).to_string();
        if again == written {
            break;
        }
        written = again;
    }
    Some(written)
}

impl<'de> Deserialize<'de> for Plain {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PlainVisitor)
    }
}

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = Plain;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Plain, E> {
        Ok(Plain(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Plain, E> {
        // The text of a number is finite.
        Ok(Plain(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Plain, E> {
        Ok(Plain(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Plain, E> {
        Ok(Plain(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Plain, A::Error> {
        let mut all = Vec::new();
        while let Some(Plain(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Plain(Value::Array(all)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Plain, A::Error> {
        let mut all = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if all.contains_key(&name) {
                let name: String = name.chars().take(NAME_SHOWN).collect();
                return Err(de::Error::custom(format_args!("two fields are called `{name}`")));
            }
            let Plain(value) = fields.next_value()?;
            all.insert(name, value);
        }
        Ok(Plain(Value::Object(all)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_fields_of_one_name_are_refused_at_any_depth() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"b":2,"a":3}"#,
            r#"{"o":{"a":1,"a":2}}"#,
            r#"{"o":[0,{"a":1,"a":2}]}"#,
            r#"[[{"a":null,"a":null}]]"#,
            // The same name in another spelling.
            r#"{"a":1,"\u0061":2}"#,
            r#"{"":1,"":2}"#,
        ] {
            let error = read(text).unwrap_err();
            assert!(error.is_data(), "{text}: {error}");
            assert!(error.to_string().contains("two fields are called"), "{text}: {error}");
            assert_eq!(canonical(text), None, "{text}");
        }
        for text in [r#"{"a":{"a":{"a":[{"a":1},{"a":1}]}}}"#, r#"{"a":1,"A":2,"á":3}"#] {
            assert_eq!(read(text).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        }
    }

    #[test]
    fn what_is_no_json_is_told_from_what_has_a_name_twice() {
        let deep = "[".repeat(300);
        for text in ["", "{", r#"{"a":1,}"#, r#"{"a":1} x"#, "1e999", "nul", &deep] {
            assert!(!read(text).unwrap_err().is_data(), "{text:.40}");
        }
    }

    #[test]
    fn an_object_has_one_text() {
        for text in [
            r#"{"a":1,"b":[true,null,"x\ny"]}"#,
            " {\n\n\n\"b\" : [ true , null , \"x\\ny\" ] ,\t\"a\":1 } ",
            r#"{"b":[true,null,"\u0078\ny"],"\u0061":1}"#,
        ] {
            assert_eq!(canonical(text).unwrap(), r#"{"a":1,"b":[true,null,"x\ny"]}"#, "{text}");
        }
        // What is shown is what is read, not what was written.
        assert_eq!(
            canonical(r#"{"n":1.0e2,"m":123456789012345678901}"#).unwrap(),
            r#"{"m":1.2345678901234568e+20,"n":100.0}"#
        );
        for text in ["", "[]", "1", "null", r#""{}""#, "{", "{} {}"] {
            assert_eq!(canonical(text), None, "{text}");
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,3}", inner, 0..4)
                    .prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_one_text_is_read_as_what_it_is_the_text_of(value in any_json()) {
            let object = Value::from(Map::from_iter([("it".to_owned(), value)]));
            for text in [object.to_string(), serde_json::to_string_pretty(&object).unwrap()] {
                let one = canonical(&text).unwrap();
                prop_assert_eq!(canonical(&one).unwrap(), one.clone(), "it is its own");
                let read: Value = serde_json::from_str(&one).unwrap();
                prop_assert_eq!(read.to_string(), one.clone());
                prop_assert!(!one.contains('\n'));
            }
        }

        #[test]
        fn whatever_comes_is_read_as_any_reader_does_or_refused(text in "[{}\\[\\]:,\"a0 ]{0,24}") {
            if let Ok(value) = read(&text) {
                prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            }
        }
    }
}
