//! The times of membership.

use std::time::Duration;

/// How processes watch each other. All processes of a cluster should have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipOptions {
    /// How often a process says that it is alive (1 s). More often costs messages, of each process
    /// to each other; less often delays what others know of its load and standing.
    pub heartbeat: Duration,
    /// Silence after which a process is held dead (6 s), at least three heartbeats. Shorter takes
    /// over sooner from a frozen process, and robs one that is only slow.
    pub dead_after: Duration,
    /// How often a process asks its next few whether they are there (250 ms). More often notices a
    /// kill sooner; it costs [`Self::PROBED`] requests each time.
    pub probe_every: Duration,
    /// How long after the first request that nobody took the second one is sent (300 ms): longer
    /// than a process needs to connect again that lost its connection for another reason.
    pub probe_again: Duration,
    /// How long after a break of its own connection or hearing a process holds nobody dead (10 s):
    /// what broke it may have hit the others as well. Those whom it has heard since, a heartbeat later
    /// at least, are judged by whether anybody listens there.
    pub quiet: Duration,
    /// How long a process listens, from the first echo of its own voice on, before it takes work
    /// (300 ms). Others speak at once when they hear of it. Shorter serves sooner where nobody else
    /// is; too short takes what others have, which are then asked for it.
    pub settle: Duration,
}

// === impl MembershipOptions ===

impl MembershipOptions {
    /// How many processes each one asks: a kill is noticed unless all who ask died with it.
    pub const PROBED: usize = 3;

    /// Silence of one's own echo that makes one's ears doubtful.
    pub(super) fn echo_gap(&self) -> Duration {
        self.dead_after / 2
    }
}

impl Default for MembershipOptions {
    fn default() -> Self {
        Self {
            heartbeat: Duration::from_secs(1),
            dead_after: Duration::from_secs(6),
            probe_every: Duration::from_millis(250),
            probe_again: Duration::from_millis(300),
            quiet: Duration::from_secs(10),
            settle: Duration::from_millis(300),
        }
    }
}
