//! Why calls wait, as far as people can do something about it.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    ProcessId, Timestamp,
    budget::{AccountKey, LimitKey},
};

use super::{pool::OpenAsk, report::AccountAtHand};

/// Why a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitReason {
    /// Other calls have reserved what is left. It comes back when they end.
    Calls,
    /// This process holds most of the rest, and is dead. That comes back when the window ends, or when a
    /// person closes it.
    Stranded(ProcessId),
    /// A person has to allow more.
    Person,
}

/// Asks by account.
type Accounts = BTreeMap<AccountKey, AccountAtHand>;

/// Keeps since when each ask waits for a dead process.
pub(super) fn look_for_dead(accounts: &mut Accounts, dead: &BTreeSet<ProcessId>, now: Timestamp) {
    let pools = accounts.values_mut().flat_map(|account| account.pools.values_mut());
    for ask in pools.filter_map(|pool| pool.ask.as_mut()) {
        let before = ask.stranded;
        let process = ask.behind.filter(|process| dead.contains(process));
        ask.stranded = process.map(|process| match before {
            Some(before) if before.0 == process => before,
            Some(_) | None => (process, now),
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

// === impl OpenAsk ===

impl OpenAsk {
    fn reason(&self) -> Option<WaitReason> {
        match (self.person, self.stranded) {
            (Some(_), _) => Some(WaitReason::Person),
            (None, Some((process, _))) => Some(WaitReason::Stranded(process)),
            (None, None) => self.waits.then_some(WaitReason::Calls),
        }
    }
}
