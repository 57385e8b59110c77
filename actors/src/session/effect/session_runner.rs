//! Runs the effects of sessions: gives calls their place, and handles sessions that are claimed, leave memory
//! or are deleted.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use clawnode_budget::holder::HolderHandle;
use clawnode_cluster::{Clock, Feed, Storage, membership::Members};
use clawnode_kernel::{
    ActivationEnd, KnownKinds, MachineOptions,
    driver::{
        AddKind, EffectRunner, Kinds, Performing, Port, erase_until_done, show_claimed, show_left,
    },
};
use clawnode_proto::{
    AgentName, Attempt, CallId, Digest, EntityId, Epoch, ErrorChain, Frame, FrameBody, FrameKey,
    Input, InputId, JobId, ProcessId, Traceparent, TurnId,
    error::{ErrorBody, ErrorCode},
    frame::Notice,
    llm::{FailureClass, ModelFailure, ModelRef},
};
use clawnode_tool::{Available, skill::SkillShelf};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{Span, debug, warn};

use super::{
    admission::{AgentAnswer, TurnCount},
    awaited_jobs::AwaitedJobs,
    erase::{erase, open_jobs},
    kept_frames::FrameHub,
    recall_search::RecallStore,
    waiting_holds::WaitingHolds,
};
use crate::session::{
    clients::{follow::refusal_key, sessions::Sessions},
    turn::{
        effect::{Effect, Want},
        kind::Session,
        memory::recall_for_turn::{RecallAsk, RecallFinds},
        prepare::EffectJob,
    },
};
use crate::{
    agent::{AdmitPort as _, Agents, Grant},
    hook::Hooks,
    llm::{MAX_CALLS, Model, Models},
};

/// The first and the longest wait before a store or bus that failed is tried again.
pub(in crate::session) const AGAIN: (Duration, Duration) =
    (Duration::from_millis(100), Duration::from_secs(5));

/// How often, and how many times, to look for a missing agent before its turn ends (20 s).
const AGENT_LOOK: Duration = Duration::from_secs(1);
const AGENT_LOOKS: u32 = 20;

/// Finds a model by its name.
pub trait ResolveModel: Send + Sync + fmt::Debug + 'static {
    /// The model, or why there is none.
    fn resolve_model(&self, model: &ModelRef) -> Result<Arc<dyn Model>, ModelFailure>;

    /// How many calls this process makes of a provider at a time.
    fn max_calls(&self, _provider: &str) -> u32 {
        MAX_CALLS
    }
}

impl ResolveModel for Models {
    fn resolve_model(&self, model: &ModelRef) -> Result<Arc<dyn Model>, ModelFailure> {
        self.resolve(model).map_err(|error| {
            let failure = ModelFailure::new(FailureClass::Rejected, ErrorChain(&error).to_string());
            // No provider has read the request.
            ModelFailure { keeps_attachments: true, ..failure }
        })
    }

    fn max_calls(&self, provider: &str) -> u32 {
        self.max_calls_of(provider)
    }
}

/// Makes a span a part of the trace that an input came with.
pub type TraceLink = Arc<dyn Fn(&Span, &Traceparent) + Send + Sync>;

/// What a session runner needs.
#[derive(Clone)]
pub struct RunnerParts {
    /// The storage of sessions and their jobs.
    pub storage: Storage,
    /// The agents that answer.
    pub agents: Agents,
    /// From which calls reserve what they may cost.
    pub budgets: HolderHandle,
    /// Runs hooks.
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
    /// Where turns look for what they are reminded of, if anywhere.
    pub memory: Option<RecallStore>,
    /// The skills of the agents, and where they write new ones.
    pub skills: SkillShelf,
    /// The clock for deadlines.
    pub clock: Arc<dyn Clock>,
    /// Makes spans parts of the traces of inputs.
    pub link: TraceLink,
    /// The event feed for operators.
    pub feed: Feed,
}

/// Runs sessions' effects.
#[derive(Clone, Debug)]
pub struct SessionRunner {
    /// Each effect has a copy of the runner.
    pub(in crate::session) parts: Arc<RunnerParts>,
    pub(in crate::session) waits: Arc<AwaitedJobs>,
    pub(in crate::session) holds: WaitingHolds,
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
        Self { parts: Arc::new(parts), waits: Arc::default(), holds: WaitingHolds::default() }
    }

    /// Tells the client that its agent is missing. Ends the turn unless the agent appears soon, for example
    /// by a reload.
    async fn miss(
        &self,
        entity: EntityId,
        agent: AgentName,
        turn: TurnId,
        call: CallId,
        admission: Box<AgentAnswer>,
    ) {
        let key = FrameKey { turn, call, attempt: Attempt(0), index: 0 };
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
            if let Ok(handle) = self.parts.agents.get(&agent) {
                handle.admit(admission);
                return;
            }
        }
        (*admission).refuse(ModelFailure::new(
            FailureClass::NoAgent,
            format!("agent `{agent}` of this session is not configured any more"),
        ));
    }
}

impl SessionRunner {
    /// Has a store search for what a turn is reminded of. Without a store, there is nothing.
    fn recall(
        &self,
        entity: EntityId,
        effect: Effect,
        grant: Grant,
        ask: RecallAsk,
        port: &Port<Session>,
    ) -> Option<Grant> {
        let Some(store) = self.parts.memory.clone() else {
            let nothing = ask.recalled("", "", RecallFinds::default());
            return Some(Grant { recalled: Some(Arc::new(nothing)), ..grant });
        };
        let (runner, untaught) = (self.clone(), ask.untaught.clone());
        let taught = async move {
            for learns in &untaught {
                runner.teach(entity, learns).await;
            }
        };
        let (runner, said) = (self.clone(), ask.text.clone());
        let text = async move { runner.text(&said).await.map_err(|failure| failure.message) };
        store.recall(effect, grant, ask, port.clone(), taught, text);
        None
    }
}

impl AddKind for Session {
    fn serve(kinds: Kinds, runner: Arc<dyn EffectRunner<Self>>, machine: MachineOptions) -> Kinds {
        kinds.with::<Self>(runner, machine)
    }

    fn know(known: KnownKinds) -> KnownKinds {
        known.with::<Self>()
    }
}

impl EffectRunner<Session> for SessionRunner {
    fn acquire(
        &self,
        entity: EntityId,
        effect: Effect,
        want: Want,
        port: &Port<Session>,
    ) -> Option<Grant> {
        let (agent, turn, call, is_new, lane) = match want {
            Want::Place { agent, turn, call, is_new, lane } => (agent, turn, call, is_new, lane),
            Want::Recall { grant, ask, .. } => {
                return self.recall(entity, effect, *grant, *ask, port);
            }
            Want::Prompt(wanted) => return self.store_prompt(entity, effect, *wanted, port),
            Want::Hold(wanted) => return self.reserve(entity, effect, *wanted, port),
        };
        let found = self.parts.agents.get(&agent);
        // A summary comes before the first call of its turn.
        let begun = !call.is_at(turn, 0) && !is_new;
        let turns = TurnCount::new(self.parts.agents.switch_gate(), begun, is_new);
        if let Some(grant) = found.as_ref().ok().and_then(|agent| agent.place(lane))
            && turns.allows(&grant)
        {
            return Some(grant);
        }
        let port = port.clone();
        let admission = Box::new(AgentAnswer { effect, port, granted: false, turns, lane });
        match found {
            Ok(handle) => handle.admit(admission),
            // Its turn has ended, and nothing waits for it.
            Err(failure) if matches!(effect, Effect::Reflect { .. }) => {
                let why = failure.to_string();
                (*admission).refuse(ModelFailure::new(FailureClass::NoAgent, why));
            }
            Err(failure) => {
                warn!(%entity, %failure, "a turn waits, because its agent is not configured here");
                admission.deferred();
                let runner = self.clone();
                // Detached: it ends by itself, or as soon as the session's actor is gone.
                drop(tokio::spawn(async move {
                    runner.miss(entity, agent, turn, call, admission).await;
                }));
            }
        }
        None
    }

    fn released(&self, entity: EntityId, effect: &Effect) {
        self.holds.withdraw(entity, *effect);
    }

    fn run(
        &self,
        entity: EntityId,
        effect: Effect,
        job: EffectJob,
        port: Port<Session>,
        cancelled: CancellationToken,
    ) -> Performing {
        self.performing(entity, effect, job, port, cancelled)
    }

    fn erase(
        &self,
        entity: EntityId,
        dropped: Vec<Input>,
    ) -> Pin<Box<dyn Future<Output = Option<Digest>> + Send>> {
        let sessions = Sessions::new(self.parts.storage.clone(), Arc::clone(&self.parts.clock));
        let runner = self.clone();
        Box::pin(async move {
            // A session out of service may have open jobs. A record that cannot be read has none.
            if let Ok(loaded) = sessions.load(entity).await {
                let jobs: Vec<JobId> = open_jobs(&loaded.records).into_iter().collect();
                runner.close(entity, &jobs).await;
            }
            erase_until_done(entity, || erase(&sessions, entity, &dropped)).await
        })
    }

    fn claimed(&self, entity: EntityId, from: ProcessId, epoch: Epoch) {
        show_claimed(&self.parts.feed, entity, from, epoch);
    }

    fn left(&self, entity: EntityId, waiting: &[InputId], stop: &ActivationEnd) {
        self.parts.hub.forget(entity);
        show_left::<Session>(&self.parts.feed, entity, stop);
        let error = match stop {
            // Another process answers for the waiting inputs, now or once there is one that can.
            ActivationEnd::Passivated
            | ActivationEnd::Released
            | ActivationEnd::GaveWay
            | ActivationEnd::Fenced
            | ActivationEnd::TooNew(_)
            | ActivationEnd::Defect(_) => return,
            ActivationEnd::Quarantined(reason) => ErrorBody::new(
                ErrorCode::Quarantined,
                format!("session `{entity}` is out of service: {reason}; the message is parked"),
            )
            .hint(format!("see `clawnode quarantine show {entity}`")),
            ActivationEnd::Corrupt(detail) | ActivationEnd::Diverged(detail) => {
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
