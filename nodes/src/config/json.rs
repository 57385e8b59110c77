//! JSON as a tree with places. `serde_json` judges the text; the walk here only finds the place of
//! each key and value, which `serde_json` does not give.

use std::collections::{BTreeMap, btree_map};

use super::{
    error::ConfigError,
    line_positions::LinePositions,
    tree::{ConfigNode, TableEntry, Value},
};

/// What to do about a text that is no JSON.
const HINT: &str = "fix the syntax: JSON has no comments and no trailing commas";

/// Parses `text`.
pub(super) fn parse(places: &LinePositions<'_>, text: &str) -> Result<ConfigNode, ConfigError> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).map_err(|error| {
        let before: usize =
            text.split_inclusive('\n').take(error.line().saturating_sub(1)).map(str::len).sum();
        let offset = before + error.column().saturating_sub(1);
        places.error(offset, format!("not valid JSON: {error}"), HINT)
    })?;
    JsonWalk { places, text, at: 0 }.node()
}

/// A walk over text that is known to be JSON (and so of bounded depth).
struct JsonWalk<'a> {
    places: &'a LinePositions<'a>,
    text: &'a str,
    at: usize,
}

impl JsonWalk<'_> {
    fn peek(&mut self) -> u8 {
        let bytes = self.text.as_bytes();
        while bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
        bytes.get(self.at).copied().unwrap_or(0)
    }

    fn node(&mut self) -> Result<ConfigNode, ConfigError> {
        let first = self.peek();
        let origin = self.places.at(self.at);
        let value = match first {
            b'{' => self.table()?,
            b'[' => self.list()?,
            _ => self.leaf()?,
        };
        Ok(ConfigNode { origin, value })
    }

    fn table(&mut self) -> Result<Value, ConfigError> {
        let mut table = BTreeMap::new();
        self.at += 1;
        while self.peek() != b'}' {
            if self.peek() == b',' {
                self.at += 1;
                continue;
            }
            let start = self.at;
            let Value::Text(name) = self.leaf()? else {
                return Err(self.places.error(start, "a key is not text".to_owned(), HINT));
            };
            if self.peek() == b':' {
                self.at += 1;
            }
            let node = self.node()?;
            match table.entry(name) {
                btree_map::Entry::Vacant(free) => {
                    free.insert(TableEntry { key: self.places.at(start), node });
                }
                btree_map::Entry::Occupied(taken) => {
                    let what = format!("key `{}` appears twice", taken.key());
                    return Err(self.places.error(start, what, "remove one of them"));
                }
            }
        }
        self.at += 1;
        Ok(Value::Table(table))
    }

    fn list(&mut self) -> Result<Value, ConfigError> {
        let mut list = Vec::new();
        self.at += 1;
        while self.peek() != b']' {
            if self.peek() == b',' {
                self.at += 1;
                continue;
            }
            list.push(self.node()?);
        }
        self.at += 1;
        Ok(Value::List(list))
    }

    fn leaf(&mut self) -> Result<Value, ConfigError> {
        let start = self.at;
        let rest = self.text.get(start..).unwrap_or("");
        let mut stream = serde_json::Deserializer::from_str(rest).into_iter();
        let value = match stream.next() {
            Some(Ok(serde_json::Value::String(text))) => Value::Text(text),
            Some(Ok(serde_json::Value::Bool(flag))) => Value::Bool(flag),
            Some(Ok(serde_json::Value::Number(number))) => match (number.as_i64(), number.as_f64())
            {
                (Some(whole), _) => Value::Integer(whole),
                (None, Some(number)) => Value::Float(number),
                (None, None) => {
                    return Err(self.places.error(start, "not a number".to_owned(), HINT));
                }
            },
            _ => {
                let what = "`null` is not a value".to_owned();
                return Err(self.places.error(start, what, "leave the key out instead"));
            }
        };
        self.at += stream.byte_offset();
        Ok(value)
    }
}
