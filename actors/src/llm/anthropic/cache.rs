//! Up to where the provider keeps what a request begins with, so that the next request reads it for less.
//!
//! The API takes four markers. One is at the end of the tools, one at the end of the system prompt, and two are in
//! the conversation: at its end, and where the request before ended. The API looks back from a marker over 20
//! blocks only, and a round of tools may have more.

use clawnode_proto::llm::Role;
use serde::Serialize;

use super::request::{AnthropicMessage, Content, RequestBlock};

/// Ends of requests that are marked: of this one, and of the one before.
const MARKED_ENDS: usize = 2;

/// A marker. What it keeps lasts five minutes from its last use, which is the shortest time and the cheapest.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum CacheControl {
    /// For the shortest time.
    Ephemeral,
}

/// Marks the system prompt and the conversation. Texts become blocks, also those without a marker, so that a
/// message looks the same in each request.
pub(super) fn mark(system: &mut Content<'_>, messages: &mut [AnthropicMessage<'_>]) {
    system.split();
    system.mark();
    messages.iter_mut().for_each(|message| message.content.split());
    // Each request ends with the user, whose messages have no thoughts: those take no marker.
    let ends = messages.iter_mut().rev().filter(|message| message.role == Role::User);
    ends.take(MARKED_ENDS).for_each(|message| message.content.mark());
}

// === impl Content ===

impl Content<'_> {
    fn split(&mut self) {
        if let Self::Text(text) = *self {
            let blocks = (!text.is_empty()).then(|| RequestBlock::text(text));
            *self = Self::Blocks(blocks.into_iter().collect());
        }
    }

    /// Marks its last block.
    fn mark(&mut self) {
        let Self::Blocks(blocks) = self else { return };
        match blocks.last_mut() {
            Some(
                RequestBlock::ToolResult { cache_control, .. }
                | RequestBlock::Text { cache_control, .. }
                | RequestBlock::Image { cache_control, .. }
                | RequestBlock::Document { cache_control, .. },
            ) => *cache_control = Some(CacheControl::Ephemeral),
            Some(
                RequestBlock::Thinking { .. }
                | RequestBlock::RedactedThinking { .. }
                | RequestBlock::ToolUse { .. },
            )
            | None => {}
        }
    }
}
