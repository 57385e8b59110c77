//! How large the next request of a turn is at most, without making it. Pure.
//!
//! Which effects are due is decided with each input and each tick, and a whole request is a copy of a conversation. What
//! is counted here is never less than what the request has. Where that would be hard to say, nothing is said.

use clawnode_proto::{
    llm::Text,
    session::{Profile, ToolEnd},
};

use super::super::{
    state::{SessionState, Step, StepEnd, Turn},
    tools::tool_calls::ToolCall,
};
use super::token_estimate::{BYTES_PER_TOKEN, MESSAGE_TOKENS, fixed_tokens};
use crate::llm::bytes_sent_back;

/// Bytes that this program writes around a result or in its place, at most.
const AROUND_RESULT: u64 = 1_024;
/// Messages that a step is at most, beside those of its tools: what was said, the results, and what was refused.
const STEP_MESSAGES: u64 = 3;
/// Messages that a tool call is at most, if its result is words: those, and a warning.
const TOOL_MESSAGES: u64 = 2;

/// Bytes of text and messages.
#[derive(Clone, Copy, Default)]
struct RoughSize {
    bytes: u64,
    messages: u64,
}

/// Tokens that the next request of `turn` seems to have at most, if it shows these older turns and a summary of so many
/// bytes. Nothing if only the request itself can say it.
pub(in crate::session::turn) fn most_tokens<'a>(
    state: &SessionState,
    profile: &Profile,
    turn: &'a Turn,
    older: impl Iterator<Item = &'a Turn>,
) -> Option<u64> {
    let is_plain = state.seed.is_empty()
        && turn.skills.is_empty()
        && turn.recalled.is_none()
        && turn.offer.is_none()
        && turn.joining().is_empty();
    if !is_plain {
        return None;
    }
    let mut size = RoughSize::default();
    for one in older.chain([turn]) {
        size = size.plus(one.rough_size()?);
    }
    if let Some(summary) = &state.summary {
        size = size.plus(RoughSize { bytes: summary.message().content.bytes(), messages: 1 });
    }
    // Beside what the agent says, with the line between them.
    size.bytes =
        size.bytes.saturating_add(turn.system.as_ref().map_or(0, |more| more.len() as u64 + 2));
    let fixed = fixed_tokens(profile.system.bytes(), &profile.tools, turn.response_schema(profile));
    // Each of the two divisions may lose a part of a token.
    Some(fixed.saturating_add(size.tokens()).saturating_add(2))
}

// === impl RoughSize ===

impl RoughSize {
    const fn plus(self, other: Self) -> Self {
        let bytes = self.bytes.saturating_add(other.bytes);
        Self { bytes, messages: self.messages.saturating_add(other.messages) }
    }

    const fn tokens(self) -> u64 {
        let of_messages = self.messages.saturating_mul(MESSAGE_TOKENS);
        (self.bytes / BYTES_PER_TOKEN).saturating_add(of_messages)
    }
}

// === impl Turn ===

impl Turn {
    /// Its messages. Nothing if it has attachments, or the model was shown its work ledger.
    fn rough_size(&self) -> Option<RoughSize> {
        if !self.attached.is_empty() || !self.nudges.is_empty() {
            return None;
        }
        let bytes = self.said.iter().map(|(_, text)| text.bytes()).fold(0, u64::saturating_add);
        let mut size = RoughSize { bytes, messages: self.said.len() as u64 };
        for step in &self.steps {
            size = size.plus(step.rough_size()?);
        }
        Some(size)
    }
}

// === impl Step ===

impl Step {
    fn rough_size(&self) -> Option<RoughSize> {
        let beside = match &self.end {
            Some(StepEnd::Done { blocks: Some(blocks), .. }) => bytes_sent_back(blocks),
            Some(StepEnd::Done { .. } | StepEnd::Failed { .. }) | None => 0,
        };
        let said = self.text().map_or(0, Text::bytes);
        let refused = self.refused.as_ref().map_or(0, |told| told.len() as u64);
        let bytes = said.saturating_add(beside).saturating_add(refused);
        let mut size = RoughSize { bytes, messages: STEP_MESSAGES };
        for tool in &self.tools {
            size = size.plus(tool.rough_size()?);
        }
        Some(size)
    }
}

// === impl ToolCall ===

impl ToolCall {
    fn rough_size(&self) -> Option<RoughSize> {
        let told = match &self.end {
            Some(ToolEnd::Known { outcome }) if !outcome.media.is_empty() => return None,
            Some(ToolEnd::Known { outcome }) => outcome.content.bytes(),
            Some(ToolEnd::Uncertain { detail }) => detail.len() as u64,
            None => 0,
        };
        if self.entry.is_some() || self.late.is_some() {
            return None;
        }
        let asked = (self.using.name.len() + self.using.arguments.len()) as u64;
        let bytes = asked.saturating_add(told).saturating_add(AROUND_RESULT);
        Some(RoughSize { bytes, messages: TOOL_MESSAGES })
    }
}
