//! A process: the machines that it runs, and what is under way for them.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use bytes::Bytes;
use clawnode_actors::session::{
    Effect, Session,
    turn::{
        prepare::{SettleJob, TimeJob},
        tool_jobs::GiveStep,
    },
};
use clawnode_cluster::{Record, Write};
use clawnode_kernel::{
    MachineInput, OwnerSays,
    partition::{self, AskId, HandleId, Partition},
};
use clawnode_proto::{
    Attempt, CallId, Digest, EntityId, Epoch, Input, InputId, JobId, Position, ProcessId,
    budget::AccountKey, job::Job, kernel::SnapshotState, session::ToolEnd,
};
use clawnode_sim::{RequestTicket, Token};

use super::{
    Sim,
    any_machine::{AnyMachine, MachineMessage},
    book::Checked,
    budgets::ProcessHolder,
    give::Giving,
    jobs::JobHands,
    recall::stores::ProcessStore,
    settle::PostTurnWork,
};

/// What the driver plans for a process.
#[derive(Debug)]
pub(super) enum PlannedNote {
    /// A second has passed.
    Tick,
    /// Something for a partition's dispatcher.
    Dispatch(u16, partition::PartitionInput),
    /// Something for an entity's actor, by its activation.
    Feed(EntityId, u64, MachineInput<Session>),
    /// What an entity of one kind does in its own way.
    Own(OwnDeed),
    /// Something for an actor of whatever kind.
    Tell(EntityId, u64, MachineMessage),
    /// Another process's question, as the actor gets it.
    AskActor(EntityId, u64, AskId, InputId),
    /// An operation on the stores, after a wait.
    Do(EntityId, u64, Do),
    /// A model call ends.
    CallEnds(EntityId, u64, CallId, Attempt),
    /// A tool has run.
    ToolEnds(EntityId, u64, CallId),
    /// A job could not be given away.
    GiveAgain(Box<Giving>),
    /// The state of a job is read.
    ReadJob(JobId),
    /// A job runs on.
    JobLasts(JobId),
    /// A job has run.
    JobEnds(JobId, u64),
    /// A probe has looked whether a job happened.
    Probes(Box<Job>),
    /// A job whose time is over is looked at.
    Settles(EntityId, u64, Effect, Box<SettleJob>),
    /// A job shall not run on.
    CancelJob(JobId),
    /// The result of a job could not be stored.
    SendAgain(Box<Job>, ToolEnd),
    /// A timer is set.
    SetsTimer(EntityId, u64, Effect, Box<TimeJob>),
    /// An emission was published; the jobs of its turn are closed, and memories are sent what is theirs.
    Closes(Box<PostTurnWork>),
    /// Another process asks.
    Asked { by: ProcessId, number: u64, entity: EntityId, input: InputId },
    /// An owner gave an entity up for which this process had asked.
    Rung(EntityId, InputId),
    /// The answer to a question.
    Says(u64, OwnerSays),
    /// No answer came in time.
    Silent(u64),
    /// Another process has claimed an entity.
    Fenced(EntityId, Epoch),
    /// Running calls are given up.
    GiveUp,
    /// A client sends.
    Send(usize),
    /// Something befalls the world.
    Fate,
    /// A process begins.
    Spawn,
    /// A process is held dead, or no longer.
    Declare(ProcessId, bool),
    /// A frozen process goes on.
    Thaw(ProcessId),
    /// An operator looks after what is out of service.
    Operate,
    /// Days in which nothing happened are over.
    Returns,
    /// A third of the nodes are lost.
    LoseNodes,
    /// The bus loses its leader.
    LoseLeader,
    /// The bus's new leader does its work.
    LeaderSettles,
    /// Faults stop.
    Calm,
    /// Is it over?
    Watch,
}

/// Something that is done later, and what a trace says of it.
pub(super) struct OwnDeed {
    about: String,
    pub(super) act: Box<dyn FnOnce(&mut Sim) -> Checked>,
}

/// What a snapshot replaces: where the store had its records, and the state that they loaded from.
#[derive(Debug)]
pub(super) struct Replaced {
    pub(super) positions: Vec<Position>,
    pub(super) superseded: Option<Digest>,
}

/// What is done with the stores for an entity's actor; each leads to one input of its machine.
#[derive(Debug)]
pub(super) enum Do {
    Load { tries: u32 },
    LoadBlob { records: Vec<Record>, digest: Digest, tries: u32 },
    Append { expected: Position, write: Write },
    ReadBack { after: Position, tries: u32 },
    ReadBackTail { after: Position, records: Vec<Record>, tries: u32 },
    Archive { upto: Position, state: Bytes },
    Erase { state: Bytes },
    Scrub { blobs: Vec<Digest> },
    Purge { upto: Position, state: Bytes },
    PurgeState { before: Option<Digest>, state: Bytes, past: Vec<Digest> },
    PurgePast { before: Option<Digest>, state: SnapshotState, past: Vec<Digest> },
    ArchiveRecords { content: Bytes, state: Bytes, replaced: Replaced },
    ArchiveState { archive: Digest, state: Bytes, replaced: Replaced },
}

/// Whose answer a ticket brings.
#[derive(Debug)]
pub(super) enum PendingOp {
    Put(usize),
    Inbox(EntityId, Position),
    Tail(EntityId),
    Scan(u16),
    Give(Giving, GiveStep),
    JobState(JobId),
    JobSet(JobId),
    Settle(EntityId, u64, Effect, Box<SettleJob>, ToolEnd),
    Close(Box<PostTurnWork>),
    JobSent(Box<Job>, ToolEnd),
    HolderPut(AccountKey, Box<Input>),
    Entity(EntityId, u64, Do),
}

/// An entity's actor.
#[derive(Debug)]
pub(super) struct Actor {
    /// Its activation.
    pub(super) counter: u64,
    pub(super) machine: Box<dyn AnyMachine>,
    /// It has ended, and its dispatcher will hear of it.
    pub(super) stopped: bool,
    /// It has read that another process has the entity.
    pub(super) fenced: bool,
    /// Effects of a session that run.
    pub(super) running: BTreeMap<Effect, Option<Attempt>>,
}

/// One simulated process: what it holds in memory is gone when it ends.
#[derive(Debug)]
pub(super) struct SimProcess {
    /// By how much its clock is wrong, in milliseconds.
    pub(super) skew: i64,
    pub(super) partitions: Vec<Partition>,
    pub(super) actors: BTreeMap<EntityId, Actor>,
    pub(super) handles: BTreeMap<HandleId, Token>,
    /// Questions of others, and who asks.
    pub(super) asks: BTreeMap<AskId, (ProcessId, u64)>,
    /// Own questions that are not answered.
    pub(super) asked: BTreeMap<u64, EntityId>,
    pub(super) ops: BTreeMap<RequestTicket, PendingOp>,
    pub(super) next: u64,
    pub(super) ticks: u64,
    pub(super) drained: usize,
    pub(super) draining: bool,
    /// Running calls were given up; none starts any more.
    pub(super) gave_up: bool,
    /// Who may be what killed its process: the first is tried, the others wait.
    pub(super) suspects: VecDeque<(EntityId, u64)>,
    /// The jobs that it has in hand.
    pub(super) jobs: JobHands,
    /// Scans its partitions while a process is held dead, until this tick.
    pub(super) scans_until: u64,
    /// What its calls reserve from, if there are budgets.
    pub(super) holder: Option<ProcessHolder>,
    /// What its turns search, once one has.
    pub(super) memory: Option<ProcessStore>,
}

impl PlannedNote {
    pub(super) fn own(about: String, act: impl FnOnce(&mut Sim) -> Checked + 'static) -> Self {
        Self::Own(OwnDeed { about, act: Box::new(act) })
    }
}

impl fmt::Debug for OwnDeed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.about)
    }
}

impl SimProcess {
    pub(super) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The actor of this activation, if it still runs.
    pub(super) fn actor(&mut self, entity: EntityId, counter: u64) -> Option<&mut Actor> {
        self.actors.get_mut(&entity).filter(|actor| actor.counter == counter && !actor.stopped)
    }
}
