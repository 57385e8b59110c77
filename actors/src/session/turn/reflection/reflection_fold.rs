//! What the journal says of reflections, taken into a session's state.

#[cfg(feature = "test-util")]
use clawnode_kernel::KernelBug;
use clawnode_kernel::Violation;
use clawnode_proto::{
    Attempt, CallId, Head, TurnId,
    llm::{ModelFailure, Usage},
    reflection::{check_found_facts, check_reflection},
    session::{Reflected, ReflectionBegun, ReflectionFailed},
};

use super::super::{
    state::SessionState,
    state_parts::compaction_state::CompactionAsked,
    state_parts::reflection_state::{EndedReflection, ReflectionAim},
};

impl SessionState {
    /// An attempt to look back begins.
    pub(in crate::session::turn) fn reflection_begun(
        &mut self,
        begun: &ReflectionBegun,
    ) -> Result<(), Violation> {
        let ReflectionBegun { turn, call, attempt, max_tokens, .. } = *begun;
        let is_alone = self.open.is_empty();
        #[cfg(feature = "test-util")]
        let is_alone = is_alone || KernelBug::ReflectionOutstays.is_in_folds();
        if !is_alone {
            return Err(Violation(format!("`{call}` begins while a turn is open")));
        }
        let mut known = self.reflections.begun(turn, call)?;
        let held = self.reflections.held.take();
        if held.as_ref().is_some_and(|held| (held.call, held.attempt) != (call, attempt)) {
            return Err(Violation(format!("what is reserved is not for `{call}` (BUD-1)")));
        }
        let asked = CompactionAsked { upto: turn, model: begun.model.clone(), max_tokens };
        known.begins(attempt, held.as_deref(), asked)?;
        self.reflections.open = Some(Box::new(known));
        Ok(())
    }

    /// A model has looked back at a turn.
    pub(in crate::session::turn) fn reflected(
        &mut self,
        head: &Head,
        done: &Reflected,
    ) -> Result<(), Violation> {
        let Reflected { turn, call, attempt, usage, .. } = *done;
        check(done).map_err(|why| Violation(format!("`{call}`: {why}")))?;
        if attempt == Attempt(0) {
            return Err(Violation(format!("`{call}` was not made, and gives nothing")));
        }
        let (lessons, facts) = (done.lessons.clone(), done.facts.clone());
        let ended = ended(head, turn, call, attempt, usage);
        self.reflection_ended(EndedReflection { lessons, facts, ..ended }, None)
    }

    /// A turn has no rating.
    pub(in crate::session::turn) fn reflection_failed(
        &mut self,
        head: &Head,
        failed: &ReflectionFailed,
    ) -> Result<(), Violation> {
        let ReflectionFailed { turn, call, attempt, ref failure, usage } = *failed;
        let why = Some(failure.message.clone());
        let ended = ended(head, turn, call, attempt, usage);
        self.reflection_ended(EndedReflection { why, ..ended }, Some(failure))
    }

    fn reflection_ended(
        &mut self,
        mut ended: EndedReflection,
        failure: Option<&ModelFailure>,
    ) -> Result<(), Violation> {
        let EndedReflection { turn, call, attempt, usage, .. } = ended;
        let mut known = self.reflections.begun(turn, call)?;
        known.ends(attempt, usage, failure)?;
        self.usage = self.usage.plus(usage);
        self.spent = self.spent.plus(known.spending());
        ended.model = known.asked.map(|asked| asked.model);
        self.reflections.held = None;
        #[cfg(feature = "test-util")]
        if KernelBug::ReflectsAgain.is_in_folds() {
            return Ok(());
        }
        self.reflections.wanted.pop_front();
        self.reflections.unsent.push(ended);
        Ok(())
    }
}

/// One that has ended, and gives nothing.
fn ended(
    head: &Head,
    turn: TurnId,
    call: CallId,
    attempt: Attempt,
    usage: Usage,
) -> EndedReflection {
    let (event, at) = (head.n.0, head.ts);
    let (model, lessons, facts, why) = (None, Vec::new(), Vec::new(), None);
    EndedReflection { turn, call, attempt, model, usage, event, at, lessons, facts, why }
}

/// What is wrong with what a model wrote, by what it was asked for.
fn check(done: &Reflected) -> Result<(), String> {
    let Reflected { turn, call, rating, lessons, facts, .. } = done;
    match (ReflectionAim::of(*turn, *call), rating) {
        (ReflectionAim::Rating, Some(rating)) if facts.is_empty() => {
            check_reflection(*rating, lessons)
        }
        (ReflectionAim::Facts, None) if lessons.is_empty() => check_found_facts(facts),
        (ReflectionAim::Rating | ReflectionAim::Facts, _) => {
            Err("it has what the model was not asked for".to_owned())
        }
    }
}
