//! Whether a summary is due, remembered until the session changes. Pure.
//!
//! Which effects are due is asked with each input and each tick, and the answer may take the whole next request. It is a
//! function of the state alone, so to remember it changes no decision. Whatever changes a state forgets it, and a copy of
//! a state does not have it.

use std::{fmt, sync::OnceLock};

use clawnode_proto::TurnId;

/// Whether the first call of the running turn waits for a summary, once that was found.
#[derive(Default)]
pub(in crate::session::turn) struct DueSummary(OnceLock<(TurnId, bool)>);

// === impl DueSummary ===

impl DueSummary {
    /// What is remembered of this turn, or else what `find` says.
    pub(in crate::session::turn) fn or_find(&self, turn: TurnId, find: impl Fn() -> bool) -> bool {
        let (known, is_due) = *self.0.get_or_init(|| (turn, find()));
        if known == turn { is_due } else { find() }
    }

    /// The state changes.
    pub(in crate::session::turn) fn forget(&mut self) {
        self.0 = OnceLock::new();
    }
}

impl Clone for DueSummary {
    /// A copy may be changed by other ways than events.
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// It says nothing that the rest of a state does not say.
impl PartialEq for DueSummary {
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl fmt::Debug for DueSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DueSummary")
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use clawnode_kernel::EntityKind as _;

    use super::*;
    use crate::session::{Session, SessionState};

    #[test]
    fn it_is_found_once_for_each_change() {
        let (one, other) = (TurnId::from_u128(1), TurnId::from_u128(2));
        let (found, is_due) = (Cell::new(0), Cell::new(false));
        let find = || {
            found.set(found.get() + 1);
            is_due.get()
        };
        let mut due = DueSummary::default();
        for _ in 0..3 {
            assert!(!due.or_find(one, find));
        }
        assert_eq!(found.get(), 1);
        is_due.set(true);
        assert!(due.clone().or_find(one, find), "a copy is another state");
        assert!(due.or_find(other, find), "another turn");
        assert!(!due.or_find(one, find));
        due.forget();
        assert!(due.or_find(one, find));
        assert_eq!(found.get(), 4);
    }

    #[test]
    fn what_changes_a_session_forgets_it() {
        let turn = TurnId::from_u128(1);
        let changes: [fn(&mut SessionState); 3] = [
            |state| Session::born(state, "main:web:a:ada").unwrap(),
            |state| Session::emitted(state, TurnId::from_u128(1)),
            |state| Session::deleted(state),
        ];
        for change in changes {
            let mut state = SessionState::default();
            assert!(!state.due_summary.or_find(turn, || false));
            change(&mut state);
            assert!(state.due_summary.or_find(turn, || true));
        }
    }
}
