//! Structured replies: the schema that a turn's reply has to fit.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Characters of a schema's name, as `OpenAI` has it.
const NAME_CHARS: usize = 64;
/// The name of a schema that has none.
const UNNAMED: &str = "reply";
/// The schema of any JSON object.
const ANY_OBJECT: &str = r#"{"type":"object"}"#;

/// The reply of a turn is JSON that fits this schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ResponseSchema {
    /// A name for what it describes, which models see: letters, digits, `_` and `-`.
    pub name: String,
    /// The JSON Schema, as JSON.
    pub schema: String,
}

impl ResponseSchema {
    /// This schema, named by `name`, else by its title.
    pub fn new(name: Option<&str>, schema: &Value) -> Self {
        let title = schema.get("title").and_then(Value::as_str);
        let name = name.or(title).unwrap_or_default();
        let safe = |c: char| if c.is_ascii_alphanumeric() || "_-".contains(c) { c } else { '_' };
        let name: String = name.chars().take(NAME_CHARS).map(safe).collect();
        let name = if name.is_empty() { UNNAMED.to_owned() } else { name };
        Self { name, schema: schema.to_string() }
    }

    /// Any JSON object.
    pub fn any_object() -> Self {
        Self { name: UNNAMED.to_owned(), schema: ANY_OBJECT.to_owned() }
    }

    /// Whether any JSON object fits.
    pub fn is_any_object(&self) -> bool {
        self.schema == ANY_OBJECT
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_has_a_name_that_providers_take() {
        let long = "x".repeat(80);
        for (name, title, expected) in [
            (Some("a-b_1"), None, "a-b_1"),
            (Some("a"), Some("b"), "a"),
            (None, Some("Ünïque person"), "_n_que_person"),
            (None, None, UNNAMED),
            (Some(""), None, UNNAMED),
            (Some(long.as_str()), None, long.get(..NAME_CHARS).unwrap()),
        ] {
            let schema = title.map_or(json!({}), |title: &str| json!({ "title": title }));
            assert_eq!(ResponseSchema::new(name, &schema).name, expected);
        }
        assert!(ResponseSchema::new(None, &json!({"type": "object"})).is_any_object());
        assert!(!ResponseSchema::new(None, &json!({"type": "array"})).is_any_object());
    }
}
