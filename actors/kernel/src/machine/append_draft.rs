//! Drafting: how events become one append, and which of them come first after a journal is loaded.

use bytes::Bytes;
use clawnode_cluster::Write;
use clawnode_proto::{
    EventId, Grammar, Head, Input, Sealed, Timestamp,
    event::{self, encode_record},
    kernel::{Born, CLAIM, Claim, KernelEvent, Released},
    limits::{APPEND_BYTES, CLAIMS_BEFORE_PROBATION},
};

use super::{
    Activation, ActivationEnd, ActivationPhase, Busy, Core, Entity, EntityKind, InFlight,
    LoadedJournal, Machine, MachineOutput, Probation, Service, snapshots::Growth,
};
#[cfg(feature = "test-util")]
use crate::KernelBug;
use crate::{FoldError, MissingCapability, archive::snapshot_of, core::position_of};

/// Bytes that a record takes beside its events, at most.
const RECORD_FRAME: usize = 16;

impl<K: EntityKind> Machine<K> {
    /// The journal is here: claim first, fold first, or put the entity out of service.
    pub(super) fn loaded(
        &mut self,
        now: Timestamp,
        loaded: LoadedJournal,
    ) -> Result<(), ActivationEnd> {
        if !matches!(self.body, ActivationPhase::Unread) {
            return Ok(());
        }
        self.position = position_of(&loaded.records);
        self.growth = Growth::of(&loaded);
        let options = self.options;
        let (core, broken) = match Core::of(self.id, &loaded, &|kind| options.knows::<K>(kind)) {
            Ok(core) => (core, None),
            Err(error) => match self.left_to(&error) {
                Some(needs) => return Err(ActivationEnd::TooNew(needs)),
                None => (Core::salvaged(self.id, &loaded), Some(error)),
            },
        };
        #[cfg(feature = "test-util")]
        if let Some(kind) = options.unread::<K>(&loaded) {
            return Err(ActivationEnd::TooNew(MissingCapability::Newer(kind)));
        }
        self.predecessor = core
            .incarnation
            .map(|last| last.process)
            .filter(|process| !core.released && *process != self.incarnation.process);
        if let Some(kind) = core.kind.filter(|kind| *kind != K::KIND) {
            // Only an order about a journal whose birth could not be read comes here.
            let found = format!("it is of the kind `{kind}`, not `{}`", K::KIND);
            return Err(ActivationEnd::Corrupt(found));
        }
        let may_claim = self.previous_owner.may_claim(self.predecessor);
        #[cfg(feature = "test-util")]
        let may_claim = may_claim || self.planted(KernelBug::PreviousOwnerIgnored);
        if let Some(error) = broken {
            // If the journal only has unknown events, its last writer is certain.
            if error.needs().is_some() && !may_claim {
                return Err(ActivationEnd::Fenced);
            }
            // Which process wrote last is a guess here. Only a deletion that a person ordered may
            // follow, and if another process was faster, the position fences this one.
            self.body = ActivationPhase::damaged(core, &error);
            return Ok(());
        }
        if !may_claim {
            // Another process was faster, and may be in the middle of a call.
            return Err(ActivationEnd::Fenced);
        }
        if core.service == Service::Deleted {
            // The process that deleted it may have died before this was removed.
            let superseded = snapshot_of(&loaded.records).and_then(|snapshot| snapshot.superseded);
            self.scrub = superseded.filter(|blobs| !blobs.is_empty());
        }
        self.scrub_purged(&core, &loaded);
        let quarantined = matches!(core.service, Service::Quarantined { .. });
        let claims = core.claims_without_progress;
        let fold_at_once = claims == 0 && self.activation == Activation::Fresh && !quarantined;
        #[cfg(feature = "test-util")]
        let fold_at_once = fold_at_once || (self.planted(KernelBug::FoldsFirst) && !quarantined);
        if fold_at_once {
            return self.fold(core, &loaded);
        }
        // Reading may kill the process, too: an entity that may have done so is claimed before.
        let suspect =
            quarantined || claims >= CLAIMS_BEFORE_PROBATION || self.activation == Activation::Died;
        if !suspect
            && let Err(error) = Entity::<K>::reads(self.id, &loaded)
            && error.needs().is_some()
        {
            return self.unread(core, &error);
        }
        self.body = ActivationPhase::Headers(core, loaded);
        if quarantined {
            return Ok(());
        }
        if claims >= CLAIMS_BEFORE_PROBATION {
            self.probation = Probation::Asked;
            self.out.push(MachineOutput::EnterProbation);
            return Ok(());
        }
        // Folding may kill the process, so the claim is stored before.
        self.claim_first(now)?;
        self.flush(false)
    }

    /// This build cannot read all of it.
    fn unread(&mut self, core: Core, error: &FoldError) -> Result<(), ActivationEnd> {
        if let Some(needs) = self.left_to(error) {
            return Err(ActivationEnd::TooNew(needs));
        }
        self.body = ActivationPhase::damaged(core, error);
        Ok(())
    }

    /// What another process must know so that this one leaves the entity to it. An orphan is only
    /// left if its kind is another: it may be waiting for its deletion.
    pub(super) fn left_to(&self, error: &FoldError) -> Option<MissingCapability> {
        let needs = error.needs()?;
        let stays =
            self.activation == Activation::Orphan && !matches!(needs, MissingCapability::Kind(_));
        (!stays).then_some(needs)
    }

    /// Adds one event to the draft and folds it.
    pub(super) fn seal<G: Grammar>(
        &mut self,
        now: Timestamp,
        event: &G,
    ) -> Result<(), ActivationEnd> {
        let defect = |error: &dyn std::fmt::Display| ActivationEnd::Defect(error.to_string());
        #[cfg(feature = "test-util")]
        self.keep_base();
        let unclaimed = !self.claimed && self.draft.is_empty() && event.kind() != CLAIM;
        #[cfg(feature = "test-util")]
        let unclaimed = unclaimed
            && !(self.planted(KernelBug::WriteWithoutClaim)
                && self.core().is_some_and(|core| core.incarnation.is_some()));
        if unclaimed {
            self.claim_first(now)?;
        }
        let tail = match self.core() {
            Some(core) => core.tail,
            None => {
                return Err(ActivationEnd::Defect(
                    "drafted before the journal was read".to_owned(),
                ));
            }
        };
        let n = tail.n.next();
        let claims = event.kind() == CLAIM;
        #[cfg(feature = "test-util")]
        let claims =
            claims && !(self.planted(KernelBug::ClaimWithoutEpochBump) && tail.epoch.0 > 0);
        let head = Head {
            entity: self.id,
            n,
            v: event::VERSION,
            eid: EventId::derive(self.id, self.incarnation, n),
            epoch: if claims { tail.epoch.next() } else { tail.epoch },
            incarnation: self.incarnation,
            ts: now.max(tail.ts),
            kind: event.kind().to_owned(),
            required: event.required(),
            progress: event.progress(),
        };
        let sealed = Sealed::seal(head, event, tail.hash).map_err(|error| defect(&error))?;
        self.draft_bytes += sealed.len();
        match &mut self.body {
            ActivationPhase::Whole(entity) => {
                entity.apply(&sealed).map_err(|error| corrupt_draft(&error))?;
            }
            ActivationPhase::Headers(core, _) | ActivationPhase::Damaged { core, .. } => {
                core.apply(self.id, &sealed).map_err(|error| corrupt_draft(&error))?;
            }
            ActivationPhase::Unread | ActivationPhase::Stopped => {}
        }
        self.draft.push(sealed);
        Ok(())
    }

    /// Every writer claims first; riders go into the same append.
    pub(super) fn claim_first(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        let claim = Claim { excused: self.excused };
        self.seal(now, &KernelEvent::from(claim))
    }

    /// Whether this input is for an entity that is gone, or never was: it came too late, and a new
    /// entity does not begin with it.
    pub(super) fn late(&self, input: &Input) -> bool {
        self.core().is_some_and(|core| core.key.is_none())
            && input.order.is_none()
            && !K::begins(input)
    }

    /// The birth of an entity that has none, from the first input it gets.
    pub(super) fn birth(&mut self, now: Timestamp, input: &Input) -> Result<(), ActivationEnd> {
        let Some(core) = self.core().filter(|core| core.key.is_none() && input.order.is_none())
        else {
            return Ok(());
        };
        let again = core.deletion().and_then(K::begun_again);
        let born = Born { kind: input.kind, key: input.key.clone() };
        self.seal(now, &KernelEvent::from(born))?;
        again.map_or(Ok(()), |again| self.seal(now, &again))
    }

    /// The draft may be cut here: events after it need not be stored together with those before it.
    pub(super) fn cut(&mut self) {
        if !self.draft.is_empty() {
            self.cuts.push(self.draft.len());
        }
    }

    /// How many events of the draft go into the next append: all, unless they do not fit.
    fn fitting(&self) -> usize {
        if self.draft_bytes + RECORD_FRAME <= APPEND_BYTES {
            return self.draft.len();
        }
        let (mut bytes, mut best) = (RECORD_FRAME, None);
        for (at, sealed) in self.draft.iter().enumerate() {
            if self.cuts.contains(&at) && (best.is_none() || bytes <= APPEND_BYTES) {
                best = Some(at);
            }
            bytes += sealed.len();
        }
        best.unwrap_or(self.draft.len())
    }

    /// This many events of the draft are stored.
    pub(super) fn sent(&mut self, events: usize) {
        if events >= self.draft.len() {
            self.draft.clear();
            self.draft_bytes = 0;
            self.cuts.clear();
            return;
        }
        self.draft_bytes -= self.draft.drain(..events).map(|sealed| sealed.len()).sum::<usize>();
        self.cuts.retain(|at| *at > events);
        for at in &mut self.cuts {
            *at -= events;
        }
    }

    /// Sends the draft off as one append, or the part of it that fits into one.
    pub(super) fn flush(&mut self, rollup: bool) -> Result<(), ActivationEnd> {
        let Some(first) = self.draft.first() else { return Ok(()) };
        let first = first.head.eid;
        let events = self.fitting();
        let part = self.draft.get(..events).unwrap_or(&self.draft);
        let bytes =
            encode_record(part).map_err(|error| ActivationEnd::Defect(error.to_string()))?;
        if bytes.len() > APPEND_BYTES {
            return Err(ActivationEnd::Defect(format!(
                "an append of {} bytes is over the limit of {APPEND_BYTES}",
                bytes.len()
            )));
        }
        let write = Write { bytes: Bytes::from(bytes), rollup };
        self.out.push(MachineOutput::Append {
            wait: std::time::Duration::ZERO,
            expected: self.position,
            write: write.clone(),
        });
        self.busy = Busy::Appending(InFlight {
            expected: self.position,
            write,
            first,
            events,
            tries: 0,
            refused_since: None,
        });
        #[cfg(feature = "test-util")]
        if self.planted(KernelBug::ActBeforeAppend) {
            self.out.append(&mut self.staged);
        }
        #[cfg(feature = "test-util")]
        if self.planted(KernelBug::AnswersBeforeAppend) {
            let starts = |out: &mut MachineOutput<K>| matches!(out, MachineOutput::Start(..));
            self.out.extend(self.staged.extract_if(.., starts));
        }
        Ok(())
    }

    /// Gives the entity up, unforced.
    pub(super) fn release(&mut self, now: Timestamp) -> Result<(), ActivationEnd> {
        for rider in std::mem::take(&mut self.riders) {
            self.seal(now, &KernelEvent::from(rider))?;
        }
        self.seal(now, &KernelEvent::from(Released {}))?;
        self.flush(false)
    }
}

/// If the fold refuses an event of its own, this program has a defect; it is not damage.
fn corrupt_draft(error: &crate::FoldError) -> ActivationEnd {
    ActivationEnd::Defect(clawnode_proto::ErrorChain(error).to_string())
}
