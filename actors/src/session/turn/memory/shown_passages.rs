//! What a request shows of its own conversation, so that no search need give it once more. Pure.

use std::collections::BTreeSet;

use clawnode_memory::store::passage::cut;
use clawnode_proto::{
    Digest, EntityId, SessionKey, ToolName, TurnId, llm::Text, memory::RECALL,
    recall::RecalledPassage,
};

use super::super::state::{SessionState, Step};

/// The passages of the turns before the running one that a request shows, as a store would find them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShownPassages {
    is_all: bool,
    session: Option<EntityId>,
    texts: BTreeSet<Digest>,
}

// === impl ShownPassages ===

impl ShownPassages {
    /// Of a request for this turn that leaves out so many of the oldest turns.
    pub(super) fn of_request(state: &SessionState, turn: TurnId, left_out: u32) -> Self {
        if left_out == 0 { Self::all() } else { Self::of(state, turn, left_out) }
    }

    /// Of the request whose reply has a call of this tool. Only a search needs the texts.
    pub(in crate::session::turn) fn of_tool(
        state: &SessionState,
        turn: TurnId,
        tool: &ToolName,
    ) -> Self {
        let left_out = state.left_out.as_ref().map_or(0, |left_out| left_out.turns);
        if left_out == 0 && state.earlier.left_out() == 0 {
            return Self::all();
        }
        if tool.as_str() == RECALL { Self::of(state, turn, left_out) } else { Self::default() }
    }

    fn of(state: &SessionState, running: TurnId, left_out: u32) -> Self {
        let left_out = usize::try_from(left_out).unwrap_or(usize::MAX);
        // What the session began with counts as its oldest turn.
        let beside = state.earlier.left_out().saturating_add(usize::from(!state.seed.is_empty()));
        let closed = state.closed.iter().filter(|turn| turn.id != running);
        let shown = closed.skip(left_out.saturating_sub(beside));
        let texts = shown.flat_map(|turn| {
            let said = turn.said.iter().map(|(_, text)| text);
            said.chain(turn.steps.iter().filter_map(Step::text))
        });
        // Longer texts, which are in the blob store, may be found again.
        let passages = texts.filter_map(Text::inline).flat_map(cut);
        let texts = passages.map(|passage| Digest::of(passage.as_bytes())).collect();
        Self { is_all: false, session: state.key.as_ref().map(SessionKey::entity), texts }
    }

    fn all() -> Self {
        Self { is_all: true, ..Self::default() }
    }

    /// Whether the model reads all of the conversation anyway.
    pub const fn is_all(&self) -> bool {
        self.is_all
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.texts.len()
    }

    /// Whether this is one of them.
    pub(super) fn has(&self, passage: &RecalledPassage) -> bool {
        let is_own = self.session == Some(passage.session.entity());
        is_own && self.texts.contains(&Digest::of(passage.text.as_bytes()))
    }
}
