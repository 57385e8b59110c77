//! Executions: sessions with one turn whose steps are planned; begun, looked at, and cancelled.
//!
//! Whoever asks is told from the journal, or from the inbox while it is not there yet, so any
//! gateway tells the same.

use std::collections::BTreeMap;

use clawnode_proto::{
    CallId, ErrorBody, ErrorCode, ExecutionId, IdempotencyKey, Input, InputId, JobId, Kind,
    Position, Sealed, SessionKey, Timestamp, Traceparent, TurnId, codec,
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

use super::{
    client::{SendError, Sessions},
    kind::Session,
    state::{SessionState, Turn},
    tools::ToolCall,
};
use crate::durable::{Entity, Service};

/// How often an execution is looked for that somebody knows of: a read may be old.
const LOOKS: usize = 3;

/// Why there is no such execution, or not this one.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// There is none.
    #[error("no execution `{0}`")]
    NotFound(ExecutionId),
    /// The request's name is taken.
    #[error("request `{request}` of agent `{agent}` is about another plan (`{execution}`)")]
    OtherPlan {
        /// The request.
        request: String,
        /// The agent.
        agent: String,
        /// What it names.
        execution: ExecutionId,
    },
    /// It was deleted, and is not run again.
    #[error("execution `{0}` was deleted")]
    Deleted(ExecutionId),
    /// Its session is out of service.
    #[error("execution `{execution}` is out of service: {reason}")]
    OutOfService {
        /// Which.
        execution: ExecutionId,
        /// Why.
        reason: String,
    },
    /// Its session was not reached.
    #[error(transparent)]
    Send(#[from] SendError),
}

/// A plan that is stored.
#[derive(Debug)]
pub enum Stored {
    /// Nobody has taken it up.
    Waits(Box<Input>, Plan),
    /// The journal has it.
    Taken(Box<Entity<Session>>),
}

/// When things happened.
#[derive(Debug, Default)]
struct Times {
    request: Option<IdempotencyKey>,
    created: Option<Timestamp>,
    started: Option<Timestamp>,
    ended: Option<Timestamp>,
    /// Of each tool call: when it was begun, and when it ended.
    calls: BTreeMap<CallId, (Option<Timestamp>, Option<Timestamp>)>,
}

// === impl ExecuteError ===

impl From<ExecuteError> for ErrorBody {
    fn from(error: ExecuteError) -> Self {
        let message = error.to_string();
        match error {
            ExecuteError::NotFound(_) => Self::new(ErrorCode::NotFound, message)
                .hint("`execute` answers with the id; ids of deleted ones are gone"),
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

// === impl Stored ===

impl Stored {
    fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Waits(_, plan) => Some(plan),
            Self::Taken(entity) => entity.state.execution()?.plan.as_ref(),
        }
    }

    /// Its turn.
    pub fn turn(&self) -> Option<TurnId> {
        match self {
            Self::Waits(input, _) => Some(TurnId::from(input.id)),
            Self::Taken(entity) => entity.state.execution().map(|turn| turn.id),
        }
    }
}

// === impl Sessions ===

impl Sessions {
    /// What `request` names among the executions of an agent, if it was given this plan.
    pub async fn executed(
        &self,
        key: &SessionKey,
        (request, plan): (&IdempotencyKey, &Plan),
    ) -> Result<Option<Stored>, ExecuteError> {
        let execution = ExecutionId::of(key.entity());
        let Some(stored) = self.look_for(execution, Some(request)).await? else {
            return Ok(None);
        };
        if stored.plan() != Some(plan) {
            let (request, agent) = (request.to_string(), key.agent.to_string());
            return Err(ExecuteError::OtherPlan { request, agent, execution });
        }
        Ok(Some(stored))
    }

    /// Stores a plan durably; a repeat under the same name finds the first one.
    pub async fn execute(
        &self,
        key: &SessionKey,
        request: &IdempotencyKey,
        plan: &Plan,
        trace: Option<Traceparent>,
    ) -> Result<Stored, ExecuteError> {
        let body = SessionInput::Execute(plan.clone());
        let input = self.input(key, request.clone(), &body, trace)?;
        let stored = self.substrate.inbox.put_if_room(&input, PENDING_INPUTS).await?;
        if stored.is_none() {
            return Err(SendError::Overloaded { session: key.to_string() }.into());
        }
        // Another plan may have been faster.
        match self.executed(key, (request, plan)).await? {
            Some(stored) => Ok(stored),
            None => Ok(Stored::Waits(Box::new(input), plan.clone())),
        }
    }

    /// A plan that is stored.
    pub async fn stored_plan(&self, execution: ExecutionId) -> Result<Stored, ExecuteError> {
        for _ in 0..LOOKS {
            if let Some(stored) = self.look_for(execution, None).await? {
                return Ok(stored);
            }
        }
        Err(ExecuteError::NotFound(execution))
    }

    /// Looks once; `request` is its name if that is known.
    async fn look_for(
        &self,
        execution: ExecutionId,
        request: Option<&IdempotencyKey>,
    ) -> Result<Option<Stored>, ExecuteError> {
        let session = execution.session();
        // The inbox first: what has left it by then is in the journal.
        let waiting = self.substrate.inbox.read(session, Position(0)).await?;
        let entity = self.read(session).await?;
        if entity.state.execution().is_some() {
            return Ok(Some(Stored::Taken(Box::new(entity))));
        }
        if let Service::Quarantined { reason } = entity.core.service {
            return Err(ExecuteError::OutOfService { execution, reason });
        }
        let input = request.map(|request| InputId::derive(session, request));
        if input.is_some_and(|input| entity.core.has(input)) {
            return Err(ExecuteError::Deleted(execution));
        }
        let inputs = waiting.iter().filter_map(|one| Input::from_bytes(&one.bytes).ok());
        // One that was stored again after its session was deleted waits for nothing.
        for input in inputs.filter(|input| !entity.core.has(input.id)) {
            if let Ok(SessionInput::Execute(plan)) = codec::decode(&input.body) {
                return Ok(Some(Stored::Waits(Box::new(input), plan)));
            }
        }
        Ok(None)
    }

    /// How far an execution is.
    pub async fn execution(&self, execution: ExecutionId) -> Result<ExecutionView, ExecuteError> {
        let stored = self.stored_plan(execution).await?;
        self.execution_of(&stored).await
    }

    /// How far it is, as it was read.
    pub async fn execution_of(&self, stored: &Stored) -> Result<ExecutionView, ExecuteError> {
        match stored {
            Stored::Waits(input, plan) => Ok(waiting(input, plan)?),
            Stored::Taken(entity) => self.taken(entity).await,
        }
    }

    /// Asks to end an execution; answers once that is stored. No effect on one that has ended.
    pub async fn cancel_execution(
        &self,
        execution: ExecutionId,
        trace: Option<Traceparent>,
    ) -> Result<TurnId, ExecuteError> {
        let stored = self.stored_plan(execution).await?;
        let (key, turn) = match (&stored, stored.turn()) {
            (Stored::Waits(input, _), Some(turn)) => (session_key(&input.key)?, turn),
            (Stored::Taken(entity), Some(turn)) => (key_of(&entity.state)?, turn),
            (_, None) => return Err(ExecuteError::NotFound(execution)),
        };
        let name = format!("cancel:{turn}").parse().map_err(|_unfit| not_found(execution))?;
        let input = self.input(&key, name, &SessionInput::Cancel { turn }, trace)?;
        self.substrate.inbox.put(&input).await?;
        Ok(turn)
    }

    async fn taken(&self, entity: &Entity<Session>) -> Result<ExecutionView, ExecuteError> {
        let execution = ExecutionId::of(entity.id);
        let (Some(turn), key) = (entity.state.execution(), key_of(&entity.state)?) else {
            return Err(not_found(execution));
        };
        let times = Times::of(turn, &self.all_events(entity.id).await?);
        let mut steps = Vec::new();
        for (index, planned) in turn.plan.iter().flat_map(|plan| &plan.steps).enumerate() {
            let mut step = pending(index, planned);
            let profile = entity.state.profile.as_ref();
            step.risk = profile.and_then(|it| it.tool(planned.tool.as_str())).map(|it| it.risk);
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
        step.job = tool.job();
        step.approval = tool.approval.as_ref().map(|it| StepApproval {
            action: it.action,
            expires: it.expires,
            decided_by: it.given.as_ref().map(|given| given.by.clone()),
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

    /// A text as far as it is shown, and its bytes if that is not all of it.
    async fn shown(&self, text: &Text) -> Result<(String, Option<u64>), ExecuteError> {
        let whole = self.text(text).await?;
        Ok(match whole.char_indices().nth(EXECUTION_OUTPUT_CHARS) {
            Some((at, _)) => (whole.get(..at).unwrap_or_default().to_owned(), Some(text.bytes())),
            None => (whole, None),
        })
    }

    /// Whether a node has taken a job.
    async fn is_begun(&self, job: JobId) -> Result<bool, ExecuteError> {
        let entry = self.substrate.bucket.get(&job_key(job)).await?;
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
        let now = self.clock.now();
        let mut input = Input::new(Kind::Session, &key.to_string(), name, now, body)?;
        input.v = self.writes();
        input.traceparent = trace;
        Ok(input)
    }
}

// === impl Times ===

impl Times {
    /// Of a turn, by its session's events.
    fn of(turn: &Turn, events: &[Sealed]) -> Self {
        let mut times = Self::default();
        for sealed in events {
            let at = Some(sealed.head.ts);
            if let Ok(Some(KernelEvent::Accepted(accepted))) = sealed.event::<KernelEvent>()
                && TurnId::from(accepted.input.id) == turn.id
            {
                times.created = at;
                times.request = Some(accepted.input.idempotency_key.clone());
            }
            match sealed.event::<SessionEvent>() {
                Ok(Some(SessionEvent::StepPlanned(it))) if it.turn == turn.id => {
                    times.started = times.started.or(at);
                }
                Ok(Some(SessionEvent::ToolAsked(it))) if it.turn == turn.id => {
                    times.calls.entry(it.call).or_default().0 = at;
                }
                Ok(Some(SessionEvent::ToolDone(it))) if it.turn == turn.id => {
                    times.calls.entry(it.call).or_default().1 = at;
                }
                Ok(Some(SessionEvent::ToolUncertain(it))) if it.turn == turn.id => {
                    times.calls.entry(it.call).or_default().1 = at;
                }
                Ok(Some(SessionEvent::TurnDone(it))) if it.turn == turn.id => times.ended = at,
                _ => {}
            }
        }
        times
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
        params: serde_json::from_str(&step.arguments).unwrap_or_else(|_broken| Map::new()),
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
