//! What is known of accounts without a wait: `status` and metrics must answer at once.

use std::{
    future::Future,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use clawnode_proto::{ErrorBody, budget::AccountView};
use tokio::time::{Instant, timeout};
use tracing::debug;

/// How old the views may be before accounts are read again.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// How long the very first look is waited for.
const FIRST_LOOK: Duration = Duration::from_millis(500);

/// The accounts as they were read last, and the running look.
#[derive(Clone, Debug, Default)]
pub(super) struct AccountScan(Arc<ScanState>);

#[derive(Debug, Default)]
struct ScanState {
    found: Mutex<Option<(Instant, Arc<[AccountView]>)>>,
    looking: AtomicBool,
    done: tokio::sync::Notify,
}

/// Lets another look begin, also if this one is dropped.
struct ScanRun(Arc<ScanState>);

impl Drop for ScanRun {
    fn drop(&mut self) {
        self.0.looking.store(false, Ordering::Release);
        self.0.done.notify_waiters();
    }
}

// === impl AccountScan ===

impl AccountScan {
    /// What is known now. If that is old, `read` begins in a task of its own.
    pub(super) fn known<F>(&self, read: impl FnOnce() -> F) -> Arc<[AccountView]>
    where
        F: Future<Output = Result<Vec<AccountView>, ErrorBody>> + Send + 'static,
    {
        let found = self.found();
        let is_new = found.as_ref().is_some_and(|(at, _)| at.elapsed() < LOOK_AGAIN);
        if !is_new && !self.0.looking.swap(true, Ordering::Acquire) {
            let (run, read) = (ScanRun(Arc::clone(&self.0)), read());
            // Detached: it ends by itself, and the caller may be gone before.
            drop(tokio::spawn(async move {
                match read.await {
                    Ok(views) => {
                        let mut found = run.0.found.lock().unwrap_or_else(PoisonError::into_inner);
                        *found = Some((Instant::now(), views.into()));
                    }
                    Err(failure) => debug!(failure = failure.message, "cannot read accounts now"),
                }
            }));
        }
        found.map(|(_, views)| views).unwrap_or_default()
    }

    /// The same; only the first look is waited for, and not for long.
    pub(super) async fn first<F>(&self, read: impl FnOnce() -> F) -> Arc<[AccountView]>
    where
        F: Future<Output = Result<Vec<AccountView>, ErrorBody>> + Send + 'static,
    {
        let done = self.0.done.notified();
        let known = self.known(read);
        if self.found().is_some() {
            return known;
        }
        if timeout(FIRST_LOOK, done).await.is_err() {
            debug!("accounts are still being read");
        }
        self.found().map(|(_, views)| views).unwrap_or_default()
    }

    fn found(&self) -> Option<(Instant, Arc<[AccountView]>)> {
        self.0.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::budget::LimitOrigin;

    use super::{super::test_account::key, *};

    fn view(name: &str) -> AccountView {
        let (set_by, set_at) = (None, None);
        let (limits, changes) = (Vec::new(), Vec::new());
        let (account, origin) = (key(name), LimitOrigin::Default);
        AccountView { account, origin, set_by, set_at, limits, changes }
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_is_waited_for_once_and_used_for_a_while() {
        let scan = AccountScan::default();
        let reads = |name: &'static str| move || async move { Ok(vec![view(name)]) };
        let found = scan.first(reads("cluster")).await;
        assert_eq!(found[0].account, key("cluster"));
        assert_eq!(scan.known(reads("agent:a"))[0].account, key("cluster"), "it is new");
        tokio::time::advance(LOOK_AGAIN).await;
        let done = scan.0.done.notified();
        assert_eq!(scan.known(reads("agent:a"))[0].account, key("cluster"), "no wait");
        done.await;
        assert_eq!(scan.known(reads("agent:b"))[0].account, key("agent:a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_delays_only_the_first() {
        let scan = AccountScan::default();
        let never = || std::future::pending::<Result<Vec<AccountView>, ErrorBody>>();
        assert!(scan.first(never).await.is_empty());
        assert!(scan.known(never).is_empty());
    }
}
