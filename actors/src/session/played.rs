//! For tests: one activation of a session's machine on a journal that always stores.

use clawnode_cluster::{AppendAnswer, Record};
use clawnode_proto::{
    Grammar as _, Incarnation, Input, Kind, Position, ProcessId, SessionKey, Timestamp,
    event::decode_record,
    hook::{HookPoint, HookSpec, HookTrail, ModelPatch},
    llm::{StopReason, Text, Usage},
    session::{Profile, SessionEvent, SessionInput, UserMessage},
    tool::{EffectClass, Risk, ToolSpec, ToolUse},
};

use super::{
    CallKey, Outcome, Session, SessionJob,
    kind::Grant,
    prepare::{JudgeJob, JudgeSubject},
};
use crate::{
    agent::{AgentOptions, Permit},
    durable::{Activation, In, Loaded, Machine, MachineOptions, Now, Out},
};

const SCHEMA: &str =
    r#"{"type":"object","properties":{"at":{"type":"integer"}},"required":["at"]}"#;

/// One activation on a journal that always stores.
pub(super) struct Run {
    pub(super) machine: Machine<Session>,
    pub(super) now: Now,
    pub(super) grant: Grant,
    pub(super) journal: Vec<Record>,
    /// The kinds of the session's own events, append by append.
    pub(super) appends: Vec<Vec<&'static str>>,
    pub(super) started: Vec<(CallKey, SessionJob)>,
}

pub(super) fn profile(points: &[HookPoint]) -> Profile {
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
    pub(super) fn new(points: &[HookPoint], journal: Vec<Record>) -> Self {
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

    pub(super) fn feed(&mut self, input: In<Session>) {
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

    pub(super) fn hears(&mut self, name: &str, body: &SessionInput) {
        let name = name.parse().unwrap();
        let input =
            Input::new(Kind::Session, &key().to_string(), name, self.now.wall, body).unwrap();
        self.feed(In::Deliver(vec![input]));
    }

    pub(super) fn says(&mut self, text: &str) {
        self.hears(text, &SessionInput::UserMessage(UserMessage::text(text)));
    }

    /// The question to hooks that was begun last.
    pub(super) fn judge(&mut self) -> (CallKey, JudgeJob) {
        let started = self.started.pop();
        let Some((key, SessionJob::Judge(job))) = started else { panic!("{started:?}") };
        (key, *job)
    }

    pub(super) fn judged(&mut self, patches: Vec<ModelPatch>) {
        let (key, job) = self.judge();
        let JudgeSubject::Model(request) = job.subject else { panic!("{job:?}") };
        let (request, trail) = (request.digest(), HookTrail::default());
        self.feed(In::Ended(key, Outcome::ModelJudged { request, patches, trail }));
    }

    /// The model's reply to the call that was begun last.
    pub(super) fn replies(&mut self, uses: &[(&str, &str)]) {
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

pub(super) fn key() -> SessionKey {
    "main:web:a:b".parse().unwrap()
}
