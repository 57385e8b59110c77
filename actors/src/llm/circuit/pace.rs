//! How fast a model may be called, by what its provider said: pure, time is an argument.
//!
//! A wait that a refusal asked for is kept. What limits report is a guess about the next call, so it
//! delays a call a little and never refuses it.

use std::{collections::BTreeMap, time::Duration};

use clawnode_proto::{Timestamp, circuit::LimitedResource};

use super::machine::ASKED_MOST;

/// The most that a call waits here. What must wait longer ends at once, so that another model can be
/// asked; what only may have to is sent, and the provider decides.
pub(super) const PACED_MOST: Duration = Duration::from_secs(10);

/// A limit as an answer reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportedLimit {
    /// What is limited.
    pub resource: LimitedResource,
    /// How much there is in all.
    pub limit: Option<u64>,
    /// How much is left.
    pub remaining: u64,
    /// How long until all of it is there again.
    pub resets_in: Duration,
}

/// What one model of a provider allows.
#[derive(Clone, Debug, Default)]
pub struct Pace {
    /// Until when the provider asked to wait.
    held: Timestamp,
    /// When the provider last said something.
    pub(super) told: Timestamp,
    pub(super) allowances: BTreeMap<LimitedResource, Allowance>,
}

/// What is left of a limit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Allowance {
    pub(super) limit: Option<u64>,
    pub(super) remaining: u64,
    pub(super) resets: Timestamp,
    /// How long until the next request is free; all of it for tokens.
    refill: Duration,
    /// From when on the next request is free once nothing is left.
    free: Timestamp,
}

// === impl Pace ===

impl Pace {
    /// The provider refused a call and asks to wait.
    pub fn hold(&mut self, asked: Duration, now: Timestamp) {
        self.held = self.held.max(now.plus(asked.min(ASKED_MOST)));
        self.told = self.told.max(now);
    }

    /// The provider reported these limits.
    pub fn reported(&mut self, limits: &[ReportedLimit], now: Timestamp) {
        for limit in limits {
            self.told = self.told.max(now);
            self.allowances.insert(limit.resource, Allowance::new(*limit, now));
        }
    }

    /// How long the next call waits; an error if that would be too long, and how long it would be.
    /// Takes a request from what is left.
    pub fn next(&mut self, now: Timestamp) -> Result<Duration, Duration> {
        let held = self.held.since(now);
        if held > PACED_MOST {
            return Err(held.min(ASKED_MOST));
        }
        let paced = self
            .allowances
            .iter_mut()
            .map(|(resource, allowance)| allowance.take(*resource, now))
            .max();
        Ok(held.max(paced.unwrap_or_default().min(PACED_MOST)))
    }
}

impl Allowance {
    fn new(reported: ReportedLimit, now: Timestamp) -> Self {
        let ReportedLimit { resource, limit, remaining, resets_in } = reported;
        let resets_in = resets_in.min(ASKED_MOST);
        // Providers refill evenly. How much the next call needs in tokens is not known.
        let used = limit.unwrap_or(1).saturating_sub(remaining).max(1);
        let refill = match resource {
            LimitedResource::Requests => resets_in / u32::try_from(used).unwrap_or(u32::MAX),
            _ => resets_in,
        };
        Self { limit, remaining, resets: now.plus(resets_in), refill, free: now.plus(refill) }
    }

    fn take(&mut self, resource: LimitedResource, now: Timestamp) -> Duration {
        if now >= self.resets {
            return Duration::ZERO;
        }
        if self.remaining > 0 {
            if resource == LimitedResource::Requests {
                self.remaining -= 1;
                self.free = now.plus(self.refill);
            }
            return Duration::ZERO;
        }
        let free = self.free.min(self.resets);
        if resource == LimitedResource::Requests {
            // The next caller waits for the request after this one.
            self.free = free.max(now).plus(self.refill);
        }
        free.since(now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn told(resource: LimitedResource, limit: u64, remaining: u64, resets_in: u64) -> Pace {
        let mut pace = Pace::default();
        let resets_in = seconds(resets_in);
        let limit = Some(limit);
        pace.reported(&[ReportedLimit { resource, limit, remaining, resets_in }], NOW);
        pace
    }

    #[test]
    fn a_wait_that_was_asked_for_is_kept_or_too_long() {
        let mut pace = Pace::default();
        assert_eq!(pace.next(NOW), Ok(Duration::ZERO));
        pace.hold(seconds(7), NOW);
        pace.hold(seconds(3), NOW);
        assert_eq!(pace.next(NOW), Ok(seconds(7)));
        assert_eq!(pace.next(NOW.plus(seconds(6))), Ok(seconds(1)));
        assert_eq!(pace.next(NOW.plus(seconds(7))), Ok(Duration::ZERO));
        pace.hold(seconds(60), NOW);
        assert_eq!(pace.next(NOW), Err(seconds(60)));
        assert_eq!(pace.next(NOW.plus(seconds(50))), Ok(seconds(10)));
        pace.hold(Duration::MAX, NOW);
        assert_eq!(pace.next(NOW), Err(ASKED_MOST));
    }

    #[test]
    fn requests_leave_as_fast_as_they_are_refilled() {
        // 60 a minute, and two are left.
        let mut pace = told(LimitedResource::Requests, 60, 2, 58);
        let waits: Vec<_> = (0..5).map(|_| pace.next(NOW).unwrap().as_secs()).collect();
        assert_eq!(waits, [0, 0, 1, 2, 3]);
        // The next report replaces what was counted here.
        let limit = ReportedLimit {
            resource: LimitedResource::Requests,
            limit: Some(60),
            remaining: 1,
            resets_in: seconds(59),
        };
        pace.reported(&[limit], NOW);
        assert_eq!(pace.next(NOW), Ok(Duration::ZERO));
    }

    #[test]
    fn tokens_that_are_used_up_delay_calls_until_they_are_there_again() {
        use LimitedResource::{InputTokens, OutputTokens, Tokens};
        for resource in [Tokens, InputTokens, OutputTokens] {
            let mut pace = told(resource, 1_000, 0, 4);
            assert_eq!([pace.next(NOW), pace.next(NOW)], [Ok(seconds(4)); 2]);
            assert_eq!(pace.next(NOW.plus(seconds(4))), Ok(Duration::ZERO));
            assert_eq!(told(resource, 1_000, 1, 4).next(NOW), Ok(Duration::ZERO));
        }
    }

    #[test]
    fn a_limit_that_makes_no_sense_delays_a_call_and_refuses_none() {
        for resource in [LimitedResource::Requests, LimitedResource::Tokens] {
            let mut pace = told(resource, 0, 0, u64::MAX);
            for _ in 0..100 {
                assert_eq!(pace.next(NOW), Ok(PACED_MOST));
            }
        }
    }

    proptest! {
        #[test]
        fn waits_are_bounded(
            reports in prop::collection::vec(
                (0_usize..5, prop::option::of(any::<u64>()), any::<u64>(), any::<u64>(), any::<u64>()),
                0..50,
            ),
        ) {
            let resources = [
                LimitedResource::Requests, LimitedResource::Tokens, LimitedResource::InputTokens,
                LimitedResource::OutputTokens, LimitedResource::Other,
            ];
            let mut pace = Pace::default();
            for (resource, limit, remaining, resets, now) in reports {
                let resets_in = Duration::from_millis(resets);
                let resource = resources[resource];
                let now = Timestamp(now);
                pace.reported(&[ReportedLimit { resource, limit, remaining, resets_in }], now);
                for _ in 0..3 {
                    prop_assert!(pace.next(now).unwrap() <= PACED_MOST);
                }
                prop_assert!(pace.allowances.len() <= 5);
            }
        }
    }
}
