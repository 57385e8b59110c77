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

/// A system prompt, in place or in the blob store.
///
/// One that is in place is a plain string. Builds that know no others cannot read a configuration with another one,
/// and leave its session to a newer build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum SystemPrompt {
    /// In place. A configuration journals at most [`crate::limits::SYSTEM_PROMPT_INLINE`] so, unless the blob store
    /// refuses the text.
    Inline(String),
    /// In the blob store.
    Blob(TextBlob),
}

/// Where the blob store has a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TextBlob {
    /// The digest of the blob.
    pub digest: Digest,
    /// The size of the text in bytes.
    pub bytes: u64,
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

impl Default for SystemPrompt {
    fn default() -> Self {
        Self::Inline(String::new())
    }
}

impl From<String> for SystemPrompt {
    fn from(text: String) -> Self {
        Self::Inline(text)
    }
}

impl From<&str> for SystemPrompt {
    fn from(text: &str) -> Self {
        Self::Inline(text.to_owned())
    }
}

impl SystemPrompt {
    /// Its size in bytes, wherever it is.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Inline(text) => text.len() as u64,
            Self::Blob(blob) => blob.bytes,
        }
    }

    /// The text if it is in place, else nothing.
    pub fn inline(&self) -> &str {
        match self {
            Self::Inline(text) => text,
            Self::Blob(_) => "",
        }
    }

    /// The blob that has the text, if it is not in place.
    pub fn blob(&self) -> Option<TextBlob> {
        match self {
            Self::Inline(_) => None,
            Self::Blob(blob) => Some(*blob),
        }
    }
}

impl From<TextBlob> for Text {
    fn from(blob: TextBlob) -> Self {
        let TextBlob { digest, bytes } = blob;
        Self::Blob { digest, bytes }
    }
}
