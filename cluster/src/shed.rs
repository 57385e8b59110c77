//! When a busy process stands back, so that others serve what it would. Pure.
//!
//! It stands back rank by rank, after a few looks that all found it over a threshold, and comes
//! forward again only after more of them found it well below: placement that swings costs more
//! than a node that is a little too busy. Everybody sees the ranks in the heartbeat, and where all
//! stand back nobody does: placement counts from the least.

use crate::inbox::RANK_MAX;

/// From which pressure on it stands back by one, two and three ranks, in thousandths.
const THRESHOLDS: [u16; RANK_MAX as usize] = [850, 920, 970];
/// How far below its threshold the pressure must be to come forward again.
const SLACK: u16 = 150;
/// Looks in a row that must find it over the next threshold.
const UP_AFTER: u32 = 3;
/// Looks in a row that must find it well below.
const DOWN_AFTER: u32 = 10;

/// How much of what it has a process uses, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// Of its host's processor time, whoever uses it.
    pub cpu: u16,
    /// Of its host's memory, whoever uses it.
    pub memory: u16,
    /// Of the turns that its agents may run at once.
    pub turns: u16,
}

/// By how many ranks a process stands back, and what may change that.
#[derive(Clone, Copy, Debug, Default)]
pub struct Shedding {
    shed: u8,
    over: u32,
    under: u32,
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
    /// Takes one look, about one a second; returns by how many ranks to stand back now.
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
        let mut it = Shedding::default();
        assert_eq!(looks(&mut it, UP_AFTER - 1, 1_000), 0, "a moment is no pressure");
        assert_eq!(looks(&mut it, 1, 1_000), 1);
        assert_eq!(looks(&mut it, 2 * UP_AFTER, 1_000), 3);
        assert_eq!(looks(&mut it, 100, 1_000), 3, "there is no fourth");
        assert_eq!(looks(&mut it, 100, 830), 3, "below, but not well below");
        assert_eq!(looks(&mut it, DOWN_AFTER - 1, 0), 3);
        assert_eq!(looks(&mut it, 1, 0), 2);
        assert_eq!(looks(&mut it, 2 * DOWN_AFTER, 0), 0);
        assert_eq!(looks(&mut it, 100, 0), 0);
    }

    #[test]
    fn the_worst_of_them_counts() {
        for pressure in [
            Pressure { cpu: 1_000, ..Pressure::default() },
            Pressure { memory: 1_000, ..Pressure::default() },
            Pressure { turns: 1_000, ..Pressure::default() },
        ] {
            let mut it = Shedding::default();
            assert_eq!((0..UP_AFTER).map(|_| it.look(pressure)).last(), Some(1), "{pressure:?}");
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
            let (mut it, mut before) = (Shedding::default(), 0_u8);
            for cpu in pressures {
                let now = it.look(Pressure { cpu, ..Pressure::default() });
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
