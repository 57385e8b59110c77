//! What silent calls do to turns, and what becomes of their replies.
//!
//! - **REFL-1** A message and a deletion end a reflection at once: no call of a turn begins while one runs, and none is
//!   made, and nothing of one is taught, once its session is to be deleted.
//! - **REFL-2** What is recorded of a reflection is what its model said, with the trust of a person for their own sentences
//!   alone.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_actors::session::{Effect, Outcome, turn::prepare::CallJob};
use clawnode_cluster::{AppendAnswer, Write};
use clawnode_kernel::KernelBug;
use clawnode_proto::{
    Attempt, CallId, EntityId, Incarnation, Kind, Sealed, codec,
    event::decode_record,
    kernel::{DELETED, KernelEvent},
    llm::{Text, Usage},
    memory::MemoryTrust,
    session::{Reflected, SessionEvent, SessionInput},
};
use clawnode_sim::{StoreChange, StoreReply};
use rand::Rng;

use super::replies::{LearnedText, RATINGS, SilentReply};
use crate::{JudgeViolation, Sim, any_machine::ActivationPlace, book::Checked, process::Do};

/// The name of the schema of replies with facts.
const FACTS: &str = "facts";
/// How long a call may run on after a message is in the journal, in milliseconds.
const ENDS_WITHIN: u64 = 100;

/// The silent calls of all sessions.
#[derive(Debug, Default)]
pub(crate) struct SilentCalls {
    /// What the models of calls under way were shown that look for facts.
    shown: BTreeMap<(CallId, Attempt), String>,
    /// What is to be recorded of each reply; nothing if it is of no use.
    replies: BTreeMap<(CallId, Attempt), Option<Vec<LearnedText>>>,
    /// Who wrote each journal last.
    writers: BTreeMap<EntityId, Incarnation>,
    /// Sessions that are to be deleted.
    doomed: BTreeSet<EntityId>,
    /// Since when activations know that their journal has a message, while a call of theirs runs.
    heard: BTreeMap<SilentPlace, u64>,
    /// Calls that providers have seen.
    made: usize,
    /// Processes that died of them.
    pub(super) deaths: usize,
}

/// An activation, as a key.
type SilentPlace = (EntityId, Incarnation);

fn broken(name: &'static str, text: String) -> Checked {
    Err(JudgeViolation::new(name, text))
}

fn incarnation(at: ActivationPlace) -> Incarnation {
    Incarnation { process: at.process, counter: at.counter }
}

// === impl SilentCalls ===

impl SilentCalls {
    /// Calls that providers have seen.
    pub(crate) const fn made(&self) -> usize {
        self.made
    }

    /// A journal has more.
    fn says(&mut self, entity: EntityId, sealed: &Sealed) -> Checked {
        self.writers.insert(entity, sealed.head.incarnation);
        if sealed.head.kind == DELETED {
            self.doomed.remove(&entity);
            return Ok(());
        }
        if let Ok(Some(KernelEvent::Accepted(accepted))) = sealed.event::<KernelEvent>() {
            let body = codec::decode::<SessionInput>(&accepted.input.body);
            if matches!(body, Ok(SessionInput::Delete)) && accepted.input.order.is_none() {
                self.doomed.insert(entity);
            }
            return Ok(());
        }
        match sealed.event::<SessionEvent>() {
            Ok(Some(SessionEvent::Reflected(done))) => self.recorded(done),
            Ok(Some(SessionEvent::ReflectionFailed(failed))) => {
                let reply = self.replies.get(&(failed.call, failed.attempt));
                if !matches!(reply, Some(Some(_))) {
                    return Ok(());
                }
                let (call, why) = (failed.call, failed.failure);
                broken("REFL-2", format!("the reply to `{call}` is of use, and failed: {why:?}"))
            }
            _ => Ok(()),
        }
    }

    /// REFL-2.
    fn recorded(&self, done: Reflected) -> Checked {
        let lessons = done.lessons.into_iter().map(|text| (text, MemoryTrust::Agent));
        let facts = done.facts.into_iter().map(|fact| (fact.text, fact.trust));
        let found: Vec<LearnedText> = lessons.chain(facts).collect();
        let reply = self.replies.get(&(done.call, done.attempt));
        if let Some(Some(expected)) = reply
            && *expected == found
        {
            return Ok(());
        }
        let call = done.call;
        broken("REFL-2", format!("`{call}` recorded {found:?}, and its model said {reply:?}"))
    }

    /// REFL-1: whether this activation knows that its session is to be deleted.
    fn is_not_doomed(&self, at: ActivationPlace, what: &str) -> Checked {
        let knows = self.writers.get(&at.entity) == Some(&incarnation(at));
        if knows && self.doomed.contains(&at.entity) {
            return broken("REFL-1", format!("{what} of `{}`, which is to be deleted", at.entity));
        }
        Ok(())
    }
}

/// Whether a message or a deletion is among what an append stores.
fn has_message(write: &Write) -> bool {
    let events = decode_record(&write.bytes).unwrap_or_default();
    events.iter().any(|sealed| match sealed.event::<KernelEvent>() {
        Ok(Some(KernelEvent::Accepted(accepted))) => matches!(
            codec::decode::<SessionInput>(&accepted.input.body),
            Ok(SessionInput::UserMessage(_)
                | SessionInput::Steer(_)
                | SessionInput::Execute(_)
                | SessionInput::Delete)
        ),
        _ => false,
    })
}

// === impl Sim ===

impl Sim {
    /// Whether models look back at turns in this world.
    fn has_silent_calls(&self) -> bool {
        self.plan.silent.has_some() || self.plan.reflections
    }

    /// The stores changed.
    pub(crate) fn silent_change(&mut self, change: &StoreChange) -> Checked {
        let StoreChange::Appended { entity, record, rollup } = change else { return Ok(()) };
        let is_judged = self.has_silent_calls()
            && self.damaged != Some(*entity)
            && self.ledger.kind_of(*entity) == Kind::SESSION;
        if !is_judged {
            return Ok(());
        }
        let events = decode_record(&record.bytes).unwrap_or_default();
        events.iter().try_for_each(|sealed| self.silent.says(*entity, sealed))?;
        self.dies_of_ends(*entity, &events);
        // A tombstone may be known by what it replaces alone.
        if *rollup && self.ledger.is_deleted(*entity) {
            self.silent.doomed.remove(entity);
        }
        Ok(())
    }

    /// A store answers: an activation may know now that its journal has a message.
    pub(crate) fn silent_hears(&mut self, at: ActivationPlace, work: &Do, reply: &StoreReply) {
        let (Do::Append { write, .. }, StoreReply::Append(AppendAnswer::Stored(_))) = (work, reply)
        else {
            return;
        };
        if self.has_silent_calls() && self.reflects(at) && has_message(write) {
            let now = self.world.now().0;
            self.silent.heard.entry((at.entity, incarnation(at))).or_insert(now);
        }
    }

    /// Whether a call of this activation looks back at a turn.
    fn reflects(&mut self, at: ActivationPlace) -> bool {
        let process = self.processes.get_mut(&at.process);
        let actor = process.and_then(|process| process.actor(at.entity, at.counter));
        actor.is_some_and(|actor| {
            actor.running.keys().any(|effect| matches!(effect, Effect::Reflect { .. }))
        })
    }

    /// A silent call is sent.
    pub(crate) fn silent_starts(&mut self, at: ActivationPlace, job: &CallJob) -> Checked {
        self.silent.made += 1;
        self.dies_of_call(at.process, job.call, job.attempt);
        self.silent.heard.remove(&(at.entity, incarnation(at)));
        let schema = job.request.response_schema.as_ref();
        let message = job.request.messages.first().and_then(|message| message.content.inline());
        if let Some(shown) = message.filter(|_| schema.is_some_and(|schema| schema.name == FACTS)) {
            self.silent.shown.insert((job.call, job.attempt), shown.to_owned());
        }
        if self.damaged == Some(at.entity) {
            return Ok(());
        }
        self.silent.is_not_doomed(at, &format!("`{}` is made for a turn", job.call))
    }

    /// REFL-1: a call of a turn is sent.
    pub(crate) fn is_alone(&mut self, at: ActivationPlace, call: CallId) -> Checked {
        if self.has_silent_calls() && self.reflects(at) {
            let text = format!("`{call}` of `{}` begins beside a reflection", at.entity);
            return broken("REFL-1", text);
        }
        Ok(())
    }

    /// A silent call ends by itself: how, if it did not fail.
    pub(crate) fn silent_reply(&mut self, call: CallId, attempt: Attempt, usage: Usage) -> Outcome {
        let reply = if let Some(shown) = self.silent.shown.remove(&(call, attempt)) {
            SilentReply::facts(call, attempt, &shown)
        } else {
            let kind = self.world.rng.random_range(0..RATINGS);
            SilentReply::rating(call, attempt, kind, self.world.chance(0.1))
        };
        let SilentReply { text, stop, expected } = reply;
        self.silent.replies.insert((call, attempt), expected);
        Outcome::Done {
            attempt,
            content: Text::from(text),
            stop,
            usage,
            model: "sim".to_owned(),
            tool_uses: Vec::new(),
            blocks: None,
        }
    }

    /// REFL-1: a call that ends by itself was not one that a message had to end.
    pub(crate) fn silent_ends(&mut self, at: ActivationPlace, effect: Effect) -> Checked {
        let Effect::Reflect { call, .. } = effect else { return Ok(()) };
        let heard = self.silent.heard.remove(&(at.entity, incarnation(at)));
        let since = heard.map_or(0, |heard| self.world.now().0.saturating_sub(heard));
        if since > ENDS_WITHIN {
            return broken("REFL-1", format!("`{call}` runs on for {since} ms after a message"));
        }
        Ok(())
    }

    /// REFL-1: what a call found is sent to a memory.
    pub(crate) fn silent_teaches(&self, at: ActivationPlace, call: CallId) -> Checked {
        if self.damaged == Some(at.entity) {
            return Ok(());
        }
        self.silent.is_not_doomed(at, &format!("a memory learns from `{call}`"))
    }

    /// A planted bug: the call is sent beside the append that says so.
    pub(crate) fn silent_hurries(&mut self, at: ActivationPlace, write: &Write) -> Checked {
        if self.planted != KernelBug::ReflectsBeforeAppend {
            return Ok(());
        }
        for sealed in decode_record(&write.bytes).unwrap_or_default() {
            if let Ok(Some(SessionEvent::ReflectionBegun(begun))) = sealed.event::<SessionEvent>() {
                self.ledger.calling(at.entity, incarnation(at), begun.call, begun.attempt)?;
            }
        }
        Ok(())
    }
}
