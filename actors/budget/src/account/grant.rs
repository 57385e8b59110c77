//! Whether an ask gets a slice, and how large it is. Pure.

use std::{collections::BTreeSet, time::Duration};

use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{AskVerdict, SliceAsk},
};
use serde::{Deserialize, Serialize};

use super::limit_book::LimitBook;

/// An ask that was not repeated for this long is forgotten: its process has died, or needs nothing.
const ASK_AGE: Duration = Duration::from_secs(30);
/// A slice is this part of the rest, if no more is needed at once: enough calls go without the
/// account, and a process that dies takes little with it.
const PART: u64 = 100;
/// A slice is enough for so many calls, if they are no more than [`SHARED_PART`] of the rest: most calls cost a
/// small part of their most, and the next one does not wait for the account.
const CALLS: u64 = 4;
/// While others have slices or wait, a slice is at most this part of the rest.
const SHARED_PART: u64 = 4;

/// An ask that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingAsk {
    /// Who asks.
    pub process: ProcessId,
    /// For what.
    pub wants: SliceAsk,
    /// When it was repeated last.
    pub(super) at: Timestamp,
    /// The event with which it came first.
    pub(super) since: u64,
    /// An operator said that its process is gone: it gets nothing.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) gone: bool,
}

impl WaitingAsk {
    /// Whether its process still waits at this time. An ask that was not repeated for long is forgotten with the next
    /// input of the account.
    pub fn is_open(&self, now: Timestamp) -> bool {
        now.since(self.at) <= ASK_AGE
    }

    /// Whether it gets something once there is enough. One whose process is gone gets nothing.
    pub const fn may_get(&self) -> bool {
        !self.gone
    }
}

/// What becomes of an ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantVerdict {
    /// It gets a slice of this size.
    Slice(u64),
    /// It gets none now.
    None(AskVerdict),
    /// It waits, and what living processes give back is too little: dead ones have the rest. Its process is answered
    /// that it waits, or that a person has to allow more, if that is enough without what dead processes have.
    Stranded(AskVerdict),
}

impl LimitBook {
    /// What becomes of an ask, given whether other processes have slices of this window or wait, and which
    /// processes are held dead.
    ///
    /// A call waits while what others have could come back. What is left for good is granted even if
    /// it is less than the call can cost: the call may be made smaller. Only what is spent ends it. What dead
    /// processes have counts like that of others (C20), but no call waits for it that can be made without.
    pub fn judge(
        &self,
        ask: &WaitingAsk,
        shared: bool,
        dead: &BTreeSet<ProcessId>,
    ) -> GrantVerdict {
        let Some(limit) = self.limit else { return GrantVerdict::None(AskVerdict::NoLimit) };
        let spent = self.current.spent();
        let needs_person = AskVerdict::NeedsPerson { spent, limit: limit.amount };
        if self.current.over > 0 {
            return GrantVerdict::None(needs_person);
        }
        let ceiling = self.ceiling();
        let committed = self.current.committed();
        let room = ceiling.saturating_sub(committed);
        // If everything came back.
        let most = ceiling.saturating_sub(spent);
        // If all that came back that comes back by itself.
        let alive = most.saturating_sub(self.current.stranded(dead));
        let least = ask.wants.least.max(1);
        let call = ask.wants.call.max(least);
        if call <= room {
            return GrantVerdict::Slice(size(room, call, ask.wants.waits, shared));
        }
        if call > alive && least <= room {
            return GrantVerdict::Slice(room);
        }
        if least <= alive {
            return GrantVerdict::None(AskVerdict::Waits);
        }
        if least <= most {
            let is_allowable = least <= limit.amount.saturating_sub(committed);
            let verdict = if is_allowable { needs_person } else { AskVerdict::Waits };
            return GrantVerdict::Stranded(verdict);
        }
        if least <= limit.amount.saturating_sub(spent) {
            return GrantVerdict::None(needs_person);
        }
        GrantVerdict::None(AskVerdict::SpentOut { spent, limit: limit.amount })
    }
}

/// The largest of three amounts: what waits, some calls more, and a part of the rest. At most a fair part of the
/// rest if others need it, too. At least enough for one call.
fn size(room: u64, call: u64, waits: u64, shared: bool) -> u64 {
    let ahead = call.saturating_mul(CALLS).min(room / SHARED_PART);
    let wanted = waits.max(ahead).max(room / PART);
    let fair = if shared { wanted.min(room / SHARED_PART) } else { wanted };
    fair.max(call).min(room)
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn a_slice_is_what_waits_or_a_part_of_what_is_left() {
        let rows = [
            ((10_000, 5, 5, false), 100),
            ((10_000, 5, 700, false), 700),
            ((10_000, 5, 7_000, true), 2_500),
            ((10_000, 4_000, 7_000, true), 4_000),
            ((10_000, 200, 200, false), 800),
            ((10_000, 2_000, 2_000, false), 2_500),
            ((10_000, 5, 20_000, false), 10_000),
            ((50, 5, 5, false), 12),
        ];
        for ((room, call, waits, shared), expected) in rows {
            assert_eq!(size(room, call, waits, shared), expected, "{room} {call} {waits} {shared}");
        }
    }
}
