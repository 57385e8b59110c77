//! The state of an account, and what its events and inputs change in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use clawnode_kernel::Violation;
use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{
        AskAnswer, AskVerdict, BudgetAllowed, BudgetAsked, BudgetEvent, BudgetGranted, BudgetInput,
        BudgetLimit, BudgetOver, BudgetSet, BudgetWarned, GrantedSlice, LimitKey, LimitSource,
        SliceAsk, SliceReport,
    },
};
use serde::{Deserialize, Serialize};

use super::{
    LimitBook,
    grant::{GrantVerdict, WaitingAsk},
};

/// A process without slices that was heard of this long ago is not told how things stand any more.
const TOLD_AGE: Duration = Duration::from_mins(5);
/// A process that has not given back what others wait for hears of it again after this long, when one of them asks
/// again: what an account says may be lost, and a process whose calls need nothing asks for nothing.
const RECALL_AGAIN: Duration = Duration::from_secs(5);
/// Processes that may ask at the same time, for one limit. More than a cluster has.
const ASKS_MOST: usize = 1_024;

/// The state of an account.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetState {
    /// The account's readable key.
    pub key: String,
    /// The time of events, and of timers that have fired.
    pub now: Timestamp,
    /// The last event.
    pub n: u64,
    /// When it began. If it is deleted and begins again, that is later, and its events count from 1 again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
    /// What the configuration says.
    pub(super) configured: Vec<BudgetLimit>,
    /// The configuration says nothing: those are the built-in default.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_default: bool,
    /// All limits in force, if a person set some of them.
    pub(super) set: Option<Vec<BudgetLimit>>,
    /// On which of them the person decides; absent if on all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) decided: Option<DecidedLimits>,
    /// The event that set limits last. 0 before the first one.
    #[serde(default)]
    pub(super) changed: u64,
    /// Every limit that is in force or has slices out.
    pub books: Vec<LimitBook>,
    /// What processes asked for and have not got, oldest first.
    pub asks: Vec<WaitingAsk>,
    /// When each process was heard of last, or got something.
    heard: BTreeMap<ProcessId, LatestNews>,
    /// Processes with slices that others hold dead. What they have counts as before, but no call waits for it that
    /// can be made without.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    dead: BTreeSet<ProcessId>,
    /// What people and the configuration want, and is not recorded yet.
    pub(super) wanted: Vec<UnrecordedChange>,
    /// Who set and allowed what, the newest last: the last few changes, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<clawnode_proto::budget::AccountChange>,
    /// What operators may not have heard of yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) news: Vec<BudgetNews>,
}

/// A person decides on some limits. The configuration decides on all others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DecidedLimits {
    /// Who set them last.
    pub(super) by: LimitSource,
    /// Those that they set, and those that they took away.
    pub(super) keys: Vec<LimitKey>,
}

/// What operators hear of an event of an account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BudgetNews {
    pub(super) n: u64,
    pub(super) at: Timestamp,
    pub(super) what: clawnode_proto::feed::EventBody,
}

/// What is to be recorded of an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum UnrecordedChange {
    Set(BudgetSet),
    Allowed(BudgetAllowed),
}

/// When something new was to be said to a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LatestNews {
    n: u64,
    at: Timestamp,
}

// === impl BudgetState ===

impl BudgetState {
    /// One of its limits.
    pub fn book(&self, key: LimitKey) -> Option<&LimitBook> {
        self.books.iter().find(|book| book.key == key)
    }

    fn book_mut(&mut self, key: LimitKey) -> Result<&mut LimitBook, Violation> {
        let found = self.books.iter_mut().find(|book| book.key == key);
        found.ok_or_else(|| Violation(format!("it has no limit `{key}`")))
    }

    // === inputs ===

    /// Takes an input, which came with event `n` at this time.
    pub(crate) fn accept(&mut self, n: u64, ts: Timestamp, input: BudgetInput) {
        self.n = n;
        self.now = self.now.max(ts);
        // A snapshot of an earlier build does not have it. What is taken then is later than what was said before.
        self.begun = self.begun.or(Some(self.now));
        match input {
            BudgetInput::Set { source, limits, decides } => {
                self.wants_limits(BudgetSet { source, limits, decides });
            }
            BudgetInput::Ask { process, asks, reports, dead } => {
                self.reported(process, &reports);
                self.holds_dead(process, &dead);
                for wants in asks {
                    self.asked(process, wants);
                }
                self.touch(process);
                self.recalls_again(process);
            }
            BudgetInput::Report { process, reports } => {
                self.reported(process, &reports);
                // What it has may not have reached it.
                if self.slices_of(process).iter().any(|slice| slice.recalled) {
                    self.touch(process);
                }
            }
            BudgetInput::Allow { by, limit, window } => {
                let is_current = self.book(limit).is_some_and(|book| book.current.number == window);
                if is_current {
                    self.wanted.push(UnrecordedChange::Allowed(BudgetAllowed {
                        by,
                        limit,
                        window,
                    }));
                }
            }
            // It says that the window has ended, whatever clock the owner has.
            BudgetInput::TimerFired { due } if self.due() == Some(due) => {
                self.now = self.now.max(due);
            }
            BudgetInput::TimerFired { .. } => {}
        }
        self.forget();
    }

    fn reported(&mut self, process: ProcessId, reports: &[SliceReport]) {
        let waited = self.waits();
        for report in reports {
            for book in &mut self.books {
                book.hear(process, report);
            }
        }
        self.books.retain(|book| !book.is_over());
        if reports.iter().any(|report| report.seq == SliceReport::LAST) {
            // The process is gone: what it asked for would only be lost. The ask stays until it is old: an earlier
            // build may have granted it.
            self.asks
                .iter_mut()
                .filter(|ask| ask.process == process)
                .for_each(|ask| ask.gone = true);
        } else {
            // Who reports lives, whatever others have said.
            self.dead.remove(&process);
        }
        // For those, nothing can come back any more: they need not wait until they ask again.
        for (process, _) in waited.difference(&self.waits()) {
            self.touch(*process);
        }
    }

    /// Takes what one process knows of others. Only those matter that have slices.
    fn holds_dead(&mut self, by: ProcessId, dead: &[ProcessId]) {
        for process in dead.iter().filter(|process| **process != by) {
            if self.has_slices(*process) {
                self.dead.insert(*process);
            }
        }
    }

    /// The asks that are granted once something comes back.
    fn waits(&self) -> BTreeSet<(ProcessId, u64)> {
        let waits = |ask: &&WaitingAsk| {
            let verdict = self.book(ask.wants.limit).map(|book| self.verdict(book, ask));
            matches!(
                verdict,
                Some(GrantVerdict::None(AskVerdict::Waits) | GrantVerdict::Stranded(_))
            )
        };
        self.open_asks().filter(waits).map(|ask| (ask.process, ask.wants.number)).collect()
    }

    /// What processes that are not gone wait for, oldest first.
    fn open_asks(&self) -> impl Iterator<Item = &WaitingAsk> {
        self.asks.iter().filter(|ask| ask.may_get())
    }

    fn asked(&mut self, process: ProcessId, wants: SliceAsk) {
        let at = self.now;
        if self.book(wants.limit).is_some_and(|book| book.knows(process, wants.number)) {
            // It has it; its answer was lost.
            return;
        }
        let same = |ask: &&mut WaitingAsk| ask.process == process && ask.wants.limit == wants.limit;
        if let Some(ask) = self.asks.iter_mut().find(same) {
            // It keeps its place. An older one has come late.
            if wants.number >= ask.wants.number {
                ask.wants = wants;
                ask.at = at;
            }
            return;
        }
        if self.asks.iter().filter(|ask| ask.wants.limit == wants.limit).count() < ASKS_MOST {
            self.asks.push(WaitingAsk { process, wants, at, since: self.n, gone: false });
        }
    }

    /// Something new is to be said to a process.
    fn touch(&mut self, process: ProcessId) {
        self.heard.insert(process, LatestNews { n: self.n, at: self.now });
    }

    /// Says once more what others wait for that ask again, as `by` does.
    fn recalls_again(&mut self, by: ProcessId) {
        let now = self.now;
        let late = self
            .heard
            .iter()
            .filter(|(process, heard)| **process != by && now.since(heard.at) >= RECALL_AGAIN);
        let recalled =
            |process: &ProcessId| self.slices_of(*process).iter().any(|slice| slice.recalled);
        let late = late.map(|(process, _)| *process).filter(recalled);
        for process in late.collect::<Vec<_>>() {
            self.touch(process);
        }
    }

    /// Something new is to be said to every process.
    pub(super) fn touch_all(&mut self) {
        let heard: Vec<ProcessId> = self.heard.keys().copied().collect();
        for process in heard {
            self.touch(process);
        }
    }

    fn forget(&mut self) {
        let now = self.now;
        self.asks.retain(|ask| ask.is_open(now));
        let mut heard = std::mem::take(&mut self.heard);
        heard.retain(|process, heard| {
            let asks = || self.asks.iter().any(|ask| ask.process == *process);
            now.since(heard.at) <= TOLD_AGE || asks() || self.has_slices(*process)
        });
        self.heard = heard;
        let mut dead = std::mem::take(&mut self.dead);
        dead.retain(|process| self.has_slices(*process));
        self.dead = dead;
    }

    // === events ===

    /// Takes an event.
    pub(crate) fn fold(&mut self, event: &BudgetEvent) -> Result<(), Violation> {
        match event {
            BudgetEvent::Set(set) => self.is_set(set),
            BudgetEvent::Allowed(allowed) => {
                self.recorded(
                    |one| matches!(one, UnrecordedChange::Allowed(wanted) if wanted == allowed),
                );
                // The limit may be gone by now.
                let books = self.books.iter_mut().filter(|book| book.key == allowed.limit);
                for book in books.map(|book| &mut book.current) {
                    if book.number == allowed.window {
                        (book.allowed, book.asked, book.over, book.named) = (true, false, 0, 0);
                    }
                }
                // Who waits for it waits for others now, who have to hear of that.
                self.touch_all();
            }
            BudgetEvent::Granted(granted) => self.is_granted(granted)?,
            BudgetEvent::Warned(BudgetWarned { limit, .. }) => {
                self.book_mut(*limit)?.current.warned = true;
            }
            BudgetEvent::Asked(BudgetAsked { limit, .. }) => {
                self.book_mut(*limit)?.current.asked = true;
            }
            BudgetEvent::Over(BudgetOver { limit, excess, .. }) => {
                self.book_mut(*limit)?.current.named = *excess;
            }
            BudgetEvent::Window(begun) => {
                let book = self.book_mut(begun.limit)?;
                book.begin(begun)?;
                let ended = book.previous.iter().flat_map(|window| &window.slices);
                let processes: Vec<ProcessId> = ended.map(|slice| slice.process).collect();
                for process in processes {
                    self.touch(process);
                }
                self.books.retain(|book| !book.is_over());
            }
        }
        Ok(())
    }

    /// What was wanted is recorded.
    pub(super) fn recorded(&mut self, is_it: impl Fn(&UnrecordedChange) -> bool) {
        if let Some(at) = self.wanted.iter().position(is_it) {
            self.wanted.remove(at);
        }
    }

    fn is_granted(&mut self, granted: &BudgetGranted) -> Result<(), Violation> {
        let BudgetGranted { process, number, limit, .. } = *granted;
        let is_it = |ask: &WaitingAsk| {
            ask.process == process && ask.wants.limit == limit && ask.wants.number == number
        };
        if !self.asks.iter().any(is_it) {
            return Err(Violation(format!("slice {number} of `{process}` was not asked for")));
        }
        self.book_mut(limit)?.grant(granted)?;
        self.asks.retain(|ask| !is_it(ask));
        self.touch(process);
        Ok(())
    }

    // === what follows ===

    /// What is decided now.
    pub(super) fn next(&self) -> Option<BudgetEvent> {
        if let Some(wanted) = self.wanted.first() {
            return Some(match wanted.clone() {
                UnrecordedChange::Set(set) => set.into(),
                UnrecordedChange::Allowed(allowed) => allowed.into(),
            });
        }
        if let Some(set) = self.follows_configuration() {
            return Some(set.into());
        }
        let ends = self.books.iter().find_map(|book| book.ends(self.now));
        let ends = ends.map(BudgetEvent::from);
        ends.or_else(|| self.books.iter().find_map(noted)).or_else(|| self.grants())
    }

    /// The next slice that is granted. Who came first is served first.
    fn grants(&self) -> Option<BudgetEvent> {
        self.books.iter().find_map(|book| {
            let mut asks = self.open_asks().filter(|ask| ask.wants.limit == book.key);
            let served = asks.find_map(|ask| match self.verdict(book, ask) {
                GrantVerdict::None(AskVerdict::Waits) => Some(None),
                GrantVerdict::None(AskVerdict::NeedsPerson { spent, limit })
                | GrantVerdict::Stranded(AskVerdict::NeedsPerson { spent, limit }) => {
                    let asks = !book.current.asked && book.current.over == 0;
                    let (key, window) = (book.key, book.current.number);
                    let asked = BudgetAsked { limit: key, window, spent, amount: limit };
                    asks.then(|| Some(BudgetEvent::from(asked)))
                }
                // What a stranded one waits for may not come: those that need less do not wait with it.
                GrantVerdict::None(_) | GrantVerdict::Stranded(_) => None,
                GrantVerdict::Slice(amount) => {
                    let (process, number) = (ask.process, ask.wants.number);
                    let (limit, window) = (book.key, book.current.number);
                    let granted = BudgetGranted { process, number, limit, window, amount };
                    Some(Some(BudgetEvent::from(granted)))
                }
            });
            served.flatten()
        })
    }

    fn verdict(&self, book: &LimitBook, ask: &WaitingAsk) -> GrantVerdict {
        let mut slices = book.current.slices.iter();
        let mut asks = self.open_asks().filter(|one| one.wants.limit == book.key);
        let has = slices.any(|slice| slice.process != ask.process);
        book.judge(ask, has || asks.any(|one| one.process != ask.process), &self.dead)
    }

    /// The end of the soonest window that a process spends in or waits for.
    pub(crate) fn due(&self) -> Option<Timestamp> {
        let is_used = |book: &&LimitBook| {
            !book.current.slices.is_empty()
                || self.open_asks().any(|ask| ask.wants.limit == book.key)
        };
        let used = self.books.iter().filter(is_used);
        used.filter_map(|book| book.key.window.end(book.current.number)).min()
    }

    /// The event that set limits last, if any did.
    pub(crate) fn changed(&self) -> Option<u64> {
        (self.changed > 0).then_some(self.changed)
    }

    /// Which processes the account tells how things stand, and since which event there is something
    /// new.
    pub(crate) fn told(&self) -> Vec<(ProcessId, u64)> {
        let recalls = |process: ProcessId| {
            let waiting = self.open_asks().filter(move |ask| ask.process != process);
            let has = move |ask: &&WaitingAsk| {
                let book = self.book(ask.wants.limit);
                book.is_some_and(|book| {
                    book.current.slices.iter().any(|slice| slice.process == process)
                })
            };
            waiting.filter(has).map(|ask| ask.since).max().unwrap_or_default()
        };
        self.heard
            .iter()
            .map(|(process, heard)| (*process, heard.n.max(recalls(*process))))
            .collect()
    }

    fn has_slices(&self, process: ProcessId) -> bool {
        let mut slices = self.books.iter().flat_map(LimitBook::windows).flat_map(|one| &one.slices);
        slices.any(|slice| slice.process == process)
    }

    /// The slices that a process has.
    pub fn slices_of(&self, process: ProcessId) -> Vec<GrantedSlice> {
        let mut slices = Vec::new();
        for book in &self.books {
            let mut others = self.open_asks().filter(|ask| ask.process != process);
            let waits = others.any(|ask| {
                ask.wants.limit == book.key
                    && match self.verdict(book, ask) {
                        GrantVerdict::None(verdict) => verdict == AskVerdict::Waits,
                        // Living processes cannot help. One that is held dead may live.
                        GrantVerdict::Stranded(_) => self.dead.contains(&process),
                        GrantVerdict::Slice(_) => false,
                    }
            });
            for window in book.windows() {
                let is_old = window.number != book.current.number || book.limit.is_none();
                let own = window.slices.iter().filter(|slice| slice.process == process);
                slices.extend(own.map(|slice| GrantedSlice {
                    number: slice.number,
                    limit: book.key,
                    window: window.number,
                    amount: slice.amount,
                    recalled: is_old || waits,
                }));
            }
        }
        slices
    }

    /// What a process asked for and has not got.
    pub fn answers_to(&self, process: ProcessId) -> Vec<AskAnswer> {
        let own = self.asks.iter().filter(|ask| ask.process == process);
        own.map(|ask| {
            let book = self.book(ask.wants.limit);
            let judged = book.map(|book| self.verdict(book, ask));
            let verdict = match judged {
                None => AskVerdict::NoLimit,
                // The account serves an earlier ask first.
                Some(GrantVerdict::Slice(_)) => AskVerdict::Waits,
                Some(GrantVerdict::None(verdict) | GrantVerdict::Stranded(verdict)) => verdict,
            };
            let is_stranded = matches!(judged, Some(GrantVerdict::Stranded(_)));
            let is_meant =
                |one: ProcessId| one != process && self.dead.contains(&one) == is_stranded;
            let waits = book.filter(|_| verdict == AskVerdict::Waits);
            let holder = waits.and_then(|book| book.current.most_held(is_meant));
            AskAnswer { number: ask.wants.number, limit: ask.wants.limit, verdict, holder }
        })
        .collect()
    }
}

/// What is to be recorded of the spending of a limit.
fn noted(book: &LimitBook) -> Option<BudgetEvent> {
    let (limit, window) = (book.key, book.current.number);
    if book.current.over > book.current.named {
        return Some(BudgetOver { limit, window, excess: book.current.over }.into());
    }
    let in_force = book.limit?;
    let (spent, amount) = (book.current.spent(), in_force.amount);
    let warns = spent > 0 && spent >= in_force.share(in_force.warn_at) && !book.current.warned;
    warns.then(|| BudgetWarned { limit, window, spent, amount }.into())
}
