//! Policy: which tool calls of an agent run, which wait for a person, and which never run.
//!
//! An approval is for one [`Action`]: exactly what the call would do, byte for byte. A person approves
//! the digest of the action, and the node that runs the call compares the digest again.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    codec,
    id::{CallId, Capability, Digest, SessionKey, TurnId},
    name::ToolName,
    timestamp::Timestamp,
    tool::{EffectClass, Risk},
};

/// What happens to a tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The call runs.
    Allow,
    /// A person decides.
    Ask,
    /// The call never runs.
    Deny,
}

/// One rule. It applies to a call that fits all its fields. A pattern matches the whole text, with
/// `*` for any characters and `?` for one. Paths and URLs are compared in every spelling: `deny` and
/// `ask` apply if any spelling of an argument fits, `allow` only if every spelling does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Rule {
    /// A pattern of the tool's name. Default: any tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The risk of the tool. Default: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk: Option<Risk>,
    /// Patterns of arguments, by name (`a.b` is the field `b` of `a`). The call has each of them with a
    /// value that fits: a string as it is, anything else as JSON.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub arguments: BTreeMap<String, String>,
    /// Whether the call has exactly these arguments, character by character and of the same types. A
    /// pattern `*` still matches any value.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exact: bool,
    /// What happens to the call.
    pub verdict: Verdict,
    /// The reason, for people and for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What an agent may do. The first rule that fits a call decides. Without one, tools that only read
/// run, and a person decides about all other calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Policy {
    /// The rules. The first one that fits decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// How long a call waits for a person, in milliseconds. Then it is denied.
    pub approval_wait_ms: u64,
    /// Commands that only read: `run_command` with one of them has the risk `READ_ONLY`. A last `*`
    /// means any further words that are not options.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<String>,
}

/// Exactly what a tool call would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Action {
    /// The session, and so the agent.
    pub session: SessionKey,
    /// The turn whose model, or plan, asked for the call.
    pub turn: TurnId,
    /// The tool call.
    pub call: CallId,
    /// What would run, by the name that rules have.
    pub tool: ToolName,
    /// The digest of the image, command, environment or description behind the tool.
    pub pin: Option<Digest>,
    /// The capability that a node needs to run it.
    pub capability: Option<Capability>,
    /// Whether the call may run twice.
    pub class: EffectClass,
    /// How long the call may take, in milliseconds.
    pub timeout_ms: u32,
    /// The arguments, byte by byte, in their canonical form unless an older build recorded them.
    pub arguments: String,
}

/// What a person decides about an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The call runs once.
    Approve,
    /// The call never runs.
    Deny,
}

/// A decision, and who made it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Decided {
    /// To approve or to deny.
    pub decision: Decision,
    /// Who decided, as the gateway knows them.
    pub by: String,
    /// The reason. The model gets it with a denial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A tool call that waits for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Approval {
    /// What the call would do.
    pub action: Action,
    /// The digest of the action. Approve it to approve exactly this.
    pub digest: Digest,
    /// How much harm the call can do.
    pub risk: Risk,
    /// Why a person has to decide, if a rule says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What its arguments only name, in words: the text of the point that `forget` is given the id of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// When the call began to wait.
    pub asked: Timestamp,
    /// When the request expires.
    pub expires: Timestamp,
    /// The decision, once there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided: Option<Decided>,
}

impl Verdict {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl Decision {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Approve => "approve",
            Self::Deny => "deny",
        }
    }
}

impl Policy {
    /// How long a call waits for a person, unless it is configured: seven days.
    pub const WAIT_MS: u64 = 7 * 24 * 3_600 * 1_000;

    /// Whether it is the default policy.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self { rules: Vec::new(), approval_wait_ms: Self::WAIT_MS, read_only: Vec::new() }
    }
}

impl Action {
    /// The digest of all its fields, which a person approves.
    ///
    /// # Errors
    /// If it cannot be encoded; an action that was made from text always can.
    pub fn digest(&self) -> Result<Digest, codec::CodecError> {
        let mut bytes = b"clawnode action v1\0".to_vec();
        bytes.extend(codec::encode(self)?);
        Ok(Digest::of(&bytes))
    }
}

impl Approval {
    /// Its bytes.
    pub fn to_bytes(&self) -> Result<Vec<u8>, codec::CodecError> {
        codec::encode(self)
    }

    /// Reads one.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, codec::CodecError> {
        codec::decode(bytes)
    }
}
