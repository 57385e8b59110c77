//! Running a session's effects: model calls with their frames, and what follows a turn.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use clawnode_cluster::{Backoff, Clock, Feed, Peek, StoreError, Substrate, membership::Members};
use clawnode_guard::latch::{Stopped, Work};
use clawnode_kernel::{
    Stop,
    driver::{Port, Runner},
};
use clawnode_proto::{
    AgentName, Attempt, CallId, Digest, EntityId, Epoch, ErrorChain, Frame, FrameBody, FrameKey,
    Input, InputId, JobId, ProcessId, Traceparent, TurnId, codec,
    error::{ErrorBody, ErrorCode},
    feed::{EventBody, brief},
    frame::{FrameBatch, Notice},
    limits::INLINE_BYTES,
    llm::{FailureClass, ModelFailure, ModelRef, UsageRecord},
    provider::ProviderKind,
};
use clawnode_tool::Available;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, debug, info_span, warn};

use super::{
    admission::{Admission, out_of_time, stopped},
    awaited::Waits,
    call::{Call, End},
    erase::{erase, open_jobs},
    frames::FrameHub,
};
use crate::session::{
    clients::{client::Sessions, follow::refusal_key},
    texts::stored_text,
    turn::{
        kind::{CallKey, Effect, Outcome, Session},
        prepare::{CallJob, EmitJob, SessionJob},
    },
};
use crate::{
    agent::{AdmitPort as _, AgentHandle, Agents, Grant},
    hook::Hooks,
    llm::{Model, Models},
};

/// The first and the longest wait before a store or bus that failed is tried again.
pub(in crate::session) const AGAIN: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(5));

/// How often, and how many times, a missing agent is looked for before its turn ends (20 s).
const AGENT_LOOK: Duration = Duration::from_secs(1);
const AGENT_LOOKS: u32 = 20;

/// Finds the model that a name means.
pub trait ResolveModel: Send + Sync + fmt::Debug + 'static {
    /// The model, or why there is none.
    fn resolve_model(&self, model: &ModelRef) -> Result<Arc<dyn Model>, ModelFailure>;
}

impl ResolveModel for Models {
    fn resolve_model(&self, model: &ModelRef) -> Result<Arc<dyn Model>, ModelFailure> {
        self.resolve(model).map_err(|error| {
            ModelFailure::new(FailureClass::Rejected, ErrorChain(&error).to_string())
        })
    }
}

/// Hangs a span under the trace that an input came with.
pub type TraceLink = Arc<dyn Fn(&Span, &Traceparent) + Send + Sync>;

/// What a session runner needs.
#[derive(Clone)]
pub struct RunnerParts {
    /// Where sessions, their jobs and what they wait for are stored.
    pub substrate: Substrate,
    /// The agents that answer.
    pub agents: Agents,
    /// Where hooks are run.
    pub hooks: Hooks,
    /// The models that are called.
    pub models: Arc<dyn ResolveModel>,
    /// The tools that this process can run now.
    pub available: watch::Receiver<Available>,
    /// How long at most a tool call waits until a node takes it.
    pub job_wait: Duration,
    /// The other processes.
    pub peers: watch::Receiver<Members>,
    /// Keeps frames for clients that resume.
    pub hub: FrameHub,
    /// What deadlines are measured by.
    pub clock: Arc<dyn Clock>,
    /// Hangs spans under the traces of inputs.
    pub link: TraceLink,
    /// Where operators are told what happens.
    pub feed: Feed,
}

/// Runs sessions' effects.
#[derive(Clone, Debug)]
pub struct SessionRunner {
    pub(in crate::session) parts: RunnerParts,
    pub(in crate::session) waits: Arc<Waits>,
}

impl fmt::Debug for RunnerParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunnerParts").finish_non_exhaustive()
    }
}

// === impl SessionRunner ===

impl SessionRunner {
    /// A runner that waits for no job yet.
    pub fn new(parts: RunnerParts) -> Self {
        Self { parts, waits: Arc::default() }
    }

    pub(in crate::session) async fn publish(
        &self,
        entity: EntityId,
        trace: Option<&Traceparent>,
        frames: Vec<Frame>,
    ) -> Result<(), StoreError> {
        let bytes = codec::encode(&FrameBatch { frames })
            .map_err(|failure| StoreError::Refused { store: "bus", detail: failure.to_string() })?;
        let subject = self.parts.substrate.prefix.frames(entity);
        self.parts.substrate.bus.publish(subject, trace.cloned(), Bytes::from(bytes)).await
    }

    /// Makes a model call; `None` if it was given up without an outcome, because this process is
    /// out of touch with the store.
    async fn call(
        self,
        entity: EntityId,
        job: CallJob,
        cancelled: CancellationToken,
    ) -> Option<Outcome> {
        let providers = self.parts.available.peek(|it| it.providers.clone());
        let in_hand = providers.begin(ProviderKind::Model, &job.request.model.provider);
        let mut call = Call::new(&self, entity, &job);
        let end = tokio::select! {
            biased;
            () = cancelled.cancelled() => End::Failed(ModelFailure::new(FailureClass::Cancelled, "cancelled".to_owned())),
            end = self.unless_stopped(&mut call, &job) => end?,
        };
        in_hand.called(match &end {
            End::Done { .. } => None,
            End::Failed(failure) => Some(failure.class),
        });
        call.flush().await;
        let Call { text, usage, tool_uses, .. } = call;
        let attempt = job.attempt;
        let (content, refused) =
            stored_text(&self.parts.substrate, entity, text, INLINE_BYTES).await;
        let end =
            refused.map_or(end, |why| End::Failed(ModelFailure::new(FailureClass::Lost, why)));
        Some(match end {
            End::Done { stop, model } => {
                Outcome::Done { attempt, content, stop, usage, model, tool_uses }
            }
            End::Failed(failure) => Outcome::Failed { attempt, failure, partial: content, usage },
        })
    }

    /// Makes a call with a pass of the latch's door.
    async fn unless_stopped(&self, call: &mut Call<'_>, job: &CallJob) -> Option<End> {
        let work = Work::Call { agent: job.agent.clone() };
        let pass = match self.parts.agents.door().pass(work).await {
            Ok(pass) => pass,
            Err(latch) => return Some(End::Failed(stopped(&latch))),
        };
        tokio::select! {
            biased;
            why = pass.stopped() => match why {
                Stopped::Latched(latch) => Some(End::Failed(stopped(&latch))),
                Stopped::OutOfTouch => None,
            },
            // Before the call: what has no time left is not asked of the provider.
            failure = out_of_time(job) => Some(End::Failed(failure)),
            end = call.run(job) => Some(end),
        }
    }

    /// Tells the client that its agent is missing, and ends the turn unless it comes soon: a reload
    /// may bring it, and nobody waits for ever.
    async fn miss(
        &self,
        entity: EntityId,
        agent: &AgentName,
        key: FrameKey,
        admission: Box<Admission>,
    ) {
        let message = format!("agent `{agent}` is not configured; the turn waits for it");
        let body = FrameBody::Notice(Notice { name: "agent_missing".to_owned(), message });
        if let Err(failure) = self.publish(entity, None, vec![Frame { key, body }]).await {
            debug!(%entity, %failure, "cannot publish a notice");
        }
        for _ in 0..AGENT_LOOKS {
            tokio::time::sleep(AGENT_LOOK).await;
            if admission.is_closed() {
                return;
            }
            if let Ok(handle) = self.parts.agents.get(agent) {
                handle.admit(admission);
                return;
            }
        }
        (*admission).refuse(ModelFailure::new(
            FailureClass::NoAgent,
            format!("agent `{agent}` of this session is not configured any more"),
        ));
    }

    /// Tells the world that a turn has ended, until the bus has it.
    async fn emit(&self, entity: EntityId, job: &EmitJob) {
        if let Some(results) = &job.results {
            self.tell_tools(entity, None, job.done.turn, results).await;
        }
        let mut frames = Vec::new();
        if let Some(error) = job.outcome.error() {
            let key = FrameKey { index: FrameKey::ERROR, ..job.done };
            frames.push(Frame { key, body: FrameBody::Error { error } });
        }
        let body = FrameBody::Done { outcome: job.outcome.clone(), text_bytes: job.text_bytes };
        frames.push(Frame { key: job.done, body });
        let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
        while let Err(failure) = self.publish(entity, None, frames.clone()).await {
            debug!(%entity, %failure, "cannot publish the end of a turn now; trying again");
            let wait = backoff.next(&mut rand::rng());
            tokio::time::sleep(wait).await;
        }
        let (turn, outcome) = (job.done.turn, job.outcome.name().to_owned());
        self.parts.feed.tell(EventBody::TurnEnded { session: entity, turn, outcome });
        self.close(entity, &job.jobs).await;
        self.forget_approvals(entity, &job.approvals).await;
        if let Some(timer) = job.timer {
            self.forget_timer(entity, timer).await;
        }
        // Not kept for who resumes: the journal has the end, and the next turn may run by now.
        self.parts.hub.ended(entity, job.done.turn);
        if let Some(profile) = &job.profile {
            for (call, attempt, usage) in &job.calls {
                let record = UsageRecord {
                    session: entity,
                    agent: profile.agent.clone(),
                    model: profile.model.clone(),
                    turn: job.done.turn,
                    call: *call,
                    attempt: *attempt,
                    usage: *usage,
                };
                self.record(&record).await;
            }
        }
    }

    /// `Settled` in the journal is the billing truth; this is for those who listen now.
    async fn record(&self, record: &UsageRecord) {
        let Ok(bytes) = codec::encode(record) else { return };
        let subject = self.parts.substrate.prefix.usage();
        if let Err(failure) =
            self.parts.substrate.bus.publish(subject, None, Bytes::from(bytes)).await
        {
            debug!(%failure, "cannot publish a usage record");
        }
    }
}

impl Runner<Session> for SessionRunner {
    fn acquire(
        &self,
        entity: EntityId,
        effect: &Effect,
        key: CallKey,
        port: &Port<Session>,
    ) -> Option<Grant> {
        let Effect::Call { agent, turn, call } = effect else { return None };
        let found = self.parts.agents.get(agent);
        if let Some(grant) = found.as_ref().ok().and_then(AgentHandle::place) {
            return Some(grant);
        }
        let begun = *call != CallId::derive(*turn, 0);
        let admission = Box::new(Admission { key, port: port.clone(), granted: false, begun });
        match found {
            Ok(handle) => handle.admit(admission),
            Err(failure) => {
                warn!(%entity, %failure, "a turn waits, because its agent is not configured here");
                admission.deferred();
                let (runner, agent) = (self.clone(), agent.clone());
                let frame = FrameKey { turn: *turn, call: *call, attempt: Attempt(0), index: 0 };
                // Detached: it ends by itself, or as soon as the session's actor is gone.
                drop(tokio::spawn(async move {
                    runner.miss(entity, &agent, frame, admission).await;
                }));
            }
        }
        None
    }

    fn run(
        &self,
        entity: EntityId,
        key: CallKey,
        job: SessionJob,
        port: Port<Session>,
        cancelled: CancellationToken,
    ) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        let runner = self.clone();
        match job {
            SessionJob::Call(job) => {
                let span = info_span!(
                    "session.call", session = %entity, turn = %job.turn, call = %job.call,
                    attempt = job.attempt.0
                );
                if job.call == CallId::derive(job.turn, 0) {
                    let turn = job.turn;
                    self.parts.feed.tell(EventBody::TurnStarted { session: entity, turn });
                }
                if let Some(trace) = &job.trace {
                    (self.parts.link)(&span, trace);
                }
                let run = async move {
                    match runner.call(entity, job, cancelled).await {
                        Some(outcome) => port.ended(key, outcome),
                        // It is made again, once this process is in touch with the store.
                        None => port.gone(key),
                    }
                };
                Box::pin(run.instrument(span))
            }
            SessionJob::Judge(job) => Box::pin(runner.judging(entity, key, *job, port, cancelled)),
            SessionJob::Tool(job) => {
                let span = info_span!(
                    "session.tool", session = %entity, turn = %job.turn, call = %job.call,
                    tool = %job.tool
                );
                if let Some(trace) = &job.trace {
                    (self.parts.link)(&span, trace);
                }
                let run = async move {
                    let (end, trail) = runner.tool(entity, job, cancelled).await;
                    port.ended(key, Outcome::Tool(end, trail));
                };
                Box::pin(run.instrument(span))
            }
            SessionJob::Publish(job) => Box::pin(async move {
                let given = runner.give(entity, &job);
                unless(cancelled, port, key, given).await;
            }),
            SessionJob::Settle(job) => Box::pin(async move {
                let (end, trail) = tokio::select! {
                    biased;
                    () = cancelled.cancelled() => return port.gone(key),
                    end = runner.settled(entity, &job) => end,
                };
                port.ended(key, Outcome::Tool(end, trail));
            }),
            SessionJob::Ask(job) => Box::pin(async move {
                let done = runner.ask(entity, &job);
                unless(cancelled, port, key, done).await;
            }),
            SessionJob::AskSteps(job) => Box::pin(async move {
                let done = runner.ask_steps(entity, &job);
                unless(cancelled, port, key, done).await;
            }),
            SessionJob::Time(job) => Box::pin(async move {
                let done = runner.time(entity, &job);
                unless(cancelled, port, key, done).await;
            }),
            SessionJob::Emit(job) => Box::pin(async move {
                runner.emit(entity, &job).await;
                port.confirmed(key);
            }),
        }
    }

    fn erase(
        &self,
        entity: EntityId,
        dropped: Vec<Input>,
    ) -> Pin<Box<dyn Future<Output = Option<Digest>> + Send>> {
        let sessions = Sessions::new(self.parts.substrate.clone(), Arc::clone(&self.parts.clock));
        let runner = self.clone();
        Box::pin(async move {
            // One out of service may have asked for some; what cannot be read asks for nothing.
            if let Ok(loaded) = sessions.load(entity).await {
                let jobs: Vec<JobId> = open_jobs(&loaded.records).into_iter().collect();
                runner.close(entity, &jobs).await;
            }
            let mut backoff = Backoff::new(AGAIN.0, AGAIN.1);
            loop {
                match erase(&sessions, entity, &dropped).await {
                    Ok(snapshot) => return snapshot,
                    Err(failure) => warn!(%entity, %failure, "a deletion failed; trying again"),
                }
                let wait = backoff.next(&mut rand::rng());
                tokio::time::sleep(wait).await;
            }
        })
    }

    fn claimed(&self, entity: EntityId, from: ProcessId, epoch: Epoch) {
        self.parts.feed.tell(EventBody::Claimed { session: entity, from, epoch });
    }

    fn left(&self, entity: EntityId, waiting: &[InputId], stop: &Stop) {
        self.parts.hub.forget(entity);
        let happened = match stop {
            Stop::Passivated
            | Stop::Released
            | Stop::GaveWay
            | Stop::TooNew(_)
            | Stop::Defect(_) => None,
            Stop::Fenced => Some(EventBody::Fenced { session: entity }),
            Stop::Quarantined(reason) => {
                Some(EventBody::Quarantined { session: entity, reason: brief(reason) })
            }
            Stop::Corrupt(detail) | Stop::Diverged(detail) => Some(EventBody::Warning {
                name: "session.corrupt".to_owned(),
                message: brief(&format!("session `{entity}`: {detail}")),
            }),
        };
        if let Some(happened) = happened {
            self.parts.feed.tell(happened);
        }
        let error = match stop {
            // Another process answers for what waits, now or once there is one that can.
            Stop::Passivated
            | Stop::Released
            | Stop::GaveWay
            | Stop::Fenced
            | Stop::TooNew(_)
            | Stop::Defect(_) => return,
            Stop::Quarantined(reason) => ErrorBody::new(
                ErrorCode::Quarantined,
                format!("session `{entity}` is out of service: {reason}; the message is parked"),
            )
            .hint(format!("see `clawnode quarantine show {entity}`")),
            Stop::Corrupt(detail) | Stop::Diverged(detail) => {
                ErrorBody::new(ErrorCode::Corrupt, detail.clone()).hint(format!(
                    "see `clawnode journal verify {entity}`, then restore a backup or repair it"
                ))
            }
        };
        for input in waiting {
            let runner = self.clone();
            let key = refusal_key(TurnId::from(*input));
            let frame = Frame { key, body: FrameBody::Error { error: error.clone() } };
            // Detached: the actor that would hold it is stopping, and it ends by itself.
            drop(tokio::spawn(async move {
                if let Err(failure) = runner.publish(entity, None, vec![frame]).await {
                    debug!(%entity, %failure, "cannot publish a refusal");
                }
            }));
        }
    }
}

/// Does what only has to be done as long as it is wanted.
async fn unless(
    cancelled: CancellationToken,
    port: Port<Session>,
    key: CallKey,
    work: impl Future<Output = ()>,
) {
    tokio::select! {
        biased;
        () = cancelled.cancelled() => port.gone(key),
        () = work => port.confirmed(key),
    }
}
