//! The node's answers: a handler for each method of `proto`'s table that the gateway does not answer itself.

use async_trait::async_trait;
use clawnode_gateway::{
    Answers, CallDecision, Checked, CleanFilter, ContinuedTurn, ExecuteRequest, ExecutionWait,
    HandlerResult, JobFilter, ListPage, LogFilter, McpApproval, ReflectRequest,
    RequestCaller as Caller, SessionContext, SessionLedgerShow, SessionPage, SessionRef,
    SessionTurn, TurnRating,
};
// Clippy does not look at them in tests.
#[cfg_attr(
    not(test),
    expect(clippy::wildcard_imports, reason = "handlers name every type of the table")
)]
use clawnode_proto::methods::types::*;
use clawnode_proto::{
    AgentName, CallId, JobId, McpServerName, api::Method, limits::MORE_STEPS, policy::Decision,
    usage::Day,
};

use super::{
    backend::{NodeBackend, named, store},
    drain_orders::NodeOrder,
    health, policy_check, scheduler,
    session_deletion::{self, idempotency_key},
};

/// The answer of methods that return nothing else.
const DONE: DoneView = DoneView { ok: true };

#[async_trait]
impl Answers for NodeBackend {
    async fn status(&self, _: &Caller, _: Nothing) -> HandlerResult<StatusView> {
        Ok(self.state().await)
    }

    async fn nodes_list(&self, _: &Caller, _: Nothing) -> HandlerResult<NodeList> {
        Ok(self.overview.nodes())
    }

    async fn partitions_list(&self, _: &Caller, _: Nothing) -> HandlerResult<PartitionList> {
        Ok(self.overview.partitions().await)
    }

    async fn cluster_tree(&self, _: &Caller, params: TreeParams) -> HandlerResult<TreeView> {
        self.overview.tree(params.node.as_deref()).await
    }

    async fn events_list(
        &self,
        _: &Caller,
        Checked(page): Checked<EventsParams>,
    ) -> HandlerResult<FeedView> {
        self.overview.events(page).await
    }

    async fn panic(
        &self,
        caller: &Caller,
        Checked(params): Checked<PanicParams>,
    ) -> HandlerResult<PanicView> {
        self.switch.stop(&self.overview.nodes(), params, caller.credential).await
    }

    async fn usage_show(&self, _: &Caller, params: UsageParams) -> HandlerResult<UsageView> {
        self.usage(params).await
    }

    async fn budget_list(&self, _: &Caller, page: ListPage) -> HandlerResult<BudgetList> {
        self.budgets.list(page.after.as_ref(), page.limit).await
    }

    async fn budget_show(&self, _: &Caller, params: BudgetParams) -> HandlerResult<AccountView> {
        self.budgets.show(params.account).await
    }

    async fn budget_set(&self, _: &Caller, params: BudgetSetParams) -> HandlerResult<AccountView> {
        self.budgets.set(params).await
    }

    async fn budget_reset(&self, _: &Caller, params: BudgetParams) -> HandlerResult<AccountView> {
        self.budgets.reset(params.account).await
    }

    async fn budget_allow(
        &self,
        _: &Caller,
        params: BudgetAllowParams,
    ) -> HandlerResult<AccountView> {
        self.budgets.allow(params).await
    }

    async fn budget_reconcile(
        &self,
        _: &Caller,
        params: BudgetReconcileParams,
    ) -> HandlerResult<ReconcileView> {
        self.budgets.reconcile(params).await
    }

    async fn budget_explain(
        &self,
        _: &Caller,
        session: SessionRef,
    ) -> HandlerResult<BudgetExplainView> {
        self.budgets.explain(&session, |error| named(&session, error)).await
    }

    async fn memory_list(&self, _: &Caller, page: ListPage) -> HandlerResult<MemoryList> {
        self.memories.list(page.after.as_ref(), page.limit).await
    }

    async fn memory_show(
        &self,
        _: &Caller,
        Checked(params): Checked<MemoryShowParams>,
    ) -> HandlerResult<MemoryPoints> {
        self.memories.show(&params).await
    }

    async fn memory_put(
        &self,
        _: &Caller,
        Checked(params): Checked<MemoryPutParams>,
    ) -> HandlerResult<MemoryPutView> {
        self.memories.put(params).await
    }

    async fn memory_forget(
        &self,
        _: &Caller,
        params: MemoryForgetParams,
    ) -> HandlerResult<MemoryForgetView> {
        self.memories.forget(params).await
    }

    async fn memory_stats(&self, _: &Caller, params: MemoryParams) -> HandlerResult<MemoryStats> {
        self.memories.stats(params.memory).await
    }

    async fn memory_search(
        &self,
        _: &Caller,
        Checked(params): Checked<MemorySearchParams>,
    ) -> HandlerResult<MemorySearchView> {
        self.memories.search(params).await
    }

    async fn memory_reindex(
        &self,
        _: &Caller,
        params: MemoryReindexParams,
    ) -> HandlerResult<MemoryStoreView> {
        self.memories.reindex(params).await
    }

    async fn usage_calls(
        &self,
        _: &Caller,
        Checked(page): Checked<UsageCallsParams>,
    ) -> HandlerResult<UsageCalls> {
        self.calls_used(page).await
    }

    async fn usage_audit(&self, _: &Caller, day: Day) -> HandlerResult<UsageAudit> {
        self.audited_usage(day).await
    }

    async fn panic_list(&self, _: &Caller, _: Nothing) -> HandlerResult<SwitchList> {
        Ok(self.switch.list().await)
    }

    async fn panic_clear(
        &self,
        caller: &Caller,
        Checked(params): Checked<PanicClear>,
    ) -> HandlerResult<PanicView> {
        self.switch.clear(&self.overview.nodes(), params, caller.credential).await
    }

    async fn chat_cancel(
        &self,
        caller: &Caller,
        SessionTurn { session, turn }: SessionTurn,
    ) -> HandlerResult<DoneView> {
        let key = idempotency_key("cancel", &turn)?;
        let done = self.sessions.cancel(session.id, turn, key, caller.trace.clone()).await;
        done.map(|()| DONE).map_err(|error| named(&session, error))
    }

    async fn sessions_list(
        &self,
        _: &Caller,
        Checked(page): Checked<SessionsList>,
    ) -> HandlerResult<SessionList> {
        self.session_page(page).await
    }

    async fn sessions_history(&self, _: &Caller, page: SessionPage) -> HandlerResult<HistoryView> {
        let SessionPage { session, after, limit } = page;
        let found = self.sessions.history_page(session.id, after.as_ref(), limit).await;
        found.map_err(|error| named(&session, error))
    }

    async fn sessions_context(
        &self,
        _: &Caller,
        one: SessionContext,
    ) -> HandlerResult<ContextView> {
        let found = self.sessions.context(one.session.id, one.at).await;
        found.map_err(|error| named(&one.session, error))
    }

    async fn ledger_show(&self, _: &Caller, page: SessionLedgerShow) -> HandlerResult<LedgerView> {
        let found = self.sessions.ledger(page.session.id, &page.wanted).await;
        found.map_err(|error| named(&page.session, error))
    }

    async fn feedback_give(&self, caller: &Caller, rating: TurnRating) -> HandlerResult<DoneView> {
        self.take_feedback(rating, caller.trace.clone()).await.map(|()| DONE)
    }

    async fn memory_reflect(
        &self,
        caller: &Caller,
        wanted: ReflectRequest,
    ) -> HandlerResult<DoneView> {
        self.ask_reflection(wanted, caller.trace.clone()).await.map(|()| DONE)
    }

    async fn feedback_list(&self, _: &Caller, page: SessionPage) -> HandlerResult<FeedbackView> {
        self.feedback_page(page).await
    }

    async fn sessions_export(
        &self,
        _: &Caller,
        session: SessionRef,
    ) -> HandlerResult<serde_json::Value> {
        self.sessions.export(session.id).await.map_err(|error| named(&session, error))
    }

    async fn sessions_delete(&self, _: &Caller, session: SessionRef) -> HandlerResult<DoneView> {
        session_deletion::delete(&self.sessions, &session).await.map(|()| DONE)
    }

    async fn journal_show(&self, _: &Caller, page: SessionPage) -> HandlerResult<EventList> {
        let SessionPage { session, after, limit } = page;
        let found = self.sessions.entities().journal_page(session.id, after.as_ref(), limit).await;
        found.map_err(|error| named(&session, error))
    }

    async fn journal_verify(
        &self,
        _: &Caller,
        one: Option<SessionRef>,
    ) -> HandlerResult<VerifyView> {
        self.sessions.entities().verify(one.map(|one| one.id)).await.map_err(store)
    }

    async fn agents_list(&self, _: &Caller, _: Nothing) -> HandlerResult<AgentList> {
        Ok(AgentList { agents: self.agents.views().await })
    }

    async fn agents_show(&self, _: &Caller, agent: AgentName) -> HandlerResult<AgentDetail> {
        self.agent_detail(agent).await
    }

    async fn agents_profile(
        &self,
        _: &Caller,
        params: AgentProfileParams,
    ) -> HandlerResult<AgentProfile> {
        self.agent_profile(params).await
    }

    async fn agents_pause(&self, _: &Caller, agent: AgentName) -> HandlerResult<AgentView> {
        self.pause(&agent, true).await
    }

    async fn agents_resume(&self, _: &Caller, agent: AgentName) -> HandlerResult<AgentView> {
        self.pause(&agent, false).await
    }

    async fn models_list(&self, _: &Caller, _: Nothing) -> HandlerResult<ModelList> {
        Ok(self.models().list())
    }

    async fn models_show(&self, _: &Caller, params: ModelParams) -> HandlerResult<ModelView> {
        self.models().show(&params.model)
    }

    async fn models_test(&self, _: &Caller, params: ModelParams) -> HandlerResult<ModelTest> {
        self.models().test(&params.model).await
    }

    async fn models_route(&self, _: &Caller, session: SessionRef) -> HandlerResult<RouteView> {
        self.next_route(&session).await
    }

    async fn mcp_list(&self, _: &Caller, _: Nothing) -> HandlerResult<McpList> {
        Ok(self.mcp.list())
    }

    async fn mcp_show(&self, _: &Caller, server: McpServerName) -> HandlerResult<McpServerView> {
        self.mcp.show(&server)
    }

    async fn mcp_approve(&self, _: &Caller, params: McpApproval) -> HandlerResult<McpServerView> {
        self.mcp.approve(&params.server, params.tool.as_deref(), params.digest.as_deref()).await
    }

    async fn nodes_drain(&self, _: &Caller, params: NodesDrain) -> HandlerResult<NodeView> {
        self.order(&params.node, NodeOrder::Drain { force: params.force }).await
    }

    async fn nodes_cordon(&self, _: &Caller, params: NodeParams) -> HandlerResult<NodeView> {
        self.order(&params.node, NodeOrder::Cordon).await
    }

    async fn nodes_uncordon(&self, _: &Caller, params: NodeParams) -> HandlerResult<NodeView> {
        self.order(&params.node, NodeOrder::Uncordon).await
    }

    async fn quarantine_list(&self, _: &Caller, page: ListPage) -> HandlerResult<QuarantineList> {
        let after = page.after.map(|cursor| cursor.read(Method::QuarantineList)).transpose()?;
        self.sessions.entities().quarantined(after, page.limit).await.map_err(store)
    }

    async fn quarantine_show(
        &self,
        _: &Caller,
        session: SessionRef,
    ) -> HandlerResult<QuarantineView> {
        let found = self.sessions.entities().quarantine(session.id).await;
        found.map_err(|error| named(&session, error))
    }

    async fn quarantine_replay(
        &self,
        _: &Caller,
        session: SessionRef,
    ) -> HandlerResult<QuarantineDone> {
        self.sessions.entities().restore(session.id).await.map_err(|error| named(&session, error))
    }

    async fn quarantine_drop(
        &self,
        caller: &Caller,
        session: SessionRef,
    ) -> HandlerResult<QuarantineDone> {
        let done = self.sessions.entities().discard(session.id).await;
        let done = done.map_err(|error| named(&session, error))?;
        self.switch.tell_discarded(session.id, caller.credential);
        Ok(done)
    }

    async fn parked_list(&self, _: &Caller, page: ListPage) -> HandlerResult<ParkedList> {
        Ok(self.sessions.entities().parked(page.after.as_ref(), page.limit).await?)
    }

    async fn parked_drop(&self, _: &Caller, params: ParkedDrop) -> HandlerResult<DoneView> {
        self.drop_letter(params.letter).await.map(|()| DONE)
    }

    async fn approvals_list(&self, _: &Caller, page: ListPage) -> HandlerResult<ApprovalList> {
        self.waiting_for_people(page.after.as_ref(), page.limit).await
    }

    async fn approvals_show(&self, _: &Caller, call: CallId) -> HandlerResult<Approval> {
        self.approval(call).await
    }

    async fn approvals_approve(
        &self,
        _: &Caller,
        decided: CallDecision,
    ) -> HandlerResult<Approval> {
        self.decide(Decision::Approve, decided).await
    }

    async fn approvals_deny(&self, _: &Caller, decided: CallDecision) -> HandlerResult<Approval> {
        self.decide(Decision::Deny, decided).await
    }

    async fn jobs_list(&self, _: &Caller, filter: JobFilter) -> HandlerResult<JobList> {
        self.archive.list(&filter).await
    }

    async fn jobs_show(&self, _: &Caller, job: JobId) -> HandlerResult<JobView> {
        self.archive.show(job).await
    }

    async fn jobs_logs(&self, _: &Caller, filter: LogFilter) -> HandlerResult<LogView> {
        self.archive.log(&filter).await
    }

    async fn jobs_clean(&self, _: &Caller, filter: CleanFilter) -> HandlerResult<CleanView> {
        self.archive.clean(filter).await
    }

    async fn jobs_stats(&self, _: &Caller, _: Nothing) -> HandlerResult<ArchiveStats> {
        self.archive.stats().await
    }

    async fn policy_check(&self, _: &Caller, check: PolicyCheck) -> HandlerResult<PolicyView> {
        policy_check::check(&self.agents, check)
    }

    async fn providers_health(&self, _: &Caller, _: Nothing) -> HandlerResult<ProvidersView> {
        Ok(health::health(&self.overview.alive(), &self.needs(), self.sessions.now()))
    }

    async fn scheduler_diagnose(
        &self,
        _: &Caller,
        params: DiagnoseParams,
    ) -> HandlerResult<DiagnoseView> {
        scheduler::diagnose(&self.agents, &self.overview.alive(), &params)
    }

    async fn execute(
        &self,
        caller: &Caller,
        request: ExecuteRequest,
    ) -> HandlerResult<ExecutionView> {
        self.executions().begin(request, caller.trace.clone()).await
    }

    async fn execute_show(
        &self,
        _: &Caller,
        ExecutionWait { execution, wait }: ExecutionWait,
    ) -> HandlerResult<ExecutionView> {
        self.executions().show(execution, wait).await
    }

    async fn execute_cancel(
        &self,
        caller: &Caller,
        ExecutionWait { execution, wait }: ExecutionWait,
    ) -> HandlerResult<ExecutionView> {
        self.executions().cancel(execution, wait, caller.trace.clone()).await
    }

    async fn chat_continue(
        &self,
        _: &Caller,
        ContinuedTurn { session, turn }: ContinuedTurn,
    ) -> HandlerResult<ContinuedView> {
        let turn = self.sessions.go_on(session.id, turn).await?;
        Ok(ContinuedView { turn, steps: MORE_STEPS })
    }
}
