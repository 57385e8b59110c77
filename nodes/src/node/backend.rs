//! The gateway's door to sessions and agents, and the same door for commands without a node.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use async_trait::async_trait;
use clawnode_actors::{
    agent::Agents,
    session::{SendError, Sent, Sessions, clients::route::Routes},
    usage,
};
use clawnode_cluster::{StoreError, Substrate};
use clawnode_gateway::{
    Backend, ExecuteRequest, Following, JobArchive, NodeOrder, SendRequest, SessionRef,
};
use clawnode_proto::{
    AgentName, CallId, Digest, EntityId, ErrorBody, ErrorChain, ErrorCode, ExecutionId, FrameKey,
    IdempotencyKey, McpServerName, Seq, Traceparent, TurnId,
    agents::{AgentDetail, AgentList, AgentView},
    api::{EventsParams, ListParams, PanicClear, PanicParams, PolicyCheck, SendMode, SessionsList},
    execute::ExecutionView,
    latch::{LatchList, PanicView},
    limits::MORE_STEPS,
    mcp::{McpList, McpServerView},
    overview::{FeedView, NodeList, PartitionList, TreeView},
    policy::{Approval, Decided, Decision},
    provider::{DiagnoseParams, DiagnoseView, ProvidersView},
    route::Inbound,
    session::SessionInput,
    tool::ToolSpec,
    usage::{Day, UsageParams, UsageView},
    view::{
        AcceptedView, ApprovalList, ContinuedView, EventView, HistoryView, NodeView, ParkedList,
        PolicyView, QuarantineDone, QuarantineList, QuarantineView, SessionList, StatusView,
        VerifyView,
    },
};
use serde_json::Value;

use super::{
    archive::ArchiveDoor,
    execute::Executions,
    health,
    mcp::McpDoor,
    orders,
    overview::{Node, Overview},
    panic::Switch,
    policy, reload, scheduler, wanted,
};

/// Rows of one page.
const PAGE_MAX: u32 = 1_000;
/// How long a deletion may take before the client is told to look again.
const DELETION: Duration = Duration::from_secs(30);
/// How often a deletion is looked for.
const LOOK: Duration = Duration::from_millis(20);

/// The gateway's door.
#[derive(Debug)]
pub struct NodeBackend {
    sessions: Sessions,
    agents: Agents,
    routes: Arc<std::sync::RwLock<Routes>>,
    overview: Overview,
    switch: Switch,
    mcp: McpDoor,
    archive: ArchiveDoor,
}

impl NodeBackend {
    /// A door to these.
    pub fn new(
        sessions: Sessions,
        agents: Agents,
        routes: Arc<std::sync::RwLock<Routes>>,
        node: Node,
        switch: Switch,
        mcp: McpDoor,
    ) -> Self {
        let (members, saying) = (node.members.clone(), Arc::clone(&node.heartbeat));
        let archive = ArchiveDoor::new(sessions.clone(), members, saying);
        let overview = Overview::new(node, sessions.clone());
        Self { sessions, agents, routes, overview, switch, mcp, archive }
    }

    fn executions(&self) -> Executions<'_> {
        let (sessions, agents, switch) = (&self.sessions, &self.agents, &self.switch);
        Executions { sessions, agents, switch, alive: self.overview.alive() }
    }

    fn substrate(&self) -> &Substrate {
        self.sessions.substrate()
    }

    /// The agents and their tools.
    fn needs(&self) -> Vec<(AgentName, Vec<ToolSpec>)> {
        let profiles = self.agents.names().into_iter().filter_map(|agent| {
            let profile = self.agents.profile(&agent).ok()?;
            Some((agent, profile.tools))
        });
        profiles.collect()
    }

    async fn agent_view(&self, agent: &AgentName) -> Result<AgentView, ErrorBody> {
        let views = self.agents.views().await;
        views.into_iter().find(|view| view.agent == *agent).ok_or_else(|| unknown_agent(agent))
    }
}

#[async_trait]
impl Backend for NodeBackend {
    fn route(&self, inbound: &Inbound<'_>) -> AgentName {
        let routes = self.routes.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        routes.resolve(inbound).clone()
    }

    async fn ready(&self) -> bool {
        self.substrate().health.ready().await.is_ok()
    }

    async fn status(&self) -> Result<StatusView, ErrorBody> {
        let mut status = self.overview.status().await;
        let alive = self.overview.alive();
        status.warnings.extend(health::warnings(&alive, &self.needs()));
        status.warnings.extend(reload::warnings(&alive));
        // An operator's stop comes before everything else.
        status.warnings.splice(0..0, self.switch.warnings());
        Ok(status)
    }

    async fn nodes(&self) -> NodeList {
        self.overview.nodes()
    }

    async fn partitions(&self) -> PartitionList {
        self.overview.partitions().await
    }

    async fn tree(&self, node: Option<&str>) -> Result<TreeView, ErrorBody> {
        self.overview.tree(node).await
    }

    async fn events(&self, page: EventsParams) -> FeedView {
        self.overview.events(page).await
    }

    async fn send(&self, request: SendRequest) -> Result<Following, ErrorBody> {
        let SendRequest { session, message, mode, key, trace, sent_before } = request;
        if let Some(refusal) = self.switch.refusal() {
            return Err(refusal);
        }
        if let Err(failure) = self.agents.get(&session.agent) {
            return Err(ErrorBody::new(ErrorCode::NotFound, failure.to_string())
                .hint("`clawnode agents list` shows the agents there are"));
        }
        if sent_before && let Some(turn) = self.sessions.turn_of(&session, &message).await? {
            let sent = self.sessions.follow(session.entity(), Some(turn), None).await?;
            return Ok(following(sent, session.to_string()));
        }
        let input = match mode {
            SendMode::Turn => SessionInput::UserMessage(message),
            SendMode::Steer => SessionInput::Steer(message),
        };
        let sent = self.sessions.send(&session, input, key, trace).await?;
        Ok(following(sent, session.to_string()))
    }

    async fn cancel(
        &self,
        session: &SessionRef,
        turn: TurnId,
        trace: Option<Traceparent>,
    ) -> Result<(), ErrorBody> {
        let key = idempotency_key("cancel", &turn)?;
        let done = self.sessions.cancel(session.id, turn, key, trace).await;
        done.map_err(|error| named(session, error))
    }

    async fn follow(
        &self,
        session: &SessionRef,
        turn: Option<TurnId>,
        after: Option<FrameKey>,
    ) -> Result<Following, ErrorBody> {
        let sent = self.sessions.follow(session.id, turn, after).await;
        let sent = sent.map_err(|error| named(session, error))?;
        let key = session.key.as_ref().map_or_else(|| session.id.to_string(), ToString::to_string);
        Ok(following(sent, key))
    }

    async fn sessions(&self, page: SessionsList) -> Result<SessionList, ErrorBody> {
        let wanted = wanted::wanted(page, self.sessions.now())?;
        let mut list = self.sessions.list(&wanted).await.map_err(store)?;
        for row in &mut list.sessions {
            row.node = row.owner.and_then(|owner| self.overview.name_of(owner));
        }
        Ok(list)
    }

    async fn usage(&self, wanted: UsageParams) -> Result<UsageView, ErrorBody> {
        let now = self.sessions.now();
        let since = wanted.since.map(|text| wanted::parse_since(&text, now)).transpose()?;
        let shown = usage::show(self.sessions.substrate(), now, wanted.by, since.map(Day::of));
        shown.await.map_err(store)
    }

    async fn history(&self, session: &SessionRef) -> Result<HistoryView, ErrorBody> {
        self.sessions.history(session.id).await.map_err(|error| named(session, error))
    }

    async fn export(&self, session: &SessionRef) -> Result<Value, ErrorBody> {
        self.sessions.export(session.id).await.map_err(|error| named(session, error))
    }

    async fn delete(&self, session: &SessionRef) -> Result<(), ErrorBody> {
        // One that is out of service takes no message, so the kernel is told.
        match self.sessions.bury(session.id).await {
            Ok(_) => return Ok(()),
            Err(SendError::InService { .. }) => {}
            Err(failure) => return Err(named(session, failure)),
        }
        let before = self.sessions.read(session.id).await?;
        if before.core.key.is_none() {
            return Err(named(session, SendError::NotFound { session: session.id.to_string() }));
        }
        let key = idempotency_key("delete", &before.core.tail.hash)?;
        self.sessions.delete(session.id, key).await?;
        let gone = async {
            loop {
                match self.sessions.read(session.id).await {
                    Ok(entity) if entity.core.key.is_none() => return Ok(()),
                    Ok(_) => tokio::time::sleep(LOOK).await,
                    Err(failure) => return Err(ErrorBody::from(failure)),
                }
            }
        };
        tokio::time::timeout(DELETION, gone).await.unwrap_or_else(|_elapsed| {
            Err(ErrorBody::new(
                ErrorCode::Unavailable,
                "the deletion is accepted but not complete yet".to_owned(),
            )
            .hint("check again with `clawnode sessions list`"))
        })
    }

    async fn journal(
        &self,
        session: &SessionRef,
        after: Seq,
        limit: u32,
    ) -> Result<Vec<EventView>, ErrorBody> {
        let found = self.sessions.journal(session.id, after, limit as usize).await;
        found.map_err(|error| named(session, error))
    }

    async fn verify(&self, session: Option<&SessionRef>) -> Result<VerifyView, ErrorBody> {
        self.sessions.verify(session.map(|one| one.id)).await.map_err(store)
    }

    async fn quarantined(&self, page: ListParams) -> Result<QuarantineList, ErrorBody> {
        let (after, limit) = page_of(page)?;
        self.sessions.quarantined(after, limit).await.map_err(store)
    }

    async fn quarantine(&self, session: &SessionRef) -> Result<QuarantineView, ErrorBody> {
        self.sessions.quarantine(session.id).await.map_err(|error| named(session, error))
    }

    async fn replay(&self, session: &SessionRef) -> Result<QuarantineDone, ErrorBody> {
        self.sessions.restore(session.id).await.map_err(|error| named(session, error))
    }

    async fn bury(&self, session: &SessionRef) -> Result<QuarantineDone, ErrorBody> {
        self.sessions.bury(session.id).await.map_err(|error| named(session, error))
    }

    async fn parked(&self, page: ListParams) -> Result<ParkedList, ErrorBody> {
        let limit = page.limit.unwrap_or(100).clamp(1, PAGE_MAX) as usize;
        Ok(self.sessions.parked(page.after.as_deref(), limit).await?)
    }

    async fn drop_letter(&self, letter: &str) -> Result<(), ErrorBody> {
        if self.overview.is_worker() {
            return Ok(self.sessions.drop_letter(letter).await?);
        }
        let nodes = self.overview.nodes().nodes;
        if orders::drop_letter(self.sessions.substrate(), &nodes, letter).await? {
            return Ok(());
        }
        Err(SendError::NoLetter { letter: letter.to_owned() }.into())
    }

    async fn agents(&self) -> Result<AgentList, ErrorBody> {
        Ok(AgentList { agents: self.agents.views().await })
    }

    async fn agent(&self, agent: &AgentName) -> Result<AgentDetail, ErrorBody> {
        let view = self.agent_view(agent).await?;
        let profile = self.agents.profile(agent).map_err(|_unknown| unknown_agent(agent))?;
        let alive = self.overview.alive();
        let missing = self.agents.missing_tools(agent).into_iter();
        Ok(AgentDetail {
            view,
            sampling: profile.sampling,
            window_tokens: profile.window_tokens,
            time: profile.time,
            max_parallel_tools: profile.max_parallel_tools,
            policy: profile.policy,
            hooks: profile.hooks,
            tools: profile.tools.iter().map(|spec| health::tool(&alive, spec)).collect(),
            missing: missing.map(|it| super::mcp::missing_view(&alive, it)).collect(),
        })
    }

    async fn pause(&self, agent: &AgentName, paused: bool) -> Result<AgentView, ErrorBody> {
        self.agent_view(agent).await?;
        if let (false, Some(refusal)) = (paused, self.switch.refusal_of(agent)) {
            return Err(refusal);
        }
        self.agents.pause(agent, paused).await.map_err(|error| {
            ErrorBody::new(ErrorCode::Unavailable, ErrorChain(&error).to_string()).hint("try again")
        })?;
        self.agent_view(agent).await
    }

    async fn approvals(&self) -> Result<ApprovalList, ErrorBody> {
        Ok(ApprovalList { approvals: self.sessions.approvals().await? })
    }

    async fn approval(&self, call: CallId) -> Result<Approval, ErrorBody> {
        Ok(self.sessions.approval(call).await?)
    }

    async fn decide(
        &self,
        call: CallId,
        action: Digest,
        decision: Decision,
        reason: Option<String>,
    ) -> Result<Approval, ErrorBody> {
        // Whoever has the gateway's token is the operator; where they came in is all that is known.
        let by = format!("operator at {}", self.overview.node());
        Ok(self.sessions.decide(call, action, Decided { decision, by, reason }).await?)
    }

    async fn check(&self, check: PolicyCheck) -> Result<PolicyView, ErrorBody> {
        policy::check(&self.agents, check)
    }

    async fn providers(&self) -> ProvidersView {
        health::health(&self.overview.alive(), &self.needs(), self.sessions.now())
    }

    async fn diagnose(&self, params: &DiagnoseParams) -> Result<DiagnoseView, ErrorBody> {
        scheduler::diagnose(&self.agents, &self.overview.alive(), params)
    }

    async fn execute(&self, request: ExecuteRequest) -> Result<ExecutionView, ErrorBody> {
        self.executions().begin(request).await
    }

    async fn execution(
        &self,
        execution: ExecutionId,
        wait: Duration,
    ) -> Result<ExecutionView, ErrorBody> {
        self.executions().show(execution, wait).await
    }

    async fn cancel_execution(
        &self,
        execution: ExecutionId,
        wait: Duration,
        trace: Option<Traceparent>,
    ) -> Result<ExecutionView, ErrorBody> {
        self.executions().cancel(execution, wait, trace).await
    }

    async fn go_on(
        &self,
        session: &SessionRef,
        turn: Option<TurnId>,
    ) -> Result<ContinuedView, ErrorBody> {
        let turn = self.sessions.go_on(session.id, turn).await?;
        Ok(ContinuedView { turn, steps: MORE_STEPS })
    }

    fn archive(&self) -> &dyn JobArchive {
        &self.archive
    }

    async fn mcp_servers(&self) -> McpList {
        self.mcp.list()
    }

    async fn mcp_server(&self, server: &McpServerName) -> Result<McpServerView, ErrorBody> {
        self.mcp.show(server)
    }

    async fn approve_mcp(
        &self,
        server: &McpServerName,
        tool: Option<&str>,
        digest: Option<&str>,
    ) -> Result<McpServerView, ErrorBody> {
        self.mcp.approve(server, tool, digest).await
    }

    async fn order(&self, node: &str, order: NodeOrder) -> Result<NodeView, ErrorBody> {
        orders::give(self.substrate(), &self.overview.nodes().nodes, node, order).await
    }

    async fn panic(
        &self,
        params: PanicParams,
        credential: &'static str,
    ) -> Result<PanicView, ErrorBody> {
        self.switch.stop(&self.overview.nodes(), params, credential).await
    }

    async fn panics(&self) -> LatchList {
        self.switch.list().await
    }

    async fn clear_panic(
        &self,
        params: PanicClear,
        credential: &'static str,
    ) -> Result<PanicView, ErrorBody> {
        self.switch.clear(&self.overview.nodes(), params, credential).await
    }

    fn metrics(&self, out: &mut String) {
        let (resident, alive) = (self.overview.resident(), self.overview.alive_count());
        // Writing to a string cannot fail.
        let written = write!(
            out,
            "# HELP clawnode_entities_resident Entities in this process's memory.\n\
             # TYPE clawnode_entities_resident gauge\n\
             clawnode_entities_resident {resident}\n\
             # HELP clawnode_processes_alive Processes of the cluster that are held alive.\n\
             # TYPE clawnode_processes_alive gauge\n\
             clawnode_processes_alive {alive}\n",
        );
        debug_assert!(written.is_ok(), "a string takes what it is given");
    }
}

fn unknown_agent(agent: &AgentName) -> ErrorBody {
    ErrorBody::new(ErrorCode::NotFound, format!("no agent is named `{agent}`"))
        .hint("`clawnode agents list` shows the agents there are")
}

/// What is wrong with a session, by the name that the client gave it.
pub(super) fn named(session: &SessionRef, error: SendError) -> ErrorBody {
    match (error, &session.key) {
        (SendError::NotFound { .. }, Some(key)) => {
            SendError::NotFound { session: key.to_string() }.into()
        }
        (error, _) => error.into(),
    }
}

fn following(sent: Sent, session: String) -> Following {
    let accepted = AcceptedView { session, turn: sent.turn, cursor: sent.cursor };
    Following { accepted, events: sent.events }
}

fn page_of(page: ListParams) -> Result<(Option<EntityId>, usize), ErrorBody> {
    let limit = page.limit.unwrap_or(100).clamp(1, PAGE_MAX) as usize;
    let after = page.after.map(|after| after.parse::<EntityId>()).transpose();
    let after =
        after.map_err(|error| ErrorBody::new(ErrorCode::InvalidParams, error.to_string()))?;
    Ok((after, limit))
}

fn store(failure: StoreError) -> ErrorBody {
    SendError::from(failure).into()
}

fn idempotency_key(what: &str, of: &dyn std::fmt::Display) -> Result<IdempotencyKey, ErrorBody> {
    format!("{what}:{of}")
        .parse()
        .map_err(|error| ErrorBody::new(ErrorCode::Internal, format!("{error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_not_there_has_the_name_that_was_typed() {
        for typed in ["default:cli:local:nobody", "ent_00000000000000000000000001"] {
            let session: SessionRef = typed.parse().unwrap();
            let missing = SendError::NotFound { session: session.id.to_string() };
            assert_eq!(named(&session, missing).message, format!("no session `{typed}`"));
        }
    }
}
