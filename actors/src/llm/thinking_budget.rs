//! Thoughts with signatures, as Anthropic's models have them on every wire: when a request may ask for more of
//! them, and how many tokens of them.

use clawnode_proto::reasoning::Reasoning;

use super::{Item, PlainMessage, ordered_parts::Part, profile::ModelProfile};

/// A budget that leaves room for a reply of so many tokens, but for at most half of the model's largest
/// output: the vendor refuses a budget that is not below the limit.
pub(super) fn budget_within(reply: u32, reasoning: Reasoning, profile: &ModelProfile) -> u32 {
    let budget = reasoning.budget();
    let most = profile.capped(reply.saturating_add(budget));
    let budget = budget.min(most.saturating_sub(reply.min(most / 2)));
    budget.max(Reasoning::MIN_TOKENS)
}

/// Whether a request may ask for thoughts: the running turn is not in a round of tools that began without a
/// thought that can be sent back. The vendor refuses that.
pub(super) fn may_think(messages: &[PlainMessage]) -> bool {
    let mut rest = messages;
    let mut first = None;
    while let [before @ .., asking, answering] = rest
        && !answering.tool_replies.is_empty()
    {
        first = Some(asking);
        rest = before;
    }
    first.is_none_or(|asking| {
        let begins = asking.parts().into_iter().next();
        matches!(begins, Some(Part::Item(_))) && has_thoughts(&asking.parts())
    })
}

/// Whether there are thoughts, all of which can be sent back.
pub(super) fn has_thoughts(parts: &[Part<'_>]) -> bool {
    let mut items = parts.iter().filter_map(|part| match part {
        Part::Item(item) => Some(*item),
        Part::Text(_) | Part::ToolUse(_) => None,
    });
    items.clone().next().is_some() && items.all(goes_back)
}

/// Whether the vendor takes it back.
fn goes_back(item: &Item) -> bool {
    match item {
        Item::Thinking { signature, .. } => {
            signature.as_ref().is_some_and(|signature| !signature.is_empty())
        }
        Item::Redacted { .. } => true,
        Item::Opaque { .. } => false,
    }
}
