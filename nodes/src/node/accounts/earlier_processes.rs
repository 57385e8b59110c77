//! What earlier processes of a node that runs alone have of accounts.
//!
//! The lock on its data directory proves that they are gone. So no person has to say so, and a node that is killed again and
//! again does not fill its budgets with what its calls could have cost.

use std::{collections::BTreeSet, time::Duration};

use clawnode_budget::holder::{unjournaled, unmark};
use clawnode_gateway::HandlerResult;
use clawnode_kernel::EntityError;
use clawnode_proto::{ErrorCode, ProcessId, budget::AccountKey};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};

use super::{budget_answers::BudgetAnswers, dead_slices, slice_owners::PeerState};

/// Accounts that are given something back at one start: of each, journals of sessions are read.
const ACCOUNTS_MOST: usize = 64;
/// How often it is tried, and after which wait again: the store may not answer, and a change waits for a worker.
const TRIES: (usize, Duration) = (3, Duration::from_secs(5));

impl BudgetAnswers {
    /// Gives back, in the background and until the node stops, what earlier processes have of accounts, if no other
    /// process can be alive.
    pub fn reconcile_earlier(&self, stop: CancellationToken) {
        if !self.peers.is_alone() {
            return;
        }
        let budgets = self.clone();
        // Detached: it ends with the node, or by itself.
        drop(tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = budgets.try_close_earlier() => {}
            }
        }));
    }

    async fn try_close_earlier(&self) {
        let mut tries = 0;
        let failure = loop {
            tries += 1;
            match self.close_earlier().await {
                Ok(()) => return,
                Err(failure) if failure.code == ErrorCode::Unavailable && tries < TRIES.0 => {
                    debug!(failure = failure.message, "cannot give back now; trying again");
                    tokio::time::sleep(TRIES.1).await;
                }
                Err(failure) => break failure.message,
            }
        };
        warn!(
            failure,
            "earlier processes of this node keep their parts of budgets; see `clawnode status`"
        );
    }

    async fn close_earlier(&self) -> HandlerResult<()> {
        let bucket = &*self.storage().bucket;
        let marked = unjournaled(bucket).await.map_err(EntityError::from)?;
        let (mut kept, mut accounts) = (BTreeSet::new(), 0_usize);
        for key in self.keys().await? {
            let account = match self.load(&key).await {
                Ok(Some(account)) => account,
                Ok(None) => continue,
                Err(failure) if failure.code == ErrorCode::Unavailable => return Err(failure),
                // One account that is out of service does not hold up the others. Whose parts it has is not known.
                Err(failure) => {
                    let (account, failure) = (key.to_string(), failure.message);
                    warn!(account, failure, "cannot give back to a budget");
                    kept.extend(&marked);
                    continue;
                }
            };
            let dead = |process: &ProcessId| self.peers.state(*process) == PeerState::Dead;
            let holders = dead_slices::with_parts(&account.state).into_iter().filter(dead);
            // What a person knows of their other calls, nothing here does.
            let is_shown =
                |process: &ProcessId| key != AccountKey::Cluster || !marked.contains(process);
            let (gone, others): (Vec<_>, Vec<_>) = holders.partition(is_shown);
            kept.extend(others);
            if gone.is_empty() {
                continue;
            }
            if accounts == ACCOUNTS_MOST {
                kept.extend(gone);
                continue;
            }
            accounts += 1;
            let done = self.close_all(&key, &account.state, &gone).await?;
            let (account, slices) = (key.to_string(), done.closed.len());
            info!(account, slices, "what earlier processes of this node did not spend is back");
        }
        for process in marked.difference(&kept).filter(|process| **process != self.peers.process())
        {
            unmark(bucket, *process).await.map_err(EntityError::from)?;
        }
        Ok(())
    }
}
