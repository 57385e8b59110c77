//! Whether a call's arguments fit its tool.

use clawnode_proto::{json, limits::TOOL_ARGUMENTS_BYTES, tool::ToolSpec};
use serde_json::{Map, Value, error::Category};

use super::{check_tool::Usable, example::example, faults, shape::shape, weigh::count};
use crate::append::append;

/// Parts of a schema times values of the arguments: beyond it an answer would take too long.
pub(super) const WORK: u64 = 20_000_000;
/// Characters of a field's name that an error repeats.
const NAME_SHOWN: usize = 80;
/// What the arguments as a whole are called.
const WHOLE: &str = "the arguments";

/// The arguments as an object that fits the tool's schema; otherwise what is wrong, for the model.
///
/// No text at all is an object without fields: that is how models call a tool that needs nothing.
pub fn judge(spec: &ToolSpec, arguments: &str) -> Result<Map<String, Value>, String> {
    let usable = Usable::of_arguments(&spec.input_schema)
        .map_err(|error| format!("`{}` cannot be called: {error}", spec.name))?;
    let arguments = arguments.trim();
    let value = if arguments.is_empty() {
        Value::Object(Map::new())
    } else {
        parse(arguments).map_err(|fault| help(spec, &usable, &fault))?
    };
    if usable.weight.saturating_mul(count(&value)) > WORK {
        let fault = "The arguments have too many parts.";
        return Err(help(spec, &usable, fault));
    }
    let found = faults::of(&usable, &value, WHOLE);
    match value {
        Value::Object(fields) if found.is_empty() => Ok(fields),
        _ if arguments.is_empty() => {
            let fault = format!("The call had no arguments.\n{found}");
            Err(help(spec, &usable, &fault))
        }
        _ => Err(help(spec, &usable, &found)),
    }
}

/// Whether arguments have the fields that the tool requires, and none that it does not take; otherwise what is wrong.
/// Their values are not judged.
pub fn judge_names(spec: &ToolSpec, arguments: &str) -> Result<(), String> {
    let given = json::read_object(arguments).unwrap_or_default();
    let schema = json::read_object(&spec.input_schema).unwrap_or_default();
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let mut required = required.filter_map(Value::as_str);
    if let Some(missing) = required.find(|name| !given.contains_key(*name)) {
        return Err(format!("`{missing}` is missing"));
    }
    let is_closed = schema.get("additionalProperties") == Some(&Value::Bool(false))
        && !schema.contains_key("patternProperties");
    let known = schema.get("properties").and_then(Value::as_object).filter(|_| is_closed);
    let Some(known) = known else { return Ok(()) };
    match given.keys().find(|name| !known.contains_key(name.as_str())) {
        Some(other) => {
            let other: String = other.chars().take(NAME_SHOWN).collect();
            let known: Vec<&str> = known.keys().map(String::as_str).collect();
            Err(format!("it has no `{other}`; it has {}", known.join(", ")))
        }
        None => Ok(()),
    }
}

/// The text as a JSON object.
fn parse(text: &str) -> Result<Value, String> {
    if text.len() > TOOL_ARGUMENTS_BYTES {
        return Err(format!(
            "The arguments are {} bytes long; at most {TOOL_ARGUMENTS_BYTES} are allowed, and more \
             is cut. Do it in several smaller calls.",
            text.len()
        ));
    }
    match json::read(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(Value::String(inner)) if serde_json::from_str::<Map<String, Value>>(&inner).is_ok() => {
            Err("The arguments are a string with JSON in it. Give the object itself, without \
                 quotes around it."
                .to_owned())
        }
        Ok(other) => {
            Err(format!("The arguments are {}, but must be a JSON object.", faults::kind(&other)))
        }
        Err(error) if error.classify() == Category::Data => {
            Err(format!("The arguments mean several things: {error}. Give each field once."))
        }
        Err(error) if error.classify() == Category::Eof => Err(format!(
            "The arguments are cut off: the JSON ends at line {}, column {}, before it is \
             complete. If there was too much to write, do it in several smaller calls.",
            error.line(),
            error.column()
        )),
        Err(error) => Err(format!("The arguments are not valid JSON: {error}.")),
    }
}

/// What is wrong, and how to do it right.
fn help(spec: &ToolSpec, usable: &Usable, fault: &str) -> String {
    let mut text = format!(
        "{fault}\nThe arguments of `{}` (`?` marks what may be left out): {}",
        spec.name,
        shape(&usable.schema)
    );
    if let Some(example) =
        example(&usable.schema).filter(|example| usable.validator.is_valid(example))
    {
        append(&mut text, format_args!("\nFor example: {example}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use clawnode_proto::tool::{EffectClass, Risk};
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::schema::{SchemaError, check};

    #[test]
    fn names_are_judged_without_values() {
        let mut schema = json!({
            "type": "object",
            "properties": {"at": {"type": "integer"}, "text": {"type": "string"}},
            "required": ["at"],
            "additionalProperties": false,
        });
        let closed = spec(&schema);
        judge_names(&closed, r#"{"at":"not yet a number"}"#).unwrap();
        let missing = judge_names(&closed, r#"{"text":""}"#).unwrap_err();
        assert_eq!(missing, "`at` is missing");
        let unknown = judge_names(&closed, r#"{"at":1,"note":""}"#).unwrap_err();
        assert_eq!(unknown, "it has no `note`; it has at, text");
        schema["additionalProperties"] = json!(true);
        judge_names(&spec(&schema), r#"{"at":1,"note":""}"#).unwrap();
    }

    fn spec(schema: &(impl ToString + ?Sized)) -> ToolSpec {
        ToolSpec {
            name: "demo".parse().unwrap(),
            description: "Shows.".to_owned(),
            input_schema: schema.to_string(),
            class: EffectClass::Safe,
            risk: Risk::ReadOnly,
            capability: None,
            timeout_ms: 1_000,
            pin: None,
            time: None,
        }
    }

    fn files() -> ToolSpec {
        spec(&json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "minLength": 1},
                "mode": {"enum": ["text", "bytes"]},
                "limit": {"type": "integer", "minimum": 1, "maximum": 100},
                "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 1},
            },
            "required": ["path", "parts"],
            "additionalProperties": false,
            "$defs": {"part": {
                "type": "object",
                "properties": {"at": {"type": "integer"}, "~odd/": {"type": "boolean"}},
                "required": ["at"],
            }},
        }))
    }

    #[test]
    fn arguments_that_fit_are_what_they_were() {
        let fields = judge(&files(), r#" {"path":"a","parts":[{"at":1}]} "#).unwrap();
        assert_eq!(Value::Object(fields), json!({"path": "a", "parts": [{"at": 1}]}));
        let nothing = spec(r#"{"type":"object"}"#);
        for empty in ["", " \n", "{}"] {
            assert!(judge(&nothing, empty).unwrap().is_empty(), "{empty:?}");
        }
    }

    #[test]
    fn each_fault_has_its_own_words_and_the_way_out() {
        let nested = "[".repeat(300);
        let long = format!(r#"{{"path":"{}"}}"#, "a".repeat(TOOL_ARGUMENTS_BYTES));
        for (arguments, words) in [
            ("", "The call had no arguments.\n- `path` is required, but missing"),
            ("{}", "- `parts` is required, but missing"),
            (r#"{"path":"a","parts":[{"at""#, "cut off: the JSON ends at line 1, column 26"),
            (r#"{"path":"a""#, "are cut off"),
            (r#"{"path":"a","parts":[{"at":1}],"path":"b"}"#, "two fields are called `path`"),
            (r#"{"path":"a","parts":[{"at":1,"at":2}]}"#, "two fields are called `at`"),
            (r"{'path':1}", "not valid JSON: key must be a string"),
            ("path=a", "not valid JSON"),
            (r#"{"path":"a"} {"#, "not valid JSON: trailing characters"),
            ("[1]", "are an array, but must be a JSON object"),
            ("null", "are null, but must be"),
            ("12", "are a number, but must be"),
            (r#""{\"path\":\"a\"}""#, "a string with JSON in it"),
            (r#"{"path":1e999}"#, "not valid JSON: number out of range"),
            (&format!(r#"{{"path":{nested}"#), "not valid JSON: recursion limit exceeded"),
            (&long, "at most 131072 are allowed"),
            (r#"{"path":1,"parts":[{"at":1}]}"#, "`path` must be of type string, but is a number"),
            (r#"{"path":"a","parts":[{"at":"1"}]}"#, "`parts[0].at` must be of type integer"),
            (r#"{"path":"a","parts":[{"at":1,"~odd/":1}]}"#, "`parts[0].~odd/` must be of type"),
            (r#"{"path":"a","parts":[{}]}"#, "`parts[0]`: `at` is required"),
            (
                r#"{"path":"a","parts":[{"at":1}],"mode":"x"}"#,
                r#"`mode` must be one of `"text"`, `"bytes"`"#,
            ),
            (r#"{"path":"a","parts":[{"at":1}],"pth":1}"#, "there is no field `pth`"),
            (
                r#"{"path":"a","parts":[{"at":1}],"limit":101}"#,
                "`limit`: the value is greater than the maximum of 100",
            ),
        ] {
            let told = judge(&files(), arguments).unwrap_err();
            assert!(told.contains(words), "{arguments:.60}: {told}");
            let shape = r#"{"limit"?: integer (1 to 100), "mode"?: "text" | "bytes", "parts": array of {"at": integer, "~odd/"?: boolean}, "path": string}"#;
            assert!(told.contains("\nThe arguments of `demo` (") && told.contains(shape), "{told}");
            // Models read it after `The call of … was not run:`, which says that already.
            assert!(!told.contains("not run"), "{told}");
            let example = r#"For example: {"parts":[{"at":1}],"path":"…"}"#;
            assert!(told.ends_with(example), "{told}");
            assert!(told.len() < 4_000);
        }
    }

    #[test]
    fn an_example_that_does_not_fit_is_not_shown() {
        let pattern = json!({"type": "object", "properties": {"id": {"type": "string",
            "pattern": "^[a-f0-9]{8}$"}}, "required": ["id"]});
        let told = judge(&spec(&pattern), "{}").unwrap_err();
        assert!(!told.contains("For example"), "{told}");
        let mut helped = pattern;
        helped["properties"]["id"]["examples"] = json!(["00ff00ff"]);
        let told = judge(&spec(&helped), "{}").unwrap_err();
        assert!(told.ends_with(r#"For example: {"id":"00ff00ff"}"#), "{told}");
    }

    /// `depth` definitions, each of which refers to the next twice.
    fn doubling(depth: usize) -> Value {
        let mut definitions = Map::new();
        for at in 0..depth {
            let next = json!({"$ref": format!("#/$defs/d{}", at + 1)});
            definitions.insert(format!("d{at}"), json!({"allOf": [next, next]}));
        }
        definitions.insert(format!("d{depth}"), json!({"type": "object"}));
        json!({"type": "object", "$ref": "#/$defs/d0", "$defs": definitions})
    }

    #[test]
    fn hostile_schemas_are_refused_before_they_are_used() {
        let mut deep = json!({"type": "string"});
        for _ in 0..40 {
            deep = json!({"type": "object", "properties": {"a": deep}});
        }
        let wide = json!({"type": "object", "enum": vec![1; 20_000]});
        let patterns: Map<String, Value> =
            (0..300).map(|at| (format!("^{at}\\w{{200}}$"), json!({}))).collect();
        let object = |more: Value| {
            let mut schema = json!({"type": "object"});
            schema.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            schema
        };
        for (schema, why) in [
            (json!(true), "not of `\"type\": \"object\"`"),
            (json!({"type": "string"}), "not of `\"type\""),
            (deep, "more than 64 deep"),
            (wide, "more than 10000 parts"),
            (doubling(20), "more than"),
            (object(json!({"patternProperties": patterns})), "more than 10000 parts"),
            (object(json!({"$ref": "#"})), "`#` in a circle"),
            (object(json!({"properties": {"a": {"$ref": "#"}}})), "`#` in a circle"),
            (
                object(
                    json!({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$ref": "#/$defs/b"},
                "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
                ),
                "in a circle",
            ),
            (object(json!({"$ref": "http://127.0.0.1/a"})), "not a pointer to a part of it"),
            (object(json!({"$ref": "file:///etc/passwd"})), "not a pointer"),
            (object(json!({"$ref": "#/$defs/none"})), "not a pointer"),
            (object(json!({"$ref": "#/$defs/a%20b", "$defs": {"a b": {}}})), "not a pointer"),
            (object(json!({"properties": {"a": {"$id": "http://a/", "$ref": "b"}}})), "`$id`"),
            (object(json!({"$dynamicRef": "#a"})), "`$dynamicRef`"),
            (object(json!({"properties": {"a": {"pattern": "(a"}}})), "is not valid"),
            (object(json!({"properties": {"a": {"pattern": "(?=a)b"}}})), "is not valid"),
            (
                object(json!({"properties": {"a": {"pattern": "(\\w{1000}){1000}"}}})),
                "is not valid",
            ),
            (object(json!({"properties": {"a": {"minLength": -1}}})), "is not valid"),
            (object(json!({"$schema": "http://127.0.0.1/schema"})), "is not valid"),
        ] {
            let spec = spec(&schema);
            let error = check(&spec).unwrap_err().to_string();
            assert!(error.contains(why), "{schema:.200}: {error}");
            assert!(error.len() < 600);
            let told = judge(&spec, "{}").unwrap_err();
            assert!(told.contains("cannot be called: "), "{told}");
        }
        for text in ["", "{", "[".repeat(300).as_str(), &"x".repeat(70_000)] {
            assert!(check(&spec(text)).is_err());
        }
    }

    #[test]
    fn a_spec_says_how_it_may_be_run() {
        let fine = spec(r#"{"type":"object"}"#);
        check(&fine).unwrap();
        for class in [EffectClass::Once, EffectClass::Check] {
            let beside = ToolSpec { class, ..fine.clone() };
            assert_eq!(check(&beside), Err(SchemaError::NotRepeatable));
            let capability = Some("shell".parse().unwrap());
            check(&ToolSpec { capability, ..beside }).unwrap();
        }
        assert_eq!(check(&ToolSpec { timeout_ms: 0, ..fine.clone() }), Err(SchemaError::NoTime));
        let description = "x".repeat(17 << 10);
        assert!(check(&ToolSpec { description, ..fine }).is_err());
    }

    #[test]
    fn a_slow_pattern_is_not_slow() {
        let schema = json!({"type": "object", "properties": {
            "a": {"type": "string", "pattern": "^(a+)+$"}, "b": {"type": "string", "pattern": "(.*)*x"}}});
        let text = format!(r#"{{"a":"{}!","b":"{}"}}"#, "a".repeat(60_000), "y".repeat(60_000));
        let began = std::time::Instant::now();
        let told = judge(&spec(&schema), &text).unwrap_err();
        assert!(told.contains("`a`: the value does not match"), "{told}");
        assert!(told.len() < 2_000);
        assert!(began.elapsed() < std::time::Duration::from_secs(10));
    }

    #[test]
    fn too_much_work_is_not_begun() {
        let many: Vec<Value> = (0..400).map(|at| json!({"minimum": -at})).collect();
        let schema = json!({"type": "object", "properties": {"a": {"items": {"allOf": many}}}});
        check(&spec(&schema)).unwrap();
        let text = format!(r#"{{"a":[{}1]}}"#, "1,".repeat(60_000));
        assert!(judge(&spec(&schema), &text).unwrap_err().contains("too many parts"));
        let text = format!(r#"{{"a":[{}1]}}"#, "1,".repeat(1_000));
        judge(&spec(&schema), &text).unwrap();
    }

    /// Keywords of schemas, and two fields.
    const KEYWORDS: &str = "type properties required items $ref $defs allOf anyOf oneOf not if then \
        else enum const pattern minimum maximum multipleOf minLength maxLength minItems uniqueItems \
        contains additionalProperties patternProperties dependentSchemas propertyNames prefixItems \
        unevaluatedProperties unevaluatedItems default examples format contentEncoding $schema $id \
        a b";
    /// Texts that mean something to one of them.
    const TEXTS: &str = "object string array integer # #/$defs/a #/properties/b ^a+$ ( \\p{L} base64 \
        date-time http://json-schema.org/draft-07/schema# \
        https://json-schema.org/draft/2020-12/schema";

    fn one_of(words: &'static str) -> impl Strategy<Value = String> + Clone {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        prop::sample::select(words)
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            one_of(TEXTS).prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(one_of(KEYWORDS), inner, 0..6)
                    .prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    /// A text that looks like a reference is taken for one, wherever it is.
    fn without_references() -> impl Strategy<Value = Value> {
        any_json().prop_map(|value| value.to_string().replace('$', "_").parse().unwrap())
    }

    /// Schemas that can be used, with bounds that make little sense.
    fn any_schema() -> impl Strategy<Value = Value> {
        let bound =
            || prop_oneof![any::<f64>().prop_map(Value::from), (-3..3).prop_map(Value::from)];
        let leaf = prop_oneof![
            (bound(), bound())
                .prop_map(|(a, b)| json!({"type": "number", "minimum": a, "exclusiveMaximum": b})),
            prop_oneof![Just(1e-300), Just(1e300), Just(0.1), Just(3.0)]
                .prop_map(|multiple| json!({"type": ["integer", "null"], "multipleOf": multiple})),
            (0_u64..5, any::<u64>())
                .prop_map(|(a, b)| json!({"type": "string", "minLength": a, "maxLength": b})),
            prop::sample::select(vec!["^a+$", "\\p{L}{3}", "(a|b)*c", ""])
                .prop_map(|pattern| json!({"pattern": pattern, "contentEncoding": "base64"})),
            without_references().prop_map(|value| json!({"const": value})),
            without_references().prop_map(|value| json!({"enum": [value, 1, "a"]})),
            prop_oneof![Just(json!({"$ref": "#/$defs/a"})), Just(json!(true)), Just(json!(false))],
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            let several = || prop::collection::vec(inner.clone(), 1..3);
            prop_oneof![
                (inner.clone(), inner.clone(), any::<bool>()).prop_map(|(a, b, more)| json!({
                    "type": "object", "properties": {"a": a, "b": b}, "required": ["b"],
                    "additionalProperties": more})),
                (inner.clone(), 0..9).prop_map(|(items, least)| json!({
                    "type": "array", "items": items, "minItems": least, "uniqueItems": true})),
                (several(), several()).prop_map(|(a, b)| json!({"anyOf": a, "oneOf": b})),
                several().prop_map(|all| json!({"allOf": all, "unevaluatedProperties": false})),
                (inner.clone(), inner.clone())
                    .prop_map(|(a, b)| json!({"if": a, "then": b, "not": false})),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| json!({
                    "patternProperties": {"^[ab]": a}, "propertyNames": b, "contains": true})),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn no_schema_and_no_arguments_panic(mut schema in any_json(), value in any_json(), text in ".{0,40}") {
            if let Some(fields) = schema.as_object_mut() {
                fields.insert("type".to_owned(), Value::from("object"));
            }
            for arguments in [value.to_string(), text, String::new()] {
                if let Err(told) = judge(&spec(&schema), &arguments) {
                    prop_assert!(told.len() < 8_000);
                }
            }
        }

        #[test]
        fn usable_schemas_judge_whatever_comes(field in any_schema(), value in any_json()) {
            let spec = spec(&json!({"type": "object", "properties": {"a": field},
                "$defs": {"a": {"type": "string"}}}));
            prop_assert_eq!(check(&spec), Ok(()));
            for arguments in [json!({"a": value}), json!({"a": {"a": value, "b": [value, value]}})] {
                if let Err(told) = judge(&spec, &arguments.to_string()) {
                    prop_assert!(told.contains("The arguments of `demo` (") && told.len() < 8_000, "{}", told);
                }
            }
        }
    }
}
