//! Whether a reply is JSON that fits its schema.

use clawnode_proto::{
    json,
    limits::{RESPONSE_BYTES, RESPONSE_SCHEMA_BYTES},
    response::ResponseSchema,
};
use serde_json::{Value, error::Category};

use super::{
    check_arguments::WORK,
    check_tool::{SchemaFault, Usable},
    example::example,
    faults,
    shape::shape,
    weigh::count,
};
use crate::append::append;

/// What a reply as a whole is called.
const WHOLE: &str = "the reply";
/// The lines before and after a reply that a model writes as a block of code.
const FENCE: &str = "```";

/// Whether replies can be judged by this schema.
pub fn check_response(schema: &ResponseSchema) -> Result<(), SchemaFault> {
    let usable = Usable::read(&schema.schema, RESPONSE_SCHEMA_BYTES)?;
    match unmeetable(&usable.schema, "") {
        Some(why) => Err(SchemaFault::Unmeetable(why)),
        None => Ok(()),
    }
}

/// Which part of a schema refuses every value, if that is plain to see.
fn unmeetable(schema: &Value, place: &str) -> Option<String> {
    let here = if place.is_empty() { "it" } else { place };
    if *schema == Value::Bool(false) {
        return Some(format!("{here} is `false`"));
    }
    let parts = |name: &str| -> Vec<Option<String>> {
        let parts = schema.get(name).and_then(Value::as_array).into_iter().flatten().enumerate();
        parts.map(|(at, part)| unmeetable(part, &format!("{place}/{name}/{at}"))).collect()
    };
    if schema.get("enum").and_then(Value::as_array).is_some_and(Vec::is_empty) {
        return Some(format!("`enum` of {here} is empty; list at least one value"));
    }
    if let Some(why) = parts("allOf").into_iter().flatten().next() {
        return Some(why);
    }
    // One that can be met is enough.
    let none_of =
        |name: &str| parts(name).into_iter().collect::<Option<Vec<_>>>()?.into_iter().next();
    none_of("anyOf").or_else(|| none_of("oneOf"))
}

/// The JSON of a reply that fits, as the model wrote it; otherwise what is wrong, for the model.
///
/// # Errors
/// What is wrong with which field, and the shape of a reply that fits.
pub fn judge_reply<'a>(schema: &ResponseSchema, reply: &'a str) -> Result<&'a str, String> {
    let usable = Usable::read(&schema.schema, RESPONSE_SCHEMA_BYTES)
        .map_err(|fault| format!("No reply can be judged: the {fault}."))?;
    let text = unfenced(reply);
    let found = faults_of(&usable, text);
    if found.is_empty() {
        return Ok(text);
    }
    let shape = shape(&usable.schema);
    let mut help = format!("{found}\nWhat fits is (`?` marks what may be left out): {shape}");
    if let Some(example) =
        example(&usable.schema).filter(|example| usable.validator.is_valid(example))
    {
        append(&mut help, format_args!("\nFor example: {example}"));
    }
    Err(help)
}

/// All that is wrong with the text; empty if it fits.
fn faults_of(usable: &Usable, text: &str) -> String {
    if text.is_empty() {
        return "The reply is empty.".to_owned();
    }
    if text.len() > RESPONSE_BYTES {
        let length = text.len();
        return format!("The reply is {length} bytes long; at most {RESPONSE_BYTES} are allowed.");
    }
    let value = match json::read(text) {
        Ok(value) => value,
        Err(error) => return unreadable(&error),
    };
    if usable.weight.saturating_mul(count(&value)) > WORK {
        return "The reply has too many parts.".to_owned();
    }
    faults::of(usable, &value, WHOLE)
}

fn unreadable(error: &serde_json::Error) -> String {
    match error.classify() {
        Category::Data => format!("The reply means several things: {error}."),
        Category::Eof => format!(
            "The reply is cut off: its JSON ends at line {}, column {}, before it is complete.",
            error.line(),
            error.column()
        ),
        Category::Syntax | Category::Io => {
            format!("The reply is not JSON alone: {error}.")
        }
    }
}

/// The text without white space and a fence around the whole.
fn unfenced(text: &str) -> &str {
    let text = text.trim();
    let inner = text.strip_prefix(FENCE).and_then(|inner| inner.strip_suffix(FENCE));
    // The rest of the first line names the language.
    inner.and_then(|inner| inner.split_once('\n')).map_or(text, |(_language, inner)| inner.trim())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn person() -> ResponseSchema {
        let schema = json!({
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {
                    "type": "object",
                    "properties": {"age": {"type": "integer", "minimum": 0}},
                    "required": ["age"],
                }},
            },
            "required": ["name"],
            "additionalProperties": false,
        });
        ResponseSchema::new(None, &schema)
    }

    #[test]
    fn what_fits_is_kept_as_the_model_wrote_it() {
        for (reply, kept) in [
            (r#"{"name":"Ada"}"#, r#"{"name":"Ada"}"#),
            (" {\"name\": \"Ada\"}\n", r#"{"name": "Ada"}"#),
            ("```json\n{\"name\":\"Ada\"}\n```", r#"{"name":"Ada"}"#),
            ("```\n{\"name\":\"```\"}\n```", r#"{"name":"```"}"#),
        ] {
            assert_eq!(judge_reply(&person(), reply).unwrap(), kept, "{reply}");
        }
        let list =
            ResponseSchema::new(None, &json!({"type": "array", "items": {"type": "number"}}));
        assert_eq!(judge_reply(&list, "[1,2]").unwrap(), "[1,2]", "any value may be asked for");
    }

    #[test]
    fn each_fault_is_told_with_its_place() {
        let long = format!(r#"{{"name":"{}"}}"#, "a".repeat(RESPONSE_BYTES));
        for (reply, words) in [
            ("", "The reply is empty."),
            ("```\n```", "The reply is empty."),
            ("Ada", "not JSON alone: expected value at line 1"),
            (r#"Here: {"name":"Ada"}"#, "not JSON alone"),
            (r#"{"name":"Ada"} Done."#, "not JSON alone: trailing characters"),
            (r#"{"name":"Ad"#, "cut off: its JSON ends at line 1, column 11"),
            (r#"{"name":"a","name":"b"}"#, "two fields are called `name`"),
            ("[]", "the reply must be of type object, but is an array"),
            ("{}", "- `name` is required, but missing"),
            (r#"{"name":1}"#, "`name` must be of type string, but is a number"),
            (
                r#"{"name":"a","children":[{"age":1},{"age":-1}]}"#,
                "`children[1].age`: the value is less than the minimum of 0",
            ),
            (r#"{"name":"a","nme":1}"#, "the reply: there is no field `nme`"),
            (&long, "at most 131072 are allowed"),
        ] {
            let told = judge_reply(&person(), reply).unwrap_err();
            assert!(told.contains(words), "{reply:.40}: {told}");
            let shape = r#"{"children"?: array of {"age": integer (at least 0)}, "name": string}"#;
            assert!(told.contains(shape), "{told}");
            assert!(told.ends_with(r#"For example: {"name":"…"}"#), "{told}");
        }
    }

    #[test]
    fn a_schema_that_cannot_be_used_is_refused_with_its_place() {
        let deep = (0..40).fold(json!({}), |inner, _| json!({"items": {"not": inner}}));
        for (schema, words) in [
            (
                json!({"type": "objet"}),
                "schema is not valid: `/type`: \"objet\" is not a type of JSON; write one of `string`, `number`, \
                 `integer`, `boolean`, `object`, `array` and `null`, or a list of them",
            ),
            (
                json!({"properties": {"type": {"type": ["objet", "null"]}}}),
                "`/properties/type/type`: [\"objet\",\"null\"] is not a type of JSON",
            ),
            (json!({"properties": {"type": 5}}), "`/properties/type`: value is not of types"),
            (json!({"properties": {"a": {"minLength": -1}}}), "`/properties/a/minLength`"),
            (json!({"$ref": "https://example.com/a"}), "`https://example.com/a`, which is not"),
            (json!({"items": {"$ref": "#"}}), "refers to `#` in a circle"),
            (json!({"x": "y".repeat(RESPONSE_SCHEMA_BYTES)}), "longer than 65536 bytes"),
            (deep, "more than 64 deep"),
            (json!(3), "schema is not valid"),
        ] {
            let schema = ResponseSchema::new(None, &schema);
            let fault = check_response(&schema).unwrap_err().to_string();
            assert!(fault.contains(words), "{words}: {fault}");
            assert!(judge_reply(&schema, "{}").unwrap_err().starts_with("No reply can be judged"));
        }
        for schema in [json!(true), json!({}), json!({"type": "string"})] {
            check_response(&ResponseSchema::new(None, &schema)).unwrap();
        }
        check_response(&ResponseSchema::any_object()).unwrap();
    }

    #[test]
    fn a_schema_that_no_reply_can_meet_is_refused() {
        for (schema, words) in [
            (json!(false), "it is `false`"),
            (json!({"enum": []}), "`enum` of it is empty; list at least one value"),
            (json!({"allOf": [{}, {"enum": []}]}), "`enum` of /allOf/1 is empty"),
            (json!({"anyOf": [false, {"oneOf": [false]}]}), "/anyOf/0 is `false`"),
        ] {
            let schema = ResponseSchema::new(None, &schema);
            let fault = check_response(&schema).unwrap_err().to_string();
            assert!(fault.starts_with("schema cannot be met by any reply: "), "{fault}");
            assert!(fault.contains(words), "{words}: {fault}");
        }
        for schema in [
            json!({"enum": [null]}),
            json!({"anyOf": [false, {"type": "string"}]}),
            json!({"properties": {"never": false}}),
        ] {
            check_response(&ResponseSchema::new(None, &schema)).unwrap();
        }
    }

    proptest! {
        #[test]
        fn any_reply_fits_or_is_told_why(reply in "[{}\\[\\]:,\"` a0\\n]{0,24}") {
            match judge_reply(&ResponseSchema::any_object(), &reply) {
                Ok(text) => {
                    prop_assert!(reply.contains(text));
                    let value: Value = serde_json::from_str(text).unwrap();
                    prop_assert!(value.is_object());
                }
                Err(told) => prop_assert!(!told.is_empty() && told.len() < 4_000),
            }
        }
    }
}
