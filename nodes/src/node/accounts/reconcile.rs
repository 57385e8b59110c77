//! `budget.reconcile`: gives back what dead processes have of an account, once journals say what their calls
//! have cost. It is refused while the process is alive.

use std::collections::BTreeMap;

use clawnode_budget::BudgetState;
use clawnode_gateway::HandlerResult;
use clawnode_proto::{
    ErrorBody, ErrorCode, ProcessId, Timestamp,
    budget::{
        AccountKey, BudgetInput, BudgetReconcileParams, LimitKey, ReconcileView, SliceReport,
        WindowNumber,
    },
};

use super::{
    budget_answers::BudgetAnswers,
    dead_slices,
    slice_owners::PeerState,
    spent_by_dead_processes::{self, ReadHolds},
};

/// Clocks of processes differ by less.
const CLOCKS_MS: u64 = 3_600_000;

impl BudgetAnswers {
    /// Answers `budget.reconcile`.
    pub(in crate::node) async fn reconcile(
        &self,
        params: BudgetReconcileParams,
    ) -> HandlerResult<ReconcileView> {
        let BudgetReconcileParams { account: key, node, gone } = params;
        if !gone {
            let what = format!("`gone` has to confirm that the process of `{node}` has ended");
            return Err(ErrorBody::new(ErrorCode::InvalidParams, what).hint(
                "make sure that it has ended, then set `gone` to true: a process that still runs \
                 would spend this a second time",
            ));
        }
        let state = self.existing(&key).await?.state;
        let processes = self.gone(&key, &state, &node)?;
        self.close_all(&key, &state, &processes).await
    }

    /// Closes all slices that these processes have, and are about to get.
    pub(super) async fn close_all(
        &self,
        key: &AccountKey,
        state: &BudgetState,
        processes: &[ProcessId],
    ) -> HandlerResult<ReconcileView> {
        let mut done = self.close(key, state, processes).await?;
        // What a process had asked for before it died may have come to the account since it was read. Once the
        // account has the reports, it has that, too, and the process asks for nothing more.
        if let Some(account) = self.load(key).await?
            && !dead_slices::open_slices(&account.state, processes).is_empty()
        {
            let more = self.close(key, &account.state, processes).await?;
            done.closed.extend(more.closed);
            (done.account, done.unread) = (more.account, done.unread.max(more.unread));
        }
        Ok(done)
    }

    /// Closes the slices that these processes have, at what journals say of their calls.
    async fn close(
        &self,
        key: &AccountKey,
        state: &BudgetState,
        processes: &[ProcessId],
    ) -> HandlerResult<ReconcileView> {
        let slices = dead_slices::open_slices(state, processes);
        let since = slices.iter().map(|slice| begin(slice.limit, slice.window)).min();
        let read = match since {
            Some(since) => {
                spent_by_dead_processes::holds(&self.sessions, key, processes, since).await?
            }
            None => ReadHolds::default(),
        };
        let closed = dead_slices::closed(&slices, &read.used, read.unread > 0);
        let mut reports: BTreeMap<ProcessId, Vec<SliceReport>> = BTreeMap::new();
        for (slice, report) in &closed {
            reports.entry(slice.process).or_default().push(*report);
        }
        for process in processes {
            reports.entry(*process).or_insert_with(|| vec![dead_slices::nothing_out()]);
        }
        let input = |(process, reports)| BudgetInput::Report { process, reports };
        let inputs: Vec<BudgetInput> = reports.into_iter().map(input).collect();
        let account = self.change(key.clone(), &inputs).await?;
        Ok(ReconcileView {
            account,
            closed: closed.into_iter().map(|(slice, _)| slice).collect(),
            sessions: read.sessions,
            unread: read.unread,
        })
    }

    /// The dead processes of a node that have parts of an account, or wait for them.
    fn gone(
        &self,
        key: &AccountKey,
        state: &BudgetState,
        node: &str,
    ) -> HandlerResult<Vec<ProcessId>> {
        let holders = dead_slices::with_parts(state);
        let is_meant = |process: &ProcessId| {
            let name = self.peers.name(*process);
            process.to_string() == node || name.is_some_and(|name| name.as_str() == node)
        };
        let meant: Vec<ProcessId> = holders.iter().copied().filter(is_meant).collect();
        let dead = |process: &ProcessId| self.peers.state(*process) == PeerState::Dead;
        let gone: Vec<ProcessId> = meant.iter().copied().filter(dead).collect();
        if !gone.is_empty() {
            return Ok(gone);
        }
        let dead: Vec<String> =
            holders.iter().filter(|holder| dead(holder)).map(ToString::to_string).collect();
        let others = if dead.is_empty() {
            "no dead process has a part of it".to_owned()
        } else {
            format!("dead processes have parts of it: {}", dead.join(", "))
        };
        let Some(process) = meant.first() else {
            let what = format!("no process of `{node}` has a part of `{key}`");
            return Err(ErrorBody::new(ErrorCode::NotFound, what).hint(others));
        };
        let (what, hint) = match self.peers.state(*process) {
            PeerState::Unknown => (
                format!("this node does not know yet whether process {process} is alive"),
                "try again in some seconds".to_owned(),
            ),
            PeerState::Alive | PeerState::Dead => (
                format!(
                    "process {process} of `{node}` is alive, and gives back what it does not use"
                ),
                others,
            ),
        };
        Err(ErrorBody::new(ErrorCode::Conflict, what).hint(hint))
    }
}

/// Before this time, nothing was spent in a window.
fn begin(limit: LimitKey, window: WindowNumber) -> Timestamp {
    let before = window.0.checked_sub(1).map(WindowNumber);
    let begun = before.and_then(|before| limit.window.end(before)).unwrap_or_default();
    Timestamp(begun.0.saturating_sub(CLOCKS_MS))
}
