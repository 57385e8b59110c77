//! The times of membership.

use std::time::Duration;

/// How processes watch each other. All processes of a cluster should have the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MembershipOptions {
    /// How often a process sends a heartbeat (1 s). More often costs messages, of each process to
    /// each other; less often delays what others know of its load and state.
    pub heartbeat: Duration,
    /// Silence after which a process is held dead (6 s), at least three heartbeats. Shorter takes
    /// over sooner from a frozen process, and robs one that is only slow.
    pub dead_after: Duration,
    /// How often a process asks its next few whether they are there (250 ms). More often notices a
    /// kill sooner; it costs [`Self::PROBED`] requests each time.
    pub probe_every: Duration,
    /// How long after the first request without a listener the second one is sent (300 ms). This is
    /// longer than a process needs to reconnect that lost its connection for another reason.
    pub probe_again: Duration,
    /// How long a process declares no other dead after its own connection or hearing broke (10 s):
    /// what broke it may have hit the others as well. Of a process that it has heard since, at
    /// least a heartbeat later, only a missing listener counts.
    pub quiet: Duration,
    /// How long a process listens before it takes work, from the first echo of its own heartbeat on
    /// (300 ms). Others send theirs at once when they hear of it. A shorter time serves sooner in
    /// an empty cluster. A time that is too short takes work that others have, and they are then
    /// asked for it.
    pub settle: Duration,
}

// === impl MembershipOptions ===

impl MembershipOptions {
    /// How many processes each one asks: a kill is noticed unless all that ask died with it.
    pub const PROBED: usize = 3;

    /// Silence of its own echo that makes a process doubt its hearing.
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
