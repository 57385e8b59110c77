//! Upkeep: removes containers that are done, and keeps recently used kinds ready.

use std::time::Duration;

use futures_util::{StreamExt, future::BoxFuture, stream};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::{debug, info, warn};

use super::service::{Docker, Inner};

/// How often the engine is searched for containers that are not needed: how long containers of dead
/// processes stay.
const SWEEP_EVERY: Duration = Duration::from_secs(10);
/// Containers that are removed at a time.
const AT_ONCE: usize = 4;
/// How long the last clearing may take.
const CLOSE_WAIT: Duration = Duration::from_secs(20);

// === impl Docker ===

impl Docker {
    /// Keeps order; ends never.
    pub fn keep(self) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let inner = &self.0;
            let mut rounds = interval(SWEEP_EVERY);
            rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut may_make = true;
            loop {
                tokio::select! {
                    _ = rounds.tick() => {
                        inner.sweep().await;
                        may_make = true;
                    }
                    () = inner.wake.notified() => {}
                }
                inner.remove_done().await;
                if may_make {
                    // What cannot be made now is not tried again and again.
                    may_make = self.refill().await;
                }
            }
        })
    }

    /// Makes containers of kinds that were used lately, one after another; whether it could.
    async fn refill(&self) -> bool {
        let inner = &self.0;
        loop {
            let wanted = inner.shelf().wanted(&inner.options, Instant::now());
            let Some(policy) = wanted else { return true };
            let made = inner.make(&policy, None).await;
            match made {
                Ok(lease) => {
                    if let Some(container) = lease.into_container() {
                        inner.shelf().put(&policy, container);
                    }
                }
                Err(error) => {
                    // A call of this kind says it to who can do something about it.
                    debug!(%error, "cannot prepare a container");
                    return false;
                }
            }
        }
    }

    /// Removes all containers of this process; nothing is made after it.
    pub fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let inner = &self.0;
            inner.shelf().close();
            let close = async {
                inner.remove_done().await;
                match inner.engine.list(&inner.owner).await {
                    Ok(found) => {
                        let own = found
                            .into_iter()
                            .filter(|container| container.process == Some(inner.owner.process()));
                        let own: Vec<String> = own.map(|container| container.id).collect();
                        inner.remove(own).await;
                    }
                    Err(error) => debug!(%error, "the Docker engine ended before its containers"),
                }
            };
            if timeout(CLOSE_WAIT, close).await.is_err() {
                warn!(
                    "some containers are left; the next process of this cluster here removes them"
                );
            }
        })
    }
}

// === impl Inner ===

impl Inner {
    /// Finds containers that are no longer needed.
    async fn sweep(&self) {
        let listed = self.engine.list(&self.owner).await;
        self.heard(&listed);
        let found = match listed {
            Ok(found) => found,
            Err(error) => {
                debug!(%error, "cannot list containers");
                return;
            }
        };
        let me = self.owner.process();
        let mut known = self.shelf();
        known.let_go(self.options.warm_idle, Instant::now());
        let before = known.doomed().len();
        known.judge(
            found,
            |container| container.process == Some(me),
            |container| container.process.is_none_or(|process| (self.is_dead)(process)),
        );
        let count = known.doomed().len() - before;
        if count > 0 {
            info!(count, "unneeded containers are removed");
        }
    }

    /// Removes containers that are done.
    async fn remove_done(&self) {
        let doomed = self.shelf().doomed();
        self.remove(doomed).await;
    }

    async fn remove(&self, ids: Vec<String>) {
        let remove = |id: String| async move {
            match self.engine.remove(&id).await {
                Ok(()) => self.shelf().removed(&id),
                Err(error) => debug!(%error, "cannot remove a container now; trying again later"),
            }
        };
        stream::iter(ids).for_each_concurrent(AT_ONCE, remove).await;
    }
}
