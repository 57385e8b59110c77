//! What a request on Anthropic's wire says of thinking.
//!
//! Newer models think unless they are told not to, and show no thoughts unless they are asked to: both is said
//! in the request, so that a setting means the same with every model.

use clawnode_proto::{model::ReasoningStyle, reasoning::Reasoning};
use serde::Serialize;

use crate::llm::{
    profile::{ModelProfile, ThinkingDefault},
    signed::budget_within,
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

    /// What is said where no thoughts are asked for: that a model which thinks by itself shows its thoughts, or
    /// that it does not think because it is told so, or because it is told to make a call.
    pub(super) fn by_default(
        wanted: Option<Reasoning>,
        is_forced: bool,
        profile: &ModelProfile,
    ) -> Option<Self> {
        if profile.reasoning != ReasoningStyle::AnthropicAdaptive || !profile.thinks.is_on() {
            return None;
        }
        let of = |r#type, display| Self { r#type, budget_tokens: None, display };
        match profile.thinks.off() {
            Some(off) if is_forced || wanted == Some(Reasoning::Off) => {
                Some(of(off, (off != DISABLED).then_some(SHOWN)))
            }
            _ => Some(of(ADAPTIVE, Some(SHOWN))),
        }
    }

    /// Whether thoughts may follow.
    pub(super) fn is_on(&self) -> bool {
        self.r#type != DISABLED
    }
}

/// How much effort a model is asked for that decides itself how long to think. The least stands for no thoughts
/// where they cannot be turned off.
pub(super) fn effort_of(wanted: Reasoning, profile: &ModelProfile) -> Option<&'static str> {
    let least = || (profile.thinks == ThinkingDefault::Always).then_some("low");
    wanted.effort().or_else(least)
}
