//! What becomes of a session's turns: their limits, their time, and what they say and use.

use std::sync::Arc;

use clawnode_actors::session::{Effect, Outcome, Session, SessionJob, SessionState, Turn};
use clawnode_kernel::{Activation, Entity, MachineInput};
use clawnode_proto::{
    CallId, FrameKey, Input, TimerId, Timestamp, TurnId,
    hook::HookTrail,
    limits::{BAD_CALLS, MORE_STEPS, PENDING_INPUTS},
    llm::{FailureClass, Message, ModelFailure, Role, StopReason, Text, Usage},
    policy::{Decided, Decision},
    session::{
        ApprovalDecided, Profile, SessionInput, ToolEnd, ToolResult, TurnOutcome, UserMessage,
    },
    timeout::{TimeLevel, TurnTime},
    tool::{EffectClass, Risk, ToolFailure, ToolOutcome, ToolSpec, ToolUse},
};

use super::bench::{Bench, KIB, input, key, message};

/// A tool that runs beside its session.
fn look() -> ToolSpec {
    ToolSpec {
        name: "look".parse().unwrap(),
        description: String::new(),
        input_schema: r#"{"type":"object"}"#.to_owned(),
        class: EffectClass::Safe,
        risk: Risk::ReadOnly,
        capability: None,
        timeout_ms: 1_000,
        time: None,
        pin: None,
    }
}

/// A session whose first call runs, of an agent with this profile and a tool.
fn begun(change: impl FnOnce(&mut Profile)) -> Bench {
    let mut bench = Bench::new();
    let profile = Arc::make_mut(&mut bench.grant.profile);
    profile.tools = vec![look()];
    change(profile);
    bench.feed(MachineInput::Deliver(vec![message("a", 10)]));
    bench
}

fn state(bench: &Bench) -> SessionState {
    Entity::<Session>::of(key().entity(), &bench.loaded()).unwrap().state
}

fn first() -> TurnId {
    TurnId::from(message("a", 10).id)
}

fn turn(bench: &Bench) -> Turn {
    state(bench).turn(first()).unwrap().clone()
}

fn uses(tool: &str, numbers: std::ops::Range<u32>) -> Vec<ToolUse> {
    let using = |n: u32| ToolUse {
        id: n.to_string(),
        name: tool.to_owned(),
        arguments: format!("{{\"n\":{n}}}"),
    };
    numbers.map(using).collect()
}

/// What runs that is a tool, or a model call.
fn running(bench: &Bench) -> (usize, usize) {
    let count =
        |is: fn(&SessionJob) -> bool| bench.started.iter().filter(|(_, job)| is(job)).count();
    let tools = count(|job| matches!(job, SessionJob::Tool(_)));
    (tools, count(|job| matches!(job, SessionJob::Call(_))))
}

/// The tool that was begun first has done its work.
fn looked(bench: &mut Bench) {
    let at = bench.started.iter().position(|(_, job)| matches!(job, SessionJob::Tool(_))).unwrap();
    let (effect, _) = bench.started.remove(at);
    let end = ToolEnd::Known { outcome: ToolOutcome::done("seen") };
    bench.feed(MachineInput::Ended(effect, Outcome::Tool(end, HookTrail::default())));
}

/// The model asks for one look, which is done.
fn round(bench: &mut Bench, number: u32) {
    bench.replies("so", uses("look", number..number + 1));
    looked(bench);
}

/// The call that was begun last ends, and used so much.
fn says(bench: &mut Bench, content: &str, tool_uses: Vec<ToolUse>, output_tokens: u64) {
    let Some((call, SessionJob::Call(job))) = bench.started.pop() else { panic!("no call") };
    let stop = if tool_uses.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
    let usage = Usage { output_tokens, ..Usage::default() };
    let (content, model, blocks) = (Text::from(content), "m".to_owned(), None);
    let done =
        Outcome::Done { attempt: job.attempt, content, stop, usage, model, tool_uses, blocks };
    drop(job.permit);
    bench.feed(MachineInput::Ended(call, done));
}

// === limits ===

#[test]
fn a_turn_that_has_used_up_its_steps_goes_on_if_a_person_says_so() {
    let mut bench = begun(|profile| (profile.step_limit, profile.step_wait_ms) = (2, 60_000));
    round(&mut bench, 1);
    assert!(!turn(&bench).waits_for_person());
    round(&mut bench, 2);
    let asked = |bench: &Bench| {
        let asks = |(effect, _): &&(Effect, SessionJob)| matches!(effect, Effect::AskSteps { .. });
        bench.started.iter().filter(asks).count()
    };
    assert_eq!((running(&bench), asked(&bench)), ((0, 0), 1));
    let waits = turn(&bench);
    assert!(waits.wants_steps() && waits.waits_for_person() && waits.asks().next().is_none());
    // Another one's timer, and another turn's word.
    let timer = TimerId::of_steps(first(), 3);
    bench.feed(MachineInput::Deliver(vec![input("t", &SessionInput::TimerFired { timer })]));
    let other = SessionInput::Continue { turn: TurnId::from_u128(1) };
    bench.feed(MachineInput::Deliver(vec![input("other", &other)]));
    assert!(turn(&bench).wants_steps());
    let more = SessionInput::Continue { turn: first() };
    bench.feed(MachineInput::Deliver(vec![input("more", &more)]));
    assert_eq!((running(&bench).1, turn(&bench).more_steps), (1, MORE_STEPS));
    assert!(!turn(&bench).wants_steps());
}

#[test]
fn a_turn_that_has_used_up_its_steps_ends_if_nobody_says_so() {
    let ended = TurnOutcome::StepLimit { limit: 2 };
    let mut bench = begun(|profile| (profile.step_limit, profile.step_wait_ms) = (2, 60_000));
    (1..=2).for_each(|number| round(&mut bench, number));
    assert_eq!(turn(&bench).outcome, None);
    let timer = TimerId::of_steps(first(), 2);
    bench.feed(MachineInput::Deliver(vec![input("t", &SessionInput::TimerFired { timer })]));
    assert_eq!(turn(&bench).outcome, Some(ended.clone()));
    assert!(!turn(&bench).waits_for_person());
    // An agent that asks no person.
    let mut bench = begun(|profile| (profile.step_limit, profile.step_wait_ms) = (2, 0));
    (1..=2).for_each(|number| round(&mut bench, number));
    assert_eq!(turn(&bench).outcome, Some(ended));
}

#[test]
fn as_many_tools_run_at_a_time_as_the_agent_says() {
    for (most, runs) in [(1, 1), (2, 2), (9, 3)] {
        let mut bench = begun(|profile| profile.max_parallel_tools = most);
        bench.replies("so", uses("look", 0..3));
        assert_eq!(running(&bench), (runs, 0), "{most}");
        for left in (0..3).rev() {
            looked(&mut bench);
            assert_eq!(running(&bench), (runs.min(left), usize::from(left == 0)), "{most}");
        }
    }
}

#[test]
fn results_that_do_not_fit_together_go_into_appends_of_their_own() {
    let mut bench = begun(|profile| profile.max_parallel_tools = 3);
    bench.replies("so", uses("look", 0..3));
    bench.slow = true;
    bench.feed(MachineInput::Deliver(vec![message("b", 10)]));
    bench.feed(MachineInput::Deliver(vec![message("c", 250 * KIB)]));
    for (effect, _) in std::mem::take(&mut bench.started) {
        let outcome = ToolOutcome::done("x".repeat(300 * KIB));
        let end = Outcome::Tool(ToolEnd::Known { outcome }, HookTrail::default());
        bench.feed(MachineInput::Ended(effect, end));
    }
    let before = bench.journal.len();
    bench.slow = false;
    bench.answer();
    assert!(bench.stopped.is_none(), "{:?}", bench.stopped);
    assert_eq!(bench.journal.len(), before + 5, "{:?}", bench.kinds(before));
    assert!(turn(&bench).steps[0].is_over());
    assert_eq!((state(&bench).open.len(), running(&bench)), (3, (0, 1)));
}

#[test]
fn a_model_is_told_of_bad_calls_only_so_often() {
    let mut bench = begun(|_| {});
    for number in 0..BAD_CALLS {
        bench.replies("", uses("none", number..number + 1));
        assert_eq!(running(&bench), (0, 1));
        round(&mut bench, number);
    }
    bench.replies("", uses("none", 9..10));
    let outcome = turn(&bench).outcome;
    assert!(
        matches!(&outcome, Some(TurnOutcome::BadCalls { detail }) if detail.contains("`none`")),
        "{outcome:?}"
    );
}

#[test]
fn so_many_messages_wait_and_no_more() {
    let mut bench = begun(|_| {});
    let many: Vec<Input> = (0..PENDING_INPUTS).map(|n| message(&format!("m{n}"), 1)).collect();
    bench.feed(MachineInput::Deliver(many.clone()));
    assert_eq!(bench.inputs("accepted").len(), PENDING_INPUTS);
    // What is no message does not wait behind them.
    let last = TurnId::from(many[PENDING_INPUTS - 2].id);
    bench.feed(MachineInput::Deliver(vec![input("stop", &SessionInput::Cancel { turn: last })]));
    assert_eq!(state(&bench).closed.len(), 1);
    assert_eq!(bench.inputs("accepted").last(), Some(&many[PENDING_INPUTS - 1].id));
}

// === time ===

/// TIME-1, also while tools run.
#[test]
fn a_turn_ends_once_its_time_is_over_and_not_before() {
    let time = TurnTime { global_ms: 10_000, step_ms: 0 };
    let mut bench = begun(|profile| profile.time = time);
    bench.now.wall = Timestamp(10_000);
    bench.replies("so", uses("look", 0..2));
    assert_eq!((running(&bench).0, turn(&bench).outcome), (2, None));
    bench.now.wall = Timestamp(10_001);
    looked(&mut bench);
    let outcome = turn(&bench).outcome;
    assert!(
        matches!(outcome, Some(TurnOutcome::TimedOut { level: TimeLevel::Global, .. })),
        "{outcome:?}"
    );
}

#[test]
fn a_call_is_given_what_its_turn_and_step_have_left() {
    let left = |bench: &Bench| {
        let Some((_, SessionJob::Call(job))) = bench.started.last() else { panic!("no call") };
        job.limit.as_ref().map(|limit| (limit.level, limit.left_ms))
    };
    let time = TurnTime { global_ms: 10_000, step_ms: 4_000 };
    let mut bench = begun(|profile| profile.time = time);
    assert_eq!(left(&bench), Some((TimeLevel::Step, 4_000)));
    // Made again after a crash, it is the same step.
    bench.now.wall = Timestamp(1_001);
    bench.feed(MachineInput::Deliver(vec![message("b", 1)]));
    bench.again(Activation::Recovery);
    assert_eq!(left(&bench), Some((TimeLevel::Step, 3_000)));
    // The next one has its own, and what is left of the turn.
    bench.now.wall = Timestamp(2_001);
    round(&mut bench, 0);
    assert_eq!(left(&bench), Some((TimeLevel::Step, 4_000)));
    bench.now.wall = Timestamp(5_001);
    round(&mut bench, 1);
    bench.now.wall = Timestamp(8_001);
    round(&mut bench, 2);
    assert_eq!(left(&bench), Some((TimeLevel::Global, 2_000)));
}

/// Who was asked for more than there was time for has run out of it; another failure is one.
#[test]
fn a_call_that_is_stopped_for_the_time_of_its_turn_has_timed_out() {
    for (at, class, is_late) in [
        (10_001, FailureClass::Cancelled, true),
        (10_001, FailureClass::NoAgent, false),
        (9_999, FailureClass::Cancelled, false),
    ] {
        let mut bench = begun(|profile| profile.time = TurnTime { global_ms: 10_000, step_ms: 0 });
        let Some((call, SessionJob::Call(job))) = bench.started.pop() else { panic!("no call") };
        let failure = ModelFailure::new(class, "it failed".to_owned());
        let (attempt, partial, usage) = (job.attempt, Text::from(""), Usage::default());
        drop(job);
        bench.now.wall = Timestamp(at);
        let failed = Outcome::Failed { attempt, failure, partial, usage };
        bench.feed(MachineInput::Ended(call, failed));
        let outcome = turn(&bench).outcome.unwrap();
        assert_eq!(matches!(outcome, TurnOutcome::TimedOut { .. }), is_late, "{outcome:?}");
    }
}

/// A timer wakes a session whose job hangs; one that came too early is set again, for later each time.
#[test]
fn a_timer_is_set_for_the_first_limit_and_again_if_it_came_early() {
    for (global_ms, step_ms, due) in
        [(8_000, 10_000, 13_001), (0, 10_000, 15_001), (20_000, 0, 25_001)]
    {
        let mut bench = begun(|profile| {
            profile.time = TurnTime { global_ms, step_ms };
            profile.tools[0].capability = Some("sim".parse().unwrap());
        });
        bench.replies("so", uses("look", 0..1));
        let set = |bench: &Bench| {
            let mut times = bench.started.iter().filter_map(|(effect, _)| match effect {
                Effect::Time { fired, due, .. } => Some((*fired, due.0)),
                _ => None,
            });
            times.next_back()
        };
        assert_eq!(set(&bench), Some((0, due)));
        for (fired, later) in (0..8).zip([1, 2, 4, 8, 16, 32, 60, 60]) {
            let timer = TimerId::of_time(first(), fired);
            let heard = input(&format!("t{fired}"), &SessionInput::TimerFired { timer });
            bench.feed(MachineInput::Deliver(vec![heard]));
            assert_eq!(set(&bench), Some((fired + 1, due + 1_000 * later)));
        }
    }
}

/// APR-3: the first decision counts, and later ones change nothing.
#[test]
fn a_second_decision_about_a_call_changes_nothing() {
    let mut bench = begun(|profile| profile.tools[0].risk = Risk::Write);
    bench.replies("so", uses("look", 0..1));
    let Some((_, SessionJob::Ask(ask))) = bench.started.pop() else { panic!("no person is asked") };
    let (call, action) = (ask.approval.action.call, ask.approval.digest);
    for (name, decision) in [("yes", Decision::Approve), ("no", Decision::Deny)] {
        let decided = Decided { decision, by: "ada".to_owned(), reason: None };
        let decided = ApprovalDecided { call, action, decided };
        let heard = input(name, &SessionInput::ApprovalDecided(decided));
        bench.feed(MachineInput::Deliver(vec![heard]));
    }
    assert!(bench.stopped.is_none(), "{:?}", bench.stopped);
    assert_eq!(bench.kinds(0).iter().filter(|kind| **kind == "approval_given").count(), 1);
    assert_eq!(running(&bench), (1, 0));
}

/// TIME-1: a person may take as long as they like.
#[test]
fn the_time_of_a_person_is_no_time_of_the_turn() {
    let time = TurnTime { global_ms: 10_000, step_ms: 0 };
    let mut bench = begun(|profile| (profile.time, profile.tools[0].risk) = (time, Risk::Write));
    bench.replies("so", uses("look", 0..1));
    let Some((_, SessionJob::Ask(ask))) = bench.started.pop() else { panic!("no person is asked") };
    let decided = Decided { decision: Decision::Approve, by: "ada".to_owned(), reason: None };
    let (call, action) = (ask.approval.action.call, ask.approval.digest);
    let decided = ApprovalDecided { call, action, decided };
    bench.now.wall = Timestamp(60_000);
    bench.feed(MachineInput::Deliver(vec![input("yes", &SessionInput::ApprovalDecided(decided))]));
    assert_eq!((running(&bench), turn(&bench).outcome), ((1, 0), None));
    let mut bench = begun(|profile| {
        (profile.time, profile.step_limit, profile.step_wait_ms) = (time, 1, 600_000);
    });
    round(&mut bench, 0);
    bench.now.wall = Timestamp(60_000);
    let more = SessionInput::Continue { turn: first() };
    bench.feed(MachineInput::Deliver(vec![input("more", &more)]));
    assert_eq!((running(&bench), turn(&bench).outcome), ((0, 1), None));
}

/// What is stopped because its step has no time left has timed out; what ends well has not.
#[test]
fn a_tool_that_is_stopped_for_its_time_has_timed_out() {
    let mut bench = begun(|profile| profile.time = TurnTime { global_ms: 0, step_ms: 5_000 });
    bench.replies("so", uses("look", 0..2));
    bench.now.wall = Timestamp(10_000);
    bench.feed(MachineInput::Deliver(vec![message("b", 1)]));
    looked(&mut bench);
    let (effect, _) = bench.started.remove(0);
    let outcome = ToolOutcome::failed(ToolFailure::Cancelled, "stopped".to_owned());
    let end = Outcome::Tool(ToolEnd::Known { outcome }, HookTrail::default());
    bench.feed(MachineInput::Ended(effect, end));
    let [well, stopped] = &turn(&bench).steps[0].tools[..] else { panic!("two tools") };
    assert_eq!(well.told(), (Text::from("seen"), false));
    let (text, is_error) = stopped.told();
    assert!(is_error && text.inline().unwrap().starts_with("stopped\n["), "{text:?}");
}

/// I4: what still runs may have to be looked after.
#[test]
fn a_session_is_not_at_rest_while_a_tool_of_a_cancelled_turn_runs() {
    let mut bench = begun(|_| {});
    bench.replies("so", uses("look", 0..1));
    let stop = input("stop", &SessionInput::Cancel { turn: first() });
    bench.feed(MachineInput::Deliver(vec![stop.clone()]));
    assert_eq!(turn(&bench).outcome, Some(TurnOutcome::Cancelled));
    let told = bench.started.iter().position(|(_, job)| matches!(job, SessionJob::Emit(_)));
    let (told, _) = bench.started.remove(told.unwrap());
    bench.feed(MachineInput::Confirmed(told));
    assert!(!bench.completed.contains(&stop.id), "it still runs");
    looked(&mut bench);
    assert!(bench.completed.contains(&stop.id));
}

#[test]
fn a_result_is_taken_only_for_the_call_and_the_try_that_it_answers() {
    let mut bench = begun(|profile| {
        profile.max_parallel_tools = 2;
        profile.tools[0].capability = Some("sim".parse().unwrap());
    });
    bench.replies("so", uses("look", 0..2));
    let jobs = bench.started.iter().filter_map(|(_, job)| match job {
        SessionJob::Publish(publish) => Some((publish.job.call, publish.job.nonce)),
        _ => None,
    });
    let [one, two] = jobs.collect::<Vec<_>>()[..] else { panic!("{:?}", bench.started) };
    for (name, call, nonce, ended) in
        [("x", one.0, two.1, 0), ("y", two.0, one.1, 0), ("z", two.0, two.1, 1)]
    {
        let end = ToolEnd::Known { outcome: ToolOutcome::done("seen") };
        let result = SessionInput::ToolResult(ToolResult { call, nonce, end });
        bench.feed(MachineInput::Deliver(vec![input(name, &result)]));
        let ends = bench.kinds(0).iter().filter(|kind| **kind == "tool_done").count();
        assert_eq!(ends, ended, "{name}");
    }
    let tools = &turn(&bench).steps[0].tools;
    assert!(tools[0].end.is_none() && tools[1].end.is_some());
}

// === what is said and used ===

#[test]
fn a_turn_knows_what_its_calls_said_and_used_and_how_many_were_lost() {
    let mut bench = begun(|_| {});
    // The first try is lost with its process.
    bench.again(Activation::Recovery);
    says(&mut bench, "", uses("look", 0..1), 3);
    looked(&mut bench);
    let seam = |bench: &Bench| {
        let Some((_, SessionJob::Call(job))) = bench.started.last() else { panic!("no call") };
        job.seam
    };
    assert_eq!(seam(&bench), "", "nothing was said yet");
    assert_eq!(turn(&bench).text_bytes(), 0);
    says(&mut bench, "so", uses("look", 1..2), 4);
    assert_eq!(turn(&bench).end_key().call, CallId::derive_tools(turn(&bench).steps[1].call));
    looked(&mut bench);
    assert_eq!(seam(&bench), "\n\n");
    assert_eq!((turn(&bench).lost(), turn(&bench).reported().output_tokens), (2, 7));
    says(&mut bench, "then", Vec::new(), 5);
    let turn = turn(&bench);
    assert_eq!((turn.lost(), turn.lost_attempts), (1, 1));
    assert_eq!((turn.reported().output_tokens, turn.usage.output_tokens), (12, 12));
    let texts: Vec<_> = turn.texts().map(|(seam, text)| (seam, text.clone())).collect();
    assert_eq!(texts, [("", Text::from("so")), ("\n\n", Text::from("then"))]);
    assert_eq!(turn.text_bytes(), 8);
    let told = turn.messages();
    assert_eq!(told.last(), Some(&Message::text(Role::Assistant, "then")));
    let asked =
        told.iter().flat_map(|message| &message.tool_uses).map(|tool_use| tool_use.id.clone());
    let answered =
        told.iter().flat_map(|message| &message.tool_replies).map(|reply| reply.id.clone());
    let calls = turn.steps.iter().flat_map(|step| &step.tools).map(|tool| tool.call.to_string());
    let calls: Vec<String> = calls.collect();
    assert_eq!((asked.collect(), answered.collect()), (calls.clone(), calls));
    let last = turn.steps.last().unwrap();
    let (call, attempt, index) = (last.call, last.attempt, FrameKey::DONE);
    assert_eq!(turn.end_key(), FrameKey { turn: first(), call, attempt, index });
}

#[test]
fn only_the_first_message_brings_an_earlier_conversation() {
    let with = |name: &str| {
        let history = vec![Message::text(Role::User, name)];
        input(name, &SessionInput::UserMessage(UserMessage { history, ..UserMessage::text("x") }))
    };
    let mut bench = Bench::new();
    bench.feed(MachineInput::Deliver(vec![with("one"), with("two")]));
    assert_eq!(state(&bench).seed, [Message::text(Role::User, "one")]);
    let mut bench = begun(|_| {});
    bench.feed(MachineInput::Deliver(vec![with("two")]));
    for name in ["three", "four"] {
        let call = bench.started.iter().position(|(_, job)| matches!(job, SessionJob::Call(_)));
        let call = bench.started.remove(call.unwrap());
        bench.started.push(call);
        bench.replies("so", Vec::new());
        if name == "four" {
            assert!(state(&bench).open.is_empty());
            bench.feed(MachineInput::Deliver(vec![with(name)]));
        }
    }
    assert_eq!(state(&bench).seed, []);
}

#[test]
fn a_steer_joins_what_runs_and_nothing_else() {
    let steer = |name: &str| input(name, &SessionInput::Steer(UserMessage::text("and")));
    let mut bench = begun(|_| {});
    bench.feed(MachineInput::Deliver(vec![steer("s1")]));
    assert_eq!(state(&bench).open.len(), 1);
    assert_eq!(turn(&bench).joined, [TurnId::from(steer("s1").id)]);
    // One that is cancelled says nothing more.
    bench.feed(MachineInput::Deliver(vec![input("c", &SessionInput::Cancel { turn: first() })]));
    bench.feed(MachineInput::Deliver(vec![steer("s2")]));
    assert_eq!(state(&bench).open.len(), 2);
    // Nor does one that has not begun.
    let mut bench = Bench::new();
    bench.paused = true;
    bench.feed(MachineInput::Deliver(vec![message("a", 10), steer("s1")]));
    assert_eq!(state(&bench).open.len(), 2);
}

#[test]
fn a_steer_that_no_call_was_shown_becomes_a_turn_of_its_own() {
    let steer = |name: &str| input(name, &SessionInput::Steer(UserMessage::text("and")));
    let [shown, late] = ["s1", "s2"].map(|name| TurnId::from(steer(name).id));
    let mut bench = begun(|_| {});
    bench.feed(MachineInput::Deliver(vec![steer("s1")]));
    round(&mut bench, 0);
    bench.feed(MachineInput::Deliver(vec![steer("s2")]));
    bench.feed(MachineInput::Deliver(vec![input("c", &SessionInput::Cancel { turn: first() })]));
    let [call] = bench.aborted[..] else { panic!("{:?}", bench.aborted) };
    bench.feed(MachineInput::Gone(call));
    assert_eq!(
        (turn(&bench).outcome, turn(&bench).joined),
        (Some(TurnOutcome::Cancelled), vec![shown])
    );
    assert_eq!(state(&bench).open.iter().map(|turn| turn.id).collect::<Vec<_>>(), [late]);
}
