//! The holder of a process: what it hears, and what is done for it.

use clawnode_budget::{
    Budget,
    account::{LimitBook, Slice, WindowBook},
    holder::{HolderInput, HolderOutput},
};
use clawnode_kernel::{Entity, KernelBug, LoadedJournal, core::snapshot_blob};
use clawnode_proto::{
    IdempotencyKey, Input, ProcessId, Timestamp,
    budget::{AccountKey, BudgetInput, ProcessStanding, SliceReport},
};
use clawnode_sim::{StoreReply, StoreRequest};
use rand::Rng;

use super::{account::accounts, process::ProcessHolder, tally::CrashPoints};
use crate::{
    FATE, JudgeViolation, Sim,
    book::Checked,
    process::{PendingOp, PlannedNote},
    violation::of_fold,
};

/// Between two ticks of a holder, at most, in milliseconds.
const TICK_MOST: u64 = 600;
/// Between two looks of a person at budgets, in milliseconds.
const LOOKS_EVERY: u64 = 5_000;

impl Sim {
    /// A holder begins with its process.
    pub(crate) fn begin_holder(&mut self, process: ProcessId) {
        if self.plan.budgets.accounts == 0 {
            return;
        }
        let planted = self.planted;
        if let Some(running) = self.processes.get_mut(&process) {
            running.holder = Some(ProcessHolder::new(process, planted));
        }
        self.plan_holder_tick(process);
    }

    fn plan_holder_tick(&mut self, process: ProcessId) {
        let after = self.world.rng.random_range(100..TICK_MOST);
        let tick = PlannedNote::own("its holder ticks".to_owned(), move |sim| {
            sim.plan_holder_tick(process);
            sim.holder_knows_dead(process);
            sim.holder_takes(process, HolderInput::Tick)
        });
        self.world.later(process, after, tick);
    }

    /// Whom membership holds dead of those for which its calls wait. They may live.
    fn holder_knows_dead(&mut self, process: ProcessId) {
        let holding = self.processes.get_mut(&process).and_then(|running| running.holder.as_mut());
        let Some(holding) = holding else { return };
        let behind = holding.holder.waits_for().into_iter();
        holding.holder.set_dead(behind.filter(|other| self.dead.contains(other)).collect());
    }

    pub(super) fn holder_hears(
        &mut self,
        process: ProcessId,
        standing: ProcessStanding,
    ) -> Checked {
        if self.processes.contains_key(&process) {
            self.budget_tally.hears(process, &standing);
        }
        self.holder_takes(process, HolderInput::Told(standing))
    }

    pub(super) fn holder_takes(&mut self, process: ProcessId, input: HolderInput) -> Checked {
        let now = self.world.now();
        let holding = self.processes.get_mut(&process).and_then(|running| running.holder.as_mut());
        let Some(holding) = holding else { return Ok(()) };
        for out in holding.holder.handle(now, input) {
            match out {
                HolderOutput::Send(account, body) => self.sends_for_holder(process, account, &body),
                HolderOutput::Granted(granted) => {
                    if !self.session_call_granted(process, &granted)? {
                        self.budget_call_begins(process, granted)?;
                    }
                }
                HolderOutput::Waits(..) => {}
                HolderOutput::Refused(call, why) => {
                    self.budget_tally.refused.count(&why);
                    self.bills.refused(process, call);
                    self.session_call_refused(process, call);
                }
            }
        }
        Ok(())
    }

    fn sends_for_holder(&mut self, process: ProcessId, account: AccountKey, body: &BudgetInput) {
        let holding = self.processes.get_mut(&process).and_then(|running| running.holder.as_mut());
        let Some(holding) = holding else { return };
        holding.sent += 1;
        let Some(input) = named(&account, &format!("{process}/{}", holding.sent), body) else {
            return;
        };
        let ticket = self.world.submit(process, StoreRequest::Put(input.clone()));
        self.expect(process, ticket, PendingOp::HolderPut(account, Box::new(input)));
    }

    /// The answer to what a holder sent.
    pub(crate) fn stored_for_holder(
        &mut self,
        process: ProcessId,
        account: AccountKey,
        input: Input,
        reply: &StoreReply,
    ) -> Checked {
        let stored = matches!(reply, StoreReply::Put(_));
        if stored {
            self.ledger.accepted(input);
        }
        self.holder_takes(process, HolderInput::Stored(account, stored))
    }

    /// A planted bug: who is held dead has its slices given back for it.
    pub(crate) fn gives_back_for(&mut self, process: ProcessId) -> Checked {
        if self.planted != KernelBug::GivesBackForTheDead {
            return Ok(());
        }
        for (account, _) in accounts(&self.plan) {
            let entity = self.account(&account)?;
            let slices = entity.state.books.iter().flat_map(LimitBook::windows);
            let slices = slices
                .flat_map(|window| window.slices.iter().map(move |slice| (window.number, slice)));
            let own = slices.filter(|(_, slice)| slice.process == process);
            let report = |(window, slice): (_, &Slice)| SliceReport {
                number: slice.number,
                window,
                seq: u64::MAX,
                spent: slice.spent,
                held: 0,
                returned: 0,
                over: 0,
                closed: true,
            };
            let reports: Vec<SliceReport> = own.map(report).collect();
            let body = BudgetInput::Report { process, reports };
            let name = format!("dead:{process}:{}", self.world.now().0);
            if let Some(input) = named(&account, &name, &body) {
                self.hears(input, 1);
            }
        }
        Ok(())
    }

    /// An account, as its journal has it.
    pub(super) fn account(&self, account: &AccountKey) -> Result<Entity<Budget>, JudgeViolation> {
        let records = self.world.journal(account.entity());
        let snapshot = snapshot_blob(&records).and_then(|digest| self.world.blob(digest));
        let loaded = LoadedJournal { records, snapshot };
        Entity::of(account.entity(), &loaded).map_err(|error| of_fold(&error))
    }

    /// What budgets lose with a process.
    pub(crate) fn budgets_lose(&mut self, process: ProcessId) {
        for (account, _) in accounts(&self.plan) {
            let entity = account.entity();
            let owned = self.last_writer.get(&entity) == Some(&process);
            let points = &mut self.budget_tally.points;
            points.owners_died += usize::from(owned && !self.world.inbox(entity).is_empty());
            if let Ok(entity) = self.account(&account) {
                let slices = entity.state.slices_of(process).len();
                self.budget_tally.points.stranded += slices;
            }
        }
        self.counts_unsent(process);
        self.bills.dies(process);
        self.session_calls_die(process);
    }

    /// The crash points of budgets that were come past.
    pub(crate) const fn crash_points(&self) -> CrashPoints {
        let (settled_late, exceeded) = (self.bills.late, self.bills.exceeding);
        CrashPoints { settled_late, exceeded, ..self.budget_tally.points }
    }

    /// Once no call will come any more, processes give back what they have, as at an orderly end.
    pub(crate) fn leave_if_done(&mut self, answered: bool) {
        let unfinished = || {
            let unfinished = self.ledger.unfinished().or_else(|| self.out_of_service());
            unfinished.or_else(|| self.bills.unfinished())
        };
        if !self.plan.budgets.leaves || !answered || unfinished().is_some() {
            return;
        }
        let processes: Vec<ProcessId> = self.processes.keys().copied().collect();
        for process in processes {
            let leaves = PlannedNote::own("its holder leaves".to_owned(), move |sim| {
                sim.holder_takes(process, HolderInput::Leave)
            });
            self.world.mail(process, 0, leaves);
        }
    }

    /// A person looks at budgets now and then, and allows more where calls cost more than they had reserved, or where
    /// an account asks.
    pub(super) fn plan_person(&mut self) {
        let looks = PlannedNote::own("a person looks at budgets".to_owned(), |sim| {
            sim.plan_person();
            sim.person_allows();
            Ok(())
        });
        self.world.later(FATE, LOOKS_EVERY, looks);
    }

    fn person_allows(&mut self) {
        for (account, _) in accounts(&self.plan) {
            let Ok(entity) = self.account(&account) else { continue };
            let needs_person = |book: &&LimitBook| {
                let WindowBook { over, asked, allowed, .. } = book.current;
                over > 0 || (asked && !allowed)
            };
            for book in entity.state.books.iter().filter(needs_person) {
                let (by, limit, window) = ("ada".to_owned(), book.key, book.current.number);
                let name = format!("allow:{limit}:{}", self.world.now().0);
                let body = BudgetInput::Allow { by, limit, window };
                if let Some(input) = named(&account, &name, &body) {
                    self.hears(input, 1);
                }
            }
        }
    }

    /// What of budgets has not come to its end.
    pub(crate) fn unfinished_budgets(&self) -> Option<String> {
        let holders =
            self.processes.iter().filter_map(|(id, running)| Some((id, running.holder.as_ref()?)));
        let mut busy = holders.filter(|(_, holding)| !holding.holder.is_at_rest());
        let holds = || busy.next().map(|(id, _)| format!("the holder of `{id}` has slices"));
        self.bills.unfinished().or_else(holds)
    }

    /// BUD-2: what nothing runs for is not reserved.
    pub(crate) fn holds_end(&self) -> Checked {
        for (id, running) in &self.processes {
            let holds = running.holder.as_ref().map_or(0, |holding| holding.holder.holds().count());
            if holds > 0 && self.bills.unfinished().is_none() {
                let text = format!("the holder of `{id}` has {holds} holds, and no call runs");
                return Err(JudgeViolation::new("BUD-2", text));
            }
        }
        Ok(())
    }

    /// What must hold of budgets once all is quiet.
    pub(crate) fn budgets_at_the_end(&self) -> Checked {
        self.holds_end()?;
        for (account, _) in accounts(&self.plan) {
            if !self.ledger.serves(account.entity()) {
                continue;
            }
            let entity = self.account(&account)?;
            let lives = |process| self.processes.contains_key(&process);
            self.bills.agree(&account, &entity.state, lives)?;
        }
        Ok(())
    }
}

pub(super) fn named(account: &AccountKey, name: &str, body: &BudgetInput) -> Option<Input> {
    let name: IdempotencyKey = name.parse().ok()?;
    Budget::input(account, name, Timestamp(0), body).ok()
}
