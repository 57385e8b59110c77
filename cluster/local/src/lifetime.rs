//! The time by which bucket values expire: the clock's, but never faster than time passes.
//!
//! A value with a lifetime guards something for that long, for example a finished job against a
//! second run. If the clock jumps a week ahead, values must not expire early. So the time here is
//! the lesser of two: the clock, and the clock's time when the directory was opened plus the time
//! since then. After a restart on the same boot of the machine, its uptime says how much time has
//! passed. After a reboot that is unknown, and the store trusts the clock. A value may live longer
//! than it should, never shorter.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use clawnode_cluster::Clock;
use tracing::{debug, warn};

use super::directory::boot_id;

/// A time of the clock, with the boot and uptime of the machine at that time.
const FILE: &str = "clock";
/// 2026-01-01 in milliseconds: a clock before it has not been set yet, and will jump to be right.
const NOT_BEFORE: u64 = 1_767_225_600_000;
/// The store logs a warning if the clock is this far ahead (1 min).
const AHEAD: u64 = 60_000;

/// The time of one open directory.
#[derive(Debug)]
pub(super) struct Lifetime {
    /// When it was opened, in milliseconds of the clock.
    base: u64,
    opened: Instant,
}

impl Lifetime {
    /// The time from now on, and a note of it for the next start.
    pub(super) fn open(dir: &Path, clock: &dyn Clock) -> Self {
        let (now, uptime, path) = (clock.now().0, uptime(), dir.join(FILE));
        let boot = boot_id();
        let noted = std::fs::read_to_string(&path).ok();
        let passed = noted.as_deref().and_then(|note| parse(note, boot.as_deref()?, uptime?));
        let base = passed.filter(|passed| *passed >= NOT_BEFORE).unwrap_or(now).min(now);
        if now - base > AHEAD {
            let seconds = (now - base) / 1_000;
            warn!(seconds, "the clock was set ahead; values still expire at the right time");
        }
        if let (Some(boot), Some(uptime)) = (boot, uptime)
            && let Err(error) =
                std::fs::write(&path, format!("{boot} {} {base}", uptime.as_millis()))
        {
            debug!(%error, "cannot store the time; the next start trusts the clock");
        }
        Self { base, opened: Instant::now() }
    }

    /// For a directory that is only read.
    pub(super) fn believing(clock: &dyn Clock) -> Self {
        Self { base: clock.now().0, opened: Instant::now() }
    }

    /// The present time, never later than the clock's.
    pub(super) fn now(&self, clock: &dyn Clock) -> u64 {
        let now = clock.now().0;
        if self.base < NOT_BEFORE {
            return now;
        }
        let passed = u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX);
        now.min(self.base.saturating_add(passed))
    }
}

/// The present time by a note of this boot.
fn parse(note: &str, boot: &str, uptime: Duration) -> Option<u64> {
    let mut words = note.split_whitespace();
    let is_this_boot = words.next()? == boot;
    let (noted, base): (u64, u64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let passed = u64::try_from(uptime.as_millis()).ok()?.checked_sub(noted)?;
    is_this_boot.then(|| base.saturating_add(passed))
}

/// How long the machine is up, including the time that it was suspended; unknown if it is not
/// Linux.
fn uptime() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let seconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_counts_on_its_own_boot_only() {
        let uptime = Duration::from_secs(100);
        assert_eq!(parse("boot 40000 5000", "boot", uptime), Some(65_000));
        assert_eq!(parse("another 40000 5000", "boot", uptime), None);
        assert_eq!(parse("boot 200000 5000", "boot", uptime), None, "it would be from the future");
        for torn in ["", "boot", "boot 40000", "boot x 5000"] {
            assert_eq!(parse(torn, "boot", uptime), None, "{torn}");
        }
    }
}
