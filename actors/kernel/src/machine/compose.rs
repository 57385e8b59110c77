//! Composing: makes one append of everything that is queued, ended and decided, and finds what follows from
//! it.

use std::collections::BTreeSet;

use clawnode_proto::{
    InputId, Tail, Timestamp,
    kernel::{Accepted, Deleted, KernelEvent},
    limits::{APPEND_BYTES, APPEND_EVENTS},
};

use super::{
    ActivationEnd, ActivationPhase, Busy, CallGrant, Core, EffectKind, Entity, EntityKind, Machine,
    MachineOutput, Probation,
};
#[cfg(feature = "test-util")]
use crate::KernelBug;

/// Rounds of `advance` that one input may cause; more is a kind that never comes to rest.
const ADVANCES_MAX: usize = 64;

/// The state of the calls that are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ComposedCalls {
    /// They run, or will run without another request.
    Run,
    /// One was begun that has nothing to run: more may follow from it.
    Recorded,
    /// A grant must be waited for.
    Wait,
}

/// What a call's want has left for its beginning.
#[derive(Debug)]
pub(super) struct MadeFor<K: EntityKind> {
    effect: K::Effect,
    /// The last event before it was made: the state is the same as long as no other follows.
    tail: Tail,
    made: K::Made,
}

impl<K: EntityKind> Machine<K> {
    /// Does everything that can be done now.
    pub(super) fn pump(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        if !matches!(self.busy, Busy::No) {
            return Ok(());
        }
        match &self.body {
            ActivationPhase::Unread | ActivationPhase::Stopped => Ok(()),
            // Nothing was begun, so there is nothing to give up.
            ActivationPhase::Headers(..) if self.probation == Probation::Asked && self.drains() => {
                Err(ActivationEnd::Released)
            }
            ActivationPhase::Headers(..) => self.park(now),
            ActivationPhase::Damaged { .. } => self.serve_damaged(now),
            ActivationPhase::Whole(_) => self.compose(now),
        }
    }

    fn compose(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        if self.is_snapshot_due(false) {
            return self.archive();
        }
        self.draft_inputs(now)?;
        self.draft_outcomes(now)?;
        self.draft_advances(now)?;
        let mut calls = self.draft_decisions(now)?;
        // The events that follow from a call with nothing to run go into the same append.
        while calls == ComposedCalls::Recorded {
            self.draft_advances(now)?;
            calls = self.draft_decisions(now)?;
        }
        if calls == ComposedCalls::Wait {
            // A grant is usually at hand; the events that it allows go into the same append.
            return Ok(());
        }
        if self.draft.is_empty() && !self.staged.is_empty() && !self.claimed {
            // Nothing is started for an entity that another may own.
            self.claim_first(now)?;
        }
        if self.draft.is_empty() {
            self.out.append(&mut self.staged);
            self.settle(now)
        } else {
            self.quiescent = false;
            self.stays();
            self.flush(false)
        }
    }

    pub(super) fn entity(&self) -> Option<&Entity<K>> {
        match &self.body {
            ActivationPhase::Whole(entity) => Some(entity),
            ActivationPhase::Unread
            | ActivationPhase::Headers(..)
            | ActivationPhase::Damaged { .. }
            | ActivationPhase::Stopped => None,
        }
    }

    fn draft_inputs(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        // What leaves the queue has to get into the journal (see `complete`).
        if self.drains() || self.entity().is_none() {
            return Ok(());
        }
        let mut waiting = std::collections::VecDeque::new();
        while let Some(input) = self.queue.pop_front() {
            let Some(entity) = self.entity() else { break };
            let known = entity.core.has(input.id);
            #[cfg(feature = "test-util")]
            let known = known
                && (!self.planted(KernelBug::DedupByWindowOnly)
                    || entity.core.newest_input() == Some(input.id));
            if known {
                continue;
            }
            if !K::admits(&entity.state, &input) {
                waiting.push_back(input);
                continue;
            }
            let full = self.draft.len() >= APPEND_EVENTS
                || self.draft_bytes + input.body.len() > APPEND_BYTES / 2;
            if full && !self.draft.is_empty() {
                // Everything after it waits too: inputs are taken in the order of the inbox.
                waiting.push_back(input);
                #[cfg(feature = "test-util")]
                if self.planted(KernelBug::SmallOvertakes) {
                    continue;
                }
                break;
            }
            self.cut();
            self.ride(now)?;
            if self.late(&input) {
                // Only its id is kept: its content belongs to an entity that is gone.
                let dropped = vec![input.id];
                self.seal(now, &KernelEvent::from(Deleted { at: now, dropped }))?;
                continue;
            }
            self.birth(now, &input)?;
            self.seal(now, &KernelEvent::from(Accepted { input }))?;
        }
        waiting.append(&mut self.queue);
        self.queue = waiting;
        Ok(())
    }

    /// Confirmed emissions go before new events.
    fn ride(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        if self.draft.is_empty() {
            for rider in std::mem::take(&mut self.riders) {
                self.seal(now, &KernelEvent::from(rider))?;
            }
        }
        Ok(())
    }

    fn draft_all(&mut self, now: Timestamp, events: Vec<K::Event>) -> Result<(), ActivationEnd> {
        if !events.is_empty() {
            self.cut();
            self.ride(now)?;
        }
        for event in events {
            self.seal(now, &event)?;
        }
        Ok(())
    }

    fn draft_outcomes(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        for (key, outcome) in std::mem::take(&mut self.ended) {
            let Some(entity) = self.entity() else { break };
            let events = K::conclude(&entity.state, &key, outcome);
            #[cfg(feature = "test-util")]
            let events = self.unjournaled(events);
            self.draft_all(now, events)?;
        }
        for (key, outcome) in std::mem::take(&mut self.refused) {
            let Some(entity) = self.entity() else { break };
            let events = K::refuse(&entity.state, &key, outcome);
            self.draft_all(now, events)?;
        }
        Ok(())
    }

    fn draft_advances(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        // An aborted call may still report an end, which comes before what follows from its end.
        if !self.aborting.is_empty() {
            return Ok(());
        }
        for _ in 0..ADVANCES_MAX {
            let Some(entity) = self.entity() else { return Ok(()) };
            let events = K::advance(&entity.state);
            if events.is_empty() {
                return Ok(());
            }
            // A running call whose end `advance` is about to write must first be heard.
            if self.abort_unwanted() {
                return Ok(());
            }
            self.draft_all(now, events)?;
        }
        Err(ActivationEnd::Defect(format!(
            "`advance` did not come to rest in {ADVANCES_MAX} rounds"
        )))
    }

    /// Aborts calls that run and are no longer wanted; says whether any of them has an end to be
    /// heard.
    fn abort_unwanted(&mut self) -> bool {
        let Some(entity) = self.entity() else { return false };
        let wanted = K::decide(&entity.state);
        let unwanted: Vec<(K::Effect, EffectKind)> = self
            .running
            .iter()
            .filter(|(effect, class)| {
                matches!(class, EffectKind::Call | EffectKind::Publish)
                    && !wanted.contains(effect)
                    && !self.aborting.contains(effect)
            })
            .map(|(effect, class)| (effect.clone(), *class))
            .collect();
        let mut is_heard = false;
        for (effect, class) in unwanted {
            if class == EffectKind::Call {
                self.aborting.insert(effect.clone());
                is_heard = true;
            } else {
                self.running.remove(&effect);
            }
            self.out.push(MachineOutput::Abort(effect));
        }
        is_heard
    }

    /// Starts what is decided and not under way.
    fn draft_decisions(&mut self, now: Timestamp) -> Result<ComposedCalls, ActivationEnd> {
        self.abort_unwanted();
        let Some(entity) = self.entity() else { return Ok(ComposedCalls::Run) };
        let wanted = K::decide(&entity.state);
        self.confirmed.retain(|effect| wanted.contains(effect));
        self.inherited.retain(|effect| wanted.contains(effect));
        let asked = self.admissions.keys();
        for effect in asked.filter(|effect| !wanted.contains(effect)).cloned().collect::<Vec<_>>() {
            #[cfg(feature = "test-util")]
            if self.misjudge_release(&effect) {
                continue;
            }
            self.admissions.remove(&effect);
            self.out.push(MachineOutput::Release(effect));
        }
        let mut calls = ComposedCalls::Run;
        for effect in wanted {
            if self.running.contains_key(&effect) || self.confirmed.contains(&effect) {
                continue;
            }
            match K::class(&effect) {
                EffectKind::Call | EffectKind::Run | EffectKind::Publish if self.drains() => {}
                EffectKind::Call => calls = calls.max(self.start_call(now, effect)?),
                class @ (EffectKind::Run | EffectKind::Publish | EffectKind::Emit(_)) => {
                    self.start(effect, class);
                }
            }
        }
        Ok(calls)
    }

    fn start(&mut self, effect: K::Effect, class: EffectKind) {
        let Some(entity) = self.entity() else { return };
        let again = self.inherited.contains(&effect);
        let Some(job) = K::prepare(&entity.state, &effect, again) else { return };
        self.running.insert(effect.clone(), class);
        self.staged.push(MachineOutput::Start(effect, job));
    }

    fn start_call(
        &mut self,
        now: Timestamp,
        effect: K::Effect,
    ) -> Result<ComposedCalls, ActivationEnd> {
        let ActivationPhase::Whole(entity) = &self.body else { return Ok(ComposedCalls::Run) };
        let granted = match self.admissions.get(&effect) {
            None => None,
            Some(CallGrant::Asked) => return Ok(ComposedCalls::Wait),
            Some(CallGrant::Deferred | CallGrant::Forgotten) => return Ok(ComposedCalls::Run),
            Some(CallGrant::Granted(grant)) => Some(grant),
        };
        let tail = entity.core.tail;
        let mut made = self
            .made
            .take_if(|known| known.effect == effect && known.tail == tail)
            .map(|known| known.made);
        let want = K::want(&entity.state, &effect, granted, &mut made);
        #[cfg(feature = "test-util")]
        let want =
            want.filter(|_| granted.is_none() || !self.planted(KernelBug::BeginsWithFirstGrant));
        if let Some(want) = want {
            self.made = made.map(|made| MadeFor { effect: effect.clone(), tail, made });
            self.admissions.insert(effect.clone(), CallGrant::Asked);
            self.out.push(MachineOutput::Acquire(effect, want));
            return Ok(ComposedCalls::Wait);
        }
        match granted {
            None => Ok(ComposedCalls::Run),
            Some(grant) => {
                let begun = K::begin(&entity.state, &effect, grant, made);
                self.admissions.remove(&effect);
                let Some((events, job)) = begun else { return Ok(ComposedCalls::Run) };
                self.draft_all(now, events)?;
                let Some(job) = job else { return Ok(ComposedCalls::Recorded) };
                self.running.insert(effect.clone(), EffectKind::Call);
                self.staged.push(MachineOutput::Start(effect, job));
                Ok(ComposedCalls::Run)
            }
        }
    }

    /// Nothing is left to append: complete, hand over, shrink or leave.
    fn settle(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        let Some(entity) = self.entity() else { return Ok(()) };
        let at_rest = self.running.is_empty()
            && self.aborting.is_empty()
            && K::decide(&entity.state).iter().all(|effect| self.confirmed.contains(effect));
        let doomed = K::doomed(&entity.state);
        let purges = entity.core.purging.is_some() || K::purges(&entity.state);
        // A deletion or purge that is due wakes the entity, like any effect.
        self.quiescent = at_rest && !doomed && !purges;
        #[cfg(feature = "test-util")]
        self.misjudge(at_rest);
        self.complete();
        if self.drains() {
            return self.hand_over(now);
        }
        if at_rest && doomed {
            return self.erase(now);
        }
        if at_rest && purges {
            return self.purge(now);
        }
        if at_rest && self.is_snapshot_due(true) {
            return self.archive();
        }
        let released = !self.claimed || self.core().is_some_and(|core| core.released);
        let idle = self.makes_room()
            || self.now.steady.since(self.idle_since) >= self.options.passivate_after;
        let empty = self.held.is_empty() && self.queue.is_empty();
        if at_rest && empty {
            self.slim();
        }
        match (at_rest && empty, released, idle) {
            (true, true, _) if self.claimed => Err(ActivationEnd::Passivated),
            (true, true, true) => Err(ActivationEnd::Passivated),
            (true, false, true) => self.release(now),
            _ if self.makes_room() && self.only_waits() => self.give_way(now),
            _ => Ok(()),
        }
    }

    /// Whether it has no work, and will have none before a call may start.
    fn only_waits(&self) -> bool {
        let waits =
            |one: &CallGrant<K::Grant>| matches!(one, CallGrant::Deferred | CallGrant::Forgotten);
        self.running.is_empty()
            && self.aborting.is_empty()
            && !self.admissions.is_empty()
            && self.admissions.values().all(waits)
    }

    /// Leaves memory with what waits; its inputs come again later.
    fn give_way(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        if self.claimed && !self.core().is_some_and(|core| core.released) {
            return self.release(now);
        }
        Err(ActivationEnd::GaveWay)
    }

    /// I4: an input may be acknowledged when the journal has it and nothing depends on it as a
    /// wake-up.
    pub(super) fn may_complete(&self, input: InputId) -> bool {
        self.core().is_some_and(|core| core.has(input)) && self.wakes_without(input)
    }

    /// Whether the entity is at rest, or a later-journaled input of it is still in hand.
    fn wakes_without(&self, input: InputId) -> bool {
        let newest = self.core().and_then(Core::newest_input);
        let anchored = newest.is_some_and(|newest| self.held.contains(&newest));
        // Drafted events are not in the journal yet.
        let settled = self.draft.is_empty();
        settled && (self.quiescent || (self.claimed && anchored && newest != Some(input)))
    }

    fn complete(&mut self) {
        // What is in hand leaves the queue only into the journal, or because the journal has it. The fold may have
        // forgotten it since: a kind that remembers inputs for minutes may be that busy, or be claimed with a clock
        // that is ahead.
        let queued: BTreeSet<InputId> = self.queue.iter().map(|input| input.id).collect();
        let known = |input: &InputId| self.core().is_some_and(|core| core.has(*input));
        let journaled = |input: &InputId| !queued.contains(input) || known(input);
        let held = self.held.iter().filter(|input| journaled(input)).copied();
        let done: Vec<_> = held.filter(|input| self.wakes_without(*input)).collect();
        for input in done {
            self.held.remove(&input);
            self.out.push(MachineOutput::Complete(input));
        }
    }

    fn hand_over(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        let is_busy = !self.running.is_empty() || !self.aborting.is_empty();
        #[cfg(feature = "test-util")]
        let is_busy = is_busy && !self.planted(KernelBug::ReleasesWhileRunning);
        if is_busy {
            return Ok(());
        }
        if self.claimed && !self.core().is_some_and(|core| core.released) {
            return self.release(now);
        }
        Err(ActivationEnd::Released)
    }
}
