//! `num_ctx`: how many tokens Ollama, or a server like it, is asked to make room for, which clawnode then counts
//! with as the model's window. Pure.

use serde_json::{Map, Value};

/// The field of a request, and the part of it, that ask for room.
const OPTIONS: &str = "options";
const NUM_CTX: &str = "num_ctx";

/// The window that the configuration sets: `window_tokens`, or what the server is asked for.
pub(super) fn window(window_tokens: Option<u32>, num_ctx: Option<u32>) -> Option<u32> {
    window_tokens.or(num_ctx)
}

/// Whether these fields of a request ask for room themselves.
pub(super) fn is_in(body: &Map<String, Value>) -> bool {
    let options = body.get(OPTIONS).and_then(Value::as_object);
    options.is_some_and(|extras| extras.contains_key(NUM_CTX))
}

/// The fields that ask a server for so many tokens.
pub(super) fn asks_for(num_ctx: u32) -> Map<String, Value> {
    let options = Map::from_iter([(NUM_CTX.to_owned(), Value::from(num_ctx))]);
    Map::from_iter([(OPTIONS.to_owned(), Value::Object(options))])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Value;
    use crate::llm::profile::{BodyError, ModelExtras};

    #[test]
    fn a_server_is_asked_for_room_once() {
        let mut extras = ModelExtras { num_ctx: Some(8), ..ModelExtras::default() };
        let sent = extras.added_to(br#"{"options":{"seed":1}}"#).unwrap().unwrap();
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        assert_eq!(sent, json!({"options": {"seed": 1, "num_ctx": 8}}));
        extras.body = serde_json::from_value(json!({"options": {"num_ctx": 9}})).unwrap();
        assert_eq!(extras.check(), Err(BodyError::NumCtx));
    }
}
