//! How large requests are in tokens, by what providers report of those before. Pure.

use clawnode_proto::llm::ModelRef;
use serde::{Deserialize, Serialize};

/// How far a report may be from the estimate, in both directions. Beyond it, it is about more than the
/// request: tries that broke off are reported together with the one that did not.
const MOST: u64 = 4;

/// A request whose size its provider reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// The model that read it; another counts differently.
    pub model: ModelRef,
    /// How large it seemed.
    pub estimate: u64,
    /// How large it was.
    pub reported: u64,
}

// === impl Measured ===

impl Measured {
    /// A report about a request; nothing if it says nothing.
    pub(in crate::session::turn) fn of(
        model: &ModelRef,
        estimate: u64,
        reported: u64,
    ) -> Option<Self> {
        if estimate == 0 || reported == 0 {
            return None;
        }
        let reported = reported.clamp(estimate.div_ceil(MOST), estimate.saturating_mul(MOST));
        Some(Self { model: model.clone(), estimate, reported })
    }

    /// How large a request may seem that has so many tokens. The part that was reported counts as it was;
    /// what is added is scaled by that, but never down: its kind of text is not known yet.
    pub(super) fn estimate_of(&self, tokens: u64) -> u64 {
        let Self { estimate, reported, .. } = *self;
        let scaled = |tokens: u64| {
            let scaled = u128::from(tokens) * u128::from(estimate) / u128::from(reported.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        match tokens.checked_sub(reported) {
            Some(added) => estimate.saturating_add(scaled(added).min(added)),
            None => scaled(tokens),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(estimate: u64, reported: u64) -> Measured {
        Measured::of(&"p/m".parse().unwrap(), estimate, reported).unwrap()
    }

    #[test]
    fn what_was_reported_counts_as_it_was_and_the_rest_is_scaled() {
        // Prose: it has fewer tokens than it seems to.
        let prose = measured(1_000, 750);
        assert_eq!(prose.estimate_of(750), 1_000);
        assert_eq!(prose.estimate_of(375), 500);
        assert_eq!(prose.estimate_of(1_750), 2_000, "what is added may be something else");
        // Code: it has more.
        let code = measured(1_000, 1_500);
        assert_eq!(code.estimate_of(1_500), 1_000);
        assert_eq!(code.estimate_of(3_000), 2_000);
    }

    #[test]
    fn a_larger_window_never_has_less_room() {
        for (estimate, reported) in [(1, 1), (7, 3), (3, 7), (1_000, 1), (u64::MAX, 5)] {
            let measured = measured(estimate, reported);
            let rooms: Vec<u64> = (0..200).map(|tokens| measured.estimate_of(tokens)).collect();
            assert!(rooms.is_sorted(), "{measured:?}");
        }
    }

    #[test]
    fn a_report_that_cannot_be_true_is_not_believed() {
        assert_eq!(measured(100, 100_000).reported, 400);
        assert_eq!(measured(100, 1).reported, 25);
        assert_eq!(Measured::of(&"p/m".parse().unwrap(), 100, 0), None, "a server without usage");
    }
}
