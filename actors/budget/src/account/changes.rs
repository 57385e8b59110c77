//! Who changed an account: the last few changes, as people see them.

use clawnode_proto::{
    Timestamp,
    budget::{AccountChange, BudgetEvent, ChangeKind, LimitSource},
};

use super::BudgetState;

/// Changes that are kept. The journal has all of them.
pub const CHANGES_MOST: usize = 8;

impl BudgetState {
    /// Keeps what this event changed, if it is a decision.
    pub(super) fn note_change(&mut self, at: Timestamp, event: &BudgetEvent) {
        let (by, what) = match event {
            BudgetEvent::Set(set) => {
                let limits = set.limits.clone().map(|limits| ChangeKind::Set { limits });
                (set.source.clone(), limits.unwrap_or(ChangeKind::Reset))
            }
            BudgetEvent::Allowed(allowed) => {
                let by = LimitSource::Person { name: allowed.by.clone() };
                (by, ChangeKind::Allowed { limit: allowed.limit })
            }
            BudgetEvent::Granted(_)
            | BudgetEvent::Warned(_)
            | BudgetEvent::Asked(_)
            | BudgetEvent::Over(_)
            | BudgetEvent::Window(_) => return,
        };
        self.changes.push(AccountChange { at, by, what });
        let older = self.changes.len().saturating_sub(CHANGES_MOST);
        self.changes.drain(..older);
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::budget::{
        BudgetAllowed, BudgetLimit, BudgetSet, BudgetUnit, LimitKey, WindowLength, WindowNumber,
    };

    use super::*;

    #[test]
    fn the_last_changes_are_kept_with_their_authors() {
        let mut state = BudgetState::default();
        let source = LimitSource::Person { name: "ada".to_owned() };
        let limit = |amount| BudgetLimit::new(BudgetUnit::Usd, WindowLength::Day, amount);
        for amount in 0..10 {
            let limits = Some(vec![limit(amount)]);
            let set = BudgetSet { source: source.clone(), limits, decides: None };
            state.note_change(Timestamp(amount), &set.into());
        }
        let limit = LimitKey { unit: BudgetUnit::Usd, window: WindowLength::Day };
        let allowed = BudgetAllowed { by: "bob".to_owned(), limit, window: WindowNumber(0) };
        state.note_change(Timestamp(10), &allowed.into());
        state.note_change(Timestamp(11), &BudgetSet { source, limits: None, decides: None }.into());
        assert_eq!(state.changes.len(), CHANGES_MOST);
        let kinds: Vec<_> =
            state.changes.iter().rev().map(|change| (change.at.0, &change.what)).collect();
        assert_eq!(kinds[0], (11, &ChangeKind::Reset));
        assert_eq!(kinds[1], (10, &ChangeKind::Allowed { limit }));
        assert_eq!(state.changes[0].at, Timestamp(4), "the oldest are gone");
    }
}
