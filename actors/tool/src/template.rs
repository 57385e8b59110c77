//! Texts with references between `{{` and `}}`. In a plan, `{{steps.2.output}}` is the output of its second step. Pure.
//!
//! `{{"{{"}}` is the text `{{` itself. What replaces a reference is not searched for references again. Journals hold
//! templates and not what they were filled with, so a text means the same under every later build.

use std::borrow::Cow;

use clawnode_proto::{json, limits::TOOL_ARGUMENTS_BYTES};
use serde_json::Value;

const OPEN: &str = "{{";
const CLOSE: &str = "}}";
/// A brace as a text that begins no reference.
const BRACE: &str = r#"{{"{"}}"#;
const HINT: &str = r#"for the text `{{` itself, write `{{"{{"}}`"#;
/// Arguments of tools that are run as they are: `run_command`, `run_python`, `execute_code`, and tools on SSH hosts.
const CODE: [&str; 2] = ["command", "code"];
/// Characters of a reference that an error repeats.
const SHOWN: usize = 80;

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TemplatePart<'a> {
    /// It means itself.
    Literal(&'a str),
    /// It names a value.
    Reference(&'a str),
}

/// The parts of a text, in order. The error is for the author of the text.
pub fn parts(text: &str) -> Result<Vec<TemplatePart<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        if !before.is_empty() {
            parts.push(TemplatePart::Literal(before));
        }
        let Some((inside, after)) = after.split_once(CLOSE) else {
            return Err(format!("no `{CLOSE}` follows `{OPEN}`; {HINT}"));
        };
        parts.push(part(inside.trim()));
        rest = after;
    }
    if !rest.is_empty() {
        parts.push(TemplatePart::Literal(rest));
    }
    Ok(parts)
}

fn part(inside: &str) -> TemplatePart<'_> {
    let quoted = inside.strip_prefix('"').and_then(|inside| inside.strip_suffix('"'));
    match quoted {
        Some(text) if !text.contains('"') => TemplatePart::Literal(text),
        Some(_) | None => TemplatePart::Reference(inside),
    }
}

/// A text as [`parts`] reads it back as a literal, also in front of a reference.
pub fn written(literal: &str) -> Cow<'_, str> {
    if literal.contains(OPEN) || literal.ends_with('{') {
        Cow::Owned(literal.replace('{', BRACE))
    } else {
        Cow::Borrowed(literal)
    }
}

/// The reference to the output of the step of this number, from 1.
pub fn output_of(number: usize) -> String {
    format!("{OPEN}steps.{number}.output{CLOSE}")
}

/// The number of the step, from 1, to whose output a plan refers so.
fn step_of(reference: &str) -> Option<usize> {
    let number = reference.strip_prefix("steps.")?.strip_suffix(".output")?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|number| is_number && *number > 0)
}

/// The error for a reference that names nothing, and what there is.
pub fn unknown(reference: &str, known: &str) -> String {
    let reference: String = reference.chars().take(SHOWN).collect();
    format!("unknown reference `{reference}`; {known}; {HINT}")
}

/// Refuses references in an argument that is run, such as a command line: an output would be run with it.
pub fn check_argument(argument: &str, value: &Value) -> Result<(), String> {
    if !CODE.contains(&argument) {
        return Ok(());
    }
    let mut judge = |text: &str| -> Result<String, String> {
        if parts(text)?.iter().any(|part| matches!(part, TemplatePart::Reference(_))) {
            return Err(format!(
                "`{argument}` may have no reference, because what replaces it would be run; use \
                 `argv` or `stdin`, and {HINT}"
            ));
        }
        Ok(String::new())
    };
    each_text(&mut value.clone(), &mut judge)
}

/// Checks the arguments of the step of this number, from 1: they are a JSON object, refer to the outputs of earlier
/// steps only, and have no reference in code.
pub fn check(template: &str, number: usize) -> Result<(), String> {
    for (argument, value) in json::read_object(template).unwrap_or_default() {
        check_argument(&argument, &value)?;
    }
    let earlier = |other: usize| {
        if other < number {
            return Ok("");
        }
        let reference = output_of(other);
        Err(format!("`{reference}` is not the output of an earlier step"))
    };
    fill(template, earlier).map(|_filled| ())
}

/// Arguments, a JSON object as text, with each reference in their texts replaced. `output` gives what the step of a
/// number, from 1, has said, or why that cannot be used.
pub fn fill<'a>(
    template: &str,
    output: impl Fn(usize) -> Result<&'a str, String>,
) -> Result<String, String> {
    let Some(mut fields) = json::read_object(template) else {
        return Err("the arguments are not a JSON object".to_owned());
    };
    let mut room = TOOL_ARGUMENTS_BYTES;
    let mut change = |text: &str| -> Result<String, String> {
        let mut filled = String::new();
        for part in parts(text)? {
            let piece = match part {
                TemplatePart::Literal(literal) => literal,
                TemplatePart::Reference(reference) => {
                    let known = "a step refers to an earlier one by `steps.N.output`";
                    output(step_of(reference).ok_or_else(|| unknown(reference, known))?)?
                }
            };
            let left = room.checked_sub(piece.len());
            room = left.ok_or_else(|| {
                format!("with the outputs in them, the arguments have more than {TOOL_ARGUMENTS_BYTES} bytes")
            })?;
            filled.push_str(piece);
        }
        Ok(filled)
    };
    for value in fields.values_mut() {
        each_text(value, &mut change)?;
    }
    Ok(Value::Object(fields).to_string())
}

/// Changes all texts in a value. Names of fields stay.
pub fn each_text(
    value: &mut Value,
    change: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<(), String> {
    match value {
        Value::String(text) => *text = change(text)?,
        Value::Array(values) => {
            for value in values {
                each_text(value, change)?;
            }
        }
        Value::Object(fields) => {
            for value in fields.values_mut() {
                each_text(value, change)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// The first step said this, the second something that looks like a reference.
    fn said(number: usize) -> Result<&'static str, String> {
        ["42", "{{steps.1.output}} \"quoted\""]
            .get(number - 1)
            .copied()
            .ok_or_else(|| format!("step {number} said nothing"))
    }

    fn filled(template: &Value) -> Result<Value, String> {
        let text = fill(&template.to_string(), said)?;
        serde_json::from_str(&text).map_err(|error| error.to_string())
    }

    #[test]
    fn outputs_replace_references_in_texts_and_nothing_else() {
        let template = json!({
            "a": "is {{steps.1.output}}, {{ steps.1.output }}",
            "b": [{"c": "{{steps.2.output}}", "{{steps.1.output}}": 7}],
            "d": "{{\"{{\"}}x}} {one}",
        });
        let wanted = json!({
            "a": "is 42, 42",
            "b": [{"c": "{{steps.1.output}} \"quoted\"", "{{steps.1.output}}": 7}],
            "d": "{{x}} {one}",
        });
        assert_eq!(filled(&template).unwrap(), wanted);
    }

    #[test]
    fn what_cannot_be_filled_is_named() {
        for (text, why) in [
            ("{{steps.3.output}}", "step 3 said nothing"),
            ("{{steps.0.output}}", "unknown reference `steps.0.output`"),
            ("{{steps.+1.output}}", "unknown reference"),
            ("{{steps.one.output}}", "unknown reference `steps.one.output`"),
            ("{{env.HOME}}", "unknown reference `env.HOME`"),
            ("{{}}", "unknown reference ``"),
            ("{{\"}}", "unknown reference"),
            ("a {{ b", "no `}}` follows"),
        ] {
            let error = filled(&json!({ "x": text })).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(fill("[]", said).unwrap_err().contains("JSON object"));
        assert!(fill(r#"{"a":1,"a":2}"#, said).unwrap_err().contains("JSON object"));
        let long = "x".repeat(TOOL_ARGUMENTS_BYTES / 2 + 1);
        let twice = r#"{"a":"{{steps.1.output}}","b":"{{steps.1.output}}"}"#;
        assert!(fill(twice, |_| Ok(long.as_str())).unwrap_err().contains("more than"));
    }

    #[test]
    fn a_step_refers_to_earlier_ones_only() {
        let template = r#"{"a":"{{steps.2.output}}"}"#;
        check(template, 3).unwrap();
        for number in [1, 2] {
            assert!(check(template, number).unwrap_err().contains("earlier step"), "{number}");
        }
    }

    #[test]
    fn what_is_run_has_no_references() {
        let error = check(r#"{"command":["echo {{steps.1.output}}"]}"#, 2).unwrap_err();
        assert!(error.contains("`command` may have no reference"), "{error}");
        // It may be meant for the command itself.
        let error = check(r#"{"command":"docker ps --format '{{.Names}}'"}"#, 1).unwrap_err();
        assert!(error.contains(HINT), "{error}");
        let braces = r#"{"command":"awk '{{\"{{\"}} print }'","stdin":"{{steps.1.output}}"}"#;
        check(braces, 2).unwrap();
        check(r#"{"command":"wc -l","argv":["{{steps.1.output}}"]}"#, 2).unwrap();
    }

    proptest! {
        /// No text becomes a reference, wherever it is put.
        #[test]
        fn what_is_written_is_read_back(texts in proptest::collection::vec("[{}\"a.é]{0,8}", 0..6)) {
            let (mut template, mut wanted) = (String::new(), String::new());
            for text in &texts {
                template.extend([written(text), output_of(1).into()]);
                wanted.extend([text.as_str(), "42"]);
            }
            let filled = filled(&json!({ "x": template })).map_err(TestCaseError::fail)?;
            prop_assert_eq!(filled, json!({ "x": wanted }));
        }

        #[test]
        fn any_text_is_judged(text in "\\PC{0,40}") {
            let read = parts(&text);
            prop_assert!(read.is_ok() || text.contains(OPEN));
        }
    }
}
