//! What must be so of an entity at rest, of one that is not, and of all in the end.

use clawnode_actors::session::Session;
use clawnode_kernel::{EntityKind, kind::EffectClass};
use clawnode_proto::{InputId, TurnId, session::SessionInput};

use super::{
    Violation,
    ledger::{Book, Checked},
};

impl Book {
    /// I4: the entity is at rest, or what was journaled last still waits in the inbox, or all is
    /// parked.
    pub(super) fn anchored(&self) -> Checked {
        let newest = self.entity.core.newest_input();
        let anchored = newest.is_none_or(|newest| self.waiting.contains_key(&newest));
        if anchored || self.damaged || self.at_rest() || self.is_quarantined() {
            return Ok(());
        }
        let text = format!(
            "`{}` is not at rest, and `{:?}`, which was journaled last, left the inbox",
            self.entity.id, newest
        );
        Err(Violation::new("I4", text))
    }

    /// Whether nothing is left to do that anybody would have to be woken for.
    fn at_rest(&self) -> bool {
        let state = &self.entity.state;
        let emitted = |turn: &TurnId| self.turns.get(turn).is_some_and(|turn| turn.emitted);
        !Session::doomed(state)
            && Session::advance(state).is_empty()
            && Session::decide(state).iter().all(|effect| match Session::class(effect) {
                EffectClass::Emit(turn) => emitted(&turn),
                // Their results come as inputs, which wake it.
                EffectClass::Publish => true,
                EffectClass::Call | EffectClass::Run => false,
            })
    }

    pub(super) fn unfinished(&self, input: InputId) -> Option<String> {
        let Some(body) = self.journaled.get(&input) else {
            return Some(format!("`{input}` was accepted, but the journal has it not"));
        };
        if self.waiting.contains_key(&input) {
            return Some(format!("`{input}` is in the journal, and still waits in the inbox"));
        }
        if self.is_quarantined() || self.damaged {
            return None;
        }
        match body {
            // Parked, and back in service.
            None
            | Some(
                SessionInput::Cancel { .. }
                | SessionInput::ToolResult(_)
                | SessionInput::ApprovalDecided(_)
                | SessionInput::Continue { .. }
                | SessionInput::TimerFired { .. },
            ) => None,
            Some(SessionInput::Delete) => {
                (self.deletions == 0).then(|| format!("`{input}` deleted nothing"))
            }
            Some(
                SessionInput::UserMessage(_) | SessionInput::Steer(_) | SessionInput::Execute(_),
            ) => {
                let turn = TurnId::from(input);
                let joined = || self.entity.state.turn(turn).is_some_and(|it| it.outcome.is_some());
                let ended = self.turns.get(&turn).is_some_and(|turn| turn.outcome.is_some());
                // What joined a turn that was deleted since is told by the deletion alone.
                let over = ended || joined() || self.deletions > 0;
                (!over).then(|| format!("`{turn}` has no end"))
            }
        }
    }

    pub(super) fn at_the_end(&self) -> Checked {
        for (id, turn) in &self.turns {
            let Some(outcome) = &turn.outcome else { continue };
            if turn.replies != turn.replies_due(outcome) || turn.settled != 1 {
                let text = format!(
                    "`{id}` ({}) has {} replies and is settled {} times",
                    outcome.name(),
                    turn.replies,
                    turn.settled
                );
                return Err(Violation::new("E2", text));
            }
            if !turn.emitted && !self.is_quarantined() {
                return Err(Violation::new("E3", format!("the end of `{id}` was never shown")));
            }
        }
        for (id, call) in &self.calls {
            if call.made.len() > call.begun.len() {
                let text = format!("`{id}` was made more often than it was begun");
                return Err(Violation::new("C6", text));
            }
        }
        Ok(())
    }
}
