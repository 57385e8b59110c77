//! What is wrong with arguments, field by field.

use jsonschema::{ValidationError, error::TypeKind, error::ValidationErrorKind};
use serde_json::Value;

use super::check_tool::Usable;
use crate::append::append;

/// Faults that are reported: more do not help.
const FAULTS: usize = 6;
/// Characters of one fault.
const SHOWN: usize = 300;
/// Names or values that are listed in one fault.
const LISTED: usize = 20;

/// All that is wrong with `value`, which as a whole is called `whole`, a line each; empty if nothing is.
pub(super) fn of(usable: &Usable, value: &Value, whole: &str) -> String {
    let mut told = String::new();
    for (at, error) in usable.validator.iter_errors(value).enumerate() {
        if at == FAULTS {
            told.push_str("- and more\n");
            break;
        }
        let fault: String = fault(&error, whole).chars().take(SHOWN).collect();
        append(&mut told, format_args!("- {fault}\n"));
    }
    told.trim_end().to_owned()
}

/// What a value is, in words.
pub(super) const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn fault(error: &ValidationError<'_>, whole: &str) -> String {
    let field = field(error.instance_path().as_str(), whole);
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            let place =
                if field == whole { format!("`{name}`") } else { format!("{field}: `{name}`") };
            format!("{place} is required, but missing")
        }
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            format!("{field}: there is no field {}", list(unexpected.iter().map(String::as_str)))
        }
        ValidationErrorKind::Type { kind: wanted } => {
            let wanted = match wanted {
                TypeKind::Single(one) => one.to_string(),
                TypeKind::Multiple(set) => {
                    set.iter().map(|one| one.to_string()).collect::<Vec<_>>().join(" or ")
                }
            };
            format!("{field} must be of type {wanted}, but is {}", kind(error.instance()))
        }
        ValidationErrorKind::Enum { options } => {
            let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let texts: Vec<String> = options.iter().map(Value::to_string).collect();
            format!("{field} must be one of {}", list(texts.iter().map(String::as_str)))
        }
        _ => format!("{field}: {}", error.masked_with("the value")),
    }
}

/// A JSON pointer as people write fields: `files[0].path`.
fn field(pointer: &str, whole: &str) -> String {
    let mut text = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            append(&mut text, format_args!("[{part}]"));
        } else {
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(&part);
        }
    }
    if text.is_empty() {
        return whole.to_owned();
    }
    let text: String = text.chars().take(100).collect();
    format!("`{text}`")
}

fn list<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = names.len().saturating_sub(LISTED);
    let mut texts: Vec<String> = names.take(LISTED).map(|name| format!("`{name}`")).collect();
    if more > 0 {
        texts.push(format!("{more} more"));
    }
    texts.join(", ")
}
