//! The end of the money, in a time that only the test moves: many calls want to be made, and too little is left for all
//! of them. A dead process may have a part of it.

use std::collections::BTreeMap;

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{
        AccountKey, BudgetInput, BudgetLimit, BudgetUnit, LimitKey, LimitSource, ProcessStanding,
        SliceAsk, WindowLength,
    },
};

use crate::{
    account::{Budget, BudgetState},
    holder::{
        CallCost, CallNeeds, CallUsage, Holder, HolderInput, HolderOptions, HolderOutput, Need,
        Refusal, Reservation,
    },
};

const USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Month };
/// Micro-dollars that all calls together may cost, what one may cost beside its output, and what it costs.
const MONEY: u64 = 100_000;
const FIXED: u64 = 8_000;
const COST: u64 = 3_000;
const CALLS: u64 = 64;
/// What a dead process has, in worlds with one. Ten calls leave enough of the rest for one with a smaller cap on output.
const DEAD: u64 = 61_700;
/// While money is left for a call, and none runs, the next one begins within this time.
const BEGINS_WITHIN: u64 = 2_000;
/// How long an append of the account takes, and until its process hears of it, in milliseconds.
const STORED_IN: u64 = 20;
const TOLD_IN: u64 = 5;
/// How often the process looks at the time.
const TICK: u64 = 250;
/// In this time an account takes at most five inputs from a process, so a report waits no longer.
const REPORTED_WITHIN: u64 = 1_000;

enum Due {
    Ends(Reservation),
    Arrives(BudgetInput),
    Told(ProcessStanding),
    Tick,
}

struct LastCents {
    account: BudgetState,
    told: BTreeMap<ProcessId, u64>,
    holder: Holder,
    now: u64,
    due: BTreeMap<(u64, u64), Due>,
    number: u64,
    call_ms: u64,
    paid: u64,
    refused: u64,
    /// A process that has died.
    dead: Option<ProcessId>,
    /// When calls began.
    begun: Vec<u64>,
    last_settled: u64,
    last_refused: u64,
}

impl LastCents {
    fn new(call_ms: u64) -> Self {
        let mut account = BudgetState::default();
        Budget::born(&mut account, "cluster").unwrap();
        let mut world = Self {
            account,
            told: BTreeMap::new(),
            holder: Holder::new(ProcessId::from_u128(1), HolderOptions::default()),
            now: 1_000,
            due: BTreeMap::new(),
            number: 0,
            call_ms,
            paid: 0,
            refused: 0,
            dead: None,
            begun: Vec::new(),
            last_settled: 0,
            last_refused: 0,
        };
        let limit = BudgetLimit { ask_at: 100, ..BudgetLimit::new(USD.unit, USD.window, MONEY) };
        let (source, limits) = (LimitSource::Configured, Some(vec![limit]));
        world.account_takes(BudgetInput::Set { source, limits, decides: None });
        world
    }

    /// The same; another process has died with a part of the money.
    fn with_dead(call_ms: u64) -> Self {
        let process = ProcessId::from_u128(2);
        let mut world = Self { dead: Some(process), ..Self::new(call_ms) };
        let wants = SliceAsk { number: 1, limit: USD, call: DEAD, least: DEAD, waits: DEAD };
        let (asks, reports, dead) = (vec![wants], Vec::new(), Vec::new());
        world.account_takes(BudgetInput::Ask { process, asks, reports, dead });
        world
    }

    fn plan(&mut self, after: u64, due: Due) {
        self.number += 1;
        self.due.insert((self.now + after, self.number), due);
    }

    fn account_takes(&mut self, input: BudgetInput) {
        self.account.accept(self.account.n + 1, Timestamp(self.now), input);
        loop {
            let events = Budget::advance(&self.account);
            if events.is_empty() {
                break;
            }
            for event in events {
                self.account.n += 1;
                self.account.fold(&event).unwrap();
            }
        }
        for (process, n) in self.account.told() {
            let is_new = self.told.insert(process, n) != Some(n);
            if is_new && process == self.holder.process() {
                let state = &self.account;
                let (slices, answers) = (state.slices_of(process), state.answers_to(process));
                let (account, version) = (AccountKey::Cluster, state.n);
                let standing = ProcessStanding { account, version, begun: None, slices, answers };
                self.plan(TOLD_IN, Due::Told(standing));
            }
        }
    }

    fn holder_takes(&mut self, input: HolderInput) {
        for out in self.holder.handle(Timestamp(self.now), input) {
            match out {
                HolderOutput::Send(_, body) => self.plan(STORED_IN, Due::Arrives(body)),
                HolderOutput::Granted(granted) => {
                    self.begun.push(self.now);
                    self.plan(self.call_ms, Due::Ends(granted.reservation));
                }
                HolderOutput::Waits(..) => {}
                HolderOutput::Refused(_, why) => {
                    let is_stranded = matches!(why, Refusal::Stranded { .. });
                    let is_bankrupt = matches!(why, Refusal::Bankrupt { .. });
                    assert_eq!(
                        (is_stranded, is_bankrupt),
                        (self.dead.is_some(), self.dead.is_none()),
                        "{why:?}"
                    );
                    self.refused += 1;
                    self.last_refused = self.now;
                }
            }
        }
    }

    /// All calls at once, until each has ended.
    fn run(&mut self) {
        for number in 1..=CALLS {
            let cost = CallCost { fixed: FIXED, per_million: 1_000_000 };
            let need = Need { account: AccountKey::Cluster, limit: USD, cost, beside: 0 };
            let needs = CallNeeds { needs: vec![need], least_output: 256, most_output: 400 };
            self.holder_takes(HolderInput::Reserve(Reservation(number), needs));
        }
        self.plan(TICK, Due::Tick);
        while self.paid + self.refused < CALLS {
            let Some(((at, _), due)) = self.due.pop_first() else { return };
            self.now = at;
            match due {
                Due::Ends(reservation) => {
                    self.paid += 1;
                    self.last_settled = self.now;
                    let usage = CallUsage::Known { usd: COST, tokens: 0 };
                    self.holder_takes(HolderInput::Settle(reservation, usage));
                }
                Due::Arrives(input) => {
                    self.account_takes(input);
                    self.holder_takes(HolderInput::Stored(AccountKey::Cluster, true));
                }
                Due::Told(standing) => self.holder_takes(HolderInput::Told(standing)),
                Due::Tick => {
                    self.plan(TICK, Due::Tick);
                    let behind = self.holder.waits_for().into_iter();
                    self.holder.set_dead(behind.filter(|one| self.dead == Some(*one)).collect());
                    self.holder_takes(HolderInput::Tick);
                }
            }
        }
    }
}

/// Calls that cannot be paid any more end once the account has heard of the last settling: within one call's time, if a
/// call takes longer than the account may take to hear of it and to answer.
#[test]
fn the_last_cents_end_all_calls_once_the_account_hears_of_the_last_settling() {
    let most = REPORTED_WITHIN + TICK + STORED_IN + TOLD_IN;
    for call_ms in [150, 2_000] {
        let mut world = LastCents::new(call_ms);
        world.run();
        let LastCents { paid, refused, last_settled, last_refused, .. } = world;
        assert_eq!(paid + refused, CALLS, "{call_ms} ms");
        assert!(paid * COST <= MONEY, "I6: {paid} calls");
        assert!(paid * COST + FIXED + 256 > MONEY, "{paid} calls: more could be paid");
        let waited = last_refused.saturating_sub(last_settled);
        assert!(refused > 0 && waited > 0, "{refused} calls were refused");
        assert!(waited <= most, "{call_ms} ms: {waited} ms, of {most}");
    }
}

/// What a dead process has holds no call up that can be made with the rest, also with a smaller cap on output.
#[test]
fn calls_go_on_beside_a_dead_process_until_the_rest_is_too_little() {
    for call_ms in [150, 2_000] {
        let mut world = LastCents::with_dead(call_ms);
        let began = world.now;
        world.run();
        let LastCents { paid, refused, begun, .. } = world;
        assert_eq!(paid + refused, CALLS, "{call_ms} ms");
        assert!(paid * COST + DEAD <= MONEY, "I6, C20: {paid} calls");
        assert!(paid * COST + DEAD + FIXED + 256 > MONEY, "{paid} calls: more could be paid");
        let times: Vec<u64> = std::iter::once(began).chain(begun).collect();
        let longest = times.windows(2).map(|pair| pair[1] - pair[0]).max();
        assert!(longest <= Some(call_ms + BEGINS_WITHIN), "{call_ms} ms: {longest:?} ms");
    }
}
