//! Doubt about one process: the signs of its silence. Pure: time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// The result of a request to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probed {
    Answered,
    /// No process listens there.
    NoListener,
    /// Neither: it is slow, or the bus is.
    Unknown,
}

/// The signs that a process is silent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Doubt {
    /// The first time without a listener.
    first: Option<Instant>,
    /// Whether there was still no listener `probe_again` later.
    pub(super) twice: bool,
    /// Whether another process or a server has confirmed that its server lives.
    pub(super) vouched: bool,
    /// When it is asked next.
    pub(super) next: Instant,
    /// Whether a request is under way.
    pub(super) asking: bool,
}

// === impl Doubt ===

impl Doubt {
    /// A process is in doubt: it is asked now.
    pub(super) const fn new(now: Instant, vouched: bool) -> Self {
        Self { first: None, twice: false, vouched, next: now, asking: false }
    }

    /// There was no listener, just now or a while ago.
    pub(super) fn no_listener(&mut self, now: Instant, again: Duration) {
        self.asking = false;
        self.next = now + again;
        match self.first {
            None => self.first = Some(now),
            Some(first) => self.twice |= now - first >= again,
        }
    }
}
