//! What must be under way for a session: the one spelling of an effect, from decision to cancellation; and how it
//! ends.
//!
//! A new effect is a variant here, with its class. `kind` decides when it is due, `prepare` what
//! performing it takes, and the runner's `perform` does it.

use clawnode_budget::holder::CallNeeds;
use clawnode_kernel::EffectKind;
use clawnode_proto::{
    AgentName, Attempt, CallId, Digest, InputId, Timestamp, TurnId,
    block::Blocks,
    hook::{HookPoint, HookTrail, ModelPatch},
    lane::Lane,
    llm::{ModelFailure, StopReason, Text, TextBlob, Usage},
    session::{ToolEnd, TurnOutcome},
    tool::{ToolOutcome, ToolUse},
};

use super::{memory::recall_for_turn::RecallAsk, state_parts::reflection_state::emitted_as};
use crate::agent::Grant;

/// What must be under way for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Effect {
    /// A model call, or the planned step in its place.
    Call { turn: TurnId, call: CallId },
    /// A model call that makes a summary of older turns.
    Compact { turn: TurnId, call: CallId },
    /// A model call that looks back at a turn which has ended.
    Reflect { turn: TurnId, call: CallId },
    /// A tool call, or its result, that hooks are asked about.
    Judge {
        call: CallId,
        /// About the call or its result.
        point: HookPoint,
    },
    /// A tool call that runs beside the session.
    Tool { call: CallId },
    /// A tool call that another node may run.
    Publish { call: CallId },
    /// A tool call whose time is over.
    Settle {
        call: CallId,
        /// Whether the time of its turn or step is over, not only the wait for a node: its runner is asked to
        /// stop.
        late: bool,
    },
    /// A tool call that people are asked about.
    Ask { call: CallId },
    /// The tools of a model call's reply that a client runs.
    AskClient {
        /// The model call.
        call: CallId,
    },
    /// A turn that has used up its steps; people may give it more.
    AskSteps {
        turn: TurnId,
        /// How many it had.
        limit: u32,
    },
    /// The timer that ends a turn or its step.
    Time {
        turn: TurnId,
        /// How many of its timers have fired.
        fired: u32,
        due: Timestamp,
    },
    /// The timer that ends a call's wait for a provider.
    Outage {
        call: CallId,
        /// Which wait of it.
        number: u32,
        until: Timestamp,
    },
    /// A turn's post-turn effects.
    Emit { turn: TurnId },
    /// Memories are sent which points feedback moves.
    Rate { feedback: InputId },
    /// The memory is sent the lessons of a reflection that has ended.
    Teach {
        /// The call that made it.
        call: CallId,
    },
}

/// What a model call needs before it may start.
#[derive(Clone, Debug)]
pub enum Want {
    /// A place, and the configuration.
    Place {
        agent: AgentName,
        /// Of which turn the call is.
        turn: TurnId,
        call: CallId,
        /// Whether nothing of its turn has begun: neither a call, nor what judges one.
        is_new: bool,
        /// The lane that the message of its turn named.
        lane: Option<Lane>,
    },
    /// What its turn is reminded of, beside its place.
    Recall {
        /// Of which turn the call is.
        turn: TurnId,
        /// What it was granted. It keeps its place while the store is searched.
        grant: Box<Grant>,
        /// What is searched for, and where.
        ask: Box<RecallAsk>,
    },
    /// A long system prompt in the blob store, beside its place.
    Prompt(Box<WantedPrompt>),
    /// What it may cost, beside its place.
    Hold(Box<WantedHold>),
}

/// A long system prompt that the session has to have in the blob store before a configuration names it.
#[derive(Clone, Debug)]
pub struct WantedPrompt {
    /// Of which turn the call is.
    pub turn: TurnId,
    /// What the call was granted. It keeps its place while it waits.
    pub grant: Grant,
    pub text: String,
    /// The one that the journal names already, so the blob store has it.
    pub known: Option<TextBlob>,
}

/// What a call is to reserve.
#[derive(Clone, Debug)]
pub struct WantedHold {
    /// Of which turn the call is.
    pub turn: TurnId,
    pub call: CallId,
    /// What it was granted, with what it may cost. It keeps its place while it waits.
    pub grant: Grant,
    /// What is to be reserved.
    pub needs: CallNeeds,
}

/// How a call ended, or what hooks decided about it.
#[derive(Debug)]
pub enum Outcome {
    /// Well.
    Done {
        /// Which try.
        attempt: Attempt,
        /// What the model said.
        content: Text,
        /// Why it stopped.
        stop: StopReason,
        /// What it used.
        usage: Usage,
        /// The model's name as the provider reports it.
        model: String,
        /// The tools that it asks for.
        tool_uses: Vec<ToolUse>,
        /// What it said beside text and tool calls.
        blocks: Option<Blocks>,
    },
    /// Of a tool, and what hooks did to it.
    Tool(ToolEnd, HookTrail),
    /// Of hooks, about a model call.
    ModelJudged {
        /// The request that they were shown.
        request: Digest,
        /// What they change of it.
        patches: Vec<ModelPatch>,
        /// What they did.
        trail: HookTrail,
    },
    /// Of hooks, about a tool call.
    ToolJudged {
        /// Its arguments, if they were changed.
        arguments: Option<String>,
        /// What they did.
        trail: HookTrail,
    },
    /// Of hooks, about a tool's result.
    ResultJudged {
        /// What the model reads instead, if it was changed or is held back.
        outcome: Option<ToolOutcome>,
        /// What they did.
        trail: HookTrail,
    },
    /// Badly.
    Failed {
        /// Which try.
        attempt: Attempt,
        failure: ModelFailure,
        /// What was said so far.
        partial: Text,
        /// What it used, as far as the provider said.
        usage: Usage,
    },
    /// It may not be made, and its turn ends so.
    Refused(TurnOutcome),
}

// === impl Effect ===

impl Effect {
    /// Whether it is a model call beside those of turns: no turn ends if it is refused.
    pub const fn is_beside(self) -> bool {
        matches!(self, Self::Compact { .. } | Self::Reflect { .. })
    }

    pub(in crate::session) const fn class(self) -> EffectKind {
        match self {
            Self::Call { .. } | Self::Compact { .. } | Self::Reflect { .. } => EffectKind::Call,
            Self::Judge { .. } | Self::Tool { .. } | Self::Settle { .. } => EffectKind::Run,
            Self::Publish { .. }
            | Self::Ask { .. }
            | Self::AskClient { .. }
            | Self::AskSteps { .. }
            | Self::Time { .. }
            | Self::Outage { .. } => EffectKind::Publish,
            Self::Emit { turn } => EffectKind::Emit(turn),
            Self::Rate { feedback } => EffectKind::Emit(TurnId::from_u128(feedback.as_u128())),
            Self::Teach { call } => EffectKind::Emit(emitted_as(call)),
        }
    }
}

impl Want {
    /// Of which turn the call is.
    pub const fn turn(&self) -> TurnId {
        match self {
            Self::Place { turn, .. } | Self::Recall { turn, .. } => *turn,
            Self::Prompt(wanted) => wanted.turn,
            Self::Hold(wanted) => wanted.turn,
        }
    }
}
