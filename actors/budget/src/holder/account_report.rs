//! What one account is sent, and when.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{AccountVersion, BudgetInput, LimitKey, SliceAsk, SliceReport, WindowNumber},
};

use super::slice_pool::{HeldSlice, OpenAsk, PoolWants, SlicePool};

/// Between two reports to an account, unless what they give back is waited for.
const REPORT_EVERY: Duration = Duration::from_secs(1);
/// Between two inputs for an account, unless the second one asks for something new: calls wait for that.
const SEND_EVERY: Duration = Duration::from_millis(250);
/// No more inputs than this go to an account within [`SENT_WITHIN`].
const SENT_MAX: usize = 5;
/// See [`SENT_MAX`].
const SENT_WITHIN: Duration = Duration::from_secs(1);
/// After which time an ask is sent again that has no answer.
const ASK_AGAIN: Duration = Duration::from_secs(2);
/// After which time an ask is sent again to keep its place: before the account forgets it.
const KEEPS_PLACE: Duration = Duration::from_secs(10);

/// After which time an account is forgotten of which the process has nothing.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// What a process knows of an account.
#[derive(Clone, Debug, Default)]
pub(super) struct AccountAtHand {
    pub(super) pools: BTreeMap<LimitKey, SlicePool>,
    /// The last standing.
    pub(super) version: AccountVersion,
    /// When the last message of the account came.
    pub(super) heard: Timestamp,
    /// What was sent is not known to be stored.
    pub(super) in_flight: bool,
    /// Slices that the account says are out, and that are not known here: they were never used.
    pub(super) strays: Vec<(u64, WindowNumber)>,
    /// So many of them, the first ones, are in what was sent.
    strays_sent: usize,
    /// When the last inputs went, at most [`SENT_MAX`].
    sent: VecDeque<Timestamp>,
    /// The last one may not be stored.
    failed: bool,
    reported: Option<Timestamp>,
}

impl AccountAtHand {
    /// What is sent now, if anything is. Asks take their reports along.
    pub(super) fn sends(&mut self, process: ProcessId, now: Timestamp) -> Option<BudgetInput> {
        let is_over = |last: Option<Timestamp>, wait| last.is_none_or(|at| now.since(at) >= wait);
        let is_new = |pool: &SlicePool| pool.ask.as_ref().is_some_and(|ask| ask.sent.is_none());
        let at_once = self.pools.values().any(is_new) && !self.failed;
        let wait = if at_once { Duration::ZERO } else { SEND_EVERY };
        let oldest = self.sent.front().filter(|_| self.sent.len() >= SENT_MAX);
        let is_due =
            is_over(self.sent.back().copied(), wait) && is_over(oldest.copied(), SENT_WITHIN);
        if self.in_flight || !is_due {
            return None;
        }
        let asks = self.asks(now);
        let urgent = !self.strays.is_empty() || self.pools.values_mut().any(is_urgent);
        let reports = if !asks.is_empty() || urgent || is_over(self.reported, REPORT_EVERY) {
            self.reports()
        } else {
            Vec::new()
        };
        if !reports.is_empty() {
            self.reported = Some(now);
        }
        if asks.is_empty() && reports.is_empty() {
            return None;
        }
        if self.sent.len() >= SENT_MAX {
            self.sent.pop_front();
        }
        self.sent.push_back(now);
        self.in_flight = true;
        Some(if asks.is_empty() {
            BudgetInput::Report { process, reports }
        } else {
            let dead = self.sends_dead();
            BudgetInput::Ask { process, asks, reports, dead }
        })
    }

    fn asks(&mut self, now: Timestamp) -> Vec<SliceAsk> {
        let mut asks = Vec::new();
        for (limit, pool) in &mut self.pools {
            let Some(ask) = &mut pool.ask else { continue };
            let again = if ask.answered { KEEPS_PLACE } else { ASK_AGAIN };
            if ask.sent.is_some_and(|at| now.since(at) < again) {
                continue;
            }
            ask.sent = Some(now);
            ask.said = ask.said.min(ask.wants.call);
            let PoolWants { call, least, waits } = ask.wants;
            asks.push(SliceAsk { number: ask.number, limit: *limit, call, least, waits });
        }
        asks
    }

    /// The dead processes for which asks wait: the account hears of them with each of its asks.
    fn sends_dead(&mut self) -> Vec<ProcessId> {
        let version = self.version;
        let asks = self.pools.values_mut().filter_map(|pool| pool.ask.as_mut());
        let mut dead = BTreeSet::new();
        for behind in asks.filter_map(|ask| ask.stranded.as_mut()) {
            // What it has said before does not answer this.
            behind.sent.get_or_insert(version);
            dead.insert(behind.process);
        }
        dead.into_iter().collect()
    }

    fn reports(&mut self) -> Vec<SliceReport> {
        self.strays_sent = self.strays.len();
        let strays = self.strays.iter().map(|(number, window)| SliceReport {
            number: *number,
            window: *window,
            seq: 1,
            spent: 0,
            held: 0,
            returned: 0,
            over: 0,
            closed: true,
        });
        let mut reports: Vec<SliceReport> = strays.collect();
        for pool in self.pools.values_mut() {
            let open = pool.open.iter_mut().filter(|slice| slice.dirty);
            reports.extend(open.map(|slice| report(slice, false)));
            let closing = pool.closing.iter_mut().filter(|slice| slice.dirty);
            reports.extend(closing.map(|slice| report(slice, slice.held == 0)));
        }
        reports
    }

    /// Whether nothing of it was here for long. What it said before would come too late by now.
    pub(super) fn is_forgotten(&self, now: Timestamp) -> bool {
        let last = self.sent.back().map_or(self.heard, |sent| self.heard.max(*sent));
        self.is_at_rest() && now.since(last) >= FORGOTTEN
    }

    /// Whether there is nothing of it that the account does not know, and nothing to wait for.
    pub(super) fn is_at_rest(&self) -> bool {
        self.pools.is_empty() && self.strays.is_empty() && !self.in_flight
    }

    /// What was sent is stored, or may not be. What is reported are totals, so it may come twice.
    pub(super) fn stored(&mut self, stored: bool) {
        self.in_flight = false;
        self.failed = !stored;
        let sent = std::mem::take(&mut self.strays_sent);
        if stored {
            // What the account has said since goes back with the next one.
            self.strays.drain(..sent);
        }
        for pool in self.pools.values_mut() {
            if stored {
                // Its end was reported, with what was sent.
                pool.closing.retain(|slice| slice.dirty || slice.held > 0);
            } else {
                pool.ask.iter_mut().for_each(OpenAsk::forget_sent);
                pool.slices().filter(|slice| slice.seq > 0).for_each(|slice| slice.dirty = true);
            }
        }
        self.pools.retain(|_, pool| !pool.is_empty());
    }
}

/// Whether what this limit gives back is waited for: by other processes, or by calls here that ask for more of it.
fn is_urgent(pool: &mut SlicePool) -> bool {
    let comes_back = pool.ask.is_some() && pool.closing.iter().any(|slice| slice.dirty);
    comes_back || pool.slices().any(|slice| slice.recalled && slice.dirty)
}

fn report(slice: &mut HeldSlice, closed: bool) -> SliceReport {
    slice.seq += 1;
    slice.dirty = false;
    let spent = slice.spent;
    #[cfg(feature = "test-util")]
    let spent = match slice.planted {
        clawnode_kernel::KernelBug::ReportsDifferences => {
            spent - std::mem::replace(&mut slice.said, spent)
        }
        _ => spent,
    };
    let HeldSlice { number, window, seq, held, returned, over, .. } = *slice;
    SliceReport { number, window, seq, spent, held, returned, over, closed }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::budget::{
        AccountKey, AskAnswer, AskVerdict, BudgetUnit, GrantedSlice, ProcessStanding, WindowLength,
    };

    use super::{
        super::{
            CallCost, CallNeeds, CallUsage, Holder, HolderInput, HolderOptions, HolderOutput, Need,
            Reservation,
        },
        *,
    };

    const USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Hour };

    fn call(usd: u64) -> CallNeeds {
        let cost = CallCost { fixed: usd, per_million: 0 };
        let needs = vec![Need { account: AccountKey::Cluster, limit: USD, cost, beside: 0 }];
        CallNeeds { needs, least_output: 1, most_output: 1 }
    }

    fn sent(outputs: Vec<HolderOutput>) -> Vec<BudgetInput> {
        let sent = |output| match output {
            HolderOutput::Send(_, body) => Some(body),
            _ => None,
        };
        outputs.into_iter().filter_map(sent).collect()
    }

    #[test]
    fn what_comes_back_is_reported_at_once_while_a_call_waits_for_it() {
        let mut holder = Holder::new(ProcessId::from_u128(1), HolderOptions::default());
        let window = WindowNumber(0);
        let slice = GrantedSlice { number: 1, limit: USD, window, amount: 100, recalled: false };
        let told = |version, answers| {
            let (account, slices) = (AccountKey::Cluster, vec![slice]);
            HolderInput::Told(ProcessStanding { account, version, begun: None, slices, answers })
        };
        let stored = || HolderInput::Stored(AccountKey::Cluster, true);
        let mut at = |now, input| sent(holder.handle(Timestamp(now), input));
        at(0, HolderInput::Reserve(Reservation(1), call(60)));
        at(0, stored());
        at(0, told(1, Vec::new()));
        // 40 are left: they go back with the question for more.
        let asks = at(300, HolderInput::Reserve(Reservation(2), call(60)));
        assert!(matches!(asks[..], [BudgetInput::Ask { .. }]), "{asks:?}");
        at(300, stored());
        let waits = AskAnswer { number: 2, limit: USD, verdict: AskVerdict::Waits, holder: None };
        at(300, told(2, vec![waits]));
        let usage = CallUsage::Known { usd: 10, tokens: 0 };
        let reports = at(600, HolderInput::Settle(Reservation(1), usage));
        let [BudgetInput::Report { reports, .. }] = &reports[..] else { panic!("{reports:?}") };
        assert_eq!((reports[0].spent, reports[0].closed), (10, true));
    }
}
