//! For tests: an account with one limit that answers at once, and the holder of a process.

use std::sync::{Arc, Mutex};

use clawnode_budget::holder::{
    AccountLimits, AccountsView, CallHold, CallNeeds, HolderHandle, HolderInput, HolderOptions,
    Refusal, ReservePort, WaitReason,
};
use clawnode_proto::{
    ProcessId,
    budget::{
        AccountKey, AskAnswer, AskVerdict, BudgetInput, GrantedSlice, LimitKey, ProcessStanding,
        WindowNumber,
    },
    session::TurnOutcome,
};

use super::effect::budget_reservation::outcome;
use crate::agent::Grant;

/// An account, and the holder that asks it.
pub(in crate::session) struct PlayedBudgets {
    pub(in crate::session) holder: HolderHandle,
    limit: LimitKey,
    /// The limit.
    pub(in crate::session) amount: u64,
    /// What is in no slice.
    pub(in crate::session) left: u64,
    /// What calls wanted to reserve, in order.
    pub(in crate::session) needs: Vec<CallNeeds>,
    slices: Vec<GrantedSlice>,
    version: u64,
}

/// How a reservation was answered.
#[derive(Clone, Default)]
struct AnswerBox(Arc<Mutex<Option<Result<CallHold, Refusal>>>>);

impl ReservePort for AnswerBox {
    fn reserved(self: Box<Self>, hold: CallHold) {
        *self.0.lock().unwrap() = Some(Ok(hold));
    }

    fn waits(&self, _: &AccountKey, _: LimitKey, _: WaitReason) {}

    fn refused(self: Box<Self>, refusal: Refusal) {
        *self.0.lock().unwrap() = Some(Err(refusal));
    }
}

impl PlayedBudgets {
    /// The cluster has this limit, which a person set unless it `is_default`.
    pub(in crate::session) fn new(limit: LimitKey, amount: u64, is_default: bool) -> Self {
        let holder = HolderHandle::new(ProcessId::from_u128(1), HolderOptions::default());
        let limits = AccountLimits { limits: vec![limit], is_default, ..AccountLimits::default() };
        let accounts = [(AccountKey::Cluster, limits)].into();
        holder.has_accounts(AccountsView { accounts, each_user: None });
        let (needs, slices, left, version) = (Vec::new(), Vec::new(), amount, 0);
        Self { holder, limit, amount, left, needs, slices, version }
    }

    pub(in crate::session) fn reserve(
        &mut self,
        grant: Grant,
        needs: CallNeeds,
    ) -> Result<Grant, TurnOutcome> {
        self.needs.push(needs.clone());
        let answer = AnswerBox::default();
        let hold = self.holder.reserve(needs, Box::new(answer.clone()));
        let hold = hold.map_or_else(
            || {
                self.answer();
                answer.0.lock().unwrap().take().expect("the account answers at once")
            },
            Ok,
        );
        let hold = Some(Arc::new(hold.map_err(outcome)?));
        Ok(Grant { hold, ..grant })
    }

    /// Answers what the holder asks.
    pub(in crate::session) fn answer(&mut self) {
        let mut answers = Vec::new();
        for (account, input) in self.holder.asked() {
            self.holder.happens(HolderInput::Stored(account, true));
            let BudgetInput::Ask { asks, .. } = input else { continue };
            for ask in asks {
                let (number, limit) = (ask.number, ask.limit);
                if ask.least > self.left {
                    let spent = self.amount - self.left;
                    let verdict = AskVerdict::SpentOut { spent, limit: self.amount };
                    answers.push(AskAnswer { number, limit, verdict, holder: None });
                    continue;
                }
                // A holder asks at most a few times a second, and tests make all calls at once.
                let amount = ask.call.saturating_mul(100).min(self.left);
                self.left -= amount;
                let (window, recalled) = (WindowNumber(7), false);
                self.slices.push(GrantedSlice { number, limit, window, amount, recalled });
            }
        }
        self.version += 1;
        assert!(self.slices.iter().all(|slice| slice.limit == self.limit));
        self.holder.happens(HolderInput::Told(ProcessStanding {
            account: AccountKey::Cluster,
            version: self.version,
            begun: None,
            slices: self.slices.clone(),
            answers,
        }));
    }

    /// What it has spent, and has reserved, by the last report of each slice.
    pub(in crate::session) fn reported(&mut self) -> Option<(u64, u64)> {
        self.holder.happens(HolderInput::Tick);
        let mut last = None;
        for (account, input) in self.holder.asked() {
            self.holder.happens(HolderInput::Stored(account, true));
            let (BudgetInput::Ask { reports, .. } | BudgetInput::Report { reports, .. }) = input
            else {
                continue;
            };
            last = reports.last().map(|report| (report.spent, report.held)).or(last);
        }
        last
    }
}
