//! A recorded reply in the parts in which clients saw it: what its model thought, and what it said.

use clawnode_proto::block::Block;

use super::{send_error::SendError, sessions::Sessions};
use crate::session::turn::state::{Step, StepEnd};

/// A part of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) enum RecordedPart {
    Thought(String),
    Said(String),
}

// === impl Sessions ===

impl Sessions {
    /// The parts of a step's reply, in the order of its model. A reply that was refused has none.
    pub(in crate::session) async fn parts(
        &self,
        step: &Step,
    ) -> Result<Vec<RecordedPart>, SendError> {
        let mut parts = Vec::new();
        if step.refused.is_some() {
            return Ok(parts);
        }
        let said = match step.shown() {
            Some(said) => self.text(said).await?,
            None => String::new(),
        };
        let mut rest = said.as_str();
        if let Some(StepEnd::Done { blocks: Some(blocks), .. }) = &step.end {
            for block in &blocks.list {
                match block {
                    Block::Text { bytes } => {
                        let length = usize::try_from(*bytes).unwrap_or(usize::MAX);
                        let (part, after) = rest.split_at_checked(length).unwrap_or((rest, ""));
                        parts.push(RecordedPart::Said(part.to_owned()));
                        rest = after;
                    }
                    Block::Thinking { text, .. } => {
                        parts.push(RecordedPart::Thought(self.text(text).await?));
                    }
                    Block::ToolUse {} | Block::RedactedThinking { .. } | Block::Opaque { .. } => {}
                }
            }
        }
        parts.push(RecordedPart::Said(rest.to_owned()));
        let is_empty = |part: &RecordedPart| match part {
            RecordedPart::Thought(text) | RecordedPart::Said(text) => text.is_empty(),
        };
        parts.retain(|part| !is_empty(part));
        Ok(parts)
    }
}
