//! The name of a model.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::id::ParseIdError;

/// A model and the provider that serves it, `PROVIDER/MODEL`.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema), schemars(example = "openai/gpt-4o"))]
#[serde(try_from = "String", into = "String")]
pub struct ModelRef {
    /// The provider's name in the configuration.
    pub provider: String,
    /// The model's name at the provider; may hold further slashes.
    pub model: String,
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

impl fmt::Debug for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// What should have been there, with the provider of well-known names.
fn expected(text: &str) -> &'static str {
    let is_like = |names: &[&str]| names.iter().any(|name| text.starts_with(name));
    if is_like(&["gpt-", "o1", "o3", "o4", "chatgpt-"]) {
        "a model `PROVIDER/MODEL`: write `openai/` before it"
    } else if is_like(&["claude"]) {
        "a model `PROVIDER/MODEL`: write `anthropic/` before it"
    } else {
        "a model `PROVIDER/MODEL`, such as `openai/gpt-4o` or `ollama/llama3.2`"
    }
}

impl FromStr for ModelRef {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        match text.split_once('/') {
            Some((provider, model)) if !provider.is_empty() && !model.is_empty() => {
                Ok(Self { provider: provider.to_owned(), model: model.to_owned() })
            }
            _ => Err(ParseIdError::new(text, expected(text))),
        }
    }
}

impl TryFrom<String> for ModelRef {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

impl From<ModelRef> for String {
    fn from(model: ModelRef) -> Self {
        model.to_string()
    }
}
