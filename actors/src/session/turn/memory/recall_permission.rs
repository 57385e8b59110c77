//! Whether a turn recalls anything: only if the configuration lets its agent read memories, and before its first call.
//! Pure.

use clawnode_proto::CallId;

use super::super::state::Turn;
use crate::agent::{AgentMemory, Grant};

/// What the agent of this turn reads before this call. Nothing without a section `memory`, after its first call, or if it
/// was reminded already.
pub(super) fn read_by<'a>(turn: &Turn, call: CallId, grant: &'a Grant) -> Option<&'a AgentMemory> {
    let memory = grant.options.memory.as_ref()?;
    let is_due = grant.recalled.is_none() && turn.may_recall() && call == turn.call_at(0);
    is_due.then_some(memory)
}

// === impl Turn ===

impl Turn {
    /// Whether nothing of it has begun, and it was not reminded of anything: hooks judge what it is reminded of, too.
    pub(super) fn may_recall(&self) -> bool {
        let is_new = self.steps.is_empty() && self.judged.is_none();
        is_new && self.recalled.is_none() && self.plan.is_none()
    }
}
