//! How much work a schema can make, found without using it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::SchemaFault;

/// How deep a schema may be, references followed: what walks it recurses.
const DEPTH: usize = 64;
/// What a schema may weigh, references followed. A value costs one, a pattern [`PATTERN`].
const WEIGHT: u64 = 10_000;
/// What a pattern costs: it is compiled before it is used.
const PATTERN: u64 = 50;
/// Keywords that would lead where this walk does not: names instead of pointers, and scopes that
/// are known only while a value is judged.
const FOREIGN: [&str; 4] = ["$dynamicRef", "$recursiveRef", "$dynamicAnchor", "$recursiveAnchor"];

/// What a part of a schema comes to.
#[derive(Clone, Copy, Debug, Default)]
struct SchemaWeight {
    weight: u64,
    height: usize,
}

struct SchemaWalk<'a> {
    root: &'a Value,
    /// The weight of each referenced part, by pointer; none while the part is being walked.
    seen: BTreeMap<&'a str, Option<SchemaWeight>>,
}

/// The schema's weight, if it may be used at all.
pub(super) fn weigh(root: &Value) -> Result<u64, SchemaFault> {
    let mut walk = SchemaWalk { root, seen: BTreeMap::new() };
    Ok(walk.value(root, 0)?.weight)
}

/// How many values are in `value`, itself included.
pub(super) fn count(value: &Value) -> u64 {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// What a reference within `root` leads to.
pub(super) fn resolve<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    // An escaped pointer would have two spellings, and the walk's memory knows only one.
    if pointer.contains('%') { None } else { root.pointer(pointer) }
}

impl<'a> SchemaWalk<'a> {
    /// Walks everything, whether it is a schema or not: what is not can only weigh too much.
    fn value(&mut self, value: &'a Value, depth: usize) -> Result<SchemaWeight, SchemaFault> {
        if depth > DEPTH {
            return Err(SchemaFault::TooDeep { most: DEPTH });
        }
        let mut load = SchemaWeight { weight: 1, height: 0 };
        match value {
            Value::Array(items) => {
                for item in items {
                    load.take(self.value(item, depth + 1)?)?;
                }
            }
            Value::Object(fields) => {
                for (name, field) in fields {
                    self.keyword(name, field, depth, &mut load)?;
                    load.take(self.value(field, depth + 1)?)?;
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Ok(load)
    }

    fn keyword(
        &mut self,
        name: &str,
        field: &'a Value,
        depth: usize,
        load: &mut SchemaWeight,
    ) -> Result<(), SchemaFault> {
        match (name, field) {
            ("$ref", Value::String(reference)) => {
                let target = self.reference(reference, depth + 1)?;
                load.take(target)
            }
            ("pattern", Value::String(_)) => load.take(SchemaWeight { weight: PATTERN, height: 0 }),
            ("patternProperties", Value::Object(patterns)) => {
                let weight = PATTERN.saturating_mul(patterns.len() as u64);
                load.take(SchemaWeight { weight, height: 0 })
            }
            // Within the schema it would change what `#` means.
            ("$id" | "id", Value::String(_)) if depth > 0 => {
                Err(SchemaFault::Foreign { keyword: name.to_owned() })
            }
            (name, Value::String(_) | Value::Bool(_)) if FOREIGN.contains(&name) => {
                Err(SchemaFault::Foreign { keyword: name.to_owned() })
            }
            _ => Ok(()),
        }
    }

    fn reference(&mut self, reference: &'a str, depth: usize) -> Result<SchemaWeight, SchemaFault> {
        let shown = || reference.chars().take(80).collect::<String>();
        match self.seen.get(reference) {
            Some(Some(load)) if depth + load.height <= DEPTH => return Ok(*load),
            Some(Some(_)) => return Err(SchemaFault::TooDeep { most: DEPTH }),
            Some(None) => return Err(SchemaFault::Circular { reference: shown() }),
            None => {}
        }
        let Some(target) = resolve(self.root, reference) else {
            return Err(SchemaFault::Reference { reference: shown() });
        };
        self.seen.insert(reference, None);
        let load = self.value(target, depth)?;
        self.seen.insert(reference, Some(load));
        Ok(load)
    }
}

impl SchemaWeight {
    fn take(&mut self, part: Self) -> Result<(), SchemaFault> {
        self.weight = self.weight.saturating_add(part.weight);
        self.height = self.height.max(part.height + 1);
        if self.weight > WEIGHT { Err(SchemaFault::TooHeavy { most: WEIGHT }) } else { Ok(()) }
    }
}
