//! The time of day, as most processes of a cluster have it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use clawnode_proto::{ProcessId, Timestamp};
use tokio::time::Instant;
use tracing::warn;

use crate::{Clock, SystemClock};

/// Milliseconds by which clocks may differ before clawnode warns and uses the time of most other
/// processes. Time servers keep hosts within milliseconds; a heartbeat that waits on a busy host
/// makes its sender look late.
pub const CLOCKS_APART_MS: i64 = 5_000;

/// The machine's clock, while it agrees with those of most processes. While it does not, the time of
/// most processes, carried on by the steady clock.
///
/// The middle of many clocks, from which some may be far away, is after Gusella and Zatti, "The Accuracy
/// of the Clock Synchronization Achieved by TEMPO in Berkeley UNIX 4.3BSD" (1989). No clock is set.
#[derive(Debug)]
pub struct ClusterClock {
    machine: Arc<dyn Clock>,
    began: Instant,
    clocks: Mutex<Clocks>,
}

/// The clocks of all processes that were heard, as milliseconds since the steady clock began here. The
/// own heartbeat counts as well: what waits here makes all of them look late alike.
#[derive(Debug, Default)]
struct Clocks {
    heard: BTreeMap<ProcessId, i64>,
    /// The middle of the clocks when most of them agreed last.
    middle: Option<i64>,
    /// Whether the machine's clock was too far from it when it was read last.
    is_wrong: bool,
}

// === impl ClusterClock ===

impl ClusterClock {
    /// A clock that has heard no other process: the machine's.
    pub fn new(machine: Arc<dyn Clock>) -> Self {
        Self { machine, began: Instant::now(), clocks: Mutex::default() }
    }

    /// The machine's clock, which a process sends in its heartbeats.
    pub fn machine(&self) -> Timestamp {
        self.machine.now()
    }

    /// Takes the time that a heartbeat was sent at, by the machine of its sender.
    pub fn hear(&self, process: ProcessId, said: Timestamp) {
        let steady = self.steady();
        self.locked().heard.insert(process, milliseconds(said).saturating_sub(steady));
    }

    /// Finds the time that most of the processes that are `alive` agree on. Call it only while
    /// heartbeats arrive in time.
    pub fn agree(&self, alive: impl Fn(ProcessId) -> bool) {
        let mut clocks = self.locked();
        clocks.heard.retain(|process, _| alive(*process));
        clocks.agree();
    }

    /// As [`agree`](Self::agree), for a process that may have heard too few yet: only the first such
    /// time is taken. A newcomer whose clock is wrong would else write its own time for seconds.
    pub fn agree_at_first(&self) {
        let mut clocks = self.locked();
        if clocks.middle.is_none() {
            clocks.agree();
        }
    }

    /// The processes whose clocks differ from the middle one by at least [`CLOCKS_APART_MS`], with
    /// how many seconds they are ahead of it (below 0: behind). Of two clocks, either may be wrong:
    /// the later one is said to be ahead.
    pub fn apart(&self) -> BTreeMap<ProcessId, i64> {
        self.locked().apart()
    }

    fn steady(&self) -> i64 {
        i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX)
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Clocks> {
        self.clocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ClusterClock {
    fn now(&self) -> Timestamp {
        let machine = self.machine.now();
        let steady = self.steady();
        let mut clocks = self.locked();
        let now = clocks.now(milliseconds(machine), steady);
        let is_wrong = now != milliseconds(machine);
        if is_wrong && !clocks.is_wrong {
            warn!(
                ahead_ms = milliseconds(machine).saturating_sub(now),
                "this machine's clock differs from those of most nodes, so clawnode uses their time; \
                 check its time server"
            );
        }
        clocks.is_wrong = is_wrong;
        u64::try_from(now).map_or(machine, Timestamp)
    }
}

impl Default for ClusterClock {
    fn default() -> Self {
        Self::new(Arc::new(SystemClock))
    }
}

// === impl Clocks ===

impl Clocks {
    /// Ignores a middle that fewer than half of the processes share, and a process alone proves
    /// nothing: then the last middle stays, so that time does not jump. A process that has heard no
    /// other trusts its machine.
    fn agree(&mut self) {
        let Some(middle) = self.middle_one() else { return };
        let near = self.heard.values().filter(|ms| !is_apart(**ms, middle)).count();
        if self.heard.len() > 1 && near * 2 > self.heard.len() {
            self.middle = Some(middle);
        }
    }

    fn now(&self, machine: i64, steady: i64) -> i64 {
        let Some(middle) = self.middle else { return machine };
        let agreed = middle.saturating_add(steady);
        if is_apart(machine, agreed) { agreed } else { machine }
    }

    fn middle_one(&self) -> Option<i64> {
        let mut sorted: Vec<i64> = self.heard.values().copied().collect();
        sorted.sort_unstable();
        sorted.get(sorted.len().saturating_sub(1) / 2).copied()
    }

    fn apart(&self) -> BTreeMap<ProcessId, i64> {
        let Some(middle) = self.middle_one() else { return BTreeMap::new() };
        let apart = self.heard.iter().filter(|(_, ms)| is_apart(**ms, middle));
        apart.map(|(process, ms)| (*process, ms.saturating_sub(middle) / 1_000)).collect()
    }
}

fn is_apart(one: i64, other: i64) -> bool {
    one.saturating_sub(other).saturating_abs() >= CLOCKS_APART_MS
}

fn milliseconds(time: Timestamp) -> i64 {
    i64::try_from(time.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use tokio::time::{Duration, advance};

    use super::*;

    const HERE: u64 = 1_800_000_000_000;
    const DAY: i64 = 86_400_000;

    /// A machine's clock that a test sets.
    #[derive(Clone, Debug)]
    struct Hand(Arc<AtomicU64>);

    impl Hand {
        fn jump(&self, by: i64) {
            self.0.fetch_add(by.cast_unsigned(), Ordering::Relaxed);
        }
    }

    impl Clock for Hand {
        fn now(&self) -> Timestamp {
            Timestamp(self.0.load(Ordering::Relaxed))
        }
    }

    /// A process with a machine whose clock a test sets, and what it hears.
    struct Process {
        hand: Hand,
        clock: ClusterClock,
    }

    impl Process {
        fn new() -> Self {
            let hand = Hand(Arc::new(AtomicU64::new(HERE)));
            Self { clock: ClusterClock::new(Arc::new(hand.clone())), hand }
        }

        /// Time passes, for its machine as well.
        async fn passes(&self, ms: u64) {
            advance(Duration::from_millis(ms)).await;
            self.hand.jump(ms.cast_signed());
        }

        /// Hears its own heartbeat as process 1 and those of others, by how much their clocks are
        /// ahead of `HERE`.
        fn hears(&self, others: &[i64]) {
            self.clock.hear(ProcessId::from_u128(1), self.clock.machine());
            for (said, process) in others.iter().zip(2_u128..) {
                let said = Timestamp(HERE.checked_add_signed(*said).unwrap());
                self.clock.hear(ProcessId::from_u128(process), said);
            }
            self.clock.agree(|process| process.as_u128() <= 1 + others.len() as u128);
        }

        /// By how much its time is ahead of `HERE`.
        fn ahead(&self) -> i64 {
            self.clock.now().0.cast_signed() - HERE.cast_signed()
        }
    }

    fn apart(said: &[i64]) -> Vec<(u128, i64)> {
        let clock = ClusterClock::default();
        for (said, process) in said.iter().zip(1_u128..) {
            let said = Timestamp(HERE.checked_add_signed(*said).unwrap());
            clock.hear(ProcessId::from_u128(process), said);
        }
        clock.apart().into_iter().map(|(process, by)| (process.as_u128(), by)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_clock_that_differs_from_most_is_named() {
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

    #[tokio::test(start_paused = true)]
    async fn a_machine_with_a_wrong_clock_uses_the_time_of_most() {
        let process = Process::new();
        process.hand.jump(-DAY);
        assert_eq!(process.ahead(), -DAY, "it has heard no other process");
        process.hears(&[0]);
        assert_eq!(process.ahead(), -DAY, "of two clocks either may be wrong");
        process.hears(&[0, 3]);
        assert_eq!(process.ahead(), 0);
        process.passes(700).await;
        assert_eq!(process.ahead(), 700, "its time goes on");
        process.hand.jump(DAY);
        assert_eq!(process.ahead(), 700, "its machine has the right time again");
        process.hears(&[4_999, 701]);
        assert_eq!(process.ahead(), 700, "clocks that are near are left alone");
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_takes_the_first_time_that_most_agree_on() {
        let process = Process::new();
        process.hand.jump(-DAY);
        process.hears(&[]);
        let hear = |process: &Process, id, ahead: i64| {
            let said = Timestamp(HERE.checked_add_signed(ahead).unwrap());
            process.clock.hear(ProcessId::from_u128(id), said);
            process.clock.agree_at_first();
        };
        hear(&process, 2, 0);
        assert_eq!(process.ahead(), -DAY, "of two clocks either may be wrong");
        hear(&process, 3, 10);
        assert_eq!(process.ahead(), 0);
        // Those that are heard next may be the few that are wrong.
        for id in 4..9 {
            hear(&process, id, DAY);
        }
        assert_eq!(process.ahead(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_changes_no_time() {
        let process = Process::new();
        process.hears(&[0, 0]);
        for jump in [3_600_000, -DAY] {
            process.hand.jump(jump);
            assert_eq!(process.ahead(), 0, "at once");
            process.hears(&[0, 0]);
            assert_eq!(process.ahead(), 0, "and as it has heard itself");
        }
        // No two of three agree: the last time on which they did continues.
        process.hears(&[0, DAY]);
        process.passes(50).await;
        assert_eq!(process.ahead(), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_was_suspended_has_the_time_of_the_others() {
        let process = Process::new();
        process.hears(&[0, 0]);
        // The steady clock does not move meanwhile.
        process.hand.jump(DAY);
        process.hears(&[DAY, 0]);
        process.hears(&[DAY, DAY]);
        assert_eq!(process.ahead(), DAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_was_always_alone_believes_its_machine() {
        let process = Process::new();
        process.hears(&[]);
        process.hand.jump(DAY);
        process.hears(&[]);
        assert_eq!(process.ahead(), DAY);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_whose_peers_are_gone_keeps_their_time() {
        let process = Process::new();
        process.hears(&[0, 0]);
        process.hand.jump(DAY);
        process.hears(&[]);
        assert_eq!(process.ahead(), 0);
        process.hand.jump(-DAY);
        process.passes(50).await;
        assert_eq!(process.ahead(), 50);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_is_forgotten_with_its_process() {
        let clock = ClusterClock::default();
        for (process, said) in [(1, HERE), (2, HERE + 3_600_000)] {
            clock.hear(ProcessId::from_u128(process), Timestamp(said));
        }
        assert_eq!(clock.apart().len(), 1);
        clock.agree(|process| process == ProcessId::from_u128(1));
        assert_eq!(clock.apart(), BTreeMap::new());
    }
}
