//! Replies that have to fit a schema: what clients ask for, and what the modelled provider says.

use clawnode_proto::{Attempt, CallId, response::ResponseSchema};

/// What a reply has to be: an object with one number in it.
const SCHEMA: &str = r#"{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}},"additionalProperties":false}"#;

/// What the reply to a message has to fit; nothing for every third one.
pub(super) fn wanted(number: usize) -> Option<ResponseSchema> {
    let schema = || ResponseSchema { name: "number".to_owned(), schema: SCHEMA.to_owned() };
    (!number.is_multiple_of(3)).then(schema)
}

/// What a model says that was asked for such a reply; every second one does not fit.
pub(super) fn reply(call: CallId, attempt: Attempt) -> String {
    // It follows from the attempt alone.
    match (call.as_u128() >> 24).wrapping_add(u128::from(attempt.0)) % 4 {
        0 => format!("answer {attempt}"),
        1 => r#"{"n":"one"}"#.to_owned(),
        _ => format!(r#"{{"n":{attempt}}}"#),
    }
}

/// Whether such a reply fits. It knows what [`reply`] says, and nothing of schemas.
pub(super) fn fits(reply: &str) -> bool {
    let number = reply.strip_prefix(r#"{"n":"#).and_then(|rest| rest.strip_suffix('}'));
    number.is_some_and(|number| number.parse::<u32>().is_ok())
}
