//! What a model was shown, as the API shows it.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    context::ContextSettings,
    id::{Attempt, CallId, ParseIdError, TurnId},
    llm::{Message, ModelRef},
    money::MicroUsd,
    tool::ToolSpec,
};

/// Parameters of `sessions.context`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct SessionsContext {
    /// `agent:channel:account:peer`, or `ent_…`.
    pub session: String,
    /// The model call: `TURN` or `TURN.STEP`. Default: the last call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<ContextPlace>,
}

/// A model call of a session, `TURN.STEP`; `TURN` alone is its last call. A turn is named by its number in the session, from
/// 1, or by its id, and a step by its number in the turn, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(example = "12.1"))]
#[serde(try_from = "String", into = "String")]
pub struct ContextPlace {
    /// By its number or its id.
    pub turn: TurnPlace,
    /// The step; the last one if absent.
    pub step: Option<u32>,
}

/// How a turn is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum TurnPlace {
    /// By its number in its session, from 1.
    Number(u64),
    /// By its id.
    Id(TurnId),
}

/// Answer of `sessions.context`: what a model was shown by one call, part by part, as its journal gives it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextView {
    /// The turn whose model call this is.
    pub turn: TurnId,
    /// The number of the turn in its session, from 1.
    pub number: u64,
    /// The number of the call in its turn, from 1.
    pub step: u32,
    /// The call that is explained; `at` of the request chose it.
    pub call: CallId,
    /// The last attempt at the call.
    pub attempt: Attempt,
    /// The model that this call asked, as `PROVIDER/MODEL`.
    pub model: ModelRef,
    /// How many tokens the model reads.
    pub window_tokens: u32,
    /// The rules of the request. Absent: the newest turns that fit into the model's window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<ContextSettings>,
    /// The tokens of the request, estimated from its text.
    pub tokens: u64,
    /// The tokens of the request, as the provider counted them. Absent if it did not, or not yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<u64>,
    /// What the call cost with its earlier attempts, in micro-dollars, by the prices in the journal. An attempt whose usage is
    /// unknown costs all that it had reserved. Absent if no limit held an attempt, because then the journal has no price, or if
    /// the attempt has no end yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    /// Of `tokens`, those of the beginning that the request has in common with that of the call before: what a provider's
    /// cache can serve.
    pub repeated: u64,
    /// Whether the request is byte for byte the one that the journal has the digest of.
    pub verified: bool,
    /// The parts, in the order in which the model reads them.
    pub parts: Vec<ContextPart>,
    /// What the request leaves out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<ContextGap>,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextPart {
    /// Which part.
    pub kind: ContextPartKind,
    /// The turn that the part shows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// The number of that turn in its session, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// The tokens of the part, estimated from its text.
    pub tokens: u64,
    /// Whether the call before began with it, too.
    pub repeated: bool,
    /// Why it is there.
    pub why: String,
    /// The text of a system prompt, or of a schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// With their descriptions and schemas, in a part of kind `tools`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// As the model was sent them, oldest first, in a part that shows a conversation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<Message>,
    /// The model calls of the turn that entries of the work ledger take the place of.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stubs: Vec<ContextStub>,
}

/// Model calls of a turn that the model is shown as entries of the work ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextStub {
    /// The numbers of the first and the last of these calls in their turn, from 1.
    pub calls: (u32, u32),
    /// The number of the entry that closed them.
    pub entry: u64,
}

/// What a part of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ContextPartKind {
    /// The system prompt.
    System,
    /// What the model may call, with descriptions and schemas.
    Tools,
    /// What the reply has to fit.
    ResponseSchema,
    /// What the session began with.
    Seed,
    /// A summary of older turns.
    Summary,
    /// A turn that was over.
    Turn,
    /// What was recalled for the running turn.
    Recalled,
    /// The running turn.
    Running,
    /// What a hook added.
    Hook,
    /// A part of a newer build.
    #[serde(other)]
    Unknown,
}

/// What a request leaves out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextGap {
    /// What it is, for people.
    pub what: String,
    /// The numbers of the first and the last turn, if turns are left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turns: Option<(u64, u64)>,
    /// The rule that left it out, in a sentence for people.
    pub why: String,
}

// === impl TurnPlace ===

impl fmt::Display for TurnPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Id(id) => write!(f, "{id}"),
        }
    }
}

impl FromStr for TurnPlace {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let number = text.parse().ok().filter(|number| *number > 0).map(Self::Number);
        number.or_else(|| text.parse().ok().map(Self::Id)).ok_or_else(|| {
            ParseIdError::new(text, "a turn's number in its session, from 1, or its id `turn_…`")
        })
    }
}

// === impl ContextPlace ===

impl fmt::Display for ContextPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.turn)?;
        self.step.map_or(Ok(()), |step| write!(f, ".{step}"))
    }
}

impl FromStr for ContextPlace {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let wrong = || {
            let expected = "`TURN` or `TURN.STEP`, such as `12`, `12.1` or `turn_….1`";
            ParseIdError::new(text, expected)
        };
        let (turn, step) = match text.split_once('.') {
            Some((turn, step)) => (turn, Some(step)),
            None => (text, None),
        };
        let turn = turn.parse().map_err(|_error| wrong())?;
        let step = step.map(|step| step.parse().ok().filter(|step| *step > 0).ok_or_else(wrong));
        Ok(Self { turn, step: step.transpose()? })
    }
}

impl TryFrom<String> for ContextPlace {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

impl From<ContextPlace> for String {
    fn from(place: ContextPlace) -> Self {
        place.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_by_the_number_or_the_id_of_its_turn() {
        let id = TurnId::from_u128(7).to_string();
        for text in ["12", "12.3", &id, &format!("{id}.2")] {
            let place: ContextPlace = text.parse().unwrap();
            assert_eq!(place.to_string(), text);
        }
        assert_eq!("3.2".parse::<ContextPlace>().unwrap().step, Some(2));
        for text in ["", "0", "1.0", "1.", ".1", "-1", "1.2.3", "last", "call_1"] {
            let refused = text.parse::<ContextPlace>().unwrap_err().to_string();
            assert!(refused.contains("TURN.STEP"), "{text}: {refused}");
        }
    }
}
