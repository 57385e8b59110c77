//! Holders: unit tests, and holders with accounts in a small world that loses and repeats what they say.

use std::collections::BTreeMap;

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{
        AccountKey, AskAnswer, AskVerdict, BudgetInput, BudgetLimit, BudgetUnit, GrantedSlice,
        LimitKey, LimitSource, ProcessStanding, WindowLength, WindowNumber,
    },
};
use proptest::prelude::*;

use super::{
    CallCost, CallNeeds, CallUsage, Hold, Holder, HolderInput, HolderOptions, HolderOutput, Need,
    Refusal, Reservation,
};
use crate::account::{Budget, BudgetState};

const USD: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Hour };
const LOOPS: LimitKey = LimitKey { unit: BudgetUnit::Loops, window: WindowLength::Day };

fn cluster() -> AccountKey {
    AccountKey::Cluster
}

fn agent() -> AccountKey {
    "agent:research".parse().unwrap()
}

fn need(account: AccountKey, limit: LimitKey, fixed: u64, per_million: u64) -> Need {
    Need { account, limit, cost: CallCost { fixed, per_million } }
}

/// A call that costs 10, and one more for each token of output.
fn call() -> CallNeeds {
    let needs = vec![need(cluster(), USD, 10, 1_000_000)];
    CallNeeds { needs, least_output: 5, most_output: 40 }
}

/// A holder at a time, with what it did.
struct One {
    holder: Holder,
    now: u64,
    version: u64,
}

impl One {
    fn new() -> Self {
        let holder = Holder::new(ProcessId::from_u128(1), HolderOptions::default());
        Self { holder, now: 1_000_000, version: 0 }
    }

    fn does(&mut self, input: HolderInput) -> Vec<HolderOutput> {
        self.holder.handle(Timestamp(self.now), input)
    }

    fn reserve(&mut self, number: u64, needs: CallNeeds) -> Vec<HolderOutput> {
        self.does(HolderInput::Reserve(Reservation(number), needs))
    }

    fn after(&mut self, millis: u64) -> Vec<HolderOutput> {
        self.now += millis;
        self.does(HolderInput::Tick)
    }

    fn stored(&mut self) -> Vec<HolderOutput> {
        self.does(HolderInput::Stored(cluster(), true))
    }

    fn told(
        &mut self,
        slices: &[(u64, u64, bool)],
        answers: &[(u64, AskVerdict)],
    ) -> Vec<HolderOutput> {
        self.version += 1;
        let slice = |&(number, amount, recalled): &(u64, u64, bool)| {
            let window = WindowNumber(7);
            GrantedSlice { number, limit: USD, window, amount, recalled }
        };
        let answer =
            |&(number, verdict): &(u64, AskVerdict)| AskAnswer { number, limit: USD, verdict };
        self.does(HolderInput::Told(ProcessStanding {
            account: cluster(),
            version: self.version,
            slices: slices.iter().map(slice).collect(),
            answers: answers.iter().map(answer).collect(),
        }))
    }
}

/// Which calls were granted, with what cap.
fn granted(out: &[HolderOutput]) -> Vec<(u64, u64)> {
    let granted = out.iter().filter_map(|one| match one {
        HolderOutput::Granted(reservation, output, _) => Some((reservation.0, *output)),
        _ => None,
    });
    granted.collect()
}

/// The totals of a slice as the last input says them: spent, held, returned, closed.
fn said(out: &[HolderOutput], number: u64) -> Option<(u64, u64, u64, bool)> {
    out.iter().rev().find_map(|one| {
        let HolderOutput::Send(
            _,
            BudgetInput::Ask { reports, .. } | BudgetInput::Report { reports, .. },
        ) = one
        else {
            return None;
        };
        let report = reports.iter().find(|report| report.number == number)?;
        Some((report.spent, report.held, report.returned, report.closed))
    })
}

fn asked(out: &[HolderOutput]) -> Vec<(u64, u64, u64, u64)> {
    let asks = out.iter().filter_map(|one| match one {
        HolderOutput::Send(_, BudgetInput::Ask { asks, .. }) => Some(asks),
        _ => None,
    });
    asks.flatten().map(|ask| (ask.number, ask.call, ask.least, ask.waits)).collect()
}

#[test]
fn calls_reserve_from_a_slice_in_memory_and_settle_there() {
    let mut one = One::new();
    assert_eq!(asked(&one.reserve(1, call())), [(1, 50, 15, 50)]);
    one.stored();
    assert_eq!(granted(&one.told(&[(1, 120, false)], &[])), [(1, 40)]);
    assert_eq!(granted(&one.reserve(2, call())), [(2, 40)]);
    let out =
        one.does(HolderInput::Settle(Reservation(1), CallUsage::Known { usd: 30, tokens: 9 }));
    assert_eq!(said(&out, 1), None, "it reports once a second");
    assert_eq!(said(&one.after(1_000), 1), Some((30, 50, 0, false)));
}

#[test]
fn bud_2_what_was_reserved_ends_once() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    one.told(&[(1, 200, false)], &[]);
    one.reserve(2, call());
    one.reserve(3, call());
    one.does(HolderInput::Settle(Reservation(1), CallUsage::Known { usd: 20, tokens: 9 }));
    for again in [CallUsage::Unknown, CallUsage::Known { usd: 50, tokens: 9 }] {
        one.does(HolderInput::Settle(Reservation(1), again));
    }
    one.does(HolderInput::Release(Reservation(1)));
    one.does(HolderInput::Settle(Reservation(2), CallUsage::Unknown));
    one.does(HolderInput::Release(Reservation(3)));
    one.does(HolderInput::Settle(Reservation(3), CallUsage::Unknown));
    assert_eq!(said(&one.after(1_000), 1), Some((70, 0, 0, false)), "BUD-2");
    assert_eq!(one.holder.holds().count(), 0, "BUD-2");
}

#[test]
fn an_answer_that_was_lost_is_asked_for_under_the_same_number() {
    let mut one = One::new();
    one.reserve(1, call());
    one.does(HolderInput::Stored(cluster(), false));
    assert_eq!(asked(&one.after(300)), [(1, 50, 15, 50)], "it may not be stored");
    one.stored();
    assert_eq!(asked(&one.after(1_000)), []);
    assert_eq!(asked(&one.after(1_000)), [(1, 50, 15, 50)]);
    one.stored();
    one.told(&[(1, 100, false)], &[]);
    // The same again, and one that nothing here has asked for.
    let out = one.told(&[(1, 100, false), (9, 70, false)], &[]);
    assert_eq!(granted(&out), []);
    assert_eq!(said(&one.after(250), 9), Some((0, 0, 0, true)), "it goes back unused");
}

#[test]
fn who_waits_is_served_in_order_and_an_account_hears_little() {
    let mut one = One::new();
    let mut sent = 0;
    for number in 1..=5 {
        sent += asked(&one.reserve(number, call())).len();
    }
    assert_eq!(sent, 1);
    one.stored();
    assert_eq!(granted(&one.told(&[(1, 130, false)], &[])), [(1, 40), (2, 40)]);
    // The third does not fit: what is left goes back, and a slice for the three is asked for.
    let out = one.after(250);
    assert_eq!(asked(&out), [(2, 50, 15, 150)]);
    assert_eq!(said(&out, 1), Some((0, 100, 30, false)));
    one.stored();
    let small = CallNeeds { most_output: 5, ..call() };
    assert_eq!(granted(&one.reserve(6, small)), [], "a small call does not overtake");
}

#[test]
fn the_last_of_it_makes_a_call_smaller() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    assert_eq!(granted(&one.told(&[(1, 22, false)], &[])), [(1, 12)]);
}

#[test]
fn what_was_got_is_given_back_while_a_call_waits_for_another_account() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    one.told(&[(1, 60, false)], &[]);
    one.does(HolderInput::Release(Reservation(1)));
    let needs = vec![need(cluster(), USD, 10, 1_000_000), need(agent(), USD, 10, 1_000_000)];
    let out = one.reserve(2, CallNeeds { needs, ..call() });
    assert!(matches!(&out[..], [HolderOutput::Send(account, _)] if *account == agent()), "{out:?}");
    assert_eq!(one.holder.holds().count(), 0);
    assert_eq!(granted(&one.reserve(3, call())), [(3, 40)], "others may have it meanwhile");
}

#[test]
fn only_what_is_spent_ends_a_call() {
    let mut one = One::new();
    one.reserve(1, call());
    one.reserve(2, CallNeeds { least_output: 1, ..call() });
    one.stored();
    let out = one.told(&[], &[(1, AskVerdict::Waits)]);
    assert!(matches!(out[0], HolderOutput::Waits(Reservation(1), ..)), "{out:?}");
    assert_eq!(one.holder.waiting(), 2);
    let out = one.told(&[], &[(1, AskVerdict::SpentOut { spent: 87, limit: 100 })]);
    let (account, limit) = (cluster(), USD);
    let refusal = Refusal::Bankrupt { account, limit, used: 87, most: 100, needed: 15 };
    assert_eq!(out[0], HolderOutput::Refused(Reservation(1), refusal));
    assert_eq!(one.holder.waiting(), 1, "the other one needs 11, and 13 are left");
    assert_eq!(asked(&one.after(250)), [(1, 50, 11, 50)]);
}

#[test]
fn it_never_fails_open() {
    let mut one = One::new();
    one.reserve(1, call());
    let mut out = Vec::new();
    for _ in 0..59 {
        out.extend(one.after(1_000));
        out.extend(one.does(HolderInput::Stored(cluster(), false)));
    }
    assert!(out.iter().all(|one| matches!(one, HolderOutput::Send(..))), "{out:?}");
    let out = one.after(1_000);
    let unavailable = Refusal::Unavailable { account: cluster() };
    assert!(out.contains(&HolderOutput::Refused(Reservation(1), unavailable)), "{out:?}");
}

#[test]
fn a_call_waits_so_long_for_a_person() {
    let mut one = One::new();
    one.reserve(1, call());
    let needs_person = AskVerdict::NeedsPerson { spent: 0, limit: 100 };
    for _ in 0..30 {
        one.stored();
        one.told(&[], &[(1, needs_person)]);
        assert_eq!(one.holder.waiting(), 1);
        one.after(10_000);
    }
    assert_eq!(one.holder.waiting(), 0);
}

#[test]
fn what_is_idle_or_recalled_goes_back() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    one.told(&[(1, 200, false)], &[]);
    let out = one.told(&[(1, 200, true)], &[]);
    let out = if said(&out, 1).is_some() { out } else { one.after(250) };
    assert_eq!(said(&out, 1), Some((0, 50, 150, false)), "all but what runs");
    one.stored();
    one.does(HolderInput::Settle(Reservation(1), CallUsage::Known { usd: 20, tokens: 9 }));
    let out = one.after(1_000);
    assert_eq!(said(&out, 1).map(|(spent, .., closed)| (spent, closed)), Some((20, true)));
    assert!(!one.holder.is_at_rest());
    one.stored();
    assert!(one.holder.is_at_rest());

    one.reserve(2, call());
    one.stored();
    one.told(&[(2, 200, false)], &[]);
    one.does(HolderInput::Settle(Reservation(2), CallUsage::Known { usd: 5, tokens: 1 }));
    one.after(1_000);
    one.stored();
    let out = one.after(60_000);
    assert_eq!(said(&out, 2).map(|(spent, .., closed)| (spent, closed)), Some((5, true)));
}

#[test]
fn what_an_account_does_not_know_is_not_spent() {
    let mut one = One::new();
    one.reserve(1, call());
    one.stored();
    one.told(&[(1, 200, false)], &[]);
    // It was deleted, and has begun anew.
    one.told(&[], &[]);
    assert_eq!(granted(&one.reserve(2, call())), []);
}

// === accounts and holders together ===

/// Numbers that look random, from a seed.
struct Chance(u64);

impl Chance {
    fn below(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % most.max(1)
    }

    fn is(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

enum Happens {
    Arrives(AccountKey, BudgetInput),
    Stored(usize, AccountKey, bool),
    Told(usize, ProcessStanding),
    Ends(usize, Reservation),
}

type Spent = BTreeMap<(AccountKey, LimitKey, WindowNumber), u64>;

struct World {
    chance: Chance,
    now: u64,
    skew: i64,
    calm: bool,
    accounts: BTreeMap<AccountKey, (BudgetState, BTreeMap<ProcessId, u64>)>,
    limits: BTreeMap<(AccountKey, LimitKey), u64>,
    holders: Vec<Holder>,
    later: Vec<(u64, Happens)>,
    /// What calls that really run have reserved.
    calls: BTreeMap<(usize, Reservation), Vec<Hold>>,
    spent: Spent,
    made: u64,
    ended: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            chance: Chance(seed),
            now: 100 * 3_600_000,
            skew: 0,
            calm: false,
            accounts: BTreeMap::new(),
            limits: BTreeMap::new(),
            holders: Vec::new(),
            later: Vec::new(),
            calls: BTreeMap::new(),
            spent: Spent::new(),
            made: 0,
            ended: 0,
        };
        for (account, limits) in
            [(cluster(), vec![(USD, 3_000), (LOOPS, 60)]), (agent(), vec![(USD, 1_500)])]
        {
            let mut state = BudgetState::default();
            Budget::born(&mut state, &account.to_string()).unwrap();
            world.accounts.insert(account.clone(), (state, BTreeMap::new()));
            let limit = |(key, amount): &(LimitKey, u64)| BudgetLimit {
                ask_at: 100,
                ..BudgetLimit::new(key.unit, key.window, *amount)
            };
            let source = LimitSource::Configured;
            let set = limits.iter().map(limit).collect();
            world.account_takes(&account, BudgetInput::Set { source, limits: Some(set) });
            let key = |(key, amount)| ((account.clone(), key), amount);
            world.limits.extend(limits.into_iter().map(key));
        }
        world.holders = (0..3)
            .map(|_| Holder::new(ProcessId::from_u128(0), HolderOptions::default()))
            .collect();
        for holder in 0..3 {
            world.restart(holder);
        }
        world
    }

    fn restart(&mut self, holder: usize) {
        let process = ProcessId::from_u128(u128::from(self.chance.below(u64::MAX)));
        self.holders[holder] = Holder::new(process, HolderOptions::default());
    }

    fn plan(&mut self, most: u64, what: Happens) {
        let at = self.now + self.chance.below(most);
        self.later.push((at, what));
    }

    fn account_takes(&mut self, key: &AccountKey, input: BudgetInput) {
        let ts = Timestamp(self.now.saturating_add_signed(self.skew));
        let (state, told) = self.accounts.get_mut(key).unwrap();
        state.accept((state.n + 1, ts), input);
        for event in Budget::advance(state) {
            state.n += 1;
            state.fold(&event).unwrap();
        }
        let mut standings = Vec::new();
        for (process, n) in state.told() {
            if told.insert(process, n) != Some(n) {
                let (slices, answers) = (state.slices_of(process), state.answers_to(process));
                let (account, version) = (key.clone(), state.n);
                standings.push((process, ProcessStanding { account, version, slices, answers }));
            }
        }
        for (process, standing) in standings {
            let to = self.holders.iter().position(|one| one.process() == process);
            let Some(to) = to else { continue };
            if self.calm || !self.chance.is(20) {
                self.plan(400, Happens::Told(to, standing.clone()));
            }
            if !self.calm && self.chance.is(10) {
                self.plan(9_000, Happens::Told(to, standing));
            }
        }
    }

    fn holder_takes(&mut self, at: usize, input: HolderInput) {
        let out = self.holders[at].handle(Timestamp(self.now), input);
        let is_granted = out.iter().any(|one| matches!(one, HolderOutput::Granted(..)));
        for one in out {
            match one {
                HolderOutput::Send(account, body) => {
                    let (stored, known) = match self.chance.below(10) {
                        0 if !self.calm => (false, false),
                        1 if !self.calm => (true, false),
                        _ => (true, true),
                    };
                    if stored {
                        // Inboxes keep the order of what was acknowledged.
                        self.later.push((self.now, Happens::Arrives(account.clone(), body)));
                    }
                    self.plan(300, Happens::Stored(at, account, known));
                }
                HolderOutput::Granted(reservation, _, holds) => {
                    self.calls.insert((at, reservation), holds);
                    self.plan(20_000, Happens::Ends(at, reservation));
                }
                HolderOutput::Waits(..) => {}
                HolderOutput::Refused(..) => self.ended += 1,
            }
        }
        if is_granted {
            self.check();
        }
    }

    /// A call ends, and is billed, or was never made.
    fn ends(&mut self, at: usize, reservation: Reservation) {
        let Some(holds) = self.calls.remove(&(at, reservation)) else { return };
        self.ended += 1;
        let how = self.chance.below(10);
        let usd = self.chance.below(holds.iter().map(|hold| hold.amount).max().unwrap() + 1);
        let usd_hold = holds.iter().filter(|hold| hold.limit.unit == BudgetUnit::Usd);
        let usd = usd.min(usd_hold.map(|hold| hold.amount).min().unwrap_or_default());
        for hold in &holds {
            let amount = match (how, hold.limit.unit) {
                (0, _) => 0,
                (1, _) | (_, BudgetUnit::Loops | BudgetUnit::Tokens) => hold.amount,
                (_, BudgetUnit::Usd) => usd,
            };
            let key = (hold.account.clone(), hold.limit, hold.window);
            *self.spent.entry(key).or_default() += amount;
        }
        let input = match how {
            0 => HolderInput::Release(reservation),
            1 => HolderInput::Settle(reservation, CallUsage::Unknown),
            _ => HolderInput::Settle(reservation, CallUsage::Known { usd, tokens: 1 }),
        };
        self.holder_takes(at, input);
    }

    /// I6, from outside: what is billed, and what calls that run may still cost, is never over a limit.
    fn check(&self) {
        let mut sums = self.spent.clone();
        for hold in self.calls.values().flatten() {
            let key = (hold.account.clone(), hold.limit, hold.window);
            *sums.entry(key).or_default() += hold.amount;
        }
        for ((account, limit, window), sum) in sums {
            let most = self.limits[&(account.clone(), limit)];
            assert!(sum <= most, "I6: `{limit}` of `{account}`, {window:?}: {sum} of {most}");
        }
    }

    fn arrivals(&mut self) {
        let at = usize::try_from(self.chance.below(3)).unwrap();
        self.made += 1;
        let fixed = 1 + self.chance.below(60);
        let mut needs = vec![need(cluster(), USD, fixed, 1_000_000), need(cluster(), LOOPS, 1, 0)];
        if self.chance.is(60) {
            needs.push(need(agent(), USD, fixed, 1_000_000));
        }
        let needs = CallNeeds { needs, least_output: 5, most_output: 5 + self.chance.below(150) };
        self.holder_takes(at, HolderInput::Reserve(Reservation(self.made), needs));
    }

    fn step(&mut self) {
        self.now += 100;
        self.later.sort_by_key(|(at, _)| *at);
        while self.later.first().is_some_and(|(at, _)| *at <= self.now) {
            match self.later.remove(0).1 {
                Happens::Arrives(account, input) => self.account_takes(&account, input),
                Happens::Stored(at, account, known) => {
                    self.holder_takes(at, HolderInput::Stored(account, known));
                }
                Happens::Told(at, standing) => self.holder_takes(at, HolderInput::Told(standing)),
                Happens::Ends(at, reservation) => self.ends(at, reservation),
            }
        }
        for at in 0..self.holders.len() {
            if self.calm || !self.chance.is(2) {
                self.holder_takes(at, HolderInput::Tick);
            }
        }
        let keys: Vec<AccountKey> = self.accounts.keys().cloned().collect();
        for key in keys {
            let due = self.accounts[&key].0.due();
            if let Some(due) = due.filter(|due| due.0 <= self.now) {
                self.account_takes(&key, BudgetInput::TimerFired { due });
            }
        }
    }

    fn run(mut self, seconds: u64, crashes: bool) -> Self {
        for _ in 0..seconds * 10 {
            if self.chance.is(8) {
                self.arrivals();
            }
            if self.chance.below(1_000) < 3 {
                // The owner's clock jumps, an hour either way.
                self.skew = i64::try_from(self.chance.below(7_200_000)).unwrap() - 3_600_000;
            }
            if crashes && self.chance.below(1_000) < 4 {
                let at = usize::try_from(self.chance.below(3)).unwrap();
                self.crash(at);
            }
            self.step();
        }
        self.calm = true;
        for _ in 0..6_000 {
            self.step();
            if self.later.is_empty() && self.holders.iter().all(Holder::is_at_rest) {
                break;
            }
        }
        self
    }

    /// Its calls are billed whole, at the worst.
    fn crash(&mut self, at: usize) {
        let lost: Vec<_> =
            self.calls.extract_if(.., |(holder, _), _| *holder == at).map(|it| it.1).collect();
        self.ended += (lost.len() + self.holders[at].waiting()) as u64;
        for hold in lost.into_iter().flatten() {
            *self.spent.entry((hold.account, hold.limit, hold.window)).or_default() += hold.amount;
        }
        self.restart(at);
        self.later.retain(|(_, what)| match what {
            Happens::Stored(one, ..) | Happens::Told(one, _) | Happens::Ends(one, _) => *one != at,
            Happens::Arrives(..) => true,
        });
        self.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..Default::default() })]

    /// Whatever is lost, late or repeated: no limit is passed, every call ends, and in the end accounts
    /// know to the micro-dollar what was spent, and nothing is out.
    #[test]
    fn i6_accounts_and_holders_agree(seed in any::<u64>()) {
        let world = World::new(seed).run(60, false);
        prop_assert_eq!(world.ended, world.made, "every call ends");
        for (key, (state, _)) in &world.accounts {
            for book in &state.books {
                for window in book.windows() {
                    let spent = world.spent.get(&(key.clone(), book.key, window.number));
                    prop_assert_eq!(window.spent(), spent.copied().unwrap_or_default(), "BUD-3");
                    prop_assert_eq!(window.committed(), window.spent(), "nothing is out");
                }
            }
        }
        for holder in &world.holders {
            prop_assert!(holder.is_at_rest());
        }
    }

    /// A process that dies takes its slices along, and no limit is passed.
    #[test]
    fn i6_holds_while_processes_die(seed in any::<u64>()) {
        let world = World::new(seed).run(60, true);
        // What a dead process had comes back when the window ends.
        let waiting: usize = world.holders.iter().map(Holder::waiting).sum();
        prop_assert_eq!(world.ended + waiting as u64, world.made, "no call is lost");
        for (key, (state, _)) in &world.accounts {
            for book in &state.books {
                let spent = world.spent.get(&(key.clone(), book.key, book.current.number));
                let spent = spent.copied().unwrap_or_default();
                prop_assert!(book.current.committed() >= spent, "BUD-3: none of it is forgotten");
            }
        }
    }
}
