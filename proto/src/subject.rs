//! Every subject, spelled once.
//!
//! `{prefix}.in.{partition}.{entity}` inputs · `.j.` journals · `.tmr.` timers · `.due.` timers on
//! their way to the inbox · `.kv.{key}` the bucket · `.birth` how it began · `.offer.{user}` credentials that wait for
//! their nodes · `.join.{user}` where those wait for them · `.blob.{digest}` blobs · `.tok.{entity}` frames
//! · `.hb.{process}` heartbeats · `.hb.{process}.gone` who does not answer · `.rpc.{process}` requests to one process
//! · `.job.{capability}.{job}` jobs that wait · `.name.{node}` who has a node's name · `.usage` usage records
//! · `.ev` what happens in the cluster.

use std::{fmt, str::FromStr};

use crate::id::{
    CallId, Capability, Digest, EntityId, FileId, JobId, McpServerName, NodeName, ParseIdError,
    Partition, ProcessId, SshHostName, TimerId,
};

/// Keys of the bucket about agents begin with this.
pub const AGENT_KEYS: &str = "agent.";
/// What the keys of dead letters in the bucket begin with.
pub const LETTER_KEYS: &str = "letter.";
/// Keys of the bucket with calls that wait for a person begin with this.
pub const APPROVAL_KEYS: &str = "approval.";
/// Keys of the bucket with the limits of accounts begin with this.
pub const BUDGET_KEYS: &str = "budget.";
/// Keys of the bucket with processes of a node that runs alone and have spent without a journal begin with this.
pub const UNJOURNALED_KEYS: &str = "unjournaled.";
/// Keys of the bucket that list memories begin with this.
pub const MEMORY_KEYS: &str = "memory.";
/// Keys of the bucket with calls that wait for a provider begin with this.
pub const OUTAGE_KEYS: &str = "outage.";
/// Keys of the bucket with the states of jobs begin with this.
pub const JOB_KEYS: &str = "js.";
/// Keys of the bucket with entities that may have killed their process begin with this.
pub const PROBATION_KEYS: &str = "probation.";
/// Keys of the bucket with what is kept of jobs for people begin with this.
pub const ARCHIVE_KEYS: &str = "archive.";
/// Keys of the bucket with uploaded files begin with this.
pub const FILE_KEYS: &str = "file.";
/// Keys of the bucket with what operators have stopped begin with this.
pub const SWITCH_KEYS: &str = "latch.";
/// Keys of the bucket with the tools of MCP servers begin with this.
pub const MCP_KEYS: &str = "mcp.";
/// Keys of the bucket with the keys of SSH hosts begin with this.
pub const SSH_KEYS: &str = "ssh.";
/// Keys of the bucket with what model calls used begin with this.
pub const USAGE_KEYS: &str = "usage.";
/// Keys of the bucket with what plugins keep begin with this.
pub const STORE_KEYS: &str = "store.";
/// Names the owner of a store that plugins share; no plugin is called that.
const SHARED: &str = "=";
/// What all subjects and stream names of one cluster begin with (`cn` unless configured).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Prefix(String);

impl Prefix {
    /// The longest it may be, in bytes.
    pub const MAX: usize = 32;

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Where one entity's inputs wait.
    pub fn input(&self, partition: Partition, entity: EntityId) -> String {
        format!("{}.in.{partition}.{entity}", self.0)
    }

    /// The inputs of all entities of one partition.
    pub fn inputs_of(&self, partition: Partition) -> String {
        format!("{}.in.{partition}.*", self.0)
    }

    /// All inputs.
    pub fn inputs(&self) -> String {
        format!("{}.in.>", self.0)
    }

    /// One entity's journal: one literal subject, because only that fences.
    pub fn journal(&self, partition: Partition, entity: EntityId) -> String {
        format!("{}.j.{partition}.{entity}", self.0)
    }

    /// The journals of one partition.
    pub fn journals_of(&self, partition: Partition) -> String {
        format!("{}.j.{partition}.*", self.0)
    }

    /// All journals.
    pub fn journals(&self) -> String {
        format!("{}.j.>", self.0)
    }

    /// One timer of one entity.
    pub fn timer(&self, partition: Partition, entity: EntityId, timer: TimerId) -> String {
        format!("{}.tmr.{partition}.{entity}.{timer}", self.0)
    }

    /// All timers of one partition.
    pub fn timers_of(&self, partition: Partition) -> String {
        format!("{}.tmr.{partition}.>", self.0)
    }

    /// All timers.
    pub fn timers(&self) -> String {
        format!("{}.tmr.>", self.0)
    }

    /// Where one timer goes when it is due; from there it is moved to the inbox.
    pub fn due(&self, partition: Partition, entity: EntityId, timer: TimerId) -> String {
        format!("{}.due.{partition}.{entity}.{timer}", self.0)
    }

    /// All timers that are due.
    pub fn dues(&self) -> String {
        format!("{}.due.>", self.0)
    }

    /// How a due timer's subject becomes its entity's input subject: pattern and result.
    pub fn due_to_input(&self) -> (String, String) {
        (
            format!("{}.due.*.*.*", self.0),
            format!("{}.in.{{{{wildcard(1)}}}}.{{{{wildcard(2)}}}}", self.0),
        )
    }

    /// Where due timers travel from their stream to the inbox.
    pub fn due_feed(&self) -> String {
        format!("{}.feed.due", self.0)
    }

    /// One key of the bucket; what follows its dots are tokens of the subject.
    pub fn bucket(&self, key: &str) -> String {
        format!("{}.kv.{key}", self.0)
    }

    /// All keys of the bucket.
    pub fn buckets(&self) -> String {
        format!("{}.kv.>", self.0)
    }

    /// How the cluster was born: in a stream of its own, which no node writes.
    pub fn birth(&self) -> String {
        format!("{}.birth", self.0)
    }

    /// Where one node's credential is offered, by the user that the node will be.
    pub fn offer(&self, user: &str) -> String {
        format!("{}.offer.{user}", self.0)
    }

    /// Where that user waits for it.
    pub fn joining(&self, user: &str) -> String {
        format!("{}.join.{user}", self.0)
    }

    /// Where one job waits. One literal subject, so that it waits once.
    pub fn job(&self, capability: &Capability, job: JobId) -> String {
        format!("{}.job.{}.{job}", self.0, capability_token(capability))
    }

    /// The jobs that need this capability.
    pub fn jobs_of(&self, capability: &Capability) -> String {
        format!("{}.job.{}.*", self.0, capability_token(capability))
    }

    /// The jobs of any one capability: what a consumer of jobs may be about.
    pub fn jobs_of_any(&self) -> String {
        format!("{}.job.*.*", self.0)
    }

    /// All jobs.
    pub fn jobs(&self) -> String {
        format!("{}.job.>", self.0)
    }

    /// One part of one blob: its description, or a piece by its number.
    pub fn blob(&self, digest: Digest, part: &str) -> String {
        format!("{}.blob.{digest}.{part}", self.0)
    }

    /// This part of every blob.
    pub fn blobs_with(&self, part: &str) -> String {
        format!("{}.blob.*.{part}", self.0)
    }

    /// All blobs.
    pub fn blobs(&self) -> String {
        format!("{}.blob.>", self.0)
    }

    /// One entity's provisional frames.
    pub fn frames(&self, entity: EntityId) -> String {
        format!("{}.tok.{entity}", self.0)
    }

    /// The provisional frames of all entities.
    pub fn all_frames(&self) -> String {
        format!("{}.tok.*", self.0)
    }

    /// One process's heartbeat.
    pub fn heartbeat(&self, process: ProcessId) -> String {
        format!("{}.hb.{process}", self.0)
    }

    /// All heartbeats.
    pub fn heartbeats(&self) -> String {
        format!("{}.hb.*", self.0)
    }

    /// What one process says of others that do not answer.
    pub fn hearsay(&self, process: ProcessId) -> String {
        format!("{}.hb.{process}.gone", self.0)
    }

    /// What all processes say of others that do not answer.
    pub fn all_hearsay(&self) -> String {
        format!("{}.hb.*.gone", self.0)
    }

    /// Requests to one process.
    pub fn rpc(&self, process: ProcessId) -> String {
        format!("{}.rpc.{process}", self.0)
    }

    /// Requests to any process.
    pub fn rpcs(&self) -> String {
        format!("{}.rpc.*", self.0)
    }

    /// Where the process that has this node's name answers.
    pub fn name(&self, node: &NodeName) -> String {
        format!("{}.name.{}", self.0, token(node.as_str()))
    }

    /// Where the processes with any name answer.
    pub fn names(&self) -> String {
        format!("{}.name.*", self.0)
    }

    /// Usage records, at least once, keyed by call and attempt.
    pub fn usage(&self) -> String {
        format!("{}.usage", self.0)
    }

    /// What happens in the cluster, for those who watch.
    pub fn events(&self) -> String {
        format!("{}.ev", self.0)
    }

    /// The name of a stream or bucket: upper case, because NATS names share one space.
    pub fn store(&self, name: &str) -> String {
        format!("{}_{name}", self.0).to_uppercase()
    }
}

/// A name as one token of a subject: it may have dots, and no `=`; a token is the other way round.
fn token(name: &str) -> String {
    name.replace('.', "=")
}

/// A capability as one token of a subject; also what the consumer of its jobs is called.
pub fn capability_token(capability: &Capability) -> String {
    token(capability.as_str())
}

/// The key of the bucket with a call that waits for a person.
pub fn approval_key(call: CallId) -> String {
    format!("{APPROVAL_KEYS}{call}")
}

/// The key of the bucket with a call that waits for a provider.
pub fn outage_key(call: CallId) -> String {
    format!("{OUTAGE_KEYS}{call}")
}

/// The key of the bucket with the limits of an account, by its entity.
pub fn budget_key(account: EntityId) -> String {
    format!("{BUDGET_KEYS}{account}")
}

/// The key of the bucket that lists a memory, by its entity.
pub fn memory_key(memory: EntityId) -> String {
    format!("{MEMORY_KEYS}{memory}")
}

/// The key of the bucket with what is known of an MCP server's tools.
pub fn mcp_key(server: &McpServerName) -> String {
    format!("{MCP_KEYS}{server}")
}

/// The key of the bucket with an SSH host's key.
pub fn ssh_key(host: &SshHostName) -> String {
    format!("{SSH_KEYS}{host}")
}

/// The key of the bucket with the names of the entries of a plugin's store, or in one that plugins share.
/// Both names are single tokens, by their types.
pub fn store_keys_key(plugin: Option<&str>, store: &str) -> String {
    format!("{STORE_KEYS}{}.{store}", plugin.unwrap_or(SHARED))
}

/// The key of the bucket with a value in a plugin's store. The key within is a single token too.
pub fn store_value_key(plugin: Option<&str>, store: &str, key: &str) -> String {
    format!("{}.{key}", store_keys_key(plugin, store))
}

/// The key of the bucket with a job's state.
pub fn job_key(job: JobId) -> String {
    format!("{JOB_KEYS}{job}")
}

/// The key of the bucket that is there while an entity is in hand that may kill its process.
pub fn probation_key(entity: EntityId) -> String {
    format!("{PROBATION_KEYS}{entity}")
}

/// Keys of the bucket with the uploaded files of a session begin with this.
pub fn file_keys(session: EntityId) -> String {
    format!("{FILE_KEYS}{session}.")
}

/// The key of the bucket with an uploaded file of a session.
pub fn file_key(session: EntityId, file: FileId) -> String {
    format!("{}{file}", file_keys(session))
}

/// The key of the bucket with the note about content of a session that no message may come to name, by its
/// blob.
pub fn content_key(session: EntityId, blob: Digest) -> String {
    format!("{}{blob}", file_keys(session))
}

/// The key of the bucket with what is kept of a job for people.
pub fn archive_key(job: JobId) -> String {
    format!("{ARCHIVE_KEYS}{job}")
}

impl Default for Prefix {
    fn default() -> Self {
        Self("cn".to_owned())
    }
}

impl FromStr for Prefix {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let fits = !text.is_empty()
            && text.len() <= Self::MAX
            && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_');
        if fits {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseIdError::new(text, "a prefix: 1 to 32 of a-z, 0-9, `_`"))
        }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The entity that an input or journal subject names, whatever its prefix.
pub fn entity_of(subject: &str) -> Option<EntityId> {
    subject.split('.').nth(3)?.parse().ok()
}

/// The job that a job's subject names, whatever its prefix.
pub fn job_of(subject: &str) -> Option<JobId> {
    subject.split('.').nth(3)?.parse().ok()
}
