//! `transform_json` and `transform_text`: a part of a text, or the text in another form. Plans use them between two
//! other tools, where no model reads the text. Pure.

use std::time::Duration;

use clawnode_proto::tool::{EffectClass, Risk, ToolSpec};
use clawnode_tool::spec::BuiltIn;
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) const TRANSFORM_JSON: &str = "transform_json";
pub(super) const TRANSFORM_TEXT: &str = "transform_text";
/// Characters of an input: what fits into the arguments of a call.
const INPUT_CHARS: usize = 100_000;
/// Bytes of a result. Replacements could make a text much longer.
const RESULT_BYTES: usize = 256 << 10;
/// Characters of a JSON pointer, and of a text to look for.
const POINTER_CHARS: usize = 1_000;
/// What the answer of `http_fetch` begins with, and what ends its head.
const HTTP: (&str, &str) = ("HTTP ", "\n\n");

/// Arguments of `transform_json`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransformJson {
    input: String,
    #[serde(default)]
    pointer: String,
}

/// Arguments of `transform_text`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransformText {
    input: String,
    operation: TextOperation,
    find: Option<String>,
    replacement: Option<String>,
    count: Option<usize>,
}

/// What `transform_text` does.
#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum TextOperation {
    Trim,
    Upper,
    Lower,
    FirstLines,
    LastLines,
    LinesWith,
    LinesWithout,
    Replace,
}

/// How both tools are described.
pub(super) fn specs(timeout: Duration) -> [ToolSpec; 2] {
    let pure = |name, description, input| BuiltIn {
        name,
        description,
        input,
        class: EffectClass::Safe,
        risk: Risk::ReadOnly,
        capability: None,
        timeout,
    };
    let json = pure(
        TRANSFORM_JSON,
        "Returns one part of a JSON text: a text as it is, anything else as JSON. An answer of \
         `http_fetch` is read without its headers.",
        json!({
            "type": "object",
            "properties": {
                "input": {
                    "type": "string",
                    "description": "The JSON text.",
                    "maxLength": INPUT_CHARS,
                },
                "pointer": {
                    "type": "string",
                    "description": "A JSON pointer such as `/items/0/name`. Default: the whole value.",
                    "maxLength": POINTER_CHARS,
                },
            },
            "required": ["input"],
            "additionalProperties": false,
        }),
    );
    let text = pure(
        TRANSFORM_TEXT,
        "Returns a text in another form: without white space at both ends, in upper or lower case, \
         its first or last lines, its lines with or without a text, or with a text replaced.",
        text_input(),
    );
    [json.spec(), text.spec()]
}

fn text_input() -> Value {
    json!({
        "type": "object",
        "properties": {
            "input": {"type": "string", "description": "The text.", "maxLength": INPUT_CHARS},
            "operation": {
                "type": "string",
                "enum": [
                    "trim", "upper", "lower", "first_lines", "last_lines", "lines_with",
                    "lines_without", "replace",
                ],
                "description": "What to do.",
            },
            "find": {
                "type": "string",
                "description": "For `lines_with`, `lines_without` and `replace`: what to look for, \
                                exactly.",
                "minLength": 1,
                "maxLength": POINTER_CHARS,
            },
            "replacement": {
                "type": "string",
                "description": "For `replace`. Default: nothing.",
                "maxLength": INPUT_CHARS,
            },
            "count": {
                "type": "integer",
                "description": "For `first_lines` and `last_lines`. Default: 1.",
                "minimum": 1,
            },
        },
        "required": ["input", "operation"],
        "additionalProperties": false,
    })
}

// === impl TransformJson ===

impl TransformJson {
    /// The part that is asked for.
    pub(super) fn run(&self) -> Result<String, String> {
        let value = clawnode_proto::json::read(body_of(&self.input))
            .map_err(|error| format!("`input` is not JSON: {error}"))?;
        match value.pointer(&self.pointer) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(part) => Ok(part.to_string()),
            None if !self.pointer.starts_with('/') => {
                Err(format!("`pointer` is `{}`, which does not begin with `/`", self.pointer))
            }
            None => Err(format!("`input` has nothing at `{}`", self.pointer)),
        }
    }
}

/// A text without the head that `http_fetch` puts before a body. No JSON begins like it.
fn body_of(input: &str) -> &str {
    let (begin, end) = HTTP;
    let body = input.starts_with(begin).then(|| input.split_once(end)).flatten();
    body.map_or(input, |(_head, body)| body)
}

// === impl TransformText ===

impl TransformText {
    /// The text in its new form.
    pub(super) fn run(&self) -> Result<String, String> {
        let count = self.count.unwrap_or(1);
        let lines = || self.input.lines();
        Ok(match self.operation {
            TextOperation::Trim => self.input.trim().to_owned(),
            TextOperation::Upper => self.input.to_uppercase(),
            TextOperation::Lower => self.input.to_lowercase(),
            TextOperation::FirstLines => lines().take(count).collect::<Vec<_>>().join("\n"),
            TextOperation::LastLines => {
                let skipped = lines().count().saturating_sub(count);
                lines().skip(skipped).collect::<Vec<_>>().join("\n")
            }
            TextOperation::LinesWith => {
                let find = self.find()?;
                lines().filter(|line| line.contains(find)).collect::<Vec<_>>().join("\n")
            }
            TextOperation::LinesWithout => {
                let find = self.find()?;
                lines().filter(|line| !line.contains(find)).collect::<Vec<_>>().join("\n")
            }
            TextOperation::Replace => self.replaced()?,
        })
    }

    fn find(&self) -> Result<&str, String> {
        let find = self.find.as_deref().filter(|find| !find.is_empty());
        find.ok_or_else(|| "`find` is missing: say what to look for".to_owned())
    }

    fn replaced(&self) -> Result<String, String> {
        let (find, replacement) = (self.find()?, self.replacement.as_deref().unwrap_or_default());
        let added = self.input.matches(find).count().saturating_mul(replacement.len());
        if added.saturating_add(self.input.len()) > RESULT_BYTES {
            return Err(format!("the result would have more than {RESULT_BYTES} bytes"));
        }
        Ok(self.input.replace(find, replacement))
    }
}

#[cfg(test)]
mod tests {
    use clawnode_tool::schema;

    use super::*;

    fn part(input: &str, pointer: &str) -> Result<String, String> {
        TransformJson { input: input.to_owned(), pointer: pointer.to_owned() }.run()
    }

    fn changed(arguments: Value) -> Result<String, String> {
        let read = serde_json::from_value::<TransformText>(arguments);
        read.map_err(|error| error.to_string())?.run()
    }

    #[test]
    fn they_may_be_offered() {
        for spec in specs(Duration::from_secs(1)) {
            schema::check(&spec).unwrap();
        }
    }

    #[test]
    fn a_part_of_json_is_found_or_named() {
        let input = r#"{"a":[{"b":"x y"},7],"c/d":null}"#;
        assert_eq!(part(input, "/a/0/b").unwrap(), "x y", "without quotes");
        assert_eq!(part(input, "/a/1").unwrap(), "7");
        assert_eq!(part(input, "/c~1d").unwrap(), "null");
        assert_eq!(part(input, "/a/0").unwrap(), r#"{"b":"x y"}"#);
        assert_eq!(part("[1, 2]", "").unwrap(), "[1,2]");
        let fetched = format!("HTTP 200 OK\ncontent-type: application/json\n\n{input}");
        assert_eq!(part(&fetched, "/a/1").unwrap(), "7");
        for (input, pointer, why) in [
            (input, "/a/2", "nothing at `/a/2`"),
            (input, "a", "does not begin with `/`"),
            ("{", "", "not JSON"),
            (r#"{"a":1,"a":2}"#, "/a", "not JSON"),
            ("HTTP 200 OK", "", "not JSON"),
        ] {
            let error = part(input, pointer).unwrap_err();
            assert!(error.contains(why), "{input} {pointer}: {error}");
        }
    }

    #[test]
    fn a_text_is_changed_as_asked() {
        let text = " one\ntwo\nThree \n";
        for (more, wanted) in [
            (json!({"operation": "trim"}), "one\ntwo\nThree"),
            (json!({"operation": "upper"}), " ONE\nTWO\nTHREE \n"),
            (json!({"operation": "lower"}), " one\ntwo\nthree \n"),
            (json!({"operation": "first_lines"}), " one"),
            (json!({"operation": "last_lines", "count": 2}), "two\nThree "),
            (json!({"operation": "last_lines", "count": 9}), " one\ntwo\nThree "),
            (json!({"operation": "lines_with", "find": "o"}), " one\ntwo"),
            (json!({"operation": "lines_without", "find": "o"}), "Three "),
            (
                json!({"operation": "replace", "find": "o", "replacement": "0"}),
                " 0ne\ntw0\nThree \n",
            ),
            (json!({"operation": "replace", "find": "\n"}), " onetwoThree "),
        ] {
            let mut arguments = more;
            arguments["input"] = text.into();
            assert_eq!(changed(arguments.clone()).unwrap(), wanted, "{arguments}");
        }
        let missing = json!({"input": "x", "operation": "replace", "replacement": "y"});
        assert!(changed(missing).unwrap_err().contains("`find` is missing"));
        let (input, replacement) = ("a".repeat(1_000), "b".repeat(1_000));
        let long = json!({"input": input, "operation": "replace", "find": "a", "replacement": replacement});
        assert!(changed(long).unwrap_err().contains("more than"));
    }
}
