//! The operator of a stage with a limit in money: gives back what killed workers have of the account, allows what
//! it asks a person for, and holds what it says of its limit, and the counts of usage, against what is promised.

use std::{collections::BTreeSet, sync::atomic::Ordering, time::Duration};

use clawnode_cluster::{Clock as _, SystemClock};
use clawnode_proto::{
    ErrorCode, ProcessId,
    budget::{
        AccountKey, AccountView, BudgetAllowParams, BudgetParams, BudgetReconcileParams,
        ReconcileView,
    },
    usage::{Day, UsageAudit, UsageAuditParams},
};
use serde_json::json;

use super::{
    ChaosError,
    evidence::{Fault, Hits},
    script::Play,
    stage::Stage,
    wait::{PATIENCE, eventually, pass},
};

/// How often an operator looks for what dead workers have.
const LOOKS: Duration = Duration::from_secs(1);

// === impl Play ===

impl Play<'_> {
    /// Kills a worker, and lets the turns that were under way end while the operator looks after what killed
    /// workers have: without one, it counts as spent until the window ends (C20), and calls wait for it.
    pub(super) async fn kill_with_operator(&mut self, place: usize) -> Result<(), ChaosError> {
        let at = self.fault_at(place, "kill -9 of");
        self.stage.nodes[place].kill().await?;
        self.with_operator(self.load.settled(at)).await?;
        self.stage.nodes[place].start().await
    }

    /// Waits for what clients do while the operator looks after the account.
    pub(super) async fn with_operator(
        &self,
        clients: impl Future<Output = Result<(), ChaosError>>,
    ) -> Result<(), ChaosError> {
        tokio::select! {
            done = clients => done,
            failed = self.looks_after_account() => failed,
        }
    }

    /// Each killed worker can be reconciled, and then none has anything left of the account, which is within its
    /// limit.
    pub(super) async fn all_reconciled(&mut self) -> Result<(), ChaosError> {
        for process in killed(&self.faults) {
            self.reconcile(process).await?;
        }
        // What one had asked for before it died may come to the account later.
        let account = eventually("an account without stranded parts", PATIENCE, async || {
            let account = self.stage.account().await.map_err(|error| error.to_string())?;
            for process in stranded(&account) {
                self.reconcile(process).await.map_err(|error| error.to_string())?;
            }
            if stranded(&account).is_empty() { Ok(account) } else { Err(format!("{account:?}")) }
        })
        .await?;
        self.complaints.extend(overdrawn(&account));
        let found = self.stranded.load(Ordering::Relaxed);
        tracing::info!(found, limits = ?account.limits, "the dead have nothing of the account");
        if found == 0 {
            let what = "no killed worker had a part of the account: this run proves nothing";
            self.complaints.push(what.to_owned());
        }
        Ok(())
    }

    /// Gives back what the account shows as stranded, and allows what it asks a person for, again and again; ends
    /// with an error alone.
    async fn looks_after_account(&self) -> Result<(), ChaosError> {
        loop {
            let account = eventually("a look at the account", PATIENCE, async || {
                self.stage.account().await.map_err(|error| error.to_string())
            });
            let account = account.await?;
            for process in stranded(&account) {
                // Counted here and not by what a reply says: clients may be done before it comes.
                self.stranded.fetch_add(1, Ordering::Relaxed);
                self.reconcile(process).await?;
            }
            if account.limits.iter().any(|limit| limit.state.asks() && limit.stranded == 0) {
                self.stage.allow().await?;
            }
            pass(LOOKS).await;
        }
    }

    /// Gives back what a killed worker has of the account. That is refused while membership holds its process
    /// alive, and then asked for again.
    async fn reconcile(&self, process: ProcessId) -> Result<(), ChaosError> {
        eventually(&format!("that {process} is reconciled"), PATIENCE, async || {
            let closed = self.stage.reconcile(process).await?;
            self.stranded.fetch_add(closed, Ordering::Relaxed);
            Ok(())
        })
        .await
    }
}

// === impl Stage ===

impl Stage {
    /// Gives back what a process has of the account; how many slices that were, or why it cannot be done now.
    async fn reconcile(&self, process: ProcessId) -> Result<usize, String> {
        let params = BudgetReconcileParams {
            account: AccountKey::Cluster,
            node: process.to_string(),
            gone: true,
        };
        let gateway = self.gateway().await.map_err(|error| error.to_string())?;
        match gateway.call::<ReconcileView>("budget.reconcile", json!(params)).await {
            Ok(done) => Ok(done.closed.len()),
            Err(error) => match error.refusal() {
                // It has nothing of the account.
                Some(body) if body.code == ErrorCode::NotFound => Ok(0),
                _ => Err(error.to_string()),
            },
        }
    }

    /// Allows what the account asks a person for, up to its limit.
    async fn allow(&self) -> Result<(), ChaosError> {
        let params = BudgetAllowParams { account: AccountKey::Cluster, limits: Vec::new() };
        let gateway = self.gateway().await?;
        match gateway.call::<AccountView>("budget.allow", json!(params)).await {
            Ok(_) => tracing::info!("the operator allows more"),
            // It asks no more, or cannot answer now: there is another look.
            Err(error) if error.refusal().is_some() => {
                tracing::info!(%error, "the operator cannot allow more");
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// The account of the cluster, as people see it.
    async fn account(&self) -> Result<AccountView, ChaosError> {
        let params = BudgetParams { account: AccountKey::Cluster };
        Ok(self.gateway().await?.call("budget.show", json!(params)).await?)
    }

    /// What `usage audit` finds wrong on the days of these faults, and until now.
    pub(super) async fn audit(&self, faults: &[Fault]) -> Result<Vec<String>, ChaosError> {
        let (gateway, mut wrong) = (self.gateway().await?, Vec::new());
        let walls = faults.iter().map(|fault| fault.wall).chain([SystemClock.now()]);
        let days: BTreeSet<String> = walls.map(|wall| Day::of(wall).to_string()).collect();
        for day in days {
            let params = json!(UsageAuditParams { day });
            let audit: UsageAudit = gateway.call("usage.audit", params).await?;
            wrong.extend(inexact(&audit));
        }
        Ok(wrong)
    }
}

/// The workers that were killed.
fn killed(faults: &[Fault]) -> Vec<ProcessId> {
    let owners = faults.iter().filter_map(|fault| match &fault.hits {
        Hits::Owners(owners) => Some(owners),
        Hits::Clients | Hits::Everyone | Hits::Nothing => None,
    });
    owners.flatten().copied().collect()
}

/// The dead processes that have a part of the account.
fn stranded(account: &AccountView) -> BTreeSet<ProcessId> {
    let holders = account.limits.iter().flat_map(|limit| &limit.holders);
    holders.filter(|holder| holder.dead).map(|holder| holder.process).collect()
}

/// The limits of which more is spent and held than there is (I6).
fn overdrawn(account: &AccountView) -> Vec<String> {
    let over = account.limits.iter().filter(|limit| limit.spent + limit.held > limit.limit);
    over.map(|limit| format!("the account has more out than its limit (I6): {limit:?}")).collect()
}

/// What an audit finds that must not be (USE-1). No session of a stage is deleted.
fn inexact(audit: &UsageAudit) -> Vec<String> {
    let UsageAudit { day, differences, unproven, unreadable, .. } = audit;
    let rows = differences.iter().chain(unproven);
    let mut wrong: Vec<String> =
        rows.map(|row| format!("usage of {day} is not as journaled (USE-1): {row:?}")).collect();
    if *unreadable > 0 {
        wrong.push(format!("the audit of {day} cannot read {unreadable} journals"));
    }
    if audit.journaled.done == 0 && audit.journals > 0 {
        wrong.push(format!("the audit of {day} found no call: this run proves nothing"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use clawnode_proto::usage::{AuditRow, Calls};

    use super::*;

    fn account(limit: &serde_json::Value) -> AccountView {
        let account = json!({ "account": "cluster", "origin": "configured", "limits": [limit] });
        serde_json::from_value(account).unwrap()
    }

    fn limit(spent: u64, held: u64, dead: bool) -> serde_json::Value {
        let process = ProcessId::from_u128(7).to_string();
        let holder = json!({ "process": process, "dead": dead, "held": held, "running": 0 });
        json!({
            "unit": "usd", "window": "hour", "limit": 100, "warn_at": 75, "ask_at": 90, "spent": spent,
            "held": held, "left": 0, "state": "ok", "holders": [holder],
        })
    }

    #[test]
    fn an_account_with_more_out_than_its_limit_is_blamed_and_a_dead_holder_is_found() {
        let sound = account(&limit(60, 40, false));
        assert_eq!((overdrawn(&sound), stranded(&sound)), (Vec::new(), BTreeSet::new()));
        let over = account(&limit(61, 40, true));
        assert!(overdrawn(&over)[0].contains("I6"));
        assert_eq!(stranded(&over), BTreeSet::from([ProcessId::from_u128(7)]));
    }

    #[test]
    fn an_audit_with_one_difference_or_nothing_in_it_is_blamed() {
        let some = Calls { done: 1, ..Calls::default() };
        let exact =
            UsageAudit { counted: some, journaled: some, journals: 1, ..UsageAudit::default() };
        assert_eq!(inexact(&exact), [""; 0]);
        let star = || "*".to_owned();
        let row = AuditRow {
            agent: "default".parse().unwrap(),
            user: star(),
            model: star(),
            answered: star(),
            counted: some,
            journaled: Calls { done: 2, ..some },
        };
        assert_eq!(inexact(&UsageAudit { differences: vec![row], ..exact.clone() }).len(), 1);
        assert_eq!(inexact(&UsageAudit { unreadable: 1, ..exact.clone() }).len(), 1);
        assert_eq!(inexact(&UsageAudit { journaled: Calls::default(), ..exact }).len(), 1);
    }
}
