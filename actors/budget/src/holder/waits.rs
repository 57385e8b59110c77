//! The calls that wait, and why, as far as people can do something about it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{AccountKey, LimitKey},
};

use super::{
    CallNeeds, HolderOptions, Refusal, Reservation,
    pool::{DeadBehind, OpenAsk},
    report::AccountAtHand,
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

/// Keeps since when each ask waits for a dead process. Its account has to hear of that at once: a call that can be
/// made with what is left does not wait for that process.
pub(super) fn look_for_dead(accounts: &mut Accounts, dead: &BTreeSet<ProcessId>, now: Timestamp) {
    let pools = accounts.values_mut().flat_map(|account| account.pools.values_mut());
    for ask in pools.filter_map(|pool| pool.ask.as_mut()) {
        let before = ask.stranded;
        let process = ask.behind.filter(|process| dead.contains(process));
        ask.stranded = process.map(|process| match before {
            Some(before) if before.process == process => before,
            Some(_) | None => {
                ask.sent = None;
                DeadBehind { process, since: now, sent: false, confirmed: false }
            }
        });
    }
}

/// The processes for which calls wait.
pub(super) fn behind(accounts: &Accounts) -> BTreeSet<ProcessId> {
    let pools = accounts.values().flat_map(|account| account.pools.values());
    pools.filter_map(|pool| pool.ask.as_ref()?.behind).collect()
}

/// Why calls wait for this limit, if its account has said so.
pub(super) fn reason(
    accounts: &Accounts,
    account: &AccountKey,
    limit: LimitKey,
) -> Option<WaitReason> {
    accounts.get(account)?.pools.get(&limit)?.ask.as_ref()?.reason()
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
    if let Some(DeadBehind { process, since, confirmed: true, .. }) =
        ask.and_then(|ask| ask.stranded)
        && now.since(since.max(first)) >= options.ask_wait
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

// === impl OpenAsk ===

impl OpenAsk {
    fn reason(&self) -> Option<WaitReason> {
        match (self.person, self.stranded) {
            (Some(_), _) => Some(WaitReason::Person),
            (None, Some(DeadBehind { process, confirmed: true, .. })) => {
                Some(WaitReason::Stranded(process))
            }
            (None, _) => self.waits.then_some(WaitReason::Calls),
        }
    }
}
