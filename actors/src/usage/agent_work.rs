//! What an agent did in one session: a fold over its events that keeps the running turn only.

use std::collections::{BTreeMap, BTreeSet};

use clawnode_proto::{
    CallId, CodecError, EventId, Head, Input, Timestamp, TurnId,
    agent_work::{AgentWork, TOOLS_OF_CLIENTS, ToolEnds},
    client_tool::ClientResults,
    codec,
    llm::FailureClass,
    session::{SessionEvent, SessionInput, ToolAsked, ToolDone, ToolEnd, ToolResult, TurnDone},
    tool::{ToolFailure, ToolOutcome},
};

use crate::session::{SessionState, Turn, turn::clock::TurnClock};

/// What is known of the running turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkMeter(Option<RunningTurn>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct RunningTurn {
    id: TurnId,
    clock: TurnClock,
    skills: Vec<String>,
    /// Tool calls that were begun and have no end.
    begun: BTreeMap<CallId, BegunTool>,
    /// Tool calls about which a person or the client is waited for.
    asked: BTreeSet<CallId>,
    /// Its next model call waits for others.
    is_held_up: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct BegunTool {
    /// As it is counted.
    name: String,
    /// What its result echoes.
    nonce: EventId,
    by_client: bool,
    /// How it ended, as an input says. The journal's own event follows.
    brought: Option<ToolEnds>,
}

// === impl WorkMeter ===

impl WorkMeter {
    /// Where a session is after a snapshot of this state.
    pub(super) fn of(state: &SessionState) -> Self {
        let has_begun = |turn: &&Turn| turn.clock.begun().is_some() || !turn.skills.is_empty();
        Self(state.open.front().filter(has_begun).map(RunningTurn::of))
    }

    /// Whether an input may bring the result of a tool call.
    pub(super) fn awaits_result(&self) -> bool {
        self.0.as_ref().is_some_and(|turn| turn.begun.values().any(|tool| tool.brought.is_none()))
    }

    /// Takes an input that was accepted while a result is awaited.
    pub(super) fn accepted(&mut self, input: &Input) -> Result<(), CodecError> {
        // An order for the kernel has no body.
        let Some(turn) = self.0.as_mut().filter(|_| input.order.is_none()) else { return Ok(()) };
        match codec::decode::<SessionInput>(&input.body)? {
            SessionInput::ToolResult(result) => turn.bring(result),
            SessionInput::ClientResults(results) => turn.bring_results(&results),
            _ => {}
        }
        Ok(())
    }

    /// Takes an event of the session, and says what its agent did by it.
    pub(super) fn take(&mut self, head: &Head, event: &SessionEvent) -> Option<AgentWork> {
        let at = head.ts;
        match event {
            SessionEvent::SkillsActivated(activated) => {
                let names = activated.skills.iter().map(|skill| skill.name.clone());
                self.turn(activated.turn).skills = names.collect();
            }
            SessionEvent::ModelBegun(begun) => self.turn(begun.turn).begin(at),
            SessionEvent::StepPlanned(planned) => self.turn(planned.turn).begin(at),
            SessionEvent::ToolDone(done) => return self.tool_done(at, done),
            SessionEvent::ToolUncertain(uncertain) => {
                let tool = self.0.as_mut()?.end_tool(at, uncertain.call)?;
                return Some(AgentWork::of_tool(tool.name, UNCERTAIN));
            }
            SessionEvent::TurnDone(done) => return Some(self.turn_done(at, done)),
            SessionEvent::FeedbackGiven(given) => {
                return Some(AgentWork::of_thumb(given.thumb, given.step));
            }
            SessionEvent::Reflected(done) => return done.rating.map(AgentWork::of_rating),
            _ => self.0.as_mut()?.goes_on(head, event),
        }
        None
    }

    /// The turn that runs from now on, if it is not this one already.
    fn turn(&mut self, id: TurnId) -> &mut RunningTurn {
        let known = self.0.take().filter(|turn| turn.id == id);
        self.0.insert(known.unwrap_or_else(|| RunningTurn::new(id)))
    }

    fn tool_done(&mut self, at: Timestamp, done: &ToolDone) -> Option<AgentWork> {
        let outcome = done.outcome.as_ref();
        let Some(tool) = self.0.as_mut().and_then(|turn| turn.end_tool(at, done.call)) else {
            let is_refusal = outcome.and_then(|outcome| outcome.failure).is_some_and(is_refusal);
            return is_refusal.then(AgentWork::of_call_not_run);
        };
        // The input that brought it may have been parked, and is not read then.
        let ends = outcome.map(ends_of).or(tool.brought).unwrap_or(UNCERTAIN);
        Some(AgentWork::of_tool(tool.name, ends))
    }

    fn turn_done(&mut self, at: Timestamp, done: &TurnDone) -> AgentWork {
        // A turn that waits may end before the one that runs.
        let Some(mut turn) = self.0.take_if(|turn| turn.id == done.turn) else {
            return AgentWork::of_turn(&done.outcome, None, Vec::new());
        };
        turn.see(at);
        let took_ms = turn.clock.begun().map(|_| turn.clock.spent_ms());
        AgentWork::of_turn(&done.outcome, took_ms, turn.skills)
    }
}

// === impl RunningTurn ===

impl RunningTurn {
    fn new(id: TurnId) -> Self {
        Self {
            id,
            clock: TurnClock::default(),
            skills: Vec::new(),
            begun: BTreeMap::new(),
            asked: BTreeSet::new(),
            is_held_up: false,
        }
    }

    fn of(turn: &Turn) -> Self {
        let tools = || turn.steps.iter().flat_map(|step| &step.tools);
        let begun = tools().filter(|tool| tool.end.is_none()).filter_map(|tool| {
            let asked = tool.asked.as_ref()?;
            let name = counted_name(&tool.using.name, asked.by_client);
            let (nonce, by_client) = (asked.nonce, asked.by_client);
            let brought = tool.brought.as_ref().map(brought);
            Some((tool.call, BegunTool { name, nonce, by_client, brought }))
        });
        Self {
            id: turn.id,
            clock: turn.clock.clone(),
            skills: turn.skills.iter().map(|skill| skill.name.clone()).collect(),
            begun: begun.collect(),
            asked: tools().filter(|tool| tool.is_with_others()).map(|tool| tool.call).collect(),
            is_held_up: turn.is_held_up(),
        }
    }

    /// A model call or a step of a plan begins.
    fn begin(&mut self, at: Timestamp) {
        self.is_held_up = false;
        self.clock.begin(at);
        self.see(at);
    }

    /// Takes an event after which it goes on.
    fn goes_on(&mut self, head: &Head, event: &SessionEvent) {
        match event {
            SessionEvent::ModelGaveWay(gave_way) => {
                let is_preempted = gave_way.why.class == FailureClass::Preempted;
                self.is_held_up = is_preempted || gave_way.wait_ms > 0;
            }
            SessionEvent::StepLimitReached(_) => self.is_held_up = true,
            SessionEvent::ApprovalAsked(asked) => {
                self.asked.insert(asked.call);
            }
            SessionEvent::ApprovalGiven(given) => {
                self.asked.remove(&given.call);
            }
            SessionEvent::ToolAsked(asked) => self.tool_asked(head, asked),
            _ => return,
        }
        self.see(head.ts);
    }

    fn tool_asked(&mut self, head: &Head, asked: &ToolAsked) {
        let by_client = asked.by_client;
        let name = counted_name(asked.tool.as_str(), by_client);
        if by_client {
            self.asked.insert(asked.call);
        }
        let tool = BegunTool { name, nonce: head.eid, by_client, brought: None };
        self.begun.insert(asked.call, tool);
    }

    /// A tool call has ended. Nothing, if it was never begun.
    fn end_tool(&mut self, at: Timestamp, call: CallId) -> Option<BegunTool> {
        self.asked.remove(&call);
        self.see(at);
        self.begun.remove(&call)
    }

    fn bring(&mut self, result: ToolResult) {
        let ToolResult { call, nonce, end } = result;
        if let Some(tool) = self.begun.get_mut(&call)
            && tool.nonce == nonce
            && tool.brought.is_none()
        {
            tool.brought = Some(brought(&end));
        }
    }

    fn bring_results(&mut self, brought: &ClientResults) {
        if brought.turn != self.id {
            return;
        }
        for result in &brought.results {
            if let Some(tool) = self.begun.get_mut(&result.call)
                && tool.by_client
                && tool.brought.is_none()
            {
                tool.brought = Some(ends_of(&result.outcome()));
            }
        }
    }

    /// An event at this time; what follows is judged by it.
    fn see(&mut self, at: Timestamp) {
        let waits = self.is_held_up || !self.asked.is_empty();
        self.clock.see(at, waits);
    }
}

/// How a call is counted whose end is not known.
const UNCERTAIN: ToolEnds = ToolEnds { done: 0, failed: 0, cancelled: 0, uncertain: 1 };

fn brought(end: &ToolEnd) -> ToolEnds {
    match end {
        ToolEnd::Known { outcome } => ends_of(outcome),
        ToolEnd::Uncertain { .. } => UNCERTAIN,
    }
}

fn ends_of(outcome: &ToolOutcome) -> ToolEnds {
    match outcome.failure {
        None => ToolEnds { done: 1, ..ToolEnds::default() },
        Some(ToolFailure::Cancelled) => ToolEnds { cancelled: 1, ..ToolEnds::default() },
        Some(_) => ToolEnds { failed: 1, ..ToolEnds::default() },
    }
}

/// Whether a call that was not begun failed so, and not because its turn ended.
const fn is_refusal(failure: ToolFailure) -> bool {
    matches!(failure, ToolFailure::Invalid | ToolFailure::Refused | ToolFailure::Unavailable)
}

/// The row in which calls of a tool are counted.
fn counted_name(tool: &str, by_client: bool) -> String {
    if by_client { TOOLS_OF_CLIENTS } else { tool }.to_owned()
}
