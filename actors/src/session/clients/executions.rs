//! Begins, shows and cancels executions: sessions with one turn, which runs the steps of a plan.
//!
//! Answers come from the journal, so all gateways give the same. Only the gateway that stored a plan
//! knows it until a worker takes it up: gateways can count the inputs of an inbox, and may not read them.

use std::{collections::BTreeMap, ops::ControlFlow, time::Duration};

use clawnode_kernel::{Entity, Service};
use clawnode_proto::{
    CallId, ErrorBody, ErrorCode, ExecutionId, IdempotencyKey, Input, InputId, JobId, Kind, Sealed,
    Seq, SessionKey, Timestamp, Traceparent, TurnId,
    execute::{
        ExecutionStatus, ExecutionStep, ExecutionView, Plan, PlanStep, StepApproval, StepError,
        StepStatus,
    },
    job::JobState,
    kernel::KernelEvent,
    limits::{EXECUTION_OUTPUT_CHARS, PENDING_INPUTS},
    llm::Text,
    session::{SessionEvent, SessionInput, ToolEnd, TurnOutcome},
    subject::job_key,
};
use serde_json::Map;

use super::{archived_turns::Sifted, send_error::SendError, sessions::Sessions};
use crate::session::turn::{
    kind::Session,
    state::{SessionState, Turn},
    tools::tool_calls::ToolCall,
};

/// How long to wait until a stored plan is in the journal.
const TAKEN_WITHIN: Duration = Duration::from_secs(1);
/// How long to wait between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Why an execution cannot be begun or shown.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// There is no such execution.
    #[error("no execution `{0}`")]
    NotFound(ExecutionId),
    /// An input of its session is stored, and no worker has taken it up.
    #[error("no worker has processed the input of execution `{0}` yet")]
    NotTaken(ExecutionId),
    /// Another plan has the name of the request.
    #[error("request `{request}` of agent `{agent}` is about another plan (`{execution}`)")]
    OtherPlan {
        request: String,
        agent: String,
        /// The execution of that plan.
        execution: ExecutionId,
    },
    /// It was deleted, and is not run again.
    #[error("execution `{0}` was deleted")]
    Deleted(ExecutionId),
    /// Its session is out of service.
    #[error("execution `{execution}` is out of service: {reason}")]
    OutOfService { execution: ExecutionId, reason: String },
    /// Its session was not reached.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// A plan that is stored.
#[derive(Debug)]
pub enum StoredPlan {
    /// No worker has taken it up, as far as the gateway that stored it can see.
    Waits(Box<Input>, Plan),
    /// The journal has it.
    Taken(Box<Entity<Session>>),
}

/// Whether a request's name is known.
#[derive(Debug)]
pub enum KnownPlan {
    Nothing,
    /// No worker has taken up any input of its session. This many wait.
    Waits(usize),
    /// Its plan is this one.
    Stored(StoredPlan),
}

/// The times of an execution.
#[derive(Debug, Default)]
struct Times {
    request: Option<IdempotencyKey>,
    created: Option<Timestamp>,
    started: Option<Timestamp>,
    ended: Option<Timestamp>,
    /// The begin and the end of each tool call.
    calls: BTreeMap<CallId, (Option<Timestamp>, Option<Timestamp>)>,
}

// === impl ExecuteError ===

impl From<ExecuteError> for ErrorBody {
    fn from(error: ExecuteError) -> Self {
        let message = error.to_string();
        match error {
            ExecuteError::NotFound(_) => Self::new(ErrorCode::NotFound, message)
                .hint("use the id that `execute` returned; a deleted execution cannot be shown"),
            ExecuteError::NotTaken(_) => Self::new(ErrorCode::Unavailable, message)
                .hint("nothing accepted is lost; `clawnode nodes` lists the workers"),
            ExecuteError::OtherPlan { .. } => Self::new(ErrorCode::Conflict, message)
                .hint("send another plan with another `request_id`"),
            ExecuteError::Deleted(_) => Self::new(ErrorCode::Conflict, message)
                .hint("send the plan with another `request_id` to run it once more"),
            ExecuteError::OutOfService { execution, .. } => {
                Self::new(ErrorCode::Quarantined, message)
                    .hint(format!("see `clawnode quarantine show {}`", execution.session()))
            }
            ExecuteError::Send(error) => error.into(),
        }
    }
}

impl From<clawnode_cluster::StoreError> for ExecuteError {
    fn from(error: clawnode_cluster::StoreError) -> Self {
        Self::Send(error.into())
    }
}

// === impl StoredPlan ===

impl StoredPlan {
    fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Waits(_, plan) => Some(plan),
            Self::Taken(entity) => entity.state.execution()?.plan.as_ref(),
        }
    }

    pub fn turn(&self) -> Option<TurnId> {
        match self {
            Self::Waits(input, _) => Some(TurnId::from(input.id)),
            Self::Taken(entity) => entity.state.execution().map(|turn| turn.id),
        }
    }
}

// === impl Sessions ===

impl Sessions {
    /// The execution that `request` names among those of an agent. Refused if it has another plan.
    pub async fn executed(
        &self,
        key: &SessionKey,
        request: &IdempotencyKey,
        plan: &Plan,
    ) -> Result<KnownPlan, ExecuteError> {
        let execution = ExecutionId::of(key.entity());
        let waiting = self.storage().inbox.pending(key.entity()).await?;
        let Some(stored) = self.look_for(execution, Some(request)).await? else {
            return Ok(if waiting > 0 { KnownPlan::Waits(waiting) } else { KnownPlan::Nothing });
        };
        if stored.plan() != Some(plan) {
            let (request, agent) = (request.to_string(), key.agent.to_string());
            return Err(ExecuteError::OtherPlan { request, agent, execution });
        }
        Ok(KnownPlan::Stored(stored))
    }

    /// Stores a plan durably; a repeat under the same name finds the first one.
    pub async fn execute(
        &self,
        key: &SessionKey,
        request: &IdempotencyKey,
        plan: &Plan,
        trace: Option<Traceparent>,
    ) -> Result<StoredPlan, ExecuteError> {
        let body = SessionInput::Execute(plan.clone());
        let input = self.input(key, request.clone(), &body, trace)?;
        let stored = self.storage().inbox.put_if_room(&input, PENDING_INPUTS).await?;
        if stored.is_none() {
            return Err(SendError::Overloaded { session: key.to_string() }.into());
        }
        // Another plan with this name may have been faster. If several wait, only the journal can tell which
        // one counts, because gateways may not read inboxes.
        let looks = async {
            loop {
                match self.executed(key, request, plan).await? {
                    KnownPlan::Stored(stored) => return Ok::<_, ExecuteError>(Some(stored)),
                    KnownPlan::Waits(1) => return Ok(None),
                    KnownPlan::Waits(_) | KnownPlan::Nothing => {
                        tokio::time::sleep(LOOK_AGAIN).await;
                    }
                }
            }
        };
        let found = tokio::time::timeout(TAKEN_WITHIN, looks).await.unwrap_or(Ok(None))?;
        Ok(found.unwrap_or_else(|| StoredPlan::Waits(Box::new(input), plan.clone())))
    }

    /// A plan that a worker has taken up. If it was just stored, this waits for the worker.
    pub async fn stored_plan(&self, execution: ExecutionId) -> Result<StoredPlan, ExecuteError> {
        let looks = async {
            loop {
                let waiting = self.storage().inbox.pending(execution.session()).await?;
                match self.look_for(execution, None).await? {
                    Some(stored) => return Ok(stored),
                    None if waiting == 0 => return Err(ExecuteError::NotFound(execution)),
                    None => tokio::time::sleep(LOOK_AGAIN).await,
                }
            }
        };
        let late = |_elapsed| Err(ExecuteError::NotTaken(execution));
        tokio::time::timeout(TAKEN_WITHIN, looks).await.unwrap_or_else(late)
    }

    /// Looks into the journal; `request` is its name if that is known.
    async fn look_for(
        &self,
        execution: ExecutionId,
        request: Option<&IdempotencyKey>,
    ) -> Result<Option<StoredPlan>, ExecuteError> {
        let session = execution.session();
        let mut entity = self.read(session).await?;
        if entity.state.execution().is_none() && !entity.state.has_all_turns() {
            let has_plan = |turn: &Turn| match turn.plan {
                Some(_) => Sifted::Kept,
                None => Sifted::Skipped,
            };
            entity = self.past(session, has_plan).await?;
        }
        if entity.state.execution().is_some() {
            return Ok(Some(StoredPlan::Taken(Box::new(entity))));
        }
        if let Service::Quarantined { reason } = entity.core.service {
            return Err(ExecuteError::OutOfService { execution, reason });
        }
        let input = request.map(|request| InputId::derive(session, request));
        if input.is_some_and(|input| entity.core.has(input)) {
            return Err(ExecuteError::Deleted(execution));
        }
        Ok(None)
    }

    /// The state of an execution.
    pub async fn execution(&self, execution: ExecutionId) -> Result<ExecutionView, ExecuteError> {
        let stored = self.stored_plan(execution).await?;
        self.execution_of(&stored).await
    }

    /// The state of an execution that was read.
    pub async fn execution_of(&self, stored: &StoredPlan) -> Result<ExecutionView, ExecuteError> {
        match stored {
            StoredPlan::Waits(input, plan) => Ok(waiting(input, plan)?),
            StoredPlan::Taken(entity) => self.taken(entity).await,
        }
    }

    /// Asks to end an execution; answers once that is stored. It has no effect on one that has ended.
    pub async fn cancel_execution(
        &self,
        execution: ExecutionId,
        trace: Option<Traceparent>,
    ) -> Result<TurnId, ExecuteError> {
        let stored = self.stored_plan(execution).await?;
        let (key, turn) = match (&stored, stored.turn()) {
            (StoredPlan::Waits(input, _), Some(turn)) => (session_key(&input.key)?, turn),
            (StoredPlan::Taken(entity), Some(turn)) => (key_of(&entity.state)?, turn),
            (_, None) => return Err(ExecuteError::NotFound(execution)),
        };
        let name = format!("cancel:{turn}").parse().map_err(|_unfit| not_found(execution))?;
        let input = self.input(&key, name, &SessionInput::Cancel { turn }, trace)?;
        self.storage().inbox.put(&input).await?;
        Ok(turn)
    }

    async fn taken(&self, entity: &Entity<Session>) -> Result<ExecutionView, ExecuteError> {
        let execution = ExecutionId::of(entity.id);
        let (Some(turn), key) = (entity.state.execution(), key_of(&entity.state)?) else {
            return Err(not_found(execution));
        };
        let mut times = Times::default();
        let visit = |sealed: Sealed| {
            times.take(turn, &sealed);
            ControlFlow::Continue(())
        };
        let events = self.entities().each_event(entity.id, Seq(0), visit).await;
        events.map_err(SendError::from)?;
        let mut steps = Vec::new();
        for (index, planned) in turn.plan.iter().flat_map(|plan| &plan.steps).enumerate() {
            let mut step = pending(index, planned);
            let profile = entity.state.profile.as_ref();
            step.risk = profile
                .and_then(|profile| profile.tool(planned.tool.as_str()))
                .map(|tool| tool.risk);
            match turn.steps.get(index).and_then(|step| step.tools.first()) {
                Some(tool) => self.tell_step(&mut step, tool, turn, &times).await?,
                None if turn.outcome.is_some() => step.status = StepStatus::Skipped,
                None => {}
            }
            steps.push(step);
        }
        let millis = |from: Timestamp, to: Timestamp| {
            u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX)
        };
        Ok(ExecutionView {
            execution_id: execution,
            request_id: times.request.clone().ok_or_else(|| not_found(execution))?,
            status: status(turn, &steps),
            turn: turn.id,
            agent: key.agent.clone(),
            session: key,
            created: times.created,
            started: times.started,
            ended: times.ended,
            duration_ms: times.started.zip(times.ended).map(|(from, to)| millis(from, to)),
            error: turn.outcome.as_ref().and_then(TurnOutcome::error),
            steps,
        })
    }

    async fn tell_step(
        &self,
        step: &mut ExecutionStep,
        tool: &ToolCall,
        turn: &Turn,
        times: &Times,
    ) -> Result<(), ExecuteError> {
        step.call = Some(tool.call);
        // With the outputs of earlier steps, and as hooks left them.
        step.params = serde_json::from_str(tool.arguments()).unwrap_or_default();
        step.job = tool.job();
        step.approval = tool.approval.as_ref().map(|approval| StepApproval {
            action: approval.action,
            expires: approval.expires,
            decided_by: approval.given.as_ref().map(|given| given.by.clone()),
        });
        let (began, ended) = times.calls.get(&tool.call).copied().unwrap_or_default();
        let ended = ended.or(times.ended);
        step.duration_ms = began
            .zip(ended)
            .map(|(from, to)| u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX));
        let end = tool.ended();
        step.status = match &end {
            Some(ToolEnd::Known { outcome }) if outcome.failure.is_none() => StepStatus::Succeeded,
            Some(ToolEnd::Known { .. }) => StepStatus::Failed,
            Some(ToolEnd::Uncertain { .. }) => StepStatus::Uncertain,
            None if turn.outcome.is_some() => StepStatus::Cancelled,
            None if tool.is_asked_about() => StepStatus::WaitingApproval,
            None => match tool.job() {
                Some(job) if !self.is_begun(job).await? => StepStatus::Queued,
                None if tool.asked.is_none() => StepStatus::Queued,
                _ => StepStatus::Running,
            },
        };
        match end {
            Some(ToolEnd::Known { outcome }) => {
                let (text, bytes) = self.shown(&outcome.content).await?;
                step.output_bytes = bytes;
                if let Some(failure) = outcome.failure {
                    let message = text.chars().take(clawnode_proto::limits::STEP_FAILURE_CHARS);
                    let (kind, message) = (failure.as_str().to_owned(), message.collect());
                    step.error = Some(StepError { kind, message });
                }
                step.output = Some(text);
            }
            Some(ToolEnd::Uncertain { detail }) => {
                step.error = Some(StepError { kind: "uncertain".to_owned(), message: detail });
            }
            None => {
                step.error = turn.outcome.as_ref().map(|outcome| StepError {
                    kind: outcome.name().to_owned(),
                    message: "it had begun when the execution ended".to_owned(),
                });
            }
        }
        Ok(())
    }

    /// A text, cut to the length that is shown, and the size of the whole text if it was cut.
    async fn shown(&self, text: &Text) -> Result<(String, Option<u64>), ExecuteError> {
        let whole = self.text(text).await?;
        Ok(match whole.char_indices().nth(EXECUTION_OUTPUT_CHARS) {
            Some((at, _)) => (whole.get(..at).unwrap_or_default().to_owned(), Some(text.bytes())),
            None => (whole, None),
        })
    }

    /// Whether a node has taken a job.
    async fn is_begun(&self, job: JobId) -> Result<bool, ExecuteError> {
        let entry = self.storage().bucket.get(&job_key(job)).await?;
        let state = entry.and_then(|entry| JobState::from_bytes(&entry.value).ok());
        Ok(state.is_some())
    }

    fn input(
        &self,
        key: &SessionKey,
        name: IdempotencyKey,
        body: &SessionInput,
        trace: Option<Traceparent>,
    ) -> Result<Input, SendError> {
        let now = self.now();
        let mut input = Input::new(Kind::SESSION, &key.to_string(), name, now, body)?;
        input.v = self.writes();
        input.traceparent = trace;
        Ok(input)
    }
}

// === impl Times ===

impl Times {
    /// The times of a turn, from the events of its session.
    fn take(&mut self, turn: &Turn, sealed: &Sealed) {
        let at = Some(sealed.head.ts);
        if let Ok(Some(KernelEvent::Accepted(accepted))) = sealed.event::<KernelEvent>()
            && TurnId::from(accepted.input.id) == turn.id
        {
            self.created = at;
            self.request = Some(accepted.input.idempotency_key.clone());
        }
        match sealed.event::<SessionEvent>() {
            Ok(Some(SessionEvent::StepPlanned(planned))) if planned.turn == turn.id => {
                self.started = self.started.or(at);
            }
            Ok(Some(SessionEvent::ToolAsked(asked))) if asked.turn == turn.id => {
                self.calls.entry(asked.call).or_default().0 = at;
            }
            Ok(Some(SessionEvent::ToolDone(done))) if done.turn == turn.id => {
                self.calls.entry(done.call).or_default().1 = at;
            }
            Ok(Some(SessionEvent::ToolUncertain(uncertain))) if uncertain.turn == turn.id => {
                self.calls.entry(uncertain.call).or_default().1 = at;
            }
            Ok(Some(SessionEvent::TurnDone(done))) if done.turn == turn.id => self.ended = at,
            _ => {}
        }
    }
}

fn status(turn: &Turn, steps: &[ExecutionStep]) -> ExecutionStatus {
    match &turn.outcome {
        Some(TurnOutcome::Completed { .. }) => return ExecutionStatus::Succeeded,
        Some(TurnOutcome::Cancelled) => return ExecutionStatus::Cancelled,
        Some(_) => return ExecutionStatus::Failed,
        None if turn.steps.is_empty() => return ExecutionStatus::Planned,
        None => {}
    }
    let last = turn.steps.len().checked_sub(1).and_then(|last| steps.get(last));
    match last.map(|step| step.status) {
        Some(StepStatus::WaitingApproval) => ExecutionStatus::WaitingApproval,
        Some(StepStatus::Queued) => ExecutionStatus::Queued,
        _ => ExecutionStatus::Running,
    }
}

fn waiting(input: &Input, plan: &Plan) -> Result<ExecutionView, SendError> {
    let key = session_key(&input.key)?;
    Ok(ExecutionView {
        execution_id: ExecutionId::of(input.entity),
        request_id: input.idempotency_key.clone(),
        status: ExecutionStatus::Created,
        turn: TurnId::from(input.id),
        agent: key.agent.clone(),
        session: key,
        created: None,
        started: None,
        ended: None,
        duration_ms: None,
        error: None,
        steps: plan.steps.iter().enumerate().map(|(index, step)| pending(index, step)).collect(),
    })
}

fn pending(index: usize, step: &PlanStep) -> ExecutionStep {
    ExecutionStep {
        step: u32::try_from(index + 1).unwrap_or(u32::MAX),
        action: step.tool.clone(),
        params: serde_json::from_str(step.given()).unwrap_or_else(|_broken| Map::new()),
        continue_on_failure: step.goes_on,
        status: StepStatus::Pending,
        risk: None,
        call: None,
        job: None,
        approval: None,
        output: None,
        output_bytes: None,
        error: None,
        duration_ms: None,
    }
}

fn session_key(text: &str) -> Result<SessionKey, SendError> {
    text.parse().map_err(|_unfit| SendError::NotFound { session: text.to_owned() })
}

fn key_of(state: &SessionState) -> Result<SessionKey, SendError> {
    let missing = || SendError::NotFound { session: String::new() };
    state.key.clone().ok_or_else(missing)
}

const fn not_found(execution: ExecutionId) -> ExecuteError {
    ExecuteError::NotFound(execution)
}
