//! Messages between processes: heartbeats, and requests to one process.

use std::{collections::BTreeSet, fmt, ops::RangeInclusive, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    agents::AgentCounts,
    archive::{CleanJobs, CleanView, LogPart},
    budget::ProcessStanding,
    embed::{EmbedTexts, Embedded},
    error::ErrorBody,
    frame::Frame,
    id::{
        Capability, Digest, EntityId, Epoch, InputId, JobId, Kind, NodeName, Position, ProcessId,
        TurnId,
    },
    kill_switch::SwitchScope,
    provider::ProviderReport,
    recall::{StoreFound, StoreSearch},
    timestamp::Timestamp,
    tree::ProcessTree,
};

pub use crate::role::NodeRole;

/// Each process sends this once a second on `cn.hb.<process>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Heartbeat {
    /// The sender. A restarted node has another one.
    pub process: ProcessId,
    /// The name of its node.
    pub node: NodeName,
    /// The program's version.
    pub version: String,
    /// Its roles.
    pub roles: Vec<NodeRole>,
    /// When it started, by its own clock; for people only.
    pub started: Timestamp,
    /// Whether it hands over all its entities and then ends.
    pub draining: bool,
    /// Resident entities.
    pub entities: u64,
    /// The digest of its settings for agents; nodes should agree.
    pub config: Digest,
    /// Whether it is cordoned: it takes no more entities, and keeps those that it has.
    #[serde(default)]
    pub cordoned: bool,
    /// The versions of the envelope that it reads and writes.
    #[serde(default)]
    pub speaks: VersionRange,
    /// What it can do beside its roles.
    #[serde(default)]
    pub capabilities: BTreeSet<Capability>,
    /// How busy it is.
    #[serde(default)]
    pub load: Load,
    /// By how many ranks it is lowered, because it is busy.
    #[serde(default)]
    pub shed: u8,
    /// Partitions that it serves first, by its own view of the cluster.
    #[serde(default)]
    pub first_of: u16,
    /// The kinds of events that it knows, the kernel's and those of its entities.
    #[serde(default)]
    pub knows: BTreeSet<String>,
    /// What a process would have to know to serve the entities that no known process can serve: a kind of
    /// event, or `input v2`. At most [`crate::limits::LACKS_TOLD`].
    #[serde(default)]
    pub lacks: BTreeSet<String>,
    /// Whether this is its last heartbeat: it has handed over all its entities, and ends.
    #[serde(default)]
    pub leaving: bool,
    /// The name of the bus server that it is connected to. Empty if it does not say.
    #[serde(default)]
    pub server: String,
    /// Its address for clients, if it is a gateway with a known address.
    #[serde(default)]
    pub url: Option<String>,
    /// The health of its tool executors and of its model providers; at most
    /// [`crate::limits::PROVIDERS_TOLD`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<ProviderReport>,
    /// The time by the clock of its machine. Absent from older builds. Processes use the time that most
    /// of them agree on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// How its configuration file differs from the one in use.
    #[serde(default, skip_serializing_if = "FileState::is_current")]
    pub file: FileState,
    /// What it has counted for the agents that have limits; at most
    /// [`crate::limits::AGENT_COUNTS_TOLD`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub agents: Vec<AgentCounts>,
    /// The digest of its settings of budgets and prices; nodes should agree. Absent from older builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spending: Option<Digest>,
}

/// How a node's configuration file differs from the one that the node uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileState {
    /// Sections of the file whose changes wait for a restart, for example `mcp_servers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<String>,
    /// Why the node keeps the configuration that it read before, at most
    /// [`crate::limits::FILE_PROBLEM_CHARS`] characters; it quotes no secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl FileState {
    /// Whether the node uses the whole file.
    pub fn is_current(&self) -> bool {
        *self == Self::default()
    }
}

impl Heartbeat {
    /// Whether the process serves entities of this kind: it names its kinds among its capabilities.
    pub fn serves(&self, kind: Kind) -> bool {
        self.capabilities.iter().any(|capability| capability.as_str() == kind.as_str())
    }
}

/// A process sends this to all others about one that does not answer, on `cn.hb.<process>.gone`. No
/// process relies on it alone: each asks the suspect itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Hearsay {
    /// There was no listener when the sender asked it.
    Suspected {
        /// The process that did not answer.
        process: ProcessId,
    },
    /// There was no listener twice, while the server that it was connected to was alive.
    Gone {
        /// The process that has ended.
        process: ProcessId,
    },
    /// The sender holds this process dead. Sent when a process joins that has never heard of it.
    Dead {
        /// The process that the receiver must not believe alive.
        process: ProcessId,
    },
}

/// Versions of the envelope, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct VersionRange {
    /// The oldest version.
    pub oldest: u16,
    /// The newest version.
    pub newest: u16,
}

/// A text is not a range of versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a range of versions such as `1-2`")]
pub struct ParseVersionRangeError(String);

/// The range of a process that does not say: the first version.
impl Default for VersionRange {
    fn default() -> Self {
        Self { oldest: 1, newest: 1 }
    }
}

impl From<RangeInclusive<u16>> for VersionRange {
    fn from(range: RangeInclusive<u16>) -> Self {
        Self { oldest: *range.start(), newest: *range.end() }
    }
}

impl fmt::Display for VersionRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.oldest, self.newest)
    }
}

impl FromStr for VersionRange {
    type Err = ParseVersionRangeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ends = text.split_once('-').and_then(|(oldest, newest)| {
            Some(Self { oldest: oldest.parse().ok()?, newest: newest.parse().ok()? })
        });
        ends.filter(|range| range.oldest <= range.newest)
            .ok_or_else(|| ParseVersionRangeError(text.to_owned()))
    }
}

impl VersionRange {
    /// Whether they have a version in common.
    pub const fn overlaps(self, other: Self) -> bool {
        self.oldest <= other.newest && other.oldest <= self.newest
    }
}

/// How busy a process is; for placement and for people, never for safety.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Load {
    /// Processor time that it recently used, in thousandths of its host's.
    pub cpu_permille: u16,
    /// Resident memory, in bytes.
    pub memory_bytes: u64,
    /// Turns that run now.
    pub turns_running: u32,
    /// Turns that it has ended since its start.
    pub turns_done: u64,
    /// Clients that are connected now.
    pub clients: u32,
}

/// A request to one process on `cn.rpc.<process>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NodeRequest {
    /// Asks whether the process is alive.
    Ping,
    /// Asks whether the process works on this input.
    Ask {
        /// The entity that should handle the input.
        entity: EntityId,
        /// Its input.
        input: InputId,
        /// The process that asks. An owner that has the input sends it a `Ring` if it gives up the entity.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asker: Option<ProcessId>,
    },
    /// Asks the process to serve this entity: its last owner gave it up, or the sender cannot read it.
    /// Answered like `Ask` if its actor runs there, otherwise `Ok` if the process serves it now, else `NotMine`.
    Ring {
        /// The entity to serve from now on.
        entity: EntityId,
        /// One of its waiting inputs.
        input: InputId,
    },
    /// The process lost the entity, and must stop its paid work.
    Fenced {
        /// The entity that has another owner.
        entity: EntityId,
        /// The epoch that is in force now.
        epoch: Epoch,
    },
    /// Asks to take no more entities, or to take them again. Answered `Ok`.
    Cordon {
        /// Whether to take no more entities.
        on: bool,
    },
    /// Asks to hand over all entities and end. Answered `Ok` before it has ended.
    Drain,
    /// Asks for the actors of the process.
    Tree,
    /// Cancels a job. Not answered.
    CancelJob {
        /// The job whose run is to end, if it runs there.
        job: JobId,
    },
    /// An operator has set or cleared a kill switch: the process reads its record now. Answered `KillSwitch`.
    #[serde(rename = "latch")]
    KillSwitch {
        /// The scope of the kill switch.
        scope: SwitchScope,
        /// How long to wait with the answer until the stopped work has ended, in milliseconds.
        wait_ms: u32,
    },
    /// Asks for the output of a job that the process runs. Answered `JobLog`, or `NotMine`.
    JobLog {
        /// The job whose run writes the output.
        job: JobId,
        /// Only lines after this number.
        after: u64,
        /// How long to wait for a line if there is none yet, in milliseconds.
        wait_ms: u32,
    },
    /// Removes jobs from the archive. Answered `Cleaned`.
    CleanJobs {
        /// The jobs.
        which: CleanJobs,
    },
    /// Deletes a dead letter. Answered `Ok`, or `NotMine` if there is none. Only workers can.
    DropLetter {
        /// Its name, as [`crate::view::ParkedRow::letter`] has it.
        letter: String,
    },
    /// The vectors of these texts, from a provider of models; workers alone ask one. Answered `Embedded` or
    /// `NotEmbedded`.
    Embed {
        /// The model, and the texts in the order of the vectors.
        request: EmbedTexts,
    },
    /// An account says how things stand between it and the process. Not answered: who hears nothing asks
    /// the account again.
    BudgetStanding {
        /// How they stand.
        standing: ProcessStanding,
    },
    /// Searches in the store of the process, which ranks first for a person among the workers. Answered `StoreFound`,
    /// or `NotMine` if it cannot be searched now.
    SearchStore {
        /// What is searched for, and where.
        search: StoreSearch,
    },
    /// Asks for the frames of a turn that the process still has.
    Frames {
        /// The session.
        entity: EntityId,
        /// The turn whose frames are wanted.
        turn: TurnId,
    },
}

/// The answer to a [`NodeRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NodeReply {
    /// To `Ping`, `Fenced`, `Cordon`, `Drain`, `DropLetter`, and to a `Ring` that had an effect.
    Ok,
    /// The entity's actor has the input. The asker does nothing.
    Held,
    /// The input is finished. The asker acknowledges it.
    Completed,
    /// This process does not own the entity. The asker may claim it. To a search: the asker searches for itself.
    NotMine,
    /// The actors of the process.
    Tree {
        /// Bounded: see [`crate::tree`].
        tree: ProcessTree,
    },
    /// To `KillSwitch`: the process applies the record. If the switch is set, it begins no more work in
    /// its scope, and has cancelled what ran.
    #[serde(rename = "latched")]
    KillSwitch {
        /// The position of the record.
        position: Position,
        /// How many calls in its scope still run.
        running: u32,
    },
    /// The output of a job.
    JobLog {
        /// At most [`crate::limits::LOG_PART_BYTES`].
        part: LogPart,
    },
    /// The result of `CleanJobs`.
    Cleaned {
        /// What was removed.
        view: CleanView,
    },
    /// To `Embed`.
    Embedded {
        /// The vectors.
        result: Embedded,
    },
    /// To `Embed`, if there are none.
    NotEmbedded {
        /// Why not.
        error: ErrorBody,
    },
    /// To `SearchStore`.
    StoreFound {
        /// What was found.
        found: StoreFound,
    },
    /// The turn's frames that the process still has, in order.
    Frames {
        /// At most [`crate::limits::FRAMES_KEPT`].
        frames: Vec<Frame>,
        /// Whether the oldest frames of the turn are missing.
        truncated: bool,
    },
}
