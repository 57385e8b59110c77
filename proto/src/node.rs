//! What processes say to each other: heartbeats, and requests to one process.

use std::{collections::BTreeSet, fmt, ops::RangeInclusive, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{
    archive::{CleanJobs, CleanView, LogPart},
    embed::{EmbedTexts, Embedded},
    error::ErrorBody,
    frame::Frame,
    id::{
        Capability, Digest, EntityId, Epoch, InputId, JobId, Kind, NodeName, Position, ProcessId,
        TurnId,
    },
    kill_switch::SwitchScope,
    provider::ProviderReport,
    timestamp::Timestamp,
    tree::ProcessTree,
};

pub use crate::role::NodeRole;

/// "I am alive", once a second on `cn.hb.<process>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Heartbeat {
    /// Who.
    pub process: ProcessId,
    /// What people call it.
    pub node: NodeName,
    /// The program's version.
    pub version: String,
    /// What it does.
    pub roles: Vec<NodeRole>,
    /// When it started, by its own clock; for people only.
    pub started: Timestamp,
    /// Whether it hands everything over and ends.
    pub draining: bool,
    /// Resident entities.
    pub entities: u64,
    /// The digest of what its configuration means for agents; nodes should agree.
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
    /// What entities wait for that no process which it hears of can serve: a kind of event, or
    /// `input v2`. At most [`crate::limits::LACKS_TOLD`].
    #[serde(default)]
    pub lacks: BTreeSet<String>,
    /// Whether this is the last word of a process that has handed everything over and ends.
    #[serde(default)]
    pub leaving: bool,
    /// The bus's server that it is connected to, as that calls itself; empty if it does not say.
    #[serde(default)]
    pub server: String,
    /// Where clients reach it, if it is a gateway that says so.
    #[serde(default)]
    pub url: Option<String>,
    /// How what runs its tools, and who serves its models, fares; at most
    /// [`crate::limits::PROVIDERS_TOLD`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub providers: Vec<ProviderReport>,
    /// What time it was by the clock of its sender's machine; absent from builds that do not say. The
    /// time that most processes agree on counts for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
    /// How its configuration file differs from the one in use.
    #[serde(default, skip_serializing_if = "FileState::is_current")]
    pub file: FileState,
}

/// How a node's configuration file differs from the one that the node uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FileState {
    /// Sections of the file whose changes wait for a restart, for example `mcp_servers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waits: Vec<String>,
    /// Why the node goes on with what it read before, at most
    /// [`crate::limits::FILE_PROBLEM_CHARS`] characters; it quotes no secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl FileState {
    /// Whether the node works with all that the file says.
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

/// What a process sends to all others about one that does not answer, on `cn.hb.<process>.gone`. No
/// process relies on it alone: each asks the suspect itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Hearsay {
    /// There was no listener when it was asked.
    Suspected {
        /// Who.
        process: ProcessId,
    },
    /// There was no listener twice, while the server that it was connected to was seen to live.
    Gone {
        /// Who.
        process: ProcessId,
    },
    /// The sender holds this process dead. Sent when a newcomer joins, which has not heard the process.
    Dead {
        /// Which process.
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

/// What is not a range of versions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a range of versions such as `1-2`")]
pub struct ParseVersionRangeError(String);

/// Those of a process that does not say: the first.
impl Default for VersionRange {
    fn default() -> Self {
        Self { oldest: 1, newest: 1 }
    }
}

/// Those that this build speaks.
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
    /// Whether both can read what the other writes.
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
    /// Are you there?
    Ping,
    /// Do you have this input in hand?
    Ask {
        /// The entity.
        entity: EntityId,
        /// Its input.
        input: InputId,
        /// Who asks, to be rung should an owner that holds the input give the entity up.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        asker: Option<ProcessId>,
    },
    /// Serve this entity: its last owner gave it up, or the sender cannot read it. Answered like
    /// `Ask` where its actor runs, else `Ok` if it is looked after now and `NotMine` if not.
    Ring {
        /// The entity.
        entity: EntityId,
        /// An input of it that waits.
        input: InputId,
    },
    /// You lost the entity: stop paying for it.
    Fenced {
        /// The entity.
        entity: EntityId,
        /// The epoch that is in force now.
        epoch: Epoch,
    },
    /// Take no more entities, or take them again. Answered `Ok`.
    Cordon {
        /// Whether to stand back.
        on: bool,
    },
    /// Hand everything over and end. Answered `Ok` before it has ended.
    Drain,
    /// What do you run?
    Tree,
    /// This job shall not run on. Not answered.
    CancelJob {
        /// Which.
        job: JobId,
    },
    /// An operator has set or cleared a kill switch: read its record now. Answered `Latched`.
    #[serde(rename = "latch")]
    KillSwitch {
        /// What it stops.
        scope: SwitchScope,
        /// If what it stops still runs, wait so long for its end before answering, in
        /// milliseconds.
        wait_ms: u32,
    },
    /// What has a job said that you run? Answered `JobLog`, or `NotMine`.
    JobLog {
        /// Which job.
        job: JobId,
        /// Only lines after this number.
        after: u64,
        /// If there are none yet, wait so long for one, in milliseconds.
        wait_ms: u32,
    },
    /// Remove these jobs from the archive. Answered `Cleaned`.
    CleanJobs {
        /// Which.
        which: CleanJobs,
    },
    /// Forget this dead letter. Answered `Ok`, or `NotMine` if there is none; workers alone may.
    DropLetter {
        /// Its name, as [`crate::view::ParkedRow::letter`] has it.
        letter: String,
    },
    /// The vectors of these texts, from a provider of models; workers alone ask one. Answered `Embedded` or
    /// `NotEmbedded`.
    Embed {
        /// Which.
        request: EmbedTexts,
    },
    /// Which frames of this turn do you still have?
    Frames {
        /// The session.
        entity: EntityId,
        /// The turn.
        turn: TurnId,
    },
}

/// The answer to a [`NodeRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum NodeReply {
    /// To `Ping`, `Fenced`, `Cordon`, `Drain`, `DropLetter`, and to a `Ring` that was heard.
    Ok,
    /// The actor itself has the input; leave it.
    Held,
    /// The input is done with; acknowledge it.
    Completed,
    /// This process does not own the entity; claim it.
    NotMine,
    /// What it runs.
    Tree {
        /// Bounded: see [`crate::tree`].
        tree: ProcessTree,
    },
    /// To `KillSwitch`: the record holds here. If it is on, no work that it stops begins any more,
    /// and running work was cancelled.
    Latched {
        /// The position of the record.
        position: Position,
        /// How much of it still runs.
        running: u32,
    },
    /// To `JobLog`.
    JobLog {
        /// At most [`crate::limits::LOG_PART_BYTES`].
        part: LogPart,
    },
    /// To `CleanJobs`.
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
    /// What is left of the turn's frames, in order.
    Frames {
        /// At most [`crate::limits::FRAMES_KEPT`].
        frames: Vec<Frame>,
        /// Whether the oldest frames of the turn are missing.
        truncated: bool,
    },
}
