//! What the machine appends around hooks, and what it starts.

use clawnode_cluster::{AppendAnswer, Record};
use clawnode_proto::{
    Attempt, Grammar as _, Incarnation, Input, Kind, Position, ProcessId, SessionKey, Timestamp,
    event::decode_record,
    hook::{HookBlock, HookPoint, HookSpec, HookTrail, ModelPatch},
    llm::{StopReason, Text, Usage},
    session::{Profile, SessionEvent, SessionInput, ToolEnd, ToolResult, UserMessage},
    tool::{EffectClass, Risk, ToolOutcome, ToolSpec, ToolUse},
};

use super::decided::AT_ONCE;
use crate::{
    agent::{AgentOptions, Permit},
    durable::{Activation, In, Loaded, Machine, MachineOptions, Now, Out},
    session::{
        CallKey, Outcome, Session, SessionJob,
        kind::Grant,
        prepare::{JudgeJob, JudgeSubject},
    },
};

const SCHEMA: &str =
    r#"{"type":"object","properties":{"at":{"type":"integer"}},"required":["at"]}"#;

/// One activation on a journal that always stores.
struct Run {
    machine: Machine<Session>,
    now: Now,
    grant: Grant,
    journal: Vec<Record>,
    /// The kinds of the session's own events, append by append.
    appends: Vec<Vec<&'static str>>,
    started: Vec<(CallKey, SessionJob)>,
}

fn profile(points: &[HookPoint]) -> Profile {
    let mut options = AgentOptions::new("main".parse().unwrap(), "sim/model".parse().unwrap());
    let tool = |name: &str, risk, capability: Option<&str>| ToolSpec {
        name: name.parse().unwrap(),
        description: String::new(),
        input_schema: SCHEMA.to_owned(),
        class: EffectClass::Safe,
        risk,
        capability: capability.map(|it| it.parse().unwrap()),
        timeout_ms: 1_000,
        time: None,
        pin: None,
    };
    options.tools = vec![
        tool("look", Risk::ReadOnly, None),
        tool("far", Risk::ReadOnly, Some("sim")),
        tool("write", Risk::Write, None),
    ];
    let hook = |point: &HookPoint| HookSpec {
        point: *point,
        name: "h".parse().unwrap(),
        required: true,
        timeout_ms: 1_000,
        modifies: true,
        tools: Vec::new(),
    };
    options.hooks = points.iter().map(hook).collect();
    options.profile()
}

impl Run {
    fn new(points: &[HookPoint], journal: Vec<Record>) -> Self {
        let now = Now { wall: Timestamp(1), steady: Timestamp(1) };
        let counter = 1 + journal.len() as u64;
        let me = Incarnation { process: ProcessId::from_u128(1), counter };
        let activation = if journal.is_empty() { Activation::Fresh } else { Activation::Recovery };
        let options = MachineOptions::default();
        let (machine, _) = Machine::new(key().entity(), me, activation, options, now);
        let grant = Grant { profile: profile(points), permit: Permit::free() };
        let loaded = Loaded { records: journal.clone(), ..Loaded::default() };
        let (appends, started) = (Vec::new(), Vec::new());
        let mut run = Self { machine, now, grant, journal, appends, started };
        run.feed(In::Loaded(loaded));
        run
    }

    fn feed(&mut self, input: In<Session>) {
        let mut waiting = vec![input];
        while let Some(input) = waiting.pop() {
            for out in self.machine.handle(self.now, input) {
                match out {
                    Out::Append { write, .. } => {
                        let position = Position(self.journal.len() as u64 + 1);
                        let events = decode_record(&write.bytes).unwrap();
                        let own = events.iter().filter_map(|it| it.event::<SessionEvent>().ok()?);
                        self.appends.push(own.map(|event| event.kind()).collect());
                        self.journal.push(Record { position, bytes: write.bytes });
                        waiting.push(In::Answered(AppendAnswer::Stored(position)));
                    }
                    Out::Acquire(key, _) => waiting.push(In::Granted(key, self.grant.clone())),
                    Out::Start(key, job) => self.started.push((key, job)),
                    _ => {}
                }
            }
        }
    }

    fn hears(&mut self, name: &str, body: &SessionInput) {
        let name = name.parse().unwrap();
        let input =
            Input::new(Kind::Session, &key().to_string(), name, self.now.wall, body).unwrap();
        self.feed(In::Deliver(vec![input]));
    }

    fn says(&mut self, text: &str) {
        self.hears(text, &SessionInput::UserMessage(UserMessage::text(text)));
    }

    /// The question to hooks that was begun last.
    fn judge(&mut self) -> (CallKey, JudgeJob) {
        let started = self.started.pop();
        let Some((key, SessionJob::Judge(job))) = started else { panic!("{started:?}") };
        (key, *job)
    }

    fn judged(&mut self, patches: Vec<ModelPatch>) {
        let (key, job) = self.judge();
        let JudgeSubject::Model(request) = job.subject else { panic!("{job:?}") };
        let (request, trail) = (request.digest(), HookTrail::default());
        self.feed(In::Ended(key, Outcome::ModelJudged { request, patches, trail }));
    }

    /// The model's reply to the call that was begun last.
    fn replies(&mut self, uses: &[(&str, &str)]) {
        let started = self.started.pop();
        let Some((key, SessionJob::Call(job))) = started else { panic!("{started:?}") };
        let tool_uses: Vec<ToolUse> = uses
            .iter()
            .enumerate()
            .map(|(id, (name, arguments))| ToolUse {
                id: id.to_string(),
                name: (*name).to_owned(),
                arguments: (*arguments).to_owned(),
            })
            .collect();
        let stop = if uses.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        let (content, usage, model) = (Text::from("so"), Usage::default(), "m".to_owned());
        let attempt = job.attempt;
        drop(job);
        self.feed(In::Ended(
            key,
            Outcome::Done { attempt, content, stop, usage, model, tool_uses },
        ));
    }
}

fn key() -> SessionKey {
    "main:web:a:b".parse().unwrap()
}

fn appended(text: &str) -> ModelPatch {
    ModelPatch { append: Some(text.to_owned()), ..ModelPatch::default() }
}

#[test]
fn without_hooks_a_turn_is_two_appends_and_with_one_it_is_three() {
    let mut plain = Run::new(&[], Vec::new());
    plain.says("hello");
    plain.replies(&[]);
    let end = vec!["model_done", "reply", "turn_done", "settled"];
    assert_eq!(plain.appends, [vec!["configured", "model_begun"], end.clone()]);

    let mut hooked = Run::new(&[HookPoint::BeforeLlmCall], Vec::new());
    hooked.says("hello");
    hooked.judged(vec![appended("in English")]);
    hooked.replies(&[]);
    let begun = vec!["model_hooked", "model_begun"];
    assert_eq!(hooked.appends, [vec!["configured"], begun, end]);
}

/// HOOK-1: what was journaled holds for the next owner too, who asks nobody; what was not does not.
#[test]
fn hook_1_the_next_owner_shows_the_model_what_the_journal_says() {
    let points = [HookPoint::BeforeLlmCall];
    let mut first = Run::new(&points, Vec::new());
    first.says("hello");
    let before = first.journal.clone();
    first.judged(vec![appended("in English")]);
    let started = first.started.pop();
    let Some((_, SessionJob::Call(call))) = started else { panic!("{started:?}") };

    let mut heir = Run::new(&points, first.journal.clone());
    let started = heir.started.pop();
    let Some((_, SessionJob::Call(again))) = started else { panic!("{started:?}") };
    assert_eq!((again.attempt, again.request.digest()), (Attempt(2), call.request.digest()));
    assert_eq!(again.request.messages.last().unwrap().content.inline(), Some("in English"));

    let mut early = Run::new(&points, before);
    assert!(matches!(early.judge().1.subject, JudgeSubject::Model(_)), "HOOK-1");
}

/// HOOK-2: a request that has become another one while hooks were asked is judged anew.
#[test]
fn hook_2_a_request_that_has_changed_is_judged_anew() {
    let mut run = Run::new(&[HookPoint::BeforeLlmCall], Vec::new());
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
    run.feed(In::Ended(old, outcome));
    let (_, job) = run.judge();
    let JudgeSubject::Model(again) = &job.subject else { panic!("HOOK-2: {job:?}") };
    assert_eq!(again.messages.last().unwrap().content.inline(), Some("wait"));
    assert_ne!(again.digest(), request.digest());
}

#[test]
fn a_model_call_that_is_blocked_ends_its_turn() {
    let mut run = Run::new(&[HookPoint::BeforeLlmCall], Vec::new());
    run.says("hello");
    let (key, job) = run.judge();
    let JudgeSubject::Model(request) = job.subject else { panic!("no request") };
    let block = HookBlock { hook: "h".parse().unwrap(), reason: "no".to_owned() };
    let trail = HookTrail { blocked: Some(block), ..HookTrail::default() };
    let request = request.digest();
    run.feed(In::Ended(key, Outcome::ModelJudged { request, patches: Vec::new(), trail }));
    assert_eq!(run.appends.last().unwrap(), &["model_hooked", "turn_done", "settled"]);
}

/// HOOK-2: people are asked about the changed arguments, and those are what runs.
#[test]
fn hook_2_what_people_are_asked_about_is_what_hooks_made_of_it() {
    let changed = r#"{"at":2}"#;
    let mut run = Run::new(&[HookPoint::BeforeToolCall], Vec::new());
    run.says("hello");
    run.replies(&[("write", r#"{"at":1}"#)]);
    let (key, job) = run.judge();
    assert!(matches!(job.subject, JudgeSubject::Tool { .. }));
    assert_eq!(run.appends.last().unwrap(), &["model_done"], "nobody is asked before hooks are");
    let arguments = Some(changed.to_owned());
    run.feed(In::Ended(key, Outcome::ToolJudged { arguments, trail: HookTrail::default() }));
    assert_eq!(run.appends.last().unwrap(), &["tool_hooked", "approval_asked"]);
    let started = run.started.pop();
    let Some((_, SessionJob::Ask(ask))) = started else { panic!("{started:?}") };
    assert_eq!(ask.approval.action.arguments, changed);
    assert_eq!(ask.approval.action.digest().unwrap(), ask.approval.digest);
}

/// Arguments that a hook made are judged by the schema like any.
#[test]
fn arguments_that_do_not_fit_are_not_run_whoever_made_them() {
    let mut run = Run::new(&[HookPoint::BeforeToolCall], Vec::new());
    run.says("hello");
    run.replies(&[("look", r#"{"at":1}"#), ("look", r#"{"at":"x"}"#)]);
    // The second never runs, so nobody is asked about it.
    let (key, _) = run.judge();
    assert!(run.started.is_empty(), "{:?}", run.started);
    let arguments = Some(r#"{"at":"y"}"#.to_owned());
    run.feed(In::Ended(key, Outcome::ToolJudged { arguments, trail: HookTrail::default() }));
    let last = run.appends.last().unwrap();
    assert_eq!(last[..2], ["tool_hooked", "tool_done"], "{last:?}");
    assert!(!run.appends.concat().contains(&"tool_asked"));
}

/// The result that an input brings is recorded once hooks have judged it, and the model is told what
/// they made of it.
#[test]
fn a_result_that_is_brought_is_judged_before_it_is_recorded() {
    let mut run = Run::new(&[HookPoint::AfterToolCall], Vec::new());
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
    run.feed(In::Ended(key, Outcome::ResultJudged { outcome, trail: HookTrail::default() }));
    assert_eq!(run.appends.last().unwrap(), &["tool_done", "model_begun"]);
    let started = run.started.pop();
    let Some((_, SessionJob::Call(next))) = started else { panic!("{started:?}") };
    let told = format!("{:?}", next.request.messages);
    assert!(told.contains("[redacted]") && !told.contains("a secret"), "{told}");
}

/// So many at a time, that what they change fits into one append.
#[test]
fn hooks_are_asked_about_a_few_calls_of_a_reply_at_a_time() {
    let mut run = Run::new(&[HookPoint::BeforeToolCall], Vec::new());
    run.says("hello");
    let arguments: Vec<String> = (0..6).map(|at| format!(r#"{{"at":{at}}}"#)).collect();
    let uses: Vec<(&str, &str)> = arguments.iter().map(|it| ("look", it.as_str())).collect();
    run.replies(&uses);
    assert_eq!(run.started.len(), AT_ONCE);
    let (key, _) = run.judge();
    run.feed(In::Ended(key, Outcome::ToolJudged { arguments: None, trail: HookTrail::default() }));
    let judges = run.started.iter().filter(|(_, job)| matches!(job, SessionJob::Judge(_)));
    assert_eq!(judges.count(), AT_ONCE);
}
