//! Up to where the provider keeps what a request begins with, so that the next request reads it for less.
//!
//! The API takes four markers. One is at the end of the tools, one at the end of the system prompt, and two are in
//! the conversation: at its end, and where the request before ended. The API looks back from a marker over 20
//! blocks only, and a round of tools may have more.

use serde::Serialize;

/// Ends of requests that are marked: of this one, and of the one before.
pub(super) const MARKED_ENDS: usize = 2;

/// A marker. What it keeps lasts five minutes from its last use, which is the shortest time and the cheapest.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum CacheControl {
    /// For the shortest time.
    Ephemeral,
}
