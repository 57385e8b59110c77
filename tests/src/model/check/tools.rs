//! What both wires demand of tools: names, schemas, and a result for every use.

use std::collections::BTreeSet;

use serde_json::Value;

/// Bytes of a tool's name.
const NAME_BYTES: usize = 64;
/// Tools of one request.
const MOST: usize = 128;

/// Tool uses and their results.
#[derive(Debug, Default)]
pub(super) struct Pairs<'a> {
    /// Uses without a result yet.
    open: BTreeSet<&'a str>,
    /// All uses of the conversation.
    seen: BTreeSet<&'a str>,
}

// === impl Pairs ===

impl<'a> Pairs<'a> {
    /// A use; whether its id is new within the conversation.
    pub(super) fn ask(&mut self, id: &'a str, name: &str) -> Result<bool, String> {
        check_name(name)?;
        if !self.open.insert(id) {
            return Err(format!("two tool uses `{id}` in one message"));
        }
        Ok(self.seen.insert(id))
    }

    /// A result.
    pub(super) fn answer(&mut self, id: &str) -> Result<(), String> {
        if self.open.remove(id) { Ok(()) } else { Err(format!("an orphan tool result `{id}`")) }
    }

    /// Every use has its result before anything else is said.
    pub(super) fn closed(&self) -> Result<(), String> {
        match self.open.first() {
            Some(id) => Err(format!("no tool result for `{id}` directly after its use")),
            None => Ok(()),
        }
    }
}

/// Holds what is offered to the wire.
pub(super) fn check_offers<'a>(
    offers: impl IntoIterator<Item = (&'a str, &'a Value)>,
) -> Result<(), String> {
    let mut names = BTreeSet::new();
    for (name, schema) in offers {
        check_name(name)?;
        check_schema(name, schema)?;
        if !names.insert(name) {
            return Err(format!("two tools `{name}`"));
        }
    }
    if names.is_empty() || names.len() > MOST {
        return Err(format!("{} tools instead of 1 to {MOST}", names.len()));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=NAME_BYTES).contains(&name.len()) && name.bytes().all(plain) {
        return Ok(());
    }
    Err(format!("a tool name `{name}` that is not 1 to {NAME_BYTES} of a-z, A-Z, 0-9, `_`, `-`"))
}

/// A JSON Schema of an object; its parts have their shapes.
fn check_schema(name: &str, schema: &Value) -> Result<(), String> {
    let shape = |part: &str, is: fn(&Value) -> bool| schema.get(part).is_none_or(is);
    let is_names =
        |names: &Value| names.as_array().is_some_and(|names| names.iter().all(Value::is_string));
    let object = schema.get("type").is_some_and(|kind| kind == "object");
    if object && shape("properties", Value::is_object) && shape("required", is_names) {
        return Ok(());
    }
    Err(format!("the schema of tool `{name}` is not one of an object"))
}
