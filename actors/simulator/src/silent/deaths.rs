//! Processes that die of silent calls: while a model looks back at a turn, as often as it may be asked, and once the journal
//! has what it found and the memory may not have it. Then people delete the session, before another process has it.

use clawnode_proto::{
    Attempt, CallId, EntityId, ProcessId, Sealed, SessionKey,
    session::{Reflected, SessionEvent, SessionInput},
};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::{FATE, Sim, clients::session_key, process::PlannedNote};

/// How likely processes die of a call: then of each attempt. Or of its end.
const DIES: f64 = 0.5;
/// How soon a process dies, at most, in milliseconds: before most calls end, and before a memory answers.
const WITHIN: u64 = 12;
/// How soon people delete the session after that, at most: it takes longer until a process is held dead.
const DELETES_WITHIN: u64 = 400;
/// Processes that die so in one world, also once other faults have stopped: most models look back after that.
const DEATHS_MOST: usize = 12;
/// Attempts that processes die of: no further one may be begun (C6).
const ATTEMPTS: u32 = 2;

impl Sim {
    /// A random stream for what befalls a call, so that it does not shift what happens besides.
    fn chance_of(&self, call: CallId, salt: u64) -> ChaCha8Rng {
        let low = u64::try_from(call.as_u128() & u128::from(u64::MAX)).unwrap_or_default();
        ChaCha8Rng::seed_from_u64(self.plan.seed.rotate_left(32) ^ low ^ salt)
    }

    /// A silent call is sent, and its process may die of it.
    pub(super) fn dies_of_call(&mut self, process: ProcessId, call: CallId, attempt: Attempt) {
        if !self.plan.silent.dies || attempt.0 > ATTEMPTS {
            return;
        }
        let mut rng = self.chance_of(call, 0);
        if rng.random_bool(DIES) {
            self.dies_soon(process, call, rng.random_range(1..WITHIN));
        }
    }

    /// The journal has more: the process that wrote what a model found may die before the memory has it, and a person deletes
    /// the session meanwhile.
    pub(super) fn dies_of_ends(&mut self, entity: EntityId, events: &[Sealed]) {
        if !self.plan.silent.dies {
            return;
        }
        for sealed in events {
            let Ok(Some(SessionEvent::Reflected(done))) = sealed.event::<SessionEvent>() else {
                continue;
            };
            let mut rng = self.chance_of(done.call, 1);
            if has_found(&done) && rng.random_bool(DIES) {
                let process = sealed.head.incarnation.process;
                self.dies_soon(process, done.call, rng.random_range(0..WITHIN));
                if let Some(session) = self.session_of(entity) {
                    let name = format!("deletes-{}", done.call);
                    let after = rng.random_range(0..DELETES_WITHIN);
                    self.hears_after(&session, &name, &SessionInput::Delete, after);
                }
            }
        }
    }

    fn dies_soon(&mut self, process: ProcessId, call: CallId, after: u64) {
        let about = self.about(|| format!("the process of {call} dies"));
        let dies = PlannedNote::own(about, move |sim| {
            if !sim.processes.contains_key(&process) || sim.silent.deaths == DEATHS_MOST {
                return Ok(());
            }
            sim.silent.deaths += 1;
            sim.kill(process)
        });
        self.world.later(FATE, after, dies);
    }

    fn session_of(&self, entity: EntityId) -> Option<SessionKey> {
        let mut keys = (0..self.plan.sessions).filter_map(session_key);
        keys.find(|key| key.entity() == entity)
    }
}

/// Whether there is something that a memory is to have.
fn has_found(done: &Reflected) -> bool {
    !done.lessons.is_empty() || !done.facts.is_empty()
}
