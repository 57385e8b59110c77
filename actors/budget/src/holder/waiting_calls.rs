//! The calls that wait, and why, as far as people can do something about it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{AccountKey, LimitKey},
};

use super::{
    CallNeeds, HolderOptions, HolderOutput, Refusal, Reservation,
    account_report::AccountAtHand,
    slice_pool::{DeadBehind, OpenAsk},
};

/// One limit of one account.
pub(super) type PoolKey = (AccountKey, LimitKey);

/// A call that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) reservation: Reservation,
    pub(super) needs: CallNeeds,
    /// Where it waits.
    pub(super) at: Option<PoolKey>,
    /// Since when it waits there.
    pub(super) since: Timestamp,
    /// When it waited for each limit first. It may come back to one; a person has so long from then on.
    pub(super) first: BTreeMap<PoolKey, Timestamp>,
    /// What was said of why it waits.
    pub(super) said: Option<WaitReason>,
    /// There is too little left for it, and a dead process has the rest. Calls that need less are served before it.
    pub(super) stranded: Option<StrandedCall>,
}

/// A call that waits for what a dead process has.
#[derive(Clone, Copy, Debug)]
pub(super) struct StrandedCall {
    process: ProcessId,
    /// Since when that is known.
    since: Timestamp,
}

/// Why a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Other calls have reserved what is left. It comes back when they end.
    Calls,
    /// What is left is too little, and this process, which is dead, holds most of the rest. That comes back when the
    /// window ends, or when a person closes it.
    Stranded(ProcessId),
    /// A person has to allow more.
    Person,
}

/// Asks by account.
type Accounts = BTreeMap<AccountKey, AccountAtHand>;

/// Keeps which asks wait for a dead process. Its account has to hear of that at once: a call that can be
/// made with what is left does not wait for that process.
pub(super) fn look_for_dead(
    accounts: &mut Accounts,
    waiters: &mut VecDeque<Waiter>,
    dead: &BTreeSet<ProcessId>,
) {
    let pools = accounts.values_mut().flat_map(|account| account.pools.values_mut());
    for ask in pools.filter_map(|pool| pool.ask.as_mut()) {
        let before = ask.stranded;
        let process = ask.behind.filter(|process| dead.contains(process));
        ask.stranded = process.map(|process| match before {
            Some(before) if before.process == process => before,
            Some(_) | None => {
                ask.sent = None;
                DeadBehind { process, sent: None, confirmed: false }
            }
        });
    }
    for waiter in waiters {
        waiter.stranded.take_if(|stranded| !dead.contains(&stranded.process));
    }
}

/// The processes for which calls wait.
pub(super) fn behind(accounts: &Accounts, waiters: &VecDeque<Waiter>) -> BTreeSet<ProcessId> {
    let pools = accounts.values().flat_map(|account| account.pools.values());
    let asked = pools.filter_map(|pool| pool.ask.as_ref()?.behind);
    let stranded = waiters.iter().filter_map(|waiter| waiter.stranded);
    asked.chain(stranded.map(|stranded| stranded.process)).collect()
}

/// What is asked of the limit for which a call waits.
fn ask<'a>(accounts: &'a Accounts, at: &PoolKey) -> Option<&'a OpenAsk> {
    accounts.get(&at.0)?.pools.get(&at.1)?.ask.as_ref()
}

/// Says to calls why they wait, each reason once. Also keeps which of them wait for a dead process: those that need at
/// least as much as the ask for which its account has confirmed that.
pub(super) fn says_why(
    accounts: &Accounts,
    waiters: &mut VecDeque<Waiter>,
    now: Timestamp,
) -> Vec<HolderOutput> {
    let mut out = Vec::new();
    for waiter in waiters {
        let least = waiter.least();
        let Some(at) = &waiter.at else { continue };
        let Some(ask) = ask(accounts, at) else { continue };
        if let Some(DeadBehind { process, confirmed: true, .. }) = ask.stranded
            && least >= Some(ask.wants.least)
            && waiter.stranded.is_none_or(|stranded| stranded.process != process)
        {
            waiter.stranded = Some(StrandedCall { process, since: now });
        }
        let why = ask.reason(waiter.stranded);
        if let Some(why) = why.filter(|why| waiter.said != Some(*why)) {
            waiter.said = Some(why);
            let (account, limit) = at.clone();
            out.push(HolderOutput::Waits(waiter.reservation, account, limit, why));
        }
    }
    out
}

/// An ask for so much at least is answered: it waits for this process, or for none. Calls that need no more do not wait
/// for another one.
pub(super) fn waits_behind(
    waiters: &mut VecDeque<Waiter>,
    key: &PoolKey,
    least: u64,
    process: Option<ProcessId>,
) {
    for waiter in waiters.iter_mut().filter(|waiter| waiter.at.as_ref() == Some(key)) {
        if waiter.least() <= Some(least) {
            waiter.stranded.take_if(|stranded| Some(stranded.process) != process);
        }
    }
}

/// How a call ends that has waited for too long; nothing if it has not.
pub(super) fn too_long(
    accounts: &Accounts,
    waiter: &Waiter,
    now: Timestamp,
    options: HolderOptions,
) -> Option<Refusal> {
    let (account, limit) = waiter.at.clone()?;
    let at_hand = accounts.get(&account)?;
    let ask = at_hand.pools.get(&limit).and_then(|pool| pool.ask.as_ref());
    let first = waiter.first.get(&(account.clone(), limit)).copied().unwrap_or_default();
    let asked = ask.and_then(|ask| ask.person).map(|since| since.max(first));
    if asked.is_some_and(|since| now.since(since) >= options.ask_wait) {
        return Some(Refusal::NotAllowed { account, limit });
    }
    if let Some(StrandedCall { process, since }) = waiter.stranded
        && now.since(since) >= options.ask_wait
    {
        return Some(Refusal::Stranded { account, limit, process });
    }
    let silent = now.since(at_hand.heard.max(waiter.since)) >= options.patience;
    silent.then_some(Refusal::Unavailable { account })
}

/// Something of this account may have changed.
pub(super) fn touch(touched: &mut BTreeSet<AccountKey>, account: &AccountKey) {
    if !touched.contains(account) {
        touched.insert(account.clone());
    }
}

/// Gives back what other processes wait for, except for what calls here count on, and asks for nothing that no call
/// waits for.
pub(super) fn gives_back(
    key: &AccountKey,
    account: &mut AccountAtHand,
    waiters: &VecDeque<Waiter>,
    kept: &BTreeMap<PoolKey, u64>,
) {
    for (limit, pool) in &mut account.pools {
        if pool.ask.is_some() && !waiters.iter().any(|waiter| waiter.needs.has(key, *limit)) {
            // If it comes nevertheless, it goes back.
            pool.ask = None;
        }
        let Some(open) = pool.open.as_mut().filter(|open| open.recalled) else { continue };
        match kept.get(&(key.clone(), *limit)) {
            Some(kept) => open.give_back(*kept),
            None => pool.close(),
        }
    }
    account.pools.retain(|_, pool| !pool.is_empty());
}

// === impl Waiter ===

impl Waiter {
    pub(super) fn new(reservation: Reservation, needs: CallNeeds, since: Timestamp) -> Self {
        let first = BTreeMap::new();
        Self { reservation, needs, at: None, since, first, said: None, stranded: None }
    }

    /// It waits for this limit now.
    pub(super) fn waits_at(&mut self, key: PoolKey, now: Timestamp) {
        if self.at.as_ref() != Some(&key) {
            self.first.entry(key.clone()).or_insert(now);
            (self.at, self.since) = (Some(key), now);
            (self.said, self.stranded) = (None, None);
        }
    }

    /// With how much of the limit for which it waits it could be made.
    pub(super) fn least(&self) -> Option<u64> {
        let (account, limit) = self.at.as_ref()?;
        let need = self.needs.of(account, *limit)?;
        Some(need.room().at(self.needs.least_output).max(1))
    }
}

// === impl OpenAsk ===

impl OpenAsk {
    /// Why a call waits for it, of which this is known.
    fn reason(&self, stranded: Option<StrandedCall>) -> Option<WaitReason> {
        match (self.person, stranded) {
            (Some(_), _) => Some(WaitReason::Person),
            (None, Some(StrandedCall { process, .. })) => Some(WaitReason::Stranded(process)),
            (None, None) => self.waits.then_some(WaitReason::Calls),
        }
    }
}
