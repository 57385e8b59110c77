//! Whether a model must call a tool, by what its client chose. Pure.

use clawnode_proto::{llm::Sampling, tool_choice::ToolChoice};

use super::client_tools::ClientOffer;

// === impl ClientOffer ===

impl ClientOffer {
    /// What of a choice holds for the model call at this place of the turn: one that demands a call holds
    /// for the first call since it was asked for, or the turn would never end.
    pub(in crate::session) fn choice(
        &self,
        sampling: &Sampling,
        step: usize,
    ) -> Option<ToolChoice> {
        let is_first = step == usize::try_from(self.since).unwrap_or(usize::MAX);
        let choice = sampling.tool_choice.clone();
        choice.filter(|choice| is_first || *choice == ToolChoice::None)
    }
}
