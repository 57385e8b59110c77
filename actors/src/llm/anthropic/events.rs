//! The events of Anthropic's wire, as far as they are read.

use clawnode_proto::llm::Usage;
use serde::Deserialize;
use serde_json::Value;

use crate::llm::token_counts::{CacheWrites, TokenCount, reported, with_cached};

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum AnthropicEvent {
    MessageStart {
        message: MessageStart,
    },
    ContentBlockStart {
        index: u32,
        content_block: ReplyBlock,
    },
    ContentBlockDelta {
        index: u32,
        delta: BlockDelta,
    },
    ContentBlockStop {
        index: u32,
    },
    MessageDelta {
        delta: MessageEnding,
        usage: Option<AnthropicCounts>,
    },
    MessageStop,
    Ping,
    Error {
        error: AnthropicErrorBody,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
pub(super) struct MessageStart {
    pub(super) model: String,
    pub(super) usage: Option<AnthropicCounts>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum ReplyBlock {
    Text {
        #[serde(default)]
        text: String,
    },
    Thinking {
        thinking: Option<String>,
        signature: Option<String>,
    },
    RedactedThinking {
        data: Option<String>,
    },
    ToolUse {
        #[serde(default)]
        id: String,
        #[serde(default)]
        name: String,
        #[serde(default)]
        input: Value,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
pub(super) enum BlockDelta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "thinking_delta")]
    Thinking {
        #[serde(default)]
        thinking: String,
    },
    #[serde(rename = "signature_delta")]
    Signature {
        #[serde(default)]
        signature: String,
    },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
pub(super) struct MessageEnding {
    pub(super) stop_reason: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct AnthropicErrorBody {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) message: String,
}

#[derive(Deserialize)]
pub(super) struct WholeReply {
    pub(super) model: String,
    pub(super) content: Vec<ReplyBlock>,
    pub(super) stop_reason: Option<String>,
    pub(super) usage: Option<AnthropicCounts>,
}

/// Token counts; each report holds the ones it knows, cumulative.
#[derive(Clone, Copy, Default, Deserialize)]
pub(super) struct AnthropicCounts {
    #[serde(default, rename = "input_tokens")]
    pub(super) input: TokenCount,
    #[serde(default, rename = "output_tokens")]
    pub(super) output: TokenCount,
    #[serde(default, rename = "cache_creation_input_tokens")]
    pub(super) cache_write: TokenCount,
    #[serde(default, rename = "cache_read_input_tokens")]
    pub(super) cache_read: TokenCount,
    /// The parts of `cache_write`.
    #[serde(default, rename = "cache_creation")]
    pub(super) cache_writes: Option<CacheWrites>,
}

// === impl AnthropicCounts ===

impl AnthropicCounts {
    pub(super) fn usage(&self) -> Usage {
        let reported = reported(self.input, self.output);
        with_cached(reported, self.cache_read, self.cache_write, self.cache_writes)
    }
}
