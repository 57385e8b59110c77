//! The rules of context from version 2 on: which earlier turns a request shows. Pure.
//!
//! The running turn and what comes before the messages (the system prompt, tools, a schema) are always sent. Beside
//! them there are the newest turns, of those that a session keeps: all of them while the history is short, or as many
//! as the agent's budget has room for. What was left out stays left out, and what has no room any more goes in blocks,
//! so that between two blocks each request begins with the one before it (CACHE-1).
//!
//! Under version 2 a session keeps its last 16 turns, and a request shows no more. Under version 3 it keeps all turns of
//! a history that is short. Once turns have left the state, the history is long, however little of it is left there.
//!
//! Invariants
//! - CTX-2 beside the running turn, a bounded request is within its budget, by the estimate that its provider's reports
//!   correct. What comes before the messages is never cut: if that alone is more, no earlier turn is shown. What a
//!   client sent along with the first message of a session belongs to that message, as long as its turn runs.
//! - CTX-3 under version 3, by default, every turn is shown whole while all of them together are short: nothing leaves
//!   the state before a request leaves it out, or the state is full.

use clawnode_proto::{
    context::{ContextMode, ContextRules, ContextSettings},
    limits::KEPT_TURNS,
};

/// How many turns a state keeps under the rules of version 2.
const KEPT_TURNS_V2: usize = 16;
/// A history of fewer tokens is shown whole, unless the agent's context is always bounded: people notice what is
/// missing sooner than what it costs.
const WHOLE_TOKENS: u64 = 30_000;
/// The part of a window that such a history may be: one in so many.
const WHOLE_SHARE: u64 = 4;

/// What a cut makes of the turns before the running one.
#[derive(Debug)]
pub(super) struct CutTurns<T> {
    /// Those that are shown, oldest first.
    pub(in crate::session::turn) shown: Vec<T>,
    /// How many older ones are not.
    pub(in crate::session::turn) left_out: u32,
    /// Whether the budget of a context held.
    pub(in crate::session::turn) is_bounded: bool,
}

/// What there is room for before the running turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How many of the oldest turns the request before left out.
    before: u32,
    /// Tokens that the model's window has room for.
    window: u64,
    /// Tokens that the agent's budget has room for.
    budget: u64,
    /// A history of so many tokens is bounded. Absent: none is.
    whole: Option<u64>,
    /// How many turns go at once, and how many of the newest stay if they fit.
    block: usize,
    /// How many turns a session keeps at most, and so a request shows.
    kept: usize,
}

/// How many turns a state keeps at most that have ended.
pub(in crate::session::turn) const fn most_kept(rules: ContextRules) -> usize {
    match rules {
        ContextRules::V2 => KEPT_TURNS_V2,
        ContextRules::V3 => KEPT_TURNS,
    }
}

/// How long a history may be, in tokens, that is shown whole. Absent: as long as it may be. Of some, turns have left the
/// state.
pub(super) fn whole_history(
    settings: &ContextSettings,
    window: u64,
    is_first_turn: bool,
    have_turns_left: bool,
) -> Option<u64> {
    match settings.mode {
        _ if is_first_turn => None,
        ContextMode::Auto if have_turns_left && settings.rules >= ContextRules::V3 => Some(0),
        ContextMode::Auto => Some(WHOLE_TOKENS.min(window / WHOLE_SHARE)),
        ContextMode::Bounded => Some(0),
    }
}

// === impl Bounds ===

impl Bounds {
    /// Room for so many tokens in the window and in the budget. All sizes are as they seem, which provider's reports
    /// correct.
    pub(in crate::session::turn) fn new(
        settings: &ContextSettings,
        before: u32,
        window: u64,
        budget: u64,
        whole: Option<u64>,
    ) -> Self {
        let kept = most_kept(settings.rules);
        let block = usize::try_from(settings.recent_turns).unwrap_or(kept).clamp(1, kept);
        Self { before, window, budget, whole, block, kept }
    }

    /// The turns that are shown, out of so many, newest first; some of the oldest may not be there. Looks at as many
    /// as a session keeps, and no further back than it takes to know that the history is long.
    pub(in crate::session::turn) fn shown<T>(
        self,
        total: usize,
        newest_first: impl Iterator<Item = T>,
        tokens: impl Fn(&T) -> u64,
    ) -> CutTurns<T> {
        let enough = self.whole.map(|whole| whole.max(self.budget.saturating_add(1)));
        let (mut shown, mut sums, mut size) = (Vec::new(), Vec::new(), 0_u64);
        for turn in newest_first.take(self.kept) {
            size = size.saturating_add(tokens(&turn));
            shown.push(turn);
            sums.push(size);
            if enough.is_some_and(|enough| size >= enough) {
                break;
            }
        }
        let is_bounded = self.whole.is_some_and(|whole| size >= whole);
        let room = if is_bounded { self.window.min(self.budget) } else { self.window };
        let left_out = usize::try_from(self.before).unwrap_or(usize::MAX);
        // What was left out stays left out.
        let most = total.saturating_sub(left_out);
        let fitting = sums.iter().take_while(|size| **size <= room).count().min(most);
        shown.truncate(self.kept(most, fitting));
        shown.reverse();
        let left_out = u32::try_from(total.saturating_sub(shown.len())).unwrap_or(u32::MAX);
        CutTurns { shown, left_out, is_bounded }
    }

    /// How many of the newest turns stay, if there are so many and so many of them fit.
    fn kept(self, most: usize, fitting: usize) -> usize {
        let behind = most.saturating_sub(fitting);
        // Whole blocks go, but none of the turns that are recent.
        let going = behind.checked_next_multiple_of(self.block).unwrap_or(most);
        most.saturating_sub(going).max(fitting.min(self.block))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounds(before: u32, budget: u64, whole: Option<u64>) -> Bounds {
        Bounds { before, window: 100_000, budget, whole, block: 5, kept: 16 }
    }

    /// How many of so many turns of one size are shown; the last ones are there.
    fn shown(bounds: Bounds, total: usize, size: u64) -> usize {
        let there = (0..total).rev().take(bounds.kept);
        let cut = bounds.shown(total, there, |_| size);
        assert_eq!(cut.shown.len() + cut.left_out as usize, total);
        assert!(cut.shown.iter().copied().eq(cut.left_out as usize..total), "the newest, in order");
        cut.shown.len()
    }

    /// What a session shows, turn after turn, each of which has so many tokens.
    fn played(budget: u64, whole: Option<u64>, turns: usize, size: u64) -> Vec<usize> {
        let mut before = 0;
        let next = |total| {
            let count = shown(bounds(before, budget, whole), total, size);
            before = u32::try_from(total - count).unwrap();
            count
        };
        (0..turns).map(next).collect()
    }

    #[test]
    fn the_newest_turns_stay_and_others_go_in_blocks() {
        // Ten fit: five go at a time.
        let shown = played(1_000, Some(0), 22, 100);
        let mut expected: Vec<usize> = (0..=10).collect();
        expected.extend([6, 7, 8, 9, 10, 6, 7, 8, 9, 10, 6]);
        assert_eq!(shown, expected);
        // Six fit: five of them are recent and stay.
        assert_eq!(played(600, Some(0), 11, 100), [0, 1, 2, 3, 4, 5, 6, 5, 6, 5, 6]);
        // Three fit: all three are recent.
        assert_eq!(played(300, Some(0), 7, 100), [0, 1, 2, 3, 3, 3, 3]);
        assert_eq!(played(99, Some(0), 4, 100), [0; 4], "none fits");
    }

    /// Under version 2 the state has 16 of them: what it has no more goes in blocks, too.
    #[test]
    fn a_short_history_is_shown_as_far_as_it_is_kept() {
        let shown = played(100, Some(1_000_000), 25, 10);
        let mut expected: Vec<usize> = (0..=16).collect();
        expected.extend([12, 13, 14, 15, 16, 12, 13, 14]);
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_history_is_bounded_once_it_is_long() {
        // Under 1,000 tokens all are shown, beyond that 500 tokens of them.
        let shown = played(500, Some(1_000), 12, 100);
        assert_eq!(shown, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 5, 5]);
    }

    /// However little of it is left in the state.
    #[test]
    fn a_history_whose_beginning_has_left_is_long() {
        let (mode, tokens) = (ContextMode::Auto, 5_000);
        let auto = |rules| ContextSettings { rules, mode, tokens, recent_turns: 5 };
        let whole = |rules, have_left| whole_history(&auto(rules), 100_000, false, have_left);
        assert_eq!(whole(ContextRules::V3, false), Some(25_000));
        assert_eq!(whole(ContextRules::V3, true), Some(0));
        assert_eq!(whole(ContextRules::V2, true), Some(25_000), "they all have left before");
        assert_eq!(whole_history(&auto(ContextRules::V3), 900_000, false, false), Some(30_000));
        assert_eq!(whole_history(&auto(ContextRules::V3), 900_000, true, true), None);
    }

    #[test]
    fn a_full_window_bounds_what_a_budget_does_not() {
        let small = Bounds { window: 250, ..bounds(0, 1_000, None) };
        assert_eq!(shown(small, 8, 100), 2);
        let first = Bounds { window: 5_000, ..bounds(0, 1_000, None) };
        assert_eq!(shown(first, 1, 4_000), 1, "what began the session is no matter of the budget");
    }

    #[test]
    fn what_was_left_out_does_not_come_back() {
        assert_eq!(shown(bounds(7, 1_000, Some(0)), 9, 10), 2);
        assert_eq!(shown(bounds(99, 1_000, Some(0)), 9, 10), 0, "another journal's number");
    }
}
