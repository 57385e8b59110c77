//! What has happened in a session: the fold.

use std::collections::VecDeque;

use clawnode_proto::{
    Attempt, CallId, FrameKey, Head, Input, SessionKey, TimerId, Traceparent, TurnId, codec,
    llm::{Message, ModelFailure, Role, Sampling, StopReason, Text, Usage},
    session::{Profile, SessionEvent, SessionInput, ToolEnd, ToolResult, TurnOutcome, UserMessage},
    tool::{ToolReply, ToolUse},
};
use serde::{Deserialize, Serialize};

use super::tools::{Asked, ToolCall};
use crate::durable::{Slim, Violation};

/// What stands between the texts of two calls of one turn, for a reader who is shown one after the
/// other.
pub(super) const SEAM: &str = "\n\n";

/// A session's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionState {
    /// Its key, once it is born.
    pub key: Option<SessionKey>,
    /// The agent's configuration as the last turn saw it.
    pub profile: Option<Profile>,
    /// An earlier conversation that it began with.
    pub seed: Vec<Message>,
    /// Turns that have ended, oldest first.
    pub closed: Vec<Turn>,
    /// Turns that have not, in order; the first one runs.
    pub open: VecDeque<Turn>,
    /// Turns whose post-turn effects are not confirmed.
    pub unemitted: Vec<TurnId>,
    /// What all turns used.
    pub usage: Usage,
    /// Somebody asked for its deletion.
    pub doomed: bool,
}

/// One turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Turn {
    /// Its id: that of the input that began it.
    pub id: TurnId,
    /// What began it, and what joined it, as the model was told, by the step that told it first.
    pub said: Vec<(u32, Text)>,
    /// What waits to join the next model request, and the input it came with.
    pub steers: Vec<(TurnId, UserMessage)>,
    /// Inputs that joined this turn, under the ids that their own turns would have had.
    pub joined: Vec<TurnId>,
    /// Follows the agent's system prompt.
    pub system: Option<String>,
    /// Settings that go before the agent's.
    pub sampling: Sampling,
    /// The trace that it belongs to.
    pub trace: Option<Traceparent>,
    /// Its model calls.
    pub steps: Vec<Step>,
    /// Somebody cancelled it.
    pub cancelled: bool,
    /// How it ended.
    pub outcome: Option<TurnOutcome>,
    /// What it used, once it is settled.
    pub usage: Usage,
    /// Calls begun whose outcome nobody knows.
    pub lost_attempts: u32,
}

/// One model call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// Its id.
    pub call: CallId,
    /// The last try at it.
    pub attempt: Attempt,
    /// How it ended; absent while it is under way.
    pub end: Option<StepEnd>,
    /// The tools that it asked for.
    #[serde(default)]
    pub tools: Vec<ToolCall>,
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
    },
    /// Badly.
    Failed {
        /// How.
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

    /// The turn with this id, or that the input with this turn id joined.
    pub fn turn(&self, id: TurnId) -> Option<&Turn> {
        let is = |turn: &&Turn| turn.id == id || turn.joined.contains(&id);
        self.open.iter().find(is).or_else(|| self.closed.iter().rev().find(is))
    }

    /// Gives back room that only a running turn needs.
    pub(super) fn slim(&mut self) {
        self.closed.slim();
        self.open.slim();
        self.unemitted.slim();
    }

    /// Takes an input that was journaled.
    pub(super) fn accept(&mut self, input: &Input) -> Result<(), Violation> {
        let body: SessionInput = codec::decode(&input.body)
            .map_err(|error| Violation(format!("the input's body is not readable: {error}")))?;
        let id = TurnId::from(input.id);
        let trace = input.traceparent.clone();
        match body {
            SessionInput::UserMessage(message) => self.begin_turn(id, message, trace),
            SessionInput::Steer(message) => match self.open.front_mut() {
                Some(turn) if !turn.steps.is_empty() && !turn.cancelled => {
                    turn.joined.push(id);
                    turn.steers.push((id, message));
                }
                _ => self.begin_turn(id, message, trace),
            },
            SessionInput::Cancel { turn } => {
                for open in &mut self.open {
                    if open.id == turn || open.joined.contains(&turn) {
                        open.cancelled = true;
                    }
                }
            }
            SessionInput::ToolResult(result) => self.bring(result),
            SessionInput::TimerFired { timer } => {
                let tools = self.open.iter_mut().flat_map(|turn| &mut turn.steps);
                let mut tools = tools.flat_map(|step| &mut step.tools);
                if let Some(tool) = tools.find(|tool| TimerId::from(tool.call) == timer) {
                    tool.overdue = tool.is_open();
                }
            }
            SessionInput::Delete => {
                self.doomed = true;
                for open in &mut self.open {
                    open.cancelled = true;
                }
            }
        }
        Ok(())
    }

    /// A result is the first for its call, of the asking that it answers, or nothing.
    fn bring(&mut self, result: ToolResult) {
        let tools =
            self.open.iter_mut().flat_map(|turn| &mut turn.steps).flat_map(|it| &mut it.tools);
        let answers = |tool: &&mut ToolCall| {
            let asked = tool.asked.as_ref().is_some_and(|asked| asked.nonce == result.nonce);
            tool.call == result.call && asked && tool.is_open()
        };
        if let Some(tool) = tools.into_iter().find(answers) {
            tool.brought = Some(result.end);
        }
    }

    fn begin_turn(&mut self, id: TurnId, message: UserMessage, trace: Option<Traceparent>) {
        if self.seed.is_empty() && self.closed.is_empty() && self.open.is_empty() {
            self.seed = message.history;
        }
        self.open.push_back(Turn {
            id,
            said: vec![(0, message.content)],
            steers: Vec::new(),
            joined: Vec::new(),
            system: message.system,
            sampling: message.sampling,
            trace,
            steps: Vec::new(),
            cancelled: self.doomed,
            outcome: None,
            usage: Usage::default(),
            lost_attempts: 0,
        });
    }

    /// Takes one of the session's own events.
    pub(super) fn fold(&mut self, head: &Head, event: &SessionEvent) -> Result<(), Violation> {
        match event {
            SessionEvent::Configured(profile) => {
                self.profile = Some(profile.clone());
                Ok(())
            }
            SessionEvent::ModelBegun(begun) => self.begun(begun.turn, begun.call, begun.attempt),
            SessionEvent::ModelDone(done) => {
                let end = StepEnd::Done {
                    content: done.content.clone(),
                    stop: done.stop.clone(),
                    usage: done.usage,
                };
                self.ended(done.call, done.attempt, end)?;
                self.wanted(done.call, &done.tool_uses);
                Ok(())
            }
            SessionEvent::ModelFailed(failed) => {
                let end = StepEnd::Failed {
                    failure: failed.failure.clone(),
                    partial: failed.partial.clone(),
                    usage: failed.usage,
                };
                self.ended(failed.call, failed.attempt, end)
            }
            SessionEvent::ToolAsked(asked) => {
                let spec = self.profile.as_ref().and_then(|it| it.tool(asked.tool.as_str()));
                let capability = spec.and_then(|spec| spec.capability.clone());
                let tool = self.waiting_tool(asked.call)?;
                if tool.asked.is_some() {
                    return Err(Violation(format!("`{}` is begun twice (I3)", asked.call)));
                }
                tool.asked = Some(Asked { nonce: head.eid, at: head.ts, capability });
                Ok(())
            }
            SessionEvent::ToolDone(done) => {
                let tool = self.waiting_tool(done.call)?;
                tool.end = match (&done.outcome, tool.brought.take()) {
                    (Some(outcome), _) => Some(ToolEnd::Known { outcome: outcome.clone() }),
                    (None, Some(end @ ToolEnd::Known { .. })) => Some(end),
                    (None, _) => return Err(Violation(format!("nothing brought `{}`", done.call))),
                };
                Ok(())
            }
            SessionEvent::ToolUncertain(uncertain) => {
                let tool = self.waiting_tool(uncertain.call)?;
                tool.end = match (&uncertain.detail, tool.brought.take()) {
                    (Some(detail), _) => Some(ToolEnd::Uncertain { detail: detail.clone() }),
                    (None, Some(end @ ToolEnd::Uncertain { .. })) => Some(end),
                    _ => return Err(Violation(format!("nothing brought `{}`", uncertain.call))),
                };
                Ok(())
            }
            // A pointer for readers; the content is the call's.
            SessionEvent::Reply(_) => Ok(()),
            SessionEvent::TurnDone(done) => self.close(done.turn, &done.outcome),
            SessionEvent::Settled(settled) => {
                self.usage = self.usage.plus(settled.usage);
                let turn = self
                    .closed
                    .iter_mut()
                    .rev()
                    .find(|turn| turn.id == settled.turn)
                    .ok_or_else(|| Violation(format!("`{}` has not ended", settled.turn)))?;
                turn.usage = settled.usage;
                turn.lost_attempts = settled.lost_attempts;
                Ok(())
            }
        }
    }

    fn begun(&mut self, turn: TurnId, call: CallId, attempt: Attempt) -> Result<(), Violation> {
        let running = match self.open.front_mut() {
            Some(running) if running.id == turn => running,
            _ => return Err(Violation(format!("`{turn}` is not the running turn (SES-2)"))),
        };
        match running.steps.iter_mut().find(|step| step.call == call) {
            Some(step) if step.end.is_some() => {
                Err(Violation(format!("`{call}` has ended and was begun again (I3, SES-1)")))
            }
            Some(step) if attempt != step.attempt.next() => Err(Violation(format!(
                "attempt {attempt} at `{call}` follows attempt {} (SES-1)",
                step.attempt
            ))),
            Some(step) => {
                step.attempt = attempt;
                Ok(())
            }
            None if attempt != Attempt(1) => {
                Err(Violation(format!("`{call}` begins with attempt {attempt} (SES-1)")))
            }
            None => {
                let index = u32::try_from(running.steps.len()).unwrap_or(u32::MAX);
                let steers = std::mem::take(&mut running.steers);
                running.said.extend(steers.into_iter().map(|(_, steer)| (index, steer.content)));
                running.steps.push(Step { call, attempt, end: None, tools: Vec::new() });
                Ok(())
            }
        }
    }

    fn ended(&mut self, call: CallId, attempt: Attempt, end: StepEnd) -> Result<(), Violation> {
        let step = self
            .open
            .front_mut()
            .and_then(|turn| turn.steps.iter_mut().find(|step| step.call == call))
            .ok_or_else(|| Violation(format!("`{call}` was not begun (I3, SES-1)")))?;
        if step.end.is_some() {
            return Err(Violation(format!("`{call}` has two outcomes (I3, SES-1)")));
        }
        if step.attempt != attempt {
            return Err(Violation(format!(
                "outcome of attempt {attempt} at `{call}`, but attempt {} is under way (SES-1)",
                step.attempt
            )));
        }
        step.end = Some(end);
        Ok(())
    }

    /// Takes note of the tools that a model's reply asks for.
    fn wanted(&mut self, call: CallId, uses: &[ToolUse]) {
        let warn = self.profile.as_ref().map_or(u32::MAX, |profile| profile.loop_guard.warn);
        let Some(turn) = self.open.front_mut() else { return };
        let mut digests: Vec<_> = turn
            .steps
            .iter()
            .flat_map(|step| &step.tools)
            .map(|tool| tool.using.digest())
            .collect();
        let Some(step) = turn.steps.iter_mut().find(|step| step.call == call) else { return };
        for (index, using) in uses.iter().enumerate() {
            let digest = using.digest();
            digests.push(digest);
            let times = digests.iter().filter(|one| **one == digest).count();
            let times = u32::try_from(times).unwrap_or(u32::MAX);
            step.tools.push(ToolCall {
                call: CallId::derive_tool(call, u32::try_from(index).unwrap_or(u32::MAX)),
                using: using.clone(),
                times,
                warned: times >= warn,
                overdue: false,
                asked: None,
                brought: None,
                end: None,
            });
        }
    }

    /// A tool call of the running turn that has no end.
    fn waiting_tool(&mut self, call: CallId) -> Result<&mut ToolCall, Violation> {
        let tools = self.open.front_mut().map(|turn| &mut turn.steps);
        let tool = tools
            .into_iter()
            .flatten()
            .flat_map(|step| &mut step.tools)
            .find(|tool| tool.call == call)
            .ok_or_else(|| Violation(format!("no model asked for `{call}` (I3)")))?;
        if tool.end.is_some() {
            return Err(Violation(format!("`{call}` has two outcomes (I3)")));
        }
        Ok(tool)
    }

    fn close(&mut self, id: TurnId, outcome: &TurnOutcome) -> Result<(), Violation> {
        let at = self.open.iter().position(|turn| turn.id == id);
        let Some(mut turn) = at.and_then(|at| self.open.remove(at)) else {
            return Err(Violation(format!("`{id}` is not open (SES-2)")));
        };
        if at != Some(0) && !turn.cancelled {
            return Err(Violation(format!("`{id}` ends before the turns before it (SES-2)")));
        }
        turn.outcome = Some(outcome.clone());
        // What wanted to join and came too late is a turn of its own.
        for (late, message) in std::mem::take(&mut turn.steers).into_iter().rev() {
            turn.joined.retain(|joined| *joined != late);
            self.begin_turn(late, message, turn.trace.clone());
            if let Some(last) = self.open.pop_back() {
                self.open.push_front(last);
            }
        }
        turn.said.slim();
        turn.steers.slim();
        turn.joined.slim();
        turn.steps.slim();
        self.unemitted.push(turn.id);
        self.closed.push(turn);
        Ok(())
    }
}

// === impl Turn ===

impl Turn {
    /// What was said, by whom, in order, with the tools that were asked for and what came of them.
    pub fn messages(&self) -> Vec<Message> {
        let mut messages = Vec::new();
        for index in 0..self.steps.len().max(1) {
            let told = self.said.iter().filter(|(step, _)| *step as usize == index);
            messages.extend(told.map(|(_, text)| Message::text(Role::User, text.clone())));
            if let Some(step) = self.steps.get(index) {
                step.tell(&mut messages);
            }
        }
        messages
    }

    /// What its calls said, in order: each text, and what stands between it and the one before.
    pub fn texts(&self) -> impl Iterator<Item = (&'static str, &Text)> {
        let said = self.steps.iter().filter_map(Step::text).filter(|text| text.bytes() > 0);
        said.enumerate().map(|(index, text)| (if index == 0 { "" } else { SEAM }, text))
    }

    /// Bytes of text that its calls said in all, as a reader is shown them.
    pub fn text_bytes(&self) -> u64 {
        self.texts().map(|(seam, text)| seam.len() as u64 + text.bytes()).sum()
    }

    /// The key of its last frame: after all that its last call said, and what its tools did.
    pub fn end_key(&self) -> FrameKey {
        let turn = self.id;
        let (call, attempt) = match self.steps.last() {
            None => (CallId::derive(turn, 0), Attempt(0)),
            Some(step) if step.tools.is_empty() => (step.call, step.attempt),
            Some(step) => (CallId::derive_tools(step.call), Attempt(1)),
        };
        FrameKey { turn, call, attempt, index: FrameKey::DONE }
    }

    /// Reported usage of all calls that have an outcome.
    pub fn reported(&self) -> Usage {
        self.steps.iter().fold(Usage::default(), |sum, step| match &step.end {
            Some(StepEnd::Done { usage, .. } | StepEnd::Failed { usage, .. }) => sum.plus(*usage),
            None => sum,
        })
    }

    /// Tries that were begun and have no outcome.
    pub fn lost(&self) -> u32 {
        self.steps.iter().map(|step| step.attempt.0 - u32::from(step.end.is_some())).sum()
    }
}

impl Step {
    /// Its reply, and what came of the tools that it asked for.
    fn tell(&self, messages: &mut Vec<Message>) {
        let content = self.text().cloned().unwrap_or_else(|| Text::from(""));
        let mut said = Message::text(Role::Assistant, content);
        let mut answer = Message::text(Role::User, "");
        let mut complaints = Vec::new();
        for tool in &self.tools {
            let (content, is_error) = tool.told();
            if tool.is_well_formed() {
                // Ids of our own: those of models are neither unique nor fit for every provider.
                let id = tool.call.to_string();
                said.tool_uses.push(ToolUse { id: id.clone(), ..tool.using.clone() });
                answer.tool_replies.push(ToolReply { id, content, is_error });
            } else {
                complaints.push(content);
            }
            if tool.warned {
                complaints.push(tool.warning());
            }
        }
        if said.content.bytes() > 0 || !said.tool_uses.is_empty() {
            messages.push(said);
        }
        if !answer.tool_replies.is_empty() {
            messages.push(answer);
        }
        messages.extend(complaints.into_iter().map(|text| Message::text(Role::User, text)));
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
