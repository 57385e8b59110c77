//! One limit of an account: its windows, and the slices of them.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_kernel::Violation;
use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{BudgetGranted, BudgetLimit, LimitKey, SliceReport, WindowBegun, WindowNumber},
};
use serde::{Deserialize, Serialize};

/// Processes whose last slice is remembered though they have none now. In a window without end they would
/// add up with each process that ever was.
const NEWEST_MOST: usize = 64;

/// What is known of one limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitBook {
    /// Which limit.
    pub key: LimitKey,
    /// The limit in force; nothing if it was taken away, and slices of it are still out.
    pub limit: Option<BudgetLimit>,
    /// The window of the last event.
    pub current: WindowBook,
    /// The window before: reports about its slices still come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<WindowBook>,
    /// The highest number of a slice that each process had of these windows: what it asked for before
    /// is not granted again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    newest: Vec<(ProcessId, u64)>,
}

/// One window of a limit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowBook {
    /// Which one.
    pub number: WindowNumber,
    /// What closed slices have spent.
    pub closed: u64,
    /// Slices that are not closed, oldest first.
    pub slices: Vec<Slice>,
    /// What calls have cost above their reservations, and no person has allowed.
    pub over: u64,
    /// The part of it that is recorded.
    pub named: u64,
    /// A warning is recorded.
    pub warned: bool,
    /// That a person has to allow more is recorded.
    pub asked: bool,
    /// A person has allowed more.
    pub allowed: bool,
}

/// A slice that a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slice {
    /// Whose it is.
    pub process: ProcessId,
    /// Its number there.
    pub number: u64,
    /// What was granted.
    pub amount: u64,
    /// What is spent, as reported last.
    pub spent: u64,
    /// What running calls can cost at most, as reported last.
    pub held: u64,
    /// What will not be spent.
    pub returned: u64,
    over: u64,
    seq: u64,
}

// === impl Slice ===

impl Slice {
    /// What has to be reckoned with: all of it, until it is given back or spent.
    pub fn counts(&self) -> u64 {
        self.amount.saturating_sub(self.returned).max(self.spent)
    }

    /// What of that is not reported as spent.
    fn unspent(&self) -> u64 {
        self.counts().saturating_sub(self.spent)
    }

    /// Takes a report; says by how much the excess grew.
    fn hear(&mut self, report: &SliceReport) -> u64 {
        self.seq = report.seq;
        // BUD-3: it never falls.
        self.spent = self.spent.max(report.spent);
        self.held = report.held;
        let free = self.amount.saturating_sub(self.spent.saturating_add(self.held));
        self.returned = self.returned.max(report.returned.min(free));
        let grown = report.over.saturating_sub(self.over);
        self.over = self.over.max(report.over);
        grown
    }
}

// === impl WindowBook ===

impl WindowBook {
    fn new(number: WindowNumber) -> Self {
        Self { number, ..Self::default() }
    }

    /// What is spent, as far as it is reported.
    pub fn spent(&self) -> u64 {
        self.slices.iter().fold(self.closed, |sum, slice| sum.saturating_add(slice.spent))
    }

    /// What is spent, and what processes may still spend.
    pub fn committed(&self) -> u64 {
        self.slices.iter().fold(self.closed, |sum, slice| sum.saturating_add(slice.counts()))
    }

    /// What these processes may still spend, as far as the account knows.
    pub(super) fn stranded(&self, dead: &BTreeSet<ProcessId>) -> u64 {
        let own = self.slices.iter().filter(|slice| dead.contains(&slice.process));
        own.fold(0, |sum, slice| sum.saturating_add(slice.unspent()))
    }

    /// The one of these processes that may still spend the most.
    pub(super) fn most_held(&self, is_meant: impl Fn(ProcessId) -> bool) -> Option<ProcessId> {
        let mut held: BTreeMap<ProcessId, u64> = BTreeMap::new();
        for slice in self.slices.iter().filter(|slice| is_meant(slice.process)) {
            let sum = held.entry(slice.process).or_default();
            *sum = sum.saturating_add(slice.unspent());
        }
        let most = held.into_iter().filter(|(_, held)| *held > 0).max_by_key(|(_, held)| *held);
        most.map(|(process, _)| process)
    }

    fn slice(&mut self, process: ProcessId, number: u64) -> Option<&mut Slice> {
        self.slices.iter_mut().find(|one| one.process == process && one.number == number)
    }

    fn hear(&mut self, process: ProcessId, report: &SliceReport) {
        let Some(slice) = self.slice(process, report.number) else { return };
        if report.seq <= slice.seq {
            return;
        }
        let grown = slice.hear(report);
        let spent = slice.spent;
        self.over = self.over.saturating_add(grown);
        if report.closed {
            self.closed = self.closed.saturating_add(spent);
            self.slices.retain(|one| one.process != process || one.number != report.number);
        }
    }
}

// === impl LimitBook ===

impl LimitBook {
    pub(super) fn new(limit: BudgetLimit, now: Timestamp) -> Self {
        Self {
            key: limit.key,
            limit: Some(limit),
            current: WindowBook::new(limit.key.window.at(now)),
            previous: None,
            newest: Vec::new(),
        }
    }

    /// The limit that is in force from now on.
    pub(super) fn set(&mut self, limit: Option<BudgetLimit>) {
        if self.limit == limit {
            return;
        }
        #[cfg(feature = "test-util")]
        if let (Some(before), Some(now)) = (&self.limit, &limit)
            && now.amount < before.amount
            && clawnode_kernel::KernelBug::KeepsHigherLimit.is_in_folds()
        {
            return;
        }
        self.limit = limit;
        // They were about another limit.
        self.current.warned = false;
        self.current.asked = false;
        self.current.allowed = false;
    }

    /// Whether nothing of it is needed any more.
    ///
    /// BUD-3: a limit that is taken away and set again in one window still knows what that has spent.
    pub(super) fn is_over(&self) -> bool {
        let is_empty = self.windows().all(|window| window.slices.is_empty());
        // What was asked for before is known until the window ends, also if the limit is set again.
        let is_forgotten = self.newest.is_empty();
        self.limit.is_none() && is_empty && is_forgotten && self.current.spent() == 0
    }

    /// The windows of which slices may be out.
    pub fn windows(&self) -> impl Iterator<Item = &WindowBook> {
        std::iter::once(&self.current).chain(&self.previous)
    }

    /// How much may be granted without asking anybody.
    pub fn ceiling(&self) -> u64 {
        match &self.limit {
            None => 0,
            Some(limit) if self.current.allowed => limit.amount,
            #[cfg(feature = "test-util")]
            Some(limit) if clawnode_kernel::KernelBug::GrantsUnallowed.is_in_folds() => {
                limit.amount
            }
            Some(limit) => limit.share(limit.ask_at),
        }
    }

    /// Whether this slice was asked for before, and granted.
    pub(super) fn knows(&self, process: ProcessId, number: u64) -> bool {
        self.newest.iter().any(|(one, newest)| *one == process && number <= *newest)
    }

    /// Takes a grant. I6, BUD-4.
    pub(super) fn grant(&mut self, granted: &BudgetGranted) -> Result<(), Violation> {
        let BudgetGranted { process, number, window, amount, .. } = *granted;
        let Some(limit) = self.limit else {
            return Err(Violation(format!("I6: `{}` has no limit", self.key)));
        };
        if window != self.current.number {
            let text =
                format!("BUD-4: a slice of window {} in {}", window.0, self.current.number.0);
            return Err(Violation(text));
        }
        if self.knows(process, number) {
            return Err(Violation(format!(
                "BUD-4: slice {number} of `{process}` is granted twice"
            )));
        }
        let committed = self.current.committed();
        if committed.saturating_add(amount) > limit.amount {
            let text = format!("I6: {amount} beside {committed} is over {}", limit.amount);
            return Err(Violation(text));
        }
        self.newest.retain(|(one, _)| *one != process);
        self.newest.push((process, number));
        if self.newest.len() > NEWEST_MOST {
            let has = |one: ProcessId| {
                let mut slices = self.windows().flat_map(|window| &window.slices);
                slices.any(|slice| slice.process == one)
            };
            let idle = self.newest.iter().position(|(one, _)| *one != process && !has(*one));
            idle.map(|at| self.newest.remove(at));
        }
        let (spent, held, returned) = (0, 0, 0);
        let slice = Slice { process, number, amount, spent, held, returned, over: 0, seq: 0 };
        self.current.slices.push(slice);
        Ok(())
    }

    /// Takes a report about a slice of one of its windows. BUD-4: it counts in the slice's own window.
    pub(super) fn hear(&mut self, process: ProcessId, report: &SliceReport) {
        let window = report.window;
        #[cfg(feature = "test-util")]
        let window = if clawnode_kernel::KernelBug::SettlesIntoCurrentWindow.is_in_folds() {
            self.move_to_current(process, report);
            self.current.number
        } else {
            window
        };
        if self.current.number == window {
            self.current.hear(process, report);
        } else if let Some(previous) = self.previous.as_mut().filter(|open| open.number == window) {
            let before = previous.over;
            previous.hear(process, report);
            // A person has to look at it, in whichever window they do.
            self.current.over = self.current.over.saturating_add(previous.over - before);
        }
    }

    /// A planted bug: what is settled late counts in the window that is current then.
    #[cfg(feature = "test-util")]
    fn move_to_current(&mut self, process: ProcessId, report: &SliceReport) {
        let Some(previous) = &mut self.previous else { return };
        let is_it = |one: &Slice| one.process == process && one.number == report.number;
        let late = previous.slices.extract_if(.., |one| is_it(one));
        self.current.slices.extend(late);
    }

    /// What is recorded if the window of its last event has ended by now.
    pub(super) fn ends(&self, now: Timestamp) -> Option<WindowBegun> {
        let window = self.key.window.at(now);
        let WindowBook { number: ended, .. } = self.current;
        let spent = self.current.spent();
        let open = self.current.committed().saturating_sub(spent);
        (window > ended).then_some(WindowBegun { limit: self.key, window, ended, spent, open })
    }

    /// Takes the end of a window. BUD-3.
    pub(super) fn begin(&mut self, begun: &WindowBegun) -> Result<(), Violation> {
        let spent = self.current.spent();
        if begun.ended != self.current.number || begun.window <= begun.ended {
            let text = format!("BUD-4: window {} after {}", begun.window.0, self.current.number.0);
            return Err(Violation(text));
        }
        if begun.spent != spent {
            let text = format!("BUD-3: it says {}, and its slices have spent {spent}", begun.spent);
            return Err(Violation(text));
        }
        let WindowBook { over, named, .. } = self.current;
        let next = WindowBook { over, named, ..WindowBook::new(begun.window) };
        let ended = std::mem::replace(&mut self.current, next);
        self.newest.retain(|(process, _)| ended.slices.iter().any(|one| one.process == *process));
        self.previous = (!ended.slices.is_empty()).then_some(ended);
        Ok(())
    }
}
