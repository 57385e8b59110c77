//! What providers bill, by the window that held it: the judge of budgets.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_budget::{BudgetState, holder::Reservation};
use clawnode_proto::{
    EntityId, ProcessId,
    budget::{
        AccountKey, BudgetEvent, BudgetGranted, BudgetSet, BudgetUnit, Hold, LimitKey, WindowNumber,
    },
    event::decode_record,
    kernel::DELETED,
};
use clawnode_sim::StoreChange;

use super::{account::accounts, journaled::JournaledLimits, tally::LimitChanges};
use crate::{JudgeViolation, book::Checked, plan::SeedPlan};

/// One window of one limit.
type Spending = (AccountKey, LimitKey, WindowNumber);

/// What is known of budgets from outside.
#[derive(Debug, Default)]
pub(crate) struct Bills {
    /// The most that each limit ever was.
    limits: BTreeMap<(AccountKey, LimitKey), u64>,
    /// The limits that are in force, by the journals of accounts.
    journaled: BTreeMap<EntityId, JournaledLimits>,
    pub(crate) changes: LimitChanges,
    /// Calls that run, and what they may still cost.
    running: BTreeMap<(ProcessId, Reservation), Vec<Hold>>,
    /// What calls have cost, as providers bill them, with each bill rounded up.
    billed: BTreeMap<Spending, u64>,
    /// What calls may have cost whose processes have died.
    lost: BTreeMap<Spending, u64>,
    /// All of that together.
    sums: BTreeMap<Spending, u64>,
    /// What calls have cost above what they had reserved.
    excess: BTreeMap<Spending, u64>,
    /// The last window of each limit that a call has reserved in.
    newest: BTreeMap<(AccountKey, LimitKey), WindowNumber>,
    /// C21 and C22: calls that ended in a window that was over, and those that cost more than they had
    /// reserved.
    pub(super) late: usize,
    pub(super) exceeding: usize,
    /// Calls that wait or run.
    open: BTreeSet<(ProcessId, Reservation)>,
    deaths: usize,
    made: usize,
}

/// What a call has cost, as its provider sees it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bill {
    /// It was not made.
    None,
    /// So many millionths of micro-dollars.
    Exact(u128),
    /// It is unknown, so all that it could cost counts.
    Unknown,
}

impl Bills {
    pub(crate) fn new(plan: &SeedPlan) -> Self {
        let limits = accounts(plan).into_iter().flat_map(|(account, limits)| {
            limits.into_iter().map(move |limit| ((account.clone(), limit.key), limit.amount))
        });
        let limits = limits.collect();
        let journaled = accounts(plan).into_iter().map(|(account, _)| JournaledLimits::of(account));
        Self { limits, journaled: journaled.collect(), ..Self::default() }
    }

    /// Calls that were made.
    pub(crate) fn made(&self) -> usize {
        self.made
    }

    /// A call wants to be made.
    pub(super) fn wants(&mut self, process: ProcessId, call: Reservation) {
        self.open.insert((process, call));
    }

    /// Whether a call waits or runs.
    pub(super) fn is_open(&self, process: ProcessId, call: Reservation) -> bool {
        self.open.contains(&(process, call))
    }

    /// A call is not made.
    pub(super) fn refused(&mut self, process: ProcessId, call: Reservation) {
        self.open.remove(&(process, call));
    }

    /// A call begins.
    pub(super) fn begins(
        &mut self,
        process: ProcessId,
        call: Reservation,
        holds: Vec<Hold>,
    ) -> Checked {
        self.made += 1;
        let spendings: Vec<Spending> = holds.iter().map(spending).collect();
        for (spending, hold) in spendings.iter().zip(&holds) {
            let newest = self.newest.entry((hold.account.clone(), hold.limit)).or_default();
            *newest = (*newest).max(hold.window);
            *self.sums.entry(spending.clone()).or_default() += hold.amount;
        }
        self.running.insert((process, call), holds);
        self.check(&spendings)
    }

    /// What a call that runs has reserved.
    pub(super) fn holds(&self, process: ProcessId, call: Reservation) -> Option<&[Hold]> {
        self.running.get(&(process, call)).map(Vec::as_slice)
    }

    /// A call has ended.
    pub(super) fn ends(&mut self, process: ProcessId, call: Reservation, bill: Bill) -> Checked {
        self.open.remove(&(process, call));
        let mut spendings = Vec::new();
        let (mut is_late, mut exceeds) = (false, false);
        for hold in self.running.remove(&(process, call)).unwrap_or_default() {
            let spending = spending(&hold);
            spendings.push(spending.clone());
            let newest = self.newest.get(&(hold.account.clone(), hold.limit));
            is_late |= newest.is_some_and(|newest| *newest > hold.window);
            let sum = self.sums.entry(spending.clone()).or_default();
            *sum = sum.saturating_sub(hold.amount);
            let used = match (bill, hold.limit.unit) {
                (Bill::None, _) => continue,
                (Bill::Exact(exact), BudgetUnit::Usd) => {
                    u64::try_from(exact.div_ceil(1_000_000)).unwrap_or(u64::MAX)
                }
                (Bill::Exact(_) | Bill::Unknown, _) => hold.amount,
            };
            *sum += used;
            if used > hold.amount {
                exceeds = true;
                *self.excess.entry(spending.clone()).or_default() += used - hold.amount;
            }
            *self.billed.entry(spending).or_default() += used;
        }
        self.late += usize::from(is_late);
        self.exceeding += usize::from(exceeds);
        self.check(&spendings)
    }

    /// A process has died: its calls may have cost all that they could.
    pub(crate) fn dies(&mut self, process: ProcessId) {
        self.deaths += 1;
        self.open.retain(|(owner, _)| *owner != process);
        let running = std::mem::take(&mut self.running);
        for ((owner, call), holds) in running {
            if owner != process {
                self.running.insert((owner, call), holds);
                continue;
            }
            for hold in holds {
                *self.lost.entry(spending(&hold)).or_default() += hold.amount;
            }
        }
    }

    /// I6: nothing that is billed, or may be billed still, is over a limit. What a call costs above what it had
    /// reserved is named (C22).
    fn check(&self, spendings: &[Spending]) -> Checked {
        for spending in spendings {
            let (account, limit, window) = spending;
            let sum = self.sums.get(spending).copied().unwrap_or_default();
            let most = self.limits.get(&(account.clone(), *limit)).copied().unwrap_or_default();
            let excess = self.excess.get(spending).copied().unwrap_or_default();
            if sum > most.saturating_add(excess) {
                let text = format!("`{limit}` of `{account}` in {}: {sum}, of {most}", window.0);
                return Err(JudgeViolation::new("I6", text));
            }
        }
        Ok(())
    }

    /// The stores changed: what accounts record of their limits and grants.
    pub(crate) fn change(&mut self, change: &StoreChange) -> Checked {
        let StoreChange::Appended { entity, record, .. } = change else { return Ok(()) };
        if !self.journaled.contains_key(entity) {
            return Ok(());
        }
        for sealed in decode_record(&record.bytes).unwrap_or_default() {
            let Some(journaled) = self.journaled.get_mut(entity) else { continue };
            if sealed.head.kind == DELETED {
                self.loses(*entity);
                continue;
            }
            match sealed.event::<BudgetEvent>() {
                Ok(Some(BudgetEvent::Set(set))) => self.limits_are_set(*entity, set),
                Ok(Some(BudgetEvent::Allowed(allowed))) => {
                    self.changes.allowed += 1;
                    journaled.allow(&allowed);
                }
                Ok(Some(BudgetEvent::Granted(granted))) => self.may_grant(*entity, &granted)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The journal of an entity was deleted.
    pub(crate) fn loses(&mut self, entity: EntityId) {
        if let Some(journaled) = self.journaled.get_mut(&entity) {
            journaled.is_lost = true;
        }
    }

    fn limits_are_set(&mut self, entity: EntityId, set: BudgetSet) {
        let Some(journaled) = self.journaled.get_mut(&entity) else { return };
        let before = journaled.in_force();
        journaled.set(set);
        for (key, limit) in journaled.in_force() {
            let place = (journaled.account.clone(), key);
            if let Some(before) = before.get(&key) {
                let window = self.newest.get(&place).copied().unwrap_or_default();
                let spending: Spending = (journaled.account.clone(), key, window);
                let spent = self.sums.get(&spending).copied().unwrap_or_default();
                let is_lowered = limit.amount < before.amount;
                self.changes.raised += usize::from(limit.amount > before.amount);
                self.changes.below_spent += usize::from(is_lowered && limit.amount < spent);
            }
            let most = self.limits.entry(place).or_default();
            *most = (*most).max(limit.amount);
        }
    }

    /// I6: a slice is within what is in force when it is granted, beside what calls have cost and may still cost. What
    /// they cost above what they had reserved, the account learns later.
    fn may_grant(&self, entity: EntityId, granted: &BudgetGranted) -> Checked {
        let Some(journaled) = self.journaled.get(&entity).filter(|one| !one.is_lost) else {
            return Ok(());
        };
        let BudgetGranted { limit, window, amount, .. } = *granted;
        let spending: Spending = (journaled.account.clone(), limit, window);
        let sum = self.sums.get(&spending).copied().unwrap_or_default();
        let excess = self.excess.get(&spending).copied().unwrap_or_default();
        let ceiling = journaled.ceiling(limit, window).unwrap_or_default();
        if sum.saturating_add(amount) > ceiling.saturating_add(excess) {
            let (account, window) = (&journaled.account, window.0);
            let text = format!(
                "{amount} of `{limit}` of `{account}` in {window} is granted beside {sum}, and \
                 {ceiling} is in force"
            );
            return Err(JudgeViolation::new("I6", text));
        }
        Ok(())
    }

    /// A call that neither waits nor runs any more, or should not.
    pub(super) fn unfinished(&self) -> Option<String> {
        let (process, call) = self.open.first()?;
        Some(format!("call {} of `{process}` has not ended", call.0))
    }

    /// What an account must know once all is quiet. Without deaths it is exact.
    pub(super) fn agree(
        &self,
        account: &AccountKey,
        state: &BudgetState,
        lives: impl Fn(ProcessId) -> bool,
    ) -> Checked {
        for book in &state.books {
            for window in book.windows() {
                let spending = (account.clone(), book.key, window.number);
                let billed = self.billed.get(&spending).copied().unwrap_or_default();
                let lost = self.lost.get(&spending).copied().unwrap_or_default();
                let (spent, committed) = (window.spent(), window.committed());
                let about = format!("`{}` of `{account}` in {}", book.key, window.number.0);
                if let Some(slice) = window.slices.iter().find(|slice| lives(slice.process)) {
                    let (number, owner) = (slice.number, slice.process);
                    let text = format!("{about}: slice {number} of `{owner}` has not come back");
                    return Err(JudgeViolation::new("E1", text));
                }
                if spent > billed {
                    let text = format!("{about}: {spent} spent, and {billed} billed");
                    return Err(JudgeViolation::new("BUD-4", text));
                }
                // A process that died had not said by how much its calls exceeded.
                let excess = self.excess.get(&spending).copied().unwrap_or_default();
                if committed + excess < billed + lost || self.deaths == 0 && spent < billed {
                    let text = format!("{about}: {spent} and {committed} of {billed} and {lost}");
                    return Err(JudgeViolation::new("BUD-3", text));
                }
            }
        }
        Ok(())
    }
}

fn spending(hold: &Hold) -> Spending {
    (hold.account.clone(), hold.limit, hold.window)
}
