//! For tests: one activation of a session's machine on a journal that always stores.

use std::sync::Arc;

use bytes::Bytes;
use clawnode_cluster::{AppendAnswer, Record};
use clawnode_kernel::{
    Activation, LoadedJournal, Machine, MachineInput, MachineOptions, MachineOutput, Now, archive,
    core::{position_of, snapshot_blob},
};
use clawnode_proto::{
    Digest, Frame, Grammar as _, Incarnation, Input, InputId, Kind, Position, ProcessId,
    SessionKey, Timestamp,
    block::Blocks,
    context::ContextSettings,
    event::decode_record,
    hook::{HookPoint, HookSpec, HookTrail, ModelPatch},
    kernel::SnapshotState,
    limits::INLINE_BYTES,
    llm::{FailureClass, ModelFailure, StopReason, Text, Usage},
    response::ResponseSchema,
    session::{SessionEvent, SessionInput, UserMessage},
    tool::{EffectClass, Risk, ToolSpec, ToolUse},
};

use super::played_budgets::PlayedBudgets;
use crate::agent::{AgentOptions, Grant};
use crate::session::{
    Effect, EffectJob, Outcome, Session, SessionJob, Want,
    texts::packed_text,
    turn::{
        memory::recall_for_turn::{RecallAsk, RecallFinds},
        prepare::{JudgeJob, JudgeSubject},
    },
};

const SCHEMA: &str =
    r#"{"type":"object","properties":{"at":{"type":"integer"}},"required":["at"]}"#;

/// One activation on a journal that always stores.
pub(crate) struct PlayedActivation {
    pub(crate) machine: Machine<Session>,
    pub(crate) now: Now,
    pub(crate) grant: Grant,
    /// From which calls reserve, if anything is limited.
    pub(in crate::session) budgets: Option<PlayedBudgets>,
    pub(crate) journal: Vec<Record>,
    /// From one record's position to the next one's.
    pub(crate) stride: u64,
    /// The kinds of the session's own events, append by append.
    pub(crate) appends: Vec<Vec<&'static str>>,
    pub(crate) started: Vec<(Effect, SessionJob)>,
    /// What clients see before the last of them.
    pub(crate) told: Vec<Frame>,
    /// What was archived: the records, and the state.
    pub(crate) archives: Vec<(Vec<Record>, Bytes)>,
    /// Archives are never answered for, as if the process died over one.
    pub(crate) dies: bool,
    /// What turns send is sent at once.
    emits: bool,
    pub(crate) discarded: Vec<Digest>,
    pub(crate) scrubbed: Vec<Vec<Digest>>,
    pub(crate) completed: Vec<InputId>,
    /// What stores find, the last one first.
    pub(in crate::session) recalls: Vec<RecallFinds>,
    /// What stores were asked.
    pub(in crate::session) asks: Vec<RecallAsk>,
    /// The long system prompts that were put into the blob store.
    pub(in crate::session) prompts: Vec<Digest>,
    /// The blob store does not refuse them.
    pub(in crate::session) stores_prompts: bool,
    /// Calls have to wait, and these do.
    defers: Option<Vec<Effect>>,
}

fn agent(points: &[HookPoint]) -> AgentOptions {
    let mut options = AgentOptions::new("main".parse().unwrap(), "sim/model".parse().unwrap());
    let tool = |name: &str, risk, capability: Option<&str>| ToolSpec {
        name: name.parse().unwrap(),
        description: String::new(),
        input_schema: SCHEMA.to_owned(),
        class: EffectClass::Safe,
        risk,
        capability: capability.map(|capability| capability.parse().unwrap()),
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
    options
}

impl PlayedActivation {
    pub(crate) fn new(points: &[HookPoint], journal: Vec<Record>) -> Self {
        let loaded = LoadedJournal { records: journal, snapshot: None };
        Self::with(points, loaded, MachineOptions::default(), false)
    }

    /// The same, whose snapshots are stored, and what turns send is sent if `emits`.
    pub(crate) fn with(
        points: &[HookPoint],
        loaded: LoadedJournal,
        options: MachineOptions,
        emits: bool,
    ) -> Self {
        Self::made(Grant::free(agent(points)), None, loaded, options, emits)
    }

    /// Another activation on the same journal, with the same configuration and budgets.
    pub(crate) fn resumed(before: Self) -> Self {
        let loaded = LoadedJournal { records: before.journal, snapshot: None };
        Self::made(before.grant, before.budgets, loaded, MachineOptions::default(), false)
    }

    fn made(
        grant: Grant,
        budgets: Option<PlayedBudgets>,
        loaded: LoadedJournal,
        options: MachineOptions,
        emits: bool,
    ) -> Self {
        let journal = loaded.records.clone();
        let now = Now { wall: Timestamp(1), steady: Timestamp(1) };
        let counter = 1 + position_of(&journal).0;
        let me = Incarnation { process: ProcessId::from_u128(1), counter };
        let activation = if journal.is_empty() { Activation::Fresh } else { Activation::Recovery };
        let (machine, _) = Machine::new(key().entity(), me, activation, options, now);
        let mut run = Self {
            machine,
            now,
            grant,
            budgets,
            journal,
            stride: 1,
            appends: Vec::new(),
            started: Vec::new(),
            told: Vec::new(),
            archives: Vec::new(),
            dies: false,
            emits,
            discarded: Vec::new(),
            scrubbed: Vec::new(),
            completed: Vec::new(),
            recalls: Vec::new(),
            asks: Vec::new(),
            prompts: Vec::new(),
            stores_prompts: true,
            defers: None,
        };
        run.feed(MachineInput::Loaded(loaded));
        run
    }

    pub(crate) fn feed(&mut self, input: MachineInput<Session>) {
        let mut waiting = vec![input];
        while let Some(input) = waiting.pop() {
            for out in self.machine.handle(self.now, input) {
                match out {
                    MachineOutput::Append { write, .. } => {
                        // The positions between are other journals'.
                        let position = Position(position_of(&self.journal).0 + self.stride);
                        let events = decode_record(&write.bytes).unwrap();
                        let own =
                            events.iter().filter_map(|event| event.event::<SessionEvent>().ok()?);
                        self.appends.push(own.map(|event| event.kind()).collect());
                        if write.rollup {
                            self.journal.clear();
                        }
                        self.journal.push(Record { position, bytes: write.bytes });
                        waiting.push(MachineInput::Answered(AppendAnswer::Stored(position)));
                    }
                    MachineOutput::Acquire(key, want) => waiting.push(self.acquired(key, want)),
                    MachineOutput::Start(key, EffectJob { job: SessionJob::Emit(_), .. })
                        if self.emits =>
                    {
                        waiting.push(MachineInput::Confirmed(key));
                    }
                    MachineOutput::Start(effect, EffectJob { told, job, .. }) => {
                        self.told = told.map(|told| told.frames).unwrap_or_default();
                        self.started.push((effect, job));
                    }
                    MachineOutput::Archive { state, .. } => {
                        self.archives.push((self.journal.clone(), state.clone()));
                        if !self.dies {
                            let archive = Digest::of(&archive::pack(&self.journal).unwrap());
                            let superseded = snapshot_blob(&self.journal).into_iter().collect();
                            let state = if state.len() > INLINE_BYTES {
                                SnapshotState::Blob { digest: Digest::of(&state) }
                            } else {
                                SnapshotState::Inline { bytes: state.to_vec().into() }
                            };
                            let positions = archive::positions(&self.journal);
                            waiting.push(MachineInput::Archived {
                                archive,
                                state,
                                superseded,
                                positions,
                            });
                        }
                    }
                    MachineOutput::Erase { state, .. } => {
                        let state = SnapshotState::Inline { bytes: state.to_vec().into() };
                        let before = snapshot_blob(&self.journal);
                        waiting.push(MachineInput::Erased { state, before });
                    }
                    MachineOutput::Discard(blobs) => self.discarded.extend(blobs),
                    MachineOutput::Scrub(blobs) => self.scrubbed.push(blobs),
                    MachineOutput::Complete(input) => self.completed.push(input),
                    _ => {}
                }
            }
        }
    }

    /// What an agent and a holder answer.
    fn acquired(&mut self, key: Effect, want: Want) -> MachineInput<Session> {
        match want {
            Want::Place { .. } => {
                if let Some(deferred) = &mut self.defers {
                    deferred.push(key);
                    return MachineInput::Deferred(key);
                }
                let grant = self.grant.clone();
                let within = |budgets: &PlayedBudgets| grant.clone().within(&budgets.holder);
                let grant = self.budgets.as_ref().map_or_else(|| grant.clone(), within);
                MachineInput::Granted(key, grant)
            }
            Want::Recall { grant, ask, .. } => {
                let finds = self.recalls.pop().unwrap_or_default();
                let said = ask.text.inline().unwrap_or_default().to_owned();
                let recalled = Some(Arc::new(ask.recalled(&said, "sim", finds)));
                self.asks.push(*ask);
                MachineInput::Granted(key, Grant { recalled, ..*grant })
            }
            Want::Prompt(wanted) => {
                let (blob, _) = packed_text(self::key().entity(), &wanted.text);
                let blob = self.stores_prompts.then_some(blob);
                let has_it = wanted.known.is_some_and(|known| blob == Some(known));
                self.prompts.extend(blob.filter(|_| !has_it).map(|blob| blob.digest));
                MachineInput::Granted(key, wanted.grant.with_prompt(wanted.text, blob))
            }
            Want::Hold(wanted) => {
                let budgets = self.budgets.as_mut().unwrap();
                match budgets.reserve(wanted.grant, wanted.needs) {
                    Ok(grant) => MachineInput::Granted(key, grant),
                    Err(outcome) => MachineInput::Refused(key, Outcome::Refused(outcome)),
                }
            }
        }
    }

    /// The configuration is read again, and has this schema for replies.
    pub(crate) fn reload_schema(&mut self, schema: ResponseSchema) {
        let response_schema = Some(schema);
        self.grant = Grant::free(AgentOptions { response_schema, ..(*self.grant.options).clone() });
    }

    /// The configuration is read again, and has so many steps, without a wait for more.
    pub(crate) fn reload_steps(&mut self, step_limit: u32) {
        let step_wait = std::time::Duration::ZERO;
        self.grant =
            Grant::free(AgentOptions { step_limit, step_wait, ..(*self.grant.options).clone() });
    }

    /// The configuration is read again, and has these rules of context.
    pub(in crate::session) fn reload_context(&mut self, context: Option<ContextSettings>) {
        self.grant = Grant::free(AgentOptions { context, ..(*self.grant.options).clone() });
    }

    /// The configuration is read again, and has another model.
    pub(crate) fn reload(&mut self, model: &str) {
        let options =
            AgentOptions { model: model.parse().unwrap(), ..(*self.grant.options).clone() };
        self.grant = Grant::free(options);
    }

    pub(crate) fn hears(&mut self, name: &str, body: &SessionInput) {
        let name = name.parse().unwrap();
        let input =
            Input::new(Kind::SESSION, &key().to_string(), name, self.now.wall, body).unwrap();
        self.feed(MachineInput::Deliver(vec![input]));
    }

    pub(crate) fn says(&mut self, text: &str) {
        self.hears(text, &SessionInput::UserMessage(UserMessage::text(text)));
    }

    /// Calls have to wait from now on.
    pub(crate) fn defers(&mut self) {
        self.defers = Some(Vec::new());
    }

    /// Those that wait may begin, and others need not wait.
    pub(crate) fn grants(&mut self) {
        for key in self.defers.take().unwrap_or_default() {
            self.feed(MachineInput::Granted(key, self.grant.clone()));
        }
    }

    /// The question to hooks that was begun last.
    pub(crate) fn judge(&mut self) -> (Effect, JudgeJob) {
        let started = self.started.pop();
        let Some((key, SessionJob::Judge(job))) = started else { panic!("{started:?}") };
        (key, *job)
    }

    pub(crate) fn judged(&mut self, patches: Vec<ModelPatch>) {
        let (key, job) = self.judge();
        let JudgeSubject::Model(request) = job.subject else { panic!("{job:?}") };
        let (request, trail) = (request.digest(), HookTrail::default());
        self.feed(MachineInput::Ended(key, Outcome::ModelJudged { request, patches, trail }));
    }

    /// The model's reply to the call that was begun last.
    pub(crate) fn replies(&mut self, uses: &[(&str, &str)]) {
        self.replies_for(Usage::default(), uses);
    }

    /// The same, which used so much.
    pub(crate) fn replies_for(&mut self, usage: Usage, uses: &[(&str, &str)]) {
        self.replies_with(usage, uses, None);
    }

    /// The same, with something beside text and tool calls.
    pub(crate) fn replies_with(
        &mut self,
        usage: Usage,
        uses: &[(&str, &str)],
        blocks: Option<Blocks>,
    ) {
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
        let (content, model) = (Text::from("so"), "m".to_owned());
        let attempt = job.attempt;
        drop(job);
        self.feed(MachineInput::Ended(
            key,
            Outcome::Done { attempt, content, stop, usage, model, tool_uses, blocks },
        ));
    }

    /// The same, in these words and without tools.
    pub(crate) fn replies_text(&mut self, text: &str, stop: StopReason) {
        let started = self.started.pop();
        let Some((key, SessionJob::Call(job))) = started else { panic!("{started:?}") };
        let (attempt, content, model) = (job.attempt, Text::from(text), "m".to_owned());
        drop(job);
        let (usage, tool_uses, blocks) = (Usage::default(), Vec::new(), None);
        self.feed(MachineInput::Ended(
            key,
            Outcome::Done { attempt, content, stop, usage, model, tool_uses, blocks },
        ));
    }

    /// The call that was begun last fails.
    pub(crate) fn fails(&mut self, class: FailureClass) {
        self.fails_as(ModelFailure::new(class, "no"), Usage::default());
    }

    /// The same, as it is said here, with what it used.
    pub(crate) fn fails_as(&mut self, failure: ModelFailure, usage: Usage) {
        let started = self.started.pop();
        let Some((key, SessionJob::Call(job))) = started else { panic!("{started:?}") };
        let (attempt, partial) = (job.attempt, Text::from(""));
        drop(job);
        self.feed(MachineInput::Ended(key, Outcome::Failed { attempt, failure, partial, usage }));
    }
}

pub(crate) fn key() -> SessionKey {
    "main:web:a:b".parse().unwrap()
}
