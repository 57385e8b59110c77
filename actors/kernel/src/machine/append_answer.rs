//! The append in flight: what its answer means, and what follows once it is stored.

use clawnode_cluster::{
    AppendAnswer, Record,
    outcome::{self, AppendVerdict},
};
use clawnode_proto::Position;

use super::{
    ActivationEnd, ActivationPhase, Busy, Core, DIVERGED_AFTER, Entity, EntityKind, LoadedJournal,
    Machine, MachineOutput, RESEND_FIRST, RESEND_MOST, Service,
};

impl<K: EntityKind> Machine<K> {
    pub(super) fn answered(&mut self, answer: &AppendAnswer) -> Result<(), ActivationEnd> {
        let verdict = outcome::of_answer(answer);
        #[cfg(feature = "test-util")]
        let Some(verdict) = self.misread_answer(answer, verdict)? else { return Ok(()) };
        self.verdict(verdict)
    }

    pub(super) fn read_back(
        &mut self,
        after_expected: &[Record],
        tail: Position,
    ) -> Result<(), ActivationEnd> {
        let Busy::Appending(flight) = &mut self.busy else { return Ok(()) };
        if after_expected.is_empty() && tail < flight.expected {
            let since = *flight.refused_since.get_or_insert(self.now.steady);
            if self.now.steady.since(since) >= DIVERGED_AFTER {
                return Err(ActivationEnd::Diverged(format!(
                    "the journal ends at {tail}, but {} was acknowledged",
                    flight.expected
                )));
            }
        } else {
            flight.refused_since = None;
        }
        let verdict = outcome::of_read_back(flight.first, after_expected);
        #[cfg(feature = "test-util")]
        let Some(verdict) = self.misread_records(after_expected, tail, verdict)? else {
            return Ok(());
        };
        self.verdict(verdict)
    }

    fn verdict(&mut self, verdict: AppendVerdict) -> Result<(), ActivationEnd> {
        let Busy::Appending(flight) = &mut self.busy else { return Ok(()) };
        match verdict {
            AppendVerdict::Stored(position) => {
                let record = Record { position, bytes: flight.write.bytes.clone() };
                let events = flight.events;
                self.position = position;
                self.growth.stored(flight.write.bytes.len(), flight.write.rollup);
                self.busy = Busy::No;
                self.claimed = true;
                if let (Some(process), Some(core)) = (self.predecessor.take(), self.core()) {
                    let epoch = core.tail.epoch;
                    self.out.push(MachineOutput::TellFenced { process, epoch });
                }
                self.idle_since = self.now.steady;
                self.sent(events);
                self.stored(record)?;
                if !self.draft.is_empty() {
                    // Outputs that follow from the draft wait until all of it is stored.
                    return self.flush(false);
                }
                self.out.append(&mut self.staged);
                if let Some(blobs) = self.scrub.take() {
                    self.busy = Busy::Scrubbing;
                    self.out.push(MachineOutput::Scrub(blobs));
                }
                Ok(())
            }
            AppendVerdict::Fenced => Err(ActivationEnd::Fenced),
            AppendVerdict::ReadBack => {
                self.out.push(MachineOutput::ReadBack { after: flight.expected });
                Ok(())
            }
            AppendVerdict::Resend => {
                let wait = RESEND_FIRST.saturating_mul(1 << flight.tries.min(10)).min(RESEND_MOST);
                flight.tries = flight.tries.saturating_add(1);
                self.out.push(MachineOutput::Append {
                    wait,
                    expected: flight.expected,
                    write: flight.write.clone(),
                });
                Ok(())
            }
            AppendVerdict::Defect(detail) => Err(ActivationEnd::Defect(detail)),
        }
    }

    /// The claim is conclusive: the journal is folded whole now.
    fn stored(&mut self, record: Record) -> Result<(), ActivationEnd> {
        if let ActivationPhase::Headers(core, loaded) = &mut self.body {
            loaded.records.push(record);
            if !matches!(core.service, Service::Quarantined { .. }) {
                let (core, loaded) = (core.clone(), std::mem::take(loaded));
                self.fold(core, &loaded)?;
            }
        }
        Ok(())
    }

    /// Folds the journal, whose headers are `core`.
    pub(super) fn fold(&mut self, core: Core, loaded: &LoadedJournal) -> Result<(), ActivationEnd> {
        self.body = match Entity::of(self.id, loaded) {
            Ok(entity) => {
                self.inherited = K::decide(&entity.state).into_iter().collect();
                ActivationPhase::Whole(entity)
            }
            Err(error) => match self.left_to(&error) {
                Some(needs) => return Err(ActivationEnd::TooNew(needs)),
                None => ActivationPhase::damaged(core, &error),
            },
        };
        #[cfg(feature = "test-util")]
        self.forget_timers();
        Ok(())
    }
}
