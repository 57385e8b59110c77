//! When deleted records leave the disk: the schedule of cleanings, and a note that one is owed, because the process
//! may end before it has cleaned its log.

use std::{
    io,
    path::Path,
    time::{Duration, Instant},
};

use tracing::debug;

use super::disk::{RealDisk, write_whole};

/// The file is there while a cleaning is owed.
const FILE: &str = "cleaning";

/// How long a deletion waits for acknowledgements that are still to come.
const SCRUB_LINGER: Duration = Duration::from_secs(1);
/// The shortest time between two cleanings for deletions, of a log with little in it: 10 s. A deletion, or a kill in the
/// middle of one, asks for several cleanings in a row.
const SCRUB_REST: Duration = Duration::from_secs(10);
/// A second is added for so many bytes that are copied (100 KiB), so that cleanings write no more than that in a second,
/// but 10 min at most; and a second for each MiB. Deleted data leaves the disk within that time.
const SCRUB_RATE: u64 = 100 << 10;
const SCRUB_REST_MOST: Duration = Duration::from_mins(10);
/// When data that was deleted before this process began leaves the disk if there is no note of it: earlier builds left
/// none, and a full disk takes none.
const SCRUB_FIRST: Duration = Duration::from_hours(1);

/// When the log is cleaned of deleted records.
#[derive(Debug)]
pub(super) struct Scrub {
    pub(super) due: Option<Instant>,
    /// No cleaning begins before this.
    rested: Instant,
    /// The next cleaning is one that the process before owed. Another one may follow it at once, because this process may
    /// still acknowledge what that one had.
    is_owed: bool,
}

/// Whether a cleaning is owed in this directory.
pub(super) fn is_owed(dir: &Path) -> bool {
    dir.join(FILE).exists()
}

/// Notes durably that one is.
pub(super) fn owe(dir: &Path) -> io::Result<()> {
    if is_owed(dir) { Ok(()) } else { write_whole(&RealDisk, &dir.join(FILE), b"") }
}

/// The log is clean. If the note stays, the next start cleans once more.
pub(super) fn settle(dir: &Path) {
    if is_owed(dir)
        && let Err(error) = std::fs::remove_file(dir.join(FILE))
    {
        debug!(%error, "the note of a cleaning stays");
    }
}

// === impl Scrub ===

impl Scrub {
    /// Of a process that begins now; whether the one before owed a cleaning.
    pub(super) fn new(now: Instant, is_owed: bool) -> Self {
        let first = if is_owed { SCRUB_LINGER } else { SCRUB_FIRST };
        Self { due: Some(now + first), rested: now, is_owed }
    }

    /// Records were deleted: plans a cleaning.
    pub(super) fn ask(&mut self, now: Instant) {
        let soon = self.rested.max(now + SCRUB_LINGER);
        self.due = Some(self.due.map_or(soon, |due| due.min(soon)));
    }

    /// A cleaning begins that copies this many bytes.
    pub(super) fn begun(&mut self, now: Instant, alive: u64) {
        let rested = if self.is_owed { now } else { now + rest_after(alive) };
        *self = Self { due: None, rested, is_owed: false };
    }
}

/// How long the log is left alone after so many bytes of it were copied.
fn rest_after(alive: u64) -> Duration {
    let paced = SCRUB_REST + Duration::from_secs(alive / SCRUB_RATE);
    paced.min(SCRUB_REST_MOST) + Duration::from_secs(alive >> 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_left_alone_for_longer_if_more_of_it_is_copied() {
        let seconds = |alive: u64| rest_after(alive).as_secs();
        assert_eq!(seconds(0), 10);
        assert_eq!(seconds(1 << 20), 10 + 10 + 1);
        assert_eq!(
            seconds(100 << 20),
            600 + 100,
            "no longer than ten minutes, and a second for each MiB"
        );
        assert!((0..10_000).all(|kib| seconds(kib << 10) <= seconds((kib + 1) << 10)));
    }

    #[test]
    fn deletions_clean_the_log_soon_and_seldom() {
        let begin = Instant::now();
        let mut owed = Scrub::new(begin, true);
        assert_eq!(owed.due, Some(begin + SCRUB_LINGER), "a crash forgets nothing");
        owed.begun(begin, 100 << 20);
        owed.ask(begin);
        assert_eq!(owed.due, Some(begin + SCRUB_LINGER), "for what is acknowledged after it");
        owed.begun(begin, 0);
        owed.ask(begin);
        assert_eq!(owed.due, Some(begin + SCRUB_REST));
        let mut scrub = Scrub::new(begin, false);
        assert_eq!(scrub.due, Some(begin + SCRUB_FIRST), "what earlier builds left");
        scrub.ask(begin);
        assert_eq!(scrub.due, Some(begin + SCRUB_LINGER));
        scrub.ask(begin + SCRUB_LINGER / 2);
        assert_eq!(scrub.due, Some(begin + SCRUB_LINGER), "a stream of deletions puts none off");
        let cleaned = begin + SCRUB_LINGER;
        scrub.begun(cleaned, 100 << 20);
        assert_eq!(scrub.due, None);
        scrub.ask(cleaned);
        assert_eq!(scrub.due, Some(cleaned + rest_after(100 << 20)));
    }
}
