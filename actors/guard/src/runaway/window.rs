//! A window of time that slides, in slots.

/// Slots of a window: more are nearer to a window without steps, and take memory for each agent.
const SLOTS: u64 = 30;

/// How much happened lately: in the present slot and in the 29 before it. Times are milliseconds since any fixed
/// moment, by one clock.
#[derive(Clone, Debug)]
pub(super) struct SlidingWindow {
    slot_ms: u64,
    /// The number of the present slot.
    present: u64,
    /// By the number of the slot, modulo their count.
    slots: [u64; 30],
}

// === impl SlidingWindow ===

impl SlidingWindow {
    /// An empty window of so many milliseconds.
    pub(super) const fn new(length_ms: u64) -> Self {
        let slot_ms = if length_ms < SLOTS { 1 } else { length_ms / SLOTS };
        Self { slot_ms, present: 0, slots: [0; 30] }
    }

    /// What is in the window now. It is never more than what happened in the whole length, and never less than
    /// what happened in 29/30 of it.
    pub(super) fn sum(&mut self, now_ms: u64) -> u64 {
        self.slide(now_ms);
        self.slots.iter().fold(0, |sum, slot| sum.saturating_add(*slot))
    }

    /// Adds what happens now.
    pub(super) fn add(&mut self, now_ms: u64, amount: u64) {
        self.slide(now_ms);
        let present = self.present;
        if let Some(slot) = self.slot(present) {
            *slot = slot.saturating_add(amount);
        }
    }

    /// Empties the slots that time has passed. A clock that goes back changes nothing.
    fn slide(&mut self, now_ms: u64) {
        let now = now_ms / self.slot_ms;
        let first = self.present.saturating_add(1).max(now.saturating_sub(SLOTS - 1));
        for number in first..=now {
            if let Some(slot) = self.slot(number) {
                *slot = 0;
            }
        }
        self.present = self.present.max(now);
    }

    fn slot(&mut self, number: u64) -> Option<&mut u64> {
        self.slots.get_mut(usize::try_from(number % SLOTS).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// The sum is between that of 29/30 of the length and that of the whole length, whenever it is asked
        /// for.
        #[test]
        fn a_window_holds_what_happened_in_its_length_and_no_more(
            steps in proptest::collection::vec((0..90_000_u64, 0..100_u64), 1..60)
        ) {
            let mut window = SlidingWindow::new(60_000);
            let (mut now, mut happened) = (0, Vec::new());
            for (later, amount) in steps {
                now += later;
                window.add(now, amount);
                happened.push((now, amount));
                let within = |length: u64| -> u64 {
                    let recent = happened.iter().filter(|(at, _)| now - at < length);
                    recent.map(|(_, amount)| amount).sum()
                };
                let sum = window.sum(now);
                prop_assert!(within(58_000) <= sum && sum <= within(60_000), "{sum} at {now}");
            }
        }
    }

    #[test]
    fn a_clock_that_goes_back_and_one_that_jumps_far_harm_nothing() {
        let mut window = SlidingWindow::new(60_000);
        window.add(120_000, 5);
        window.add(1_000, 1);
        assert_eq!(window.sum(121_000), 6);
        assert_eq!(window.sum(u64::MAX), 0);
        window.add(u64::MAX, u64::MAX);
        window.add(u64::MAX, 1);
        assert_eq!(window.sum(u64::MAX), u64::MAX);
    }
}
