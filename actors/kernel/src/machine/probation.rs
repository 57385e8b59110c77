//! An entity that may have killed its process: what follows if it is tried alone, and when it is put out of service.

use clawnode_proto::{
    Timestamp,
    kernel::{KernelEvent, Quarantined},
    limits::{CLAIMS_BEFORE_PROBATION, CLAIMS_WITHOUT_PROGRESS},
};

use super::{
    Activation, ActivationEnd, ActivationPhase, Busy, CallGrant, EntityKind, Machine,
    MachineOutput, Probation,
};

impl<K: EntityKind> Machine<K> {
    /// It is this entity's turn to be tried. If the process dies with it in hand, that counts
    /// against it. If it was not in hand, it does not, and then it is claimed only when there is
    /// something to append.
    pub(super) fn on_probation(
        &mut self,
        now: Timestamp,
        blamed: bool,
    ) -> Result<(), ActivationEnd> {
        if self.probation != Probation::Asked {
            return Ok(());
        }
        self.probation = Probation::On;
        let ActivationPhase::Headers(core, loaded) = &mut self.body else { return Ok(()) };
        let claims = core.claims_without_progress;
        let blamed = blamed || self.activation == Activation::Died;
        if blamed && claims >= CLAIMS_WITHOUT_PROGRESS {
            let reason = format!("claimed {claims} times without progress");
            self.claim_first(now)?;
            self.seal(now, &KernelEvent::from(Quarantined { reason }))?;
            return self.flush(false);
        }
        // The activation before the first probation was not noted as in hand.
        if blamed || claims == CLAIMS_BEFORE_PROBATION {
            self.claim_first(now)?;
            return self.flush(false);
        }
        self.excused = true;
        let (core, loaded) = (core.clone(), std::mem::take(loaded));
        self.fold(core, &loaded)
    }

    /// Says so once all the work that the entity begins with has begun.
    pub(super) fn leave_probation(&mut self) {
        let asked = self.admissions.values().any(|one| matches!(one, CallGrant::Asked));
        let begun =
            matches!((&self.body, &self.busy), (ActivationPhase::Whole(_), Busy::No)) && !asked;
        if self.probation == Probation::On && begun {
            self.probation = Probation::No;
            self.out.push(MachineOutput::LeaveProbation { runs: !self.running.is_empty() });
        }
    }
}
