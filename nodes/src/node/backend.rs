//! The gateway's handle to sessions and agents, and the same handle for commands without a node.

use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use clawnode_actors::{
    agent::Agents,
    session::{
        SendError, SentMessage, Sessions,
        clients::{
            attached_content::PendingContent, bindings::Routes, recorded_turn::RecordedTurn,
        },
    },
};
use clawnode_cluster::StoreError;
use clawnode_gateway::{
    AttachmentSource, Backend, Following, NewAttachment, ResultsRequest, SendRequest, SessionRef,
    TurnRecord, TurnState,
};
use clawnode_kernel::EntityError;
use clawnode_proto::{
    AgentName, CallId, EntityId, ErrorBody, ErrorCode, FileId, FrameKey, JobId, TurnId,
    api::SendMode,
    circuit::{CircuitFailures, CircuitReport, CircuitState},
    client_tool::{ClientResult, ClientResults},
    embed::{EmbedTexts, Embedded},
    media::{FileView, Media},
    node::NodeRole,
    route::Inbound,
    session::{SessionInput, UserMessage},
    tool::ToolSpec,
    view::AcceptedView,
};
use clawnode_tool::{
    EgressOptions,
    schema::{SchemaFault, check_response},
};
use futures_util::{
    StreamExt as _,
    stream::{self, BoxStream},
};

use super::{
    accounts::BudgetAnswers,
    base::BackendSources,
    client_tools, count_tokens_answer,
    current_models::CurrentModels,
    embedder::Embedder,
    embeddings::Embeddings,
    executions::Executions,
    job_archive::ArchiveRequests,
    mcp_servers::McpRequests,
    memories::MemoryAnswers,
    model_answers::ModelAnswers,
    overview::{NodeInfo, Overview},
    panic::PanicControl,
    remote_files::{RemoteFiles, RequestFiles},
    runaways,
};
use crate::config::nearest_names;

/// Agents that the refusal of a model names.
const NAMES_TOLD: usize = 3;

/// The gateway's handle.
#[derive(Debug)]
pub struct NodeBackend {
    pub(super) sessions: Sessions,
    pub(super) agents: Agents,
    routes: Arc<std::sync::RwLock<Routes>>,
    pub(super) overview: Overview,
    pub(super) switch: PanicControl,
    pub(super) mcp: McpRequests,
    pub(super) archive: ArchiveRequests,
    pub(super) budgets: BudgetAnswers,
    pub(super) memories: MemoryAnswers,
    models: CurrentModels,
    embeddings: Embeddings,
    remote_files: RemoteFiles,
}

impl NodeBackend {
    /// A handle to these.
    pub fn new(
        sessions: Sessions,
        agents: Agents,
        routes: Arc<std::sync::RwLock<Routes>>,
        node: NodeInfo,
        switch: PanicControl,
        mcp: McpRequests,
        sources: BackendSources,
    ) -> Self {
        let BackendSources { models, memory } = sources;
        let (members, heartbeat_source) = (node.members.clone(), Arc::clone(&node.heartbeat));
        let embedder = Embedder::new(models.clone(), agents.clone());
        let (storage, heard) = (sessions.storage().clone(), members.clone());
        let is_worker = heartbeat_source().roles.contains(&NodeRole::Worker);
        let embeddings = Embeddings::new(embedder, storage, heard, is_worker);
        let archive = ArchiveRequests::new(sessions.clone(), members, heartbeat_source);
        let budgets = BudgetAnswers::new(sessions.clone(), agents.clone(), node.clone());
        let memories = MemoryAnswers::new(sessions.clone(), agents.clone(), node.clone(), memory);
        let overview = Overview::new(node, sessions.clone());
        let gate = agents.switch_gate().clone();
        let remote_files = RemoteFiles::new(&EgressOptions::default(), gate);
        Self {
            sessions,
            agents,
            routes,
            overview,
            switch,
            mcp,
            archive,
            budgets,
            memories,
            models,
            embeddings,
            remote_files,
        }
    }

    /// The same, which fetches files that messages name by these rules.
    #[must_use]
    pub fn fetching(self, options: &EgressOptions) -> Self {
        let gate = self.agents.switch_gate().clone();
        Self { remote_files: RemoteFiles::new(options, gate), ..self }
    }

    /// The accounts of the cluster.
    pub const fn budgets(&self) -> &BudgetAnswers {
        &self.budgets
    }

    pub(super) fn executions(&self) -> Executions<'_> {
        let (sessions, agents, switch) = (&self.sessions, &self.agents, &self.switch);
        Executions { sessions, agents, switch, alive: self.overview.alive() }
    }

    pub(super) const fn models(&self) -> ModelAnswers<'_> {
        ModelAnswers { agents: &self.agents, models: &self.models }
    }

    /// What a message names or brings, as an attachment of its session.
    async fn attached(
        &self,
        session: EntityId,
        source: AttachmentSource,
        files: &RequestFiles<'_>,
        pending: &mut Vec<PendingContent>,
    ) -> Result<Media, ErrorBody> {
        let content = match source {
            AttachmentSource::Content(content) => content,
            AttachmentSource::Remote(file) => files.fetch(&file).await?,
            AttachmentSource::File(file) => {
                if self.sessions.place_of_file(session, file).await? == session {
                    return Ok(self.sessions.attach_file(session, file).await?);
                }
                self.sessions.shared_content(file).await?
            }
        };
        let (media, note) = self.sessions.attach(session, content).await?;
        pending.push(note);
        Ok(media)
    }

    /// The agents and their tools.
    pub(super) fn needs(&self) -> Vec<(AgentName, Vec<ToolSpec>)> {
        let profiles = self.agents.names().into_iter().filter_map(|agent| {
            let profile = self.agents.profile(&agent).ok()?;
            Some((agent, profile.tools))
        });
        profiles.collect()
    }
}

#[async_trait]
impl Backend for NodeBackend {
    fn route(&self, inbound: &Inbound<'_>) -> AgentName {
        let routes = self.routes.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        routes.resolve(inbound).clone()
    }

    fn has_schema(&self, agent: &AgentName) -> bool {
        self.agents.options(agent).is_some_and(|agent| agent.response_schema.is_some())
    }

    fn agents_like(&self, name: &str) -> Vec<AgentName> {
        let agents = self.agents.names();
        let near = nearest_names(name, agents.iter().map(AgentName::as_str), NAMES_TOLD);
        near.into_iter().filter_map(|name| name.parse().ok()).collect()
    }

    async fn ready(&self) -> bool {
        self.sessions.storage().health.ready().await.is_ok()
    }

    async fn send(&self, request: SendRequest) -> Result<Following, ErrorBody> {
        let SendRequest { session, mut message, attachments, mode, key, trace, sent_before } =
            request;
        if let Some(refusal) = self.switch.refusal() {
            return Err(refusal);
        }
        if let Err(failure) = self.agents.get(&session.agent) {
            return Err(ErrorBody::new(ErrorCode::NotFound, failure.to_string())
                .hint("`clawnode agents list` shows the agents there are"));
        }
        if let Some(model) = &message.model {
            self.models().permit(&session.agent, model)?;
        }
        self.models().takes_settings(&self.sessions, &session, &message, &key).await?;
        client_tools::check(&self.agents, &session.agent, &message.tools, &message.sampling)?;
        if let Some(schema) = &message.response_schema {
            check_response(schema).map_err(|fault| unusable(&fault))?;
        }
        // Content of a message that is refused after all goes later: what may be refused comes first.
        for attachment in &attachments {
            if let AttachmentSource::File(file) = attachment.source {
                self.sessions.place_of_file(session.entity(), file).await?;
            }
        }
        let (files, mut pending) = (self.remote_files.of_request(&session.agent), Vec::new());
        for NewAttachment { history, at, source } in attachments {
            let media = self.attached(session.entity(), source, &files, &mut pending).await?;
            let media = Media { at, ..media };
            match history.and_then(|at| message.history.get_mut(at)) {
                Some(earlier) => earlier.attachments.push(media),
                None => message.attachments.push(media),
            }
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
        self.sessions.attached(pending).await;
        Ok(following(sent, session.to_string()))
    }

    async fn results(&self, request: ResultsRequest) -> Result<Following, ErrorBody> {
        if let Some(refusal) = self.switch.refusal() {
            return Err(refusal);
        }
        self.bring(request).await
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

    async fn follow_results(
        &self,
        session: EntityId,
        call: CallId,
    ) -> Result<Following, ErrorBody> {
        let sent = self.sessions.follow_results(session, call).await?;
        Ok(following(sent, session.to_string()))
    }

    async fn turn_record(
        &self,
        session: EntityId,
        turn: TurnId,
        after: Option<CallId>,
    ) -> Result<TurnRecord, ErrorBody> {
        let found = self.sessions.recorded(session, turn, after).await?;
        let state = match (found.is_accepted, found.is_over) {
            (false, _) => TurnState::Queued,
            (true, false) => TurnState::Running,
            (true, true) => TurnState::Over,
        };
        let RecordedTurn { session, begun, next, is_only, metadata, .. } = found;
        Ok(TurnRecord { session, begun, state, next, is_only, metadata })
    }

    async fn count_tokens(
        &self,
        agent: &AgentName,
        message: UserMessage,
        attachments: Vec<NewAttachment>,
    ) -> Result<u64, ErrorBody> {
        count_tokens_answer::count(&self.agents, agent, message, attachments)
    }

    async fn store_file(
        &self,
        session: EntityId,
        name: Option<String>,
        mut content: BoxStream<'static, Result<Bytes, ErrorBody>>,
    ) -> Result<FileView, ErrorBody> {
        if let Some(refusal) = self.switch.refusal() {
            return Err(refusal);
        }
        let mut upload = self.sessions.upload(session, name.as_deref()).await?;
        let written = async {
            while let Some(piece) = content.next().await {
                upload.write(&piece?).await?;
            }
            Ok::<(), ErrorBody>(())
        };
        match written.await {
            Ok(()) => Ok(upload.finish().await?),
            Err(refusal) => {
                upload.abandon().await;
                Err(refusal)
            }
        }
    }

    async fn file(
        &self,
        session: EntityId,
        file: FileId,
    ) -> Result<(FileView, BoxStream<'static, Result<Bytes, ErrorBody>>), ErrorBody> {
        let record = self.sessions.file(session, file).await?;
        let (sessions, parts) = (self.sessions.clone(), record.parts.clone());
        let content = stream::iter(parts).then(move |part| {
            let sessions = sessions.clone();
            async move { Ok(sessions.file_part(file, part).await?) }
        });
        Ok((record.view(file), content.boxed()))
    }

    async fn files(&self, session: EntityId) -> Result<Vec<FileView>, ErrorBody> {
        Ok(self.sessions.files(session).await?)
    }

    async fn delete_file(&self, session: EntityId, file: FileId) -> Result<(), ErrorBody> {
        Ok(self.sessions.give_up_file(session, file).await?)
    }

    async fn embed(&self, request: EmbedTexts) -> Result<Embedded, ErrorBody> {
        match self.switch.refusal() {
            Some(refusal) => Err(refusal),
            None => self.embeddings.embed(request).await,
        }
    }

    async fn artifact(&self, job: JobId, run: Option<u32>, name: &str) -> Result<Bytes, ErrorBody> {
        self.archive.artifact(job, run, name).await
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
        let written = circuit_metrics(&self.models.circuits().reports(), out)
            .and_then(|()| runaways::metrics(&self.agents, out));
        debug_assert!(written.is_ok(), "a string takes what it is given");
        let written = self.budgets.metrics(out);
        debug_assert!(written.is_ok(), "a string takes what it is given");
    }
}

/// Of the providers that have failed or reported a limit.
fn circuit_metrics(
    reports: &BTreeMap<String, CircuitReport>,
    out: &mut String,
) -> Result<(), std::fmt::Error> {
    if reports.is_empty() {
        return Ok(());
    }
    // As Prometheus quotes it.
    let label = |name: &str| name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    out.write_str(
        "# HELP clawnode_provider_circuit_open Whether calls of a provider are not sent.\n\
         # TYPE clawnode_provider_circuit_open gauge\n",
    )?;
    for (name, report) in reports {
        let (name, is_open) = (label(name), u8::from(report.state != CircuitState::Closed));
        writeln!(out, "clawnode_provider_circuit_open{{provider=\"{name}\"}} {is_open}")?;
    }
    out.write_str(
        "# HELP clawnode_provider_refused_total Calls that were not sent.\n\
         # TYPE clawnode_provider_refused_total counter\n",
    )?;
    for (name, report) in reports {
        let (name, refused) = (label(name), report.refused);
        writeln!(out, "clawnode_provider_refused_total{{provider=\"{name}\"}} {refused}")?;
    }
    out.write_str(
        "# HELP clawnode_provider_failures_total Failed attempts of model calls.\n\
         # TYPE clawnode_provider_failures_total counter\n",
    )?;
    for (name, report) in reports {
        let name = label(name);
        for CircuitFailures { kind, count, .. } in &report.failures {
            let kind = kind.as_str();
            writeln!(
                out,
                "clawnode_provider_failures_total{{provider=\"{name}\",kind=\"{kind}\"}} {count}"
            )?;
        }
    }
    Ok(())
}

/// What is wrong with a session, by the name that the client gave it.
pub(super) fn named(session: &SessionRef, error: impl Into<SendError>) -> ErrorBody {
    let error = error.into();
    let is_missing = match &error {
        SendError::NotFound { .. } => true,
        SendError::Entity(failure) => matches!(**failure, EntityError::NotFound(_)),
        _ => false,
    };
    if is_missing {
        let typed = session.key.as_ref().map(ToString::to_string);
        let session = typed.unwrap_or_else(|| session.id.to_string());
        return SendError::NotFound { session }.into();
    }
    error.into()
}

/// Why a message's schema is refused.
fn unusable(fault: &SchemaFault) -> ErrorBody {
    ErrorBody::new(ErrorCode::InvalidParams, format!("`response_schema`: the {fault}"))
        .hint("correct the JSON Schema; `$ref` may name a part of it, without a circle")
}

impl NodeBackend {
    /// Stores the results, and follows the turn that waits for them.
    async fn bring(&self, request: ResultsRequest) -> Result<Following, ErrorBody> {
        let ResultsRequest { session, agent, results, failed, system, sampling, tools, .. } =
            request;
        let ResultsRequest { metadata, attachments, trace, .. } = request;
        let unknown = || {
            let what = "parameter `messages`: no turn waits for the results of these tool calls";
            ErrorBody::new(ErrorCode::InvalidParams, what)
        };
        let first = results.first().map(|(call, _)| *call);
        let entity = match first {
            Some(call) => self.sessions.read_with_call(session, call).await,
            None => self.sessions.read(session).await,
        };
        let entity = entity.map_err(|error| {
            let error = ErrorBody::from(error);
            if error.code == ErrorCode::NotFound { unknown() } else { error }
        })?;
        let Some(key) = entity.state.key.clone() else { return Err(unknown()) };
        if key.agent != agent {
            let what = format!("parameter `model`: the tool calls are of `{}`", key.agent);
            return Err(ErrorBody::new(ErrorCode::InvalidParams, what));
        }
        let first = first.and_then(|call| entity.state.place_of_call(call));
        let model = first.and_then(|(turn, _)| turn.model.clone());
        drop(entity);
        self.models().takes(&agent, model.as_ref(), &sampling)?;
        client_tools::check(&self.agents, &agent, &tools, &sampling)?;
        let (files, mut pending) = (self.remote_files.of_request(&agent), Vec::new());
        let mut brought = BTreeMap::<CallId, Vec<Media>>::new();
        for (call, source) in attachments {
            let media = self.attached(session, source, &files, &mut pending).await?;
            brought.entry(call).or_default().push(media);
        }
        let result = |(call, content): (CallId, String)| {
            let (is_error, media) = (failed.contains(&call), brought.remove(&call));
            let media = media.unwrap_or_default();
            ClientResult { call, content: content.into(), is_error, media }
        };
        let results = results.into_iter().map(result).collect();
        // The calls say which turn it is.
        let turn = TurnId::from_u128(0);
        let results = ClientResults { turn, results, system, sampling, tools, metadata };
        let sent = self.sessions.bring(session, results, trace).await?;
        self.sessions.attached(pending).await;
        Ok(following(sent, key.to_string()))
    }
}

fn following(sent: SentMessage, session: String) -> Following {
    let accepted = AcceptedView { session, turn: sent.turn, cursor: sent.cursor };
    Following { accepted, events: sent.events }
}

/// A store that fails, as clients see it.
pub(super) fn store(failure: StoreError) -> ErrorBody {
    EntityError::from(failure).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_not_there_has_the_name_that_was_typed() {
        for typed in ["default:cli:local:absent", "ent_00000000000000000000000001"] {
            let session: SessionRef = typed.parse().unwrap();
            let missing = SendError::NotFound { session: session.id.to_string() };
            assert_eq!(named(&session, missing).message, format!("no session `{typed}`"));
            let missing = EntityError::NotFound(session.id);
            assert_eq!(named(&session, missing).message, format!("no session `{typed}`"));
        }
    }
}
