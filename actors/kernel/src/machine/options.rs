//! How an activation treats its entity.

use std::time::Duration;

use clawnode_proto::Grammar as _;

use crate::EntityKind;

/// How an activation treats its entity.
#[derive(Clone, Copy, Debug)]
pub struct MachineOptions {
    /// Idle this long, it leaves memory (default 60 s): shorter costs a read per message, longer
    /// costs memory.
    pub passivate_after: Duration,
    /// A snapshot replaces the journal after this many events (default 200) at the earliest, and
    /// once the journal is as large as its last state: fewer costs writes, more costs reads at
    /// activation.
    pub snapshot_every: u64,
    /// Kinds of events that this process does not know, so that a test has an older version.
    #[cfg(feature = "test-util")]
    pub hides: &'static [&'static str],
    /// Protocol bugs for the simulator to find; none in production.
    #[cfg(feature = "test-util")]
    pub planted: crate::KernelBug,
}

impl Default for MachineOptions {
    fn default() -> Self {
        Self {
            passivate_after: Duration::from_mins(1),
            snapshot_every: 200,
            #[cfg(feature = "test-util")]
            hides: &[],
            #[cfg(feature = "test-util")]
            planted: crate::KernelBug::default(),
        }
    }
}

impl MachineOptions {
    /// Whether a kind of event is known to this process, the kernel's kinds apart.
    pub fn knows<K: EntityKind>(&self, kind: &str) -> bool {
        #[cfg(feature = "test-util")]
        if self.hides.contains(&kind) {
            return false;
        }
        K::Event::knows(kind)
    }

    /// The first kind of events in the journal whose bodies this process does not read, so that a
    /// test has an older version: `hides` names it as `KIND/body`.
    #[cfg(feature = "test-util")]
    pub(super) fn unread<K: EntityKind>(&self, loaded: &crate::LoadedJournal) -> Option<String> {
        let bodies: Vec<&str> =
            self.hides.iter().filter_map(|hidden| hidden.strip_suffix("/body")).collect();
        let records = loaded.records.iter().filter(|_| !bodies.is_empty());
        let events = records
            .filter_map(|record| clawnode_proto::event::decode_record(&record.bytes).ok())
            .flatten();
        let mut kinds = events.map(|sealed| sealed.head.kind);
        kinds.find(|kind| K::Event::knows(kind) && bodies.contains(&kind.as_str()))
    }
}
