//! Which worker holds the scopes of a person: the one that ranks first for the person's memory.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use clawnode_cluster::{Peek as _, membership::Members, placement};
use clawnode_proto::{EntityId, Partition, ProcessId, memory::MemoryKey};
use tokio::{sync::watch, time::Instant};

use crate::store::StoreScope;

/// How long a process is not asked again that did not answer, at first and at most.
const SILENT: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));
/// Processes that are remembered as silent.
const SILENT_MOST: usize = 64;

/// The workers as one process sees them.
#[derive(Debug)]
pub(super) struct ScopeRanks {
    me: ProcessId,
    members: watch::Receiver<Members>,
    silent: Mutex<BTreeMap<ProcessId, SilentHolder>>,
}

/// A process that did not answer: it is frozen, about to be held dead, or older than the request.
#[derive(Clone, Copy, Debug)]
struct SilentHolder {
    wait: Duration,
    /// When it is asked again.
    until: Instant,
}

/// The entity whose rank says which worker holds a scope: the memory of its person. What all persons share has none, so each
/// process has it.
pub(super) fn home(scope: &StoreScope) -> Option<EntityId> {
    let person = match (scope.memory(), scope.session()) {
        (Some(memory @ MemoryKey::Peer { .. }), _) => memory,
        (None, Some(session)) => MemoryKey::of_peer(&session),
        _ => return None,
    };
    Some(person.entity())
}

// === impl ScopeRanks ===

impl ScopeRanks {
    pub(super) fn new(me: ProcessId, members: watch::Receiver<Members>) -> Self {
        Self { me, members, silent: Mutex::default() }
    }

    /// The other process that ranks first for a partition. None if this one does, if it does not know the others yet, or if
    /// the first one does not answer at present.
    pub(super) fn holder(&self, partition: Partition) -> Option<ProcessId> {
        self.first_other(partition).filter(|first| !self.is_silent(*first))
    }

    /// Whether this process keeps what it has of a partition. After another one did not answer, it does so for twice as long
    /// as it does not ask: one that never answers is asked now and then, and nothing is to be built again after each time.
    pub(super) fn holds(&self, partition: Partition) -> bool {
        let was_silent = |first: ProcessId| {
            let silent = self.silent().get(&first).copied();
            silent.is_some_and(|silent| Instant::now() < silent.until + silent.wait)
        };
        self.first_other(partition).is_none_or(was_silent)
    }

    /// The other process that ranks first, whether it answers or not.
    fn first_other(&self, partition: Partition) -> Option<ProcessId> {
        let first = self.members.peek(|members| {
            let seats = members.settled.then(|| members.seats())?;
            let live: Vec<ProcessId> = seats.iter().map(|seat| seat.process).collect();
            placement::first(partition, &live)
        })?;
        (first != self.me).then_some(first)
    }

    /// Whether this process knows the others.
    pub(super) fn are_known(&self) -> bool {
        self.members.peek(|members| members.settled)
    }

    fn is_silent(&self, process: ProcessId) -> bool {
        self.silent().get(&process).is_some_and(|silent| Instant::now() < silent.until)
    }

    /// It has answered.
    pub(super) fn answers(&self, process: ProcessId) {
        self.silent().remove(&process);
    }

    /// It did not answer: it is not asked again for a while, which grows.
    pub(super) fn is_late(&self, process: ProcessId) {
        let now = Instant::now();
        let mut silent = self.silent();
        let wait = silent.get(&process).map_or(SILENT.0, |known| {
            // Of searches that wait at the same time, one counts.
            if now < known.until { known.wait } else { SILENT.1.min(known.wait * 2) }
        });
        if silent.len() >= SILENT_MOST {
            silent.clear();
        }
        silent.insert(process, SilentHolder { wait, until: now + wait });
    }

    fn silent(&self) -> MutexGuard<'_, BTreeMap<ProcessId, SilentHolder>> {
        self.silent.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home_of(scope: &str) -> Option<EntityId> {
        home(&StoreScope::read(scope).unwrap())
    }

    #[test]
    fn a_person_has_one_home_and_what_is_shared_has_none() {
        let ada = home_of("memory/a/peer/web:bot:ada");
        assert!(ada.is_some());
        assert_eq!(home_of("session/a:web:bot:ada"), ada);
        assert_eq!(home_of("session/a:web:bot:ada~1"), ada, "another conversation");
        assert_ne!(home_of("session/b:web:bot:ada"), ada, "of another agent");
        assert_eq!((home_of("memory/a/all"), home_of("memory/shared/team")), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_does_not_answer_is_asked_less_and_less_often() {
        let (_members, heard) = watch::channel(Members::default());
        let ranks = ScopeRanks::new(ProcessId::from_u128(1), heard);
        let other = ProcessId::from_u128(2);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert!(!ranks.is_silent(other));
            for _ in 0..3 {
                ranks.is_late(other);
            }
            tokio::time::advance(Duration::from_millis(seconds * 1_000 - 1)).await;
            assert!(ranks.is_silent(other), "{seconds} s");
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        ranks.answers(other);
        ranks.is_late(other);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!ranks.is_silent(other), "it has answered meanwhile");
    }
}
