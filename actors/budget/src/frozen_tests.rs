//! A process that was frozen while a window ended: it can spend what it had of the old window, and nothing of
//! the next one that the account has not given it.

use std::collections::BTreeMap;

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{
        AccountKey, BudgetInput, BudgetLimit, BudgetUnit, Hold, LimitKey, LimitSource,
        ProcessStanding, WindowLength, WindowNumber,
    },
};

use crate::{
    account::{Budget, BudgetState, WindowBook},
    holder::{
        CallCost, CallNeeds, CallUsage, Holder, HolderInput, HolderOptions, HolderOutput, Need,
        Refusal, Reservation,
    },
};

const USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Hour };
const HOUR: u64 = 3_600_000;
const MOST: u64 = 100;

/// One account, a process that will be frozen, and another one. What they say to each other arrives at once,
/// except what a frozen process would have to hear.
struct Two {
    account: BudgetState,
    /// The time of the account's owner. That of holders is their own.
    ts: u64,
    steady: u64,
    frozen: Holder,
    other: Holder,
    is_frozen: bool,
    holds: BTreeMap<Reservation, Vec<Hold>>,
    refused: Vec<Refusal>,
}

impl Two {
    fn new() -> Self {
        let holder = |id| Holder::new(ProcessId::from_u128(id), HolderOptions::default());
        let mut two = Self {
            account: BudgetState::default(),
            ts: 0,
            steady: 0,
            frozen: holder(1),
            other: holder(2),
            is_frozen: false,
            holds: BTreeMap::new(),
            refused: Vec::new(),
        };
        Budget::born(&mut two.account, "cluster").unwrap();
        let limit = BudgetLimit { ask_at: 100, ..BudgetLimit::new(USD.unit, USD.window, MOST) };
        let (source, limits) = (LimitSource::Configured, Some(vec![limit]));
        two.account_takes(BudgetInput::Set { source, limits, decides: None });
        two
    }

    fn account_takes(&mut self, input: BudgetInput) {
        self.account.accept(self.account.n + 1, Timestamp(self.ts), input);
        for event in Budget::advance(&self.account) {
            self.account.n += 1;
            self.account.fold(&event).unwrap();
        }
        for id in [1, 2] {
            self.tells(id);
        }
    }

    /// The account says how things stand between it and this process.
    fn tells(&mut self, id: u128) {
        let process = ProcessId::from_u128(id);
        if id == 1 && self.is_frozen || !self.account.told().iter().any(|(to, _)| *to == process) {
            return;
        }
        let (slices, answers) = (self.account.slices_of(process), self.account.answers_to(process));
        let (account, version) = (AccountKey::Cluster, self.account.n);
        let standing = ProcessStanding { account, version, begun: None, slices, answers };
        self.does(id, HolderInput::Told(standing));
    }

    fn does(&mut self, id: u128, input: HolderInput) {
        let holder = if id == 1 { &mut self.frozen } else { &mut self.other };
        for output in holder.handle(Timestamp(self.steady), input) {
            match output {
                HolderOutput::Send(account, body) => {
                    self.does(id, HolderInput::Stored(account, true));
                    self.account_takes(body);
                }
                HolderOutput::Granted(granted) => {
                    self.holds.insert(granted.reservation, granted.holds);
                }
                HolderOutput::Refused(_, refusal) => self.refused.push(refusal),
                HolderOutput::Waits(..) => {}
            }
        }
    }

    /// A call that costs so much wants to be made; its window and what it has reserved, if it may be.
    fn reserves(&mut self, id: u128, number: u64, usd: u64) -> Option<(WindowNumber, u64)> {
        let cost = CallCost { fixed: usd, per_million: 0 };
        let needs = vec![Need { account: AccountKey::Cluster, limit: USD, cost, beside: 0 }];
        let needs = CallNeeds { needs, least_output: 1, most_output: 1 };
        self.does(id, HolderInput::Reserve(Reservation(number), needs));
        self.hold(number)
    }

    fn hold(&self, number: u64) -> Option<(WindowNumber, u64)> {
        let hold = self.holds.get(&Reservation(number))?.first()?;
        Some((hold.window, hold.amount))
    }

    fn settles(&mut self, id: u128, number: u64, usd: u64) {
        let usage = CallUsage::Known { usd, tokens: 0 };
        self.does(id, HolderInput::Settle(Reservation(number), usage));
    }

    /// Both look at the time, until all is said.
    fn passes(&mut self) {
        for _ in 0..20 {
            self.steady += 250;
            self.does(2, HolderInput::Tick);
            if !self.is_frozen {
                self.does(1, HolderInput::Tick);
            }
        }
    }

    fn windows(&self) -> Vec<&WindowBook> {
        self.account.book(USD).unwrap().windows().collect()
    }
}

#[test]
fn bud_4_a_process_that_was_frozen_past_its_window_spends_only_its_own_old_slice() {
    let (first, second) = (WindowNumber(0), WindowNumber(1));
    let mut two = Two::new();
    assert_eq!(two.reserves(1, 1, 40), Some((first, 40)));
    two.settles(1, 1, 5);
    assert_eq!(two.reserves(1, 2, 20), Some((first, 20)), "of the slice at hand");
    two.is_frozen = true;

    // The clock of the account's owner is an hour later, and another process spends all of that window.
    two.ts = HOUR;
    assert_eq!(two.reserves(2, 10, MOST), Some((second, MOST)));
    let windows = two.windows();
    assert_eq!((windows[0].number, windows[0].committed()), (second, MOST));
    assert_eq!((windows[1].number, windows[1].committed()), (first, 40), "it counts whole");

    // Thawed, it has heard nothing: it spends what it had, and no more.
    assert_eq!(two.reserves(1, 3, 10), Some((first, 10)));
    assert_eq!(two.reserves(1, 4, 10), None, "5 are left of 40");
    two.settles(1, 2, 20);
    two.settles(1, 3, 10);
    two.is_frozen = false;
    two.passes();
    let windows = two.windows();
    let spent: Vec<u64> = windows.iter().map(|window| window.spent()).collect();
    assert!(windows.iter().all(|window| window.committed() <= MOST), "I6: {windows:?}");
    assert_eq!(spent.first(), Some(&0), "nothing of it was settled in the window of others");
    assert!(spent.get(1).is_none_or(|spent| *spent == 35), "{spent:?}");
    assert_eq!(two.hold(4), None, "it waits for the window of now");

    two.settles(2, 10, MOST);
    two.passes();
    assert_eq!(two.hold(4), None);
    assert!(matches!(two.refused[..], [Refusal::Bankrupt { used: MOST, most: MOST, .. }]));
}

/// An account whose clock jumps over several windows closes the one that it was in with the next input of any process.
#[test]
fn bud_4_a_clock_that_jumps_ends_the_window_with_the_next_input() {
    let mut two = Two::new();
    assert_eq!(two.reserves(1, 1, 60), Some((WindowNumber(0), 60)));
    two.ts = 5 * HOUR + 1;
    two.settles(1, 1, 60);
    two.passes();
    let windows = two.windows();
    assert_eq!((windows[0].number, windows[0].committed()), (WindowNumber(5), 0));
    // It goes back, and the window does not.
    two.ts = HOUR;
    assert_eq!(two.reserves(2, 2, MOST), Some((WindowNumber(5), MOST)));
}
