//! How many turns the states of this thread's folds keep, if tests want fewer than the limit. Compiled for tests
//! only: folds take only events, so no argument can carry it.

use std::cell::Cell;

thread_local! {
    static FEW: Cell<Option<usize>> = const { Cell::new(None) };
}

/// While it lives, the folds of this thread keep few turns.
#[derive(Debug)]
pub struct FewKept(());

/// Lets the folds of this thread keep so many turns at most.
pub fn keep_few(turns: usize) -> FewKept {
    FEW.set(Some(turns));
    FewKept(())
}

/// How many turns the folds of this thread keep at most, if not the usual number.
pub fn few() -> Option<usize> {
    FEW.get()
}

impl Drop for FewKept {
    fn drop(&mut self) {
        FEW.set(None);
    }
}
