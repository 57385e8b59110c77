//! What a process has read of accounts in the bucket. Pure.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    budget::{
        AccountKey, AccountVersion, BudgetLimit, BudgetUnit, BudgetView, LimitKey, WindowLength,
    },
    subject::budget_key,
};

use super::{AccountLimits, AccountsView, ConfiguredBudgets};

/// The accounts that a process knows from the bucket.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownAccounts(BTreeMap<AccountKey, KnownAccount>);

/// One of them.
#[derive(Clone, Debug)]
struct KnownAccount {
    version: AccountVersion,
    /// Its limits; nothing if they cannot be read.
    limits: Option<Vec<BudgetLimit>>,
    is_default: bool,
    by_person: bool,
}

// === impl KnownAccounts ===

impl KnownAccounts {
    /// Takes the limits of an account, unless it has later ones; whether that is news.
    pub(super) fn take(&mut self, view: BudgetView) -> bool {
        let version = view.said_at();
        let BudgetView { account, limits, is_default, by_person, .. } = view;
        let is_news =
            |known: &KnownAccount| known.version.is_before(version) || known.limits.is_none();
        if !self.0.get(&account).is_none_or(is_news) {
            return false;
        }
        let limits = Some(limits);
        self.0.insert(account, KnownAccount { version, limits, is_default, by_person });
        true
    }

    /// The limits of this account cannot be read. Those that were read last stay; if there are none, it
    /// may have any limit. Whether that is news.
    pub(super) fn take_unreadable(&mut self, account: AccountKey) -> bool {
        let is_news = !self.0.contains_key(&account);
        let (limits, is_default, by_person) = (None, false, false);
        let version = AccountVersion::default();
        let unknown = KnownAccount { version, limits, is_default, by_person };
        self.0.entry(account).or_insert(unknown);
        is_news
    }

    /// The limits under this key of the bucket were removed with their account, which was deleted: it has what the
    /// configuration says, until it begins again. Whether that is news.
    pub(super) fn forget(&mut self, key: &str) -> bool {
        let gone = self.0.keys().find(|account| budget_key(account.entity()) == key).cloned();
        gone.and_then(|account| self.0.remove(&account)).is_some()
    }

    /// The limits of this account, if a person set them.
    pub(super) fn set_by_person(&self, account: &AccountKey) -> Option<Vec<BudgetLimit>> {
        self.0.get(account).filter(|known| known.by_person)?.limits.clone()
    }

    pub(super) fn contains(&self, account: &AccountKey) -> bool {
        self.0.contains_key(account)
    }

    /// Which accounts have to hear of a configuration: all that are configured, those that may have been
    /// and are not any more, and users with other limits than it has for them. An account that has heard
    /// it does nothing.
    pub(super) fn hearers(&self, configured: &ConfiguredBudgets) -> Vec<AccountKey> {
        let is_late = |account: &AccountKey, known: &KnownAccount| match account {
            _ if configured.accounts.contains_key(account) => false,
            AccountKey::User { .. } => {
                known.limits.as_deref() != Some(configured.limits_of(account))
            }
            AccountKey::Agent(_) | AccountKey::Cluster => true,
        };
        let others = self.0.iter().filter(|(account, known)| is_late(account, known));
        let others = others.map(|(account, _)| account.clone());
        configured.accounts.keys().cloned().chain(others).collect()
    }

    /// Whether calls that go by this view need the same limits of this account as by a new one. So an account that
    /// begins with what each user has does not copy the view, which may have thousands of users.
    pub(super) fn is_shown(&self, account: &AccountKey, view: &AccountsView) -> bool {
        let shown = view.limits_of(account);
        self.0.get(account).is_some_and(|known| shown == Some(&known.as_limits()))
    }

    /// What calls go by. An account that was not born yet has what the configuration says.
    pub(super) fn view(&self, configured: &ConfiguredBudgets) -> AccountsView {
        let born = self.0.iter().map(|(account, known)| (account.clone(), known.as_limits()));
        let mut accounts: BTreeMap<AccountKey, AccountLimits> = born.collect();
        for account in configured.accounts.keys() {
            let limits = || configured.known_of(account);
            accounts.entry(account.clone()).or_insert_with(limits);
        }
        let each_user = AccountLimits::of(&configured.each_user, false);
        AccountsView {
            accounts,
            each_user: Some(each_user).filter(|limits| !limits.limits.is_empty()),
        }
    }
}

// === impl KnownAccount ===

impl KnownAccount {
    fn as_limits(&self) -> AccountLimits {
        match &self.limits {
            Some(limits) => AccountLimits::of(limits, self.is_default),
            // Never "no limit": the account says which of them it does not have.
            None => AccountLimits { limits: any_limit(), ..AccountLimits::default() },
        }
    }
}

/// Every limit that an account can have.
fn any_limit() -> Vec<LimitKey> {
    let keys_of_unit =
        |unit| WindowLength::ALL.into_iter().map(move |window| LimitKey { unit, window });
    BudgetUnit::ALL
        .into_iter()
        .flat_map(keys_of_unit)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect()
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Timestamp,
        budget::{BudgetInput, CountedLanes},
        lane::Lane,
    };

    use super::*;

    const DAILY: BudgetLimit = BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, 5_000_000);
    const LOOPS: BudgetLimit = BudgetLimit::new(BudgetUnit::Loops, WindowLength::Hour, 50);

    fn view(account: &str, limits: &[BudgetLimit], version: u64) -> BudgetView {
        let (account, limits) = (account.parse().unwrap(), limits.to_vec());
        BudgetView { account, limits, is_default: false, by_person: false, version, begun: None }
    }

    fn configured() -> ConfiguredBudgets {
        ConfiguredBudgets {
            accounts: BTreeMap::from([(AccountKey::Cluster, vec![DAILY])]),
            each_user: vec![LOOPS],
            is_default: true,
        }
    }

    #[test]
    fn a_view_goes_forward_only_and_what_is_read_goes_before_the_configuration() {
        let (mut known, configured) = (KnownAccounts::default(), configured());
        let ada = "user:web:bot:ada".parse().unwrap();
        let agent = "research".parse().unwrap();
        let keys = |known: &KnownAccounts| {
            let view = known.view(&configured);
            let found = view.of_call(&agent, &ada, Lane::Interactive);
            found
                .into_iter()
                .map(|(key, known)| (key.to_string(), known.limits.len()))
                .collect::<Vec<_>>()
        };
        let limits = |all: &[(&str, usize)]| {
            all.iter().map(|(key, count)| ((*key).to_owned(), *count)).collect::<Vec<_>>()
        };
        assert_eq!(keys(&known), limits(&[("cluster", 1), ("user:web:bot:ada", 1)]));
        assert!(known.view(&configured).accounts[&AccountKey::Cluster].is_default);
        assert!(known.take(view("cluster", &[DAILY, LOOPS], 7)));
        assert!(known.take(view("agent:research", &[DAILY], 3)));
        assert!(known.take(view("user:web:bot:ada", &[], 4)));
        assert!(!known.take(view("cluster", &[], 6)), "it is older");
        assert!(!known.take(view("cluster", &[DAILY, LOOPS], 7)), "it is the same");
        assert_eq!(keys(&known), limits(&[("agent:research", 1), ("cluster", 2)]));
        assert_eq!(known.set_by_person(&AccountKey::Cluster), None);
        let set = BudgetView { by_person: true, ..view("cluster", &[], 8) };
        assert!(known.take(set));
        assert_eq!(known.set_by_person(&AccountKey::Cluster), Some(vec![]), "no limit is one, too");
        assert_eq!(keys(&known), limits(&[("agent:research", 1)]));
    }

    #[test]
    fn a_limit_of_the_background_holds_up_no_other_lane() {
        let mut known = KnownAccounts::default();
        known.take(view("cluster", &[BudgetLimit { lanes: CountedLanes::Background, ..LOOPS }], 1));
        let view = known.view(&ConfiguredBudgets::default());
        let (agent, ada) = ("a".parse().unwrap(), "user:web:bot:ada".parse().unwrap());
        for (lane, limits) in [(Lane::System, 0), (Lane::Interactive, 0), (Lane::Background, 1)] {
            let found = view.of_call(&agent, &ada, lane);
            assert_eq!(found.len(), limits, "{lane:?}");
            let named = found.iter().flat_map(|(_, known)| known.of_lane(lane));
            assert_eq!(named.collect::<Vec<_>>(), vec![LOOPS.key; limits], "{lane:?}");
        }
        // What cannot be read may count every call.
        assert!(known.take_unreadable("agent:a".parse().unwrap()));
        let view = known.view(&ConfiguredBudgets::default());
        assert_eq!(view.of_call(&agent, &ada, Lane::Interactive).len(), 1);
    }

    #[test]
    fn a_limit_of_an_account_that_began_again_is_known_however_often_the_old_one_was_set() {
        let mut known = KnownAccounts::default();
        let at = |begun, limits: &[BudgetLimit], version| BudgetView {
            begun: Some(Timestamp(begun)),
            ..view("cluster", limits, version)
        };
        assert!(known.take(at(1, &[DAILY], 90)));
        // It is not even heard that the old one is gone.
        assert!(known.take(at(2, &[LOOPS], 2)));
        let keys = |known: &KnownAccounts| {
            let view = known.view(&ConfiguredBudgets::default());
            view.accounts.get(&AccountKey::Cluster).map(|limits| limits.limits.clone())
        };
        assert_eq!(keys(&known), Some(vec![LOOPS.key]));
        assert!(!known.take(at(1, &[DAILY], 91)), "its last owner comes late");
        // Until it begins again it has what the configuration says.
        assert!(!known.forget(&budget_key("agent:a".parse::<AccountKey>().unwrap().entity())));
        assert!(known.forget(&budget_key(AccountKey::Cluster.entity())));
        assert_eq!(keys(&known), None);
        assert!(known.view(&configured()).accounts[&AccountKey::Cluster].is_default);
        assert!(known.take(view("cluster", &[DAILY], 1)), "from an owner of any build");
    }

    #[test]
    fn what_cannot_be_read_is_never_taken_as_no_limit() {
        let (mut known, none) = (KnownAccounts::default(), ConfiguredBudgets::default());
        assert!(known.take_unreadable(AccountKey::Cluster));
        assert_eq!(known.view(&none).accounts[&AccountKey::Cluster].limits.len(), 12);
        assert!(known.take(view("cluster", &[DAILY], 1)), "it can be read again");
        assert!(!known.take_unreadable(AccountKey::Cluster));
        assert_eq!(known.view(&none).accounts[&AccountKey::Cluster].limits, [DAILY.key]);
    }

    #[test]
    fn a_user_with_what_each_user_has_changes_nothing_for_calls() {
        let (mut known, configured) = (KnownAccounts::default(), configured());
        let shown = known.view(&configured);
        let ada: AccountKey = "user:web:bot:ada".parse().unwrap();
        let agent: AccountKey = "agent:research".parse().unwrap();
        known.take(view("user:web:bot:ada", &[LOOPS], 1));
        assert!(known.is_shown(&ada, &shown));
        // Not the same limits, and not an account of a user.
        known.take(view("user:web:bot:ada", &[DAILY], 2));
        assert!(!known.is_shown(&ada, &shown));
        known.take(view("agent:research", &[LOOPS], 1));
        assert!(!known.is_shown(&agent, &shown), "only users have these");
        // What a person sets goes before what each user has, also if that is no limit.
        known.take(view("user:web:bot:ada", &[], 3));
        assert!(!known.is_shown(&ada, &shown));
        let shown = known.view(&configured);
        assert!(known.is_shown(&ada, &shown) && known.is_shown(&agent, &shown));
        known.take(view("user:web:bot:ada", &[LOOPS], 4));
        assert!(!known.is_shown(&ada, &shown), "the view has another one of theirs");
    }

    #[test]
    fn accounts_hear_of_limits_that_were_taken_away() {
        let mut known = KnownAccounts::default();
        known.take(view("agent:old", &[DAILY], 1));
        known.take(view("user:web:bot:ada", &[LOOPS], 1));
        known.take(view("user:web:bot:bob", &[DAILY], 1));
        let all: Vec<String> =
            known.hearers(&configured()).iter().map(ToString::to_string).collect();
        assert_eq!(all, ["cluster", "agent:old", "user:web:bot:bob"]);
        let input_of = |key: &str| match configured().input_for(&key.parse().unwrap()) {
            BudgetInput::Set { source, limits, .. } => (format!("{source:?}"), limits.unwrap()),
            other => panic!("{other:?}"),
        };
        assert_eq!(input_of("cluster"), ("BuiltIn".to_owned(), vec![DAILY]));
        assert_eq!(input_of("agent:old"), ("Configured".to_owned(), vec![]));
        assert_eq!(input_of("user:web:bot:bob"), ("Configured".to_owned(), vec![LOOPS]));
    }
}
