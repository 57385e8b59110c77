//! Tools that a client runs: which calls wait for it, how long, and what it brings. Pure.
//!
//! A call of such a tool is begun like any (`ToolAsked`, with `by_client`), and all of one reply are begun at
//! once: nothing here runs, so no limit of tools at a time holds for them, and neither rules nor hooks judge
//! what another program does with its own tools. Their results come as an input. A message that would begin
//! a turn ends one that waits for nothing else: its client has gone on without the results.

use std::collections::BTreeMap;

use clawnode_proto::{
    CallId, Timestamp,
    client_tool::{ClientCall, ClientCalls, ClientResults, ClientTool},
    limits::CLIENT_TOOLS_WAIT,
    session::{Profile, ToolEnd, TurnOutcome},
    timeout::TimeLevel,
    tool::ToolSpec,
};
use serde::{Deserialize, Serialize};

#[cfg(feature = "test-util")]
use clawnode_kernel::KernelBug;

use super::super::state::{SessionState, Step, Turn};
use super::tool_calls::ToolCall;

/// What a client asks of a turn beside its words.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientOffer {
    /// The tools that it runs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ClientTool>,
    /// How many model calls the turn had made when it asked.
    #[serde(skip_serializing_if = "is_zero")]
    pub since: u32,
}

/// Pairs that a client gave a turn, or the part of it that follows results which the client brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartMetadata {
    /// The first of the calls whose results came with them; none if the turn's message did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<CallId>,
    pub pairs: BTreeMap<String, String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

// === impl ClientOffer ===

impl ClientOffer {
    pub(in crate::session) const fn new(tools: Vec<ClientTool>, since: u32) -> Self {
        Self { tools, since }
    }

    pub(in crate::session) fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// The tools that a model is offered beside those of its agent. The agent's own go first.
    pub(in crate::session) fn beside<'a>(
        &'a self,
        profile: &'a Profile,
    ) -> impl Iterator<Item = &'a ClientTool> {
        self.tools.iter().filter(|tool| profile.tool(tool.name.as_str()).is_none())
    }

    /// The tool of this name, if the client runs it.
    pub(in crate::session) fn spec(&self, profile: &Profile, name: &str) -> Option<ToolSpec> {
        self.beside(profile).find(|tool| tool.name.as_str() == name).map(ClientTool::spec)
    }
}

// === impl ToolCall ===

impl ToolCall {
    /// It waits for the client that runs it.
    pub fn is_with_client(&self) -> bool {
        self.is_open() && self.asked.as_ref().is_some_and(|asked| asked.by_client)
    }

    /// The client that offered its tool was asked to run it.
    pub fn is_of_client(&self) -> bool {
        self.asked.as_ref().is_some_and(|asked| asked.by_client)
    }
}

// === impl Step ===

impl Step {
    /// The calls that its client is asked to run, as they were handed out.
    pub fn client_calls(&self) -> Option<ClientCalls> {
        client_calls(&self.tools)
    }
}

/// The calls of one reply that a client is asked to run.
pub(in crate::session) fn client_calls(tools: &[ToolCall]) -> Option<ClientCalls> {
    let of_client = || tools.iter().filter(|tool| tool.is_of_client());
    let asked_at = of_client().find_map(|tool| tool.asked.as_ref()).map(|asked| asked.at)?;
    let call = |tool: &ToolCall| ClientCall {
        id: tool.call,
        name: tool.using.name.clone(),
        arguments: tool.arguments().to_owned(),
    };
    let calls = of_client().map(call).collect();
    Some(ClientCalls { calls, expires: expires(asked_at) })
}

fn expires(asked_at: Timestamp) -> Timestamp {
    asked_at.plus(CLIENT_TOOLS_WAIT)
}

// === impl Turn ===

impl Turn {
    /// The pairs that its client gave it, or the part of it after this call.
    pub(in crate::session) fn metadata_after(
        &self,
        after: Option<CallId>,
    ) -> BTreeMap<String, String> {
        let given = self.metadata.iter().find(|part| part.after == after);
        given.map(|part| part.pairs.clone()).unwrap_or_default()
    }

    /// Takes the pairs that its client gives it, or the part of it after this call.
    pub(in crate::session::turn) fn label(
        &mut self,
        after: Option<CallId>,
        pairs: BTreeMap<String, String>,
    ) {
        if !pairs.is_empty() {
            self.metadata.push(PartMetadata { after, pairs });
        }
    }

    /// The step whose tools its client runs now.
    pub fn with_client(&self) -> Option<&Step> {
        let step = self.steps.last().filter(|_| self.outcome.is_none())?;
        step.tools.iter().any(ToolCall::is_with_client).then_some(step)
    }

    /// It waits for its client, and for nothing else.
    fn waits_for_client_alone(&self) -> bool {
        self.with_client().is_some_and(|step| {
            let mut tools = step.tools.iter();
            tools.all(|tool| tool.end.is_some() || tool.is_with_client())
        })
    }

    /// How it ends without what it waits for, if its client is waited for no longer; `is_next`: another
    /// turn waits behind it.
    pub(in crate::session) fn left_by_client(&self, is_next: bool) -> Option<TurnOutcome> {
        let step = self.with_client()?;
        let is_late = step.tools.iter().any(|tool| tool.is_with_client() && tool.overdue);
        if is_late {
            let wait = CLIENT_TOOLS_WAIT.as_secs() / 3_600;
            let detail = format!("its client did not bring the results of its tools in {wait} h");
            return Some(TurnOutcome::TimedOut { level: TimeLevel::Step, detail });
        }
        (is_next && self.waits_for_client_alone()).then_some(TurnOutcome::Cancelled)
    }
}

// === impl SessionState ===

impl SessionState {
    /// Takes what a client brings: the first result of each call that waits for it, and what it asks for
    /// from here on.
    pub(in crate::session) fn bring_results(&mut self, brought: ClientResults) {
        #[cfg(feature = "test-util")]
        if KernelBug::LaterResultsCount.is_in_folds() {
            let turns = self.open.iter_mut().chain(&mut self.closed);
            let tools = turns.flat_map(|turn| &mut turn.steps).flat_map(|step| &mut step.tools);
            for tool in tools.filter(|tool| tool.is_of_client() && tool.end.is_some()) {
                if let Some(result) = brought.results.iter().find(|result| result.call == tool.call)
                {
                    let outcome = result.outcome();
                    tool.end = Some(ToolEnd::Known { outcome });
                }
            }
        }
        let Some(turn) = self.open.front_mut().filter(|turn| turn.id == brought.turn) else {
            return;
        };
        let mut has_brought = false;
        let tools = turn.steps.last_mut().into_iter().flat_map(|step| &mut step.tools);
        for tool in tools.filter(|tool| tool.is_with_client()) {
            if let Some(result) = brought.results.iter().find(|result| result.call == tool.call) {
                let outcome = result.outcome();
                tool.brought = Some(ToolEnd::Known { outcome });
                has_brought = true;
            }
        }
        if has_brought {
            let since = u32::try_from(turn.steps.len()).unwrap_or(u32::MAX);
            turn.offer = ClientOffer::new(brought.tools, since);
            turn.label(brought.results.iter().map(|result| result.call).min(), brought.metadata);
            (turn.sampling, turn.system) = (brought.sampling, brought.system);
        }
    }

    /// The client of this call's reply is waited for no longer.
    pub(in crate::session) fn client_is_late(&mut self, is_asked: impl Fn(&Step) -> bool) -> bool {
        let steps = self.open.front_mut().into_iter().flat_map(|turn| &mut turn.steps);
        let Some(step) = steps.into_iter().find(|step| is_asked(step)) else { return false };
        let waiting = step.tools.iter_mut().filter(|tool| tool.is_with_client());
        waiting.for_each(|tool| tool.overdue = true);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clawnode_kernel::MachineInput;
    use clawnode_proto::{
        FrameBody, TimerId,
        client_tool::ClientResult,
        hook::{HookPoint, HookTrail},
        llm::Sampling,
        session::{SessionInput, ToolResult, UserMessage},
        timeout::TurnTime,
        tool::ToolOutcome,
        tool_choice::ToolChoice,
    };

    use super::*;
    use crate::session::{Outcome, SessionJob, played::PlayedActivation};

    const SCHEMA: &str =
        r#"{"type":"object","properties":{"at":{"type":"integer"}},"required":["at"]}"#;

    fn tool(name: &str) -> ClientTool {
        let (name, input_schema) = (name.parse().unwrap(), SCHEMA.to_owned());
        ClientTool { name, description: "Looks.".to_owned(), input_schema }
    }

    fn pairs(text: &str) -> BTreeMap<String, String> {
        [("of".to_owned(), text.to_owned())].into()
    }

    fn says(run: &mut PlayedActivation, name: &str, sampling: Sampling) {
        // The agent has a tool `look` of its own.
        let tools = vec![tool("mine"), tool("yours"), tool("look")];
        let metadata = pairs(name);
        let message = UserMessage { tools, sampling, metadata, ..UserMessage::text(name) };
        run.hears(name, &SessionInput::UserMessage(message));
    }

    fn begun() -> PlayedActivation {
        let mut run = PlayedActivation::new(&[], Vec::new());
        says(&mut run, "go", Sampling::default());
        run
    }

    fn turn(run: &PlayedActivation) -> &Turn {
        run.machine.settled().unwrap().state.running().unwrap()
    }

    fn asked(run: &PlayedActivation) -> ClientCalls {
        turn(run).with_client().unwrap().client_calls().unwrap()
    }

    fn brings(run: &mut PlayedActivation, name: &str, results: &[(CallId, &str)]) {
        let result = |(call, content): &(CallId, &str)| ClientResult::done(*call, *content);
        let results = results.iter().map(result).collect();
        let (turn, system) = (turn(run).id, Some("be brief".to_owned()));
        let (sampling, tools) = (Sampling { seed: Some(7), ..Sampling::default() }, Vec::new());
        let metadata = pairs(name);
        let results = ClientResults { turn, results, system, sampling, tools, metadata };
        run.hears(name, &SessionInput::ClientResults(results));
    }

    /// What the model is asked next.
    fn request(run: &PlayedActivation) -> &crate::session::Assembled {
        match run.started.last() {
            Some((_, SessionJob::Call(job))) => &job.request,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_client_is_asked_and_its_results_go_on_with_the_turn() {
        let mut run = begun();
        let offered: Vec<&str> =
            request(&run).tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(offered, ["look", "far", "write", "mine", "yours"], "the agent's own go first");
        run.replies(&[("mine", r#"{"at":1}"#), ("far", r#"{"at":2}"#), ("yours", r#"{"at":3}"#)]);
        let calls = asked(&run);
        let named: Vec<&str> = calls.calls.iter().map(|call| call.name.as_str()).collect();
        assert_eq!(named, ["mine", "yours"]);
        let told =
            run.told.iter().position(|frame| matches!(frame.body, FrameBody::ClientCalls(_)));
        assert_eq!(told, Some(3), "after what was asked for");
        let key = super::super::tool_frames::client_key(turn(&run), &turn(&run).steps[0]);
        assert_eq!(run.told[3].key, key);
        // The agent's own runs as always.
        let job = run.started.iter().find_map(|(_, job)| match job {
            SessionJob::Publish(publish) => Some(publish.job.clone()),
            _ => None,
        });
        let job = job.unwrap();
        let (first, second) = (calls.calls[0].id, calls.calls[1].id);
        brings(&mut run, "brings", &[(first, "one"), (second, "two")]);
        brings(&mut run, "again", &[(first, "other"), (second, "other")]);
        assert!(turn(&run).with_client().is_none() && turn(&run).steps.len() == 1);
        let given = |after| turn(&run).metadata_after(after);
        assert_eq!((given(None), given(Some(first.min(second)))), (pairs("go"), pairs("brings")));
        let end = ToolEnd::Known { outcome: ToolOutcome::done("far away") };
        let result = ToolResult { call: job.call, nonce: job.nonce, end };
        run.hears("result", &SessionInput::ToolResult(result));
        let request = request(&run);
        assert_eq!((request.system.as_str(), request.sampling.seed), ("be brief", Some(7)));
        assert_eq!(request.tools.len(), 3, "the client offers none any more");
        let replies = &request.messages.last().unwrap().tool_replies;
        let told: Vec<_> = replies.iter().map(|reply| reply.content.inline().unwrap()).collect();
        assert_eq!(told, ["one", "far away", "two"], "the first results count");
        run.replies(&[]);
        assert!(run.machine.settled().unwrap().state.running().is_none());
    }

    /// A kill between the calls and their results: the next owner waits on, and asks again.
    #[test]
    fn the_next_owner_waits_on() {
        let mut run = begun();
        run.replies(&[("mine", r#"{"at":1}"#)]);
        let calls = asked(&run);
        let mut next = PlayedActivation::new(&[], run.journal.clone());
        assert_eq!(asked(&next), calls);
        assert!(matches!(next.started.last(), Some((_, SessionJob::AskClient(_)))));
        assert_eq!(next.told, run.told);
        brings(&mut next, "brings", &[(calls.calls[0].id, "one")]);
        assert_eq!(request(&next).messages.last().unwrap().tool_replies.len(), 1);
    }

    #[test]
    fn what_does_not_fit_never_reaches_the_client() {
        let mut run = begun();
        run.replies(&[("mine", r#"{"at":"there"}"#), ("none", r#"{"at":1}"#)]);
        let replies = &request(&run).messages.last().unwrap().tool_replies;
        assert!(replies.iter().all(|reply| reply.is_error));
        assert!(replies[1].content.inline().unwrap().contains("mine, yours"));
        assert!(!run.appends.concat().contains(&"tool_asked"));
    }

    #[test]
    fn hooks_and_the_limit_of_tools_at_a_time_are_not_for_clients() {
        let points = [HookPoint::BeforeToolCall, HookPoint::AfterToolCall];
        let mut run = PlayedActivation::new(&points, Vec::new());
        Arc::make_mut(&mut run.grant.profile).max_parallel_tools = 1;
        says(&mut run, "go", Sampling::default());
        run.replies(&[("mine", r#"{"at":1}"#), ("mine", r#"{"at":2}"#), ("yours", r#"{"at":3}"#)]);
        let calls = asked(&run).calls;
        assert_eq!(calls.len(), 3);
        let results: Vec<_> = calls.iter().map(|call| (call.id, "so")).collect();
        brings(&mut run, "brings", &results);
        assert_eq!(request(&run).messages.last().unwrap().tool_replies.len(), 3);
    }

    #[test]
    fn a_client_that_says_something_else_has_left_its_turn() {
        let mut run = begun();
        run.replies(&[("mine", r#"{"at":1}"#)]);
        says(&mut run, "never mind", Sampling::default());
        let state = &run.machine.settled().unwrap().state;
        assert_eq!(state.closed[0].outcome, Some(TurnOutcome::Cancelled));
        let replies = &request(&run).messages[2].tool_replies;
        assert!(replies[0].content.inline().unwrap().contains("was not finished"));
        // While something else of the turn runs, it is waited for.
        let mut run = begun();
        run.replies(&[("mine", r#"{"at":1}"#), ("far", r#"{"at":2}"#)]);
        says(&mut run, "never mind", Sampling::default());
        assert!(run.machine.settled().unwrap().state.closed.is_empty());
    }

    #[test]
    fn a_client_is_waited_for_for_a_day_and_no_time_of_the_turn_passes() {
        let mut run = PlayedActivation::new(&[], Vec::new());
        Arc::make_mut(&mut run.grant.profile).time =
            TurnTime { global_ms: 60_000, step_ms: 30_000 };
        says(&mut run, "go", Sampling::default());
        run.replies(&[("mine", r#"{"at":1}"#)]);
        let (step, expires) = (turn(&run).steps[0].call, asked(&run).expires);
        assert_eq!(expires, Timestamp(1).plus(CLIENT_TOOLS_WAIT));
        run.now.wall = Timestamp(expires.0 - 1);
        run.hears(
            "other",
            &SessionInput::TimerFired { timer: TimerId::of_client(asked(&run).calls[0].id) },
        );
        assert!(turn(&run).with_client().is_some(), "another timer, and no time has passed");
        run.hears("late", &SessionInput::TimerFired { timer: TimerId::of_client(step) });
        let state = &run.machine.settled().unwrap().state;
        let outcome = state.closed[0].outcome.clone();
        assert!(matches!(outcome, Some(TurnOutcome::TimedOut { level: TimeLevel::Step, .. })));
    }

    #[test]
    fn a_call_that_is_demanded_is_demanded_once() {
        let choices = [
            (ToolChoice::Required, None),
            (ToolChoice::Tool { name: "mine".parse().unwrap() }, None),
            (ToolChoice::None, Some(ToolChoice::None)),
        ];
        for (choice, then) in choices {
            let mut run = PlayedActivation::new(&[], Vec::new());
            let sampling = Sampling { tool_choice: Some(choice.clone()), ..Sampling::default() };
            says(&mut run, "go", sampling);
            assert_eq!(request(&run).sampling.tool_choice, Some(choice));
            run.replies(&[("look", r#"{"at":1}"#)]);
            let Some((key, SessionJob::Tool(_))) = run.started.pop() else { panic!("no tool") };
            let end = ToolEnd::Known { outcome: ToolOutcome::done("seen") };
            run.feed(MachineInput::Ended(key, Outcome::Tool(end, HookTrail::default())));
            assert_eq!(request(&run).sampling.tool_choice, then);
        }
    }
}
