//! For tests: one activation after another on stores that the test answers for.

use std::collections::BTreeMap;

use bytes::Bytes;
use clawnode_actors::{
    agent::{AgentOptions, Grant},
    session::{Effect, Outcome, Session, SessionJob},
};
use clawnode_cluster::{AppendAnswer, Record};
use clawnode_kernel::{
    Activation, ActivationEnd, Core, LoadedJournal, Machine, MachineInput, MachineOptions,
    MachineOutput, Now, PreviousOwner, core::snapshot_blob,
};
use clawnode_proto::{
    Digest, Grammar as _, Incarnation, Input, InputId, Kind, Position, ProcessId, SessionKey,
    Timestamp,
    event::decode_record,
    kernel::{KernelEvent, SnapshotState},
    limits::{APPEND_BYTES, INLINE_BYTES},
    llm::{StopReason, Text, Usage},
    session::{SessionEvent, SessionInput, UserMessage},
    tool::ToolUse,
};

pub(super) const KIB: usize = 1 << 10;

pub(super) fn key() -> SessionKey {
    "main:web:a:b".parse().unwrap()
}

/// What an event is and, if it brings an input, which.
pub(super) type Line = (&'static str, Option<InputId>);

/// A machine, and the stores that it uses.
pub(super) struct Bench {
    pub(super) machine: Machine<Session>,
    pub(super) now: Now,
    /// What its agent allows it.
    pub(super) grant: Grant,
    pub(super) process: u128,
    pub(super) activations: u64,
    pub(super) journal: Vec<Record>,
    pub(super) blobs: BTreeMap<Digest, Bytes>,
    pub(super) completed: Vec<InputId>,
    pub(super) started: Vec<(Effect, SessionJob)>,
    pub(super) aborted: Vec<Effect>,
    pub(super) erased: usize,
    pub(super) stopped: Option<ActivationEnd>,
    /// Appends wait for [`Bench::answer`].
    pub(super) slow: bool,
    pub(super) appending: Option<MachineOutput<Session>>,
    /// Whether calls may start now.
    pub(super) paused: bool,
    /// Whether it is noted that the entity is in hand: the note outlives processes.
    pub(super) noted: bool,
    /// What the process does about one that is tried.
    pub(super) tries: Tries,
    /// How often it was tried.
    pub(super) tried: usize,
    /// After whom the next process may claim it.
    pub(super) previous_owner: PreviousOwner,
}

/// What happens to an entity that asks to be tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tries {
    /// It has its turn at once.
    AtOnce,
    /// It waits for its turn.
    Later,
}

impl Bench {
    pub(super) fn new() -> Self {
        let now = Now { wall: Timestamp(1), steady: Timestamp(1) };
        let mut bench = Self {
            machine: Self::machine(1, 0, Activation::Fresh, now),
            now,
            grant: grant(),
            process: 1,
            activations: 0,
            journal: Vec::new(),
            blobs: BTreeMap::new(),
            completed: Vec::new(),
            started: Vec::new(),
            aborted: Vec::new(),
            erased: 0,
            stopped: None,
            slow: false,
            appending: None,
            paused: false,
            noted: false,
            tries: Tries::AtOnce,
            tried: 0,
            previous_owner: PreviousOwner::OfAnyone,
        };
        bench.load();
        bench
    }

    pub(super) fn machine(
        process: u128,
        counter: u64,
        how: Activation,
        now: Now,
    ) -> Machine<Session> {
        let me = Incarnation { process: ProcessId::from_u128(process), counter };
        Machine::new(key().entity(), me, how, MachineOptions::default(), now).0
    }

    pub(super) fn loaded(&self) -> LoadedJournal {
        let snapshot = snapshot_blob(&self.journal).map(|digest| self.blobs[&digest].clone());
        LoadedJournal { records: self.journal.clone(), snapshot }
    }

    pub(super) fn load(&mut self) {
        let loaded = self.loaded();
        self.feed(MachineInput::Loaded(loaded));
    }

    /// Another process takes the entity.
    pub(super) fn again(&mut self, how: Activation) {
        self.again_for(how, Vec::new());
    }

    /// Another process takes the entity, because these inputs wait for it.
    pub(super) fn again_for(&mut self, how: Activation, inputs: Vec<Input>) {
        self.process += 1;
        self.activations += 1;
        self.machine =
            Self::machine(self.process, self.activations, how, self.now).after(self.previous_owner);
        self.stopped = None;
        self.appending = None;
        self.completed.clear();
        self.started.clear();
        self.feed(MachineInput::Deliver(inputs));
        self.load();
    }

    pub(super) fn feed(&mut self, input: MachineInput<Session>) {
        let mut waiting = vec![input];
        while let Some(input) = waiting.pop() {
            for out in self.machine.handle(self.now, input) {
                match out {
                    append @ MachineOutput::Append { .. } if self.slow => {
                        self.appending = Some(append);
                    }
                    append @ MachineOutput::Append { .. } => waiting.push(self.store(append)),
                    MachineOutput::Acquire(key, _) if self.paused => {
                        waiting.push(MachineInput::Deferred(key));
                    }
                    MachineOutput::Acquire(key, _) => {
                        waiting.push(MachineInput::Granted(key, self.grant.clone()));
                    }
                    MachineOutput::EnterProbation if self.tries == Tries::Later => {}
                    MachineOutput::EnterProbation => {
                        self.tried += 1;
                        let blamed = std::mem::replace(&mut self.noted, true);
                        waiting.push(MachineInput::Probation { blamed });
                    }
                    MachineOutput::LeaveProbation { .. } => self.noted = false,
                    MachineOutput::Abort(effect) => self.aborted.push(effect),
                    MachineOutput::Start(effect, job) => self.started.push((effect, job.job)),
                    MachineOutput::Complete(input) => self.completed.push(input),
                    MachineOutput::Archive { state, .. } => {
                        let archive = Digest::of(b"what is not looked at");
                        let state = self.kept(state);
                        let superseded = Vec::new();
                        let positions = Vec::new();
                        waiting.push(MachineInput::Archived {
                            archive,
                            state,
                            superseded,
                            positions,
                        });
                    }
                    MachineOutput::Erase { state, .. } => {
                        self.erased += 1;
                        let state = self.kept(state);
                        waiting.push(MachineInput::Erased { state, before: None });
                    }
                    MachineOutput::Scrub(_) => waiting.push(MachineInput::Scrubbed),
                    MachineOutput::Stop(stop) => self.stopped = Some(stop),
                    _ => {}
                }
            }
        }
    }

    pub(super) fn kept(&mut self, state: Bytes) -> SnapshotState {
        if state.len() <= INLINE_BYTES {
            return SnapshotState::Inline { bytes: state.to_vec().into() };
        }
        let digest = Digest::of(&state);
        self.blobs.insert(digest, state);
        SnapshotState::Blob { digest }
    }

    pub(super) fn store(&mut self, append: MachineOutput<Session>) -> MachineInput<Session> {
        let MachineOutput::Append { write, expected, .. } = append else { panic!("{append:?}") };
        let last = self.journal.last().map_or(Position(0), |last| last.position);
        assert_eq!(expected, last);
        assert!(write.bytes.len() <= APPEND_BYTES, "{} bytes", write.bytes.len());
        if write.rollup {
            self.journal.clear();
        }
        let position = Position(last.0 + 1);
        self.journal.push(Record { position, bytes: write.bytes });
        MachineInput::Answered(AppendAnswer::Stored(position))
    }

    /// The append that waits is stored.
    pub(super) fn answer(&mut self) {
        let append = self.appending.take().unwrap();
        let stored = self.store(append);
        self.feed(stored);
    }

    /// What the journal says, from record `from` on.
    pub(super) fn lines(&self, from: usize) -> Vec<Line> {
        let records = self.journal[from..].iter();
        let events = records.flat_map(|record| decode_record(&record.bytes).unwrap());
        let line = |sealed: clawnode_proto::Sealed| match sealed.event::<KernelEvent>().unwrap() {
            Some(KernelEvent::Accepted(accepted)) => ("accepted", Some(accepted.input.id)),
            Some(KernelEvent::Parked(parked)) => ("parked", Some(parked.input.id)),
            Some(event) => (event.kind(), None),
            None => (sealed.event::<SessionEvent>().unwrap().unwrap().kind(), None),
        };
        events.map(line).collect()
    }

    pub(super) fn kinds(&self, from: usize) -> Vec<&'static str> {
        self.lines(from).into_iter().map(|(kind, _)| kind).collect()
    }

    /// Which inputs events of this kind bring, in order.
    pub(super) fn inputs(&self, kind: &str) -> Vec<InputId> {
        let of_kind = self.lines(0).into_iter().filter(|(one, _)| *one == kind);
        of_kind.filter_map(|(_, input)| input).collect()
    }

    pub(super) fn core(&self) -> Core {
        Core::of(key().entity(), &self.loaded(), &|_| true).unwrap()
    }

    /// The end of its turn is published.
    pub(super) fn published(&mut self) {
        let Some((effect, _)) = self.started.pop() else { panic!("nothing is to be published") };
        self.feed(MachineInput::Confirmed(effect));
    }

    /// The call that was begun last ends.
    pub(super) fn replies(&mut self, content: &str, tool_uses: Vec<ToolUse>) {
        let Some((call, SessionJob::Call(job))) = self.started.pop() else {
            panic!("{:?}", self.started);
        };
        let stop = if tool_uses.is_empty() { StopReason::EndTurn } else { StopReason::ToolUse };
        let (content, model) = (Text::from(content), "m".to_owned());
        let (attempt, usage) = (job.attempt, Usage::default());
        drop(job);
        let done = Outcome::Done { attempt, content, stop, usage, model, tool_uses, blocks: None };
        self.feed(MachineInput::Ended(call, done));
    }
}

pub(super) fn grant() -> Grant {
    let options = AgentOptions::new("main".parse().unwrap(), "sim/model".parse().unwrap());
    Grant::free(options)
}

pub(super) fn input(name: &str, body: &SessionInput) -> Input {
    let name = name.parse().unwrap();
    Input::new(Kind::SESSION, &key().to_string(), name, Timestamp(1), body).unwrap()
}

pub(super) fn message(name: &str, size: usize) -> Input {
    input(name, &SessionInput::UserMessage(UserMessage::text("x".repeat(size))))
}
