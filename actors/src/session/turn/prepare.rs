//! What performing a session's effects takes, prepared from its state: pure.

use std::{sync::Arc, time::Duration};

use clawnode_proto::{
    AgentName, Attempt, CallId, Digest, FrameKey, JobId, SessionKey, TimerId, Timestamp, ToolName,
    Traceparent, TurnId,
    client_tool::ClientCalls,
    frame::Notice,
    hook::{HookPoint, HookSpec},
    job::{Callbacks, Job},
    limits::JOB_AGE_MAX,
    llm::Usage,
    memory::MemorySource,
    policy::{Action, Approval},
    session::{ToolEnd, TurnOutcome},
    timeout::TimeLimit,
    tool::{ToolOutcome, ToolSpec},
};

use super::{
    context::model_input::Assembled,
    effect::Effect,
    ending::{EmittedCall, emitted, emitted_summary},
    hooks,
    memory::learning::{self, LearnJob, LessonsJob},
    memory::shown_passages::ShownPassages,
    memory::turn_feedback::MemoryRating,
    state::{SessionState, Turn},
    tools::tool_calls::{ToolCall, action_of},
    tools::tool_frames::ToolFrames,
};
use crate::agent::{CallBill, Permit};

/// All that performing an effect takes.
#[derive(Debug)]
pub struct EffectJob {
    /// What is recorded of the turn's tools, which clients see before the job is done.
    pub told: Option<ToolFrames>,
    /// The trace that the turn belongs to.
    pub trace: Option<Traceparent>,
    /// What is done.
    pub job: SessionJob,
}

/// What is done for an effect.
#[derive(Debug)]
pub enum SessionJob {
    /// Ask hooks.
    Judge(Box<JudgeJob>),
    /// Make a model call.
    Call(CallJob),
    /// Run a tool.
    Tool(ToolJob),
    /// Give a tool call to a runner that can run it.
    Publish(PublishJob),
    /// Bring a tool call to an end, on any runner.
    Settle(Box<SettleJob>),
    /// Ask people about a tool call.
    Ask(Box<AskJob>),
    /// Ask a client to run tools.
    AskClient(AskClientJob),
    /// Ask people whether a turn shall go on.
    AskSteps(AskStepsJob),
    /// Set the timer that ends a turn, its step, or its wait for a provider.
    Time(TimeJob),
    /// Tell the world that a turn has ended.
    Emit(EmitJob),
    /// Send memories which points feedback moves.
    Rate(Vec<MemoryRating>),
    /// Send the memory the lessons of a reflection.
    Teach(Box<LessonsJob>),
}

/// All that a model call takes.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is decided by another rule")]
pub struct CallJob {
    /// On behalf of which agent.
    pub agent: AgentName,
    pub turn: TurnId,
    pub call: CallId,
    /// Which try at it.
    pub attempt: Attempt,
    /// What to ask.
    pub request: Assembled,
    /// Held while the call runs.
    pub permit: Arc<Permit>,
    /// What comes before its text, because an earlier call has said something.
    pub seam: &'static str,
    /// Whether the model is asked to correct its reply: what people were shown of that is void.
    pub corrects: bool,
    /// Whether clients are shown nothing of it.
    pub is_silent: bool,
    /// What its turn and step have left for it.
    pub limit: Option<TimeLimit>,
    /// What clients get first: why the attempt before this one gave way.
    pub notice: Option<Notice>,
    /// Whether another model can be asked if this one does not answer.
    pub has_other: bool,
    /// The weight of its agent among those that wait for a provider.
    pub weight: u32,
    /// Whether it may be ended for a more urgent call: it was not ended so too often.
    pub may_yield: bool,
    /// What it has reserved, if a limit holds.
    pub paid: Option<CallBill>,
}

/// All that setting the timer of a turn takes.
#[derive(Clone, Debug)]
pub struct TimeJob {
    /// Whose turn.
    pub session: SessionKey,
    pub timer: TimerId,
    pub due: Timestamp,
}

/// All that bringing a tool call to an end takes.
#[derive(Clone, Debug)]
pub struct SettleJob {
    /// The job that its runner was given.
    pub job: Job,
    /// The limit that ends it; absent if no runner took it in time.
    pub late: Option<TimeLimit>,
    /// The hooks that judge its result.
    pub after: Vec<HookSpec>,
}

/// All that asking hooks takes.
#[derive(Debug)]
pub struct JudgeJob {
    pub session: SessionKey,
    pub turn: TurnId,
    pub call: CallId,
    /// What they are asked about.
    pub subject: JudgeSubject,
    /// Who is asked, in order.
    pub hooks: Vec<HookSpec>,
    /// Held while they are asked, if a model call follows.
    pub permit: Option<Arc<Permit>>,
}

/// What hooks are asked about.
#[derive(Debug)]
pub enum JudgeSubject {
    /// A model request.
    Model(Assembled),
    /// A tool call.
    Tool {
        /// The tool.
        spec: ToolSpec,
        /// The arguments that the model gave.
        arguments: String,
    },
    /// The result of a tool call.
    Result {
        tool: ToolName,
        /// What it was run with.
        arguments: String,
        /// Its result.
        outcome: ToolOutcome,
    },
}

/// All that giving a tool call away takes.
#[derive(Debug)]
pub struct PublishJob {
    /// What its runner needs.
    pub job: Job,
    /// When it was asked for, by the writer's clock.
    pub asked_at: Timestamp,
    /// It may have been given away before.
    pub again: bool,
}

/// All that asking people about a tool call takes.
#[derive(Debug)]
pub struct AskJob {
    /// What they are shown.
    pub approval: Approval,
}

/// All that asking a client to run tools takes.
#[derive(Debug)]
pub struct AskClientJob {
    /// Whose turn.
    pub session: SessionKey,
    pub turn: TurnId,
    /// The model call whose reply asks for them.
    pub call: CallId,
    /// What the client is asked to run, and until when it is waited for.
    pub calls: ClientCalls,
}

/// All that asking people whether a turn shall go on takes.
#[derive(Debug)]
pub struct AskStepsJob {
    /// Whose turn.
    pub session: SessionKey,
    pub turn: TurnId,
    /// The steps that it has used up.
    pub limit: u32,
    /// What ends the wait.
    pub timer: TimerId,
    pub until: Timestamp,
}

/// All that running a tool takes.
#[derive(Debug)]
pub struct ToolJob {
    /// On behalf of which agent.
    pub agent: AgentName,
    pub turn: TurnId,
    pub call: CallId,
    pub tool: ToolName,
    /// Its arguments, which fit the tool's schema.
    pub arguments: String,
    /// How long it may take.
    pub limit: TimeLimit,
    /// The digest of the action that was decided on.
    pub action: Digest,
    /// That action, with what the session knows about the program behind the tool.
    pub would: Action,
    /// What memories learn from it has this source. Absent: they learn nothing.
    pub source: Option<MemorySource>,
    /// What the model that made it reads of the conversation, so that no search need find that again.
    pub shown: ShownPassages,
    /// The hooks that judge its result.
    pub after: Vec<HookSpec>,
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
    /// Its reply as JSON, if it had to fit a schema and does.
    pub structured: Option<String>,
    /// Its calls, for usage records.
    pub calls: Vec<EmittedCall>,
    /// Whose they are.
    pub agent: Option<AgentName>,
    /// What memories may learn from it.
    pub learns: Option<LearnJob>,
    /// Its jobs.
    pub jobs: Vec<JobId>,
    /// The timers that may still be set for it.
    pub timers: Vec<TimerId>,
    /// Its calls that people were asked about.
    pub approvals: Vec<CallId>,
    /// Its model calls with tools that its client was asked to run.
    pub clients: Vec<CallId>,
}

// === impl Effect ===

impl Effect {
    /// All that performing it takes; nothing for a model call, which needs a grant.
    pub(in crate::session) fn prepare(
        self,
        state: &SessionState,
        again: bool,
    ) -> Option<EffectJob> {
        match self {
            Self::Call { .. } | Self::Compact { .. } | Self::Reflect { .. } => None,
            Self::Judge { call, point } => judge_job(state, call, point),
            Self::Tool { call } | Self::Publish { call } | Self::Settle { call, .. } => {
                tool_job(state, self, call, again)
            }
            Self::Ask { call } => ask_job(state, call),
            Self::AskClient { call } => ask_client_job(state, call),
            Self::AskSteps { .. } => ask_steps_job(state),
            Self::Time { turn, fired, due } => {
                let (session, timer) = (state.key.clone()?, state.turn(turn)?.time_timer(fired));
                let job = SessionJob::Time(TimeJob { session, timer, due });
                Some(EffectJob { told: None, trace: None, job })
            }
            Self::Outage { call, number, until: due } => {
                let (session, timer) = (state.key.clone()?, TimerId::of_outage(call, number));
                let turn = state.running()?;
                let job = SessionJob::Time(TimeJob { session, timer, due });
                Some(EffectJob { told: turn.wait_frames(), trace: turn.trace.clone(), job })
            }
            Self::Emit { turn } => Some(emission(state, turn)),
            Self::Rate { feedback } => {
                let job = SessionJob::Rate(state.ratings(feedback)?);
                Some(EffectJob { told: None, trace: None, job })
            }
            Self::Teach { call } => {
                let job = SessionJob::Teach(Box::new(state.lessons(call)?));
                Some(EffectJob { told: None, trace: None, job })
            }
        }
    }
}

/// All that a tool call takes.
fn tool_job(state: &SessionState, effect: Effect, call: CallId, again: bool) -> Option<EffectJob> {
    let turn = state.running()?;
    let mut all =
        turn.steps.iter().flat_map(|step| step.tools.iter().map(move |tool| (step, tool)));
    let (step, tool) = all.find(|(_, tool)| tool.call == call)?;
    let spec = state.profile.as_ref()?.tool(&tool.using.name)?;
    let (asked, session) = (tool.asked.as_ref()?, state.key.as_ref()?);
    let (told, trace) = (Some(ToolFrames::of(turn, step)), turn.trace.clone());
    let would = action_of(session, turn.id, tool, spec);
    // What a person approved, if one was asked: whatever has changed since is not that.
    let approved = tool.approval.as_ref().map(|approval| approval.action);
    let action = approved.or_else(|| would.digest().ok())?;
    let limit = asked.limit.clone();
    // What was begun by a build that knew no limits has what its tool gives it.
    let limit = limit.unwrap_or_else(|| {
        let time = spec.time();
        time.limit(time.asked_s(tool.arguments()), Vec::new())
    });
    let profile = state.profile.as_ref()?;
    let after = hooks::of_tool(profile, HookPoint::AfterToolCall, &tool.using.name);
    let Some(capability) = &asked.capability else {
        let job = SessionJob::Tool(ToolJob {
            agent: session.agent.clone(),
            turn: turn.id,
            call,
            tool: spec.name.clone(),
            arguments: tool.arguments().to_owned(),
            limit,
            action,
            would,
            source: asked.source(session.entity()),
            shown: ShownPassages::of_tool(state, turn.id, &spec.name),
            after,
        });
        return Some(EffectJob { told, trace, job });
    };
    let callbacks = state.profile.as_ref().and_then(|profile| Callbacks::of(profile, &spec.name));
    let job = Job {
        id: JobId::from(call),
        capability: capability.clone(),
        session: session.clone(),
        turn: turn.id,
        call,
        nonce: asked.nonce,
        tool: spec.name.clone(),
        arguments: tool.arguments().to_owned(),
        class: spec.class,
        timeout_ms: spec.timeout_ms,
        limit: Some(limit),
        action: Some(action),
        callbacks,
        traceparent: turn.trace.clone(),
        not_after: Some(asked.at.plus(JOB_AGE_MAX)),
    };
    if let Effect::Settle { .. } = effect {
        let late = tool.late.clone();
        let job = SessionJob::Settle(Box::new(SettleJob { job, late, after }));
        return Some(EffectJob { told: None, trace, job });
    }
    let job = SessionJob::Publish(PublishJob { job, asked_at: asked.at, again });
    Some(EffectJob { told, trace, job })
}

/// All that asking hooks about a model call takes.
pub(in crate::session) fn judge_model_job(
    state: &SessionState,
    turn: &Turn,
    call: CallId,
    request: Assembled,
    hooks: Vec<HookSpec>,
    permit: &Arc<Permit>,
) -> Option<EffectJob> {
    let job = SessionJob::Judge(Box::new(JudgeJob {
        session: state.key.clone()?,
        turn: turn.id,
        call,
        subject: JudgeSubject::Model(request),
        hooks,
        permit: Some(Arc::clone(permit)),
    }));
    Some(EffectJob { told: None, trace: turn.trace.clone(), job })
}

/// All that asking hooks about a tool call, or its result, takes.
fn judge_job(state: &SessionState, call: CallId, point: HookPoint) -> Option<EffectJob> {
    let (turn, session, profile) = (state.running()?, state.key.as_ref()?, state.profile.as_ref()?);
    let tool = turn.steps.iter().flat_map(|step| &step.tools).find(|tool| tool.call == call)?;
    let spec = profile.tool(&tool.using.name)?.clone();
    let arguments = tool.arguments().to_owned();
    let subject = match (point, &tool.brought) {
        (HookPoint::BeforeToolCall, _) => JudgeSubject::Tool { spec, arguments },
        (HookPoint::AfterToolCall, Some(ToolEnd::Known { outcome })) => {
            JudgeSubject::Result { tool: spec.name, arguments, outcome: outcome.clone() }
        }
        (HookPoint::AfterToolCall | HookPoint::BeforeLlmCall, _) => return None,
    };
    let job = SessionJob::Judge(Box::new(JudgeJob {
        session: session.clone(),
        turn: turn.id,
        call,
        subject,
        hooks: hooks::of_tool(profile, point, &tool.using.name),
        permit: None,
    }));
    Some(EffectJob { told: None, trace: turn.trace.clone(), job })
}

/// All that asking people about a tool call takes.
fn ask_job(state: &SessionState, call: CallId) -> Option<EffectJob> {
    let (turn, session) = (state.running()?, state.key.as_ref()?);
    let mut all =
        turn.steps.iter().flat_map(|step| step.tools.iter().map(move |tool| (step, tool)));
    let (step, tool) = all.find(|(_, tool)| tool.call == call)?;
    let spec = state.profile.as_ref()?.tool(&tool.using.name)?;
    let approval = tool.approval.as_ref()?.shown(action_of(session, turn.id, tool, spec));
    let (told, trace) = (Some(ToolFrames::of(turn, step)), turn.trace.clone());
    Some(EffectJob { told, trace, job: SessionJob::Ask(Box::new(AskJob { approval })) })
}

/// All that asking a client to run tools takes.
fn ask_client_job(state: &SessionState, call: CallId) -> Option<EffectJob> {
    let (turn, session) = (state.running()?, state.key.clone()?);
    let step = turn.steps.iter().find(|step| step.call == call)?;
    let (told, trace) = (Some(ToolFrames::of(turn, step)), turn.trace.clone());
    let job = AskClientJob { session, turn: turn.id, call, calls: step.client_calls()? };
    Some(EffectJob { told, trace, job: SessionJob::AskClient(job) })
}

/// All that asking people whether the running turn shall go on takes.
fn ask_steps_job(state: &SessionState) -> Option<EffectJob> {
    let (turn, session) = (state.running()?, state.key.as_ref()?);
    let (reached, last) = (turn.limit_reached?, turn.steps.last()?);
    let wait = Duration::from_millis(u64::from(state.profile.as_ref()?.step_wait_ms));
    let message = format!(
        "the turn has used all {} steps; continue it within {} s (`clawnode sessions continue`), or \
         it ends",
        reached.limit,
        wait.as_secs()
    );
    let told = ToolFrames::of(turn, last).and_notice("stepLimitReached", message);
    let (session, until) = (session.clone(), reached.at.plus(wait));
    let (limit, timer) = (reached.limit, turn.steps_timer(reached.limit));
    let job = SessionJob::AskSteps(AskStepsJob { session, turn: turn.id, limit, timer, until });
    Some(EffectJob { told: Some(told), trace: turn.trace.clone(), job })
}

/// All that telling the world of a turn's end takes.
fn emission(state: &SessionState, id: TurnId) -> EffectJob {
    let turn = state.turn(id);
    let steps = turn.map_or(&[][..], |turn| &turn.steps);
    let job = SessionJob::Emit(EmitJob {
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
        structured: turn.and_then(|turn| turn.structured.clone()),
        // Planned steps are no calls of a model.
        calls: steps
            .iter()
            .filter(|_| turn.is_some_and(|turn| turn.plan.is_none()))
            .flat_map(|step| emitted(state, step))
            .chain(turn.and_then(emitted_summary))
            .collect(),
        agent: state.profile.as_ref().map(|profile| profile.agent.clone()),
        learns: turn.and_then(|turn| learning::job(state, turn)),
        timers: turn.map_or_else(Vec::new, |turn| {
            let time = turn.last_timer().map(|(_turn, timer)| timer);
            time.into_iter().chain(turn.outage_timer()).collect()
        }),
        jobs: steps.iter().flat_map(|step| &step.tools).filter_map(ToolCall::job).collect(),
        approvals: steps
            .iter()
            .flat_map(|step| &step.tools)
            .filter(|tool| tool.approval.is_some())
            .map(|tool| tool.call)
            .collect(),
        clients: steps
            .iter()
            .filter(|step| step.tools.iter().any(ToolCall::is_of_client))
            .map(|step| step.call)
            .collect(),
    });
    EffectJob { told: turn.and_then(ToolFrames::of_last), trace: None, job }
}
