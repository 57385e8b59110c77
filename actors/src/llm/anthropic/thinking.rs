//! What a request on Anthropic's wire says of thinking.
//!
//! Newer models think unless the request turns that off, and show no thoughts unless the request asks for them.
//! So the request says both, and a setting means the same with every model.

use clawnode_proto::{model::ReasoningStyle, reasoning::Reasoning};
use serde::Serialize;

use crate::llm::{
    profile::{ModelProfile, ThinkingDefault},
    thinking_budget::budget_within,
};

/// How thoughts are shown: as the API sums them up.
const SHOWN: &str = "summarized";
/// The type of one that decides itself how much it thinks.
const ADAPTIVE: &str = "adaptive";
/// The type that turns thoughts off.
const DISABLED: &str = "disabled";

#[derive(Serialize)]
pub(super) struct Thinking {
    r#type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    display: Option<&'static str>,
}

// === impl Thinking ===

impl Thinking {
    /// A budget that leaves room for a reply of so many tokens, but for at most half of the model's
    /// largest output: the API refuses a budget that is not below the limit.
    pub(super) fn within(reply: u32, reasoning: Reasoning, profile: &ModelProfile) -> Self {
        let display = profile.thinks.is_hidden().then_some(SHOWN);
        if profile.reasoning == ReasoningStyle::AnthropicAdaptive {
            return Self { r#type: ADAPTIVE, budget_tokens: None, display };
        }
        let budget_tokens = Some(budget_within(reply, reasoning, profile));
        Self { r#type: "enabled", budget_tokens, display }
    }

    /// What a request says that asks for no thoughts: that a model which thinks by itself shows its thoughts, or
    /// that it does not think, because a setting turns that off or because the request forces a call.
    pub(super) fn by_default(
        wanted: Option<Reasoning>,
        is_forced: bool,
        profile: &ModelProfile,
    ) -> Option<Self> {
        if profile.reasoning != ReasoningStyle::AnthropicAdaptive || !profile.thinks.is_on() {
            return None;
        }
        let thinking = |r#type, display| Self { r#type, budget_tokens: None, display };
        match profile.thinks.off() {
            Some(off) if is_forced || wanted == Some(Reasoning::Off) => {
                Some(thinking(off, (off != DISABLED).then_some(SHOWN)))
            }
            _ => Some(thinking(ADAPTIVE, Some(SHOWN))),
        }
    }

    /// Whether thoughts may follow.
    pub(super) fn is_on(&self) -> bool {
        self.r#type != DISABLED
    }
}

/// How much effort the request asks of a model that decides itself how long to think. Where thoughts cannot be
/// turned off, the request asks for the least effort instead.
pub(super) fn effort_of(wanted: Reasoning, profile: &ModelProfile) -> Option<&'static str> {
    let least = || (profile.thinks == ThinkingDefault::Always).then_some("low");
    wanted.effort().or_else(least)
}
