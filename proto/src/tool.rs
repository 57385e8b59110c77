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

/// The tool that runs a command of the model's.
pub const RUN_COMMAND: &str = "run_command";

/// Bytes by which arguments may grow when they are written in their one form (4 KiB): some numbers
/// take more room, and those of a reply still have to fit into one append.
const CANONICAL_MORE: usize = 4 << 10;

/// What running a tool twice does to the world; decides what a crash in the middle of it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// It changes nothing: run again freely.
    Safe,
    /// Twice is like once, by the idempotency key that each run is given: run again freely.
    Idempotent,
    /// A probe tells whether it happened: it is asked before the tool is run again.
    Check,
    /// Twice is wrong: never run again by itself. An unknown outcome is shown.
    Once,
}

impl EffectClass {
    /// Whether it may be run again without asking anybody.
    pub const fn is_repeatable(self) -> bool {
        matches!(self, Self::Safe | Self::Idempotent)
    }
}

/// How much harm a tool can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Risk {
    /// It looks: status, tests, lists.
    ReadOnly,
    /// It changes what can be changed back: files, builds, installs.
    Write,
    /// It changes what cannot: deployments, deletions, systems.
    Admin,
}

impl ToolSpec {
    /// The digest of all that is said of it: differs if any of it does.
    ///
    /// # Errors
    /// What cannot be written has none; none such can be made from text.
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
    /// What the model calls it.
    pub name: ToolName,
    /// What it does, for the model.
    pub description: String,
    /// The JSON Schema of its arguments (an object), as JSON text.
    pub input_schema: String,
    /// What running it twice does.
    pub class: EffectClass,
    /// How much harm it can do.
    pub risk: Risk,
    /// What a node needs to run it; absent for one that runs beside the session, which is
    /// repeatable by definition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capability: Option<Capability>,
    /// The longest that one run may take, in milliseconds.
    pub timeout_ms: u32,
    /// The digest of what is behind it where it runs (image, command, environment, description),
    /// if that may differ from node to node: a run elsewhere than behind the same is refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<Digest>,
    /// How long a call may take, and who says so, where that is not simply `timeout_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<ToolTime>,
}

impl ToolSpec {
    /// How long a call may take, and who says so.
    pub fn time(&self) -> ToolTime {
        let known = self.time.clone();
        known.unwrap_or_else(|| ToolTime::of_tool(self.name.as_str(), self.timeout_ms))
    }
}

/// A tool call as the model made it; nothing about it is checked yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolUse {
    /// The model's id for it; only unique within a reply, and not always that.
    pub id: String,
    /// Which tool it names, whether there is one or not.
    pub name: String,
    /// Its arguments: meant to be a JSON object. One that means one thing is kept in its canonical
    /// form, anything else (and what earlier builds recorded) exactly as it was written.
    pub arguments: String,
}

impl ToolUse {
    /// The same with its arguments in their one form, so that what is recorded, shown, approved and
    /// run are the same bytes. What is no object, means several things or would grow by more than
    /// 4 KiB stays as it is.
    #[must_use]
    pub fn canonical(self) -> Self {
        match json::canonical(&self.arguments) {
            Some(one) if one.len() <= self.arguments.len() + CANONICAL_MORE => {
                Self { arguments: one, ..self }
            }
            Some(_) | None => self,
        }
    }

    /// The digest of the call: the same call again has the same.
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
    /// What the model reads.
    pub content: Text,
    /// Whether it is an error.
    #[serde(default)]
    pub is_error: bool,
    /// What it is shown besides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
}

/// How a tool call failed, so that callers can act on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ToolFailure {
    /// Not run: there is no such tool, or its arguments are not what it takes.
    Invalid,
    /// Not run: a rule, a guard or a person refused it.
    Refused,
    /// Not run: no node can.
    Unavailable,
    /// It ran and reported an error.
    Failed,
    /// It ran longer than it may; there may be a part of its output.
    TimedOut,
    /// It was stopped on purpose.
    Cancelled,
    /// What ran it broke: a crash, a trap, too much memory.
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
    /// What it said, or what is wrong.
    pub content: Text,
    /// How it failed; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<ToolFailure>,
    /// Pictures and other content that it gave.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<Media>,
}

impl ToolOutcome {
    /// It did what was asked.
    pub fn done(content: impl Into<Text>) -> Self {
        Self { content: content.into(), failure: None, media: Vec::new() }
    }

    /// It did not.
    pub fn failed(failure: ToolFailure, why: impl Into<Text>) -> Self {
        Self { content: why.into(), failure: Some(failure), media: Vec::new() }
    }
}

/// Repeats of one call within a turn, and what is done about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoopGuard {
    /// From this one on the model is warned.
    pub warn: u32,
    /// From this one on it is refused.
    pub refuse: u32,
    /// This one ends the turn.
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
