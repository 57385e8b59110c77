//! Holders with accounts in a small world that loses and repeats what they say.

use std::collections::BTreeMap;

use clawnode_kernel::EntityKind as _;
use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{
        AccountKey, BudgetInput, BudgetLimit, BudgetUnit, Hold, LimitKey, LimitSource,
        ProcessStanding, WindowLength, WindowNumber,
    },
    codec,
};
use proptest::prelude::*;

use super::{
    CallNeeds, CallUsage, Holder, HolderInput, HolderOptions, HolderOutput, Reservation,
    tests::{LOOPS, USD, agent, cluster, need},
};
use crate::account::{Budget, BudgetState};

const EVER: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Forever };
const MONTH: LimitKey = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Month };
const TOKENS: LimitKey = LimitKey { unit: BudgetUnit::Tokens, window: WindowLength::Hour };

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
    /// The largest amount that each limit has had: no window has more spent.
    limits: BTreeMap<(AccountKey, LimitKey), u64>,
    holders: Vec<Holder>,
    later: Vec<(u64, Happens)>,
    /// What befalls limits: they are lowered, raised, taken away and set again; people allow more.
    restless: bool,
    /// What calls that really run have reserved.
    calls: BTreeMap<(usize, Reservation), Vec<Hold>>,
    spent: Spent,
    made: u64,
    ended: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let first = [
            (cluster(), vec![(USD, 3_000), (LOOPS, 60)]),
            (agent(), vec![(USD, 1_500), (EVER, 6_000), (MONTH, 4_000)]),
        ];
        let mut world = Self {
            chance: Chance(seed),
            // Shortly before a month ends.
            now: 31 * 24 * 3_600_000 - 45_000,
            skew: 0,
            calm: false,
            accounts: BTreeMap::new(),
            limits: BTreeMap::new(),
            holders: Vec::new(),
            restless: false,
            later: Vec::new(),
            calls: BTreeMap::new(),
            spent: Spent::new(),
            made: 0,
            ended: 0,
        };
        for (account, limits) in first {
            let mut state = BudgetState::default();
            Budget::born(&mut state, &account.to_string()).unwrap();
            world.accounts.insert(account.clone(), (state, BTreeMap::new()));
            world.sets(&account, &limits, 100);
        }
        world.holders = (0..3)
            .map(|_| Holder::new(ProcessId::from_u128(0), HolderOptions::default()))
            .collect();
        for holder in 0..3 {
            world.restart(holder);
        }
        world
    }

    fn sets(&mut self, account: &AccountKey, limits: &[(LimitKey, u64)], ask_at: u8) {
        let limit = |(key, amount): &(LimitKey, u64)| BudgetLimit {
            ask_at,
            warn_at: 50,
            ..BudgetLimit::new(key.unit, key.window, *amount)
        };
        let source = LimitSource::Configured;
        let set = limits.iter().map(limit).collect();
        self.account_takes(account, BudgetInput::Set { source, limits: Some(set), decides: None });
        for (key, amount) in limits {
            let most = self.limits.entry((account.clone(), *key)).or_default();
            *most = (*most).max(*amount);
        }
    }

    /// Limits change, people allow more, and the owners of accounts die.
    fn befalls(&mut self) {
        let account = if self.chance.is(50) { cluster() } else { agent() };
        match self.chance.below(4) {
            0 => {
                let all = [(USD, 2_500), (LOOPS, 60), (EVER, 6_000), (MONTH, 4_000), (TOKENS, 900)];
                let mut limits = Vec::new();
                for (key, most) in all {
                    match self.chance.below(4) {
                        0 => {}
                        1 => limits.push((key, self.chance.below(most))),
                        2 => limits.push((key, 0)),
                        _ => limits.push((key, most)),
                    }
                }
                let ask_at = if self.chance.is(50) { 100 } else { 60 };
                self.sets(&account, &limits, ask_at);
            }
            // The next owner knows what the journal says, and says it again.
            1 => {
                let (state, told) = self.accounts.get_mut(&account).unwrap();
                *state = codec::decode(&codec::encode(state).unwrap()).unwrap();
                told.clear();
                self.tells(&account);
            }
            _ => self.allows(&account),
        }
    }

    /// A person allows more of each limit, also of windows that have ended.
    fn allows(&mut self, account: &AccountKey) {
        let books = self.accounts[account].0.books.iter();
        let windows: Vec<_> = books.map(|book| (book.key, book.current.number.0)).collect();
        for (limit, window) in windows {
            let window = WindowNumber(window.saturating_sub(self.chance.below(2)));
            let by = "ada".to_owned();
            self.account_takes(account, BudgetInput::Allow { by, limit, window });
        }
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
        let (state, _) = self.accounts.get_mut(key).unwrap();
        state.accept(state.n + 1, ts, input);
        for event in Budget::advance(state) {
            state.n += 1;
            state.fold(&event).unwrap();
        }
        self.tells(key);
    }

    /// Says what is new.
    fn tells(&mut self, key: &AccountKey) {
        let (state, told) = self.accounts.get_mut(key).unwrap();
        let mut standings = Vec::new();
        for (process, n) in state.told() {
            if told.insert(process, n) != Some(n) {
                let (slices, answers) = (state.slices_of(process), state.answers_to(process));
                let (account, version) = (key.clone(), state.n);
                standings.push((
                    process,
                    ProcessStanding { account, version, begun: None, slices, answers },
                ));
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
                        // An inbox keeps the order of the acknowledged messages.
                        self.later.push((self.now, Happens::Arrives(account.clone(), body)));
                    }
                    self.plan(300, Happens::Stored(at, account, known));
                }
                HolderOutput::Granted(granted) => {
                    let reservation = granted.reservation;
                    self.calls.insert((at, reservation), granted.holds);
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
        let mut bills = |unit| {
            let of_unit = holds.iter().filter(|hold| hold.limit.unit == unit);
            self.chance.below(of_unit.map(|hold| hold.amount).min().unwrap_or_default() + 1)
        };
        let (usd, tokens) = (bills(BudgetUnit::Usd), bills(BudgetUnit::Tokens));
        for hold in &holds {
            let amount = match (how, hold.limit.unit) {
                (0, _) => 0,
                (1, _) | (_, BudgetUnit::Loops) => hold.amount,
                (_, BudgetUnit::Tokens) => tokens,
                (_, BudgetUnit::Usd) => usd,
            };
            let key = (hold.account.clone(), hold.limit, hold.window);
            *self.spent.entry(key).or_default() += amount;
        }
        let input = match how {
            0 => HolderInput::Release(reservation),
            1 => HolderInput::Settle(reservation, CallUsage::Unknown),
            _ => HolderInput::Settle(reservation, CallUsage::Known { usd, tokens }),
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

    /// BUD-3: what accounts have of a window is what was billed of it, and nothing is out.
    fn has_no_more_than_billed(&self) {
        for (key, (state, _)) in &self.accounts {
            for book in &state.books {
                let current = &book.current;
                let spent = self.spent.get(&(key.clone(), book.key, current.number));
                let spent = spent.copied().unwrap_or_default();
                assert_eq!(current.spent(), spent, "BUD-3: `{}` of `{key}`", book.key);
                assert_eq!(current.committed(), spent, "`{}` of `{key}` is out", book.key);
            }
        }
    }

    fn arrivals(&mut self) {
        let at = usize::try_from(self.chance.below(3)).unwrap();
        self.made += 1;
        let fixed = 1 + self.chance.below(60);
        // Some cost nothing without output.
        let fixed = if self.chance.is(10) { 0 } else { fixed };
        let mut needs = vec![need(cluster(), USD, fixed, 1_000_000), need(cluster(), LOOPS, 1, 0)];
        if self.restless {
            needs.push(need(cluster(), TOKENS, 1, 1_000_000));
        }
        if self.chance.is(60) {
            for limit in [USD, EVER, MONTH] {
                needs.push(need(agent(), limit, fixed, 1_000_000));
            }
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
        let alive: Vec<ProcessId> = self.holders.iter().map(Holder::process).collect();
        for at in 0..self.holders.len() {
            let behind = self.holders[at].waits_for().into_iter();
            self.holders[at].set_dead(behind.filter(|one| !alive.contains(one)).collect());
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
            if self.restless && self.chance.below(1_000) < 15 {
                self.befalls();
            }
            if crashes && self.chance.below(1_000) < 4 {
                let at = usize::try_from(self.chance.below(3)).unwrap();
                self.crash(at);
            }
            self.step();
        }
        self.calm = true;
        if self.restless {
            self.sets(&cluster(), &[(USD, 3_000), (LOOPS, 60), (TOKENS, 900)], 60);
            self.sets(&agent(), &[(USD, 1_500), (EVER, 6_000)], 60);
            self.allows(&cluster());
        }
        // A call may wait for a person at one limit after the other.
        for _ in 0..30_000 {
            self.step();
            if self.later.is_empty() && self.holders.iter().all(Holder::is_at_rest) {
                break;
            }
        }
        self
    }

    /// Its calls are billed whole, at the worst.
    fn crash(&mut self, at: usize) {
        let lost: Vec<_> = self
            .calls
            .extract_if(.., |(holder, _), _| *holder == at)
            .map(|extracted| extracted.1)
            .collect();
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
    #![proptest_config(ProptestConfig { cases: 6, failure_persistence: None, ..Default::default() })]

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

    /// The same while limits change and are set again, people allow more, and owners of accounts die: a
    /// window never has more spent than the largest limit that it had.
    #[test]
    fn i6_holds_while_limits_change(seed in any::<u64>()) {
        let world = World { restless: true, ..World::new(seed) }.run(60, false);
        prop_assert_eq!(world.ended, world.made, "every call ends");
        world.has_no_more_than_billed();
        for holder in &world.holders {
            prop_assert!(holder.is_at_rest());
        }
    }

    /// The same with processes that die.
    #[test]
    fn i6_holds_while_limits_change_and_processes_die(seed in any::<u64>()) {
        let world = World { restless: true, ..World::new(seed) }.run(60, true);
        let waiting: usize = world.holders.iter().map(Holder::waiting).sum();
        // Who waited longest may have begun only just before the end of the world.
        let open = (waiting + world.calls.len()) as u64;
        prop_assert_eq!(world.ended + open, world.made, "no call is lost");
    }

    /// A process that dies takes its slices along, and no limit is passed.
    #[test]
    fn i6_holds_while_processes_die(seed in any::<u64>()) {
        let world = World::new(seed).run(60, true);
        // What a dead process had comes back when the window ends; a call that waited for it may run then.
        let waiting: usize = world.holders.iter().map(Holder::waiting).sum();
        let open = (waiting + world.calls.len()) as u64;
        prop_assert_eq!(world.ended + open, world.made, "no call is lost");
        for (key, (state, _)) in &world.accounts {
            for book in &state.books {
                let spent = world.spent.get(&(key.clone(), book.key, book.current.number));
                let spent = spent.copied().unwrap_or_default();
                prop_assert!(book.current.committed() >= spent, "BUD-3: none of it is forgotten");
            }
        }
    }
}

/// Seeds in which calls once came to wait for one limit again and again: each made room for another one.
#[test]
fn calls_that_wait_for_several_limits_end() {
    for seed in [17_384_405_352_358_211_110, 4_325_185_573_259_260_907] {
        let world = World { restless: true, ..World::new(seed) }.run(120, false);
        assert_eq!(world.ended, world.made, "seed {seed}");
        world.has_no_more_than_billed();
    }
}
