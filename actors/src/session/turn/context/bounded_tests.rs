//! Tests: what an agent is shown under the rules of context from version 2 on.

use clawnode_kernel::{LoadedJournal, MachineOptions};
use clawnode_proto::{
    Attempt, CallId, TurnId,
    context::{ContextMode, ContextRules, ContextSettings},
    llm::{Message, Role, StopReason, Usage},
    session::{Profile, SessionInput, ToolEnd, TurnOutcome, UserMessage},
    tool::{ToolOutcome, ToolUse},
};
use proptest::prelude::*;

use super::super::{
    model_call::model_tests::replayed,
    state::{SessionState, Step, StepEnd},
    state_parts::settled_cost::Spent,
    tools::tool_calls::ToolCall,
};
use super::model_input::{Assembled, FullContext, PartOf, assemble, draft};
use crate::{
    agent::{AgentOptions, Grant},
    session::{SessionJob, played::PlayedActivation},
};

fn settings(mode: ContextMode, tokens: u32) -> ContextSettings {
    ContextSettings { rules: ContextRules::V3, mode, tokens, recent_turns: 5 }
}

// === any conversation ===

/// A call of a turn: the size of its reply, and of the arguments and results of its tools.
type AnyStep = (usize, Vec<(usize, usize)>);

/// A conversation, and the settings that its next request is made by.
#[derive(Clone, Debug)]
pub(in crate::session::turn) struct Case {
    rules: ContextRules,
    /// The size of each turn's message, and its steps. The last turn runs.
    turns: Vec<(usize, Vec<AnyStep>)>,
    /// The size of the conversation that the session began with; none if zero.
    seed: usize,
    system: usize,
    has_tools: bool,
    is_auto: bool,
    pub(in crate::session::turn) tokens: u32,
    recent_turns: u32,
    window_tokens: u32,
}

pub(in crate::session::turn) fn cases() -> impl Strategy<Value = Case> {
    let tool = (0_usize..400, 0_usize..3_000);
    let step = (0_usize..2_000, prop::collection::vec(tool, 0..3));
    let turn = (1_usize..2_000, prop::collection::vec(step, 0..4));
    let sizes = (0_usize..6_000, 0_usize..12_000, any::<bool>(), any::<bool>());
    let rules = prop_oneof![Just(ContextRules::V2), Just(ContextRules::V3)];
    let rules = (1_u32..8_000, 1_u32..9, 1_000_u32..200_000, rules);
    (prop::collection::vec(turn, 1..24), sizes, rules).prop_map(
        |(
            turns,
            (seed, system, has_tools, is_auto),
            (tokens, recent_turns, window_tokens, rules),
        )| Case {
            rules,
            turns,
            seed,
            system,
            has_tools,
            is_auto,
            tokens,
            recent_turns,
            window_tokens,
        },
    )
}

fn tool_call(call: CallId, at: usize, (arguments, result): (usize, usize)) -> ToolCall {
    ToolCall {
        call: CallId::derive_tool(call, u32::try_from(at).unwrap()),
        using: ToolUse {
            id: at.to_string(),
            name: "look".to_owned(),
            arguments: format!("{{\"a\":\"{}\"}}", "x".repeat(arguments)),
        },
        times: 1,
        warned: false,
        overdue: false,
        late: None,
        judged: None,
        asked: None,
        approval: None,
        brought: None,
        end: Some(ToolEnd::Known { outcome: ToolOutcome::done("y".repeat(result)) }),
        entry: None,
    }
}

fn step(turn: TurnId, at: usize, (reply, tools): &AnyStep) -> Step {
    let call = CallId::derive(turn, u32::try_from(at).unwrap());
    let content = "z".repeat(*reply).into();
    let (stop, usage, blocks) = (StopReason::EndTurn, Usage::default(), None);
    Step {
        call,
        attempt: Attempt(1),
        model: None,
        estimate: None,
        route: None,
        held: None,
        spent: Spent::default(),
        begun_ms: 0,
        gave_way: None,
        end: Some(StepEnd::Done { content, stop, usage, blocks }),
        tools: tools.iter().enumerate().map(|(at, tool)| tool_call(call, at, *tool)).collect(),
        refused: None,
    }
}

impl Case {
    pub(in crate::session::turn) fn profile(&self) -> Profile {
        let model = "sim/model".parse().unwrap();
        let mut options = AgentOptions::new("main".parse().unwrap(), model);
        if self.has_tools {
            options.tools.clone_from(&PlayedActivation::new(&[], Vec::new()).grant.options.tools);
        }
        options.system = "s".repeat(self.system);
        options.window_tokens = Some(self.window_tokens);
        let mode = if self.is_auto { ContextMode::Auto } else { ContextMode::Bounded };
        let Self { rules, recent_turns, .. } = *self;
        let settings = settings(mode, self.tokens);
        options.context = Some(ContextSettings { rules, recent_turns, ..settings });
        options.profile()
    }

    pub(in crate::session::turn) fn state(&self) -> SessionState {
        let mut state = SessionState::default();
        for (at, (said, steps)) in self.turns.iter().enumerate() {
            let id = TurnId::from_u128(at as u128 + 1);
            let mut message = UserMessage::text("m".repeat(*said));
            if at == 0 && self.seed > 0 {
                let said = Message::text(Role::User, "h".repeat(self.seed));
                message.history = vec![said, Message::text(Role::Assistant, "yes")];
            }
            state.begin_turn(id, message, None);
            let mut turn = state.open.pop_back().unwrap();
            let steps = steps.iter().enumerate();
            turn.steps = steps.map(|(at, any)| step(id, at, any)).collect();
            if at + 1 == self.turns.len() {
                state.open.push_back(turn);
            } else {
                turn.outcome = Some(TurnOutcome::Cancelled);
                state.closed.push(turn);
            }
        }
        state
    }
}

/// Whether each call of a tool is answered in the message after it, and nothing else is answered.
pub(in crate::session::turn) fn are_tools_paired(messages: &[Message]) -> bool {
    let mut asked: Vec<&str> = Vec::new();
    for message in messages {
        let answered: Vec<&str> =
            message.tool_replies.iter().map(|reply| reply.id.as_str()).collect();
        if answered != asked {
            return false;
        }
        asked = message.tool_uses.iter().map(|tool_use| tool_use.id.as_str()).collect();
    }
    asked.is_empty()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn ctx_2_any_request_is_within_its_budget_and_is_a_conversation(case in cases()) {
        let (state, profile) = (case.state(), case.profile());
        let turn = state.running().unwrap();
        let made = draft(&state, &profile, turn, None);
        let request = &made.request;
        prop_assert!(are_tools_paired(&request.messages));
        prop_assert_eq!(request.messages[0].role, Role::User);
        prop_assert!(case.has_tools || request.messages.iter().all(|message| message.tool_uses.is_empty()));

        // The running turn is whole, and before it are the newest turns without a gap.
        let alone = SessionState { open: state.open.clone(), ..SessionState::default() };
        let alone = assemble(&alone, &profile, turn);
        prop_assert!(request.messages.ends_with(&alone.messages));
        let shown: Vec<PartOf> = made.spans.iter().map(|(part, _)| *part).collect();
        let mut all: Vec<PartOf> = Vec::new();
        all.extend((case.seed > 0).then_some(PartOf::Seed));
        all.extend(state.closed.iter().map(|turn| PartOf::Earlier(turn.id)));
        all.push(PartOf::Running);
        prop_assert_eq!(&shown[..], &all[request.dropped_turns as usize..]);
        let spans: usize = made.spans.iter().map(|(_, messages)| messages).sum();
        prop_assert_eq!(spans, request.messages.len());

        // CTX-2, and the model's own window for what a budget does not bound.
        let is_first = state.closed.is_empty();
        prop_assert!(case.is_auto || made.is_bounded || is_first);
        let fixed = Assembled { messages: Vec::new(), ..request.clone() }.estimate();
        let running = alone.estimate() - fixed;
        let beside = request.estimate() - running;
        let has_earlier = request.messages.len() > alone.messages.len();
        if made.is_bounded && has_earlier {
            prop_assert!(beside <= u64::from(case.tokens), "{beside}");
        }
        if has_earlier {
            prop_assert!(request.estimate() <= u64::from(case.window_tokens));
        }
    }
}

#[test]
fn a_soul_larger_than_the_budget_leaves_the_running_turn() {
    let turns = vec![(30, vec![(30, Vec::new())]); 3];
    let case = Case {
        rules: ContextRules::V3,
        turns,
        seed: 0,
        system: 6_000,
        has_tools: true,
        is_auto: false,
        tokens: 1_000,
        recent_turns: 5,
        window_tokens: 90_000,
    };
    let state = case.state();
    let request = assemble(&state, &case.profile(), state.running().unwrap());
    assert_eq!(request.dropped_turns, 2);
    assert_eq!(request.system.len(), 6_000);
    assert_eq!(request.messages[0].content.bytes(), 30);
    assert!(!request.tools.is_empty());
}

#[test]
fn what_a_client_sends_with_the_first_message_is_shown_with_it() {
    let turns = vec![(30, vec![(30, Vec::new())]); 2];
    let mut case = Case {
        rules: ContextRules::V3,
        turns,
        seed: 150_000,
        system: 0,
        has_tools: false,
        is_auto: true,
        tokens: 1_000,
        recent_turns: 5,
        window_tokens: 200_000,
    };
    let dropped = |case: &Case| {
        let state = case.state();
        assemble(&state, &case.profile(), state.running().unwrap()).dropped_turns
    };
    assert_eq!(dropped(&case), 1, "in the second turn it is one of the turns before");
    case.turns.pop();
    assert_eq!(dropped(&case), 0);
}

// === sessions ===

fn unborn() -> PlayedActivation {
    // No snapshot, so that the whole journal can be replayed.
    let machine = MachineOptions { snapshot_every: u64::MAX, ..MachineOptions::default() };
    let loaded = LoadedJournal { records: Vec::new(), snapshot: None };
    PlayedActivation::with(&[], loaded, machine, true)
}

fn configure(run: &mut PlayedActivation, context: Option<ContextSettings>) {
    run.grant = Grant::free(AgentOptions { context, ..(*run.grant.options).clone() });
}

/// A person says so many bytes.
fn says(run: &mut PlayedActivation, turn: usize, bytes: usize) {
    let message = UserMessage::text(format!("m{turn} {}", "x".repeat(bytes)));
    run.hears(&format!("m{turn}"), &SessionInput::UserMessage(message));
}

fn request(run: &PlayedActivation) -> Assembled {
    let Some((_, SessionJob::Call(job))) = run.started.last() else { panic!("not called") };
    job.request.clone()
}

/// What a request has beside the running turn, in tokens.
fn beside(run: &PlayedActivation, request: &Assembled) -> u64 {
    let running = run.machine.settled().unwrap().state.running().unwrap().messages();
    let from = request.messages.len() - running.len();
    let messages = request.messages[..from].to_vec();
    Assembled { messages, ..request.clone() }.estimate()
}

/// Whether one request begins with the other one, up to that one's running turn.
fn continues(before: &Assembled, after: &Assembled) -> bool {
    (&before.system, &before.tools) == (&after.system, &after.tools)
        && after.messages.starts_with(&before.messages)
}

/// CTX-1, CTX-2 and CACHE-1 over a long session. Its provider counts five tokens where four seem to be.
#[test]
fn a_session_of_500_turns_is_sent_what_one_of_10_is() {
    let mut run = unborn();
    configure(&mut run, Some(settings(ContextMode::Bounded, 2_000)));
    let (mut calls, mut moved, mut sent) = (0, 0, Vec::new());
    let mut before: Option<Assembled> = None;
    let counted = |tokens: u64| tokens * 5 / 4;
    for turn in 0..500_usize {
        says(&mut run, turn, 40 + turn * 7 % 300);
        for round in 0..=turn % 3 {
            let request = request(&run);
            if calls > 0 {
                let beside = counted(beside(&run, &request));
                assert!(beside <= 2_000, "turn {turn}: {beside}");
            }
            if let Some(before) = &before {
                let is_moved = request.dropped_turns > before.dropped_turns;
                assert!(is_moved || continues(before, &request), "CACHE-1: turn {turn}");
                moved += usize::from(is_moved);
            }
            let input_tokens = counted(request.estimate());
            sent.push(input_tokens);
            before = Some(request);
            calls += 1;
            let usage = Usage { input_tokens, ..Usage::default() };
            // A call of a tool that is refused at once, so that the model is asked again.
            let uses = [("look", "{}")];
            run.replies_for(usage, if round < turn % 3 { &uses[..] } else { &[] });
        }
    }
    assert_eq!(replayed(&run), calls, "CTX-1: every request is what the journal gives");
    assert!(moved * 4 < 500, "turns go in blocks: {moved}");
    let mean = |all: &[u64]| all.iter().sum::<u64>() / all.len() as u64;
    let (early, late) = (mean(&sent[10..40]), mean(&sent[sent.len() - 30..]));
    assert!(late < early * 3 / 2, "{early} {late}");
}

#[test]
fn a_session_takes_other_rules_with_its_next_turn() {
    // Under later rules, turns that are left out leave the state, and do not come back.
    let settings =
        |mode, tokens| ContextSettings { rules: ContextRules::V2, ..settings(mode, tokens) };
    let mut run = unborn();
    let turn = |run: &mut PlayedActivation, n: usize| {
        says(run, n, 600);
        let request = request(run);
        run.replies(&[]);
        request
    };
    let whole: Vec<_> = (0..8).map(|n| turn(&mut run, n)).collect();
    assert!(whole.iter().all(|request| request.dropped_turns == 0), "they fit into the window");
    configure(&mut run, Some(settings(ContextMode::Bounded, 1_500)));
    run.says("a call that is under way");
    let request = request(&run);
    assert!(request.dropped_turns >= 2 && beside(&run, &request) <= 1_500);
    run.replies(&[]);
    let bounded = turn(&mut run, 9);
    assert!(bounded.dropped_turns >= request.dropped_turns, "nothing comes back");
    configure(&mut run, Some(settings(ContextMode::Auto, 1_500)));
    let auto = turn(&mut run, 10);
    assert!(auto.dropped_turns < bounded.dropped_turns, "the history is short");
    configure(&mut run, None);
    let window = turn(&mut run, 11);
    assert!(window.dropped_turns <= auto.dropped_turns);
    assert_eq!(replayed(&run), 12);
}

/// Each turn has one earlier turn more that has no room.
#[test]
fn a_tight_context_is_noticed_once_for_each_configuration() {
    let notices = |run: &mut PlayedActivation, turns: std::ops::Range<usize>| {
        let is_noticed = |turn: &usize| {
            says(run, *turn, 600);
            let full = request(run).full;
            run.replies(&[]);
            full == Some(FullContext::Budget)
        };
        turns.filter(is_noticed).count()
    };
    let mut run = unborn();
    configure(&mut run, Some(settings(ContextMode::Bounded, 300)));
    assert_eq!(notices(&mut run, 0..6), 1);
    configure(&mut run, Some(settings(ContextMode::Bounded, 301)));
    assert_eq!(notices(&mut run, 6..10), 1, "the configuration has changed");
    configure(&mut run, Some(settings(ContextMode::Bounded, 301)));
    assert_eq!(notices(&mut run, 10..12), 0, "it is the same");
}

/// CTX-3: people notice what is missing. Once it is long, the same session is bounded, and stays so.
#[test]
fn all_of_a_short_chat_is_sent_by_default() {
    let mut run = unborn();
    configure(&mut run, Some(settings(ContextMode::Auto, 2_000)));
    for turn in 0..80_usize {
        says(&mut run, turn, if turn < 40 { 5 } else { 4_000 });
        let request = request(&run);
        let said = request.messages.iter().filter(|one| one.role == Role::User).count();
        let left_out = request.dropped_turns as usize;
        assert_eq!(said + left_out, turn + 1, "without a gap");
        // Some eighteen long turns are a quarter of the window, which has 100,000 tokens.
        match turn {
            0..56 => assert_eq!(left_out, 0, "turn {turn}"),
            56..62 => {}
            _ => assert!(left_out > 0 && beside(&run, &request) <= 2_000, "turn {turn}"),
        }
        run.replies(&[]);
    }
    assert_eq!(replayed(&run), 80);
}
