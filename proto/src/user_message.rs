//! A user's message to a session.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    client_tool::ClientTool,
    lane::Lane,
    llm::{Message, ModelRef, Sampling, Text},
    media::Media,
    response::ResponseSchema,
};

/// A user's message and how it wants to be answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct UserMessage {
    /// The text of the message.
    pub content: Text,
    /// What is attached to it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attachments: Vec<Media>,
    /// An earlier conversation that the session begins with. Only its first turn may have one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<Message>,
    /// Text that follows the agent's system prompt, for this turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The sampling settings of this turn.
    #[serde(default)]
    pub sampling: Sampling,
    /// The model of this turn, instead of the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// Tools that the client runs, beside the agent's. One with the name of an agent's tool is not offered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ClientTool>,
    /// What the reply of this turn has to fit, instead of the agent's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<ResponseSchema>,
    /// What later turns of the session keep of this message: its model, or how much that thinks. Without a
    /// value of its own, the message gives it back to the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<KeptChoice>,
    /// Pairs that its client gives the turn, to find them again. No model sees them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
    /// Which lane the model calls of its turn are in, instead of the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
}

/// What a message may choose for its whole session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum KeptChoice {
    /// Which one answers.
    Model,
    /// How much the model thinks.
    Reasoning,
}

impl UserMessage {
    /// A message with nothing special about it.
    pub fn text(content: impl Into<Text>) -> Self {
        Self {
            content: content.into(),
            attachments: Vec::new(),
            history: Vec::new(),
            system: None,
            sampling: Sampling::default(),
            model: None,
            tools: Vec::new(),
            response_schema: None,
            keep: Vec::new(),
            metadata: BTreeMap::new(),
            lane: None,
        }
    }
}
