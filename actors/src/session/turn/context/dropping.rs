//! How much of a conversation a model is shown. Pure.
//!
//! Providers keep what requests begin with, and read it again for a fraction of its price. So what was left out
//! stays left out, and what does not fit any more goes in blocks: between two blocks each request begins with the
//! one before it (CACHE-1). How many turns a request leaves out is journaled with it, so a replay need not
//! decide that again, whatever rule the build had that did.

use clawnode_proto::{context::ContextSettings, llm::ModelRef, session::Profile};
use serde::{Deserialize, Serialize};

use super::{
    attachments::AttachmentRule,
    bounded::{Bounds, CutTurns},
};

/// The part of a window from which on a request is shortened by a summary or by entries of the ledger, in percent.
pub(in crate::session::turn) const FULL_PERCENT: u64 = 80;
/// The part of a window that one block frees: one in so many.
pub(in crate::session::turn) const BLOCK_SHARE: u64 = 4;

/// What the last request left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOut {
    /// The model that was asked.
    pub model: ModelRef,
    /// Its window.
    pub window_tokens: u32,
    /// How many of the oldest turns it was not shown.
    pub turns: u32,
    /// By which rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextSettings>,
}

/// What the journal says of a request, and what the build that made it may have done.
#[derive(Clone, Copy, Debug)]
pub(in crate::session::turn) struct Recorded {
    /// How many of the oldest turns it left out.
    pub(in crate::session::turn) dropped_turns: u32,
    /// Up to which entry of the ledger it shows entries in the place of calls of its turn.
    pub(in crate::session::turn) closes_upto: Option<u64>,
    /// Which attachments it held.
    pub(in crate::session::turn) attachments: AttachmentRule,
}

/// Where the turns that a request shows begin.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    /// As the journal has it.
    Recorded(u32),
    /// By the rules of a later version.
    Bounded(Bounds),
    /// By the rules of version 1: as they fit.
    Fitting {
        /// How many of the oldest turns the request before left out.
        before: u32,
        /// Tokens that there is room for.
        room: u64,
        /// Tokens that are free at least after turns were left out.
        block: u64,
    },
}

// === impl LeftOut ===

impl LeftOut {
    /// What a request under `profile` left out.
    pub(in crate::session::turn) fn of(profile: &Profile, turns: u32) -> Self {
        let (model, window_tokens) = (profile.model.clone(), profile.window_tokens);
        Self { model, window_tokens, turns, context: profile.context }
    }

    /// What stays left out of a request under `profile`. With another model, window or other rules, nothing does.
    pub(in crate::session::turn) fn under(&self, profile: &Profile) -> u32 {
        let is_same = self.model == profile.model
            && self.window_tokens == profile.window_tokens
            && self.context == profile.context;
        if is_same { self.turns } else { 0 }
    }
}

// === impl Cut ===

impl Cut {
    /// The turns that are shown, oldest first, out of so many, newest first; and how many older ones are not.
    /// Looks no further back than what fits, and one turn more.
    pub(in crate::session::turn) fn shown<T>(
        self,
        total: usize,
        newest_first: impl Iterator<Item = T>,
        tokens: impl Fn(&T) -> u64,
    ) -> CutTurns<T> {
        let before = match self {
            Self::Bounded(bounds) => return bounds.shown(total, newest_first, tokens),
            Self::Recorded(before) | Self::Fitting { before, .. } => before,
        };
        let most = total.saturating_sub(usize::try_from(before).unwrap_or(usize::MAX));
        let (mut shown, mut size, mut fitting) = (Vec::new(), 0_u64, 0);
        for turn in newest_first.take(most) {
            if let Self::Fitting { room, block, .. } = self {
                size = size.saturating_add(tokens(&turn));
                if size > room {
                    shown.truncate(fitting);
                    break;
                }
                // In a small window a whole block may be more than there is. The newest turn stays if it fits.
                let rest = room.saturating_sub(block).max(room / 2);
                if size <= rest || shown.is_empty() {
                    fitting = shown.len() + 1;
                }
            }
            shown.push(turn);
        }
        let left_out = u32::try_from(total - shown.len()).unwrap_or(u32::MAX);
        shown.reverse();
        CutTurns { shown, left_out, is_bounded: false }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::context::{ContextMode, ContextRules};

    use super::*;

    /// Turns of these sizes, oldest first.
    fn shown(cut: Cut, sizes: &[usize]) -> (usize, u32) {
        let newest_first = sizes.iter().rev().copied();
        let cut = cut.shown(sizes.len(), newest_first, |size| *size as u64);
        let CutTurns { shown: kept, left_out, .. } = cut;
        assert_eq!(kept.len() + left_out as usize, sizes.len());
        assert_eq!(kept, sizes[left_out as usize..], "the newest, in their order");
        (kept.len(), left_out)
    }

    fn fitting(before: u32, room: u64, block: u64) -> Cut {
        Cut::Fitting { before, room, block }
    }

    #[test]
    fn what_does_not_fit_goes_in_blocks_and_stays_left_out() {
        let ten = [10; 10];
        assert_eq!(shown(fitting(0, 100, 25), &ten), (10, 0), "all fit");
        assert_eq!(shown(fitting(0, 99, 25), &ten), (7, 3), "a quarter is free");
        // Until the room is used up again, nothing else goes.
        assert_eq!(shown(fitting(3, 99, 25), &[10; 12]), (9, 3));
        assert_eq!(shown(fitting(3, 99, 25), &[10; 13]), (7, 6));
        // What was left out does not come back, whatever there is room for.
        assert_eq!(shown(fitting(6, 1_000, 25), &[10; 13]), (7, 6));
        assert_eq!(shown(fitting(99, 1_000, 25), &ten), (0, 10), "another journal's number");
    }

    #[test]
    fn a_small_window_does_not_forget_everything() {
        // A block is more than there is room for.
        assert_eq!(shown(fitting(0, 20, 25), &[5; 5]), (2, 3));
        // The newest turn is larger than what stays of a window.
        assert_eq!(shown(fitting(0, 100, 25), &[10, 10, 90]), (1, 2));
        assert_eq!(shown(fitting(0, 100, 25), &[10, 101]), (0, 2));
    }

    /// A snapshot of an earlier build has what that build wrote.
    #[test]
    fn what_a_snapshot_has_of_the_last_request_is_read_by_later_builds() {
        let model: ModelRef = "p/m".parse().unwrap();
        let plain = LeftOut { model, window_tokens: 9, turns: 2, context: None };
        let read = |written: &str| serde_json::from_str::<LeftOut>(written).unwrap();
        let written = r#"{"model":"p/m","window_tokens":9,"turns":2}"#;
        assert_eq!(read(written), plain);
        assert_eq!(serde_json::to_string(&plain).unwrap(), written);
        for (name, rules) in [("2", ContextRules::V2), ("3", ContextRules::V3)] {
            let (mode, tokens, recent_turns) = (ContextMode::Auto, 5_000, 5);
            let context = Some(ContextSettings { rules, mode, tokens, recent_turns });
            let left_out = LeftOut { context, ..plain.clone() };
            let rules =
                format!(r#"{{"rules":"{name}","mode":"auto","tokens":5000,"recent_turns":5}}"#);
            let written = written.replace('}', &format!(r#","context":{rules}}}"#));
            assert_eq!(read(&written), left_out);
            assert_eq!(serde_json::to_string(&left_out).unwrap(), written);
        }
    }

    #[test]
    fn a_replay_leaves_out_what_the_journal_says() {
        for left_out in 0..5 {
            assert_eq!(shown(Cut::Recorded(left_out), &[10; 4]).1, left_out.min(4));
        }
    }
}
