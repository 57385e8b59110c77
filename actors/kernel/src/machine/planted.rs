//! Bugs planted into the entity machine, for the simulator to find. Compiled for tests only.

use clawnode_cluster::{
    AppendAnswer, Record, Write,
    outcome::{AppendVerdict, of_read_back},
};
use clawnode_proto::{
    CodecError, Digest, EventId, Grammar, Head, Position, Sealed,
    event::{VERSION, encode_record},
    kernel::{KernelEvent, SnapshotState},
};

use super::{
    ActivationEnd, ActivationPhase, Busy, EffectKind, Entity, EntityKind, Machine, MachineOutput,
};
use crate::{KernelBug, counter::Counter};

/// Whether an append that is sent again is the same as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Redraft {
    /// The same events at another time.
    NewBytes,
    /// The events that follow now.
    Anew,
}

/// An event whose body is already encoded.
struct Encoded(Vec<u8>);

impl Grammar for Encoded {
    const KINDS: &'static [&'static str] = &[];

    fn kind(&self) -> &'static str {
        ""
    }
    fn required(&self) -> bool {
        true
    }
    fn progress(&self) -> bool {
        false
    }
    fn encode_body(&self) -> Result<Vec<u8>, CodecError> {
        Ok(self.0.clone())
    }
    fn view(&self) -> serde_json::Value {
        serde_json::Value::Null
    }
    fn decode_body(_: &str, body: &[u8]) -> Result<Option<Self>, CodecError> {
        Ok(Some(Self(body.to_vec())))
    }
}

impl<K: EntityKind> Machine<K> {
    /// Whether its journal was folded, or is empty: a poisoned event has been read by then.
    pub fn is_folded(&self) -> bool {
        matches!(self.body, ActivationPhase::Whole(_))
    }

    pub(super) fn planted(&self, bug: KernelBug) -> bool {
        self.options.planted == bug
    }

    /// Which states a machine with this bug removes.
    pub(super) fn misjudge_states(
        &self,
        newest: &SnapshotState,
        mut superseded: Vec<Digest>,
    ) -> Vec<Digest> {
        if let (true, SnapshotState::Blob { digest }) =
            (self.planted(KernelBug::DiscardNewestState), newest)
        {
            superseded.push(*digest);
        }
        superseded
    }

    /// Whether a machine with this bug keeps the grant of a call that is not wanted any more.
    pub(super) fn misjudge_release(&mut self, effect: &K::Effect) -> bool {
        match self.options.planted {
            KernelBug::KeepsUnwanted => {
                self.admissions.remove(effect);
                true
            }
            KernelBug::KeepsWhatItReleased => {
                self.out.push(MachineOutput::Release(effect.clone()));
                true
            }
            _ => false,
        }
    }

    /// Whether a machine with this bug thinks that the entity is at rest.
    pub(super) fn misjudge(&mut self, at_rest: bool) {
        self.quiescent = match self.options.planted {
            KernelBug::AckAnchorEarly => self.claimed,
            KernelBug::AckBeforeTombstone => at_rest,
            KernelBug::AckBeforeEmit => self.core().is_some() && self.only_emits(),
            _ => self.quiescent,
        };
    }

    /// A machine with this bug takes the timers that it finds decided to be set.
    pub(super) fn forget_timers(&mut self) {
        let ActivationPhase::Whole(entity) = &self.body else { return };
        if self.planted(KernelBug::ProviderWaitForgotten) {
            let is_wait = |effect: &K::Effect| format!("{effect:?}").starts_with("Outage {");
            self.confirmed.extend(K::decide(&entity.state).into_iter().filter(is_wait));
        } else if self.planted(KernelBug::TimersNotSetAgain) {
            let wanted = K::decide(&entity.state);
            // A counter's only effects are timers.
            let is_counter = K::KIND == Counter::KIND;
            let of_time =
                |effect: &K::Effect| is_counter || format!("{effect:?}").starts_with("Time {");
            self.confirmed.extend(wanted.into_iter().filter(of_time));
        }
    }

    fn only_emits(&self) -> bool {
        let ActivationPhase::Whole(entity) = &self.body else { return false };
        K::decide(&entity.state).iter().all(|one| K::class(one) != EffectKind::Call)
    }

    /// The events that a machine with this bug records of an outcome: without a hook's decisions,
    /// though they take effect.
    pub(super) fn unjournaled(&mut self, events: Vec<K::Event>) -> Vec<K::Event> {
        if !self.planted(KernelBug::HookUnjournaled) {
            return events;
        }
        let ActivationPhase::Whole(entity) = &mut self.body else { return events };
        let (hooked, written): (Vec<_>, Vec<_>) =
            events.into_iter().partition(|event| event.kind().ends_with("_hooked"));
        let tail = entity.core.tail;
        for event in hooked {
            let head = Head {
                entity: self.id,
                n: tail.n,
                v: VERSION,
                eid: EventId::derive(self.id, self.incarnation, tail.n),
                epoch: tail.epoch,
                incarnation: self.incarnation,
                ts: tail.ts,
                kind: event.kind().to_owned(),
                required: event.required(),
                progress: event.progress(),
            };
            if K::fold(&mut entity.state, &head, &event).is_err() {
                break;
            }
        }
        written
    }

    /// Keeps the state that an append is based on.
    pub(super) fn keep_base(&mut self) {
        let redrafts = self.planted(KernelBug::RetryWithNewBytes)
            || self.planted(KernelBug::AbsentMeansFailed);
        if redrafts && self.draft.is_empty() {
            self.base = match &self.body {
                ActivationPhase::Whole(entity) => Some(copy(entity)),
                ActivationPhase::Unread
                | ActivationPhase::Headers(..)
                | ActivationPhase::Damaged { .. }
                | ActivationPhase::Stopped => None,
            };
        }
    }

    /// How a machine with this bug reads an answer.
    pub(super) fn misread_answer(
        &mut self,
        answer: &AppendAnswer,
        verdict: AppendVerdict,
    ) -> Result<Option<AppendVerdict>, ActivationEnd> {
        match (self.options.planted, answer) {
            (KernelBug::FoldInconclusive, AppendAnswer::Refused) => {
                let Busy::Appending(flight) = &self.busy else { return Ok(None) };
                Ok(Some(AppendVerdict::Stored(Position(flight.expected.0 + 1))))
            }
            (KernelBug::RetryWithNewBytes, AppendAnswer::Unknown(_)) => {
                self.redraft(Redraft::NewBytes)?;
                Ok(Some(verdict))
            }
            (KernelBug::AbsentMeansFailed, AppendAnswer::Unknown(_)) => {
                Ok(Some(AppendVerdict::ReadBack))
            }
            _ => Ok(Some(verdict)),
        }
    }

    /// How a machine with this bug reads records; none if it has dealt with them.
    pub(super) fn misread_records(
        &mut self,
        after_expected: &[Record],
        tail: Position,
        verdict: AppendVerdict,
    ) -> Result<Option<AppendVerdict>, ActivationEnd> {
        match self.options.planted {
            KernelBug::AbsentMeansFailed if after_expected.is_empty() && self.base.is_some() => {
                self.redraft(Redraft::Anew)?;
                Ok(None)
            }
            KernelBug::ActsFenced if verdict == AppendVerdict::Fenced => {
                let Busy::Appending(flight) = &self.busy else { return Ok(None) };
                let first = after_expected.first();
                let is_own = |record: &&Record| {
                    of_read_back(flight.first, std::slice::from_ref(*record))
                        != AppendVerdict::Fenced
                };
                let own = first.filter(is_own).map(|record| AppendVerdict::Stored(record.position));
                Ok(Some(own.unwrap_or(verdict)))
            }
            KernelBug::RebaseOnConflict if verdict == AppendVerdict::Fenced => {
                if let Busy::Appending(flight) = &mut self.busy {
                    flight.expected = tail;
                }
                Ok(Some(AppendVerdict::Resend))
            }
            _ => Ok(Some(verdict)),
        }
    }

    /// Drafts the append in flight again, under the same event ids.
    fn redraft(&mut self, how: Redraft) -> Result<(), ActivationEnd> {
        let Some(base) = self.base.as_ref().map(copy) else { return Ok(()) };
        let drafted = std::mem::take(&mut self.draft);
        self.draft_bytes = 0;
        self.body = ActivationPhase::Whole(base);
        match how {
            Redraft::NewBytes => {
                let mut again = Vec::new();
                for sealed in drafted {
                    again.push(self.reseal(sealed)?);
                }
                let bytes = encode_record(&again)
                    .map_err(|error| ActivationEnd::Defect(error.to_string()))?;
                self.draft = again;
                if let Busy::Appending(flight) = &mut self.busy {
                    flight.write = Write { bytes: bytes.into(), rollup: flight.write.rollup };
                }
            }
            Redraft::Anew => {
                for out in std::mem::take(&mut self.staged) {
                    if let MachineOutput::Start(key, _) = out {
                        self.running.remove(&key);
                    }
                }
                for sealed in drafted.iter().rev() {
                    if let Ok(Some(KernelEvent::Accepted(accepted))) = sealed.event() {
                        self.queue.push_front(accepted.input);
                    }
                }
                self.busy = Busy::No;
            }
        }
        Ok(())
    }

    fn reseal(&mut self, sealed: Sealed) -> Result<Sealed, ActivationEnd> {
        let now = self.now.wall;
        let ActivationPhase::Whole(entity) = &mut self.body else { return Ok(sealed) };
        let head = clawnode_proto::Head { ts: now.max(entity.core.tail.ts), ..sealed.head };
        let again = Sealed::seal(head, &Encoded(sealed.body), entity.core.tail.hash)
            .map_err(|error| ActivationEnd::Defect(error.to_string()))?;
        Entity::apply(entity, &again).map_err(|error| ActivationEnd::Defect(error.to_string()))?;
        Ok(again)
    }
}

/// A clone that does not ask the kind itself to be one.
fn copy<K: EntityKind>(entity: &Entity<K>) -> Entity<K> {
    Entity {
        id: entity.id,
        core: entity.core.clone(),
        state: entity.state.clone(),
        folded: entity.folded,
    }
}
