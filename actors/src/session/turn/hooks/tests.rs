//! What the machine appends around hooks, and what it starts.

use clawnode_kernel::MachineInput;
use clawnode_proto::{
    Attempt, Digest,
    hook::{HookBlock, HookPoint, HookTrail, MessagePatch, ModelPatch},
    media::{Media, MediaType},
    session::{SessionInput, ToolEnd, ToolResult, UserMessage},
    tool::ToolOutcome,
};

use super::super::prepare::JudgeSubject;
use super::decided::AT_ONCE;
use crate::session::{Outcome, SessionJob, played::PlayedActivation};

fn appended(text: &str) -> ModelPatch {
    ModelPatch { append: Some(text.to_owned()), ..ModelPatch::default() }
}

#[test]
fn without_hooks_a_turn_is_two_appends_and_with_one_it_is_three() {
    let mut plain = PlayedActivation::new(&[], Vec::new());
    plain.says("hello");
    plain.replies(&[]);
    let end = vec!["model_done", "reply", "turn_done", "settled"];
    assert_eq!(plain.appends, [vec!["configured", "model_begun"], end.clone()]);

    let mut hooked = PlayedActivation::new(&[HookPoint::BeforeLlmCall], Vec::new());
    hooked.says("hello");
    hooked.judged(vec![appended("in English")]);
    hooked.replies(&[]);
    let begun = vec!["model_hooked", "model_begun"];
    assert_eq!(hooked.appends, [vec!["configured"], begun, end]);
}

/// The place of a picture was in the words that are gone.
#[test]
fn pictures_of_a_message_that_a_hook_wrote_are_before_its_text() {
    let mut run = PlayedActivation::new(&[HookPoint::BeforeLlmCall], Vec::new());
    let (media_type, blob) = (MediaType::Png, Digest::of(b"p"));
    let picture = Media { media_type, blob, bytes: 9, name: None, at: Some(3) };
    let said = UserMessage { attachments: vec![picture], ..UserMessage::text("see this") };
    run.hears("a", &SessionInput::UserMessage(said));
    let change = MessagePatch { index: 0, content: "look at this".to_owned() };
    run.judged(vec![ModelPatch { messages: vec![change], ..ModelPatch::default() }]);
    let started = run.started.pop();
    let Some((_, SessionJob::Call(call))) = started else { panic!("{started:?}") };
    let message = &call.request.messages[0];
    assert_eq!(message.content.inline(), Some("look at this"));
    assert_eq!(message.attachments[0].at, None);
}

/// HOOK-1: what was journaled holds for the next owner too, which asks no hook; what was not does not.
#[test]
fn hook_1_the_next_owner_shows_the_model_what_the_journal_says() {
    let points = [HookPoint::BeforeLlmCall];
    let mut first = PlayedActivation::new(&points, Vec::new());
    first.says("hello");
    let before = first.journal.clone();
    first.judged(vec![appended("in English")]);
    let started = first.started.pop();
    let Some((_, SessionJob::Call(call))) = started else { panic!("{started:?}") };

    let mut successor = PlayedActivation::new(&points, first.journal.clone());
    let started = successor.started.pop();
    let Some((_, SessionJob::Call(again))) = started else { panic!("{started:?}") };
    assert_eq!((again.attempt, again.request.digest()), (Attempt(2), call.request.digest()));
    assert_eq!(again.request.messages.last().unwrap().content.inline(), Some("in English"));

    let mut early = PlayedActivation::new(&points, before);
    assert!(matches!(early.judge().1.subject, JudgeSubject::Model(_)), "HOOK-1");
}

/// HOOK-2: a request that has become another one while hooks were asked is judged again.
#[test]
fn hook_2_a_request_that_has_changed_is_judged_anew() {
    let mut run = PlayedActivation::new(&[HookPoint::BeforeLlmCall], Vec::new());
    run.says("hello");
    run.judged(Vec::new());
    run.replies(&[("hallucinated", "{}")]);
    let (old, job) = run.judge();
    let JudgeSubject::Model(request) = job.subject else { panic!("no request") };
    run.hears("wait", &SessionInput::Steer(UserMessage::text("wait")));
    let outcome = Outcome::ModelJudged {
        request: request.digest(),
        patches: Vec::new(),
        trail: HookTrail::default(),
    };
    run.feed(MachineInput::Ended(old, outcome));
    let (_, job) = run.judge();
    let JudgeSubject::Model(again) = &job.subject else { panic!("HOOK-2: {job:?}") };
    assert_eq!(again.messages.last().unwrap().content.inline(), Some("wait"));
    assert_ne!(again.digest(), request.digest());
}

#[test]
fn a_model_call_that_is_blocked_ends_its_turn() {
    let mut run = PlayedActivation::new(&[HookPoint::BeforeLlmCall], Vec::new());
    run.says("hello");
    let (key, job) = run.judge();
    let JudgeSubject::Model(request) = job.subject else { panic!("no request") };
    let block = HookBlock { hook: "h".parse().unwrap(), reason: "no".to_owned() };
    let trail = HookTrail { blocked: Some(block), ..HookTrail::default() };
    let request = request.digest();
    run.feed(MachineInput::Ended(
        key,
        Outcome::ModelJudged { request, patches: Vec::new(), trail },
    ));
    assert_eq!(run.appends.last().unwrap(), &["model_hooked", "turn_done", "settled"]);
}

/// HOOK-2: people are asked about the changed arguments, and those are what runs.
#[test]
fn hook_2_what_people_are_asked_about_is_what_hooks_made_of_it() {
    let changed = r#"{"at":2}"#;
    let mut run = PlayedActivation::new(&[HookPoint::BeforeToolCall], Vec::new());
    run.says("hello");
    run.replies(&[("write", r#"{"at":1}"#)]);
    let (key, job) = run.judge();
    assert!(matches!(job.subject, JudgeSubject::Tool { .. }));
    assert_eq!(run.appends.last().unwrap(), &["model_done"], "no person is asked before hooks are");
    let arguments = Some(changed.to_owned());
    run.feed(MachineInput::Ended(
        key,
        Outcome::ToolJudged { arguments, trail: HookTrail::default() },
    ));
    assert_eq!(run.appends.last().unwrap(), &["tool_hooked", "approval_asked"]);
    let started = run.started.pop();
    let Some((_, SessionJob::Ask(ask))) = started else { panic!("{started:?}") };
    assert_eq!(ask.approval.action.arguments, changed);
    assert_eq!(ask.approval.action.digest().unwrap(), ask.approval.digest);
}

/// Arguments that a hook made are judged by the schema like any.
#[test]
fn arguments_that_do_not_fit_are_not_run_whoever_made_them() {
    let mut run = PlayedActivation::new(&[HookPoint::BeforeToolCall], Vec::new());
    run.says("hello");
    run.replies(&[("look", r#"{"at":1}"#), ("look", r#"{"at":"x"}"#)]);
    // The second never runs, so no person is asked about it.
    let (key, _) = run.judge();
    assert!(run.started.is_empty(), "{:?}", run.started);
    let arguments = Some(r#"{"at":"y"}"#.to_owned());
    run.feed(MachineInput::Ended(
        key,
        Outcome::ToolJudged { arguments, trail: HookTrail::default() },
    ));
    let last = run.appends.last().unwrap();
    assert_eq!(last[..2], ["tool_hooked", "tool_done"], "{last:?}");
    assert!(!run.appends.concat().contains(&"tool_asked"));
}

/// The result that an input brings is recorded once hooks have judged it, and the model reads what
/// they made of it.
#[test]
fn a_result_that_is_brought_is_judged_before_it_is_recorded() {
    let mut run = PlayedActivation::new(&[HookPoint::AfterToolCall], Vec::new());
    run.says("hello");
    run.replies(&[("far", r#"{"at":1}"#)]);
    let started = run.started.pop();
    let Some((_, SessionJob::Publish(publish))) = started else { panic!("{started:?}") };
    let (call, nonce) = (publish.job.call, publish.job.nonce);
    let end = ToolEnd::Known { outcome: ToolOutcome::done("a secret") };
    run.hears("result", &SessionInput::ToolResult(ToolResult { call, nonce, end }));
    let (key, job) = run.judge();
    assert!(matches!(job.subject, JudgeSubject::Result { .. }), "{job:?}");
    let outcome = Some(ToolOutcome::done("[redacted]"));
    run.feed(MachineInput::Ended(
        key,
        Outcome::ResultJudged { outcome, trail: HookTrail::default() },
    ));
    assert_eq!(run.appends.last().unwrap(), &["tool_done", "model_begun"]);
    let started = run.started.pop();
    let Some((_, SessionJob::Call(next))) = started else { panic!("{started:?}") };
    let told = format!("{:?}", next.request.messages);
    assert!(told.contains("[redacted]") && !told.contains("a secret"), "{told}");
}

/// So many at a time, that what they change fits into one append.
#[test]
fn hooks_are_asked_about_a_few_calls_of_a_reply_at_a_time() {
    let mut run = PlayedActivation::new(&[HookPoint::BeforeToolCall], Vec::new());
    run.says("hello");
    let arguments: Vec<String> = (0..6).map(|at| format!(r#"{{"at":{at}}}"#)).collect();
    let uses: Vec<(&str, &str)> =
        arguments.iter().map(|arguments| ("look", arguments.as_str())).collect();
    run.replies(&uses);
    assert_eq!(run.started.len(), AT_ONCE);
    let (key, _) = run.judge();
    run.feed(MachineInput::Ended(
        key,
        Outcome::ToolJudged { arguments: None, trail: HookTrail::default() },
    ));
    let judges = run.started.iter().filter(|(_, job)| matches!(job, SessionJob::Judge(_)));
    assert_eq!(judges.count(), AT_ONCE);
}
