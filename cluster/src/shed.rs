//! When a busy process lowers its ranks, so that others serve its partitions. Pure.
//!
//! It goes down rank by rank, after a few looks that all found it over a threshold. It comes back
//! only after more looks that found it well below: placement that swings costs more than a node
//! that is a little too busy. The heartbeat carries the ranks. If all processes are lowered, the
//! effect is none: placement counts from the least, and only depth that has lasted ([`ShedDepth`]).
//! Processes of one busy host are lowered one after the other, and then all alike.

use std::{collections::BTreeMap, time::Duration};

use clawnode_proto::ProcessId;
use tokio::time::Instant;

use crate::{inbox::RANK_MAX, placement::Seat};

/// From which pressure on it goes down by one, two and three ranks, in thousandths.
const THRESHOLDS: [u16; RANK_MAX as usize] = [850, 920, 970];
/// How far below its threshold the pressure must be to go up again.
const SLACK: u16 = 150;
/// Looks in a row that must find it over the next threshold.
const UP_AFTER: u32 = 3;
/// Looks in a row that must find it well below.
const DOWN_AFTER: u32 = 10;

/// How long a process must be lowered before partitions move because of it. This is longer than the
/// processes of one host need to go down one after the other: three looks for a rank, and a
/// heartbeat until it is heard.
const SETTLES_AFTER: Duration = Duration::from_secs(5);

/// How busy a process is, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Of its host's processor time, used by any process.
    pub cpu: u16,
    /// Of its host's memory, used by any process.
    pub memory: u16,
    /// Of the turns that its agents may run at once.
    pub turns: u16,
}

/// By how many ranks a process is lowered, and what may change that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shedding {
    shed: u8,
    over: u32,
    under: u32,
}

/// By how many ranks processes are below the least busy one, once that has lasted.
#[derive(Clone, Debug, Default)]
pub struct ShedDepth(BTreeMap<ProcessId, StableDepth>);

#[derive(Clone, Copy, Debug)]
struct StableDepth {
    /// The depth that placement uses.
    shed: u8,
    /// Since when the real depth differs.
    differs: Option<Instant>,
}

// === impl ShedDepth ===

impl ShedDepth {
    /// Takes the seats as heartbeats have them. Returns those to place by, and when to look again,
    /// if a depth may have lasted by then.
    pub fn look(&mut self, now: Instant, seats: &[Seat]) -> (Vec<Seat>, Option<Instant>) {
        self.0.retain(|process, _| seats.iter().any(|seat| seat.process == *process));
        let least = seats.iter().map(|seat| seat.shed).min().unwrap_or_default();
        let mut again: Option<Instant> = None;
        let mut settle = |seat: &Seat| {
            let shed = seat.shed - least;
            // A newcomer's depth counts at once.
            let known = self.0.entry(seat.process).or_insert(StableDepth { shed, differs: None });
            if known.shed == shed {
                known.differs = None;
            } else {
                let lasts_at = *known.differs.get_or_insert(now) + SETTLES_AFTER;
                if now >= lasts_at {
                    *known = StableDepth { shed, differs: None };
                } else {
                    again = Some(again.map_or(lasts_at, |at| at.min(lasts_at)));
                }
            }
            Seat { process: seat.process, shed: known.shed }
        };
        let settled = seats.iter().map(&mut settle).collect();
        (settled, again)
    }
}

// === impl Pressure ===

impl Pressure {
    /// `used` of `all`, in thousandths.
    pub fn permille(used: u64, all: u64) -> u16 {
        let permille = (u128::from(used) * 1_000).checked_div(u128::from(all)).unwrap_or_default();
        u16::try_from(permille.min(1_000)).unwrap_or(1_000)
    }

    fn most(self) -> u16 {
        self.cpu.max(self.memory).max(self.turns)
    }
}

// === impl Shedding ===

impl Shedding {
    /// Takes one look, about one a second; returns by how many ranks to be lowered now.
    pub fn look(&mut self, pressure: Pressure) -> u8 {
        let (at, pressure) = (usize::from(self.shed), pressure.most());
        let is_over = THRESHOLDS.get(at).is_some_and(|next| pressure >= *next);
        let own = at.checked_sub(1).and_then(|own| THRESHOLDS.get(own));
        let is_under = own.is_some_and(|own| pressure < own - SLACK);
        self.over = if is_over { self.over + 1 } else { 0 };
        self.under = if is_under { self.under + 1 } else { 0 };
        if self.over == UP_AFTER {
            self.shed += 1;
            self.over = 0;
        }
        if self.under == DOWN_AFTER {
            self.shed -= 1;
            self.under = 0;
        }
        self.shed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn looks(shedding: &mut Shedding, times: u32, cpu: u16) -> u8 {
        (0..times).map(|_| shedding.look(Pressure { cpu, ..Pressure::default() })).last().unwrap()
    }

    #[test]
    fn it_stands_back_rank_by_rank_and_comes_forward_slowly() {
        let mut shedding = Shedding::default();
        assert_eq!(looks(&mut shedding, UP_AFTER - 1, 1_000), 0, "a moment is no pressure");
        assert_eq!(looks(&mut shedding, 1, 1_000), 1);
        assert_eq!(looks(&mut shedding, 2 * UP_AFTER, 1_000), 3);
        assert_eq!(looks(&mut shedding, 100, 1_000), 3, "there is no fourth");
        assert_eq!(looks(&mut shedding, 100, 830), 3, "below, but not well below");
        assert_eq!(looks(&mut shedding, DOWN_AFTER - 1, 0), 3);
        assert_eq!(looks(&mut shedding, 1, 0), 2);
        assert_eq!(looks(&mut shedding, 2 * DOWN_AFTER, 0), 0);
        assert_eq!(looks(&mut shedding, 100, 0), 0);
    }

    fn settle(settling: &mut ShedDepth, at: Instant, depths: [u8; 3]) -> Vec<u8> {
        let seats = depths.into_iter().zip(1_u128..);
        let seats: Vec<Seat> = seats
            .map(|(shed, process)| Seat { process: ProcessId::from_u128(process), shed })
            .collect();
        settling.look(at, &seats).0.into_iter().map(|seat| seat.shed).collect()
    }

    #[test]
    fn workers_of_one_host_that_stand_back_one_after_the_other_move_nothing() {
        let (mut settling, mut now) = (ShedDepth::default(), Instant::now());
        let steps = [[0, 0, 0], [1, 0, 0], [1, 0, 1], [1, 1, 1], [2, 1, 1], [2, 2, 1], [2, 2, 2]];
        for depths in steps.into_iter().chain([[3, 2, 2], [3, 3, 2], [3, 3, 3], [3, 3, 3]]) {
            now += Duration::from_secs(2);
            assert_eq!(settle(&mut settling, now, depths), [0, 0, 0], "{depths:?}");
        }
    }

    #[test]
    fn who_stays_behind_stands_back_after_a_while_and_so_comes_forward() {
        let (mut settling, start) = (ShedDepth::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(settle(&mut settling, at(0), [0, 0, 0]), [0, 0, 0]);
        assert_eq!(settle(&mut settling, at(1_000), [1, 0, 0]), [0, 0, 0]);
        // The depth may change meanwhile.
        assert_eq!(settle(&mut settling, at(4_000), [2, 0, 0]), [0, 0, 0]);
        let seats = [Seat { process: ProcessId::from_u128(1), shed: 2 }];
        let others = [2, 3].map(|process| Seat { process: ProcessId::from_u128(process), shed: 0 });
        let all: Vec<Seat> = seats.into_iter().chain(others).collect();
        assert_eq!(settling.look(at(5_000), &all).1, Some(at(6_000)), "no new heartbeat is needed");
        assert_eq!(settle(&mut settling, at(6_000), [2, 0, 0]), [2, 0, 0]);
        assert_eq!(settle(&mut settling, at(7_000), [0, 0, 0]), [2, 0, 0]);
        assert_eq!(settle(&mut settling, at(11_000), [2, 0, 0]), [2, 0, 0], "it was a moment");
        assert_eq!(settle(&mut settling, at(12_000), [0, 0, 0]), [2, 0, 0]);
        assert_eq!(settle(&mut settling, at(17_000), [0, 0, 0]), [0, 0, 0]);
    }

    #[test]
    fn the_worst_of_them_counts() {
        for pressure in [
            Pressure { cpu: 1_000, ..Pressure::default() },
            Pressure { memory: 1_000, ..Pressure::default() },
            Pressure { turns: 1_000, ..Pressure::default() },
        ] {
            let mut shedding = Shedding::default();
            assert_eq!(
                (0..UP_AFTER).map(|_| shedding.look(pressure)).last(),
                Some(1),
                "{pressure:?}"
            );
        }
    }

    #[test]
    fn shares_are_thousandths_and_nothing_of_nothing_is_nothing() {
        assert_eq!(Pressure::permille(1, 4), 250);
        assert_eq!(Pressure::permille(9, 4), 1_000);
        assert_eq!(Pressure::permille(1, 0), 0);
        assert_eq!(Pressure::permille(u64::MAX, u64::MAX / 2), 1_000);
    }

    proptest! {
        #[test]
        fn it_moves_by_single_ranks_and_not_within_the_slack(
            pressures in proptest::collection::vec(0_u16..=1_000, 1..200)
        ) {
            let (mut shedding, mut before) = (Shedding::default(), 0_u8);
            for cpu in pressures {
                let now = shedding.look(Pressure { cpu, ..Pressure::default() });
                prop_assert!(now <= RANK_MAX && now.abs_diff(before) <= 1);
                if now > before {
                    prop_assert!(cpu >= THRESHOLDS[usize::from(before)]);
                }
                if now < before {
                    prop_assert!(cpu < THRESHOLDS[usize::from(now)] - SLACK);
                }
                before = now;
            }
        }
    }
}
