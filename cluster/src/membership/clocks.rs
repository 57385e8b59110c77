//! Whose clock is wrong. Nothing is decided by it: people are told.

use std::collections::BTreeMap;

use clawnode_proto::{ProcessId, Timestamp};

/// Milliseconds by which clocks may differ before people are told. Servers of time keep hosts within
/// milliseconds; a heartbeat that waits on a busy host makes its sender look late.
pub const CLOCKS_APART_MS: i64 = 5_000;

/// By how much each process is ahead of the clock here, in milliseconds, as its last heartbeat has it.
/// The own heartbeat counts as well: what waits here makes all of them look late alike.
#[derive(Debug, Default)]
pub(super) struct Clocks(BTreeMap<ProcessId, i64>);

// === impl Clocks ===

impl Clocks {
    /// Takes the time that a heartbeat was sent at, by its sender, and the time here as it was heard.
    pub(super) fn hear(&mut self, process: ProcessId, said: Timestamp, here: Timestamp) {
        let ms = |time: Timestamp| i64::try_from(time.0).unwrap_or(i64::MAX);
        self.0.insert(process, ms(said).saturating_sub(ms(here)));
    }

    /// Those of processes that are held alive are kept.
    pub(super) fn retain(&mut self, alive: impl Fn(&ProcessId) -> bool) {
        self.0.retain(|process, _| alive(process));
    }

    /// The processes whose clocks differ from the middle one by [`CLOCKS_APART_MS`] and more, and by
    /// how many seconds they are ahead of it (less than 0: behind). Of two clocks nobody knows which
    /// one is wrong: the later one is said to be ahead.
    pub(super) fn apart(&self) -> BTreeMap<ProcessId, i64> {
        let mut sorted: Vec<i64> = self.0.values().copied().collect();
        sorted.sort_unstable();
        let Some(middle) = sorted.get(sorted.len().saturating_sub(1) / 2).copied() else {
            return BTreeMap::new();
        };
        let ahead = |ms: i64| ms.saturating_sub(middle);
        let apart = self.0.iter().filter(|(_, ms)| ahead(**ms).abs() >= CLOCKS_APART_MS);
        apart.map(|(process, ms)| (*process, ahead(*ms) / 1_000)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(said: &[i64]) -> Vec<(u128, i64)> {
        let mut clocks = Clocks::default();
        let here = 1_800_000_000_000_u64;
        for (said, process) in said.iter().zip(1_u128..) {
            let said = Timestamp(here.checked_add_signed(*said).unwrap());
            clocks.hear(ProcessId::from_u128(process), said, Timestamp(here));
        }
        clocks.apart().into_iter().map(|(process, by)| (process.as_u128(), by)).collect()
    }

    #[test]
    fn the_clock_that_differs_from_most_is_named() {
        assert_eq!(apart(&[]), []);
        assert_eq!(apart(&[86_400_000]), [], "one clock alone is right");
        assert_eq!(apart(&[0, 4_999, -3]), []);
        assert_eq!(apart(&[0, 5_000]), [(2, 5)]);
        assert_eq!(apart(&[0, -86_400_000, 20]), [(2, -86_400)]);
        // Heartbeats that waited here are all late alike.
        assert_eq!(apart(&[-30_000, -30_010, -29_990]), []);
        // The own clock is the wrong one: all others agree.
        assert_eq!(apart(&[0, 3_600_000, 3_600_001, 3_600_002]), [(1, -3_600)]);
    }

    #[test]
    fn a_clock_is_forgotten_with_its_process() {
        let mut clocks = Clocks::default();
        for (process, said) in [(1, 0), (2, 3_600_000)] {
            clocks.hear(ProcessId::from_u128(process), Timestamp(said), Timestamp(0));
        }
        assert_eq!(clocks.apart().len(), 1);
        clocks.retain(|process| *process == ProcessId::from_u128(1));
        assert_eq!(clocks.apart(), BTreeMap::new());
    }
}
