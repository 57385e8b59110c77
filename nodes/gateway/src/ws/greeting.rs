//! The first message of who showed no token in the upgrade: the token.

use serde_json::Value;

/// `{"token":"…"}`, `{"type":"auth","token":"…"}`, a JSON string, or the bare token.
pub(super) fn token_in(text: &str) -> Option<String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => match fields.get("token") {
            Some(Value::String(token)) => Some(token.clone()),
            _ => None,
        },
        Ok(Value::String(token)) => Some(token),
        Ok(_) | Err(_) => Some(text.to_owned()),
    }
}

pub(super) fn is_auth_message(text: &str) -> bool {
    match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => {
            !fields.contains_key("method") && fields.get("token").is_some_and(Value::is_string)
        }
        Ok(_) | Err(_) => false,
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_first_message_may_be_the_token_in_four_ways() {
        let bare = "s3cret-with-\"quote";
        let table = [
            (r#"{"token":"abc"}"#, Some("abc")),
            (r#"{"type":"auth","token":"abc"}"#, Some("abc")),
            (r#""abc""#, Some("abc")),
            ("abc", Some("abc")),
            ("12345", Some("12345")),
            (bare, Some(bare)),
            ("", Some("")),
            (r#"{"token":""}"#, Some("")),
            (r#"{"token":7}"#, None),
            (r#"{"id":1,"method":"ping"}"#, None),
        ];
        for (text, token) in table {
            assert_eq!(token_in(text).as_deref(), token, "{text}");
        }
    }
}
