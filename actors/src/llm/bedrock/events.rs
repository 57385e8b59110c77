//! The events of a stream, and the reply in one piece, as far as they are read.

use clawnode_proto::llm::Usage;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::llm::token_counts::{CacheWrites, TokenCount, reported, with_cached};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockStart {
    pub(super) content_block_index: u32,
    pub(super) start: Option<StartedBlock>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StartedBlock {
    /// Only tool calls have to be begun; others begin with their first piece.
    pub(super) tool_use: Option<StartedTool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct StartedTool {
    #[serde(default)]
    pub(super) tool_use_id: String,
    #[serde(default)]
    pub(super) name: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseDelta {
    pub(super) content_block_index: u32,
    pub(super) delta: BlockPiece,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockPiece {
    pub(super) text: Option<String>,
    pub(super) tool_use: Option<ToolPiece>,
    pub(super) reasoning_content: Option<ReasoningPiece>,
}

#[derive(Deserialize)]
pub(super) struct ToolPiece {
    #[serde(default)]
    pub(super) input: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ReasoningPiece {
    pub(super) text: String,
    pub(super) signature: String,
    /// In base64.
    pub(super) redacted_content: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockStop {
    pub(super) content_block_index: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MessageStop {
    pub(super) stop_reason: String,
}

#[derive(Deserialize)]
pub(super) struct Metadata {
    pub(super) usage: Option<BedrockCounts>,
}

#[derive(Deserialize)]
pub(super) struct ExceptionBody {
    #[serde(default, alias = "Message")]
    pub(super) message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseReply {
    pub(super) output: ReplyOutput,
    pub(super) stop_reason: String,
    pub(super) usage: Option<BedrockCounts>,
}

#[derive(Deserialize)]
pub(super) struct ReplyOutput {
    pub(super) message: ReplyMessage,
}

#[derive(Deserialize)]
pub(super) struct ReplyMessage {
    pub(super) content: Vec<ConverseBlock>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConverseBlock {
    pub(super) text: Option<String>,
    pub(super) tool_use: Option<WholeTool>,
    pub(super) reasoning_content: Option<WholeReasoning>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WholeTool {
    #[serde(default)]
    pub(super) tool_use_id: String,
    #[serde(default)]
    pub(super) name: String,
    /// As the model wrote it.
    pub(super) input: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WholeReasoning {
    pub(super) reasoning_text: Option<ReasoningPiece>,
    #[serde(default)]
    pub(super) redacted_content: String,
}

/// Token counts.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BedrockCounts {
    #[serde(default)]
    input_tokens: TokenCount,
    #[serde(default)]
    output_tokens: TokenCount,
    #[serde(default)]
    cache_read_input_tokens: TokenCount,
    #[serde(default)]
    cache_write_input_tokens: TokenCount,
    /// The parts of the tokens that were written.
    #[serde(default)]
    cache_details: Option<CacheWrites>,
}

// === impl BedrockCounts ===

impl BedrockCounts {
    pub(super) fn usage(&self) -> Usage {
        let reported = reported(self.input_tokens, self.output_tokens);
        let (read, written) = (self.cache_read_input_tokens, self.cache_write_input_tokens);
        with_cached(reported, read, written, self.cache_details)
    }
}
