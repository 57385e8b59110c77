//! What has happened in a session: the fold.

use std::collections::VecDeque;

use clawnode_kernel::{ShrinkToFit, Violation};
use clawnode_proto::{
    Attempt, CallId, Head, Input, SessionKey, TimerId, Timestamp, Traceparent, TurnId,
    after_deletion::AfterDeletion,
    block::Blocks,
    budget::BudgetHeld,
    codec,
    lane::Lane,
    limits::MORE_STEPS,
    llm::{Message, ModelFailure, ModelRef, Sampling, StopReason, Text, Usage},
    media::Media,
    recall::Recalled,
    response::ResponseSchema,
    session::{Plan, Profile, SessionInput, ToolResult, TurnOutcome, UserMessage},
    skill::ActiveSkill,
};
use serde::{Deserialize, Serialize};

use super::{
    clock::TurnClock,
    context::dropping::LeftOut,
    context::measured_tokens::Measured,
    hooks::ModelJudged,
    kept_turns::EarlierTurns,
    memory::turn_feedback::{OpenFeedback, TurnFeedback},
    memory::unlearned_messages::HeardMessage,
    model_call::give_way::{GaveWay, RealWindow},
    state_parts::compaction_state::{Compaction, HistorySummary},
    state_parts::due_summary_memo::DueSummary,
    state_parts::kept_choices::KeptChoices,
    state_parts::reflection_state::Reflections,
    state_parts::settled_cost::{HeldAttempt, MeasuredPrefix, Spent},
    tools::client_tools::{ClientOffer, PartMetadata},
    tools::ledger_entries::SessionLedger,
    tools::tool_calls::ToolCall,
};

/// The text between the texts of two calls of one turn, for a reader who is shown one after the
/// other.
pub(in crate::session) const SEAM: &str = "\n\n";

/// A session's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    /// Its key, once it is born.
    pub key: Option<SessionKey>,
    /// The deletion that it began after.
    #[serde(default, skip_serializing_if = "AfterDeletion::is_none")]
    pub after: AfterDeletion,
    /// The agent's configuration as the last turn saw it.
    pub profile: Option<Profile>,
    /// An earlier conversation that it began with.
    pub seed: Vec<Message>,
    /// Turns that have ended, oldest first.
    pub closed: Vec<Turn>,
    /// What is known of those that are not in `closed` any more.
    #[serde(default, skip_serializing_if = "EarlierTurns::is_none")]
    pub earlier: EarlierTurns,
    /// Turns that have not, in order; the first one runs.
    pub open: VecDeque<Turn>,
    /// Turns whose post-turn effects are not confirmed.
    pub unemitted: Vec<TurnId>,
    /// What all turns used.
    pub usage: Usage,
    /// What turns have spent that are settled, as far as a limit held.
    #[serde(default, skip_serializing_if = "Spent::is_none")]
    pub spent: Spent,
    /// The part of its requests whose tokens are known, as far as a limit held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<MeasuredPrefix>,
    /// How large the last request was whose size a provider reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// How much models really read that found a request too long.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<RealWindow>,
    /// What the last request left out, because the window was full.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out: Option<LeftOut>,
    /// What requests show in the place of the oldest turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Box<HistorySummary>>,
    /// What its agent wrote down.
    #[serde(default, skip_serializing_if = "SessionLedger::is_empty")]
    pub ledger: SessionLedger,
    /// What messages chose for all turns.
    #[serde(default, skip_serializing_if = "KeptChoices::is_none")]
    pub kept: KeptChoices,
    /// Feedback that is not recorded, or that memories do not have yet.
    #[serde(default, skip_serializing_if = "OpenFeedback::is_none")]
    pub feedback: OpenFeedback,
    /// Turns that a model is to look back at, and lessons that memories do not have yet.
    #[serde(default, skip_serializing_if = "Reflections::is_none")]
    pub reflections: Reflections,
    /// A client asked for its deletion.
    pub doomed: bool,
    /// Whether a summary is due, if that was found since the last change.
    #[serde(skip)]
    pub(super) due_summary: DueSummary,
}

/// One turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its id: that of the input that began it.
    pub id: TurnId,
    /// The deletion that its session began after. The ids of its calls and timers follow from it.
    #[serde(default, skip_serializing_if = "AfterDeletion::is_none")]
    pub after: AfterDeletion,
    /// What began it, and what joined it, as the model read it, by the step that showed it first.
    pub said: Vec<(u32, Text)>,
    /// What is attached to what was said, by its place in `said`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attached: Vec<(u32, Vec<Media>)>,
    /// What waits to join the next model request, and the input it came with.
    pub steers: Vec<(TurnId, UserMessage)>,
    /// Inputs that joined this turn, under the ids that their own turns would have had.
    pub joined: Vec<TurnId>,
    /// The events with what began it and what joined it, until memories have learned from it. An earlier build did not
    /// keep them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub heard: Vec<HeardMessage>,
    /// Follows the agent's system prompt.
    pub system: Option<String>,
    /// Settings that go before the agent's.
    pub sampling: Sampling,
    /// The model that it chose instead of the agent's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// It was chosen for the session, and holds as long as the agent allows it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub model_is_kept: bool,
    /// What its client offers.
    #[serde(default, skip_serializing_if = "ClientOffer::is_none")]
    pub offer: ClientOffer,
    /// What its reply has to fit instead of the agent's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<ResponseSchema>,
    /// Pairs that its client gave it and its parts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metadata: Vec<PartMetadata>,
    /// The lane that its message named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Lane>,
    /// The trace that it belongs to.
    pub trace: Option<Traceparent>,
    /// Its model calls.
    pub steps: Vec<Step>,
    /// The calls, by their places, that reminded the model of its work ledger first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nudges: Vec<u32>,
    /// Its calls up to this entry of the ledger are shown as entries, whatever their types: its last request had no
    /// room for more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closes_upto: Option<u64>,
    /// Its attempt at a summary of older turns, before its first call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Box<Compaction>>,
    /// Its steps, if no model is asked for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<Plan>,
    /// The skills that its message activated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<ActiveSkill>,
    /// What it was reminded of. Once it is over, without the texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recalled: Option<Box<Recalled>>,
    /// What people think of it.
    #[serde(default, skip_serializing_if = "TurnFeedback::is_none")]
    pub feedback: TurnFeedback,
    /// What hooks decided about the call that is next or under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judged: Option<ModelJudged>,
    /// What its next attempt has reserved: it begins with the next event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Box<BudgetHeld>>,
    /// A client cancelled it.
    pub cancelled: bool,
    /// Steps that it was given beside its agent's.
    #[serde(default)]
    pub more_steps: u32,
    /// It has used up its steps and waits for more.
    #[serde(default)]
    pub limit_reached: Option<LimitReached>,
    /// The time that it has had.
    #[serde(default)]
    pub clock: TurnClock,
    /// How it ended.
    pub outcome: Option<TurnOutcome>,
    /// Its reply as JSON, if it had to fit a schema and does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<String>,
    /// What it used, once it is settled.
    pub usage: Usage,
    /// Calls begun whose outcome is unknown.
    pub lost_attempts: u32,
}

/// A turn has used up its steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReached {
    /// How many it had.
    pub limit: u32,
    /// When, by the writer's clock.
    pub at: Timestamp,
    /// No person allowed more in time.
    pub overdue: bool,
}

/// One model call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its id.
    pub call: CallId,
    /// The last try at it.
    pub attempt: Attempt,
    /// The model that was asked last; absent once usage records have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelRef>,
    /// How large its request seemed; absent once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<u64>,
    /// The row of the agent's routes that decided about it, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<u32>,
    /// What the attempt under way has reserved, if a limit holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Box<HeldAttempt>>,
    /// What attempts have spent that ended, as far as a limit held.
    #[serde(default, skip_serializing_if = "Spent::is_none")]
    pub spent: Spent,
    /// What its turn had of its time when it began, in milliseconds.
    #[serde(default)]
    pub begun_ms: u64,
    /// How its attempts gave way, if any did; absent once usage records have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gave_way: Option<Box<GaveWay>>,
    /// How it ended; absent while it is under way.
    pub end: Option<StepEnd>,
    /// The tools that it asked for.
    #[serde(default)]
    pub tools: Vec<ToolCall>,
    /// What the model reads about its reply, which does not fit its schema. People are not shown such a
    /// reply as what the turn said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<String>,
}

/// How a model call ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StepEnd {
    /// Well.
    Done {
        /// What the model said.
        content: Text,
        /// Why it stopped.
        stop: StopReason,
        /// What it used.
        usage: Usage,
        /// What the model said beside text and tool calls.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blocks: Option<Blocks>,
    },
    /// Badly.
    Failed {
        failure: ModelFailure,
        /// What was said so far.
        partial: Text,
        /// What it used, as far as the provider said.
        usage: Usage,
    },
}

// === impl SessionState ===

impl SessionState {
    /// The turn that runs.
    pub fn running(&self) -> Option<&Turn> {
        self.open.front()
    }

    /// Gives back room that only a running turn needs.
    pub(in crate::session) fn slim(&mut self) {
        self.closed.slim();
        self.open.slim();
        self.unemitted.slim();
    }

    /// Takes an input that was journaled.
    pub(in crate::session) fn accept(
        &mut self,
        head: &Head,
        input: &Input,
    ) -> Result<(), Violation> {
        let body: SessionInput = codec::decode(&input.body)
            .map_err(|error| Violation(format!("the input's body is not readable: {error}")))?;
        let id = TurnId::from(input.id);
        let trace = input.traceparent.clone();
        self.see(head.ts);
        match body {
            SessionInput::UserMessage(message) => {
                self.begin_turn(id, message, trace);
                self.heard(id, head);
            }
            SessionInput::Execute(plan) => {
                self.begin_turn(id, UserMessage::text(plan.about.clone()), trace);
                if let Some(turn) = self.open.back_mut() {
                    turn.plan = Some(plan);
                }
            }
            SessionInput::Steer(message) => {
                self.steer(id, message, trace);
                self.heard(id, head);
            }
            SessionInput::Cancel { turn } => {
                for open in &mut self.open {
                    if open.id == turn || open.joined.contains(&turn) {
                        open.cancelled = true;
                    }
                }
            }
            SessionInput::ToolResult(result) => self.bring(result),
            SessionInput::ClientResults(results) => self.bring_results(results),
            SessionInput::ApprovalDecided(decision) => {
                if let Some(tool) = self.tools().find(|tool| tool.call == decision.call) {
                    tool.decide(decision, head.ts);
                }
            }
            SessionInput::Continue { turn } => {
                let open = self.open.front_mut().filter(|open| open.id == turn);
                if let Some(open) = open
                    && open.limit_reached.take().is_some()
                {
                    open.more_steps = open.more_steps.saturating_add(MORE_STEPS);
                }
            }
            SessionInput::Feedback(given) => self.is_rated(input.id, given),
            SessionInput::Reflect(wanted) => self.reflection_asked(input.id, wanted.turn),
            SessionInput::TimerFired { timer } => self.fired(timer),
            SessionInput::Delete => {
                self.doomed = true;
                for open in &mut self.open {
                    open.cancelled = true;
                }
            }
        }
        self.see(head.ts);
        Ok(())
    }

    /// All tool calls of turns that have not ended.
    fn tools(&mut self) -> impl Iterator<Item = &mut ToolCall> {
        let steps = self.open.iter_mut().flat_map(|turn| &mut turn.steps);
        steps.flat_map(|step| &mut step.tools)
    }

    fn fired(&mut self, timer: TimerId) {
        if self.rest_timer() == Some(timer) {
            self.doomed = true;
        } else if let Some(tool) = self.tools().find(|tool| TimerId::from(tool.call) == timer) {
            tool.overdue = tool.is_open();
        } else if let Some(tool) =
            self.tools().find(|tool| TimerId::of_approval(tool.call) == timer)
        {
            if let Some(approval) = &mut tool.approval {
                approval.overdue = approval.is_open();
            }
        } else if self.client_is_late(|step| TimerId::of_client(step.call) == timer) {
            // The turn ends by it, unless the results have come.
        } else if let Some(turn) = self.open.front_mut() {
            if turn.provider_is_asked_again(timer) {
                return;
            }
            match turn.limit_reached {
                Some(reached) if turn.steps_timer(reached.limit) == timer => {
                    turn.limit_reached = Some(LimitReached { overdue: true, ..reached });
                }
                Some(_) | None => turn.fired(timer),
            }
        }
    }

    /// A result is the first for its call, of the asking that it answers, or nothing.
    fn bring(&mut self, result: ToolResult) {
        let answers = |tool: &&mut ToolCall| {
            let asked = tool.asked.as_ref().is_some_and(|asked| asked.nonce == result.nonce);
            tool.call == result.call && asked && tool.is_open()
        };
        if let Some(tool) = self.tools().find(answers) {
            tool.brought = Some(result.end);
        }
    }
}

// === impl Turn ===

impl Turn {
    /// Takes a person's message that the model sees first in this step.
    pub(in crate::session) fn hear(&mut self, step: u32, text: Text, attachments: Vec<Media>) {
        if !attachments.is_empty() {
            let at = u32::try_from(self.said.len()).unwrap_or(u32::MAX);
            self.attached.push((at, attachments));
        }
        self.said.push((step, text));
    }

    /// What its calls said, in order: each text, and the text between it and the one before.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, &Text)> {
        let said = self.steps.iter().filter_map(Step::shown).filter(|text| text.bytes() > 0);
        said.enumerate().map(|(index, text)| (if index == 0 { "" } else { SEAM }, text))
    }

    /// Bytes of text that its calls said in all, as a reader is shown them.
    pub fn text_bytes(&self) -> u64 {
        self.texts().map(|(seam, text)| seam.len() as u64 + text.bytes()).sum()
    }
}

impl Step {
    /// Its model call and its tools have ended.
    pub fn is_over(&self) -> bool {
        self.end.is_some() && self.tools.iter().all(|tool| tool.end.is_some())
    }

    /// What the model said, whole or as far as it came.
    pub fn text(&self) -> Option<&Text> {
        match &self.end {
            Some(StepEnd::Done { content, .. }) => Some(content),
            Some(StepEnd::Failed { partial, .. }) => Some(partial),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::stateless::Once;

    use super::*;

    fn state(key: &str) -> SessionState {
        SessionState { key: Some(key.parse().unwrap()), ..SessionState::default() }
    }

    /// The input of the process that looks is only a question: the session itself knows what is open.
    #[test]
    fn only_a_stateless_session_at_rest_goes_by_itself() {
        let stateless = format!("default:openai:default:{}", Once::Random(7).peer().unwrap());
        let first = TurnId::from_u128(1);
        let mut session = state(&stateless);
        session.begin_turn(first, UserMessage::text("hello"), None);
        session.fired(TimerId::of_rest(first));
        assert!(!session.doomed && !session.open[0].cancelled, "a turn is open");
        session.closed.extend(session.open.pop_front());
        session.fired(TimerId::of_rest(TurnId::from_u128(2)));
        assert!(!session.doomed, "another one's timer");
        let mut gone_on = session.clone();
        gone_on.begin_turn(TurnId::from_u128(2), UserMessage::text("and then?"), None);
        gone_on.fired(TimerId::of_rest(first));
        assert!(!gone_on.doomed && !gone_on.open[0].cancelled, "it was used since");
        gone_on.closed.extend(gone_on.open.pop_front());
        gone_on.fired(TimerId::of_rest(first));
        gone_on.fired(TimerId::of_rest(TurnId::from_u128(2)));
        assert!(!gone_on.doomed, "it has become a conversation");
        session.fired(TimerId::of_rest(first));
        assert!(session.doomed);
        let mut ada = state("default:openai:default:ada");
        ada.begin_turn(first, UserMessage::text("hello"), None);
        ada.closed.extend(ada.open.pop_front());
        ada.fired(TimerId::of_rest(first));
        assert!(!ada.doomed, "a person comes back");
    }
}
