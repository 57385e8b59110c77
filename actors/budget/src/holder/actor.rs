//! The tasks around a holder: what it says reaches accounts, and it knows which accounts there are.

use std::{collections::BTreeSet, future::Future, sync::Arc, time::Duration};

use clawnode_cluster::{Backoff, Bucket, BucketEntry, Clock, Storage, StoreError};
use clawnode_proto::{
    IdempotencyKey,
    budget::{AccountKey, BudgetInput, BudgetView},
    codec,
    subject::BUDGET_KEYS,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{debug, error, warn};

use super::{HolderHandle, HolderInput};
use crate::account::Budget;

/// How often the holder looks at the time while a call waits or a slice is out. Calls wait for at least a
/// minute before they end, and an account gets 4 inputs a second at most.
const TICK: Duration = Duration::from_millis(250);
/// Messages on their way to inboxes at the same time. Others wait in the holder.
const SENDS_MOST: usize = 64;
/// How long a store may take for a message. Then it may be there, and what it says is said again.
const STORED_WITHIN: Duration = Duration::from_secs(10);
/// The first and the longest wait before a store that failed is tried again.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How often all limits are read, although changes are heard: a change that was missed is seen then.
const LOOK_EVERY: Duration = Duration::from_secs(30);

/// The tasks of a process that spends. Cheap to clone.
#[derive(Clone, Debug)]
pub struct HolderTasks {
    /// The holder of the process.
    pub holder: HolderHandle,
    /// Where accounts are.
    pub storage: Storage,
    /// The clock for what is sent.
    pub clock: Arc<dyn Clock>,
}

/// What is always to be read of an account's limits.
#[derive(Deserialize)]
struct WhoseLimits {
    account: AccountKey,
}

/// Reads which accounts there are. A process that spends has read it before it takes work.
pub async fn read(holder: &HolderHandle, bucket: &dyn Bucket) -> Result<(), StoreError> {
    for (key, entry) in bucket.list(BUDGET_KEYS).await? {
        heard(holder, &key, &entry);
    }
    Ok(())
}

/// What cannot be read is not "no limit".
fn heard(holder: &HolderHandle, key: &str, entry: &BucketEntry) {
    match codec::decode::<BudgetView>(&entry.value) {
        Ok(view) => holder.knows(view),
        Err(failure) => {
            debug!(key, %failure, "the limits of a budget are not readable");
            let whose = codec::decode::<WhoseLimits>(&entry.value).ok();
            holder.cannot_read(whose.map(|known| known.account), key);
        }
    }
}

// === impl HolderTasks ===

impl HolderTasks {
    /// Puts what the holder says into the inboxes of accounts, and lets it know the time while it waits.
    /// Never ends by itself.
    pub async fn send(self) {
        let mut sending = FuturesUnordered::new();
        let mut in_hand = BTreeSet::new();
        let mut away = Backoff::new(AGAIN.0, AGAIN.1);
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            for (account, number, body) in self.holder.outbox() {
                if sending.len() < SENDS_MOST && in_hand.insert(account.clone()) {
                    sending.push(self.deliver(account, number, body, away));
                }
            }
            let sleeps = self.holder.sleeps();
            tokio::select! {
                Some((account, number, stored)) = sending.next(), if !sending.is_empty() => {
                    if stored {
                        away = Backoff::new(AGAIN.0, AGAIN.1);
                    } else {
                        // The next wait is longer; this one is over.
                        let _over = away.next(&mut rand::rng());
                    }
                    in_hand.remove(&account);
                    self.holder.sent(&account, number, stored);
                }
                () = self.holder.woken() => {}
                _ = ticks.tick(), if !sleeps => self.holder.hears(HolderInput::Tick),
            }
        }
    }

    /// One message. If the store fails, it is said only after a while, so that the next one comes later.
    async fn deliver(
        &self,
        account: AccountKey,
        number: u64,
        body: BudgetInput,
        mut away: Backoff,
    ) -> (AccountKey, u64, bool) {
        let deliver = async {
            // An account that was never set answers no process.
            if let Some(birth) = self.holder.birth_of(&account) {
                self.put(&account, self.holder.numbers(), &birth).await?;
            }
            self.put(&account, number, &body).await
        };
        let failure = match timeout(STORED_WITHIN, deliver).await {
            Ok(Ok(())) => return (account, number, true),
            Ok(Err(failure)) => failure,
            Err(_elapsed) => "no answer in time".to_owned(),
        };
        warn!(%account, failure, "cannot reach a budget; trying again");
        let wait = away.next(&mut rand::rng());
        sleep(wait).await;
        (account, number, false)
    }

    async fn put(
        &self,
        account: &AccountKey,
        number: u64,
        body: &BudgetInput,
    ) -> Result<(), String> {
        let name = IdempotencyKey::of_process(self.holder.process(), number);
        let input = Budget::input(account, name, self.clock.now(), body);
        let input = input.map_err(|failure| failure.to_string())?;
        let put = self.storage.inbox.put(&input).await;
        put.map(drop).map_err(|failure| failure.to_string())
    }

    /// Keeps the view of accounts like the bucket, until the store is closed.
    pub async fn follow(self) {
        let bucket = self.storage.bucket.as_ref();
        let mut changes = match bucket.watch(BUDGET_KEYS).await {
            Ok(changes) => changes,
            Err(failure) => {
                warn!(%failure, "cannot follow the limits of budgets; trying again");
                // This task starts again soon. What it can read until then is known.
                if let Err(failure) = read(&self.holder, bucket).await {
                    debug!(%failure, "cannot read the limits of budgets either");
                }
                return;
            }
        };
        let mut looks = interval(LOOK_EVERY);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                change = changes.next() => match change {
                    Some(change) => {
                        // Only an account that is deleted removes them: one without limits says so.
                        match &change.entry {
                            Some(entry) => heard(&self.holder, &change.key, entry),
                            None => self.holder.forgets(&change.key),
                        }
                    }
                    None => return,
                },
                _ = looks.tick() => {
                    if let Err(failure) = read(&self.holder, bucket).await {
                        warn!(%failure, "cannot read the limits of budgets; the last known are in force");
                    }
                }
            }
        }
    }

    /// Tells accounts what the configuration says, at the start and whenever it has changed. Never ends by
    /// itself.
    pub async fn announce(self) {
        let mut configurations = self.holder.configurations();
        loop {
            configurations.mark_unchanged();
            let configured = self.holder.configured();
            for account in self.holder.hearers() {
                let number = self.holder.numbers();
                let body = configured.input_for(&account);
                let put = || self.put(&account, number, &body);
                until_stored(&account, put).await;
            }
            // The handle has the sender.
            if configurations.changed().await.is_err() {
                return;
            }
        }
    }
}

/// The same message again and again, until it is stored.
async fn until_stored<F>(account: &AccountKey, put: impl Fn() -> F)
where
    F: Future<Output = Result<(), String>>,
{
    let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
    loop {
        match timeout(STORED_WITHIN, put()).await {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => warn!(%account, failure, "cannot set a configured budget now"),
            Err(_elapsed) => {
                error!(%account, "the store does not take a configured budget in time");
            }
        }
        let wait = backoff.next(&mut rand::rng());
        sleep(wait).await;
    }
}
