//! Which model an agent's calls ask first.

use clawnode_proto::{
    llm::ModelRef,
    model_route::{InputKind, ModelRoute},
    money::MicroUsd,
};
use serde::{Deserialize, Serialize};

use super::usd;

/// Rows of one agent: each call is compared with them.
const ROUTES: usize = 32;

/// `[[agents.NAME.routes]]`: a model for calls whose prompt fits all that is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteOptions {
    /// `PROVIDER/MODEL`.
    pub model: ModelRef,
    /// Prompts of at least so many tokens; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_prompt_tokens: Option<u64>,
    /// Prompts of at most so many tokens; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_prompt_tokens: Option<u64>,
    /// Prompts with at least one of these attached (`image`, `document`, `audio`), or without anything
    /// (`text`); any if absent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input: Vec<InputKind>,
    /// Calls that cost at most so much if they ask this model, in USD as text; any if absent. The price of the
    /// model, its prompt and its longest reply count.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "usd")]
    pub max_usd: Option<MicroUsd>,
}

impl From<RouteOptions> for ModelRoute {
    fn from(options: RouteOptions) -> Self {
        let RouteOptions { model, min_prompt_tokens, max_prompt_tokens, input, max_usd } = options;
        Self { model, min_prompt_tokens, max_prompt_tokens, input, max_usd }
    }
}

/// What is wrong with an agent's routes, and what to do.
pub(super) fn fault(routes: &[RouteOptions]) -> Option<(String, &'static str)> {
    if routes.len() > ROUTES {
        let what = format!("{} rows, at most {ROUTES}", routes.len());
        return Some((what, "combine some: the first row that fits decides"));
    }
    (1..).zip(routes).find_map(|(number, row)| {
        let (min, max) = (row.min_prompt_tokens, row.max_prompt_tokens);
        if ModelRoute::from(row.clone()).is_unconditional() {
            let what = format!("row {number} fits every call, so rows after it never decide");
            return Some((
                what,
                "write `min_prompt_tokens`, `max_prompt_tokens`, `input` or `max_usd`, or set the agent's `model`",
            ));
        }
        if min.zip(max).is_some_and(|(min, max)| min > max) {
            let what = format!("row {number} fits no call: `min_prompt_tokens` is the larger one");
            return Some((what, "exchange the two numbers"));
        }
        None
    })
}
