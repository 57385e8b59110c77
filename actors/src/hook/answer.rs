//! What a hook may write: one JSON object.

use clawnode_proto::{
    hook::{HookFault, MessagePatch, ModelPatch},
    limits::HOOK_REASON_CHARS,
    llm::Sampling,
};
use serde::Deserialize;
use serde_json::Value;

/// A hook's decision.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum HookAnswer {
    /// It goes on.
    Allow,
    /// It does not.
    Block { reason: String },
    /// It goes on, changed.
    Modify { patch: Value },
}

#[derive(Deserialize)]
#[serde(tag = "decision", rename_all = "snake_case", deny_unknown_fields)]
enum Written {
    Allow {},
    Block {
        #[serde(default)]
        reason: String,
    },
    Modify {
        patch: Value,
    },
}

/// What a hook changes of a model request, as it writes it.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelChange {
    system: Option<String>,
    messages: Vec<MessageChange>,
    append: Option<String>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    max_tokens: Option<u32>,
    stop: Vec<String>,
}

/// The new text of one message.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageChange {
    index: u32,
    content: String,
}

// === impl HookAnswer ===

impl HookAnswer {
    /// What these bytes say.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, HookFault> {
        // What is wrong with it is not told: it may repeat what the hook was shown.
        let written = serde_json::from_slice(bytes).map_err(|_told_by_name| HookFault::Garbage)?;
        Ok(match written {
            Written::Allow {} => Self::Allow,
            Written::Block { reason } => Self::Block { reason: shown(&reason) },
            Written::Modify { patch } => Self::Modify { patch },
        })
    }
}

/// A reason as people and models may be shown it.
fn shown(reason: &str) -> String {
    let clean = reason.trim().chars().map(|c| if c.is_control() { ' ' } else { c });
    let reason: String = clean.take(HOOK_REASON_CHARS).collect();
    if reason.is_empty() { "it gave no reason".to_owned() } else { reason }
}

// === impl ModelChange ===

impl From<ModelChange> for ModelPatch {
    fn from(change: ModelChange) -> Self {
        let message = |message: MessageChange| MessagePatch {
            index: message.index,
            content: message.content,
        };
        Self {
            system: change.system,
            messages: change.messages.into_iter().map(message).collect(),
            append: change.append,
            sampling: Sampling {
                temperature: change.temperature,
                top_p: change.top_p,
                max_tokens: change.max_tokens,
                stop: change.stop,
                ..Sampling::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_one_object_with_nothing_unknown_in_it() {
        assert_eq!(HookAnswer::parse(b" {\"decision\":\"allow\"}\n"), Ok(HookAnswer::Allow));
        let block = HookAnswer::parse(br#"{"decision":"block","reason":"no\u001b[2J"}"#);
        assert_eq!(block, Ok(HookAnswer::Block { reason: "no [2J".to_owned() }));
        let silent = HookAnswer::parse(br#"{"decision":"block"}"#);
        assert_eq!(silent, Ok(HookAnswer::Block { reason: "it gave no reason".to_owned() }));
        for garbage in [
            &b""[..],
            b"ok",
            b"{}",
            b"{\"decision\":\"maybe\"}",
            b"{\"decision\":\"allow\",\"patch\":{}}",
            b"{\"decision\":\"modify\"}",
            b"{\"decision\":\"allow\"}{\"decision\":\"allow\"}",
            b"\xff\xfe",
        ] {
            assert_eq!(HookAnswer::parse(garbage), Err(HookFault::Garbage), "{garbage:?}");
        }
    }
}
