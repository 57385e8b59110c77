//! Which turns a model looks back at: those that did enough or whose person said enough, if it is configured, and those
//! that a person asks about. Not: plans, turns that were cancelled or blocked, agents with a hook before model calls, and
//! requests that name no user. Pure.

use clawnode_proto::{InputId, TurnId, session::TurnOutcome};

use super::super::{
    model_call::reservation_size,
    state::{SessionState, Turn},
    state_parts::reflection_state::{ReflectionAim, WantedReflection},
};
use super::fact_request::may_have_facts;

/// Tool calls of a turn from which on it is looked back at without being asked for. Journals depend on it: the fold refuses
/// a reflection on a turn that does not wait for one.
const CALLS_LEAST: usize = 5;

// === impl SessionState ===

impl SessionState {
    /// A turn is settled: a model looks back at it if it did enough or its person said enough, and if it is configured so.
    pub(in crate::session::turn) fn reflects_on(&mut self, id: TurnId) {
        let profile =
            self.profile.as_ref().filter(|profile| !reservation_size::asks_hooks(profile));
        let turn = self.closed.iter().rev().find(|turn| turn.id == id);
        let Some((profile, turn)) = profile.zip(turn.filter(|turn| turn.may_be_reflected_on()))
        else {
            return;
        };
        let wants = [
            (ReflectionAim::Rating, profile.reflects && turn.has_worked()),
            (ReflectionAim::Facts, profile.extracts && turn.is_completed() && may_have_facts(turn)),
        ];
        if self.has_person() {
            for (aim, _) in wants.into_iter().filter(|(_, is_wanted)| *is_wanted) {
                let after = self.after;
                self.reflections.want(WantedReflection { id, turn: id, aim, after });
            }
        }
    }

    /// A person asks for a reflection.
    pub(in crate::session::turn) fn reflection_asked(&mut self, input: InputId, turn: TurnId) {
        let is_it = |one: &&Turn| one.id == turn || one.joined.contains(&turn);
        let turn = self.closed.iter().rev().find(is_it);
        if let Some(turn) = turn.filter(|turn| turn.may_be_reflected_on())
            && self.has_person()
        {
            let (id, turn, aim) = (TurnId::from(input), turn.id, ReflectionAim::Rating);
            let after = self.after;
            self.reflections.want(WantedReflection { id, turn, aim, after });
        }
    }

    /// Whether lessons have a memory that they are for.
    pub(in crate::session) fn has_person(&self) -> bool {
        self.key.as_ref().is_some_and(|key| !key.is_stateless()) && !self.doomed
    }
}

// === impl Turn ===

impl Turn {
    /// Whether a model can look back at it: a model was asked in it, and it was neither cancelled nor blocked.
    pub(in crate::session) fn may_be_reflected_on(&self) -> bool {
        let is_withdrawn = matches!(
            self.outcome,
            None | Some(TurnOutcome::Cancelled | TurnOutcome::Blocked { .. })
        );
        self.plan.is_none() && !self.steps.is_empty() && !is_withdrawn
    }

    /// Whether a model ended it with a reply.
    pub(super) const fn is_completed(&self) -> bool {
        matches!(self.outcome, Some(TurnOutcome::Completed { .. }))
    }

    /// Whether so many of its tool calls have ended that there may be something to learn.
    pub(super) fn has_worked(&self) -> bool {
        let calls = self.steps.iter().flat_map(|step| &step.tools);
        calls.filter(|tool| tool.end.is_some()).count() >= CALLS_LEAST
    }
}
