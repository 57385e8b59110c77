//! What performing a session's effects takes, prepared from its state: pure.

use std::{sync::Arc, time::Duration};

use clawnode_proto::{
    AgentName, Attempt, CallId, FrameKey, JobId, Timestamp, ToolName, Traceparent, TurnId,
    job::Job,
    llm::Usage,
    session::{Profile, TurnOutcome},
};

use super::{
    context::Assembled,
    kind::Effect,
    state::{SessionState, StepEnd, Turn},
    tools::ToolCall,
};
use crate::agent::Permit;

/// All that running an effect takes.
#[derive(Debug)]
pub enum SessionJob {
    /// Make a model call.
    Call(CallJob),
    /// Run a tool.
    Tool(ToolJob),
    /// Give a tool call to whoever can run it.
    Publish(PublishJob),
    /// Bring a tool call to an end, whoever runs it.
    Settle(Box<Job>),
    /// Tell the world that a turn has ended.
    Emit(EmitJob),
}

/// All that a model call takes.
#[derive(Debug)]
pub struct CallJob {
    /// Of which turn.
    pub turn: TurnId,
    /// The call.
    pub call: CallId,
    /// Which try at it.
    pub attempt: Attempt,
    /// What to ask.
    pub request: Assembled,
    /// The trace that the turn belongs to.
    pub trace: Option<Traceparent>,
    /// Held while the call runs.
    pub permit: Arc<Permit>,
    /// What came of the tools that the call before asked for.
    pub results: Option<Results>,
    /// What stands before its text, because an earlier call has said something.
    pub seam: &'static str,
}

/// What came of the tools that a model call asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// That call.
    pub model_call: CallId,
    /// The tool calls.
    pub tools: Vec<ToolCall>,
}

/// All that giving a tool call away takes.
#[derive(Debug)]
pub struct PublishJob {
    /// What whoever runs it needs.
    pub job: Job,
    /// When it was asked for, by the writer's clock.
    pub asked_at: Timestamp,
    /// What is known of all calls of the same reply.
    pub results: Results,
}

/// All that running a tool takes.
#[derive(Debug)]
pub struct ToolJob {
    /// On behalf of which agent.
    pub agent: AgentName,
    /// Of which turn.
    pub turn: TurnId,
    /// What is known of all calls of the same reply.
    pub results: Results,
    /// The call.
    pub call: CallId,
    /// The tool.
    pub tool: ToolName,
    /// Its arguments, which fit the tool's schema.
    pub arguments: String,
    /// The longest it may take.
    pub timeout: Duration,
    /// The trace that the turn belongs to.
    pub trace: Option<Traceparent>,
}

/// All that telling the world takes.
#[derive(Debug)]
pub struct EmitJob {
    /// The turn's last frame.
    pub done: FrameKey,
    /// How it ended.
    pub outcome: TurnOutcome,
    /// What it used.
    pub usage: Usage,
    /// Bytes of text that its calls said in all.
    pub text_bytes: u64,
    /// Its calls and their attempts, for usage records.
    pub calls: Vec<(CallId, Attempt, Usage)>,
    /// The agent and model, for usage records.
    pub profile: Option<Profile>,
    /// What came of the tools that its last call asked for.
    pub results: Option<Results>,
    /// Its jobs.
    pub jobs: Vec<JobId>,
}

/// What came of the tools that the call before this one asked for, if it did.
pub(super) fn results_before(turn: &Turn, call: CallId) -> Option<Results> {
    let at = turn.steps.iter().position(|step| step.call == call).unwrap_or(turn.steps.len());
    let before = turn.steps.get(at.checked_sub(1)?)?;
    let tools = before.tools.clone();
    (!tools.is_empty()).then_some(Results { model_call: before.call, tools })
}

/// All that a tool call takes.
pub(super) fn tool_job(state: &SessionState, effect: &Effect, call: CallId) -> Option<SessionJob> {
    let turn = state.running()?;
    let mut all = turn.steps.iter().flat_map(|step| step.tools.iter().map(move |it| (step, it)));
    let (step, tool) = all.find(|(_, tool)| tool.call == call)?;
    let spec = state.profile.as_ref()?.tool(&tool.using.name)?;
    let (asked, session) = (tool.asked.as_ref()?, state.key.as_ref()?);
    let results = Results { model_call: step.call, tools: step.tools.clone() };
    let Some(capability) = &asked.capability else {
        return Some(SessionJob::Tool(ToolJob {
            agent: session.agent.clone(),
            turn: turn.id,
            results,
            call,
            tool: spec.name.clone(),
            arguments: tool.using.arguments.clone(),
            timeout: Duration::from_millis(u64::from(spec.timeout_ms)),
            trace: turn.trace.clone(),
        }));
    };
    let job = Job {
        id: JobId::from(call),
        capability: capability.clone(),
        session: session.clone(),
        turn: turn.id,
        call,
        nonce: asked.nonce,
        tool: spec.name.clone(),
        arguments: tool.using.arguments.clone(),
        class: spec.class,
        timeout_ms: spec.timeout_ms,
        traceparent: turn.trace.clone(),
    };
    Some(match effect {
        Effect::Settle { .. } => SessionJob::Settle(Box::new(job)),
        _ => SessionJob::Publish(PublishJob { job, asked_at: asked.at, results }),
    })
}

/// All that telling the world of a turn's end takes.
pub(super) fn emission(state: &SessionState, id: TurnId) -> SessionJob {
    let turn = state.turn(id);
    let steps = turn.map_or(&[][..], |turn| &turn.steps);
    let last = steps.last();
    SessionJob::Emit(EmitJob {
        done: turn.map_or_else(
            || FrameKey {
                turn: id,
                call: CallId::derive(id, 0),
                attempt: Attempt(0),
                index: FrameKey::DONE,
            },
            Turn::end_key,
        ),
        outcome: turn.and_then(|turn| turn.outcome.clone()).unwrap_or(TurnOutcome::Cancelled),
        usage: turn.map_or_else(Usage::default, |turn| turn.usage),
        text_bytes: turn.map_or(0, Turn::text_bytes),
        calls: steps
            .iter()
            .filter_map(|step| match &step.end {
                Some(StepEnd::Done { usage, .. } | StepEnd::Failed { usage, .. }) => {
                    Some((step.call, step.attempt, *usage))
                }
                None => None,
            })
            .collect(),
        profile: state.profile.clone(),
        jobs: steps.iter().flat_map(|step| &step.tools).filter_map(ToolCall::job).collect(),
        results: last
            .filter(|step| !step.tools.is_empty())
            .map(|step| Results { model_call: step.call, tools: step.tools.clone() }),
    })
}
