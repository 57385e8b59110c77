//! A session's inputs and events.

use serde::{Deserialize, Serialize};

use crate::{
    budget::{BudgetHeld, SpendLimits},
    client_tool::ClientResults,
    context::ContextSettings,
    feedback::{FeedbackGiven, FeedbackInput},
    grammar,
    hook::{HookSpec, HookTrail},
    id::{AgentName, CallId, Digest, EventId, TimerId, TurnId},
    llm::{ModelRef, Sampling, SystemPrompt},
    model_route::ModelRoute,
    name::ToolName,
    policy::{Decided, Policy},
    recall::Recalled,
    reflection::ReflectInput,
    response::ResponseSchema,
    skill::SkillsActivated,
    timeout::TurnTime,
    tool::{LoopGuard, ToolOutcome, ToolSpec},
};
pub use crate::{
    model_call::{ModelBegun, ModelDone, ModelFailed, ModelGaveWay},
    outcome::{Settled, TurnDone, TurnOutcome},
    user_message::{KeptChoice, UserMessage},
};

pub use crate::{
    after_deletion::BegunAgain,
    compaction::{Compacted, CompactionBegun, CompactionFailed},
    execute::{Plan, StepPlanned},
    hook::{ModelHooked, ToolHooked},
    ledger::LedgerEntry,
    reflection::{Reflected, ReflectionBegun, ReflectionFailed},
};

/// What may be sent to a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SessionInput {
    /// Begins a turn, after those that wait.
    UserMessage(UserMessage),
    /// Adds a message to the next model call of the running turn, or begins a turn if none runs.
    Steer(UserMessage),
    /// Ends a turn. It has no effect on a turn that has ended.
    Cancel {
        /// The turn to end.
        turn: TurnId,
    },
    /// The result of a tool call that another process ran.
    ToolResult(ToolResult),
    /// A person has decided about a tool call.
    ApprovalDecided(ApprovalDecided),
    /// A client has run the tools that the turn waits for.
    ClientResults(ClientResults),
    /// Begins a turn that runs the steps of a plan, without a model.
    Execute(Plan),
    /// Gives more steps to a turn that has used up its own. It has no effect on other turns.
    Continue {
        /// The turn that waits at its limit of steps.
        turn: TurnId,
    },
    /// A person says what they think of a turn that has ended.
    Feedback(FeedbackInput),
    /// Has a model look back at a turn that has ended, and write lessons.
    Reflect(ReflectInput),
    /// A timer has fired. The timer of a tool call has the bits of the call's id.
    TimerFired {
        /// Its id, by which the state finds what it was set for.
        timer: TimerId,
    },
    /// Ends what runs, then deletes the session and its personal data.
    Delete,
}

/// The result of a tool call that another process ran. It is ignored if the call has an outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolResult {
    /// The call that waits for this result.
    pub call: CallId,
    /// The event that began the call. A result for another event is ignored.
    pub nonce: EventId,
    /// How the call ended.
    pub end: ToolEnd,
}

/// What a person decided about a tool call. The first decision in time about the right action counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalDecided {
    /// The call that waits for a person.
    pub call: CallId,
    /// The digest of the action that the person saw.
    pub action: Digest,
    /// The decision.
    pub decided: Decided,
}

/// How a tool call ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolEnd {
    /// The outcome is known.
    Known {
        /// What the tool answered, or how it failed.
        outcome: ToolOutcome,
    },
    /// It is unknown whether the call had an effect. It is not made again.
    Uncertain {
        /// What is known about the call.
        detail: String,
    },
}

grammar! {
    /// A session's own events.
    #[expect(clippy::large_enum_variant, reason = "few are in memory at a time")]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    pub enum SessionEvent {
        /// The session begins again after it was deleted. The ids of its calls and timers follow from that. A build that
        /// does not know it would give them the ids of before the deletion.
        BegunAgain(BegunAgain) = "begun_again", required;
        /// The agent's configuration, for the turns that follow.
        Configured(Profile) = "configured", required;
        /// The message of a turn has activated skills by their triggers.
        SkillsActivated(SkillsActivated) = "skills_activated", required;
        /// What a turn is reminded of. A build that does not know it would show its model something else.
        Recalled(Recalled) = "recalled", required;
        /// Hooks have judged a model call.
        ModelHooked(ModelHooked) = "model_hooked", required;
        /// A model call has reserved what it can cost.
        BudgetHeld(BudgetHeld) = "budget_held", required;
        /// A model is asked for a summary of older turns.
        CompactionBegun(CompactionBegun) = "compaction_begun", required;
        /// A summary takes the place of older turns in later requests.
        Compacted(Compacted) = "compacted", required, progress;
        /// There is no summary, and requests stay as they are.
        CompactionFailed(CompactionFailed) = "compaction_failed", required, progress;
        /// A model call begins.
        ModelBegun(ModelBegun) = "model_begun", required;
        /// A model call succeeded. clawnode never makes it again.
        ModelDone(ModelDone) = "model_done", required, progress;
        /// A model call failed. clawnode never makes this attempt again.
        ModelFailed(ModelFailed) = "model_failed", required, progress;
        /// An attempt at a model call has ended, and the call has not.
        ModelGaveWay(ModelGaveWay) = "model_gave_way", required, progress;
        /// Hooks have judged a tool call.
        ToolHooked(ToolHooked) = "tool_hooked", required;
        /// A tool call waits for a person.
        ApprovalAsked(ApprovalAsked) = "approval_asked", required;
        /// A person has decided about a tool call.
        ApprovalGiven(ApprovalGiven) = "approval_given", required;
        /// A turn has used up its steps. It waits for more.
        StepLimitReached(StepLimitReached) = "step_limit_reached", required;
        /// The next step of a plan begins.
        StepPlanned(StepPlanned) = "step_planned", required;
        /// A tool call begins. From here on, it may have had an effect.
        ToolAsked(ToolAsked) = "tool_asked", required;
        /// An agent writes something into its work ledger.
        LedgerEntry(LedgerEntry) = "ledger_entry", required;
        /// A tool call has ended, or was refused. clawnode never runs it again.
        ToolDone(ToolDone) = "tool_done", required, progress;
        /// It is unknown whether a tool call had an effect. clawnode never runs it again.
        ToolUncertain(ToolUncertain) = "tool_uncertain", required, progress;
        /// A reply does not fit its schema. The model is asked to correct it.
        ReplyRefused(ReplyRefused) = "reply_refused", required;
        /// The reply that the user sees.
        Reply(Reply) = "reply", required;
        /// A turn has ended.
        TurnDone(TurnDone) = "turn_done", required, progress;
        /// What a turn used. Bill by this event.
        Settled(Settled) = "settled", required;
        /// A person has said what they think of a turn. A build that does not know it would not tell memories.
        FeedbackGiven(FeedbackGiven) = "feedback_given", required, progress;
        /// A model is asked to look back at a turn. A build that does not know it would not count what that costs.
        ReflectionBegun(ReflectionBegun) = "reflection_begun", required;
        /// A model has looked back at a turn: it has rated it and written lessons, or found facts. A build that does not know
        /// it would not tell memories.
        Reflected(Reflected) = "reflected", required, progress;
        /// A model has not looked back at a turn.
        ReflectionFailed(ReflectionFailed) = "reflection_failed", required, progress;
    }
}

/// An agent's configuration, as far as what the model sees depends on it.
///
/// Journaled when it differs from the last one, so that what the model saw is a function of the
/// journal alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Profile {
    /// Its name in the configuration. The session's key begins with it.
    pub agent: AgentName,
    /// The model that is asked, as `PROVIDER/MODEL`, unless a message or a route chooses another one.
    pub model: ModelRef,
    /// The system prompt. One of more than 4 KiB is in the blob store.
    #[serde(default)]
    pub system: SystemPrompt,
    /// The agent's sampling settings. Those of a turn override them.
    #[serde(default)]
    pub sampling: Sampling,
    /// How many tokens the model reads. Beyond this, clawnode drops the oldest turns.
    pub window_tokens: u32,
    /// The limit of a reply that neither the agent nor the turn limits. Absent: the provider's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply_tokens: Option<u32>,
    /// How many model calls a turn may make.
    pub step_limit: u32,
    /// The tools of the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ToolSpec>,
    /// How many tool calls of one reply run at a time.
    #[serde(default = "Profile::parallel_tools", skip_serializing_if = "is_usual_parallel")]
    pub max_parallel_tools: u32,
    /// What happens if a turn repeats the same tool call.
    #[serde(default, skip_serializing_if = "is_usual_guard")]
    pub loop_guard: LoopGuard,
    /// Which tool calls run, ask a person, or are denied.
    #[serde(default, skip_serializing_if = "Policy::is_usual")]
    pub policy: Policy,
    /// How long a turn that has used up its steps waits for more, in milliseconds. 0: it ends.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub step_wait_ms: u32,
    /// How long a turn, and each step of it, may take.
    #[serde(default, skip_serializing_if = "TurnTime::is_none")]
    pub time: TurnTime,
    /// The hooks of the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookSpec>,
    /// The models that may answer, in order of preference; `model` is the one that is asked now. Absent if
    /// there is one only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<ModelRef>,
    /// How long a turn waits while no provider of its models is available, in milliseconds. 0: it
    /// fails at once.
    #[serde(default = "Profile::outage", skip_serializing_if = "is_usual_outage")]
    pub outage_ms: u32,
    /// What replies have to fit. The schema of a turn overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<ResponseSchema>,
    /// Which model a call asks first, by its prompt, if its turn has not chosen one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<ModelRoute>,
    /// What a turn and a session may spend.
    #[serde(default, skip_serializing_if = "SpendLimits::is_none")]
    pub limits: SpendLimits,
    /// How requests are assembled. Absent: by the rules of version 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<ContextSettings>,
    /// The model that makes summaries of older turns, when the window is nearly full. Absent: none are made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compact_model: Option<ModelRef>,
    /// Whether a model looks back at turns with many tool calls once they have ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reflects: bool,
    /// Whether a model looks for facts in what persons said, once their turn has ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub extracts: bool,
}

impl Profile {
    /// Tool calls of one reply that run at a time, unless it is configured.
    pub const fn parallel_tools() -> u32 {
        8
    }

    /// How long a turn waits for a provider, unless it is configured: 1 h.
    pub const fn outage() -> u32 {
        3_600_000
    }

    /// How many models may answer.
    pub fn models(&self) -> usize {
        self.chain.len().max(1)
    }

    /// The tool of this name.
    pub fn tool(&self, name: &str) -> Option<&ToolSpec> {
        self.tools.iter().find(|tool| tool.name.as_str() == name)
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_usual_parallel(tools: &u32) -> bool {
    *tools == Profile::parallel_tools()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_usual_outage(outage_ms: &u32) -> bool {
    *outage_ms == Profile::outage()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

fn is_usual_guard(guard: &LoopGuard) -> bool {
    *guard == LoopGuard::default()
}

/// A tool call waits for a person. The wait is counted from here on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalAsked {
    /// The turn that waits.
    pub turn: TurnId,
    /// The tool call that does not begin before a person allows it.
    pub call: CallId,
    /// The digest of the action to decide about.
    pub action: Digest,
    /// Why a person has to decide, if a rule says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A person has decided about a tool call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ApprovalGiven {
    /// The turn that waited.
    pub turn: TurnId,
    /// The tool call that may begin now, or never begins.
    pub call: CallId,
    /// The digest of the action that the decision is about.
    pub action: Digest,
    /// The decision, and who made it.
    pub decided: Decided,
}

/// A turn has used up its steps; it waits for more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StepLimitReached {
    /// The turn that waits for `chat.continue`.
    pub turn: TurnId,
    /// How many steps the turn had.
    pub limit: u32,
}

/// A tool call is about to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolAsked {
    /// The turn whose model, or plan, asked for it.
    pub turn: TurnId,
    /// The tool call that may run from this event on.
    pub call: CallId,
    /// The tool. The model's reply has the arguments.
    pub tool: ToolName,
    /// The client that offered the tool runs it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_client: bool,
}

/// A tool call has ended, or was never run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolDone {
    /// The turn whose model gets the outcome.
    pub turn: TurnId,
    /// The tool call, which `tool_asked` began unless it was refused.
    pub call: CallId,
    /// The outcome. Absent if an input brought it; that input has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ToolOutcome>,
    /// What hooks changed in the call.
    #[serde(default, skip_serializing_if = "HookTrail::is_empty")]
    pub hooks: HookTrail,
}

/// A tool call may or may not have happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ToolUncertain {
    /// The turn that goes on with this.
    pub turn: TurnId,
    /// The call that `tool_asked` began. It is not made again.
    pub call: CallId,
    /// What is known about the call. Absent if an input brought it; that input has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A reply does not fit its schema. Its text is withdrawn, and the model is asked to correct it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplyRefused {
    /// The turn that goes on with a corrected reply, or ends as `schema_failed`.
    pub turn: TurnId,
    /// The model call whose text does not fit.
    pub call: CallId,
    /// The text for the model: what is wrong, and where.
    pub told: String,
}

/// What the user is shown: the content of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Reply {
    /// The turn that the user asked in.
    pub turn: TurnId,
    /// The model call whose text is the reply.
    pub call: CallId,
    /// The reply as JSON, if it had to fit a schema and does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<String>,
}
