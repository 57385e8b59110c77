//! Settings of tools.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use clawnode_proto::{
    McpServerName, ToolName,
    id::ParseIdError,
    timeout::{TimeBound, ToolTime},
    tool::{LoopGuard, ToolSpec},
};
use clawnode_tool::ArchiveOptions;
use serde::{Deserialize, Serialize};

use super::units;

/// `[tools]`: how this node runs tool calls that any node may run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolsOptions {
    /// Calls at once for each capability (8): more uses the node better, and makes each slower.
    /// What is beyond waits, or goes to another node.
    pub max_jobs: u32,
    /// How long a call waits for a node that can run it (1 min, at most 48 h), before its turn goes on
    /// without. More bridges longer outages of such nodes, less tells the model sooner.
    #[serde(with = "units::duration")]
    pub job_wait: Duration,
    /// How long what a call said and made is kept for people after it ran (7 days); `0s` keeps
    /// nothing. All workers of a cluster should agree.
    #[serde(with = "units::duration")]
    pub keep_jobs: Duration,
    /// How long a call of a tool may take, by the tool's name, where that is not what the tool says
    /// of itself. More than what runs it gives any call is not given.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub timeouts: BTreeMap<ToolName, ToolTimeout>,
    /// `[tools.run_command]`: which commands need no approval.
    #[serde(skip_serializing_if = "RunCommandOptions::is_usual")]
    pub run_command: RunCommandOptions,
}

/// `[tools.run_command]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunCommandOptions {
    /// Commands that only read: a call of `run_command` with one of them has the risk `READ_ONLY`,
    /// which needs no approval unless a rule says so. Plain words, such as `git status`; a last `*`
    /// means any further words that are not options: `git diff *`. Commands with characters
    /// that a shell interprets never match, nor do commands that read standard input. Make sure
    /// that a program only reads, whatever its files say: `git` runs programs that a repository's
    /// configuration names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<String>,
}

impl RunCommandOptions {
    /// Whether nothing is set.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// See [`ToolsOptions::timeouts`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolTimeout(#[serde(with = "units::duration")] pub Duration);

impl ToolsOptions {
    /// The time of this tool's calls as it is configured here.
    pub fn timed(&self, spec: ToolSpec) -> ToolSpec {
        let Some(ToolTimeout(own)) = self.timeouts.get(&spec.name) else { return spec };
        let ms = u32::try_from(own.as_millis()).unwrap_or(u32::MAX);
        let set_in = format!("tools.timeouts.{}", spec.name);
        let time = ToolTime { command: TimeBound { ms, set_in }, ..spec.time() };
        ToolSpec { time: Some(time), ..spec }
    }
}

impl Default for ToolsOptions {
    fn default() -> Self {
        Self {
            max_jobs: 8,
            job_wait: Duration::from_mins(1),
            keep_jobs: ArchiveOptions::default().keep,
            timeouts: BTreeMap::new(),
            run_command: RunCommandOptions::default(),
        }
    }
}

/// `[agents.NAME.loop_guard]`: what is done about a tool call that a turn makes over and over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoopGuardOptions {
    /// From this one on the model is warned (3).
    pub warn: u32,
    /// From this one on it is refused (5).
    pub refuse: u32,
    /// This one ends the turn (30).
    pub end: u32,
}

impl Default for LoopGuardOptions {
    fn default() -> Self {
        let LoopGuard { warn, refuse, end } = LoopGuard::default();
        Self { warn, refuse, end }
    }
}

impl From<LoopGuardOptions> for LoopGuard {
    fn from(options: LoopGuardOptions) -> Self {
        Self { warn: options.warn, refuse: options.refuse, end: options.end }
    }
}

/// One tool, or all of an MCP server, as an agent's `tools` names them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ToolSelection {
    /// `file_read`, `server__tool`.
    One(ToolName),
    /// `server__*`.
    All(McpServerName),
}

impl ToolSelection {
    /// The one tool, if it is one.
    pub const fn name(&self) -> Option<&ToolName> {
        match self {
            Self::One(name) => Some(name),
            Self::All(_) => None,
        }
    }
}

impl FromStr for ToolSelection {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        match text.strip_suffix("__*") {
            Some(server) => server.parse().map(Self::All),
            None => text.parse().map(Self::One),
        }
    }
}

impl TryFrom<String> for ToolSelection {
    type Error = ParseIdError;

    fn try_from(text: String) -> Result<Self, ParseIdError> {
        text.parse()
    }
}

impl From<ToolSelection> for String {
    fn from(choice: ToolSelection) -> Self {
        choice.to_string()
    }
}

impl fmt::Display for ToolSelection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(tool) => write!(f, "{tool}"),
            Self::All(server) => write!(f, "{server}__*"),
        }
    }
}
