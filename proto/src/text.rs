//! Text of a conversation, wherever it is stored.

use serde::{Deserialize, Serialize};

use crate::id::Digest;

/// Text, in place or in the blob store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Text {
    /// In place; at most [`crate::limits::INLINE_BYTES`].
    Inline {
        /// UTF-8, as it was written.
        text: String,
    },
    /// In the blob store.
    Blob {
        /// Its digest.
        digest: Digest,
        /// Its size in bytes.
        bytes: u64,
    },
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Self::Inline { text }
    }
}

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Self::Inline { text: text.to_owned() }
    }
}

impl Text {
    /// Its size in bytes, wherever it is.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Inline { text } => text.len() as u64,
            Self::Blob { bytes, .. } => *bytes,
        }
    }

    /// The text, if it is in place.
    pub fn inline(&self) -> Option<&str> {
        match self {
            Self::Inline { text } => Some(text),
            Self::Blob { .. } => None,
        }
    }
}
