//! What a model says beside text and tool calls: its thoughts, and what its provider wants back.
//!
//! A stored or shown reply has its text and its tool calls. If the model said more, [`Blocks`] has that,
//! and the order of everything, without the text and the arguments. A reply without blocks is its text,
//! then its tool calls.
//!
//! LLM-2: what a provider needs back is sent back exactly, or not at all. LLM-3: what only the
//! provider can read is sent to the model that wrote it, and to no other.

use serde::{Deserialize, Serialize};

use crate::{model_ref::ModelRef, text::Text};

/// The blocks of one reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Blocks {
    /// The model that was asked. Nothing in `list` but text and tool calls is sent to another one.
    pub model: ModelRef,
    /// The blocks, in the order in which the model wrote them.
    pub list: Vec<Block>,
}

/// A part of a reply, in its place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Block {
    /// The next part of the reply's text.
    Text {
        /// Its size in bytes.
        bytes: u64,
    },
    /// The next tool call of the reply.
    ToolUse {},
    /// What the model thought.
    Thinking {
        /// The thought.
        text: Text,
        /// The provider's signature. Empty if the provider wants the thought back without one.
        /// Absent if the thought is not sent back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<Text>,
    },
    /// A thought that only the provider can read.
    RedactedThinking {
        /// The provider's bytes, as text.
        data: Text,
    },
    /// Something else that the provider wants back as it is, with the text or tool call that follows.
    Opaque {
        /// The name of its field on the provider's wire.
        field: String,
        /// The provider's JSON.
        data: Text,
    },
}

// === impl Blocks ===

impl Blocks {
    /// All texts in them that can be in the blob store.
    pub fn texts(&self) -> impl Iterator<Item = &Text> {
        self.list.iter().flat_map(Block::texts).flatten()
    }

    /// The same, to replace them.
    pub fn texts_mut(&mut self) -> impl Iterator<Item = &mut Text> {
        self.list.iter_mut().flat_map(Block::texts_mut).flatten()
    }

    /// Bytes of everything beside text and tool calls.
    pub fn bytes(&self) -> u64 {
        self.texts().map(Text::bytes).sum()
    }
}

// === impl Block ===

impl Block {
    fn texts(&self) -> [Option<&Text>; 2] {
        match self {
            Self::Text { .. } | Self::ToolUse {} => [None, None],
            Self::Thinking { text, signature } => [Some(text), signature.as_ref()],
            Self::RedactedThinking { data } | Self::Opaque { data, .. } => [Some(data), None],
        }
    }

    fn texts_mut(&mut self) -> [Option<&mut Text>; 2] {
        match self {
            Self::Text { .. } | Self::ToolUse {} => [None, None],
            Self::Thinking { text, signature } => [Some(text), signature.as_mut()],
            Self::RedactedThinking { data } | Self::Opaque { data, .. } => [Some(data), None],
        }
    }

    /// Whether a later turn may need it. A thought without a signature is of use only while the turn
    /// that thought it runs.
    pub fn outlives_its_turn(&self) -> bool {
        match self {
            Self::Thinking { signature, .. } => {
                signature.as_ref().is_some_and(|signature| signature.bytes() > 0)
            }
            Self::Text { .. }
            | Self::ToolUse {}
            | Self::RedactedThinking { .. }
            | Self::Opaque { .. } => true,
        }
    }

    /// Whether it is a part of the reply's text, or a tool call.
    pub const fn is_said(&self) -> bool {
        matches!(self, Self::Text { .. } | Self::ToolUse {})
    }
}
