//! Processes that die while calls of their sessions have reserved and are not sent: before the append of their hold is
//! stored (C5), and between that append and the call (C5b).

use clawnode_budget::holder::Reservation;
use clawnode_proto::{ProcessId, budget::Hold, event::decode_record, session::SessionEvent};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{FATE, Sim, process::PlannedNote};

/// How often the process of a call dies that has just reserved, where processes do.
const DIES: f64 = 0.9;
/// How soon it dies, at most, in milliseconds: an append and its answer take up to 24, unless the network is slow.
const WITHIN: u64 = 24;

impl Sim {
    /// A call of a session has reserved, and its process may die of it. Each call has a random stream of its own.
    pub(super) fn plan_death(&mut self, process: ProcessId, call: Reservation) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.plan.seed.rotate_left(32) ^ call.0);
        if !rng.random_bool(DIES) {
            return;
        }
        let about = self.about(|| format!("the process of call {} dies", call.0));
        let dies = PlannedNote::own(about, move |sim| {
            let lives = sim.processes.contains_key(&process);
            if lives && !sim.calm { sim.kill(process) } else { Ok(()) }
        });
        self.world.later(FATE, rng.random_range(0..WITHIN), dies);
    }

    /// Counts the calls of a process that dies now which have reserved and were not sent.
    pub(super) fn counts_unsent(&mut self, process: ProcessId) {
        if self.plan.local {
            // A power cut may still take the append away.
            return;
        }
        for (entity, holds) in self.session_holds.unsent(process) {
            let points = &mut self.budget_tally.points;
            let records = self.world.journal(entity);
            if records.iter().any(|record| has_held(&record.bytes, process, holds)) {
                points.unsent += 1;
            } else {
                points.unappended += 1;
            }
        }
    }
}

/// Whether a call of this process has recorded in this append that it has reserved this.
fn has_held(record: &[u8], process: ProcessId, holds: &[Hold]) -> bool {
    let events = decode_record(record).unwrap_or_default();
    events.iter().any(|sealed| match sealed.event::<SessionEvent>() {
        Ok(Some(SessionEvent::BudgetHeld(held))) => held.process == process && held.holds == holds,
        _ => false,
    })
}
