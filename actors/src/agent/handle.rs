//! What reaches one agent, and what calls get from it.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard},
};

use clawnode_budget::holder::{AccountsView, CallHold, HolderHandle};
use clawnode_guard::kill_switch::SwitchGate;
use clawnode_proto::{
    ProcessId,
    agents::AgentView,
    kill_switch::KillSwitch,
    lane::Lane,
    limits::SYSTEM_PROMPT_INLINE,
    llm::{ModelRef, Sampling, SystemPrompt, TextBlob},
    recall::Recalled,
    session::Profile,
};
use ractor::{Actor, ActorCell, ActorRef, SpawnErr};
use tokio::sync::oneshot;
use tracing::debug;

use super::{
    AgentOptions, CallTerms,
    actor::AgentActor,
    fair_queue::PoolTicket,
    preemption::Yielding,
    state::{Places, lock},
};

/// The right to make calls now, and the configuration to make them with.
#[derive(Clone, Debug)]
pub struct Grant {
    /// The agent's configuration, for its own model.
    pub profile: Arc<Profile>,
    /// What that was made from.
    pub options: Arc<AgentOptions>,
    /// Gives the place back when the call's job is dropped.
    pub permit: Arc<Permit>,
    /// Which accounts there were when the place was given.
    pub accounts: Arc<AccountsView>,
    /// The process whose slices are spent.
    pub process: ProcessId,
    /// What its turn is reminded of; absent before that was searched for.
    pub recalled: Option<Arc<Recalled>>,
    /// What the call may cost for which `hold` is reserved.
    pub terms: Option<Arc<CallTerms>>,
    /// What the call has reserved, if an account limits it.
    pub hold: Option<Arc<CallHold>>,
    /// The long system prompts of which it is known where the session has them.
    pub prompts: Vec<Arc<KnownPrompt>>,
}

/// A long system prompt, and where a session has it.
#[derive(Debug)]
pub struct KnownPrompt {
    pub text: String,
    /// Absent if the blob store refused it: the configuration has it in place.
    pub blob: Option<TextBlob>,
}

/// Where the answer to an admission goes. If it is dropped without a grant, the caller has to ask
/// again.
pub trait AdmitPort: Send + 'static {
    /// The call may start.
    fn granted(self: Box<Self>, grant: Grant);
    /// The call must wait; `granted` follows.
    fn deferred(&self);
    /// An operator stopped the call. One of a turn that has begun ends; another waits, and comes
    /// back.
    fn stopped(self: Box<Self>, switch: &KillSwitch) -> Option<Box<dyn AdmitPort>>;
    /// Whether anybody still waits.
    fn is_closed(&self) -> bool;
    /// The lane that the message of its turn named.
    fn lane(&self) -> Option<Lane> {
        None
    }
}

/// The right to run one call. Dropping it frees the place, also when its holder panics.
#[derive(Debug)]
pub struct Permit {
    pub(super) place: Option<(AgentHandle, PoolTicket)>,
    pub(super) lane: Lane,
}

/// Asks the actor of an agent for places of its calls. Clones share the actor.
#[derive(Clone, Debug)]
pub struct AgentHandle {
    pub(super) actor: ActorRef<AgentMessage>,
    pub(super) places: Arc<Mutex<Places>>,
}

/// The messages of an agent's actor.
pub(super) enum AgentMessage {
    /// A call wants to start and found no place.
    Admit(Box<dyn AdmitPort>),
    /// A call has ended while others wait.
    Release,
    /// The configuration has changed.
    Reload(Box<AgentOptions>),
    /// The pause has changed, in the whole cluster.
    Pause(bool),
    /// What operators have stopped has changed.
    KillSwitch,
    /// A request for the view.
    View(oneshot::Sender<AgentView>),
}

impl fmt::Debug for AgentMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Admit(_) => "Admit",
            Self::Release => "Release",
            Self::Reload(_) => "Reload",
            Self::Pause(_) => "Pause",
            Self::KillSwitch => "KillSwitch",
            Self::View(_) => "View",
        })
    }
}

// === impl Grant ===

impl Grant {
    /// A right outside the bound: for replays and the simulator.
    pub fn free(options: AgentOptions) -> Self {
        let profile = Arc::new(options.profile());
        let (permit, accounts) = (Permit::free(), Arc::default());
        let (options, process) = (Arc::new(options), ProcessId::from_u128(0));
        Self {
            profile,
            options,
            permit,
            accounts,
            process,
            recalled: None,
            terms: None,
            hold: None,
            prompts: Vec::new(),
        }
    }

    /// The same, whose calls reserve from this holder.
    #[must_use]
    pub fn within(self, budgets: &HolderHandle) -> Self {
        Self { accounts: budgets.accounts(), process: budgets.process(), ..self }
    }

    /// The configuration with the model that a turn has chosen, if it has, or with another one of that
    /// one's chain for these settings.
    pub fn profile_with(
        &self,
        choice: Option<&ModelRef>,
        settings: &Sampling,
        asked: impl FnOnce(&[ModelRef]) -> Option<ModelRef>,
    ) -> Arc<Profile> {
        let first = choice.unwrap_or(&self.options.model);
        let chain = self.options.chain_with(first, settings);
        let asked = asked(&chain).unwrap_or_else(|| first.clone());
        let is_whole = chain.len() == self.profile.models();
        let is_usual = *first == self.profile.model && asked == *first && is_whole;
        let real = self.options.profiles.real_window(&asked);
        if is_usual && real.is_none_or(|real| real >= self.profile.window_tokens) {
            return Arc::clone(&self.profile);
        }
        Arc::new(self.options.profile_of(&chain, &asked))
    }

    /// The same, where it is known whether the session has this system prompt in the blob store.
    #[must_use]
    pub fn with_prompt(mut self, text: String, blob: Option<TextBlob>) -> Self {
        self.prompts.push(Arc::new(KnownPrompt { text, blob }));
        self
    }

    /// Whether a configuration of the agent may have a system prompt that goes into the blob store.
    pub fn has_long_prompt(&self) -> bool {
        // With the empty line between the two.
        self.options.system.len() + self.options.skills.catalogue.len() + 2 > SYSTEM_PROMPT_INLINE
    }

    /// The system prompt of this configuration, if it is long and nothing is known of where the session has it.
    pub fn unplaced<'a>(&self, profile: &'a Profile) -> Option<&'a str> {
        let text = profile.system.inline();
        let is_known = || self.prompts.iter().any(|known| known.text == text);
        (text.len() > SYSTEM_PROMPT_INLINE && !is_known()).then_some(text)
    }

    /// A configuration that names its long system prompt by the blob of the session, as far as that is known.
    pub fn placed(&self, profile: Arc<Profile>) -> Arc<Profile> {
        let text = profile.system.inline();
        let known = self.prompts.iter().find(|known| known.text == text);
        match known.and_then(|known| known.blob) {
            Some(blob) => {
                Arc::new(Profile { system: SystemPrompt::Blob(blob), ..(*profile).clone() })
            }
            None => profile,
        }
    }
}

// === impl AgentHandle ===

impl AgentHandle {
    /// Starts an agent's actor.
    pub async fn spawn(
        options: AgentOptions,
        paused: bool,
        switch_gate: SwitchGate,
        budgets: HolderHandle,
        parent: ActorCell,
    ) -> Result<Self, SpawnErr> {
        let places = Arc::new(Mutex::new(Places::new(options, paused, switch_gate, budgets)));
        let spawned = AgentActor::spawn_linked(None, AgentActor, Arc::clone(&places), parent);
        Ok(Self { actor: spawned.await?.0, places })
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        lock(&self.places)
    }

    /// Takes a place, if one is free and no caller waits for it. `lane` is what the message of its turn named.
    pub fn place(&self, lane: Option<Lane>) -> Option<Grant> {
        self.places().take(self, lane)
    }

    /// Asks for a place; the port hears of it. An agent that is just being restarted answers
    /// nothing and drops the port, like one that dies with ports waiting.
    pub fn admit(&self, port: Box<dyn AdmitPort>) {
        self.tell(AgentMessage::Admit(port));
    }

    fn tell(&self, message: AgentMessage) {
        if self.actor.cast(message).is_err() {
            debug!("an agent stopped before it received a message");
        }
    }

    /// Takes a new configuration; turns from now on see it.
    pub fn reload(&self, options: AgentOptions) {
        self.tell(AgentMessage::Reload(Box::new(options)));
    }

    /// Takes the cluster's word on its pause.
    pub fn pause(&self, paused: bool) {
        self.tell(AgentMessage::Pause(paused));
    }

    /// What operators have stopped has changed: it looks.
    pub fn switch_changed(&self) {
        self.tell(AgentMessage::KillSwitch);
    }

    /// What it looks like now; nothing if it is being restarted.
    pub async fn view(&self) -> Option<AgentView> {
        let (reply, answer) = oneshot::channel();
        self.actor.cast(AgentMessage::View(reply)).ok()?;
        answer.await.ok()
    }

    /// Its actor, for the supervisor.
    pub fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }
}

impl Permit {
    /// A right outside the bound.
    pub fn free() -> Arc<Self> {
        Arc::new(Self::outside(Lane::default()))
    }

    /// The same in this lane.
    pub(crate) const fn outside(lane: Lane) -> Self {
        Self { place: None, lane }
    }

    /// The lane that its call is in.
    pub const fn lane(&self) -> Lane {
        self.lane
    }

    /// Its call has begun, and may be ended for another one from now on.
    pub(crate) fn may_yield(&self, call: &Arc<Yielding>) {
        if let Some((agent, ticket)) = &self.place {
            agent.places().may_yield(*ticket, Arc::clone(call));
        }
    }

    /// Its call has what it waited for, and begins: it may not be ended until then.
    pub(crate) fn stays(&self) {
        if let Some((agent, ticket)) = &self.place {
            agent.places().stays(*ticket);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some((agent, ticket)) = self.place.take() else { return };
        let others_wait = agent.places().leave(ticket);
        if others_wait {
            agent.tell(AgentMessage::Release);
        }
    }
}
