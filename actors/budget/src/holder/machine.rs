//! The machine: what happens to a process's slices and its calls.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
};

#[cfg(feature = "test-util")]
use clawnode_kernel::KernelBug;
use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{
        AccountKey, AccountVersion, AskAnswer, AskVerdict, GrantedSlice, Hold, ProcessStanding,
    },
};

use super::{
    CallNeeds, CallUsage, GrantedHolds, HolderInput, HolderOptions, HolderOutput, Refusal,
    Reservation,
    account_report::AccountAtHand,
    slice_pool::{HeldSlice, OpenAsk, PoolWants, SlicePool},
    waiting_calls::{self, PoolKey, Waiter, gives_back, touch},
};

/// The holder of a process.
#[derive(Debug)]
pub struct Holder {
    process: ProcessId,
    options: HolderOptions,
    now: Timestamp,
    /// The number of the last slice that was asked for.
    number: u64,
    accounts: BTreeMap<AccountKey, AccountAtHand>,
    /// Those of which this input may have changed something. A process may have accounts of thousands of users, and
    /// a call needs three: only a tick looks at all of them.
    touched: BTreeSet<AccountKey>,
    /// Calls that wait, in the order in which they came.
    waiters: VecDeque<Waiter>,
    /// What calls have reserved.
    holds: BTreeMap<Reservation, Vec<Hold>>,
    out: Vec<HolderOutput>,
    /// Processes for which calls wait, and which are dead.
    dead: BTreeSet<ProcessId>,
    /// The process ends soon.
    leaves: bool,
    /// A bug of tests.
    #[cfg(feature = "test-util")]
    pub planted: KernelBug,
}

/// Where calls wait after a look at all of them.
#[derive(Default)]
struct Look {
    blocked: BTreeMap<PoolKey, PoolWants>,
    /// What the first of them need of the limits that they came past, and at least as much as any of them
    /// needs: it does not go back, so that no two processes wait for each other, and none of these calls
    /// comes to wait for those limits again.
    kept: BTreeMap<PoolKey, u64>,
}

// === impl Holder ===

impl Holder {
    /// The holder of a process that begins.
    pub fn new(process: ProcessId, options: HolderOptions) -> Self {
        Self {
            process,
            options,
            now: Timestamp(0),
            number: 0,
            accounts: BTreeMap::new(),
            touched: BTreeSet::new(),
            waiters: VecDeque::new(),
            holds: BTreeMap::new(),
            out: Vec::new(),
            dead: BTreeSet::new(),
            leaves: false,
            #[cfg(feature = "test-util")]
            planted: KernelBug::None,
        }
    }

    /// Takes one thing that happened; returns what to do, in order.
    pub fn handle(&mut self, now: Timestamp, input: HolderInput) -> Vec<HolderOutput> {
        self.now = self.now.max(now);
        let looks_at_all = matches!(input, HolderInput::Tick | HolderInput::Leave);
        match input {
            HolderInput::Reserve(reservation, needs) => self.reserve(reservation, needs),
            HolderInput::Settle(reservation, usage) => self.ends(reservation, Some(usage)),
            HolderInput::Release(reservation) => {
                self.forgets(|waiter| waiter.reservation == reservation);
                self.ends(reservation, None);
            }
            HolderInput::Told(standing) => self.told(standing),
            HolderInput::Stored(account, stored) => {
                if let Some(at_hand) = self.accounts.get_mut(&account) {
                    at_hand.stored(stored);
                    self.touched.insert(account);
                }
            }
            HolderInput::Tick => self.tick(),
            HolderInput::Leave => {
                self.leaves = true;
                self.waiters.clear();
            }
        }
        let kept = self.serve();
        self.follow(looks_at_all, &kept);
        mem::take(&mut self.out)
    }

    pub const fn process(&self) -> ProcessId {
        self.process
    }

    /// What calls have reserved and not settled.
    pub fn holds(&self) -> impl Iterator<Item = &Hold> {
        self.holds.values().flatten()
    }

    /// How many calls wait.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Whether it has no slice, and nothing that an account does not know.
    pub fn is_at_rest(&self) -> bool {
        self.waiters.is_empty() && self.accounts.values().all(AccountAtHand::is_at_rest)
    }

    fn reserve(&mut self, reservation: Reservation, mut needs: CallNeeds) {
        // What costs nothing whatever happens takes nothing from a limit, even if that is spent.
        let most = needs.most_output;
        needs.needs.retain(|need| need.cost.at(most) > 0);
        needs
            .needs
            .sort_by(|one, other| (&one.account, one.limit).cmp(&(&other.account, other.limit)));
        self.waiters.push_back(Waiter::new(reservation, needs, self.now));
    }

    /// BUD-2: what a call reserved ends once.
    fn ends(&mut self, reservation: Reservation, usage: Option<CallUsage>) {
        #[cfg(feature = "test-util")]
        if usage.is_none() && self.planted == KernelBug::LosesRelease {
            return;
        }
        #[cfg(feature = "test-util")]
        let usage = match (usage, self.planted) {
            (Some(CallUsage::Unknown), KernelBug::EstimatesNothing) => {
                Some(CallUsage::Known { usd: 0, tokens: 0 })
            }
            (usage, _) => usage,
        };
        for hold in self.holds.remove(&reservation).unwrap_or_default() {
            let now = self.now;
            let pool = self.pool(&(hold.account, hold.limit));
            if let Some(slice) = pool.slice(hold.number, hold.window) {
                let used = usage.map_or(0, |usage| usage.of(hold.limit.unit, hold.amount));
                slice.settle(hold.amount, used, now);
            }
            pool.closing.iter_mut().for_each(|slice| slice.give_back(0));
        }
    }

    fn pool(&mut self, key: &PoolKey) -> &mut SlicePool {
        touch(&mut self.touched, &key.0);
        let account = self.accounts.entry(key.0.clone()).or_default();
        account.pools.entry(key.1).or_default()
    }

    /// These calls wait no more: what only they asked for is not asked for any more.
    fn forgets(&mut self, is_it: impl Fn(&Waiter) -> bool) {
        let touched = &mut self.touched;
        self.waiters.retain(|waiter| {
            let stays = !is_it(waiter);
            if !stays {
                waiter.needs.needs.iter().for_each(|need| touch(touched, &need.account));
            }
            stays
        });
    }

    // === what accounts say ===

    fn told(&mut self, standing: ProcessStanding) {
        let version = standing.said_at();
        let ProcessStanding { account, slices, answers, .. } = standing;
        touch(&mut self.touched, &account);
        let at_hand = self.accounts.entry(account.clone()).or_default();
        if version.is_before(at_hand.version) {
            return;
        }
        at_hand.version = version;
        at_hand.heard = self.now;
        // What the account does not know, it does not count.
        for (limit, pool) in &mut at_hand.pools {
            let is_it = |one: &GrantedSlice, slice: &HeldSlice| {
                one.limit == *limit && one.number == slice.number && one.window == slice.window
            };
            if pool.open.as_ref().is_some_and(|open| !slices.iter().any(|one| is_it(one, open))) {
                pool.close();
            }
        }
        for granted in &slices {
            self.granted(&account, granted);
        }
        for answer in answers {
            self.answered(&account, version, answer);
        }
        self.says_why();
    }

    fn granted(&mut self, account: &AccountKey, granted: &GrantedSlice) {
        let now = self.now;
        #[cfg(feature = "test-util")]
        let planted = self.planted;
        let at_hand = self.accounts.entry(account.clone()).or_default();
        let pool = at_hand.pools.entry(granted.limit).or_default();
        if let Some(slice) = pool.slice(granted.number, granted.window) {
            // Others may hold this process dead: a report says that it lives, also if nothing is new.
            slice.dirty |= granted.recalled && !slice.recalled;
            slice.recalled |= granted.recalled;
            return;
        }
        if let Some(ask) = pool.ask.take_if(|ask| ask.number == granted.number) {
            pool.close();
            let slice = HeldSlice::new(granted, ask.said, now);
            #[cfg(feature = "test-util")]
            let slice = slice.with(planted);
            pool.open = Some(slice);
            return;
        }
        #[cfg(feature = "test-util")]
        if planted == KernelBug::AsksAsAnother {
            return;
        }
        let stray = (granted.number, granted.window);
        if !at_hand.strays.contains(&stray) {
            at_hand.strays.push(stray);
        }
    }

    /// It is no slice. Only a call for which too much is spent ends by it.
    fn answered(&mut self, account: &AccountKey, version: AccountVersion, answer: AskAnswer) {
        let (now, key) = (self.now, (account.clone(), answer.limit));
        let pool = self.pool(&key);
        let Some(ask) = pool.ask.as_mut().filter(|ask| ask.number == answer.number) else { return };
        ask.answered = true;
        ask.waits = answer.verdict == AskVerdict::Waits;
        ask.behind = answer.holder.filter(|_| ask.waits);
        ask.stranded = ask.stranded.filter(|dead| ask.behind == Some(dead.process));
        if let Some(dead) = &mut ask.stranded {
            dead.confirmed |= dead.sent.is_some_and(|sent| sent.is_before(version));
        }
        let (least, behind) = (ask.wants.least, ask.behind);
        if !matches!(answer.verdict, AskVerdict::NeedsPerson { .. }) {
            ask.person = None;
        }
        match answer.verdict {
            AskVerdict::Waits => {}
            AskVerdict::NeedsPerson { spent, limit } => {
                ask.person.get_or_insert(now);
                self.ends_bankrupt(&key, spent, limit);
            }
            AskVerdict::SpentOut { spent, limit } => {
                self.ends_bankrupt(&key, spent, limit);
            }
            AskVerdict::NoLimit => {
                pool.ask = None;
                for waiter in &mut self.waiters {
                    if waiter.at.as_ref() == Some(&key) {
                        let needs = &mut waiter.needs.needs;
                        needs.retain(|need| need.account != key.0 || need.limit != key.1);
                    }
                }
            }
        }
        waiting_calls::waits_behind(&mut self.waiters, &key, least, behind);
    }

    /// Says to calls why they wait.
    fn says_why(&mut self) {
        self.out.extend(waiting_calls::says_why(&self.accounts, &mut self.waiters, self.now));
    }

    fn ends_bankrupt(&mut self, key: &PoolKey, used: u64, most: u64) {
        let left = most.saturating_sub(used);
        let needed = |waiter: &Waiter| {
            let needed = waiter.least().filter(|_| waiter.at.as_ref() == Some(key));
            needed.filter(|needed| *needed > left)
        };
        self.refuse(|waiter| {
            let needed = needed(waiter)?;
            let (account, limit) = key.clone();
            Some(Refusal::Bankrupt { account, limit, used, most, needed })
        });
    }

    fn refuse(&mut self, why: impl Fn(&Waiter) -> Option<Refusal>) {
        let (out, touched) = (&mut self.out, &mut self.touched);
        self.waiters.retain(|waiter| {
            let Some(refusal) = why(waiter) else { return true };
            waiter.needs.needs.iter().for_each(|need| touch(touched, &need.account));
            out.push(HolderOutput::Refused(waiter.reservation, refusal));
            false
        });
    }

    // === time ===

    fn tick(&mut self) {
        let (now, options) = (self.now, self.options);
        for (account, at_hand) in &mut self.accounts {
            for (limit, pool) in &mut at_hand.pools {
                if pool.is_idle(now)
                    && !self.waiters.iter().any(|waiter| waiter.needs.has(account, *limit))
                {
                    pool.close();
                }
            }
        }
        waiting_calls::look_for_dead(&mut self.accounts, &mut self.waiters, &self.dead);
        self.says_why();
        let accounts = mem::take(&mut self.accounts);
        self.refuse(|waiter| waiting_calls::too_long(&accounts, waiter, now, options));
        self.accounts = accounts;
        self.accounts.retain(|_, account| !account.is_forgotten(now));
    }

    /// Waits as long as this from now on.
    pub fn set_options(&mut self, options: HolderOptions) {
        self.options = options;
    }

    /// The processes for which calls wait: their accounts name them.
    pub fn waits_for(&self) -> BTreeSet<ProcessId> {
        waiting_calls::behind(&self.accounts, &self.waiters)
    }

    /// Those of them that are dead.
    pub fn set_dead(&mut self, dead: BTreeSet<ProcessId>) {
        self.dead = dead;
    }

    // === calls ===

    /// Grants what can be granted, and asks for what waits. Says what waiting calls count on.
    fn serve(&mut self) -> BTreeMap<PoolKey, u64> {
        let mut look = Look::default();
        // What these wait for may not come: those that need less do not wait with them.
        self.waiters.make_contiguous().sort_by_key(|waiter| waiter.stranded.is_some());
        for mut waiter in mem::take(&mut self.waiters) {
            match self.first_block(&waiter.needs, &mut look) {
                Ok(output) => self.grant(&waiter, output),
                Err(at) => {
                    waiter.waits_at(at, self.now);
                    // Also those behind that limit: it may have counted on them before.
                    let needs = waiter.needs.needs.iter();
                    needs.for_each(|need| touch(&mut self.touched, &need.account));
                    self.waiters.push_back(waiter);
                }
            }
        }
        if self.leaves {
            self.leave();
            return BTreeMap::new();
        }
        for (key, wants) in &look.blocked {
            self.wants(key, *wants, look.kept.get(key).copied());
        }
        look.kept
    }

    /// Gives back what others wait for, and says to accounts what they have to hear.
    fn follow(&mut self, looks_at_all: bool, kept: &BTreeMap<PoolKey, u64>) {
        let touched = mem::take(&mut self.touched);
        let Self { process, now, leaves, waiters, out, accounts, .. } = self;
        let mut follows = |key: &AccountKey, account: &mut AccountAtHand| {
            if !*leaves {
                gives_back(key, account, waiters, kept);
            }
            let sends = account.sends(*process, *now);
            out.extend(sends.map(|body| HolderOutput::Send(key.clone(), body)));
        };
        if looks_at_all || *leaves {
            for (key, account) in accounts.iter_mut() {
                follows(key, account);
            }
            return;
        }
        for key in &touched {
            if let Some(account) = accounts.get_mut(key) {
                follows(key, account);
            }
        }
    }

    /// Gives back what it can: a process that is gone leaves its slices spent.
    fn leave(&mut self) {
        for at_hand in self.accounts.values_mut() {
            for pool in at_hand.pools.values_mut() {
                // If it comes nevertheless, it goes back.
                pool.ask = None;
                pool.close();
                // It is reported at once.
                pool.slices().for_each(|slice| slice.recalled = true);
            }
            at_hand.pools.retain(|_, pool| !pool.is_empty());
        }
    }

    /// The cap on output with which a call can be paid, or the first limit of which there is not enough.
    fn first_block(&mut self, needs: &CallNeeds, look: &mut Look) -> Result<u64, PoolKey> {
        let mut output = needs.most_output;
        for (at, need) in needs.needs.iter().enumerate() {
            let key = (need.account.clone(), need.limit);
            let waits = look.blocked.get_mut(&key);
            let open = self.pool(&key).open.as_ref().filter(|_| waits.is_none());
            let fits = open.and_then(|open| open.fits(need.room(), output, needs.least_output));
            if let Some(fits) = fits {
                output = fits;
                continue;
            }
            let most = need.room().at(needs.most_output).max(1);
            let past = needs.needs.get(..at).unwrap_or_default();
            if let Some(wants) = waits {
                wants.waits = wants.waits.saturating_add(most);
                for past in past {
                    let kept = look.kept.entry((past.account.clone(), past.limit)).or_default();
                    *kept = (*kept).max(past.room().at(needs.most_output));
                }
                return Err(key);
            }
            let least = need.room().at(needs.least_output).max(1);
            look.blocked.insert(key.clone(), PoolWants { call: most, least, waits: most });
            for past in past {
                let kept = look.kept.entry((past.account.clone(), past.limit)).or_default();
                *kept = kept.saturating_add(past.room().at(needs.most_output));
            }
            return Err(key);
        }
        Ok(output)
    }

    fn grant(&mut self, waiter: &Waiter, output: u64) {
        let now = self.now;
        let mut holds = Vec::new();
        for need in &waiter.needs.needs {
            let (account, limit) = (need.account.clone(), need.limit);
            let amount = need.cost.at(output);
            let pool = self.pool(&(account.clone(), limit));
            let Some(slice) = &mut pool.open else { continue };
            slice.reserve(amount, now);
            let (number, window) = (slice.number, slice.window);
            holds.push(Hold { account, limit, number, window, amount });
        }
        self.holds.insert(waiter.reservation, holds.clone());
        let reservation = waiter.reservation;
        self.out.push(HolderOutput::Granted(GrantedHolds { reservation, output, holds }));
    }

    /// Asks for a slice that is large enough. What is left of the open one goes back with it, except for
    /// what calls count on that came before: the next slice is large enough for them, too.
    fn wants(&mut self, key: &PoolKey, wants: PoolWants, kept: Option<u64>) {
        let wants = PoolWants { call: wants.call.max(kept.unwrap_or_default()), ..wants };
        #[cfg(feature = "test-util")]
        let (now, anew) = (self.now, self.planted == KernelBug::AsksAsAnother);
        let next = self.number + 1;
        let pool = self.pool(key);
        match (kept, &mut pool.open) {
            (Some(kept), Some(open)) => open.give_back(kept),
            _ => pool.close(),
        }
        #[cfg(feature = "test-util")]
        pool.ask.take_if(|ask| {
            let is_late = |at| now.since(at) >= std::time::Duration::from_secs(2);
            anew && !ask.answered && ask.sent.is_some_and(is_late)
        });
        if let Some(ask) = &mut pool.ask {
            ask.changes(wants);
            return;
        }
        pool.ask = Some(OpenAsk::new(next, wants));
        self.number = next;
    }
}
