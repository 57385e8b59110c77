//! The limits of an account: what a person decides, and beside that what the configuration says.

use std::collections::BTreeSet;

use clawnode_proto::budget::{
    AccountKey, BudgetEvent, BudgetLimit, BudgetSet, BudgetUnit, BudgetView, LimitKey, LimitSource,
    check_limits,
};

use super::{
    BudgetState, LimitBook,
    state::{DecidedLimits, UnrecordedChange},
};

impl BudgetState {
    /// The limits in force.
    pub fn limits(&self) -> &[BudgetLimit] {
        self.set.as_ref().unwrap_or(&self.configured)
    }

    /// Whether a person set them, or some of them.
    pub const fn is_set_by_person(&self) -> bool {
        self.set.is_some()
    }

    /// Whether a person decides on this limit: they set it or took it away, or said that there are no others than
    /// theirs.
    pub fn is_decided_by_person(&self, key: LimitKey) -> bool {
        let decided = self.decided.as_ref();
        self.is_set_by_person() && decided.is_none_or(|decided| decided.keys.contains(&key))
    }

    /// Whether what the configuration says is the built-in default.
    pub const fn is_built_in(&self) -> bool {
        self.is_default
    }

    /// On which limits a person decides who names these now. Nothing if they decide on all.
    pub fn decides_also(&self, named: impl IntoIterator<Item = LimitKey>) -> Option<Vec<LimitKey>> {
        let mut keys: BTreeSet<LimitKey> = named.into_iter().collect();
        if self.is_set_by_person() {
            keys.extend(&self.decided.as_ref()?.keys);
        }
        Some(keys.into_iter().collect())
    }

    /// Its limits, for all processes.
    pub(crate) fn view(&self, account: AccountKey) -> BudgetView {
        let (by_person, limits) = (self.set.is_some(), self.limits().to_vec());
        let is_persons = |limit: &BudgetLimit| {
            limit.key.unit == BudgetUnit::Usd && self.is_decided_by_person(limit.key)
        };
        let is_default = self.is_default && !limits.iter().any(is_persons);
        let (version, begun) = (self.changed, self.begun);
        BudgetView { account, limits, is_default, by_person, version, begun }
    }

    /// Nothing of it is taken if it cannot be, or changes nothing.
    pub(super) fn wants_limits(&mut self, wanted: BudgetSet) {
        let BudgetSet { source, limits, decides } = wanted;
        let now = match source {
            LimitSource::Configured => Some(&self.configured).filter(|_| !self.is_default),
            LimitSource::BuiltIn => Some(&self.configured).filter(|_| self.is_default),
            LimitSource::Person { .. } => self.set.as_ref(),
        };
        let sorted = limits.map(|mut limits| {
            limits.sort_by_key(|limit| limit.key);
            limits
        });
        let may_decide = matches!(source, LimitSource::Person { .. }) && sorted.is_some();
        let decides = decides.filter(|_| may_decide).map(|keys| {
            let keys: BTreeSet<LimitKey> = keys.into_iter().collect();
            keys.into_iter().collect::<Vec<_>>()
        });
        let earlier = self.decided.as_ref().filter(|_| may_decide).map(|decided| &decided.keys);
        // What is not recorded yet may change it before.
        let is_new =
            !self.wanted.is_empty() || now != sorted.as_ref() || earlier != decides.as_ref();
        if is_new && check_limits(sorted.as_deref().unwrap_or_default()).is_ok() {
            let set = UnrecordedChange::Set(BudgetSet { source, limits: sorted, decides });
            // All nodes of a cluster say at once what their configuration has.
            if self.wanted.last() != Some(&set) {
                self.wanted.push(set);
            }
        }
    }

    pub(super) fn is_set(&mut self, set: &BudgetSet) {
        self.recorded(|one| matches!(one, UnrecordedChange::Set(wanted) if wanted == set));
        let BudgetSet { source, limits, decides } = set;
        match source {
            LimitSource::Configured | LimitSource::BuiltIn => {
                self.configured = limits.clone().unwrap_or_default();
                self.is_default = *source == LimitSource::BuiltIn;
            }
            LimitSource::Person { .. } => {
                self.set.clone_from(limits);
                let decided = |keys| DecidedLimits { by: source.clone(), keys };
                self.decided = decides.clone().map(decided);
            }
        }
        self.changed = self.n;
        let limits = self.limits().to_vec();
        for book in &mut self.books {
            book.set(limits.iter().find(|limit| limit.key == book.key).copied());
        }
        for limit in limits {
            if self.book(limit.key).is_none() {
                self.books.push(LimitBook::new(limit, self.now));
            }
        }
        self.books.retain(|book| !book.is_over());
        self.books.sort_by_key(|book| book.key);
        // Who has a slice of a limit that is gone may give it back.
        self.touch_all();
    }

    /// What is recorded if the limits that a person left to the configuration are not as it has them: all limits in
    /// force, in their name, as builds read it that know of no such limits.
    pub(super) fn follows_configuration(&self) -> Option<BudgetSet> {
        let (set, DecidedLimits { by, keys }) = (self.set.as_ref()?, self.decided.as_ref()?);
        let own = set.iter().filter(|limit| keys.contains(&limit.key));
        let others = self.configured.iter().filter(|limit| !keys.contains(&limit.key));
        let mut limits: Vec<BudgetLimit> = own.chain(others).copied().collect();
        limits.sort_by_key(|limit| limit.key);
        let (source, decides) = (by.clone(), Some(keys.clone()));
        (limits != *set).then_some(BudgetSet { source, limits: Some(limits), decides })
    }

    /// Whether this event only says what follows from a change of the configuration.
    pub(super) fn only_follows(&self, event: &BudgetEvent) -> bool {
        match event {
            BudgetEvent::Set(set) => {
                self.wanted.is_empty() && self.follows_configuration().as_ref() == Some(set)
            }
            BudgetEvent::Allowed(_)
            | BudgetEvent::Granted(_)
            | BudgetEvent::Warned(_)
            | BudgetEvent::Asked(_)
            | BudgetEvent::Over(_)
            | BudgetEvent::Window(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{
        Timestamp,
        budget::{BudgetInput, WindowLength},
    };

    use super::*;

    const DAILY: BudgetLimit = BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, 5_000_000);
    const MONTHLY: BudgetLimit = BudgetLimit::new(BudgetUnit::Usd, WindowLength::Month, 9_000_000);
    const LOOPS: BudgetLimit = BudgetLimit::new(BudgetUnit::Loops, WindowLength::Hour, 50);
    const TOKENS: BudgetLimit = BudgetLimit::new(BudgetUnit::Tokens, WindowLength::Day, 1_000);

    /// Takes an input as the owner of the account does.
    fn send(state: &mut BudgetState, input: BudgetInput) {
        state.accept(state.n + 1, Timestamp(0), input);
        while let Some(event) = state.next() {
            state.n += 1;
            let follows = state.only_follows(&event);
            state.fold(&event).unwrap();
            if !follows {
                state.note_change(Timestamp(0), &event);
            }
        }
    }

    fn configured(state: &mut BudgetState, source: LimitSource, limits: &[BudgetLimit]) {
        let limits = Some(limits.to_vec());
        send(state, BudgetInput::Set { source, limits, decides: None });
    }

    /// A person sets this limit, or takes it away, and leaves the others as they are.
    fn sets(state: &mut BudgetState, key: LimitKey, limit: Option<BudgetLimit>) {
        let source = LimitSource::Person { name: "ada".to_owned() };
        let others = state.limits().iter().filter(|limit| limit.key != key).copied();
        let limits = Some(others.chain(limit).collect());
        let decides = state.decides_also([key]);
        send(state, BudgetInput::Set { source, limits, decides });
    }

    fn is_default(state: &BudgetState) -> bool {
        state.view(AccountKey::Cluster).is_default
    }

    #[test]
    fn what_a_person_does_not_name_stays_what_the_configuration_says() {
        let mut state = BudgetState::default();
        configured(&mut state, LimitSource::BuiltIn, &[DAILY, LOOPS]);
        sets(&mut state, TOKENS.key, Some(TOKENS));
        assert_eq!(state.limits(), [DAILY, TOKENS, LOOPS]);
        assert!(is_default(&state), "no person set a limit in money");
        let decided = [DAILY, TOKENS, LOOPS].map(|limit| state.is_decided_by_person(limit.key));
        assert_eq!(decided, [false, true, false]);
        // The configuration changes, and then has no limit at all.
        let dearer = BudgetLimit { amount: 7_000_000, ..DAILY };
        configured(&mut state, LimitSource::Configured, &[dearer, MONTHLY]);
        assert_eq!(state.limits(), [dearer, MONTHLY, TOKENS]);
        assert!(!is_default(&state));
        configured(&mut state, LimitSource::Configured, &[]);
        assert_eq!(state.limits(), [TOKENS]);
        assert_eq!(state.changes.len(), 4, "what follows is no change of a person");
        let source = LimitSource::Person { name: "bob".to_owned() };
        send(&mut state, BudgetInput::Set { source, limits: None, decides: None });
        assert_eq!(state.limits(), []);
    }

    #[test]
    fn what_nodes_say_at_once_is_one_change() {
        let mut state = BudgetState::default();
        let says = |limits: &[BudgetLimit]| {
            let limits = Some(limits.to_vec());
            BudgetInput::Set { source: LimitSource::Configured, limits, decides: None }
        };
        for n in 1..=3 {
            state.accept(n, Timestamp(0), says(&[DAILY]));
        }
        state.accept(4, Timestamp(0), says(&[MONTHLY]));
        configured(&mut state, LimitSource::Configured, &[DAILY]);
        assert_eq!(state.changes.len(), 3, "{:?}", state.changes);
        assert_eq!(state.limits(), [DAILY], "the last one wins");
    }

    #[test]
    fn what_a_person_set_or_took_away_wins_until_it_is_reset() {
        let mut state = BudgetState::default();
        configured(&mut state, LimitSource::BuiltIn, &[DAILY, LOOPS]);
        let own = BudgetLimit { amount: 1_000_000, ..DAILY };
        sets(&mut state, DAILY.key, Some(own));
        assert!(!is_default(&state), "that limit in money is a person's");
        sets(&mut state, LOOPS.key, None);
        assert_eq!(state.limits(), [own]);
        configured(&mut state, LimitSource::Configured, &[DAILY, LOOPS, TOKENS]);
        assert_eq!(state.limits(), [own, TOKENS]);
        // Who sets all leaves nothing to the configuration, and so do those who change that.
        let source = LimitSource::Person { name: "bob".to_owned() };
        let limits = Some(vec![own]);
        send(&mut state, BudgetInput::Set { source, limits, decides: None });
        assert_eq!((state.limits(), state.decides_also([LOOPS.key])), (&[own][..], None));
        let source = LimitSource::Person { name: "bob".to_owned() };
        send(&mut state, BudgetInput::Set { source, limits: None, decides: None });
        assert_eq!(state.limits(), [DAILY, TOKENS, LOOPS]);
    }
}
