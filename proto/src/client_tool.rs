//! Tools that a client runs: it offers them with a message, the model asks for them, and the turn waits
//! for the results that the client brings.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    id::{CallId, ToolName, TurnId},
    llm::{Sampling, Text},
    media::Media,
    timestamp::Timestamp,
    tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec},
};

/// A tool that a client offers with a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientTool {
    /// What the model calls it.
    pub name: ToolName,
    /// What it does, for the model.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The JSON Schema of its arguments (an object), as JSON text.
    pub input_schema: String,
}

/// The results of tools that a client ran. The turn that waits for them continues.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientResults {
    /// The turn that waits for them.
    pub turn: TurnId,
    /// The results. One for a call that does not wait for it is ignored.
    pub results: Vec<ClientResult>,
    /// Text that follows the agent's system prompt from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<String>,
    /// The sampling settings from here on.
    #[serde(default)]
    pub sampling: Sampling,
    /// The tools that the client offers from here on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ClientTool>,
    /// Pairs that the client gives what follows, to find them again. No model sees them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, String>,
}

/// The result of a tool call that a client ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientResult {
    /// The id that the client got with the request to run the tool.
    pub call: CallId,
    /// What the tool answered.
    pub content: Text,
    /// The tool has failed; `content` says how.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// Pictures and documents that the tool answered with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
}

/// Tool calls that a client is asked to run. The turn waits for the results of all of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientCalls {
    /// In the order in which the model made them.
    pub calls: Vec<ClientCall>,
    /// When the turn ends without them, in milliseconds since 1970.
    pub expires: Timestamp,
}

/// A tool call that a client is asked to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ClientCall {
    /// The call.
    pub id: CallId,
    /// The tool's name.
    pub name: String,
    /// Its arguments, whole: a JSON object that fits the tool's schema.
    pub arguments: String,
}

// === impl ClientResult ===

impl ClientResult {
    /// The result of a tool that did what it was asked to do.
    pub fn done(call: CallId, content: impl Into<Text>) -> Self {
        Self { call, content: content.into(), is_error: false, media: Vec::new() }
    }

    /// The same as the results of agents' tools are recorded.
    pub fn outcome(&self) -> ToolOutcome {
        let (content, media) = (self.content.clone(), self.media.clone());
        let outcome = if self.is_error {
            ToolOutcome::failed(ToolFailure::Failed, content)
        } else {
            ToolOutcome::done(content)
        };
        ToolOutcome { media, ..outcome }
    }
}

// === impl ClientTool ===

impl ClientTool {
    /// The same as the tools of agents are described. Nothing here runs it.
    pub fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.name.clone(),
            description: self.description.clone(),
            input_schema: self.input_schema.clone(),
            class: EffectClass::Safe,
            risk: Risk::ReadOnly,
            capability: None,
            timeout_ms: 1,
            pin: None,
            time: None,
        }
    }

    /// Bytes of its description and schema.
    pub fn bytes(&self) -> usize {
        self.description.len() + self.input_schema.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{id::Digest, media::MediaType};

    #[test]
    fn a_result_keeps_its_pictures_whether_its_tool_has_failed_or_not() {
        let picture = Media {
            media_type: MediaType::Png,
            blob: Digest::ZERO,
            bytes: 1,
            name: Some("p.png".to_owned()),
            at: None,
        };
        let plain = ClientResult::done(CallId::from_u128(1), "seen");
        assert!(serde_json::to_value(&plain).unwrap().get("media").is_none(), "as before");
        for is_error in [false, true] {
            let media = vec![picture.clone()];
            let result = ClientResult { is_error, media, ..plain.clone() };
            let json = serde_json::to_value(&result).unwrap();
            assert_eq!(serde_json::from_value::<ClientResult>(json).unwrap(), result);
            let outcome = result.outcome();
            assert_eq!((outcome.media, outcome.failure.is_some()), (result.media, is_error));
        }
    }

    #[test]
    fn a_result_says_whether_its_tool_has_failed() {
        let done = ClientResult::done(CallId::from_u128(1), "seen");
        let json = serde_json::to_value(&done).unwrap();
        assert!(json.get("is_error").is_none(), "as before there was one: {json}");
        assert_eq!(serde_json::from_value::<ClientResult>(json).unwrap(), done);
        assert_eq!(done.outcome(), ToolOutcome::done("seen"));
        let failed = ClientResult { is_error: true, ..done };
        assert_eq!(failed.outcome(), ToolOutcome::failed(ToolFailure::Failed, "seen"));
    }
}
