//! Runs the tools on files, on threads that may wait for a disk.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clawnode_proto::{
    AgentName, CallId, ErrorChain,
    tool::{ToolFailure, ToolOutcome, ToolSpec},
};
use clawnode_tool::workspace_path::{FILE_LIST, FILE_READ, FILE_SEARCH, FILE_WRITE, WorkspacePath};
use clawnode_tool::{Executor, ToolRun, arguments};
use serde::Deserialize;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::{
    WorkspaceError, WorkspaceOptions,
    agent_directory::Root,
    list::list,
    read::{READ_BYTES, read},
    search::{SearchTarget, search},
    specs::specs,
    write::write,
};

/// The tools on agents' files.
#[derive(Debug)]
pub struct Workspace {
    specs: Vec<ToolSpec>,
    files: Arc<WorkspaceFiles>,
}

#[derive(Debug)]
struct WorkspaceFiles {
    root: Root,
    search_time: Duration,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReadArguments {
    path: String,
    #[serde(default)]
    offset: u64,
    limit: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteArguments {
    path: String,
    content: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    path: Option<String>,
    depth: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchArguments {
    pattern: String,
    path: Option<String>,
    #[serde(default)]
    regex: bool,
    #[serde(default)]
    ignore_case: bool,
}

/// What is to be done, with its paths parsed.
enum FileWork {
    Read { path: WorkspacePath, offset: u64, limit: u64 },
    Write { path: WorkspacePath, content: String },
    List { path: WorkspacePath, depth: usize },
    Search { path: WorkspacePath, pattern: String, is_regex: bool, ignore_case: bool },
}

// === impl Workspace ===

impl Workspace {
    /// The files below the options' root, which must be there.
    pub fn open(options: &WorkspaceOptions) -> Result<Self, WorkspaceError> {
        Ok(Self::of(options, Root::open(options)?))
    }

    /// One with a bug in it.
    #[cfg(feature = "test-util")]
    pub fn with_bug(
        options: &WorkspaceOptions,
        planted: super::WorkspaceBug,
    ) -> Result<Self, WorkspaceError> {
        let mut root = Root::open(options)?;
        if planted != super::WorkspaceBug::None {
            root.plant(options, planted);
        }
        Ok(Self::of(options, root))
    }

    fn of(options: &WorkspaceOptions, root: Root) -> Self {
        let files = Arc::new(WorkspaceFiles { root, search_time: options.search_time });
        Self { specs: specs(options), files }
    }
}

#[async_trait]
impl Executor for Workspace {
    fn tools(&self) -> Vec<ToolSpec> {
        self.specs.clone()
    }

    async fn execute(&self, run: ToolRun, cancelled: CancellationToken) -> ToolOutcome {
        let (agent, call) = (run.agent.clone(), run.call);
        let work = match FileWork::read(run) {
            Ok(work) => work,
            Err(outcome) => return outcome,
        };
        let files = Arc::clone(&self.files);
        // A thread cannot be stopped, but what runs on it looks at the token before it changes
        // anything and after every line: dropping this future leaves it little to do.
        let asked = cancelled.child_token();
        let _guard = asked.clone().drop_guard();
        match spawn_blocking(move || files.run(&agent, call, &work, &asked)).await {
            Ok(Ok(text)) => ToolOutcome::done(text),
            Ok(Err(error)) => ToolOutcome::failed(error.failure(), ErrorChain(&error).to_string()),
            Err(error) => ToolOutcome::failed(ToolFailure::Crashed, error.to_string()),
        }
    }

    async fn health_check(&self) -> Result<(), String> {
        let files = Arc::clone(&self.files);
        let checked = spawn_blocking(move || files.root.check()).await;
        checked.map_err(|error| error.to_string())?.map_err(|error| ErrorChain(&error).to_string())
    }
}

// === impl WorkspaceFiles ===

impl WorkspaceFiles {
    fn run(
        &self,
        agent: &AgentName,
        call: CallId,
        work: &FileWork,
        asked: &CancellationToken,
    ) -> Result<String, WorkspaceError> {
        let place = self.root.place(agent)?;
        match work {
            FileWork::Read { path, offset, limit } => read(&place, path, *offset, *limit),
            FileWork::Write { path, content } => write(&place, path, content, call, asked),
            FileWork::List { path, depth } => list(&place, path, *depth),
            FileWork::Search { path, pattern, is_regex, ignore_case } => {
                let wanted =
                    SearchTarget { pattern, is_regex: *is_regex, ignore_case: *ignore_case };
                search(&place, path, &wanted, self.search_time, asked)
            }
        }
    }
}

// === impl FileWork ===

impl FileWork {
    fn read(mut run: ToolRun) -> Result<Self, ToolOutcome> {
        match run.tool.as_str() {
            FILE_READ => {
                let ReadArguments { path, offset, limit } = arguments::read(&mut run)?;
                let limit = limit.unwrap_or(READ_BYTES);
                Ok(Self::Read { path: parse(&path)?, offset, limit })
            }
            FILE_WRITE => {
                let WriteArguments { path, content } = arguments::read(&mut run)?;
                Ok(Self::Write { path: parse(&path)?, content })
            }
            FILE_LIST => {
                let List { path, depth } = arguments::read(&mut run)?;
                Ok(Self::List { path: parse_or_whole(path)?, depth: depth.unwrap_or(1) })
            }
            FILE_SEARCH => {
                let SearchArguments { pattern, path, regex, ignore_case } =
                    arguments::read(&mut run)?;
                let path = parse_or_whole(path)?;
                Ok(Self::Search { path, pattern, is_regex: regex, ignore_case })
            }
            other => {
                let why = format!("there is no tool `{other}` here");
                Err(ToolOutcome::failed(ToolFailure::Invalid, why))
            }
        }
    }
}

fn parse(path: &str) -> Result<WorkspacePath, ToolOutcome> {
    let refused = |error| {
        let error = WorkspaceError::from(error);
        ToolOutcome::failed(error.failure(), error.to_string())
    };
    WorkspacePath::parse(path).map_err(refused)
}

fn parse_or_whole(path: Option<String>) -> Result<WorkspacePath, ToolOutcome> {
    path.map_or_else(|| Ok(WorkspacePath::whole()), |path| parse(&path))
}
