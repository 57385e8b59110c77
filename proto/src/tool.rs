//! Tools: what a model may ask for, and the results.

use serde::{Deserialize, Serialize};

use crate::{
    codec::{self, CodecError},
    id::{Capability, Digest},
    json,
    media::Media,
    name::ToolName,
    text::Text,
    timeout::ToolTime,
};

/// The tool whose code may call the agent's other tools while it runs.
pub const EXECUTE_CODE: &str = "execute_code";

/// The tool that runs a command that the model wrote.
pub const RUN_COMMAND: &str = "run_command";

/// Bytes by which arguments may grow in their canonical form (4 KiB): some numbers take more room
/// there, and the arguments of a reply still have to fit into one append.
const CANONICAL_MORE: usize = 4 << 10;

/// Whether a tool call may run again when a crash interrupted it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// The call changes nothing: clawnode runs it again.
    Safe,
    /// Two runs with the same idempotency key have the effect of one: clawnode runs it again.
    Idempotent,
    /// clawnode asks a probe whether the call happened, and runs it again only if it did not.
    Check,
    /// clawnode never runs the call again by itself. It shows an unknown outcome.
    Once,
}

impl EffectClass {
    /// Whether a call may run again without a probe or a person.
    pub const fn is_repeatable(self) -> bool {
        matches!(self, Self::Safe | Self::Idempotent)
    }
}

/// How much harm a tool can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Risk {
    /// It only reads: status, tests, lists.
    ReadOnly,
    /// It makes changes that can be undone: files, builds, installs.
    Write,
    /// It makes changes that cannot be undone: deployments, deletions, systems.
    Admin,
}

impl ToolSpec {
    /// The digest of all its fields.
    ///
    /// # Errors
    /// If it cannot be encoded; a tool that was made from text always can.
    pub fn digest(&self) -> Result<Digest, CodecError> {
        codec::encode(self).map(|bytes| Digest::of(&bytes))
    }
}

impl Risk {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "READ_ONLY",
            Self::Write => "WRITE",
            Self::Admin => "ADMIN",
        }
    }
}

/// A tool as an agent has it. Journaled with the agent's configuration, because the model sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolSpec {
    /// The name that the model uses.
    pub name: ToolName,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its arguments (an object), as JSON text.
    pub input_schema: String,
    /// Whether a call may run again.
    pub class: EffectClass,
    /// How much harm it can do.
    pub risk: Risk,
    /// The capability that a node needs to run it. Absent if it runs beside the session; such a tool is
    /// always repeatable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<Capability>,
    /// The longest that one run may take, in milliseconds.
    pub timeout_ms: u32,
    /// The digest of the program behind it (image, command, environment, description), if that may
    /// differ from node to node: a node with another digest refuses the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Digest>,
    /// How long a call may take, and which setting says so. Absent: `timeout_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<ToolTime>,
}

impl ToolSpec {
    /// How long a call may take, and which setting says so.
    pub fn time(&self) -> ToolTime {
        let known = self.time.clone();
        known.unwrap_or_else(|| ToolTime::of_tool(self.name.as_str(), self.timeout_ms))
    }
}

/// A tool call as the model wrote it, before any check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolUse {
    /// The model's id for it. It is at most unique within a reply, and not always.
    pub id: String,
    /// The name of the tool, which may not exist.
    pub name: String,
    /// Its arguments, which should be a JSON object. An unambiguous object is in its canonical form.
    /// Anything else, and arguments that earlier builds recorded, are exactly as the model wrote them.
    pub arguments: String,
}

impl ToolUse {
    /// The same call with its arguments in their canonical form, so that clawnode records, shows, approves
    /// and runs the same bytes. Arguments that are no object, are ambiguous or would grow by more than
    /// 4 KiB stay as they are.
    #[must_use]
    pub fn canonical(self) -> Self {
        match json::canonical(&self.arguments) {
            Some(one) if one.len() <= self.arguments.len() + CANONICAL_MORE => {
                Self { arguments: one, ..self }
            }
            Some(_) | None => self,
        }
    }

    /// The digest of the call, to find repeats of it.
    pub fn digest(&self) -> Digest {
        // Keys in another order or other white space are the same call.
        let arguments = serde_json::from_str::<serde_json::Value>(&self.arguments)
            .map_or_else(|_broken| self.arguments.clone(), |value| value.to_string());
        Digest::of(format!("{}\0{arguments}", self.name).as_bytes())
    }
}

/// The result of a tool call, in the form that the model reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolReply {
    /// The [`ToolUse::id`] that it answers.
    pub id: String,
    /// The text for the model.
    pub content: Text,
    /// Whether it is an error.
    #[serde(default)]
    pub is_error: bool,
    /// Pictures and other content for the model.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
}

/// How a tool call failed, so that callers can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolFailure {
    /// Not run: there is no such tool, or its arguments do not fit its schema.
    Invalid,
    /// Not run: a rule, a guard or a person refused it.
    Refused,
    /// Not run: no node can.
    Unavailable,
    /// It ran and reported an error.
    Failed,
    /// It ran too long. A part of its output may be there.
    TimedOut,
    /// A person, a client or an operator stopped it.
    Cancelled,
    /// Its program broke: a crash, a trap, too much memory.
    Crashed,
}

impl ToolFailure {
    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Crashed => "crashed",
        }
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolOutcome {
    /// The output of the tool, or what is wrong.
    pub content: Text,
    /// How it failed. Absent if it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ToolFailure>,
    /// Pictures and other content that it returned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
}

impl ToolOutcome {
    /// A call that succeeded.
    pub fn done(content: impl Into<Text>) -> Self {
        Self { content: content.into(), failure: None, media: Vec::new() }
    }

    /// A call that failed.
    pub fn failed(failure: ToolFailure, why: impl Into<Text>) -> Self {
        Self { content: why.into(), failure: Some(failure), media: Vec::new() }
    }
}

/// What happens if a turn repeats the same tool call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoopGuard {
    /// From this repeat on, clawnode warns the model.
    pub warn: u32,
    /// From this repeat on, clawnode refuses the call.
    pub refuse: u32,
    /// This repeat ends the turn.
    pub end: u32,
}

impl Default for LoopGuard {
    fn default() -> Self {
        Self { warn: 3, refuse: 5, end: 30 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn using(name: &str, arguments: &str) -> ToolUse {
        ToolUse { id: "1".to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
    }

    #[test]
    fn the_same_call_is_known_by_its_meaning() {
        let one = using("a", r#"{"x":1,"y":[true]}"#).digest();
        assert_eq!(using("a", "{ \"y\": [true],\n \"x\": 1 }").digest(), one);
        for other in [
            using("b", r#"{"x":1,"y":[true]}"#),
            using("a", r#"{"x":2,"y":[true]}"#),
            using("a", r#"{"x":1,"y":[true]"#),
        ] {
            assert_ne!(other.digest(), one, "{other:?}");
        }
    }
}
