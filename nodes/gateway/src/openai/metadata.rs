//! The pairs that a client keeps with a response or a chat completion.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::super::error::OpenAiError;

/// Pairs at most, as OpenAI has it.
const PAIRS: usize = 16;
/// Characters of a key and of a value at most, as OpenAI has it.
const KEY_CHARS: usize = 64;
const VALUE_CHARS: usize = 512;

/// The pairs of a request.
pub(super) fn read(fields: &Map<String, Value>) -> Result<BTreeMap<String, String>, OpenAiError> {
    let wrong = |what: String| OpenAiError::invalid("metadata", format!("`metadata` {what}"));
    let pairs = match fields.get("metadata") {
        None => return Ok(BTreeMap::new()),
        Some(Value::Object(pairs)) => pairs,
        Some(_) => return Err(wrong("is not an object".to_owned())),
    };
    if pairs.len() > PAIRS {
        return Err(wrong(format!("has {} pairs, the limit is {PAIRS}", pairs.len())));
    }
    let read = |(key, value): (&String, &Value)| {
        let is_short = key.chars().count() <= KEY_CHARS;
        let value = value.as_str().filter(|text| is_short && text.chars().count() <= VALUE_CHARS);
        let what = || {
            let most = format!("up to {KEY_CHARS} and {VALUE_CHARS} characters");
            wrong(format!("has a pair that is not a key and a text of {most}"))
        };
        Ok((key.clone(), value.ok_or_else(what)?.to_owned()))
    };
    pairs.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_of(metadata: Value) -> Result<BTreeMap<String, String>, OpenAiError> {
        let mut fields = Map::new();
        fields.insert("metadata".to_owned(), metadata);
        read(&fields)
    }

    #[test]
    fn pairs_are_texts_of_a_bounded_number_and_length() {
        let many = |count: usize| {
            let pairs = (0..count).map(|nth| (format!("k{nth}"), json!("v")));
            Value::Object(pairs.collect())
        };
        assert_eq!(read(&Map::new()).unwrap(), BTreeMap::new());
        assert_eq!(read_of(many(PAIRS)).unwrap().len(), PAIRS);
        assert_eq!(
            read_of(json!({"ä".repeat(KEY_CHARS): "ä".repeat(VALUE_CHARS)})).unwrap().len(),
            1
        );
        for bad in [
            many(PAIRS + 1),
            json!([]),
            json!({"k": 7}),
            json!({"k".repeat(KEY_CHARS + 1): "v"}),
            json!({"k": "v".repeat(VALUE_CHARS + 1)}),
        ] {
            let error = read_of(bad.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("metadata"), "{bad}");
        }
    }
}
