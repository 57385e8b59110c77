//! Reads thoughts, their signatures and other items of a reply back from the journal, exactly as the provider sent them, so
//! that they can be sent back to it (LLM-2).

use clawnode_proto::{
    block::{Block, Blocks},
    llm::ModelFailure,
};

use super::session_runner::SessionRunner;
use crate::llm::{Item, PlainBlock};

impl SessionRunner {
    /// The parts of a reply with their texts in place.
    pub(super) async fn blocks(&self, blocks: &Blocks) -> Result<Vec<PlainBlock>, ModelFailure> {
        let mut plain = Vec::with_capacity(blocks.list.len());
        for block in &blocks.list {
            plain.push(match block {
                Block::Text { bytes } => {
                    PlainBlock::Text(usize::try_from(*bytes).unwrap_or(usize::MAX))
                }
                Block::ToolUse {} => PlainBlock::ToolUse,
                Block::Thinking { text, signature } => PlainBlock::Item(Item::Thinking {
                    text: self.text(text).await?,
                    signature: match signature {
                        Some(signature) => Some(self.text(signature).await?),
                        None => None,
                    },
                }),
                Block::RedactedThinking { data } => {
                    PlainBlock::Item(Item::Redacted { data: self.text(data).await? })
                }
                Block::Opaque { field, data } => {
                    let (field, data) = (field.clone(), self.text(data).await?);
                    PlainBlock::Item(Item::Opaque { field, data })
                }
            });
        }
        Ok(plain)
    }
}
