//! Errors on Gemini's wire.

use serde_json::{Value, json};

/// The word for a status.
pub(super) const fn word(status: u16) -> &'static str {
    match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        _ => "INTERNAL",
    }
}

/// An error in the wire's shape.
pub(super) fn error(word_of_it: &str, message: &str) -> Value {
    let code =
        [400, 401, 403, 404, 429, 503, 504].into_iter().find(|status| word(*status) == word_of_it);
    let code = code.unwrap_or(500);
    json!({"error": {"code": code, "message": message, "status": word_of_it}})
}
